/* flow_volume.c - what outlives a lease: volumes of projects (SBX-1…4, 45, 61). */
#include "../t.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/js.h"
#include "base/str.h"
#include "io/file.h"
#include "sbx.h"

enum { RACERS = 64, MIB = 1 << 20 };

static struct stack stack;
static struct stack_org acme, other;
static bool gvisor, volumes;

static json_t *dev(const char *project)
{
	return js_pack("{s:s,s:s}", "class", "dev", "project", project);
}

static void needs_volumes(void)
{
	if (!volumes)
		skip();
}

static void said(const char *id, const char *command)
{
	sbx_said(&stack, acme.key, id, command);
}

static void ended(const char *key, json_t *fields, long status)
{
	auto_web struct web w = { 0 };
	web_json(&stack, "POST", "/v1/sandboxes/end", key, fields, &w);
	if (w.status != status)
		fail_msg("%ld %s", w.status, w.body);
}

static void refused(const char *key, json_t *fields, long status, const char *param, const char *says)
{
	sbx_refused(&stack, key, fields, status, param, says);
}

/* A volume's row, or NULL; new reference. */
static json_t *volume(const char *key, const char *project)
{
	auto_web struct web w = { 0 };
	size_t i;
	json_t *v;
	web_json(&stack, "GET", "/v1/volumes", key, NULL, &w);
	assert_int_equal(w.status, 200);
	json_array_foreach(js_get(w.json, "data"), i, v)
		if (strcmp(js_str(v, "project"), project) == 0)
			return json_incref(v);
	return NULL;
}

static bool on_disk(const char *name)
{
	char path[400], instance[64];
	stack_instance(&stack, instance);
	(void)snprintf(path, sizeof path, "%s/volumes/%s.node1/%s.ext4", stack.dir, instance, name);
	return access(path, F_OK) == 0;
}

static int purge(const char *key, const char *project)
{
	char path[100];
	auto_web struct web w = { 0 };
	(void)snprintf(path, sizeof path, "/v1/volumes/%s", project);
	web_json(&stack, "DELETE", path, key, NULL, &w);
	return (int)w.status;
}

/* ---- survival */

static void survives(const char *first, const char *second)
{
	char a[40], b[40], filler[40];
	json_t *one = dev("Deep Research"), *two = dev("deep-research");
	if (first != NULL)
		js_set_str(one, "runtime", first);
	if (second != NULL)
		js_set_str(two, "runtime", second);
	sbx_lease(&stack, acme.key, one, a);
	said(a,
	    "test $PWD = /work && test $(find /work -maxdepth 0 -printf %u) = agent && echo kept > f && "
	    "mkdir d && ln -s ../f d/l && "
	    "echo lost | tee /tmp/f /state/f ~/f && touch -d @1 f; test \"$(echo *)\" = 'd f'");
	sbx_end(&stack, acme.key, a);
	sbx_lease(&stack, acme.key, NULL, filler); /* takes the range of ids that the first one had */
	sbx_lease(&stack, acme.key, two, b);
	assert_string_not_equal(a, b);
	said(b,
	    "test $(cat d/l) = kept && test $(find f -printf %u:%Ts) = agent:1 && echo more >> f && rm -r d "
	    "&& "
	    "test ! -e /tmp/f -a ! -e /state/f -a ! -e ~/f && rm f");
	sbx_end(&stack, acme.key, b);
	sbx_end(&stack, acme.key, filler);
}

/* SBX-1, SBX-3 */
/* fault 39 */
static void a_volume_survives_its_lease_whatever_ids_the_next_one_has(void **s)
{
	(void)s;
	needs_volumes();
	survives(NULL, NULL);
	if (gvisor) {
		survives("gvisor", NULL);
		survives(NULL, "gvisor");
	}
	sbx_no_leaks(&stack);
}

