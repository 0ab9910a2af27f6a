#include "forge/push.h"

#include <stdio.h>
#include <string.h>

#include "base/js.h"
#include "base/limits.h"
#include "base/str.h"
#include "forge/git.h"
#include "forge/store.h"
#include "io/file.h"

enum {
	ARGV_BYTES = 96 << 10,
	ARGV_MAX = 2000,
	LIST_BYTES = 16 << 20,
	BLOB_TIMEOUT_MS = 60 * 1000,
	GC_TIMEOUT_MS = 60 * 1000
};
#define NO_COMMIT "0000000000000000000000000000000000000000"

/* One commit under way. */
struct writer {
	struct mem *mem;
	const struct repo *repo;
	const struct push *push;
	const char *base;   /* commit that it builds on, or NULL */
	const char *expect; /* what the branch's ref must still be */
	json_t *known;      /* path (and parents) -> mode in the base */
	const char *env[8];
	char **blob; /* object id of each file's content */
};

static int git(struct writer *w, const char *const *args, const void *in, size_t in_n, struct proc_result *r,
    struct err *e)
{
	const struct git_call g = { .dir = w->repo->dir,
		.args = args,
		.more_env = w->env,
		.in = in,
		.in_n = in_n,
		.max_out_bytes = LIST_BYTES };
	return git_must(w->mem, &g, r, e);
}

/* Run it and keep the first line of what it says. */
static const char *git_line(
    struct writer *w, const char *const *args, const void *in, size_t in_n, struct err *e)
{
	auto_proc struct proc_result r = { 0 };
	if (git(w, args, in, in_n, &r, e) != 0)
		return NULL;
	return mem_strn(w->mem, buf_c(&r.out), strcspn(buf_c(&r.out), "\n"));
}
#define GIT_LINE(w, in, in_n, e, ...) git_line(w, (const char *const[]){ __VA_ARGS__, NULL }, in, in_n, e)

/* Where the branch stands; a new one starts at the default branch, the first of an empty repository at nothing. */
static int find_base(struct writer *w, struct err *e)
{
	char tip[65];
	struct err none = { 0 };
	const char *from = w->push->branch;
	int rc = repo_tip(w->repo, from, tip, &none);
	w->expect = rc == 0 ? mem_str(w->mem, tip) : NO_COMMIT;
	if (rc != 0 && none.code == ERR_NOT_FOUND) {
		err_clear(&none);
		rc = repo_tip(w->repo, w->repo->default_branch, tip, &none);
	}
	if (rc != 0 && none.code != ERR_NOT_FOUND) {
		*e = none;
		return -1;
	}
	w->base = rc == 0 ? mem_str(w->mem, tip) : NULL;
	return 0;
}

/* ---- what is there now */

/* "mode SP type SP id TAB path NUL" ... */
static void remember(struct writer *w, const struct buf *out)
{
	struct str rest = { out->p, out->n }, line;
	while (str_cut(&rest, 0, &line)) {
		const char *tab = memchr(line.p, '\t', line.n);
		if (tab == NULL || line.n < 6)
			continue;
		char *path = mem_strn(w->mem, tab + 1, line.n - (size_t)(tab + 1 - line.p));
		js_set(w->known, path, json_stringn(line.p, 6));
	}
}

static int look_up(struct writer *w, const char **args, int n, struct err *e)
{
	auto_proc struct proc_result r = { 0 };
	args[n] = NULL;
	if (git(w, args, NULL, 0, &r, e) != 0)
		return -1;
	remember(w, &r.out);
	return 0;
}

/* All paths of the push and the directories above them, each once. */
static json_t *wanted_paths(struct writer *w)
{
	json_t *set = json_object();
	for (size_t i = 0; i < w->push->n; i++) {
		const char *path = w->push->files[i].path;
		js_set(set, path, json_true());
		for (const char *s = path; (s = strchr(s, '/')) != NULL; s++)
			js_set(set, mem_strn(w->mem, path, (size_t)(s - path)), json_true());
	}
	return set;
}

