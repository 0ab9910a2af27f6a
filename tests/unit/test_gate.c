/* test_gate.c - who holds the listeners of the sandboxes, whatever is restarted (EGR-10, EGR-11). Needs no root: the listeners
 * are ordinary sockets, egress is a thread of ours. */
#include "../t.h"

#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/id.h"
#include "base/js.h"
#include "io/egress_ctl.h"
#include "io/file.h"
#include "sandbox/gate.h"

enum { WAIT_MS = 60000, HELD = 8 };

static char top[] = "/tmp/gh_gate.XXXXXX", path[64];

/* ---- egress: keeps what it is given, as long as it "lives" */

static struct {
	pthread_t thread;
	atomic_bool stop, refuses;
	atomic_int opens, closes;
	pthread_mutex_t lock;
	struct {
		char id[ID_MAX], kind[16];
		int fd; /* -1: free */
	} held[HELD];
} egress = { .lock = PTHREAD_MUTEX_INITIALIZER };

static int slot(const char *id)
{
	for (int i = 0; i < HELD; i++)
		if (egress.held[i].fd >= 0 && strcmp(egress.held[i].id, id) == 0)
			return i;
	return -1;
}

static bool holds(const char *id)
{
	(void)pthread_mutex_lock(&egress.lock);
	bool yes = slot(id) >= 0;
	(void)pthread_mutex_unlock(&egress.lock);
	return yes;
}

static void let_go(int i)
{
	(void)close(egress.held[i].fd);
	egress.held[i].fd = -1;
}

static void take(const json_t *q, int fd)
{
	int i = slot(js_str_or(q, "sandbox", ""));
	if (i >= 0)
		let_go(i);
	for (i = 0; egress.held[i].fd >= 0; i++)
		assert_true(i < HELD - 1);
	(void)snprintf(egress.held[i].id, ID_MAX, "%s", js_str_or(q, "sandbox", ""));
	(void)snprintf(egress.held[i].kind, 16, "%s", js_str_or(q, "kind", ""));
	egress.held[i].fd = fd;
	egress.opens++;
}

static json_t *answer(int c, const json_t *q, int fd, struct err *e)
{
	const char *op = js_str_or(q, "op", "");
	if (strcmp(op, "open") == 0 && egress.refuses) {
		(void)close(fd);
		return js_pack("{s:b,s:s,s:s,s:s}", "ok", 0, "code", "unavailable", "reason",
		    "policy_unavailable", "message", "no policy");
	}
	if (strcmp(op, "open") == 0)
		take(q, fd);
	if (strcmp(op, "close") == 0) {
		int i = slot(js_str_or(q, "sandbox", ""));
		egress.closes++;
		if (i >= 0)
			let_go(i);
	}
	if (strcmp(op, "list") == 0)
		for (int i = 0; i < HELD; i++)
			if (egress.held[i].fd >= 0) {
				auto_json json_t *one = js_pack(
				    "{s:s,s:s}", "sandbox", egress.held[i].id, "kind", egress.held[i].kind);
				(void)egress_ctl_send(c, one, egress.held[i].fd, e);
			}
	return js_pack("{s:b}", "ok", 1);
}

static void talk(int c)
{
	struct err e = { 0 };
	json_t *q = NULL;
	int fd;
	if (egress_ctl_recv(c, &q, &fd, &e) != 1)
		return;
	auto_json json_t *owned = q;
	(void)pthread_mutex_lock(&egress.lock);
	auto_json json_t *a = answer(c, q, fd, &e);
	(void)pthread_mutex_unlock(&egress.lock);
	(void)egress_ctl_send(c, a, -1, &e);
}

static void *live(void *arg)
{
	int l = *(int *)arg, c = -1;
	while (!egress.stop) {
		struct pollfd p[2] = { { .fd = l, .events = POLLIN }, { .fd = c, .events = POLLIN } };
		(void)poll(p, 2, 10);
		if (p[0].revents != 0 && c < 0)
			c = accept4(l, NULL, NULL, SOCK_CLOEXEC);
		if (c >= 0 && (p[1].revents & POLLHUP) != 0) {
			(void)close(c);
			c = -1;
		} else if (c >= 0 && p[1].revents != 0) {
			talk(c);
		}
	}
	if (c >= 0)
		(void)close(c);
	(void)close(l);
	return NULL;
}

static void egress_start(void)
{
	static int l;
	struct err e = { 0 };
	l = egress_ctl_listen(path, &e);
	if (l < 0)
		fail_msg("%s", e.msg);
	egress.stop = false;
	assert_int_equal(pthread_create(&egress.thread, NULL, live, &l), 0);
}

/* killed: what it held is gone with it; else it goes on holding (a connection lost) */
static void egress_stop(bool killed)
{
	egress.stop = true;
	(void)pthread_join(egress.thread, NULL);
	for (int i = 0; killed && i < HELD; i++)
		if (egress.held[i].fd >= 0)
			let_go(i);
}

/* ---- */

static int a_listener(struct listeners *l, uint16_t *port)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t n = sizeof a;
	listeners_none(l);
	int fd = l->fd[LISTEN_PROXY] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof a), 0);
	assert_int_equal(listen(fd, 5), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &n), 0);
	*port = ntohs(a.sin_port);
	return fd;
}

/* Does anybody still listen there? */
static bool open_at(uint16_t port)
{
	const struct sockaddr_in a = {
		.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)
	};
	auto_fd int s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	return connect(s, (const struct sockaddr *)&a, sizeof a) == 0;
}

