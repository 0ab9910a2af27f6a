#include "io/pg_conn.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/host.h"
#include "base/log.h"
#include "base/mem.h"

enum { IDLE_IN_TX_MS = 60000 }; /* a transaction whose owner hangs must not hold its locks for ever */

int pg_conn_lost(struct err *e)
{
	bool first = e->code == ERR_NONE;
	(void)err_set(e, ERR_UNAVAILABLE, "The database cannot be reached right now; try again in a moment.");
	if (first)
		e->reason = "database_away";
	return -1;
}

/* Wait until the socket is ready for one of `events`. False on deadline, stop, or a poll that cannot work. */
static bool wait_socket(const PGconn *c, short events, struct pg_until until)
{
	for (;;) {
		int left = clock_left_ms(until.deadline_ms);
		struct pollfd p[2] = { { .fd = PQsocket(c), .events = events },
			{ .fd = until.stop_fd, .events = POLLIN } };
		if (left == 0 || p[0].fd < 0)
			return false;
		int n = poll(p, 2, left);
		if (n < 0 && errno != EINTR)
			return false;
		if (n > 0 && p[1].revents != 0)
			return false;
		if (n > 0)
			return true;
	}
}

/* Notices (for example of IF NOT EXISTS) would go to standard error past the log's format. */
static void drop_notice(void *arg, const PGresult *r)
{
	(void)arg;
	(void)r;
}

static PGconn *start(const char *conninfo, int statement_timeout_ms)
{
	char options[160];
	(void)snprintf(options, sizeof options,
	    "-c statement_timeout=%d -c idle_in_transaction_session_timeout=%d -c timezone=UTC -c "
	    "datestyle=ISO",
	    statement_timeout_ms, IDLE_IN_TX_MS);
	/* Later entries win over what the conninfo says, except the fallback name. The TCP ones notice a dead
	 * peer. */
	const char *const keys[] = { "dbname", "options", "client_encoding", "fallback_application_name",
		"keepalives_idle", "keepalives_interval", "keepalives_count", "tcp_user_timeout", NULL };
	const char *const values[] = { conninfo, options, "UTF8", "gatehouse", "20", "5", "3", "30000",
		NULL };
	return PQconnectStartParams(keys, values, 1);
}

static bool handshake(PGconn *c, struct pg_until until)
{
	PostgresPollingStatusType s = PGRES_POLLING_WRITING;
	while (s == PGRES_POLLING_READING || s == PGRES_POLLING_WRITING) {
		if (!wait_socket(c, s == PGRES_POLLING_READING ? POLLIN : POLLOUT, until))
			return false;
		s = PQconnectPoll(c);
	}
	return s == PGRES_POLLING_OK;
}

/* Of the process, which has one database: an outage is one story, however many threads ask again. */
static struct {
	pthread_mutex_t lock;
	struct log_spell spell;
} outage = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* Why is for the operator only: the text names hosts, users and socket paths. */
static void tell(const char *why_or_null)
{
	long long n;
	char times[24];
	(void)pthread_mutex_lock(&outage.lock);
	bool now = why_or_null != NULL ? log_spell_fails(&outage.spell, clock_ms(), &n)
				       : log_spell_works(&outage.spell, &n);
	(void)pthread_mutex_unlock(&outage.lock);
	(void)snprintf(times, sizeof times, "%lld", n);
	if (now && why_or_null != NULL)
		log_warn("database connection failed", "detail", why_or_null, "times", times);
	else if (now)
		log_info("database connection works again", "failed", times);
}

PGconn *pg_conn_open(const char *conninfo, int statement_timeout_ms, struct pg_until until, struct err *e)
{
	PGconn *c = start(conninfo, statement_timeout_ms);
	if (c == NULL)
		abort(); /* out of memory */
	(void)PQsetNoticeReceiver(c, drop_notice, NULL);
	if (PQstatus(c) != CONNECTION_BAD && handshake(c, until) && PQsetnonblocking(c, 1) == 0) {
		tell(NULL);
		return c;
	}
	tell(PQerrorMessage(c));
	PQfinish(c);
	(void)pg_conn_lost(e);
	return NULL;
}

bool pg_conn_stale(const PGconn *c)
{
	/* Between commands a server speaks only to say goodbye or that its settings changed: both are a
	 * reason for a new one. */
	struct pollfd p = { .fd = PQsocket(c), .events = POLLIN | POLLRDHUP };
	return PQstatus(c) != CONNECTION_OK || p.fd < 0 || poll(&p, 1, 0) != 0;
}

