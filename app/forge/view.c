#include "forge/view.h"

#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "forge/git.h"

/* The tree without entries, which every git knows: what a branch without common history is compared with. */
#define EMPTY_TREE "4b825dc642cb6eb9a060e54bf8d69288fbee4904"

enum { OUT_BYTES = 4 << 20, BODY_BYTES = 4000 };

/* Output up to a bound; git is stopped there. */
struct some {
	struct buf *to;
	bool more;
};

static int keep(void *arg, const char *p, size_t n)
{
	struct some *s = arg;
	size_t room = s->to->max - s->to->n;
	(void)buf_add(s->to, p, n < room ? n : room);
	s->more = n > room;
	return s->more ? -1 : 0;
}

/* Run git and keep the start of its output; *more says that there was more. */
static int read_some(
    struct mem *m, const struct repo *r, const char *const *args, struct buf *to, bool *more, struct err *e)
{
	struct some s = { .to = to };
	auto_proc struct proc_result p = { 0 };
	if (git_run(m, &(struct git_call){ .dir = r->dir, .args = args, .on_out = keep, .arg = &s }, &p, e) !=
	    0)
		return -1;
	*more = s.more;
	if (!s.more && p.exit_code != 0)
		return err_set(e, ERR_INTERNAL, "The repository could not be read.");
	return 0;
}

/* The first line of a short answer; "" when git says no (any exit code but 0). NULL with e when it cannot be asked. */
static const char *ask(struct mem *m, const struct repo *r, const char *const *args, struct err *e)
{
	auto_proc struct proc_result p = { 0 };
	if (git_run(m, &(struct git_call){ .dir = r->dir, .args = args }, &p, e) != 0)
		return NULL;
	return p.exit_code != 0 ? "" : mem_strn(m, buf_c(&p.out), strcspn(buf_c(&p.out), "\n"));
}
#define ASK(m, r, e, ...) ask(m, r, (const char *const[]){ __VA_ARGS__, NULL }, e)

/* Whole records that end with NUL or LF; a last one without its end was cut and is not taken. */
static bool cut(struct str *rest, char end, struct str *out)
{
	return memchr(rest->p, end, rest->n) != NULL && str_cut(rest, end, out);
}

static struct str all(const struct buf *b)
{
	return (struct str){ b->n > 0 ? b->p : "", b->n };
}

static char *keep_str(struct mem *m, struct str s)
{
	return mem_strn(m, s.p, s.n);
}

static int read_branches(struct mem *m, struct view *v, struct err *e)
{
	static const char *const args[] = { "for-each-ref", "--sort=-committerdate", "--count=301",
		"--format=%(committerdate:unix) %(objectname) %(refname:lstrip=2)", "refs/heads/", NULL };
	auto_buf struct buf out = BUF(OUT_BYTES);
	if (read_some(m, v->repo, args, &out, &v->more_branches, e) != 0)
		return -1;
	v->branches = mem_alloc(m, VIEW_BRANCHES * sizeof *v->branches);
	for (struct str rest = all(&out), line, time, id; cut(&rest, '\n', &line);) {
		if (v->n_branches == VIEW_BRANCHES) {
			v->more_branches = true;
			break;
		}
		if (str_cut(&line, ' ', &time) && str_cut(&line, ' ', &id))
			v->branches[v->n_branches++] = (struct view_branch){ .name = keep_str(m, line),
				.id = keep_str(m, id),
				.time_s = atoll(keep_str(m, time)) };
	}
	return 0;
}

