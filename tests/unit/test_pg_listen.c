#include "../span.h"
#include "../t.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "../pgtest.h"
#include "base/clock.h"
#include "base/log.h"
#include "io/pg_conn.h"

enum { PATIENCE_S = 20 };

static struct pgtest *server;
static const char *const channels[] = { "gh_a", "Gh \"b", NULL };

/* What the callback was told, in order: "channel:payload ". */
static struct {
	pthread_mutex_t lock;
	pthread_cond_t more;
	char text[4096];
} heard = { .lock = PTHREAD_MUTEX_INITIALIZER, .more = PTHREAD_COND_INITIALIZER };

static void note(const char *text, const char *more)
{
	(void)pthread_mutex_lock(&heard.lock);
	size_t n = strlen(heard.text);
	(void)snprintf(heard.text + n, sizeof heard.text - n, "%s:%s ", text, more);
	(void)pthread_cond_broadcast(&heard.more);
	(void)pthread_mutex_unlock(&heard.lock);
}

/* The log as a fake: a failed attempt to connect is something to wait for. */
static _Atomic bool hear_log;
void log_kv(enum log_level level, const char *msg, ...)
{
	(void)level;
	if (hear_log)
		note("log", msg);
}

static void hear(void *arg, const char *channel, const char *payload)
{
	assert_ptr_equal(arg, &heard);
	note(channel, payload);
}

static void expect(const char *text)
{
	struct timespec end;
	(void)clock_gettime(CLOCK_REALTIME, &end);
	end.tv_sec += PATIENCE_S;
	(void)pthread_mutex_lock(&heard.lock);
	int rc = 0;
	while (strcmp(heard.text, text) != 0 && rc == 0)
		rc = pthread_cond_timedwait(&heard.more, &heard.lock, &end);
	char got[sizeof heard.text];
	memcpy(got, heard.text, sizeof got);
	(void)pthread_mutex_unlock(&heard.lock);
	assert_string_equal(got, text);
}

static struct pg_listen *listen_with(struct pg_listen_times times)
{
	heard.text[0] = 0;
	return pg_listen_start_with(pgtest_conninfo(server), channels, hear, &heard, times);
}

static const struct pg_listen_times usual = { .keepalive_ms = 15000, .answer_ms = 5000 };

static void a_notification_arrives_with_its_payload(void **s)
{
	(void)s;
	struct pg_listen *l = listen_with(usual);
	expect(": ");
	pgtest_sql(server, "NOTIFY gh_a, 'one'; NOTIFY \"Gh \"\"b\", 'two'; NOTIFY other, 'three'");
	expect(": gh_a:one Gh \"b:two ");
	pg_listen_stop(l);
}

static void it_survives_a_restart_and_says_look_again(void **s) /* REL-2, STR-3 */
{
	(void)s;
	struct pg_listen *l = listen_with(usual);
	expect(": ");
	pgtest_down(server);
	pgtest_up(server);
	expect(": : ");
	pgtest_sql(server, "NOTIFY gh_a, 'after'");
	expect(": : gh_a:after ");
	pg_listen_stop(l);
}

static void it_starts_before_the_server_does(void **s)
{
	(void)s;
	pgtest_down(server);
	struct pg_listen *l = listen_with(usual);
	pgtest_up(server);
	expect(": ");
	pg_listen_stop(l);
}

static void a_silent_peer_is_asked_and_replaced(void **s)
{
	(void)s;
	struct pg_listen *l = listen_with(
	    (struct pg_listen_times){ .keepalive_ms = 50, .answer_ms = span_room_ms(300) });
	expect(": ");
	/* The old connection is given up before anybody answers on it again; the new one waits for the hanging server too. */
	hear_log = true;
	pgtest_hang(server);
	expect(": log:database connection failed ");
	hear_log = false;
	pgtest_resume(server);
	expect(": log:database connection failed : ");
	pg_listen_stop(l);
}

static void stop_is_prompt_even_when_the_server_hangs_or_is_away(void **s)
{
	(void)s;
	struct pg_listen *l = listen_with((struct pg_listen_times){ .keepalive_ms = 1, .answer_ms = 60000 });
	expect(": ");
	pgtest_hang(server);
	struct span t0 = span_begin();
	pg_listen_stop(l);
	int64_t took_ms = span_ms(&t0);
	pgtest_resume(server);
	assert_in_range(took_ms, 0, 1000);

	pgtest_down(server);
	l = listen_with(usual);
	t0 = span_begin();
	pg_listen_stop(l);
	assert_in_range(span_ms(&t0), 0, 1000);
	pgtest_up(server);
	pg_listen_stop(NULL);
}

static int start_server(void **s)
{
	(void)s;
	server = pgtest_start();
	return 0;
}

static int end_server(void **s)
{
	(void)s;
	pgtest_end(server);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_notification_arrives_with_its_payload),
		cmocka_unit_test(it_survives_a_restart_and_says_look_again),
		cmocka_unit_test(it_starts_before_the_server_does),
		cmocka_unit_test(a_silent_peer_is_asked_and_replaced),
		cmocka_unit_test(stop_is_prompt_even_when_the_server_hangs_or_is_away),
	};
	return cmocka_run_group_tests_name("pg_listen", tests, start_server, end_server);
}
