/* control.c - the socket on which sandboxd hands listeners over. A peer has one question at a time under way. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/js.h"
#include "base/log.h"
#include "base/str.h"
#include "egress/proxy.h"
#include "io/egress_ctl.h"

enum { METRICS_BYTES = 100 * 1024, SEND_ROOM = 4 << 20 };

struct peer {
	struct watch watch;
	struct later grave;
	struct control *control;
	LIST_ENTRY(peer) in_all;
	/* The `open` that waits for its policy. */
	char sandbox[ID_MAX];
	enum egress_kind kind;
	int listener; /* -1: nothing waits */
	/* The `list` that goes on when its reader has room: sandboxes as of its beginning, the next one, of that the next listener. */
	char (*names)[ID_MAX];
	size_t n_names, at;
	int at_listener;
};

struct control {
	struct proxy *proxy;
	struct watch watch;
	LIST_HEAD(, peer) peers;
};

static const char *const kinds[] = { "proxy", "http", "tls", "dns" };

static void on_grave(struct later *l)
{
	free(OWNER(l, struct peer, grave));
}

static void peer_end(struct peer *p)
{
	struct loop *l = p->control->proxy->loop;
	if (p->watch.fd < 0)
		return;
	loop_close(l, &p->watch);
	if (p->listener >= 0)
		(void)close(p->listener);
	free(steal(p->names));
	LIST_REMOVE(p, in_all);
	loop_bury(l, &p->grave);
}

/* Who does not read its answers is let go. */
static void answer(struct peer *p, json_t *body, int fd)
{
	auto_json json_t *owned = body;
	struct err e = { 0 };
	if (p->watch.fd >= 0 && egress_ctl_send(p->watch.fd, owned, fd, &e) != 0)
		peer_end(p);
}

static void refuse(struct peer *p, const struct err *e)
{
	answer(p,
	    js_pack("{s:b, s:s, s:s, s:s}", "ok", 0, "code", err_name(e->code), "reason",
		e->reason == NULL ? "" : e->reason, "message", e->msg),
	    -1);
}

static void refuse_with(struct peer *p, enum err_code code, const char *msg)
{
	struct err e = { 0 };
	err_set(&e, code, "%s", msg);
	refuse(p, &e);
}

static void ok(struct peer *p)
{
	answer(p, js_pack("{s:b}", "ok", 1), -1);
}

/* ---- questions */

static void opened(struct peer *p, struct guest *g)
{
	if (guest_listen(g, p->kind, steal_fd(&p->listener)) == 0)
		ok(p);
	else
		refuse_with(p, ERR_BAD_REQUEST, "This is not a listener of a kind that is served.");
}

static void ask_open(struct peer *p, const json_t *q, int *fd)
{
	const char *sandbox = js_str_or(q, "sandbox", ""), *kind = js_str_or(q, "kind", "");
	int k = 0;
	while (k < KINDS && strcmp(kinds[k], kind) != 0)
		k++;
	if (k == KINDS || *fd < 0 || strlen(sandbox) >= sizeof p->sandbox || sandbox[0] == '\0') {
		refuse_with(p, ERR_BAD_REQUEST, "open needs a sandbox, a kind and a descriptor.");
		return;
	}
	p->kind = (enum egress_kind)k;
	p->listener = steal_fd(fd);
	memcpy(p->sandbox, sandbox, strlen(sandbox) + 1);
	struct guest *g = guest_find(p->control->proxy, sandbox);
	if (g != NULL)
		opened(p, g); /* its policy is known already, and stands */
	else
		store_open(p->control->proxy->store, sandbox);
}

static void ask_close(struct peer *p, const json_t *q)
{
	struct guest *g = guest_find(p->control->proxy, js_str_or(q, "sandbox", ""));
	if (g != NULL)
		guest_free(g, REASON_SANDBOX_ENDED);
	ok(p);
}

/* One listener of the list: 1 told, 0 there is none at this place, -1 no room now. */
static int tell_one(struct peer *p)
{
	struct guest *g = guest_find(p->control->proxy, p->names[p->at]);
	const struct listener *l = g == NULL ? NULL : &g->listeners[p->at_listener];
	struct err e = { 0 };
	if (l == NULL || l->watch.fd < 0)
		return 0;
	auto_json json_t *one = js_pack("{s:s, s:s}", "sandbox", g->sandbox, "kind", kinds[l->kind]);
	return egress_ctl_send(p->watch.fd, one, l->watch.fd, &e) == 0 ? 1 : -1;
}

/* As much of the list as its reader takes now. */
static void list_on(struct peer *p)
{
	struct loop *l = p->control->proxy->loop;
	for (; p->at < p->n_names; p->at++, p->at_listener = 0)
		for (; p->at_listener < LISTENERS; p->at_listener++)
			if (tell_one(p) < 0) {
				if (loop_watch(l, &p->watch, EPOLLOUT) != 0)
					peer_end(p);
				return;
			}
	free(steal(p->names));
	if (loop_watch(l, &p->watch, EPOLLIN) != 0)
		peer_end(p);
	else
		ok(p);
}

