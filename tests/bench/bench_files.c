/*
 * A large file into a sandbox and out of it, beside `cat` through a pipe into and out of the same kind of file system, and what each hop
 * held at its peak. FILES_MIB: how large, 1024 when not given.
 */
#include "../t.h"

#include "bench.h"
#include "fetch.h"

#include <curl/curl.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../flow/sbx.h"
#include "base/js.h"
#include "base/str.h"
#include "io/file.h"
#include "io/proc.h"

enum { ROUNDS = 3, PIECE = 64 * 1024 };

static struct stack stack;
static struct stack_org org;
static long mib;
static char tmpfs[160];

static int setup(void **state)
{
	(void)state;
	const char *text = getenv("FILES_MIB");
	long long n = 1024;
	assert_true(text == NULL || str_int(text, 1, 4096, &n));
	mib = (long)n;
	return 0;
}

/* ---- through the stack */

struct moving {
	size_t left, got;
};

static size_t give(char *p, size_t size, size_t n, void *arg)
{
	struct moving *m = arg;
	n = size * n < m->left ? size * n : m->left;
	memset(p, 'x', n);
	m->left -= n;
	return n;
}

static size_t take(char *p, size_t size, size_t n, void *arg)
{
	(void)p;
	((struct moving *)arg)->got += size * n;
	return size * n;
}

static void transfer(const char *id, const char *rest, bool up)
{
	char url[300], line[200];
	long status = 0;
	struct moving m = { .left = (size_t)mib << 20 };
	CURL *c = curl_easy_init();
	struct curl_slist *headers = curl_slist_append(NULL, "Content-Type: application/octet-stream");
	assert_non_null(c);
	(void)snprintf(url, sizeof url, "%s/v1/sandboxes/%s/files%s", stack.url[0], id, rest);
	(void)snprintf(line, sizeof line, "Authorization: Bearer %s", org.key);
	headers = curl_slist_append(headers, line);
	headers = curl_slist_append(headers, "Expect:");
	(void)curl_easy_setopt(c, CURLOPT_URL, url);
	(void)curl_easy_setopt(c, CURLOPT_PROXY, "");
	/* Over HTTP/2 this curl takes ten times the CPU of everybody else on the way to send a file. */
	(void)curl_easy_setopt(c, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
	(void)curl_easy_setopt(c, CURLOPT_CAINFO, stack.ca);
	(void)curl_easy_setopt(c, CURLOPT_HTTPHEADER, headers);
	(void)curl_easy_setopt(c, CURLOPT_BUFFERSIZE, (long)PIECE);
	(void)curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, take);
	(void)curl_easy_setopt(c, CURLOPT_WRITEDATA, &m);
	if (up) {
		(void)curl_easy_setopt(c, CURLOPT_UPLOAD, 1L);
		(void)curl_easy_setopt(c, CURLOPT_UPLOAD_BUFFERSIZE, (long)PIECE);
		(void)curl_easy_setopt(c, CURLOPT_INFILESIZE_LARGE, (curl_off_t)m.left);
		(void)curl_easy_setopt(c, CURLOPT_READFUNCTION, give);
		(void)curl_easy_setopt(c, CURLOPT_READDATA, &m);
	}
	CURLcode rc = curl_easy_perform(c);
	if (rc != CURLE_OK)
		fail_msg("%s: %s", rest, curl_easy_strerror(rc));
	(void)curl_easy_getinfo(c, CURLINFO_RESPONSE_CODE, &status);
	assert_int_equal(status, 200);
	assert_true(up || m.got >= (size_t)mib << 20);
	curl_slist_free_all(headers);
	curl_easy_cleanup(c);
}

static long upload(struct bench_side *s)
{
	transfer(s->arg, "?path=large", true);
	return mib;
}

static long download(struct bench_side *s)
{
	transfer(s->arg, "/content?path=large", false);
	return mib;
}

static long download_tar(struct bench_side *s)
{
	transfer(s->arg, "/tar?path=.", false);
	return mib;
}

/* ---- beside it */

static void shell(const char *script)
{
	struct err e = { 0 };
	auto_proc struct proc_result r = { 0 };
	const char *const argv[] = { "/bin/sh", "-c", script, NULL };
	struct proc_opts o = {
		.argv = argv, .stdin_fd = -1, .stdout_fd = -1, .stderr_fd = -1, .timeout_ms = 300000
	};
	if (proc_run(&o, &r, &e) != 0 || r.exit_code != 0)
		fail_msg("%s: %s%s", script, e.msg, buf_c(&r.errout));
}

static long cat_in(struct bench_side *s)
{
	char script[400];
	(void)s;
	(void)snprintf(script, sizeof script, "head -c %ldM /dev/zero | cat >%s/large", mib, tmpfs);
	shell(script);
	return mib;
}

static long cat_out(struct bench_side *s)
{
	char script[400];
	(void)s;
	(void)snprintf(script, sizeof script, "cat %s/large | cat >/dev/null", tmpfs);
	shell(script);
	return mib;
}

/* ---- what the hops hold */

static void hwm(pid_t pid, bool reset, long *kib)
{
	char path[64];
	struct err e = { 0 };
	auto_buf struct buf b = BUF(16384);
	(void)snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, reset ? "clear_refs" : "status");
	if (reset) {
		FILE *f = fopen(path, "we");
		assert_non_null(f);
		assert_true(fputs("5", f) >= 0);
		(void)fclose(f);
		return;
	}
	assert_int_equal(file_read(path, &b, &e), 0);
	const char *at = strstr(buf_c(&b), "VmHWM:");
	assert_non_null(at);
	long now = strtol(at + 6, NULL, 10);
	*kib = now > *kib ? now : *kib;
}

