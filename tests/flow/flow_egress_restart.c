/* flow_egress_restart.c - the boundary over the deaths of its processes (EGR-9…11): whoever is killed, the sandbox's listener stays
 * or comes back, its policy stands, and nothing of it is left in the end. */
#include "../t.h"

#include "../fds.h"

#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/js.h"
#include "base/str.h"
#include "egr.h"

static struct egr g;

enum { ENDED_MS = 60000, SETTLE_MS = 500 };

static void both_runtimes(char ids[2][40], int *n)
{
	egr_lease(&g, "", "a.origin.test:{P}", ids[0]);
	*n = 1;
	if (g.gvisor)
		egr_lease(&g, "gvisor", "a.origin.test:{P}", ids[(*n)++]);
	for (int i = 0; i < *n; i++)
		assert_true(egr_reaches(&g, ids[i]));
}

static void await_both(char ids[2][40], int n)
{
	for (int i = 0; i < n; i++) {
		auto_buf struct buf out = BUF(1 << 16);
		egr_await(&g, ids[i]);
		/* The policy is the one before, not an open door. */
		egr_curl(&g, ids[i], "b.origin.test", "/", &out);
		assert_true(str_starts(buf_c(&out), "403 "));
		assert_non_null(strstr(buf_c(&out), "not_on_allowlist"));
		/* Whoever knows no proxy is caught as before, too (EGR-16). */
		auto_buf struct buf bare = BUF(1 << 16);
		(void)sbx_sh(&g.stack, g.acme.key, ids[i],
		    "curl -sS -m 60 --noproxy '*' http://192.0.2.1/; getent hosts a.origin.test", &bare);
		assert_non_null(strstr(buf_c(&bare), "not_on_allowlist"));
		assert_non_null(strstr(buf_c(&bare), "198.18.0.1"));
		sbx_end(&g.stack, g.acme.key, ids[i]);
	}
}

static void an_egress_that_is_killed_is_given_its_listeners_again(void **s)
{
	(void)s;
	char ids[2][40];
	int n;
	both_runtimes(ids, &n);
	stack_kill(&g.stack, "egress1");
	stack_start(&g.stack, "egress1");
	await_both(ids, n);
}

static void a_sandboxd_that_is_killed_finds_the_listeners_again(void **s)
{
	(void)s;
	char ids[2][40];
	int n, before = origin_accepted(g.origin);
	both_runtimes(ids, &n);
	stack_kill(&g.stack, "node1");
	stack_start(&g.stack, "node1");
	stack_ready(&g.stack);
	await_both(ids, n);
	assert_true(origin_accepted(g.origin) > before);
}

static void what_both_have_lost_is_opened_anew(void **s)
{
	(void)s;
	char ids[2][40];
	int n;
	both_runtimes(ids, &n);
	stack_kill(&g.stack, "node1");
	stack_kill(&g.stack, "egress1");
	stack_start(&g.stack, "node1"); /* the one that opens before the one that serves */
	stack_start(&g.stack, "egress1");
	stack_ready(&g.stack);
	await_both(ids, n);
	both_runtimes(ids, &n);
	stack_kill(&g.stack, "egress1");
	stack_kill(&g.stack, "node1");
	stack_start(&g.stack, "egress1");
	stack_start(&g.stack, "node1");
	stack_ready(&g.stack);
	await_both(ids, n);
}

static long lease_status(const char *body, char id[40])
{
	auto_web struct web w = { 0 };
	web_do(&g.stack,
	    &(struct web_req){ .method = "POST", .path = "/v1/sandboxes", .key = g.acme.key, .body = body },
	    &w);
	(void)snprintf(id, 40, "%s", js_str_or(w.json, "id", ""));
	if (w.status == 503)
		assert_non_null(strstr(web_error(&w, "message"), "egress boundary"));
	return w.status;
}

/* How /ready tells the boundary; it takes no host out of service (HTTP-1). */
static const char *ready_says(char out[16])
{
	auto_web struct web w = { 0 };
	web_do(&g.stack, &(struct web_req){ .method = "GET", .path = "/ready" }, &w);
	assert_int_equal(w.status, 200);
	assert_string_equal(js_str_or(w.json, "status", ""), "ok");
	(void)snprintf(out, 16, "%s", js_str_or(w.json, "egress", ""));
	return out;
}

static void ready_tells_that_egress_is_away_and_is_200(void **s)
{
	(void)s;
	char says[16], id[40];
	int64_t until = clock_ms() + ENDED_MS; /* the test before may just have started it */
	while (strcmp(ready_says(says), "ok") != 0)
		assert_true(clock_ms() < until);
	stack_kill(&g.stack, "egress1");
	for (until = clock_ms() + ENDED_MS; strcmp(ready_says(says), "away") != 0;)
		assert_true(clock_ms() < until);
	assert_int_equal(lease_status("{}", id), 201);
	sbx_end(&g.stack, g.acme.key, id);
	stack_start(&g.stack, "egress1");
	for (until = clock_ms() + ENDED_MS; strcmp(ready_says(says), "ok") != 0;)
		assert_true(clock_ms() < until);
}

