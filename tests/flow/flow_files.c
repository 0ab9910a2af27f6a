/*
 * flow_files.c - files of sandboxes over HTTP, through every hop (SBX-47): trees, tars, ranges, changes, and large files in constant memory.
 * GATEHOUSE_HEAVY=1 moves a whole GiB.
 */
#include "../t.h"

#include <dirent.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/js.h"
#include "base/ndjson.h"
#include "base/str.h"
#include "io/file.h"
#include "judge.h"
#include "sbx.h"

static struct stack stack;
static struct stack_org acme, other;
static bool gvisor;
static char host_box[40], gvisor_box[40];

#define EACH_BOX(id)                                                                                         \
	for (const char *boxes_[] = { host_box, gvisor ? gvisor_box : NULL, NULL }, **b_ = boxes_,           \
			*id = *b_;                                                                           \
	     id != NULL; id = *++b_)

static void ask(const char *op, const char *id, json_t *fields, struct web *w)
{
	char path[60];
	js_set_str(fields, "id", id);
	(void)snprintf(path, sizeof path, "/v1/sandboxes/%s", op);
	web_json(&stack, "POST", path, acme.key, fields, w);
}

static void ok(const char *op, const char *id, json_t *fields, struct web *w)
{
	ask(op, id, fields, w);
	if (w->status != 200)
		fail_msg("%s: %ld %s", op, w->status, w->body);
}

static void refused(const char *op, const char *id, json_t *fields, long status, const char *param)
{
	auto_web struct web w = { 0 };
	ask(op, id, fields, &w);
	judge_refusal(&stack, &w, status);
	assert_string_equal(web_error(&w, "param"), param);
}

static void raw(const char *method, const char *id, const char *rest, const char *body, size_t n,
    const char *range, struct web *w)
{
	char path[300];
	const char *const headers[] = { range, NULL };
	(void)snprintf(path, sizeof path, "/v1/sandboxes/%s/files%s", id, rest);
	web_do(&stack,
	    &(struct web_req){ .method = method,
		.path = path,
		.key = acme.key,
		.body = body,
		.body_n = n,
		.type = body == NULL ? NULL : "application/octet-stream",
		.headers = range == NULL ? NULL : headers },
	    w);
}

static void a_tree_is_made_looked_at_moved_and_removed(void **s)
{
	(void)s;
	EACH_BOX(id)
	{
		auto_web struct web w = { 0 }, made = { 0 }, again = { 0 }, list = { 0 }, stat = { 0 },
				    gone = { 0 };
		ok("mkdir", id, js_pack("{s:s}", "path", "tree/a/b"), &made);
		assert_true(js_bool(made.json, "created", false));
		ok("mkdir", id, js_pack("{s:s}", "path", "tree/a/b"), &again);
		assert_false(js_bool(again.json, "created", true));
		ok("write", id, js_pack("{s:s,s:s}", "path", "tree/a/f", "content", "hello"), &w);
		assert_int_equal(
		    sbx_sh(&stack, acme.key, id, "ln -s ../f tree/a/b/up; ln -s /etc tree/out", NULL), 0);
		ok("list", id, js_pack("{s:s,s:i}", "path", "tree", "depth", 3), &list);
		assert_int_equal(json_array_size(js_get(list.json, "entries")), 5);
		assert_false(js_bool(list.json, "truncated", true));
		ok("stat", id, js_pack("{s:s}", "path", "/mnt/data/tree/a/b/up"), &stat);
		assert_string_equal(js_str(stat.json, "kind"), "link");
		assert_string_equal(js_str(stat.json, "target"), "../f");
		assert_string_equal(js_str(stat.json, "targetKind"), "file");
		refused("list", id, js_pack("{s:s}", "path", "tree/out"), 403, "path");
		refused("move", id, js_pack("{s:s,s:s}", "from", "tree/a", "to", "tree/a/b/in"), 409, "to");
		web_free(&w);
		w = (struct web){ 0 };
		ok("move", id, js_pack("{s:s,s:s}", "from", "tree/a", "to", "tree/new/c"), &w);
		refused("stat", id, js_pack("{s:s}", "path", "tree/a"), 404, "path");
		refused("move", id, js_pack("{s:s,s:s}", "from", "tree/out", "to", "tree/new"), 409, "to");
		refused("remove", id, js_pack("{s:s}", "path", "tree"), 409, "path");
		refused("remove", id, js_pack("{s:s,s:b}", "path", "/etc", "recursive", 1), 403, "path");
		raw("DELETE", id, "?path=tree&recursive=true", NULL, 0, NULL, &gone);
		assert_int_equal(gone.status, 200);
		assert_int_equal(js_int(gone.json, "removed", 0), 7);
		assert_int_equal(
		    sbx_sh(&stack, acme.key, id, "test ! -e tree && test -e /etc/passwd", NULL), 0);
	}
}