static void it_is_told_whose_it_is_and_how_large(void **s)
{
	(void)s;
	needs_volumes();
	char id[40], path[80], name[100];
	sbx_lease(&stack, acme.key, dev("Told"), id);
	auto_web struct web w = { 0 };
	(void)snprintf(path, sizeof path, "/v1/sandboxes/%s", id);
	web_json(&stack, "GET", path, acme.key, NULL, &w);
	(void)snprintf(name, sizeof name, "project.%s.told", acme.slug);
	assert_string_equal(js_str(w.json, "project"), "told");
	assert_string_equal(js_str(w.json, "workdir"), "/work");
	assert_string_equal(js_str(w.json, "volume"), name);
	assert_true(on_disk(name));
	auto_json json_t *v = volume(acme.key, "told");
	char now[CLOCK_TEXT];
	clock_rfc3339(clock_wall_ms(), now);
	assert_int_equal(strncmp(js_str_or(v, "lastLeased", ""), now, 10), 0);
	assert_int_equal(js_int(v, "sizeBytes", 0), 64 * MIB);
	assert_string_equal(js_str(v, "sandbox"), id);
	assert_string_equal(js_str(v, "node"), "node1");
	assert_null(volume(other.key, "told"));
	/* What it takes is known when its lease has ended, not a minute later. */
	long long before = js_int(v, "usedBytes", 0);
	sbx_said(&stack, acme.key, id, "head -c 12000000 /dev/urandom >big");
	ended(acme.key, js_pack("{s:s}", "id", id), 200);
	auto_json json_t *left = volume(acme.key, "told");
	assert_true(js_int(left, "usedBytes", 0) >= before + 12000000);
	sbx_lease(&stack, acme.key, dev("Told"), id);
	ended(acme.key, js_pack("{s:s,s:b}", "id", id, "purge", 1), 200);
}

/* ---- one live sandbox of a project (SBX-3) */

/* fault 40 */
static void a_project_that_is_live_is_given_back_or_named(void **s)
{
	(void)s;
	needs_volumes();
	char id[40], unlike[40];
	sbx_lease(&stack, acme.key, dev("live"), id);
	auto_web struct web w = { 0 };
	web_json(&stack, "POST", "/v1/sandboxes", acme.key, dev("LIVE "), &w);
	assert_int_equal(w.status, 200);
	assert_string_equal(js_str(w.json, "id"), id);
	refused(acme.key, js_pack("{s:s,s:s}", "class", "exec", "project", "live"), 409, "class", id);
	refused(acme.key, js_pack("{s:s,s:s}", "class", "exec", "id", id), 409, "class", id);
	refused(
	    acme.key, js_pack("{s:s,s:s,s:s}", "class", "dev", "project", "x", "id", id), 409, "project", id);
	if (gvisor)
		refused(acme.key,
		    js_pack("{s:s,s:s,s:s}", "class", "dev", "project", "live", "runtime", "gvisor"), 409,
		    "runtime", id);
	/* Another org's project of the same name is another one. */
	sbx_lease(&stack, other.key, dev("live"), unlike);
	assert_string_not_equal(id, unlike);
	sbx_end(&stack, other.key, unlike);
	sbx_end(&stack, acme.key, id);
	assert_int_equal(purge(acme.key, "live"), 200);
	assert_int_equal(purge(other.key, "live"), 200);
}

struct racer {
	pthread_t thread;
	int n;
	long status;
	char id[40];
};

static void *race(void *arg)
{
	struct racer *r = arg;
	auto_web struct web w = { 0 };
	char body[100];
	(void)snprintf(body, sizeof body, "{\"class\":\"dev\",\"project\":\"race\"}");
	struct web_req q = { .method = "POST",
		.path = "/v1/sandboxes",
		.key = acme.key,
		.body = body,
		.api = r->n % 2,
		.timeout_s = 120 };
	web_do(&stack, &q, &w);
	r->status = w.status;
	(void)snprintf(r->id, sizeof r->id, "%s", js_str_or(w.json, "id", ""));
	return NULL;
}

/* fault 41: no claim is checked in one moment and taken in the next */
static void of_many_that_lease_one_project_all_get_the_same(void **s)
{
	(void)s;
	needs_volumes();
	static struct racer r[RACERS];
	int made = 0;
	for (int i = 0; i < RACERS; i++) {
		r[i].n = i;
		assert_int_equal(pthread_create(&r[i].thread, NULL, race, &r[i]), 0);
	}
	for (int i = 0; i < RACERS; i++)
		(void)pthread_join(r[i].thread, NULL);
	for (int i = 0; i < RACERS; i++) {
		made += r[i].status == 201;
		assert_true(r[i].status == 200 || r[i].status == 201);
		assert_string_equal(r[i].id, r[0].id);
	}
	assert_int_equal(made, 1);
	ended(acme.key, js_pack("{s:s,s:b}", "id", r[0].id, "purge", 1), 200);
	assert_null(volume(acme.key, "race"));
}

