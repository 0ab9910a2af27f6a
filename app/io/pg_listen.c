#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "io/pg.h"
#include "io/pg_conn.h"

enum { BACKOFF_MIN_MS = 100, BACKOFF_MAX_MS = 2000, STATEMENT_BYTES = 1024 };

struct pg_listen {
	char *conninfo;
	const char *const *channels;
	pg_event_fn *fn;
	void *arg;
	struct pg_listen_times times;
	int stop_fd; /* readable for ever once we are to stop */
	pthread_t thread;
};

static struct pg_until within(const struct pg_listen *l, int ms)
{
	return (struct pg_until){ .deadline_ms = clock_ms() + ms, .stop_fd = l->stop_fd };
}

/* Wait for the connection (-1: none) or the order to stop: 1 readable, 0 time is up, -1 stop. */
static int wait_event(const struct pg_listen *l, int fd, int ms)
{
	struct pollfd p[2] = { { .fd = fd, .events = POLLIN }, { .fd = l->stop_fd, .events = POLLIN } };
	int n = poll(p, 2, ms);
	if (p[1].revents != 0)
		return -1;
	return n > 0 || (n < 0 && errno != EINTR) ? 1 : 0;
}

static bool exec(const struct pg_listen *l, PGconn *c, const char *sql)
{
	if (PQsendQuery(c, sql) == 0)
		return false;
	struct err ignored = {
		0
	}; /* whatever it is, the remedy is a new connection; pg_conn_check logs it */
	PGresult *r = pg_conn_finish(c, within(l, l->times.answer_ms));
	bool ok = r != NULL && pg_conn_check(r, "listen", &ignored) == 0;
	PQclear(r);
	return ok;
}

static bool subscribe(const struct pg_listen *l, PGconn *c)
{
	auto_buf struct buf sql = BUF(STATEMENT_BYTES);
	for (const char *const *name = l->channels; *name != NULL; name++) {
		char *quoted = PQescapeIdentifier(c, *name, strlen(*name));
		if (quoted == NULL)
			return false;
		(void)buf_fmt(&sql, "LISTEN %s;", quoted);
		PQfreemem(quoted);
	}
	return !sql.full && exec(l, c, buf_c(&sql));
}

/* Until the connection is lost or we are to stop. */
static void serve(const struct pg_listen *l, PGconn *c)
{
	for (;;) {
		PGnotify *n;
		while ((n = PQnotifies(c)) != NULL) {
			l->fn(l->arg, n->relname, n->extra);
			PQfreemem(n);
		}
		int rc = wait_event(l, PQsocket(c), l->times.keepalive_ms);
		if (rc < 0)
			return;
		/* Silence may also be a peer that is gone without a word; only an answer tells. */
		if (rc == 0 ? !exec(l, c, "SELECT 1") : PQconsumeInput(c) == 0)
			return;
	}
}

static void *run(void *arg)
{
	const struct pg_listen *l = arg;
	int backoff_ms = BACKOFF_MIN_MS;
	do {
		struct err ignored = { 0 }; /* logged where it happened */
		int ms = l->times.answer_ms;
		PGconn *c = pg_conn_open(l->conninfo, ms, within(l, ms), &ignored);
		if (c != NULL && subscribe(l, c)) {
			backoff_ms = BACKOFF_MIN_MS;
			l->fn(l->arg, "", "");
			serve(l, c);
		} else {
			backoff_ms = 2 * backoff_ms > BACKOFF_MAX_MS ? BACKOFF_MAX_MS : 2 * backoff_ms;
		}
		PQfinish(c);
	} while (wait_event(l, -1, backoff_ms) == 0);
	return NULL;
}

struct pg_listen *pg_listen_start_with(const char *conninfo, const char *const *channels, pg_event_fn *fn,
    void *arg, struct pg_listen_times times)
{
	struct pg_listen *l = xcalloc(1, sizeof *l);
	*l = (struct pg_listen){
		.conninfo = xstrdup(conninfo), .channels = channels, .fn = fn, .arg = arg, .times = times
	};
	l->stop_fd = eventfd(0, EFD_CLOEXEC);
	/* At start of a process: without it nothing would ever be woken, and its supervisor tries again. */
	if (l->stop_fd < 0 || pthread_create(&l->thread, NULL, run, l) != 0)
		abort();
	return l;
}

struct pg_listen *pg_listen_start(
    const char *conninfo, const char *const *channels, pg_event_fn *fn, void *arg)
{
	return pg_listen_start_with(conninfo, channels, fn, arg,
	    (struct pg_listen_times){ .keepalive_ms = 15000, .answer_ms = 5000 });
}

void pg_listen_stop(struct pg_listen *l)
{
	if (l == NULL)
		return;
	(void)eventfd_write(l->stop_fd, 1);
	(void)pthread_join(l->thread, NULL);
	(void)close(l->stop_fd);
	free(l->conninfo);
	free(l);
}