/* Every process whose /proc/PID/FILE holds a text, or whose parent is the one named. */
static long peak(const char *file, const char *text, pid_t parent, bool reset)
{
	DIR *d = opendir("/proc");
	long kib = 0;
	assert_non_null(d);
	for (const struct dirent *de; (de = readdir(d)) != NULL;) {
		char path[300], want[40];
		struct err e = { 0 };
		auto_buf struct buf b = BUF(65536);
		if (!str_only(de->d_name, "0123456789"))
			continue;
		(void)snprintf(path, sizeof path, "/proc/%s/%s", de->d_name, file);
		(void)snprintf(want, sizeof want, "PPid:\t%d\n", (int)parent);
		if (file_read(path, &b, &e) == 0 && strstr(buf_c(&b), text != NULL ? text : want) != NULL)
			hwm((pid_t)strtol(de->d_name, NULL, 10), reset, &kib);
	}
	(void)closedir(d);
	return kib;
}

static void peaks(const char *id, bool reset, const char *when)
{
	long api = 0, node = 0;
	hwm(stack_pid(&stack, "api1"), reset, &api);
	hwm(stack_pid(&stack, "node1"), reset, &node);
	long nginx = peak("status", NULL, stack_pid(&stack, "nginx"), reset),
	     box = peak("cgroup", id, 0, reset);
	if (!reset)
		bench_say("\nPeak resident memory, %s: api %.1f MiB, an nginx worker %.1f MiB, sandboxd %.1f "
			  "MiB, the box %.1f MiB.",
		    when, (double)api / 1024, (double)nginx / 1024, (double)node / 1024, (double)box / 1024);
}

static void rate(const struct bench_side *s)
{
	char what[100];
	(void)snprintf(what, sizeof what, "%s", s->name);
	bench_note(what, 1048576.0 / s->us, "MB/s");
}

static void with(const char *binary)
{
	char conf[64], id[40], gvisor_id[40] = "", what[100];
	(void)snprintf(conf, sizeof conf, "SANDBOX_OCI_RUNTIME=%s", binary);
	stack_up(&stack, 1, 0, 1, conf);
	stack_org(&stack, &org);
	(void)snprintf(tmpfs, sizeof tmpfs, "%s/tmpfs", stack.dir);
	assert_int_equal(mkdir(tmpfs, 0700), 0);
	assert_int_equal(mount("bench", tmpfs, "tmpfs", 0, NULL), 0);
	json_t *limits = js_pack("{s:i,s:i}", "memoryMb", (int)mib * 6 + 256, "diskMb", (int)mib * 4 + 128);
	sbx_lease(&stack, org.key, js_pack("{s:O}", "limits", limits), id);
	bool gvisor = strcmp(binary, "runc") == 0 && sbx_offered(&stack, org.key, "gvisor");
	if (gvisor)
		sbx_lease(
		    &stack, org.key, js_pack("{s:O,s:s}", "limits", limits, "runtime", "gvisor"), gvisor_id);
	json_decref(limits);
	peaks(id, true, "");
	const char *names[3] = { binary, "cat", "gvisor" };
	struct bench_side up[] = { { .round = upload, .arg = id }, { .round = cat_in },
		{ .round = upload, .arg = gvisor_id } };
	struct bench_side down[] = { { .round = download, .arg = id }, { .round = cat_out },
		{ .round = download, .arg = gvisor_id } };
	struct bench_side tar[] = { { .round = download_tar, .arg = id }, { .round = cat_out } };
	const struct bench_meter meters[BENCH_METERS] = { { "api", stack_pid(&stack, "api1") },
		{ "sandboxd", stack_pid(&stack, "node1") }, { "nginx", stack_pid(&stack, "nginx") },
		{ "client", 0 } };
	for (int i = 0; i < 3; i++)
		for (int k = 0; k < BENCH_METERS && i != 1; k++)
			up[i].meters[k] = down[i].meters[k] = tar[0].meters[k] = meters[k];
	static char titles[8][100];
	for (int i = 0; i < 3; i++) {
		(void)snprintf(titles[i], sizeof titles[i],
		    i == 1 ? "`cat` of a pipe into a tmpfs" : "into a sandbox of %s", names[i]);
		(void)snprintf(titles[3 + i], sizeof titles[3],
		    i == 1 ? "`cat` of a tmpfs into a pipe" : "out of a sandbox of %s", names[i]);
		up[i].name = titles[i];
		down[i].name = titles[3 + i];
	}
	(void)snprintf(titles[6], sizeof titles[6], "out of a sandbox of %s, as a tar", binary);
	tar[0].name = titles[6];
	tar[1].name = titles[4];
	(void)snprintf(what, sizeof what, "%ld MiB up, %s", mib, binary);
	bench_compare(what, "MiB", up, gvisor ? 3 : 2, ROUNDS);
	peaks(id, false, "while it went up");
	peaks(id, true, "");
	(void)snprintf(what, sizeof what, "%ld MiB down, %s", mib, binary);
	bench_compare(what, "MiB", down, gvisor ? 3 : 2, ROUNDS);
	bench_compare("The same as a tar", "MiB", tar, 2, 1);
	peaks(id, false, "while it came down");
	for (int i = 0; i < (gvisor ? 3 : 2); i++)
		rate(&up[i]);
	for (int i = 0; i < (gvisor ? 3 : 2); i++)
		rate(&down[i]);
	rate(&tar[0]);
	assert_int_equal(umount(tmpfs), 0);
	stack_down(&stack);
}

static void measure(void **state)
{
	(void)state;
	with("runc");
	with("crun");
}

int main(void)
{
	return bench_main("files", setup, measure, NULL);
}