/* In pieces that fit an argument list. */
static int read_known(struct writer *w, struct err *e)
{
	w->known = mem_json(w->mem, json_object());
	if (w->base == NULL)
		return 0;
	auto_json json_t *set = wanted_paths(w);
	const char **args = mem_alloc(w->mem, (ARGV_MAX + 8) * sizeof *args);
	const char *const head[] = { "ls-tree", "-z", "-t", "--full-tree", w->base, "--" };
	enum { HEAD = sizeof head / sizeof *head };
	memcpy(args, head, sizeof head);
	int n = HEAD;
	size_t bytes = 0;
	const char *path;
	json_t *v;
	json_object_foreach(set, path, v) {
		if (n == ARGV_MAX || bytes > ARGV_BYTES) {
			if (look_up(w, args, n, e) != 0)
				return -1;
			n = HEAD;
			bytes = 0;
		}
		args[n++] = path;
		bytes += strlen(path) + 1 + sizeof(char *);
	}
	return look_up(w, args, n, e);
}

/* ---- may it be written */

static const char *mode_of(const struct writer *w, const char *path)
{
	return js_str_or(w->known, path, "");
}

/* A directory above a file must be, or become, a directory. `fate`: path -> true when written, false when removed. */
static int judge_parents(struct writer *w, const json_t *fate, const char *path, struct err *e)
{
	for (const char *s = path; (s = strchr(s, '/')) != NULL; s++) {
		const char *dir = mem_strn(w->mem, path, (size_t)(s - path));
		const json_t *f = json_object_get(fate, dir);
		const char *mode = mode_of(w, dir);
		if (json_is_true(f))
			return err_field(e, ERR_BAD_REQUEST, "files.path",
			    "\"%.100s\" cannot be a file and hold \"%.200s\".", dir, path);
		if (mode[0] != 0 && strcmp(mode, "040000") != 0 && !json_is_false(f))
			return err_field(e, ERR_CONFLICT, "files.path",
			    "\"%.100s\" is not a directory, so \"%.200s\" cannot be written: delete it "
			    "first.",
			    dir, path);
	}
	return 0;
}

static int judge_file(struct writer *w, const json_t *fate, const struct push_file *f, struct err *e)
{
	const char *mode = mode_of(w, f->path);
	if (f->remove && mode[0] == 0)
		return err_field(
		    e, ERR_CONFLICT, "files.path", "\"%.200s\" is not there to be deleted.", f->path);
	if (strcmp(mode, "040000") == 0)
		return err_field(e, ERR_CONFLICT, "files.path", "\"%.200s\" is a directory.", f->path);
	if (f->remove)
		return 0;
	/* The content would become a link's target, or a submodule's file. */
	if (strcmp(mode, "120000") == 0 || strcmp(mode, "160000") == 0)
		return err_field(e, ERR_CONFLICT, "files.path",
		    "\"%.200s\" is a symbolic link or submodule: delete it first.", f->path);
	return judge_parents(w, fate, f->path, e);
}

static int judge(struct writer *w, struct err *e)
{
	auto_json json_t *fate = json_object();
	for (size_t i = 0; i < w->push->n; i++) {
		const struct push_file *f = &w->push->files[i];
		if (json_object_get(fate, f->path) != NULL)
			return err_field(
			    e, ERR_BAD_REQUEST, "files.path", "\"%.200s\" is named twice.", f->path);
		js_set(fate, f->path, json_boolean(!f->remove));
	}
	for (size_t i = 0; i < w->push->n; i++)
		if (judge_file(w, fate, &w->push->files[i], e) != 0)
			return -1;
	return 0;
}

/* ---- write */

/* fast-import's input, made piece by piece: for each content a blob and the question for its id. */
struct blobs {
	struct writer *w;
	size_t i;        /* file */
	struct buf head; /* what precedes or follows its content */
	size_t head_done, body_done;
	bool in_body;
};