static bool flush(PGconn *c, struct pg_until until)
{
	int left;
	while ((left = PQflush(c)) == 1) {
		if (!wait_socket(c, POLLIN | POLLOUT, until))
			return false;
		/* Reading while writing: a server whose answer nobody reads stops reading too. */
		if (PQconsumeInput(c) == 0)
			return false;
	}
	return left == 0;
}

static bool failed(const PGresult *r)
{
	ExecStatusType s = PQresultStatus(r);
	return s != PGRES_TUPLES_OK && s != PGRES_COMMAND_OK && s != PGRES_EMPTY_QUERY;
}

PGresult *pg_conn_finish(PGconn *c, struct pg_until until)
{
	PGresult *kept = NULL;
	bool whole = flush(c, until);
	while (whole) {
		while (whole && PQisBusy(c))
			whole = wait_socket(c, POLLIN, until) && PQconsumeInput(c) != 0;
		PGresult *r = whole ? PQgetResult(c) : NULL;
		if (r == NULL)
			break;
		if (kept == NULL || !failed(kept)) {
			PQclear(kept);
			kept = r;
		} else {
			PQclear(r);
		}
	}
	/* A failure that the server told before it closed (57P01, say) is worth more than "connection lost".
	 */
	bool told = kept != NULL && failed(kept) && PQresultErrorField(kept, PG_DIAG_SQLSTATE) != NULL;
	if (!whole || (PQstatus(c) != CONNECTION_OK && !told)) {
		PQclear(kept);
		return NULL;
	}
	return kept;
}

static bool state_is(const char *state, const char *const *prefixes)
{
	for (; *prefixes != NULL; prefixes++)
		if (strncmp(state, *prefixes, strlen(*prefixes)) == 0)
			return true;
	return false;
}

int pg_conn_check(const PGresult *r, const char *what, struct err *e)
{
	/* Connection lost, shutdown and statement timeout, out of resources, serialisation and deadlock, lock
	 * timeout, read-only after a fail-over. */
	static const char *const passing[] = { "08", "57", "53", "40001", "40P01", "55P03", "25006", "25P03",
		NULL };
	if (!failed(r))
		return 0;
	const char *state = PQresultErrorField(r, PG_DIAG_SQLSTATE);
	if (state == NULL)
		return pg_conn_lost(e);
	if (strcmp(state, "23505") == 0)
		return err_set(e, ERR_CONFLICT, "Something with that name exists already; choose another.");
	const char *msg = PQresultErrorField(r, PG_DIAG_MESSAGE_PRIMARY);
	if (state_is(state, passing)) {
		log_warn("database statement failed", "statement", what, "sqlstate", state, "detail", msg);
		return pg_conn_lost(e);
	}
	/* Messages of class 22 (data exception) quote the value; the log must never hold parameters. */
	log_error("database refused a statement", "statement", what, "sqlstate", state, "detail",
	    strncmp(state, "22", 2) == 0 ? NULL : msg, "constraint",
	    PQresultErrorField(r, PG_DIAG_CONSTRAINT_NAME));
	return err_set(
	    e, ERR_INTERNAL, "The service could not store or read its data; the log has the details.");
}

/* ---- where conninfo leads */

static const char *option(const PQconninfoOption *all, const char *name)
{
	for (const PQconninfoOption *o = all; o->keyword != NULL; o++)
		if (strcmp(o->keyword, name) == 0 && o->val != NULL)
			return o->val;
	return "";
}

/* libpq: lists are separated by commas, and one port is every host's. */
void pg_servers(const char *conninfo, void (*fn)(void *arg, const char *host, uint16_t port), void *arg)
{
	enum { DEFAULT_PORT = 5432 };
	char *why = NULL;
	PQconninfoOption *all = PQconninfoParse(conninfo, &why);
	PQfreemem(why);
	if (all == NULL)
		return;
	const char *addresses = option(all, "hostaddr");
	struct str hosts = str_of(addresses[0] != '\0' ? addresses : option(all, "host")), host = { "", 0 };
	struct str ports = str_of(option(all, "port")), one = { "", 0 };
	bool more = str_cut(&hosts, ',', &host);
	do {
		auto_free char *name = xcalloc(1, host.n + 1);
		memcpy(name, host.p, host.n);
		uint16_t port = DEFAULT_PORT;
		(void)str_cut(&ports, ',', &one);
		fn(arg, name, host_port(one, &port) ? port : DEFAULT_PORT);
	} while (more && str_cut(&hosts, ',', &host));
	PQconninfoFree(all);
}