/* EGR-1: what nobody can enforce is not leased; what needs nobody is, and can be widened when egress is back. */
/* fault 46 */
static void without_egress_only_deny_all_is_leased(void **s)
{
	(void)s;
	char id[40], none[40];
	stack_kill(&g.stack, "egress1");
	int64_t until = clock_ms() + ENDED_MS; /* sandboxd notices within a moment */
	while (lease_status("{\"network\":{\"allowedHosts\":[\"a.origin.test\"]}}", none) != 503)
		assert_true(clock_ms() < until);
	assert_int_equal(lease_status("{\"network\":{\"mode\":\"allow-all\"}}", none), 503);
	assert_int_equal(lease_status("{}", id), 201);
	/* Written, but nobody can say that it is in force. */
	assert_int_equal(egr_policy(&g, g.acme.key, id, 0, "static", "a.origin.test:{P}"), 503);
	stack_start(&g.stack, "egress1");
	egr_await(&g, id);
	assert_int_equal(egr_policy(&g, g.acme.key, id, 0, "deny-all", NULL), 200);
	sbx_end(&g.stack, g.acme.key, id);
}

/* A policy changed while egress is away is the one that it comes back with. */
/* fault 46 */
static void a_change_is_not_lost_while_egress_is_away(void **s)
{
	(void)s;
	char id[40];
	auto_buf struct buf out = BUF(1 << 16);
	egr_lease(&g, "", "a.origin.test:{P}", id);
	assert_true(egr_reaches(&g, id));
	stack_kill(&g.stack, "egress1");
	assert_int_equal(egr_policy(&g, g.acme.key, id, 0, "deny-all", NULL), 503);
	stack_start(&g.stack, "egress1");
	egr_curl(&g, id, "a.origin.test", "/", &out); /* waits in the listener's queue until it is served */
	assert_true(str_starts(buf_c(&out), "403 "));
	assert_non_null(strstr(buf_c(&out), "mode_deny_all"));
	sbx_end(&g.stack, g.acme.key, id);
}

struct asking {
	pthread_t thread;
	char id[40], command[600];
};

static void *ask(void *arg)
{
	struct asking *a = arg;
	auto_web struct web w = { 0 };
	sbx_run(
	    &g.stack, g.acme.key, a->id, js_pack("{s:s,s:i}", "command", a->command, "timeoutSec", 600), &w);
	return NULL;
}

static void await_accepted(int more)
{
	int before = origin_accepted(g.origin);
	for (int64_t until = clock_ms() + 60000; origin_accepted(g.origin) < before + more;
	     (void)poll(NULL, 0, 10))
		assert_true(clock_ms() < until);
}

/* PostgreSQL away: the last policy stands, nothing new is leased. */
static void without_the_database_the_last_policy_stands(void **s)
{
	(void)s;
	struct asking a;
	auto_web struct web w = { 0 };
	egr_lease(&g, "", "a.origin.test:{P}", a.id);
	(void)snprintf(a.command, sizeof a.command,
	    "until [ -e /mnt/data/stop ]; do curl -s -m 60 -o /dev/null http://a.origin.test:%d/; [ $(curl "
	    "-s -m 60 "
	    "-o /dev/null -w '%%{http_code}' http://b.origin.test:%d/) != 200 ] || echo open; sleep 0.02; "
	    "done",
	    g.port, g.port);
	assert_int_equal(pthread_create(&a.thread, NULL, ask, &a), 0);
	await_accepted(2);
	stack_kill(&g.stack, "pg");
	await_accepted(5);
	web_do(&g.stack,
	    &(struct web_req){ .method = "POST", .path = "/v1/sandboxes", .key = g.acme.key, .body = "{}" },
	    &w);
	assert_int_equal(w.status, 503);
	stack_start(&g.stack, "pg");
	stack_ready(&g.stack);
	await_accepted(2);
	assert_int_equal(sbx_sh(&g.stack, g.acme.key, a.id, "touch /mnt/data/stop", NULL), 0);
	(void)pthread_join(a.thread, NULL);
	assert_true(egr_reaches(&g, a.id));
	sbx_end(&g.stack, g.acme.key, a.id);
}

