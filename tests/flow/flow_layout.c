/* flow_layout.c - the state of a session (SBX-35) and layouts of mounts (SBX-32). */
#include "../t.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/id.h"
#include "base/js.h"
#include "io/file.h"
#include "sbx.h"
#include "session/event.h"

static struct stack stack;
static struct stack_org acme, other;
static bool gvisor, volumes;
static char shared[96]; /* the directory that acme's leases may mount from */

static void needs_volumes(void)
{
	if (!volumes)
		skip();
}

static void said(const char *id, const char *command)
{
	sbx_said(&stack, acme.key, id, command);
}

static void refused(const char *key, json_t *fields, long status, const char *param, const char *says)
{
	sbx_refused(&stack, key, fields, status, param, says);
}

static bool on_disk(const char *name)
{
	char path[400], instance[64];
	stack_instance(&stack, instance);
	(void)snprintf(path, sizeof path, "%s/volumes/%s.node1/%s.ext4", stack.dir, instance, name);
	return access(path, F_OK) == 0;
}

/* ---- the state of a session (SBX-35) */

static void session(const char *org, char out[ID_MAX])
{
	struct err e = { 0 };
	struct pg_pool *pool = stack_pool(&stack, 1);
	struct pg *db = pg_take(pool, 60000, &e);
	assert_non_null(db);
	assert_int_equal(session_open(db, org, "coding", "A title", "ann", NULL, out, &e), 0);
	pg_put(db);
	pg_pool_free(pool);
}

static void lease_for(const char *of, const char *runtime, char out[40])
{
	json_t *in = js_pack("{s:s}", "session", of);
	if (runtime != NULL)
		js_set_str(in, "runtime", runtime);
	sbx_lease(&stack, acme.key, in, out);
}

static void a_session_finds_its_state_again_and_nobody_elses(void **s)
{
	(void)s;
	needs_volumes();
	char mine[ID_MAX], next[ID_MAX], theirs[ID_MAX], id[40], twin[40], sql[200], name[200];
	session(acme.slug, mine);
	session(acme.slug, next);
	session(other.slug, theirs);
	lease_for(mine, NULL, id);
	said(id,
	    "test $HOME = /state/home && echo thread > ~/.thread && echo s > /state/s && echo lost > /tmp/s");
	refused(acme.key, js_pack("{s:s}", "session", mine), 409, "session", id);
	refused(acme.key, js_pack("{s:s}", "session", theirs), 404, "session", "no such");
	lease_for(next, NULL, twin);
	said(twin, "test -z \"$(ls -A ~)\"");
	sbx_end(&stack, acme.key, twin);
	sbx_end(&stack, acme.key, id);
	lease_for(mine, gvisor ? "gvisor" : NULL, id);
	said(id, "test $(cat ~/.thread) = thread && test $(cat /state/s) = s && test ! -e /tmp/s");
	(void)snprintf(name, sizeof name, "session.%s.%s", acme.slug, mine);
	assert_true(on_disk(name));
	(void)snprintf(sql, sizeof sql,
	    "update sessions set state = 'done', closed_at = now() where org = '%s'", acme.slug);
	stack_sql(&stack, sql, NULL);
	refused(acme.key, js_pack("{s:s}", "session", next), 409, "session", "over");
	sbx_end(&stack, acme.key, id);
	int64_t deadline = clock_ms() + 60000;
	while (on_disk(name) && clock_ms() < deadline)
		(void)poll(NULL, 0, 100);
	assert_false(on_disk(name));
}

/* ---- layouts (SBX-32) */

static json_t *layout(void)
{
	char out[120], up[120];
	(void)snprintf(out, sizeof out, "%s/out", shared);
	(void)snprintf(up, sizeof up, "%s/up", shared);
	return js_pack("{s:{s:s},s:{},s:{s:s},s:[{s:s,s:s}]}", "outputs", "hostPath", out, "scratch",
	    "uploads", "hostPath", up, "skills", "id", "pdf.1", "hostPath", up);
}

static long file(const char *method, const char *id, const char *path)
{
	char target[300];
	auto_web struct web w = { 0 };
	(void)snprintf(target, sizeof target, "/v1/sandboxes/%s/files?path=%s", id, path);
	struct web_req q = { .method = method,
		.path = target,
		.key = acme.key,
		.body = strcmp(method, "PUT") == 0 ? "bytes" : NULL,
		.type = "application/octet-stream" };
	web_do(&stack, &q, &w);
	return w.status;
}