static void a_folder_goes_in_and_comes_out_as_a_tar(void **s)
{
	(void)s;
	EACH_BOX(id)
	{
		auto_web struct web out = { 0 }, in = { 0 }, bad = { 0 }, none = { 0 };
		char type[60];
		assert_int_equal(
		    sbx_sh(&stack, acme.key, id,
			"mkdir -p t/d; echo x >t/d/x; ln -s d/x t/l; head -c 3000000 /dev/zero >t/z; cd t; "
			"tar cf ../sum.tar .; mknod ../p p; tar cf ../bad.tar ../p 2>/dev/null; true",
			NULL),
		    0);
		raw("GET", id, "/tar?path=t", NULL, 0, NULL, &out);
		assert_int_equal(out.status, 200);
		assert_true(web_header(&out, "Content-Type", type, sizeof type));
		assert_string_equal(type, "application/x-tar");
		raw("PUT", id, "/tar?path=deep/er", out.body, out.body_n, NULL, &in);
		if (in.status != 200)
			fail_msg("%ld %s", in.status, in.body);
		assert_int_equal(js_int(in.json, "entries", 0), 4);
		assert_int_equal(
		    sbx_sh(&stack, acme.key, id, "diff -r t deep/er && test -L deep/er/l", NULL), 0);
		raw("PUT", id, "/tar?path=cut", out.body, out.body_n / 2, NULL, &bad);
		judge_refusal(&stack, &bad, 400);
		raw("GET", id, "/tar?path=/etc", NULL, 0, NULL, &none);
		judge_refusal(&stack, &none, 403);
		assert_int_equal(sbx_sh(&stack, acme.key, id, "rm -rf t deep cut p *.tar", NULL), 0);
	}
}

/* RFC 9110 14 */
static void a_part_of_a_file_is_downloaded(void **s)
{
	(void)s;
	static const struct {
		const char *range;
		long status;
		const char *body, *content_range;
	} rows[] = {
		{ NULL, 200, "0123456789", NULL },
		{ "Range: bytes=2-4", 206, "234", "bytes 2-4/10" },
		{ "Range: bytes=7-", 206, "789", "bytes 7-9/10" },
		{ "Range: bytes=7-99", 206, "789", "bytes 7-9/10" },
		{ "Range: bytes=-3", 206, "789", "bytes 7-9/10" },
		{ "Range: bytes=-99", 206, "0123456789", "bytes 0-9/10" },
		{ "Range: bytes=10-", 416, NULL, "bytes */10" },
		{ "Range: bytes=99999999999999999999999999-", 416, NULL, "bytes */10" },
		{ "Range: bytes=8-99999999999999999999999999", 206, "89", "bytes 8-9/10" },
		{ "Range: bytes=-99999999999999999999999999", 206, "0123456789", "bytes 0-9/10" },
		{ "Range: bytes=-0", 416, NULL, "bytes */10" },
		{ "Range: bytes=4-2", 200, "0123456789", NULL },
		{ "Range: bytes=0-1,3-4", 200, "0123456789", NULL },
		{ "Range: bytes=x-", 200, "0123456789", NULL },
		{ "Range: lines=1-2", 200, "0123456789", NULL },
	};
	auto_web struct web w = { 0 }, dir = { 0 };
	ok("write", host_box, js_pack("{s:s,s:s}", "path", "digits", "content", "0123456789"), &w);
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		auto_web struct web got = { 0 };
		char text[60] = "";
		raw("GET", host_box, "/content?path=digits", NULL, 0, rows[i].range, &got);
		bool ranged = web_header(&got, "Content-Range", text, sizeof text);
		if (got.status != rows[i].status || ranged != (rows[i].content_range != NULL) ||
		    (ranged && strcmp(text, rows[i].content_range) != 0))
			fail_msg("%s: %ld %s", rows[i].range, got.status, text);
		if (rows[i].body != NULL)
			assert_string_equal(got.body, rows[i].body);
		else
			judge_refusal(&stack, &got, 416);
	}
	raw("GET", host_box, "/content?path=.", NULL, 0, NULL, &dir);
	judge_field(&stack, &dir, 409, "path");
}