static bool next_head(struct blobs *b)
{
	const struct push *p = b->w->push;
	buf_reset(&b->head);
	b->head_done = 0;
	if (b->in_body) {
		b->in_body = false;
		b->i++;
		return buf_fmt(&b->head, "\nget-mark :1\n") == 0;
	}
	while (b->i < p->n && p->files[b->i].remove)
		b->i++;
	if (b->i == p->n)
		return false;
	b->in_body = true;
	b->body_done = 0;
	return buf_fmt(&b->head, "blob\nmark :1\ndata %zu\n", p->files[b->i].n) == 0;
}

static ssize_t blobs_read(void *arg, void *out, size_t n)
{
	struct blobs *b = arg;
	for (;;) {
		const struct push_file *f = &b->w->push->files[b->i];
		const char *from = b->head.p + b->head_done;
		size_t left = b->head.n - b->head_done, *done = &b->head_done;
		if (left == 0 && b->in_body) {
			from = (const char *)f->p + b->body_done;
			left = f->n - b->body_done;
			done = &b->body_done;
		}
		if (left > 0) {
			size_t take = left < n ? left : n;
			memcpy(out, from, take);
			*done += take;
			return (ssize_t)take;
		}
		if (!next_head(b))
			return 0;
	}
}

static int write_blobs(struct writer *w, struct err *e)
{
	w->blob = mem_alloc(w->mem, w->push->n * sizeof *w->blob);
	struct blobs b = { .w = w, .head = BUF(256) };
	const char *const args[] = { "fast-import", "--quiet", NULL };
	const struct git_call g = { .dir = w->repo->dir,
		.args = args,
		.in_read = blobs_read,
		.arg = &b,
		.max_out_bytes = PUSH_FILES_MAX * 65,
		.timeout_ms = BLOB_TIMEOUT_MS };
	auto_proc struct proc_result r = { 0 };
	int rc = git_must(w->mem, &g, &r, e);
	buf_free(&b.head);
	if (rc != 0)
		return -1;
	struct str rest = { r.out.p, r.out.n }, line;
	for (size_t i = 0; i < w->push->n; i++) {
		if (w->push->files[i].remove)
			continue;
		if (!str_cut(&rest, '\n', &line) || line.n != 40)
			return err_set(e, ERR_INTERNAL, "The files could not be stored.");
		w->blob[i] = mem_strn(w->mem, line.p, line.n);
	}
	return 0;
}

/* update-index takes what goes away first, so that a path may become a directory. */
static int write_index(struct writer *w, struct err *e)
{
	auto_buf struct buf in = BUF(LIST_BYTES);
	for (int pass = 0; pass < 2; pass++)
		for (size_t i = 0; i < w->push->n; i++) {
			const struct push_file *f = &w->push->files[i];
			const char *mode = mode_of(w, f->path);
			if (f->remove != (pass == 0))
				continue;
			if (f->remove)
				(void)buf_fmt(&in, "0 %s\t%s", NO_COMMIT, f->path);
			else
				(void)buf_fmt(
				    &in, "%s %s\t%s", mode[0] != 0 ? mode : "100644", w->blob[i], f->path);
			(void)buf_chr(&in, 0);
		}
	if (in.full)
		return err_set(e, ERR_TOO_LARGE, "The paths of this push are too long together.");
	if (w->base != NULL && GIT_LINE(w, NULL, 0, e, "read-tree", w->base) == NULL)
		return -1;
	return GIT_LINE(w, in.p, in.n, e, "-c", "core.protectHFS=true", "update-index", "-z",
		   "--index-info") != NULL
	    ? 0
	    : -1;
}

static const char *write_commit(struct writer *w, struct err *e)
{
	const char *tree = GIT_LINE(w, NULL, 0, e, "write-tree");
	if (tree == NULL)
		return NULL;
	const char *msg = w->push->message;
	if (w->base == NULL)
		return GIT_LINE(w, msg, strlen(msg), e, "commit-tree", tree, "-F", "-");
	const char *before = GIT_LINE(
	    w, NULL, 0, e, "rev-parse", "--verify", mem_fmt(w->mem, "%s^{tree}", w->base));
	if (before == NULL)
		return NULL;
	if (strcmp(before, tree) == 0)
		return w->base;
	return GIT_LINE(w, msg, strlen(msg), e, "commit-tree", tree, "-p", w->base, "-F", "-");
}