/* ---- its size */

static void a_full_volume_is_told_inside_and_nothing_else_suffers(void **s)
{
	(void)s;
	needs_volumes();
	char id[40];
	sbx_lease(&stack, acme.key, dev("full"), id);
	auto_buf struct buf out = BUF(4096);
	assert_int_not_equal(
	    sbx_sh(&stack, acme.key, id, "dd if=/dev/zero of=big bs=1M count=200 2>&1", &out), 0);
	assert_non_null(strstr(buf_c(&out), "No space left"));
	said(id, "echo works > /tmp/x && rm big && dd if=/dev/zero of=again bs=1M count=20 && sync");
	ended(acme.key, js_pack("{s:s,s:b}", "id", id, "purge", 1), 200);
}

/* ---- purge (SBX-45) */

/* fault 42 */
static void what_is_in_use_is_not_deleted_and_what_is_gone_is_fine(void **s)
{
	(void)s;
	needs_volumes();
	char a[40], b[40], name[100];
	(void)snprintf(name, sizeof name, "project.%s.purged", acme.slug);
	sbx_lease(&stack, acme.key, dev("purged"), a);
	assert_int_equal(purge(acme.key, "purged"), 409);
	assert_int_equal(purge(other.key, "purged"), 404); /* there is none of that org's */
	sbx_end(&stack, acme.key, a);
	assert_true(on_disk(name));
	sbx_lease(&stack, acme.key, dev("purged"), b);
	/* The first one is over; its volume is another's now. */
	ended(acme.key, js_pack("{s:s,s:b}", "id", a, "purge", 1), 409);
	ended(acme.key, js_pack("{s:s,s:b}", "id", b, "purge", 1), 200);
	ended(acme.key, js_pack("{s:s,s:b}", "id", b, "purge", 1), 200);
	assert_false(on_disk(name));
	assert_null(volume(acme.key, "purged"));
	assert_int_equal(purge(acme.key, "purged"), 404);
	sbx_lease(&stack, acme.key, dev("purged"), a);
	said(a, "test -z \"$(ls -A)\"");
	ended(acme.key, js_pack("{s:s,s:b}", "id", a, "purge", 1), 200);
}

/* ---- refusals leave nothing (SBX-4) */

static void rows(char out[100])
{
	auto_buf struct buf b = BUF(100);
	stack_sql(&stack,
	    "select count(*) || ' ' || (select count(*) from sandboxes where slot is not null) from volumes",
	    &b);
	(void)snprintf(out, 100, "%s", buf_c(&b));
}

static void a_refusal_leaves_no_volume_and_holds_no_project(void **s)
{
	(void)s;
	needs_volumes();
	char before[100], after[100], name[100], id[40];
	(void)snprintf(name, sizeof name, "project.%s.nothing", acme.slug);
	rows(before);
	refused(acme.key, js_pack("{s:s}", "class", "dev"), 400, "project", "project");
	refused(
	    acme.key, js_pack("{s:s,s:s}", "class", "desktop", "project", "nothing"), 400, "class", "image");
	refused(acme.key, js_pack("{s:s}", "project", "!?"), 400, "project", "slug");
	refused(acme.key, js_pack("{s:s,s:s}", "project", "nothing", "runtime", "kata-fc"), 400, "runtime",
	    "cannot mount");
	refused(acme.key, js_pack("{s:s,s:i}", "project", "nothing", "ttlSec", 2000000), 400, "ttlSec",
	    "between");
	refused(acme.key, js_pack("{s:s,s:s}", "project", "nothing", "session", "ses_none"), 404, "session",
	    "no such");
	rows(after);
	assert_string_equal(before, after);
	assert_false(on_disk(name));
	sbx_lease(&stack, acme.key, dev("nothing"), id);
	ended(acme.key, js_pack("{s:s,s:b}", "id", id, "purge", 1), 200);
}

/* ---- sandboxd killed at any point */