/* ---- changes */

struct watcher {
	pthread_t thread;
	pthread_mutex_t lock;
	const char *id, *path, *accept;
	struct buf said;
	bool stop, over;
};

static int hear(void *arg, const char *p, size_t n)
{
	struct watcher *w = arg;
	(void)pthread_mutex_lock(&w->lock);
	bool full = buf_add(&w->said, p, n) != 0, stop = w->stop;
	(void)pthread_mutex_unlock(&w->lock);
	return full || stop ? -1 : 0;
}

static void *watch(void *arg)
{
	struct watcher *w = arg;
	char path[200];
	const char *const headers[] = { w->accept, NULL };
	auto_web struct web got = { 0 };
	(void)snprintf(
	    path, sizeof path, "/v1/sandboxes/%s/files/watch?path=%s&recursive=true", w->id, w->path);
	web_do(&stack,
	    &(struct web_req){ .method = "GET",
		.path = path,
		.key = acme.key,
		.headers = w->accept == NULL ? NULL : headers,
		.on_data = hear,
		.arg = w },
	    &got);
	(void)pthread_mutex_lock(&w->lock);
	w->over = true;
	(void)pthread_mutex_unlock(&w->lock);
	return NULL;
}

static void until(struct watcher *w, const char *text)
{
	int64_t end = clock_ms() + 60000;
	for (bool is = false; !is;) {
		(void)pthread_mutex_lock(&w->lock);
		is = strstr(buf_c(&w->said), text) != NULL;
		(void)pthread_mutex_unlock(&w->lock);
		if (!is && clock_ms() > end)
			fail_msg("not told: %s\ntold: %s", text, buf_c(&w->said));
		(void)poll(NULL, 0, is ? 0 : 10);
	}
}

static void begin(struct watcher *w, const char *id, const char *path, const char *accept)
{
	*w = (struct watcher){ .id = id, .path = path, .accept = accept, .said = BUF(1 << 20) };
	(void)pthread_mutex_init(&w->lock, NULL);
	assert_int_equal(pthread_create(&w->thread, NULL, watch, w), 0);
	until(w, "\"start\"");
}

static void finish(struct watcher *w)
{
	(void)pthread_join(w->thread, NULL);
	buf_free(&w->said);
	(void)pthread_mutex_destroy(&w->lock);
}

