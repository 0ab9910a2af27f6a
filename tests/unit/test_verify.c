#include "../span.h"
#include "../t.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../gittest.h"
#include "base/clock.h"
#include "base/js.h"
#include "code/verify.h"

/* What a run's attempt has: the runner's clone of the base, and what the sandbox hands out. "box" is the sandbox's checkout. */
static struct gittest t;
static char base[GITTEST_ID];
static char *clone_dir, *quarantine;

static int setup(void **s)
{
	(void)s;
	gittest_start(&t);
	gittest_repo(&t, "box", base);
	auto_free char *url = gittest_path(&t, "box.git");
	char file_url[200];
	(void)snprintf(file_url, sizeof file_url, "file://%s", url);
	gittest(&t, ".", "clone", "-q", "--bare", "--depth=1", file_url, "base.git");
	clone_dir = gittest_path(&t, "base.git");
	quarantine = gittest_path(&t, "incoming");
	return 0;
}
static int teardown(void **s)
{
	(void)s;
	gittest_end(&t);
	free(clone_dir);
	free(quarantine);
	return 0;
}

static char *out1(const char *a, const char *b, const char *c)
{
	return gittest_out(&t, "box", NULL, 0, a, b, c, (char *)0);
}
static char *tip(void)
{
	return out1("rev-parse", "HEAD", NULL);
}

/* Pack what `list` (lines of rev-list input) names, as the sandbox does, into the file "pack". */
static void pack(const char *list)
{
	auto_free char *out = gittest_path(&t, "out"), *to = gittest_path(&t, "pack");
	auto_free char *hash = gittest_out(
	    &t, "box", list, strlen(list), "pack-objects", "--revs", "-q", out, (char *)0);
	char from[200];
	(void)snprintf(from, sizeof from, "%s-%s.pack", out, hash);
	assert_int_equal(rename(from, to), 0);
}
static void pack_tip(const char *id, const char * not )
{
	char list[200];
	(void)snprintf(list, sizeof list, "%s\n%s%s\n", id, not [0] == 0 ? "" : "^", not );
	pack(list);
}

/* Exactly these objects, whatever they name. */
static void pack_ids(const char *a, const char *b, const char *c)
{
	auto_free char *out = gittest_path(&t, "out"), *to = gittest_path(&t, "pack");
	char ids[200], from[200];
	int n = snprintf(ids, sizeof ids, "%s\n%s\n%s\n", a, b, c);
	auto_free char *hash = gittest_out(
	    &t, "box", ids, (size_t)n - (c[0] == 0), "pack-objects", "-q", out, (char *)0);
	(void)snprintf(from, sizeof from, "%s-%s.pack", out, hash);
	assert_int_equal(rename(from, to), 0);
}

static int verify_from(const char *from, const char *id, json_t **stat, struct err *e)
{
	auto_free char *path = gittest_path(&t, "pack");
	auto_fd int fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	const struct rgit_repo repo = { .dir = clone_dir, .quarantine = quarantine };
	return verify_pack(&repo, fd, from, id, stat, e);
}

/* The change is refused as the sandbox's fault, and for the reason named. */
static void assert_refused(const char *id, const char *why)
{
	struct err e = { 0 };
	auto_json json_t *stat = NULL;
	assert_int_equal(verify_from(base, id, &stat, &e), -1);
	if (e.code != ERR_BAD_REQUEST || strstr(e.msg, why) == NULL)
		fail_msg("expected '%s', got %d %s", why, e.code, e.msg);
	assert_null(strstr(e.msg, t.dir));
	assert_null(stat);
}

static void commit_all(void)
{
	gittest(&t, "box", "add", "-A");
	gittest(&t, "box", "commit", "-q", "-m", "change");
}

/* A commit on top of the base whose tree is these raw bytes, though git would not write them. */
static char *commit_raw_tree(const char *bytes, size_t n)
{
	auto_free char *tree = gittest_out(
	    &t, "box", bytes, n, "hash-object", "-t", "tree", "--literally", "-w", "--stdin", (char *)0);
	return gittest_out(&t, "box", "trap\n", 5, "commit-tree", tree, "-p", base, (char *)0);
}
/* One entry: mode, name, and the 20 bytes of a blob that exists. */
static char *commit_entry(const char *mode, const char *name, const char *hex)
{
	char raw[600];
	int n = snprintf(raw, sizeof raw, "%s %s", mode, name) + 1;
	for (int i = 0; i < 20; i++) {
		unsigned byte;
		assert_int_equal(sscanf(hex + 2 * i, "%2x", &byte), 1);
		raw[n++] = (char)byte;
	}
	return commit_raw_tree(raw, (size_t)n);
}
static char *blob(const char *text)
{
	return gittest_out(&t, "box", text, strlen(text), "hash-object", "-w", "--stdin", (char *)0);
}