#define AWAIT(what)                                                                                          \
	for (int64_t until_ = clock_ms() + WAIT_MS; !(what); (void)poll(NULL, 0, 5))                         \
	assert_true(clock_ms() < until_)

static void what_is_opened_is_given_and_closed_by_both(void **s)
{
	(void)s;
	struct err e = { 0 };
	struct listeners l;
	uint16_t port;
	char id[ID_MAX];
	id_make("sbx", id);
	egress_start();
	struct gate *g = gate_start(path);
	assert_true(gate_known(g));
	(void)a_listener(&l, &port);
	assert_int_equal(gate_open(g, id, &l, &e), 0);
	assert_int_equal(l.fd[LISTEN_PROXY], -1);
	assert_true(gate_has(g, id));
	assert_true(holds(id));
	assert_true(open_at(port));
	gate_close(g, id);
	assert_false(gate_has(g, id));
	assert_false(holds(id));
	assert_false(open_at(port));
	gate_close(g, id); /* again, and of one that never was: fine */
	gate_stop(g);
	egress_stop(true);
}

static void a_restarted_egress_is_given_everything_again(void **s)
{
	(void)s;
	struct err e = { 0 };
	struct listeners l;
	uint16_t port;
	char id[ID_MAX];
	id_make("sbx", id);
	egress_start();
	struct gate *g = gate_start(path);
	(void)a_listener(&l, &port);
	assert_int_equal(gate_open(g, id, &l, &e), 0);
	egress_stop(true);
	AWAIT(!gate_known(g));
	assert_true(open_at(port)); /* clients wait in its queue */
	egress_start();
	AWAIT(holds(id));
	assert_true(gate_known(g));
	gate_close(g, id);
	assert_false(open_at(port));
	gate_stop(g);
	egress_stop(true);
}

/* EGR-1: what it cannot judge it does not serve; others are not kept from theirs by it. */
static void what_egress_does_not_take_is_kept_and_given_later(void **s)
{
	(void)s;
	struct err e = { 0 };
	struct listeners l;
	uint16_t port;
	char away[ID_MAX], refused[ID_MAX];
	id_make("sbx", away);
	id_make("sbx", refused);
	struct gate *g = gate_start(path);
	assert_false(gate_known(g));
	(void)a_listener(&l, &port);
	assert_int_equal(gate_open(g, away, &l, &e), -1);
	assert_int_equal(e.code, ERR_UNAVAILABLE);
	assert_true(gate_has(g, away));
	egress_start();
	AWAIT(holds(away));
	egress.refuses = true;
	(void)a_listener(&l, &port);
	err_clear(&e);
	assert_int_equal(gate_open(g, refused, &l, &e), -1);
	assert_string_equal(e.reason, "policy_unavailable");
	assert_true(gate_known(g)); /* a refusal does not cost the connection */
	egress.refuses = false;
	AWAIT(holds(refused));
	gate_stop(g);
	egress_stop(true);
	assert_false(open_at(port));
}

static enum gate_verdict verdict;
static int asked;
static enum gate_verdict judge(void *arg, const char *id)
{
	asked++;
	assert_string_equal(id, (const char *)arg);
	return verdict;
}

static void a_restarted_sandboxd_is_given_back_what_egress_holds(void **s)
{
	(void)s;
	struct err e = { 0 };
	struct listeners l;
	uint16_t port, other_port;
	char id[ID_MAX], other[ID_MAX];
	id_make("sbx", id);
	id_make("sbx", other);
	egress_start();
	struct gate *g = gate_start(path);
	(void)a_listener(&l, &port);
	assert_int_equal(gate_open(g, id, &l, &e), 0);
	(void)a_listener(&l, &other_port);
	assert_int_equal(gate_open(g, other, &l, &e), 0);
	gate_stop(g);
	assert_true(open_at(port));
	int opens = egress.opens;

	g = gate_start(path);
	assert_false(gate_has(g, id));
	assert_true(gate_claim(g, id));
	assert_true(gate_has(g, id));
	assert_false(gate_claim(g, "sbx_00000000000000000000000000"));
	/* What nobody has claimed is kept as long as somebody may, then let go: it may be another node's… */
	verdict = GATE_KEEP;
	gate_strays(g, judge, other);
	verdict = GATE_FORGET;
	gate_strays(g, judge, other);
	assert_true(holds(other));
	gate_strays(g, judge, other);
	assert_int_equal(asked, 2);
	assert_int_equal(egress.opens, opens); /* nothing was given twice */
	gate_stop(g);
	/* …or over, and then egress lets go too. */
	g = gate_start(path);
	assert_true(gate_claim(g, id));
	verdict = GATE_CLOSE;
	gate_strays(g, judge, other);
	assert_false(holds(other));
	assert_false(open_at(other_port));
	assert_true(open_at(port));
	gate_stop(g);
	egress_stop(true);
	assert_false(open_at(port));
}

static int up(void **s)
{
	(void)s;
	for (int i = 0; i < HELD; i++)
		egress.held[i].fd = -1;
	if (mkdtemp(top) == NULL)
		return -1;
	(void)snprintf(path, sizeof path, "%s/e.sock", top);
	return 0;
}

static int down(void **s)
{
	(void)s;
	struct err e = { 0 };
	return file_rmtree(top, &e);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_opened_is_given_and_closed_by_both),
		cmocka_unit_test(a_restarted_egress_is_given_everything_again),
		cmocka_unit_test(what_egress_does_not_take_is_kept_and_given_later),
		cmocka_unit_test(a_restarted_sandboxd_is_given_back_what_egress_holds),
	};
	return cmocka_run_group_tests_name("gate", tests, up, down);
}
