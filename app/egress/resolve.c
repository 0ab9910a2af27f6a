#include "egress/resolve.h"

#include <ares.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <time.h>

#include "base/hash.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"

enum {
	BUCKETS = 1024,
	SOCKETS = 64,
	HOST_BYTES = 256,
	TICK_MS = 50,
	TRIES = 2,
	EDNS_BYTES = 1232, /* fits every path unfragmented; more comes by TCP */
};

struct name { /* a question under way */
	struct resolver *r;
	char host[HOST_BYTES];
	int64_t deadline_ms;
	bool given_up; /* its waiters are gone, c-ares still holds it */
	LIST_HEAD(, resolve_wait) waiters;
	LIST_ENTRY(name) in_bucket, in_all;
};
LIST_HEAD(names, name);

struct kept { /* an answer */
	char host[HOST_BYTES];
	int64_t until_ms;
	LIST_ENTRY(kept) in_bucket;
	TAILQ_ENTRY(kept) in_age;
	int n;
	struct ip addrs[];
};

struct resolver {
	struct loop *loop;
	ares_channel ares;
	const char *servers;
	struct timespec read_at; /* when the host's configuration was written */
	int timeout_ms, asking;
	struct timer tick;
	struct sock {
		struct watch watch;
		struct resolver *r;
	} socks[SOCKETS];
	struct names all, names[BUCKETS];
	LIST_HEAD(, kept) kept[BUCKETS];
	TAILQ_HEAD(, kept) age;
	int n_kept;
	struct resolve_stats stats;
};

/* ---- answers that are kept */

static void drop(struct resolver *r, struct kept *k)
{
	LIST_REMOVE(k, in_bucket);
	TAILQ_REMOVE(&r->age, k, in_age);
	r->n_kept--;
	free(k);
}

static void keep(struct resolver *r, const char *host, const struct ip *addrs, int n, int ttl_s)
{
	if (ttl_s <= 0)
		return;
	struct kept *k = xcalloc(1, sizeof *k + (size_t)n * sizeof *addrs);
	memcpy(k->host, host, strlen(host) + 1);
	k->until_ms = loop_now_ms(r->loop) + 1000LL * (ttl_s < RESOLVE_KEEP_S ? ttl_s : RESOLVE_KEEP_S);
	k->n = n;
	memcpy(k->addrs, addrs, (size_t)n * sizeof *addrs);
	LIST_INSERT_HEAD(&r->kept[hash_slot(host, BUCKETS)], k, in_bucket);
	TAILQ_INSERT_TAIL(&r->age, k, in_age);
	if (++r->n_kept > RESOLVE_KEPT)
		drop(r, TAILQ_FIRST(&r->age));
}

static const struct kept *find_kept(struct resolver *r, const char *host)
{
	struct kept *k, *next;
	for (k = LIST_FIRST(&r->kept[hash_slot(host, BUCKETS)]); k != NULL; k = next) {
		next = LIST_NEXT(k, in_bucket);
		if (k->until_ms <= loop_now_ms(r->loop))
			drop(r, k);
		else if (strcmp(k->host, host) == 0)
			return k;
	}
	return NULL;
}

/* ---- c-ares and the loop */

static void on_socket(struct watch *w, uint32_t events)
{
	struct sock *s = (struct sock *)(void *)w;
	ares_process_fd(s->r->ares, (events & (EPOLLIN | EPOLLERR | EPOLLHUP)) != 0 ? w->fd : ARES_SOCKET_BAD,
	    (events & EPOLLOUT) != 0 ? w->fd : ARES_SOCKET_BAD);
}

/* A socket of c-ares wants to be watched; with neither it is about to be closed, by c-ares. */
static void on_state(void *arg, ares_socket_t fd, int readable, int writable)
{
	struct resolver *r = arg;
	struct sock *s = NULL;
	for (int i = 0; i < SOCKETS; i++) {
		struct sock *at = &r->socks[i];
		if (at->watch.fd == fd || (s == NULL && at->watch.fd < 0))
			s = at;
		if (at->watch.fd == fd)
			break;
	}
	if (s == NULL) /* the question will run into its time */
		return;
	s->watch.fd = fd;
	(void)loop_watch(
	    r->loop, &s->watch, (readable != 0 ? EPOLLIN : 0U) | (writable != 0 ? EPOLLOUT : 0U));
	if (readable == 0 && writable == 0)
		s->watch.fd = -1;
}