static int move_ref(struct writer *w, const char *commit, struct err *e)
{
	if (strcmp(commit, w->expect) == 0)
		return 0;
	const char *const args[] = { "update-ref", mem_fmt(w->mem, "refs/heads/%s", w->push->branch), commit,
		w->expect, NULL };
	auto_proc struct proc_result r = { 0 };
	if (git_run(w->mem, &(struct git_call){ .dir = w->repo->dir, .args = args }, &r, e) != 0)
		return -1;
	if (r.exit_code == 0)
		return 0;
	if (strstr(buf_c(&r.errout), "exists; cannot create") != NULL)
		return err_field(e, ERR_CONFLICT, "branch",
		    "The branch %s clashes with an existing one: one name is a directory of the other.",
		    w->push->branch);
	return err_field(e, ERR_CONFLICT, "branch",
	    "The branch %s moved meanwhile: look at it and try again.", w->push->branch);
}

static void prepare_env(struct writer *w, const char *org, const char *tmp)
{
	/* git takes the name as it is, without '<', '>' and line ends; it must not become empty. */
	char slug[64];
	bool named = str_slug(w->push->user, slug, sizeof slug);
	const char *name = named ? w->push->user : "unknown", *mail = named ? slug : "unknown";
	const char *const env[] = { mem_fmt(w->mem, "GIT_INDEX_FILE=%s/index", tmp),
		mem_fmt(w->mem, "GIT_AUTHOR_NAME=%s", name), mem_fmt(w->mem, "GIT_COMMITTER_NAME=%s", name),
		mem_fmt(w->mem, "GIT_AUTHOR_EMAIL=%s@%s", mail, org),
		mem_fmt(w->mem, "GIT_COMMITTER_EMAIL=%s@%s", mail, org), NULL };
	memcpy(w->env, env, sizeof env);
}

static int write_all(struct writer *w, char commit[65], struct err *e)
{
	if (write_blobs(w, e) != 0 || write_index(w, e) != 0)
		return -1;
	const char *id = write_commit(w, e);
	if (id == NULL || move_ref(w, id, e) != 0)
		return -1;
	(void)snprintf(commit, 65, "%s", id);
	return 0;
}

/* git packs up after a push that left many loose objects; commits made here leave them, too. Looked at once in 256 times, by the
 * commit's own id. That it fails or takes too long harms nobody. */
static void tend(struct writer *w, const char *commit)
{
	static const char *const args[] = { "gc", "--auto", "--quiet", NULL };
	const struct git_call g = { .dir = w->repo->dir, .args = args, .timeout_ms = GC_TIMEOUT_MS };
	auto_proc struct proc_result r = { 0 };
	if (str_starts(commit, "00"))
		(void)git_run(w->mem, &g, &r, &(struct err){ 0 });
}

int push_commit(struct ctx *c, const struct repo *r, const struct push *p, char commit[65], struct err *e)
{
	struct writer w = { .mem = c->mem, .repo = r, .push = p };
	if (branch_check(p->branch, "branch", e) != 0)
		return -1;
	for (size_t i = 0; i < p->n; i++)
		if (push_path_check(p->files[i].path, e) != 0)
			return -1;
	if (find_base(&w, e) != 0 || read_known(&w, e) != 0 || judge(&w, e) != 0)
		return -1;
	char tmp[LIMIT_PATH_BYTES];
	const char *parent = store_tmp(c->mem, c->conf, e);
	if (parent == NULL || file_tmpdir(parent, tmp, sizeof tmp, e) != 0)
		return -1;
	prepare_env(&w, r->org, tmp);
	int rc = write_all(&w, commit, e);
	(void)file_rmtree(tmp, &(struct err){ 0 });
	if (rc == 0)
		tend(&w, commit);
	return rc;
}