struct asked {
	pthread_t thread;
	long status;
};
static void *ask(void *arg)
{
	struct asked *a = arg;
	auto_web struct web w = { 0 };
	web_json(&stack, "POST", "/v1/sandboxes", acme.key, dev("crash"), &w);
	a->status = w.status;
	return NULL;
}

static void killed_at(const char *point)
{
	struct asked a = { 0 };
	char id[40];
	stack_crash_arm(&stack, point);
	assert_int_equal(pthread_create(&a.thread, NULL, ask, &a), 0);
	if (!stack_crash_reached(&stack, point))
		fail_msg("%s is not reached", point);
	stack_kill(&stack, "node1");
	stack_crash_release(&stack, point);
	stack_start(&stack, "node1");
	stack_ready(&stack);
	(void)pthread_join(a.thread, NULL);
	assert_int_equal(a.status, 503);
	int64_t deadline = clock_ms() + 60000;
	char n[100];
	do {
		(void)poll(NULL, 0, 100);
		rows(n);
	} while (strcmp(strchr(n, ' '), " 0") != 0 && clock_ms() < deadline);
	sbx_no_leaks(&stack);
	sbx_lease(&stack, acme.key, dev("crash"), id);
	said(id, "echo fine > f");
	ended(acme.key, js_pack("{s:s,s:b}", "id", id, "purge", 1), 200);
}

/* fault 38 */
static void whoever_is_killed_no_mount_and_no_loop_device_stays(void **s)
{
	(void)s;
	needs_volumes();
	static const char *const points[] = { "volume.part", "volume.mounted", "volume.made", "volume.loop",
		"sandbox.started" };
	size_t n = getenv("GATEHOUSE_HEAVY") != NULL ? sizeof points / sizeof points[0] : 2;
	for (size_t i = 0; i < n; i++)
		killed_at(points[i]);
}

static void a_killed_daemon_costs_a_volume_nothing(void **s)
{
	(void)s;
	needs_volumes();
	char id[40];
	sbx_lease(&stack, acme.key, dev("lives"), id);
	said(id, "echo before > f");
	stack_kill(&stack, "node1");
	stack_start(&stack, "node1");
	stack_ready(&stack);
	int64_t deadline = clock_ms() + 60000;
	for (;;) {
		auto_web struct web w = { 0 };
		sbx_run(&stack, acme.key, id, js_pack("{s:s}", "command", "cat f; echo after > f"), &w);
		if (w.status == 200)
			break;
		assert_true(clock_ms() < deadline);
		(void)poll(NULL, 0, 100);
	}
	sbx_end(&stack, acme.key, id);
	sbx_no_leaks(&stack);
	sbx_lease(&stack, acme.key, dev("lives"), id);
	said(id, "test $(cat f) = after");
	ended(acme.key, js_pack("{s:s,s:b}", "id", id, "purge", 1), 200);
}

/* SBX-60: the container is deleted behind our back; its row ends, and the volume is there for the next. */
static void what_is_killed_behind_our_back_gives_its_volume_back(void **s)
{
	(void)s;
	needs_volumes();
	char id[40], path[200], status[12];
	struct err e = { 0 };
	auto_buf struct buf pid = BUF(32);
	sbx_lease(&stack, acme.key, dev("behind"), id);
	said(id, "echo kept > f");
	(void)snprintf(path, sizeof path, "%s/sandboxes/node1/b/%s/pid", stack.dir, id);
	assert_int_equal(file_read(path, &pid, &e), 0);
	assert_int_equal(kill((pid_t)atoi(buf_c(&pid)), SIGKILL), 0);
	int64_t deadline = clock_ms() + 60000;
	do {
		(void)poll(NULL, 0, 20);
		sbx_status(&stack, acme.key, id, status);
	} while (strcmp(status, "running") == 0 && clock_ms() < deadline);
	sbx_lease(&stack, acme.key, dev("behind"), id);
	said(id, "test $(cat f) = kept");
	ended(acme.key, js_pack("{s:s,s:b}", "id", id, "purge", 1), 200);
}