static void changes_are_told_as_they_happen(void **s)
{
	(void)s;
	EACH_BOX(id)
	{
		struct watcher lines, sse;
		auto_web struct web made = { 0 }, w = { 0 }, w2 = { 0 }, gone = { 0 };
		ok("mkdir", id, js_pack("{s:s}", "path", "seen"), &made);
		begin(&lines, id, "seen", NULL);
		begin(&sse, id, "seen", "Accept: text/event-stream");
		ok("write", id, js_pack("{s:s,s:s}", "path", "seen/deep/f", "content", "x"), &w);
		until(&lines, "{\"type\":\"create\",\"path\":\"deep/f\",\"dir\":false}\n");
		ok("move", id, js_pack("{s:s,s:s}", "from", "seen/deep", "to", "seen/moved"), &w2);
		until(&lines, "{\"type\":\"rename\",\"path\":\"moved\",\"dir\":true,\"from\":\"deep\"}\n");
		assert_int_equal(sbx_sh(&stack, acme.key, id, "chmod 600 seen/moved/f", NULL), 0);
		until(&lines, "{\"type\":\"chmod\",\"path\":\"moved/f\",\"dir\":false}\n");
		ok("remove", id, js_pack("{s:s,s:b}", "path", "seen", "recursive", 1), &gone);
		until(&lines, "{\"type\":\"end\"}\n");
		until(&sse, "data: {\"type\":\"end\"}\n\n");
		assert_non_null(strstr(
		    buf_c(&sse.said), "data: {\"type\":\"create\",\"path\":\"deep/f\",\"dir\":false}\n\n"));
		finish(&lines);
		finish(&sse);
	}
	refused("watch", host_box, js_pack("{s:s}", "path", "/etc"), 403, "path");
}

/* Who watches a sandbox that ends is told so. */
static void a_watcher_hears_that_its_sandbox_has_ended(void **s)
{
	(void)s;
	char id[40];
	struct watcher w;
	sbx_lease(&stack, acme.key, NULL, id);
	begin(&w, id, ".", NULL);
	sbx_end(&stack, acme.key, id);
	until(&w, "{\"type\":\"lost\"");
	finish(&w);
}

/* ---- large files (fault 30: uploads held in memory, and cut by some hidden limit of time) */

static size_t large(void)
{
	return getenv("GATEHOUSE_HEAVY") != NULL ? (size_t)1 << 30 : (size_t)128 << 20;
}

static long peak_kib(pid_t pid)
{
	char path[64];
	auto_buf struct buf b = BUF(16384);
	struct err e = { 0 };
	(void)snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
	assert_int_equal(file_read(path, &b, &e), 0);
	const char *at = strstr(buf_c(&b), "VmHWM:");
	assert_non_null(at);
	return strtol(at + 6, NULL, 10);
}

/* The pid on the host of a process whose command line begins with `name` and whose group is the sandbox's; nginx's largest worker. */
static pid_t box_pid(const char *id)
{
	DIR *d = opendir("/proc");
	pid_t found = 0;
	assert_non_null(d);
	for (const struct dirent *f; found == 0 && (f = readdir(d)) != NULL;) {
		char path[300];
		auto_buf struct buf comm = BUF(4096), groups = BUF(65536);
		struct err e = { 0 };
		if (f->d_name[0] < '1' || f->d_name[0] > '9')
			continue;
		(void)snprintf(path, sizeof path, "/proc/%s/comm", f->d_name);
		if (file_read(path, &comm, &e) != 0 ||
		    (!str_starts(buf_c(&comm), "gatehouse-box") && !str_starts(buf_c(&comm), "init")))
			continue;
		(void)snprintf(path, sizeof path, "/proc/%s/cgroup", f->d_name);
		if (file_read(path, &groups, &e) == 0 && strstr(buf_c(&groups), id) != NULL)
			found = (pid_t)strtol(f->d_name, NULL, 10);
	}
	(void)closedir(d);
	return found;
}

struct zeros {
	size_t n;
	bool other;
};

static int count_zeros(void *arg, const char *p, size_t n)
{
	static const char zeros[65536];
	struct zeros *z = arg;
	for (size_t at = 0; at < n; at += sizeof zeros)
		z->other |= memcmp(p + at, zeros, n - at < sizeof zeros ? n - at : sizeof zeros) != 0;
	z->n += n;
	return 0;
}