static void finish(struct name *q, enum resolve_status status, const struct ip *addrs, int n)
{
	struct resolve_wait *w;
	if (q->given_up)
		return;
	q->given_up = true;
	LIST_REMOVE(q, in_bucket);
	q->r->stats.failed += status != RESOLVE_OK;
	while ((w = LIST_FIRST(&q->waiters)) != NULL) {
		resolve_forget(w);
		w->on(w, status, addrs, n);
	}
}

static void on_tick(struct timer *t)
{
	struct resolver *r = (struct resolver *)(void *)((char *)t - offsetof(struct resolver, tick));
	ares_process_fd(r->ares, ARES_SOCKET_BAD, ARES_SOCKET_BAD);
	for (struct name *q = LIST_FIRST(&r->all), *next; q != NULL; q = next) {
		next = LIST_NEXT(q, in_all);
		if (q->deadline_ms <= loop_now_ms(r->loop))
			finish(q, RESOLVE_FAILED, NULL, 0);
	}
	if (r->asking > 0)
		loop_timer(r->loop, &r->tick, TICK_MS);
}

/* Every record; -1 when there are too many. */
static int records(const struct ares_addrinfo *a, struct ip out[RESOLVE_RECORDS], int *ttl_s)
{
	int n = 0;
	*ttl_s = RESOLVE_KEEP_S;
	for (const struct ares_addrinfo_node *at = a->nodes; at != NULL; at = at->ai_next) {
		if (n == RESOLVE_RECORDS)
			return -1;
		if (!addr_from_sockaddr(at->ai_addr, &out[n]))
			continue;
		n++;
		if (at->ai_ttl < *ttl_s)
			*ttl_s = at->ai_ttl;
	}
	return n;
}

static void on_answer(void *arg, int status, int timeouts, struct ares_addrinfo *a)
{
	struct name *q = arg;
	struct ip addrs[RESOLVE_RECORDS];
	int ttl_s = 0, n = status == ARES_SUCCESS ? records(a, addrs, &ttl_s) : 0;
	(void)timeouts;
	if (a != NULL)
		ares_freeaddrinfo(a);
	if (status == ARES_SUCCESS && n > 0) {
		if (find_kept(q->r, q->host) == NULL)
			keep(q->r, q->host, addrs, n, ttl_s);
		finish(q, RESOLVE_OK, addrs, n);
	} else if (status == ARES_ENOTFOUND) {
		finish(q, RESOLVE_NXDOMAIN, NULL, 0);
	} else if (status == ARES_ENODATA || (status == ARES_SUCCESS && n == 0)) {
		finish(q, RESOLVE_EMPTY, NULL, 0);
	} else {
		finish(q, RESOLVE_FAILED, NULL, 0);
	}
	LIST_REMOVE(q, in_all);
	q->r->asking--;
	free(q);
}

/* ---- asking */

static struct name *start(struct resolver *r, const char *host)
{
	struct name *q = xcalloc(1, sizeof *q);
	q->r = r;
	memcpy(q->host, host, strlen(host) + 1);
	q->deadline_ms = loop_now_ms(r->loop) + r->timeout_ms;
	LIST_INSERT_HEAD(&r->names[hash_slot(host, BUCKETS)], q, in_bucket);
	LIST_INSERT_HEAD(&r->all, q, in_all);
	r->stats.asked++;
	if (r->asking++ == 0)
		loop_timer(r->loop, &r->tick, TICK_MS);
	return q;
}

static void ask(struct name *q)
{
	/* No sorting: it would open a socket for each address. */
	const struct ares_addrinfo_hints hints = {
		.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = ARES_AI_NOSORT
	};
	ares_getaddrinfo(q->r->ares, q->host, NULL, &hints, on_answer, q);
}