/* Nothing is deleted without being told so (SBX-61). */
static void the_operator_sees_what_nobody_uses_and_deletes_only_when_told(void **s)
{
	(void)s;
	needs_volumes();
	char id[40], name[100], sql[200];
	static const char *const list[] = { "volumes", "--unused-for", "30d", NULL };
	static const char *const purging[] = { "volumes", "--unused-for", "30d", "--purge", NULL };
	auto_buf struct buf before = BUF(4096), seen = BUF(4096), done = BUF(4096);
	(void)snprintf(name, sizeof name, "project.%s.old", acme.slug);
	sbx_lease(&stack, acme.key, dev("old"), id);
	(void)snprintf(sql, sizeof sql,
	    "update volumes set leased_on = leased_on - 31, used_bytes = 1 where name = 'old' and org = '%s'",
	    acme.slug);
	stack_sql(&stack, sql, NULL);
	stack_cli(&stack, list, &before); /* live */
	assert_null(strstr(buf_c(&before), "old"));
	sbx_end(&stack, acme.key, id);
	stack_sql(&stack, sql, NULL);
	stack_cli(&stack, list, &seen);
	assert_non_null(strstr(buf_c(&seen), " old on node1"));
	assert_non_null(strstr(buf_c(&seen), "Nothing was deleted"));
	assert_true(on_disk(name));
	stack_cli(&stack, purging, &done);
	assert_non_null(strstr(buf_c(&done), "deleted"));
	assert_false(on_disk(name));
}

/* The last test: nothing sets it back. */
static void restart_with(const char *line)
{
	char path[96];
	(void)snprintf(path, sizeof path, "%s/gatehouse.conf", stack.dir);
	FILE *f = fopen(path, "ae");
	assert_non_null(f);
	(void)fprintf(f, "%s\n", line);
	(void)fclose(f);
	stack_stop(&stack, "node1");
	stack_start(&stack, "node1");
	stack_ready(&stack);
}

static void a_full_host_is_told_and_costs_only_volumes(void **s)
{
	(void)s;
	needs_volumes();
	char before[100], after[100], id[40];
	rows(before);
	restart_with("VOLUME_SPARE_MB=16777216");
	auto_web struct web w = { 0 };
	int64_t deadline = clock_ms() + 60000;
	do { /* the node is registered anew within moments */
		web_free(&w);
		w = (struct web){ 0 };
		web_json(&stack, "POST", "/v1/sandboxes", acme.key, dev("nowhere"), &w);
	} while (w.status == 503 && clock_ms() < deadline);
	if (w.status != 507)
		fail_msg("%ld %s", w.status, w.body);
	sbx_lease(&stack, acme.key, NULL, id);
	sbx_end(&stack, acme.key, id);
	rows(after);
	assert_string_equal(before, after);
}

/* ---- the fixture */

static int setup(void **s)
{
	(void)s;
	stack_up(&stack, 2, 0, 1, "VOLUME_MB=64\nVOLUME_STATE_MB=32\nVOLUME_SPARE_MB=0\nNODE_CAPACITY=20");
	stack_org(&stack, &acme);
	stack_org(&stack, &other);
	volumes = sbx_volumes(&stack);
	gvisor = sbx_offered(&stack, acme.key, "gvisor");
	return 0;
}

static int teardown(void **s)
{
	(void)s;
	stack_down(&stack);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_volume_survives_its_lease_whatever_ids_the_next_one_has),
		cmocka_unit_test(it_is_told_whose_it_is_and_how_large),
		cmocka_unit_test(a_project_that_is_live_is_given_back_or_named),
		cmocka_unit_test(of_many_that_lease_one_project_all_get_the_same),
		cmocka_unit_test(a_full_volume_is_told_inside_and_nothing_else_suffers),
		cmocka_unit_test(what_is_in_use_is_not_deleted_and_what_is_gone_is_fine),
		cmocka_unit_test(a_refusal_leaves_no_volume_and_holds_no_project),
		cmocka_unit_test(whoever_is_killed_no_mount_and_no_loop_device_stays),
		cmocka_unit_test(a_killed_daemon_costs_a_volume_nothing),
		cmocka_unit_test(what_is_killed_behind_our_back_gives_its_volume_back),
		cmocka_unit_test(the_operator_sees_what_nobody_uses_and_deletes_only_when_told),
		cmocka_unit_test(a_full_host_is_told_and_costs_only_volumes),
	};
	return cmocka_run_group_tests(tests, setup, teardown);
}