static void download_all(const char *id, const char *rest, size_t at_least)
{
	char path[200];
	struct zeros z = { 0 };
	auto_web struct web w = { 0 };
	(void)snprintf(path, sizeof path, "/v1/sandboxes/%s/files%s", id, rest);
	web_do(&stack,
	    &(struct web_req){ .method = "GET",
		.path = path,
		.key = acme.key,
		.on_data = count_zeros,
		.arg = &z,
		.timeout_s = 300 },
	    &w);
	assert_int_equal(w.status, 200);
	assert_in_range(z.n, at_least, at_least + 4096);
}

/* Every hop holds some pieces of it and no more. What the sanitizer keeps of freed memory is bounded by the fixture (64 MiB). */
static void a_large_file_passes_in_constant_memory(void **s)
{
	(void)s;
	enum { GROWTH_KIB = 96 * 1024, BOX_KIB = 8 * 1024 };
	char id[40];
	size_t size = large();
	int mib = (int)(size >> 20);
	auto_web struct web up = { 0 }, w = { 0 };
	sbx_lease(&stack, acme.key,
	    js_pack("{s:{s:i,s:i}}", "limits", "memoryMb", mib * 3 + 128, "diskMb", mib * 2 + 64), id);
	const pid_t pids[] = { stack_pid(&stack, "api1"), stack_pid(&stack, "node1") }, box = box_pid(id);
	long before[2];
	for (int i = 0; i < 2; i++)
		before[i] = peak_kib(pids[i]);
	auto_free char *body = calloc(1, size);
	assert_non_null(body);
	char path[100];
	(void)snprintf(path, sizeof path, "/v1/sandboxes/%s/files?path=t/large", id);
	web_do(&stack,
	    &(struct web_req){ .method = "PUT",
		.path = path,
		.key = acme.key,
		.body = body,
		.body_n = size,
		.type = "application/octet-stream",
		.timeout_s = 300 },
	    &up);
	if (up.status != 200)
		fail_msg("%ld %s", up.status, up.body);
	assert_int_equal(js_int(up.json, "size", 0), (long long)size);
	download_all(id, "/content?path=t/large", size);
	download_all(id, "/tar?path=t", size + 1536);
	for (int i = 0; i < 2; i++) {
		long now = peak_kib(pids[i]);
		print_message("    peak of %s: %ld KiB before, %ld KiB after %d MiB thrice\n",
		    i == 0 ? "api" : "sandboxd", before[i], now, mib);
		assert_true(now - before[i] < GROWTH_KIB);
	}
	assert_true(box > 0);
	print_message("    peak of box: %ld KiB\n", peak_kib(box));
	assert_true(peak_kib(box) < BOX_KIB);
	sbx_end(&stack, acme.key, id);
}

/* ---- no room */

static void a_full_scratch_keeps_what_was_there(void **s)
{
	(void)s;
	char id[40];
	auto_web struct web w = { 0 }, more = { 0 }, read = { 0 }, list = { 0 }, dir = { 0 };
	sbx_lease(&stack, acme.key, js_pack("{s:{s:i,s:i}}", "limits", "memoryMb", 256, "diskMb", 32), id);
	ok("write", id, js_pack("{s:s,s:s}", "path", "kept", "content", "old content"), &w);
	auto_free char *body = calloc(1, 40 << 20);
	assert_non_null(body);
	raw("PUT", id, "?path=kept", body, 40 << 20, NULL, &more);
	judge_refusal(&stack, &more, 507);
	assert_non_null(strstr(web_error(&more, "message"), "(/mnt/data)"));
	assert_non_null(strstr(web_error(&more, "message"), "diskMb"));
	ok("read", id, js_pack("{s:s}", "path", "kept"), &read);
	assert_string_equal(js_str(read.json, "content"), "old content");
	ok("list", id, js_pack("{s:s}", "path", "."), &list); /* nothing half-written */
	assert_int_equal(json_array_size(js_get(list.json, "entries")), 1);
	/* And there is room again: nothing was kept of it. */
	raw("PUT", id, "?path=new", body, 12 << 20, NULL, &dir);
	assert_int_equal(dir.status, 200);
	sbx_end(&stack, acme.key, id);
}

