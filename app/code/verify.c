#include "code/verify.h"

#include <string.h>

#include "base/js.h"
#include "base/str.h"
#include "io/file.h"

enum {
	STEP_MS = 180 * 1000,
	LIST_BYTES = VERIFY_OBJECTS * (RGIT_ID_MAX + 1),
	SIZES_BYTES = VERIFY_OBJECTS * (RGIT_ID_MAX + 32), /* "id type size\n" */
	PATHS_BYTES = 48 << 20,                            /* every path twice, once behind two ids */
	SHOWN_PATHS = 50,
	SHOWN_PATH_BYTES = 200,
	SHOWN_REPOSITORIES = 10,
	SHOWN_BYTES = 12 * 1024, /* of the JSON list: it rides in the run's last event */
};
#define EMPTY_TREE "4b825dc642cb6eb9a060e54bf8d69288fbee4904" /* known to git without being stored */

static int refused(struct err *e, enum err_code was, const char *why)
{
	return was == ERR_TOO_LARGE ? err_replace(e, ERR_BAD_REQUEST, "The change was refused: %s.", why)
				    : -1;
}

/* --strict checks every object and every link; --fix-thin completes deltas against objects of the base. */
static int index_pack(const struct rgit_repo *repo, int fd, struct err *e)
{
	auto_mem struct mem *m = mem_new();
	const char *const args[] = { "index-pack", "--stdin", "--strict", "--fix-thin", "--threads=1",
		mem_fmt(m, "--max-input-size=%d", (int)VERIFY_PACK_BYTES), NULL };
	auto_proc struct proc_result r = { 0 };
	const struct rgit_call c = { .args = args, .hostile = true, .stdin_fd = fd, .timeout_ms = STEP_MS };
	return rgit_must(repo, &c, "The change was refused: checking its objects", &r, e);
}

/* Ids of all objects that the tip reaches and the base does not; fails when one is missing. */
static int new_objects(
    const struct rgit_repo *repo, const char *base, const char *tip, struct proc_result *r, struct err *e)
{
	auto_buf struct buf in = BUF(4096);
	(void)buf_fmt(&in, "%s\n", tip);
	if (base[0] != 0)
		(void)buf_fmt(&in, "^%s\n", base);
	const char *const args[] = { "rev-list", "--objects", "--no-object-names", "--missing=error",
		"--stdin", NULL };
	const struct rgit_call c = { .args = args,
		.hostile = true,
		.in = in.p,
		.in_n = in.n,
		.timeout_ms = STEP_MS,
		.max_out_bytes = LIST_BYTES };
	if (rgit_must(repo, &c, "The change was refused: walking its history", r, e) != 0)
		return refused(e, e->code, "it has too many objects");
	return 0;
}

static int judge_size(struct str line, struct err *e)
{
	struct str id, type;
	long long size;
	auto_mem struct mem *m = mem_new();
	if (!str_cut(&line, ' ', &id) || !str_cut(&line, ' ', &type) ||
	    !str_int(mem_strn(m, line.p, line.n), 0, INT64_MAX, &size))
		return err_set(e, ERR_INTERNAL, "The sizes of the change's objects could not be read.");
	if (size > VERIFY_BLOB_BYTES)
		return err_set(e, ERR_BAD_REQUEST,
		    "The change was refused: it holds a file of %lld MiB; at most %d MiB are taken.",
		    size >> 20, (int)VERIFY_BLOB_BYTES >> 20);
	return 0;
}

/* The first line is the tip's: it must be a commit itself, not a tag or a tree that leads to one. */
static int judge_objects(const struct rgit_repo *repo, const char *tip, const struct buf *ids, struct err *e)
{
	auto_buf struct buf in = BUF(LIST_BYTES + RGIT_ID_MAX + 1);
	(void)buf_fmt(&in, "%s\n", tip);
	(void)buf_add(&in, buf_c(ids), ids->n);
	const char *const args[] = { "cat-file", "--batch-check", NULL };
	const struct rgit_call c = { .args = args,
		.hostile = true,
		.in = in.p,
		.in_n = in.n,
		.timeout_ms = STEP_MS,
		.max_out_bytes = SIZES_BYTES };
	auto_proc struct proc_result r = { 0 };
	if (rgit_must(repo, &c, "Reading the change's objects", &r, e) != 0)
		return -1;
	struct str all = { r.out.p, r.out.n }, line;
	for (long long n = 0; str_cut(&all, '\n', &line); n++) {
		if (n == 0 && memmem(line.p, line.n, " commit ", 8) == NULL)
			return err_set(
			    e, ERR_BAD_REQUEST, "The change was refused: its tip is not a commit.");
		if (n > VERIFY_OBJECTS)
			return err_set(e, ERR_BAD_REQUEST,
			    "The change was refused: it has more than %d objects.", (int)VERIFY_OBJECTS);
		if (judge_size(line, e) != 0)
			return -1;
	}
	return 0;
}

static int descends(const struct rgit_repo *repo, const char *base, const char *tip, struct err *e)
{
	const char *const args[] = { "merge-base", "--is-ancestor", base, tip, NULL };
	const struct rgit_call c = { .args = args, .hostile = true, .timeout_ms = STEP_MS };
	auto_proc struct proc_result r = { 0 };
	if (rgit_run(repo, &c, &r, e) != 0)
		return -1;
	if (r.exit_code == 1)
		return err_set(e, ERR_BAD_REQUEST,
		    "The change was refused: its history does not descend from the commit the run was "
		    "given.");
	return r.exit_code == 0 ? 0 : rgit_failed(repo, &c, &r, "Comparing the change's history", e);
}