/* Does anything listen on the boundary's port in the namespace of this sandbox? */
static bool taken(const char *id)
{
	char path[200], text[64] = "";
	(void)snprintf(path, sizeof path, "%s/sandboxes/node1/b/%s/pid", g.stack.dir, id);
	FILE *f = fopen(path, "r");
	assert_non_null(f);
	assert_non_null(fgets(text, sizeof text, f));
	(void)fclose(f);
	(void)snprintf(path, sizeof path, "/proc/%ld/net/tcp", strtol(text, NULL, 10));
	f = fopen(path, "r");
	assert_non_null(f);
	char line[256];
	bool yes = false;
	while (fgets(line, sizeof line, f) != NULL)
		yes = yes || strstr(line, "0100007F:0C38 00000000:0000 0A") != NULL;
	(void)fclose(f);
	return yes;
}

/* EGR-10: code that stands where the boundary has to be ends its sandbox. */
static void a_sandbox_that_takes_the_port_meanwhile_is_ended(void **s)
{
	(void)s;
	struct asking a;
	char path[80];
	egr_lease(&g, "", "a.origin.test:{P}", a.id);
	(void)snprintf(a.command, sizeof a.command,
	    "python3 -c 'import socket, time\nwhile True:\n  try: l = socket.socket(); "
	    "l.bind((\"127.0.0.1\", 3128)); break\n"
	    "  except OSError: time.sleep(0.002)\nl.listen(); time.sleep(300)' & touch /mnt/data/up; wait");
	assert_int_equal(pthread_create(&a.thread, NULL, ask, &a), 0);
	assert_int_equal(
	    sbx_sh(&g.stack, g.acme.key, a.id, "until [ -e /mnt/data/up ]; do sleep 0.02; done", NULL), 0);
	assert_true(taken(a.id)); /* by us, so it keeps trying */
	stack_kill(&g.stack, "node1");
	stack_kill(&g.stack, "egress1");
	for (int64_t until = clock_ms() + ENDED_MS; !taken(a.id); (void)poll(NULL, 0, 10))
		assert_true(clock_ms() < until);
	stack_start(&g.stack, "egress1");
	stack_start(&g.stack, "node1");
	stack_ready(&g.stack);
	(void)snprintf(path, sizeof path, "/v1/sandboxes/%s", a.id);
	for (int64_t until = clock_ms() + ENDED_MS;; (void)poll(NULL, 0, 50)) {
		auto_web struct web w = { 0 };
		web_json(&g.stack, "GET", path, g.acme.key, NULL, &w);
		if (strcmp(js_str_or(w.json, "status", ""), "error") == 0) {
			assert_non_null(strstr(js_str_or(w.json, "error", ""), "egress boundary"));
			break;
		}
		assert_true(clock_ms() < until);
	}
	(void)pthread_join(a.thread, NULL);
}

/* A listener that somebody keeps keeps a network namespace: after their sandboxes both have as many descriptors as before. */
static void nothing_is_held_of_sandboxes_that_have_ended(void **s)
{
	(void)s;
	char id[40];
	egr_lease(&g, "", "a.origin.test:{P}", id); /* whatever is opened once */
	assert_true(egr_reaches(&g, id));
	sbx_end(&g.stack, g.acme.key, id);
	sbx_no_leaks(&g.stack);
	auto_buf struct buf node_were = BUF(1 << 20), egress_were = BUF(1 << 20);
	pid_t node = stack_pid(&g.stack, "node1"), egress = stack_pid(&g.stack, "egress1");
	int of_node = fds_least(node, SETTLE_MS, &node_were),
	    of_egress = fds_least(egress, SETTLE_MS, &egress_were);
	for (int i = 0; i < 6; i++) {
		egr_lease(
		    &g, i % 3 == 2 && g.gvisor ? "gvisor" : "", i % 2 == 0 ? "a.origin.test:{P}" : NULL, id);
		if (i % 2 == 0)
			assert_true(egr_reaches(&g, id));
		sbx_end(&g.stack, g.acme.key, id);
	}
	fds_back(node, of_node, &node_were, ENDED_MS);
	fds_back(egress, of_egress, &egress_were, ENDED_MS);
	sbx_no_leaks(&g.stack);
}

static int up(void **s)
{
	(void)s;
	egr_up(&g, 1, 1, "", NULL);
	return 0;
}

static int down(void **s)
{
	(void)s;
	egr_down(&g);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_egress_that_is_killed_is_given_its_listeners_again),
		cmocka_unit_test(a_sandboxd_that_is_killed_finds_the_listeners_again),
		cmocka_unit_test(what_both_have_lost_is_opened_anew),
		cmocka_unit_test(ready_tells_that_egress_is_away_and_is_200),
		cmocka_unit_test(without_egress_only_deny_all_is_leased),
		cmocka_unit_test(a_change_is_not_lost_while_egress_is_away),
		cmocka_unit_test(without_the_database_the_last_policy_stands),
		cmocka_unit_test(a_sandbox_that_takes_the_port_meanwhile_is_ended),
		cmocka_unit_test(nothing_is_held_of_sandboxes_that_have_ended),
	};
	return cmocka_run_group_tests_name("egress restarts", tests, up, down);
}