/* COD-5, COD-7 */
static void a_good_change_passes_with_its_diffstat(void **s)
{
	(void)s;
	gittest_write(&t, "box/a.txt", "one\nthree\nfour\n");
	gittest_write(&t, "box/new\nline.txt", "hello\n");
	commit_all();
	auto_free char *id = tip();
	pack_tip(id, base);
	struct err e = { 0 };
	auto_json json_t *stat = NULL;
	assert_int_equal(verify_from(base, id, &stat, &e), 0);
	assert_int_equal(js_int(stat, "files", 0), 2);
	assert_int_equal(js_int(stat, "insertions", 0), 2);
	assert_int_equal(js_int(stat, "deletions", 0), 1);
	json_t *second = json_array_get(json_object_get(stat, "paths"), 1);
	assert_string_equal(js_str(second, "path"), "new\nline.txt");
	/* Nothing was written to the clone itself: its one object directory entry is the fetched pack. */
	auto_free char *mine = gittest_path(&t, "base.git/objects/info/alternates");
	assert_int_equal(access(mine, F_OK), -1);
}

static void a_long_path_is_cut_with_a_mark(void **s)
{
	(void)s;
	gittest_python(&t,
	    "import os; d = 'box/' + '/'.join(['x' + '\u00e9' * 50] * 5); os.makedirs(d); open(d + '/f', "
	    "'w')",
	    NULL);
	commit_all();
	auto_free char *id = tip();
	pack_tip(id, base);
	struct err e = { 0 };
	auto_json json_t *stat = NULL;
	assert_int_equal(verify_from(base, id, &stat, &e), 0);
	const char *path = js_str(json_array_get(json_object_get(stat, "paths"), 0), "path");
	assert_int_equal(strlen(path), 202); /* 199 bytes, then half a letter, replaced by the mark */
	assert_string_equal(path + 195, "\xc3\xa9\xc3\xa9\xe2\x80\xa6");
}

static void a_first_commit_needs_no_base(void **s)
{
	(void)s;
	gittest(&t, "box", "checkout", "-q", "--orphan", "fresh");
	commit_all();
	auto_free char *id = tip();
	pack_tip(id, "");
	struct err e = { 0 };
	auto_json json_t *stat = NULL;
	assert_int_equal(verify_from("", id, &stat, &e), 0);
	assert_int_equal(js_int(stat, "files", 0), 2);
}

static void a_path_into_the_git_directory_is_refused(void **s)
{
	(void)s;
	static const char *const names[] = { ".git", ".GIT", "git~1", ".git ", ".g\xe2\x80\x8cit",
		".git\\hooks" };
	auto_free char *b = blob("#!/bin/sh\n");
	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
		auto_free char *id = commit_entry("100644", names[i], b);
		pack_tip(id, base);
		assert_refused(id, "hasDotgit");
	}
}

static void a_path_out_of_the_tree_is_refused(void **s)
{
	(void)s;
	static const char *const names[] = { "..", ".", "", "a/b", "/etc" };
	auto_free char *b = blob("x");
	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
		auto_free char *id = commit_entry("100644", names[i], b);
		char tree[80];
		(void)snprintf(tree, sizeof tree, "%s^{tree}", id);
		auto_free char *tree_id = out1("rev-parse", tree, NULL);
		pack_ids(id, tree_id, b);
		assert_refused(id, "The change was refused: checking its objects");
	}
}

static void a_name_too_long_to_check_out_is_refused(void **s)
{
	(void)s;
	char name[301];
	memset(name, 'n', 300);
	name[300] = 0;
	auto_free char *b = blob("x");
	auto_free char *id = commit_entry("100644", name, b);
	pack_tip(id, base);
	assert_refused(id, "too long");
}

static void a_submodule_url_that_is_an_option_is_refused(void **s)
{
	(void)s;
	static const char *const texts[] = {
		"[submodule \"x\"]\n\tpath = x\n\turl = -u./payload\n",
		"[submodule \"x\"]\n\tpath = -x\n\turl = https://example.invalid/x\n",
		"[submodule \"../../x\"]\n\tpath = x\n\turl = https://example.invalid/x\n",
	};
	for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
		auto_free char *b = blob(texts[i]);
		auto_free char *id = commit_entry("100644", ".gitmodules", b);
		pack_tip(id, base);
		assert_refused(id, "gitmodules");
	}
	auto_free char *b = blob("elsewhere");
	auto_free char *id = commit_entry("120000", ".gitmodules", b);
	pack_tip(id, base);
	assert_refused(id, "gitmodules");
}

static void history_that_does_not_descend_from_the_base_is_refused(void **s)
{
	(void)s;
	gittest(&t, "box", "checkout", "-q", "--orphan", "other");
	commit_all();
	auto_free char *id = tip();
	pack_tip(id, "");
	assert_refused(id, "does not descend");
}

static void a_tip_that_is_no_commit_is_refused(void **s)
{
	(void)s;
	gittest_write(&t, "box/a.txt", "changed\n");
	commit_all();
	gittest(&t, "box", "tag", "-a", "-m", "a tag", "v1");
	auto_free char *tree = out1("rev-parse", "HEAD^{tree}", NULL), *tag = out1("rev-parse", "v1", NULL);
	pack_tip(tree, "");
	assert_refused(tree, "not a commit");
	pack_tip(tag, base);
	assert_refused(tag, "not a commit");
	assert_refused("0123456789012345678901234567890123456789", "walking its history");
}