static int read_commits(struct mem *m, struct view *v, struct err *e)
{
	/* %an and %s hold no line ends; the body is the rest. */
	const char *range = v->is_default || v->base == NULL ? v->tip : mem_fmt(m, "%s..%s", v->base, v->tip);
	const char *const args[] = { "log", "-z", "--no-color", "--no-show-signature", "--max-count=101",
		"--format=%H%n%ct%n%an%n%s%n%b", range, "--", NULL };
	auto_buf struct buf out = BUF(OUT_BYTES);
	if (read_some(m, v->repo, args, &out, &v->more_commits, e) != 0)
		return -1;
	(void)buf_chr(&out, 0); /* -z separates, it does not end */
	v->commits = mem_alloc(m, VIEW_COMMITS * sizeof *v->commits);
	for (struct str rest = all(&out), rec; cut(&rest, 0, &rec);) {
		struct str id, time, author, subject = { "", 0 };
		if (!str_cut(&rec, '\n', &id) || !str_cut(&rec, '\n', &time) || !str_cut(&rec, '\n', &author))
			continue;
		if (v->n_commits == VIEW_COMMITS) {
			v->more_commits = true;
			break;
		}
		(void)str_cut(&rec, '\n', &subject);
		if (rec.n > BODY_BYTES)
			rec.n = BODY_BYTES;
		v->commits[v->n_commits++] = (struct view_commit){ .id = keep_str(m, id),
			.time_s = atoll(keep_str(m, time)),
			.author = keep_str(m, author),
			.subject = keep_str(m, subject),
			.body = keep_str(m, rec) };
	}
	return 0;
}

/* ":oldmode newmode oldid newid status" NUL path NUL, and one more path for a rename or copy. */
static bool take_raw(struct mem *m, struct str *rest, struct view_change *ch)
{
	struct str head, path, to;
	if (!cut(rest, 0, &head) || head.n < 17 || !cut(rest, 0, &path))
		return false;
	const char *status = memrchr(head.p, ' ', head.n);
	*ch = (struct view_change){ .status = status[1],
		.old_mode = mem_strn(m, head.p + 1, 6),
		.new_mode = mem_strn(m, head.p + 8, 6),
		.path = keep_str(m, path) };
	if (ch->status != 'R' && ch->status != 'C')
		return true;
	if (!cut(rest, 0, &to))
		return false;
	ch->from = ch->path;
	ch->path = keep_str(m, to);
	return true;
}

/* "added TAB removed TAB path" NUL; a rename has an empty path and two more records. "-" is a binary file. */
static bool take_counts(struct mem *m, struct str *rest, struct view_change *ch)
{
	struct str line, added, removed, from, to;
	if (!cut(rest, 0, &line) || !str_cut(&line, '\t', &added) || !str_cut(&line, '\t', &removed))
		return false;
	ch->binary = str_eq(added, "-");
	ch->added = atoll(keep_str(m, added));
	ch->removed = atoll(keep_str(m, removed));
	return line.n > 0 || (cut(rest, 0, &from) && cut(rest, 0, &to));
}

static int read_changes(struct mem *m, struct view *v, struct err *e)
{
	const char *from = v->base != NULL ? v->base : EMPTY_TREE;
	const char *const list[] = { "diff-tree", "-r", "-M", "-z", "--raw", "--numstat", from, v->tip,
		NULL };
	const char *const text[] = { "diff-tree", "-r", "-M", "-p", "--no-color", "--no-ext-diff",
		"--no-textconv", from, v->tip, NULL };
	auto_buf struct buf out = BUF(OUT_BYTES);
	if (read_some(m, v->repo, list, &out, &v->more_changes, e) != 0)
		return -1;
	v->changes = mem_alloc(m, VIEW_CHANGES * sizeof *v->changes);
	struct str rest = all(&out);
	size_t total = 0;
	for (struct view_change one; rest.n > 0 && rest.p[0] == ':' && take_raw(m, &rest, &one); total++)
		if (total < VIEW_CHANGES)
			v->changes[v->n_changes++] = one;
	v->more_changes = v->more_changes || total > v->n_changes;
	for (size_t i = 0; i < v->n_changes && take_counts(m, &rest, &v->changes[i]); i++)
		;
	return read_some(m, v->repo, text, &v->patch, &v->more_patch, e);
}