static void laid_out(const char *runtime)
{
	char id[40], path[200];
	struct stat st;
	json_t *in = js_pack("{s:o}", "mounts", layout());
	if (runtime != NULL)
		js_set_str(in, "runtime", runtime);
	sbx_lease(&stack, acme.key, in, id);
	said(id,
	    "test $PWD = /mnt/user-data/outputs && echo made > result && test $(cat /mnt/skills/pdf.1/given) "
	    "= given && "
	    "echo x > /mnt/user-data/scratch/x && ! echo x > /mnt/user-data/uploads/x && ! echo x > "
	    "/mnt/skills/pdf.1/x && "
	    "! mkdir /mnt/y && test ! -e /mnt/data");
	(void)snprintf(path, sizeof path, "%s/out/result", shared);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_uid, 4242);
	assert_int_equal(st.st_gid, 4242);
	(void)unlink(path);
	assert_int_equal(file("GET", id, "/mnt/user-data/uploads/given"), 200);
	assert_int_equal(file("PUT", id, "/mnt/user-data/scratch/y"), 200);
	assert_int_equal(file("PUT", id, "z"), 200);
	assert_int_equal(file("PUT", id, "/mnt/user-data/uploads/y") / 100, 4);
	assert_int_equal(file("PUT", id, "/tmp/y"), 403);
	sbx_end(&stack, acme.key, id);
}

static void a_layout_is_read_everywhere_and_written_where_it_may(void **s)
{
	(void)s;
	needs_volumes();
	laid_out(NULL);
	if (gvisor)
		laid_out("gvisor");
}

static void every_violation_of_a_layout_is_told_at_once(void **s)
{
	(void)s;
	needs_volumes();
	auto_web struct web w = { 0 };
	web_json(&stack, "POST", "/v1/sandboxes", acme.key,
	    js_pack("{s:{s:{s:s},s:{s:s},s:[{s:s,s:s},{s:s,s:s}]}}", "mounts", "scratch", "path", "/etc",
		"uploads", "hostPath", "/etc/../etc", "skills", "id", "a..b", "hostPath", "rel", "id", "ok",
		"hostPath", "/etc"),
	    &w);
	assert_int_equal(w.status, 400);
	const json_t *details = js_get(js_get(w.json, "error"), "details");
	assert_int_equal(json_array_size(details), 6);
	/* Another org has no directory here. */
	refused(other.key, js_pack("{s:o}", "mounts", layout()), 400, "mounts.outputs.hostPath", "lists");
}

/* SBX-4: refused by the node, when the volume is mounted already: it was made for this lease, and goes with it. */
static void what_the_node_refuses_leaves_no_volume(void **s)
{
	(void)s;
	needs_volumes();
	char name[100], absent[120];
	auto_buf struct buf n = BUF(64);
	(void)snprintf(name, sizeof name, "project.%s.nothing", acme.slug);
	(void)snprintf(absent, sizeof absent, "%s/absent", shared);
	refused(acme.key,
	    js_pack("{s:s,s:{s:{},s:{s:s}}}", "project", "nothing", "mounts", "outputs", "uploads",
		"hostPath", absent),
	    400, "mounts", "cannot be opened");
	assert_false(on_disk(name));
	stack_sql(&stack, "select count(*) from volumes where name = 'nothing'", &n);
	assert_string_equal(buf_c(&n), "0");
}

/* ---- the fixture */

static void own(const char *name, const char *text)
{
	char path[200];
	struct err e = { 0 };
	(void)snprintf(path, sizeof path, "%s/%s", shared, name);
	assert_int_equal(file_mkdirs(path, 0700, &e), 0);
	if (text != NULL) {
		char file_path[220];
		(void)snprintf(file_path, sizeof file_path, "%s/given", path);
		assert_int_equal(file_write(file_path, text, strlen(text), 0600, &e), 0);
		assert_int_equal(chown(file_path, 4242, 4242), 0);
	}
	assert_int_equal(chown(path, 4242, 4242), 0);
}

static int setup(void **s)
{
	(void)s;
	stack_up(&stack, 1, 0, 1, "VOLUME_MB=64\nVOLUME_STATE_MB=32\nVOLUME_SPARE_MB=0");
	stack_org(&stack, &acme);
	stack_org(&stack, &other);
	(void)snprintf(shared, sizeof shared, "%s/shared", stack.dir);
	own("out", NULL);
	own("up", "given");
	char path[96];
	(void)snprintf(path, sizeof path, "%s/gatehouse.conf", stack.dir);
	FILE *f = fopen(path, "ae");
	assert_non_null(f);
	(void)fprintf(f, "SANDBOX_MOUNT_ROOTS=%s=%s\n", acme.slug, shared);
	(void)fclose(f);
	static const char *const parts[] = { "api1", "node1" };
	for (size_t i = 0; i < 2; i++) {
		stack_stop(&stack, parts[i]);
		stack_start(&stack, parts[i]);
	}
	stack_ready(&stack);
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
		cmocka_unit_test(a_session_finds_its_state_again_and_nobody_elses),
		cmocka_unit_test(a_layout_is_read_everywhere_and_written_where_it_may),
		cmocka_unit_test(every_violation_of_a_layout_is_told_at_once),
		cmocka_unit_test(what_the_node_refuses_leaves_no_volume),
	};
	return cmocka_run_group_tests(tests, setup, teardown);
}