static void a_missing_object_is_refused(void **s)
{
	(void)s;
	gittest_write(&t, "box/a.txt", "never sent\n");
	commit_all();
	auto_free char *id = tip();
	auto_free char *tree = out1("rev-parse", "HEAD^{tree}", NULL);
	pack_ids(id, tree, ""); /* and not the blob */
	assert_refused(id, "checking its objects");
}

static void bytes_that_are_no_pack_are_refused(void **s)
{
	(void)s;
	gittest_write(&t, "box/a.txt", "changed\n");
	commit_all();
	auto_free char *id = tip();
	gittest_write(&t, "pack", "");
	assert_refused(id, "checking its objects");
	gittest_write(&t, "pack", "PACKrubbish and more rubbish");
	assert_refused(id, "checking its objects");
	pack_tip(id, base);
	auto_free char *path = gittest_path(&t, "pack");
	struct stat st;
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(truncate(path, st.st_size - 30), 0);
	assert_refused(id, "checking its objects");
}

/* A delta of a few kilobytes that says "copy the base" until it makes 13 GiB; and a header that announces 4 billion objects. */
static const char bomb_py[] =
    "import hashlib, struct, sys, zlib\n"
    "def head(kind, size):\n"
    "    out = bytearray(); c = (kind << 4) | (size & 15); size >>= 4\n"
    "    while size: out.append(c | 128); c = size & 127; size >>= 7\n"
    "    out.append(c); return bytes(out)\n"
    "def var(n):\n"
    "    out = bytearray()\n"
    "    while True:\n"
    "        out.append((n & 127) | (128 if n > 127 else 0)); n >>= 7\n"
    "        if not n: return bytes(out)\n"
    "base = bytes(65536); copies = 200000\n"
    "oid = hashlib.sha1(b'blob 65536\\0' + base).digest()\n"
    "delta = var(65536) + var(65536 * copies) + b'\\x80' * copies\n"
    "count = 2 if sys.argv[2] == 'delta' else 0xffffffff\n"
    "p = b'PACK' + struct.pack('>II', 2, count) + head(3, 65536) + zlib.compress(base)\n"
    "p += head(7, len(delta)) + oid + zlib.compress(delta)\n"
    "open(sys.argv[1], 'wb').write(p + hashlib.sha1(p).digest())\n";

static void a_delta_bomb_runs_into_the_memory_limit(void **s)
{
	(void)s;
	struct span before = span_begin();
	gittest_python(&t, bomb_py, "pack", "delta", NULL);
	assert_refused("0123456789012345678901234567890123456789", "checking its objects");
	gittest_python(&t, bomb_py, "pack", "count", NULL);
	assert_refused("0123456789012345678901234567890123456789", "checking its objects");
	assert_true(span_ms(&before) < 60000);
}

/* Ten trees, each naming the one below ten times: a few hundred bytes that are 10^10 paths. */
static void a_tree_bomb_is_refused_without_walking_it(void **s)
{
	(void)s;
	struct span before = span_begin();
	auto_free char *id = blob("x");
	char mode[16] = "100644 blob";
	for (int level = 0; level < 10; level++) {
		auto_buf struct buf b = BUF(4096);
		for (int i = 0; i < 10; i++)
			(void)buf_fmt(&b, "%s %s\td%d\n", mode, id, i);
		free(id);
		id = gittest_out(&t, "box", b.p, b.n, "mktree", (char *)0);
		(void)snprintf(mode, sizeof mode, "040000 tree");
	}
	auto_free char *commit = gittest_out(
	    &t, "box", "bomb\n", 5, "commit-tree", id, "-p", base, (char *)0);
	pack_tip(commit, base);
	assert_refused(commit, "ran into its limits");
	assert_true(span_ms(&before) < 60000);
}

static void a_file_that_is_too_large_is_refused(void **s)
{
	(void)s;
	gittest_python(&t, "open('box/big', 'wb').truncate(101 << 20)", NULL);
	commit_all();
	auto_free char *id = tip();
	pack_tip(id, base);
	assert_refused(id, "101 MiB");
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(a_good_change_passes_with_its_diffstat),
		T(a_long_path_is_cut_with_a_mark),
		T(a_first_commit_needs_no_base),
		T(a_path_into_the_git_directory_is_refused),
		T(a_path_out_of_the_tree_is_refused),
		T(a_name_too_long_to_check_out_is_refused),
		T(a_submodule_url_that_is_an_option_is_refused),
		T(history_that_does_not_descend_from_the_base_is_refused),
		T(a_tip_that_is_no_commit_is_refused),
		T(a_missing_object_is_refused),
		T(bytes_that_are_no_pack_are_refused),
		T(a_delta_bomb_runs_into_the_memory_limit),
		T(a_tree_bomb_is_refused_without_walking_it),
		T(a_file_that_is_too_large_is_refused),
	};
	return cmocka_run_group_tests_name("verify", tests, NULL, NULL);
}