/* "mode SP type SP id SP+ size TAB path" NUL */
static int read_files(struct mem *m, struct view *v, struct err *e)
{
	const char *const args[] = { "ls-tree", "-r", "-l", "-z", "--full-tree", v->tip, NULL };
	auto_buf struct buf out = BUF(OUT_BYTES);
	if (read_some(m, v->repo, args, &out, &v->more_files, e) != 0)
		return -1;
	v->files = mem_alloc(m, VIEW_FILES * sizeof *v->files);
	for (struct str rest = all(&out), rec, head; cut(&rest, 0, &rec);) {
		if (!str_cut(&rec, '\t', &head) || head.n < 6)
			continue;
		if (v->n_files == VIEW_FILES) {
			v->more_files = true;
			break;
		}
		const char *h = keep_str(m, head), *size = strrchr(h, ' ') + 1;
		v->files[v->n_files++] = (struct view_file){ .mode = mem_strn(m, h, 6),
			.path = keep_str(m, rec),
			.size = size[0] == '-' ? -1 : atoll(size) };
	}
	return 0;
}

/* The commit of exactly this branch, whose name is never read as a revision expression; "" for none, NULL with e. */
static const char *tip_of(struct mem *m, struct view *v, const char *branch, struct err *e)
{
	for (size_t i = 0; i < v->n_branches; i++)
		if (strcmp(v->branches[i].name, branch) == 0)
			return v->branches[i].id;
	if (!v->more_branches)
		return "";
	return ASK(m, v->repo, e, "show-ref", "--verify", "--hash", mem_fmt(m, "refs/heads/%s", branch));
}

/* Where the branch left the default branch, and how far they are apart. */
static int compare(struct mem *m, struct view *v, struct err *e)
{
	const char *main_tip = tip_of(m, v, v->repo->default_branch, e);
	if (main_tip == NULL)
		return -1;
	const char *base = main_tip[0] != 0 ? ASK(m, v->repo, e, "merge-base", main_tip, v->tip) : "";
	if (base == NULL)
		return -1;
	v->base = base[0] != 0 ? base : NULL;
	v->unrelated = base[0] == 0;
	if (v->unrelated)
		return 0;
	const char *counts = ASK(
	    m, v->repo, e, "rev-list", "--count", "--left-right", mem_fmt(m, "%s...%s", main_tip, v->tip));
	if (counts == NULL)
		return -1;
	v->behind = atoll(counts);
	const char *tab = strchr(counts, '\t');
	v->ahead = tab != NULL ? atoll(tab) : 0;
	return 0;
}

static int find_tip(struct mem *m, struct view *v, struct err *e)
{
	const char *id = tip_of(m, v, v->branch, e);
	if (id == NULL)
		return -1;
	v->tip = id[0] != 0 ? id : NULL;
	return 0;
}

static int choose_branch(struct mem *m, struct view *v, const char *asked, struct err *e)
{
	v->branch = asked != NULL ? asked : v->repo->default_branch;
	if (find_tip(m, v, e) != 0)
		return -1;
	/* Others were pushed, the default branch not yet: show the newest. */
	if (v->tip == NULL && asked == NULL && v->n_branches > 0) {
		v->branch = v->branches[0].name;
		if (find_tip(m, v, e) != 0)
			return -1;
	}
	v->is_default = strcmp(v->branch, v->repo->default_branch) == 0;
	/* Nothing at all was pushed yet: there is something to say about that. */
	if (v->tip == NULL && (!v->is_default || v->n_branches > 0))
		return err_set(e, ERR_NOT_FOUND, "There is no branch %.200s in this repository.", v->branch);
	return 0;
}

int view_read(struct mem *m, const struct repo *r, const char *branch, struct view *v, struct err *e)
{
	*v = (struct view){ .repo = r, .patch = BUF(VIEW_PATCH_BYTES) };
	if (read_branches(m, v, e) != 0 || choose_branch(m, v, branch, e) != 0)
		return -1;
	if (v->tip == NULL)
		return 0;
	if (!v->is_default && (compare(m, v, e) != 0 || read_changes(m, v, e) != 0))
		return -1;
	return read_commits(m, v, e) != 0 || read_files(m, v, e) != 0 ? -1 : 0;
}

void view_free(struct view *v)
{
	buf_free(&v->patch);
}