static void ask_list(struct peer *p)
{
	struct proxy *proxy = p->control->proxy;
	struct guest *g;
	p->names = xcalloc((size_t)proxy->n_guests + 1, sizeof *p->names);
	p->n_names = p->at = 0;
	p->at_listener = 0;
	for (int b = 0; b < GUEST_BUCKETS; b++)
		LIST_FOREACH(g, &proxy->guests[b], in_bucket)
	memcpy(p->names[p->n_names++], g->sandbox, sizeof *p->names);
	list_on(p);
}

static void ask_metrics(struct peer *p)
{
	auto_buf struct buf text = BUF(METRICS_BYTES);
	proxy_metrics(p->control->proxy, &text);
	answer(p, js_pack("{s:b, s:s}", "ok", 1, "text", buf_c(&text)), -1);
}

static void asked(struct peer *p, const json_t *q, int *fd)
{
	const char *op = js_str_or(q, "op", "");
	if (p->listener >= 0)
		refuse_with(p, ERR_CONFLICT, "One question at a time.");
	else if (strcmp(op, "open") == 0)
		ask_open(p, q, fd);
	else if (strcmp(op, "close") == 0)
		ask_close(p, q);
	else if (strcmp(op, "list") == 0)
		ask_list(p);
	else if (strcmp(op, "metrics") == 0)
		ask_metrics(p);
	else
		refuse_with(p, ERR_BAD_REQUEST, "There is no such operation.");
}

void control_policy(struct control *c, const struct store_policy *got, struct guest *g)
{
	struct peer *p, *next;
	for (p = LIST_FIRST(&c->peers); p != NULL; p = next) {
		next = LIST_NEXT(p, in_all);
		if (p->listener < 0 || strcmp(p->sandbox, got->sandbox) != 0)
			continue;
		if (g != NULL) {
			opened(p, g);
			continue;
		}
		struct err e = { 0 };
		if (got->found == STORE_ABSENT)
			err_set(&e, ERR_NOT_FOUND, "There is no such sandbox.");
		else
			err_set(&e, ERR_UNAVAILABLE, "The sandbox's network policy cannot be read now.");
		e.reason = got->found == STORE_ABSENT ? NULL : reason_name(REASON_POLICY_UNAVAILABLE);
		(void)close(steal_fd(&p->listener));
		refuse(p, &e);
	}
}

/* ---- peers */

static void on_peer(struct watch *w, uint32_t events)
{
	struct peer *p = OWNER(w, struct peer, watch);
	auto_json json_t *q = NULL;
	auto_fd int fd = -1;
	struct err e = { 0 };
	if (p->names != NULL) {
		if ((events & (EPOLLERR | EPOLLHUP)) != 0)
			peer_end(p);
		else
			list_on(p);
		return;
	}
	int rc = egress_ctl_recv(w->fd, &q, &fd, &e);
	if (rc == 1)
		asked(p, q, &fd);
	else if (rc < 0 && e.code == ERR_BAD_REQUEST)
		refuse(p, &e);
	else if (rc == 0 || e.code != ERR_TIMEOUT)
		peer_end(p);
}

static void on_control(struct watch *w, uint32_t events)
{
	struct control *c = OWNER(w, struct control, watch);
	int room = SEND_ROOM;
	(void)events;
	auto_fd int fd = accept4(w->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
	if (fd < 0)
		return;
	if (!egress_ctl_trusted(fd)) {
		log_warn("a process of another user was turned away from the egress socket");
		return;
	}
	(void)setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
	struct peer *p = xcalloc(1, sizeof *p);
	*p = (struct peer){
		.watch = { .fd = fd, .on = on_peer }, .grave.run = on_grave, .control = c, .listener = -1
	};
	if (loop_watch(c->proxy->loop, &p->watch, EPOLLIN) != 0) {
		free(p);
		return;
	}
	(void)steal_fd(&fd);
	LIST_INSERT_HEAD(&c->peers, p, in_all);
}

struct control *control_new(struct proxy *p, struct err *e)
{
	struct control *c = xcalloc(1, sizeof *c);
	c->proxy = p;
	c->watch = (struct watch){ .fd = egress_ctl_listen(p->o.socket, e), .on = on_control };
	if (c->watch.fd >= 0 && loop_watch(p->loop, &c->watch, EPOLLIN) == 0)
		return c;
	control_free(c);
	return NULL;
}

void control_free(struct control *c)
{
	if (c == NULL)
		return;
	while (!LIST_EMPTY(&c->peers))
		peer_end(LIST_FIRST(&c->peers));
	loop_close(c->proxy->loop, &c->watch);
	free(c);
}