static bool path_ok(struct str path)
{
	if (path.n > VERIFY_PATH_BYTES)
		return false;
	for (struct str rest = path, name; str_cut(&rest, '/', &name);)
		if (name.n > VERIFY_NAME_BYTES)
			return false;
	return true;
}

struct stat_sum {
	long long files, insertions, deletions;
	json_t *paths, *repositories;
	size_t bytes; /* of both, as JSON */
	bool more;
};

/* A cut path says so: it must not be taken for another file's. */
static json_t *shown_path(struct str path)
{
	auto_buf struct buf b = BUF(SHOWN_PATH_BYTES + 8);
	if (path.n <= SHOWN_PATH_BYTES)
		return js_text(path.p, path.n);
	(void)buf_add(&b, path.p, SHOWN_PATH_BYTES - utf8_tail(path.p, SHOWN_PATH_BYTES));
	(void)buf_str(&b, "\xe2\x80\xa6");
	return js_text(buf_c(&b), b.n);
}

static void show(struct stat_sum *s, json_t *list, size_t most, json_t *row)
{
	auto_mem struct mem *m = mem_new();
	auto_json json_t *mine = row;
	size_t bytes = strlen(js_dump(m, mine)) + 1;
	if (json_array_size(list) == most || s->bytes + bytes > SHOWN_BYTES) {
		s->more = true;
		return;
	}
	s->bytes += bytes;
	js_push(list, steal(mine));
}

static void sum_path(struct stat_sum *s, struct str path, long long ins, long long del, bool binary)
{
	s->files++;
	s->insertions += ins;
	s->deletions += del;
	show(s, s->paths, SHOWN_PATHS,
	    js_pack("{s:o,s:I,s:I,s:b}", "path", shown_path(path), "insertions", (json_int_t)ins, "deletions",
		(json_int_t)del, "binary", binary));
}

/* One "ins TAB del TAB path" of --numstat -z; both are "-" for a binary file. */
static int sum_line(struct stat_sum *s, struct str line, struct err *e)
{
	auto_mem struct mem *m = mem_new();
	struct str ins, del;
	long long i = 0, d = 0;
	if (!str_cut(&line, '\t', &ins) || !str_cut(&line, '\t', &del))
		return err_set(e, ERR_INTERNAL, "The change's list of files could not be read.");
	bool text = str_int(mem_strn(m, ins.p, ins.n), 0, INT64_MAX, &i) &&
	    str_int(mem_strn(m, del.p, del.n), 0, INT64_MAX, &d);
	if (!path_ok(line))
		return err_set(e, ERR_BAD_REQUEST,
		    "The change was refused: it has a path that is too long to be checked out.");
	sum_path(s, line, text ? i : 0, text ? d : 0, !text);
	return 0;
}

static int diffstat_of(
    const struct rgit_repo *repo, const char *base, const char *tip, json_t **out, struct err *e)
{
	const char *const args[] = { "diff-tree", "-r", "-z", "--raw", "--numstat", "--no-renames",
		"--no-ext-diff", "--no-textconv", base[0] == 0 ? EMPTY_TREE : base, tip, NULL };
	const struct rgit_call c = {
		.args = args, .hostile = true, .timeout_ms = STEP_MS, .max_out_bytes = PATHS_BYTES
	};
	auto_proc struct proc_result r = { 0 };
	if (rgit_must(repo, &c, "The change was refused: comparing it with its base", &r, e) != 0)
		return refused(e, e->code, "it touches too many files");
	auto_json json_t *paths = json_array(), *repositories = json_array();
	struct stat_sum s = { .paths = paths, .repositories = repositories };
	struct str all = { r.out.p, r.out.n }, line, path;
	while (str_cut(&all, 0, &line)) {
		/* --raw, of all paths before --numstat: ":100644 160000 id id M", then the path. */
		if (line.n > 0 && line.p[0] == ':') {
			if (!str_cut(&all, 0, &path))
				return err_set(e, ERR_INTERNAL, "The change's list of files is cut.");
			if (line.n > 14 && memcmp(line.p + 8, "160000", 6) == 0)
				show(&s, s.repositories, SHOWN_REPOSITORIES, shown_path(path));
		} else if (sum_line(&s, line, e) != 0) {
			return -1;
		}
	}
	*out = js_pack("{s:I,s:I,s:I,s:O,s:O,s:b}", "files", (json_int_t)s.files, "insertions",
	    (json_int_t)s.insertions, "deletions", (json_int_t)s.deletions, "paths", paths, "repositories",
	    repositories, "more", s.more);
	return 0;
}

int verify_pack(
    const struct rgit_repo *repo, int fd, const char *base, const char *tip, json_t **diffstat, struct err *e)
{
	auto_proc struct proc_result ids = { 0 };
	*diffstat = NULL;
	if (file_mkdirs(repo->quarantine, 0700, e) != 0 || index_pack(repo, fd, e) != 0)
		return -1;
	if (new_objects(repo, base, tip, &ids, e) != 0 || judge_objects(repo, tip, &ids.out, e) != 0)
		return -1;
	if (base[0] != 0 && descends(repo, base, tip, e) != 0)
		return -1;
	return diffstat_of(repo, base, tip, diffstat, e);
}