/* Fault 31: uploads at the same time that make the same directories. */
enum { TWINS = 8, EACH = 6 };

static void *upload_some(void *arg)
{
	const int k = *(const int *)arg;
	for (int i = 0; i < EACH; i++) {
		char rest[100];
		auto_web struct web w = { 0 };
		(void)snprintf(rest, sizeof rest, "?path=new%d/a/b/c/f%d", i, k);
		raw("PUT", host_box, rest, "some", 4, NULL, &w);
		if (w.status != 200)
			fail_msg("%s: %ld %s", rest, w.status, w.body);
	}
	return NULL;
}

static void uploads_at_once_share_the_directories_they_make(void **s)
{
	(void)s;
	pthread_t threads[TWINS];
	int ks[TWINS];
	auto_buf struct buf out = BUF(100);
	for (int i = 0; i < TWINS; i++) {
		ks[i] = i;
		assert_int_equal(pthread_create(&threads[i], NULL, upload_some, &ks[i]), 0);
	}
	for (int i = 0; i < TWINS; i++)
		(void)pthread_join(threads[i], NULL);
	assert_int_equal(
	    sbx_sh(&stack, acme.key, host_box, "cat new*/a/b/c/f* | wc -c; rm -r new*", &out), 0);
	assert_int_equal(strtol(buf_c(&out), NULL, 10), TWINS * EACH * 4);
}

/* ID-4 */
static void another_orgs_files_are_not_there(void **s)
{
	(void)s;
	static const char *const rest[] = { "GET /stat?path=f", "GET /list?path=f", "GET /content?path=f",
		"GET /tar?path=f", "GET /watch?path=f", "DELETE ?path=f", "PUT ?path=f", "PUT /tar?path=f" };
	for (size_t i = 0; i < sizeof rest / sizeof rest[0]; i++) {
		char path[200];
		const char *space = strchr(rest[i], ' ');
		char method[8];
		auto_web struct web w = { 0 };
		(void)snprintf(method, sizeof method, "%.*s", (int)(space - rest[i]), rest[i]);
		(void)snprintf(path, sizeof path, "/v1/sandboxes/%s/files%s", host_box, space + 1);
		web_do(&stack,
		    &(struct web_req){ .method = method,
			.path = path,
			.key = other.key,
			.body = method[0] == 'P' ? "x" : NULL,
			.type = "application/octet-stream" },
		    &w);
		judge_refusal(&stack, &w, 404);
	}
}

static int up(void **s)
{
	(void)s;
	stack_up(&stack, 1, 0, 1, NULL);
	stack_org(&stack, &acme);
	stack_org(&stack, &other);
	sbx_lease(&stack, acme.key, NULL, host_box);
	gvisor = sbx_offered(&stack, acme.key, "gvisor");
	if (gvisor)
		sbx_lease(&stack, acme.key, js_pack("{s:s}", "runtime", "gvisor"), gvisor_box);
	return 0;
}

static int down(void **s)
{
	(void)s;
	stack_down(&stack);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_tree_is_made_looked_at_moved_and_removed),
		cmocka_unit_test(a_folder_goes_in_and_comes_out_as_a_tar),
		cmocka_unit_test(a_part_of_a_file_is_downloaded),
		cmocka_unit_test(changes_are_told_as_they_happen),
		cmocka_unit_test(a_watcher_hears_that_its_sandbox_has_ended),
		cmocka_unit_test(a_large_file_passes_in_constant_memory),
		cmocka_unit_test(a_full_scratch_keeps_what_was_there),
		cmocka_unit_test(uploads_at_once_share_the_directories_they_make),
		cmocka_unit_test(another_orgs_files_are_not_there),
	};
	return cmocka_run_group_tests_name("files", tests, up, down);
}