void resolve(struct resolver *r, const char *host, struct resolve_wait *w)
{
	const struct kept *k = strlen(host) < HOST_BYTES ? find_kept(r, host) : NULL;
	struct name *q = NULL;
	w->waiting = false;
	if (k != NULL) {
		struct ip addrs[RESOLVE_RECORDS]; /* the entry may go while w->on works */
		int n = k->n;
		memcpy(addrs, k->addrs, (size_t)n * sizeof *addrs);
		r->stats.kept++;
		w->on(w, RESOLVE_OK, addrs, n);
		return;
	}
	if (strlen(host) >= HOST_BYTES || r->asking >= RESOLVE_NAMES) {
		r->stats.failed++;
		w->on(w, RESOLVE_FAILED, NULL, 0);
		return;
	}
	LIST_FOREACH(q, &r->names[hash_slot(host, BUCKETS)], in_bucket)
	if (strcmp(q->host, host) == 0)
		break;
	bool fresh = q == NULL;
	if (fresh)
		q = start(r, host);
	w->waiting = true;
	LIST_INSERT_HEAD(&q->waiters, w, in_name);
	if (fresh)
		ask(q); /* may answer at once */
}

void resolve_forget(struct resolve_wait *w)
{
	if (w->waiting)
		LIST_REMOVE(w, in_name);
	w->waiting = false;
}

void resolve_stats(const struct resolver *r, struct resolve_stats *out)
{
	*out = r->stats;
}

/* ---- life */

static int open_channel(struct resolver *r, struct err *e)
{
	static char dns_only[] = "b", as_host[] = "fb";
	bool own = r->servers[0] != '\0';
	/* c-ares doubles the time of each try: 1 + 2 quarters of ours. */
	struct ares_options o = { .flags = ARES_FLAG_NOSEARCH | ARES_FLAG_NOALIASES | ARES_FLAG_EDNS,
		.timeout = r->timeout_ms / 4,
		.tries = TRIES,
		.ednspsz = EDNS_BYTES,
		.lookups = own ? dns_only : as_host,
		.sock_state_cb = on_state,
		.sock_state_cb_data = r };
	int rc = ares_init_options(&r->ares, &o,
	    ARES_OPT_FLAGS | ARES_OPT_TIMEOUTMS | ARES_OPT_TRIES | ARES_OPT_EDNSPSZ | ARES_OPT_LOOKUPS |
		ARES_OPT_SOCK_STATE_CB);
	if (rc != ARES_SUCCESS) {
		r->ares = NULL;
		return err_set(e, ERR_INTERNAL, "The resolver cannot be made: %s.", ares_strerror(rc));
	}
	if (own && ares_set_servers_ports_csv(r->ares, r->servers) != ARES_SUCCESS)
		return err_set(e, ERR_BAD_REQUEST,
		    "EGRESS_DNS is not a list of addresses, alone or with :port: %.200s.", r->servers);
	return 0;
}

/* Has the host's configuration been written since we looked last? */
static bool is_new(struct resolver *r)
{
	struct stat st;
	if (r->servers[0] != '\0' || stat("/etc/resolv.conf", &st) != 0)
		return false;
	bool is = memcmp(&st.st_mtim, &r->read_at, sizeof st.st_mtim) != 0;
	r->read_at = st.st_mtim;
	return is;
}

void resolver_refresh(struct resolver *r)
{
	struct err e = { 0 };
	ares_channel old = r->ares;
	if (r->asking > 0 || !is_new(r)) /* when somebody waits, the next time */
		return;
	if (open_channel(r, &e) == 0) {
		ares_destroy(old);
		return;
	}
	log_error("the resolver's new configuration cannot be used", "why", e.msg);
	r->ares = old;
}

struct resolver *resolver_new(struct loop *l, const char *servers, int timeout_ms, struct err *e)
{
	struct resolver *r = xcalloc(1, sizeof *r);
	r->loop = l;
	r->servers = servers;
	r->timeout_ms = timeout_ms;
	r->tick.on = on_tick;
	TAILQ_INIT(&r->age);
	for (int i = 0; i < SOCKETS; i++) {
		r->socks[i] = (struct sock){ .watch = { .fd = -1, .on = on_socket }, .r = r };
	}
	if (ares_library_init(ARES_LIB_INIT_ALL) == ARES_SUCCESS && open_channel(r, e) == 0) {
		(void)is_new(r);
		return r;
	}
	resolver_free(r);
	return NULL;
}

void resolver_free(struct resolver *r)
{
	if (r == NULL)
		return;
	if (r->ares != NULL)
		ares_destroy(r->ares);
	loop_untimer(r->loop, &r->tick);
	for (struct kept *k = TAILQ_FIRST(&r->age), *next; k != NULL; k = next) {
		next = TAILQ_NEXT(k, in_age);
		free(k);
	}
	free(r);
}
