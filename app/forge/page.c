#include "forge/page.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/js.h"
#include "forge/html.h"
#include "forge/patch.h"
#include "io/http.h"

enum { PAGE_BYTES = 24 << 20, DIFF_STOP_BYTES = 8 << 20 };

struct page {
	struct ctx *c;
	const struct view *v;
	struct buf b;
	int64_t now_s;
};

static const char *num(struct page *p, long long n)
{
	return mem_fmt(p->c->mem, "%lld", n);
}

static const char *plural(struct page *p, long long n, const char *one, const char *many)
{
	return mem_fmt(p->c->mem, "%lld %s", n, n == 1 ? one : many);
}

/* ---- times and sizes */

static const char *ago(struct page *p, int64_t t)
{
	static const struct {
		int64_t s;
		const char *one, *many;
	} units[] = { { 86400, "day", "days" }, { 3600, "hour", "hours" }, { 60, "minute", "minutes" } };
	int64_t age = p->now_s - t;
	/* A commit's time is what its author said: it may lie in the future, or far back. */
	if (age < 0 || age >= 30 * 86400) {
		struct tm tm;
		char day[40] = "at an unknown time";
		time_t when = (time_t)t;
		if (gmtime_r(&when, &tm) != NULL)
			(void)strftime(day, sizeof day, "%-d %b %Y", &tm);
		return mem_str(p->c->mem, day);
	}
	for (size_t i = 0; i < sizeof units / sizeof *units; i++)
		if (age >= units[i].s)
			return mem_fmt(
			    p->c->mem, "%s ago", plural(p, age / units[i].s, units[i].one, units[i].many));
	return "just now";
}

static void put_time(struct page *p, int64_t t)
{
	/* RFC 3339 has four digits for the year. */
	char text[CLOCK_TEXT];
	clock_rfc3339((t < 0 || t > 253402300799 ? 0 : t) * 1000, text);
	HTML(&p->b, "<time datetime=\"{=}\" title=\"{=}\">{}</time>", text, text, ago(p, t));
}

static const char *size_text(struct page *p, long long n)
{
	if (n < 0)
		return "submodule";
	if (n < 1024)
		return plural(p, n, "byte", "bytes");
	if (n < 1024 * 1024)
		return mem_fmt(p->c->mem, "%.1f KiB", (double)n / 1024);
	return mem_fmt(p->c->mem, "%.1f MiB", (double)n / (1024 * 1024));
}

/* ---- frame */

static void put_head(struct page *p, const char *title)
{
	HTML(&p->b,
	    "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
	    "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
	    "<meta name=\"color-scheme\" content=\"light dark\">\n<title>{=}</title>\n<style>",
	    title);
	(void)buf_str(&p->b, page_css);
	(void)buf_str(&p->b, "</style>\n</head>\n<body>\n");
}

static void put_foot(struct page *p)
{
	(void)buf_str(&p->b, "<footer><div class=\"wrap\">gatehouse</div></footer>\n</body>\n</html>\n");
}

static json_t *send(struct page *p, int status, struct err *e)
{
	if (p->b.full) {
		err_set(e, ERR_TOO_LARGE, "This branch is too large to be shown: look at it with git.");
		return NULL;
	}
	unsigned char hash[SHA256_BYTES];
	char b64[B64_SIZE(SHA256_BYTES)];
	sha256(page_css, strlen(page_css), hash);
	(void)b64_encode(hash, sizeof hash, b64);
	struct ctx *c = p->c;
	reply_header(c, "Content-Security-Policy",
	    mem_fmt(c->mem,
		"default-src 'none'; style-src 'sha256-%s'; base-uri 'none'; form-action 'none'; "
		"frame-ancestors 'none'",
		b64));
	reply_header(c, "X-Content-Type-Options", "nosniff");
	reply_header(c, "Referrer-Policy", "no-referrer");
	reply_header(c, "Cache-Control", "private, no-cache");
	reply_header(c, "Content-Length", mem_fmt(c->mem, "%zu", p->b.n));
	if (reply_begin(c, status, "text/html; charset=utf-8") == 0)
		(void)reply_write(c, p->b.p, p->b.n);
	return REPLIED;
}

/* ---- the parts of a branch's page */

static const char *clone_url(struct page *p)
{
	auto_json json_t *o = repo_json(p->c, p->v->repo);
	return mem_str(p->c->mem, js_str_or(o, "cloneUrl", ""));
}

static void put_branches(struct page *p)
{
	const struct view *v = p->v;
	HTML(&p->b,
	    "<details class=\"pick\"><summary><span class=\"soft\">Branch</span> <b>{}</b></summary>\n",
	    v->branch);
	(void)buf_str(&p->b, "<nav aria-label=\"Branches\"><ul>\n");
	for (size_t i = 0; i < v->n_branches; i++) {
		const struct view_branch *br = &v->branches[i];
		bool current = strcmp(br->name, v->branch) == 0;
		HTML(&p->b, "<li><a href=\"?ref={=}\"", http_escape(p->c->mem, br->name));
		(void)buf_str(&p->b, current ? " aria-current=\"page\">" : ">");
		HTML(&p->b, "<span>{}", br->name);
		if (strcmp(br->name, v->repo->default_branch) == 0)
			(void)buf_str(&p->b, " <span class=\"tag\">default</span>");
		(void)buf_str(&p->b, "</span>");
		put_time(p, br->time_s);
		(void)buf_str(&p->b, "</a></li>\n");
	}
	if (v->more_branches)
		(void)buf_str(&p->b, "<li class=\"note\">Older branches are not listed.</li>\n");
	(void)buf_str(&p->b, "</ul></nav></details>\n");
}

static void put_top(struct page *p)
{
	const struct repo *r = p->v->repo;
	(void)buf_str(&p->b,
	    "<a class=\"skip\" href=\"#main\">Skip to the content</a>\n"
	    "<header class=\"top\"><div class=\"wrap\">\n<p class=\"brand\">gatehouse</p>\n");
	HTML(&p->b, "<h1><span class=\"org\">{} /</span> <a href=\"?\">{}</a></h1>\n<div class=\"tools\">\n",
	    r->org, r->name);
	if (p->v->n_branches > 0)
		put_branches(p);
	HTML(
	    &p->b, "<div class=\"clone\">git clone <b>{}</b></div>\n</div>\n</div></header>\n", clone_url(p));
}

static void put_totals(struct page *p)
{
	const struct view *v = p->v;
	long long added = 0, removed = 0;
	for (size_t i = 0; i < v->n_changes; i++) {
		added += v->changes[i].added;
		removed += v->changes[i].removed;
	}
	HTML(&p->b,
	    "<span>{}</span><span><span class=\"plus\">+{}</span> <span "
	    "class=\"minus\">&minus;{}</span></span>\n",
	    plural(p, (long long)v->n_changes, "file changed", "files changed"), num(p, added),
	    num(p, removed));
}

static void put_summary(struct page *p)
{
	const struct view *v = p->v;
	HTML(&p->b, "<p class=\"card sum\"><span><b>{}</b>", v->branch);
	(void)buf_str(&p->b, v->is_default ? " is the default branch</span>\n" : "</span>\n");
	if (v->unrelated) {
		HTML(&p->b, "<span>shares no history with <b>{}</b></span>\n", v->repo->default_branch);
	} else if (!v->is_default) {
		HTML(&p->b, "<span>{} ahead of <b>{}</b>", plural(p, v->ahead, "commit", "commits"),
		    v->repo->default_branch);
		if (v->behind > 0)
			HTML(&p->b, ", {} behind", num(p, v->behind));
		(void)buf_str(&p->b, "</span>\n");
	}
	if (!v->is_default)
		put_totals(p);
	HTML(&p->b, "<span class=\"soft\">tip <code>{}</code></span></p>\n", mem_strn(p->c->mem, v->tip, 12));
}

static void put_commit(struct page *p, const struct view_commit *k)
{
	HTML(&p->b,
	    "<li><div class=\"subject\">{}</div>\n<div class=\"meta\"><code class=\"sha\" "
	    "title=\"{=}\">{}</code><span>{}</span>",
	    k->subject[0] != 0 ? k->subject : "(no message)", k->id, mem_strn(p->c->mem, k->id, 9),
	    k->author);
	put_time(p, k->time_s);
	(void)buf_str(&p->b, "</div>\n");
	size_t n = strlen(k->body);
	while (n > 0 && k->body[n - 1] == '\n')
		n--;
	if (n > 0) {
		(void)buf_str(&p->b, "<details><summary>whole message</summary><pre>");
		for (struct str rest = { k->body, n }, line; str_cut(&rest, '\n', &line);) {
			html_esc(&p->b, line.p, line.n);
			(void)buf_chr(&p->b, '\n');
		}
		(void)buf_str(&p->b, "</pre></details>\n");
	}
	(void)buf_str(&p->b, "</li>\n");
}

static void put_commits(struct page *p)
{
	const struct view *v = p->v;
	(void)buf_str(&p->b, "<section aria-labelledby=\"h-commits\"><h2 id=\"h-commits\">Commits");
	HTML(&p->b, " <span class=\"count\">{}{}</span></h2>\n", num(p, (long long)v->n_commits),
	    v->more_commits ? "+" : "");
	(void)buf_str(&p->b, "<ol class=\"card commits\">\n");
	for (size_t i = 0; i < v->n_commits; i++)
		put_commit(p, &v->commits[i]);
	if (v->n_commits == 0)
		(void)buf_str(
		    &p->b, "<li class=\"note\">Nothing that the default branch does not have.</li>\n");
	if (v->more_commits)
		(void)buf_str(&p->b, "<li class=\"note\">Older commits are not listed.</li>\n");
	(void)buf_str(&p->b, "</ol></section>\n");
}

/* ---- changes */

static const char *status_word(char status)
{
	switch (status) {
	case 'A':
		return "added";
	case 'D':
		return "deleted";
	case 'R':
		return "renamed";
	case 'C':
		return "copied";
	case 'T':
		return "type changed";
	default:
		return "changed";
	}
}

static void put_counts(struct page *p, const struct view_change *ch)
{
	if (!ch->binary && ch->added + ch->removed == 0)
		return;
	(void)buf_str(&p->b, "<span class=\"num\">");
	if (ch->binary)
		(void)buf_str(&p->b, "<span class=\"soft\">binary</span>");
	if (ch->added > 0)
		HTML(&p->b, "<span class=\"plus\">+{}</span> ", num(p, ch->added));
	if (ch->removed > 0)
		HTML(&p->b, "<span class=\"minus\">&minus;{}</span>", num(p, ch->removed));
	(void)buf_str(&p->b, "</span>");
}

/* Five squares in the proportion of added to removed lines. */
static void put_bar(struct page *p, const struct view_change *ch)
{
	long long sum = ch->added + ch->removed;
	long long plus = sum > 0 ? (ch->added * 5 + sum - 1) / sum : 0;
	(void)buf_str(&p->b, "<span class=\"bar\" aria-hidden=\"true\">");
	for (long long i = 0; i < 5; i++)
		(void)buf_str(&p->b,
		    sum == 0       ? "<i></i>"
			: i < plus ? "<i class=\"p\"></i>"
				   : "<i class=\"m\"></i>");
	(void)buf_str(&p->b, "</span>");
}

static void put_overview(struct page *p)
{
	const struct view *v = p->v;
	(void)buf_str(&p->b, "<ul class=\"card list\">\n");
	for (size_t i = 0; i < v->n_changes; i++) {
		const struct view_change *ch = &v->changes[i];
		char status[2] = { ch->status, 0 };
		HTML(&p->b, "<li><span class=\"tag {=}\">{}</span><a class=\"name\" href=\"#c{=}\">{}</a>",
		    status, status_word(ch->status), num(p, (long long)i), ch->path);
		put_counts(p, ch);
		put_bar(p, ch);
		(void)buf_str(&p->b, "</li>\n");
	}
	if (v->n_changes == 0)
		(void)buf_str(&p->b, "<li class=\"note\">No file differs.</li>\n");
	if (v->more_changes)
		(void)buf_str(&p->b,
		    "<li class=\"note\">More files changed than are listed here: look at them with "
		    "git.</li>\n");
	(void)buf_str(&p->b, "</ul>\n");
}

static void put_file_head(struct page *p, const struct view_change *ch, size_t i)
{
	HTML(&p->b, "<article class=\"card file\" id=\"c{=}\"><header><h3>{}</h3>", num(p, (long long)i),
	    ch->path);
	HTML(&p->b, "<span class=\"soft\">{}{}{}</span>", status_word(ch->status),
	    ch->from != NULL ? " from " : "", ch->from != NULL ? ch->from : "");
	if (ch->status != 'A' && ch->status != 'D' && strcmp(ch->old_mode, ch->new_mode) != 0)
		HTML(&p->b, "<span class=\"soft\">mode {} &rarr; {}</span>", ch->old_mode, ch->new_mode);
	put_counts(p, ch);
	(void)buf_str(&p->b, "</header>\n");
}

/* A change's part of the patch; a changed type is two parts, one that deletes and one that adds. `there`: parts are left. */
static void put_file(struct page *p, size_t i, struct str *patch, int *budget, bool *there)
{
	const struct view_change *ch = &p->v->changes[i];
	put_file_head(p, ch, i);
	bool any = false, whole = *there;
	for (int part = 0; part < (ch->status == 'T' ? 2 : 1) && *there; part++) {
		struct str file;
		*there = patch_next(patch, &file);
		if (!*there || !patch_has_lines(file))
			continue;
		if (!any)
			HTML(&p->b,
			    "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\""
			    "Changes of {=}\"><table class=\"diff\">\n",
			    ch->path);
		any = true;
		if (p->b.n > DIFF_STOP_BYTES)
			*budget = 0;
		whole = patch_rows(&p->b, file, budget) && whole;
	}
	whole = whole && (*there || any);
	if (any)
		(void)buf_str(&p->b, "</table></div>\n");
	if (!whole)
		(void)buf_str(&p->b, "<p>The rest is not shown here: look at it with git.</p>\n");
	else if (!any)
		(void)buf_str(&p->b, ch->binary ? "<p>A binary file.</p>\n" : "<p>No line differs.</p>\n");
	(void)buf_str(&p->b, "</article>\n");
}

static void put_changes(struct page *p)
{
	const struct view *v = p->v;
	HTML(&p->b,
	    "<section aria-labelledby=\"h-changes\"><h2 id=\"h-changes\">Changes <span "
	    "class=\"count\">against {}</span></h2>\n",
	    v->repo->default_branch);
	put_overview(p);
	struct str patch = { v->patch.p, v->patch.n };
	int budget = PATCH_LINES;
	bool there = true;
	for (size_t i = 0; i < v->n_changes; i++)
		put_file(p, i, &patch, &budget, &there);
	if (v->more_patch)
		(void)buf_str(&p->b,
		    "<p class=\"note\">The changes are larger than this page: look at the rest with "
		    "git.</p>\n");
	(void)buf_str(&p->b, "</section>\n");
}

static void put_files(struct page *p)
{
	const struct view *v = p->v;
	HTML(&p->b,
	    "<section aria-labelledby=\"h-files\"><h2 id=\"h-files\">Files <span "
	    "class=\"count\">{}{}</span></h2>\n",
	    num(p, (long long)v->n_files), v->more_files ? "+" : "");
	(void)buf_str(&p->b, "<ul class=\"card list\">\n");
	for (size_t i = 0; i < v->n_files; i++) {
		const struct view_file *f = &v->files[i];
		HTML(&p->b, "<li><span class=\"name\">{}</span>", f->path);
		if (strcmp(f->mode, "100755") == 0)
			(void)buf_str(&p->b, "<span class=\"tag\">executable</span>");
		else if (strcmp(f->mode, "120000") == 0)
			(void)buf_str(&p->b, "<span class=\"tag\">link</span>");
		HTML(&p->b, "<span class=\"num soft\">{}</span></li>\n", size_text(p, f->size));
	}
	if (v->n_files == 0)
		(void)buf_str(&p->b, "<li class=\"note\">No files.</li>\n");
	if (v->more_files)
		(void)buf_str(&p->b,
		    "<li class=\"note\">More files than are listed here: look at them with git.</li>\n");
	(void)buf_str(&p->b, "</ul></section>\n");
}

static void put_empty(struct page *p)
{
	const char *branch = p->v->repo->default_branch, *url = clone_url(p);
	(void)buf_str(&p->b,
	    "<h2>Nothing here yet</h2>\n<div class=\"card\"><p class=\"note\">Push a first commit; any user "
	    "name, and "
	    "your key as password:</p>\n<pre class=\"how\" tabindex=\"0\">");
	HTML(&p->b,
	    "git init -b {}\ngit add .\ngit commit -m \"First commit\"\ngit remote add origin {}\ngit push "
	    "-u origin {}",
	    branch, url, branch);
	(void)buf_str(&p->b, "</pre></div>\n");
}

json_t *page_branch(struct ctx *c, const struct view *v, struct err *e)
{
	struct page p = { .c = c, .v = v, .b = BUF(PAGE_BYTES), .now_s = clock_wall_ms() / 1000 };
	put_head(&p, mem_fmt(c->mem, "%s · %s/%s", v->branch, v->repo->org, v->repo->name));
	put_top(&p);
	(void)buf_str(&p.b, "<main id=\"main\" class=\"wrap\">\n");
	if (v->tip == NULL) {
		put_empty(&p);
	} else {
		put_summary(&p);
		put_commits(&p);
		if (!v->is_default)
			put_changes(&p);
		put_files(&p);
	}
	(void)buf_str(&p.b, "</main>\n");
	put_foot(&p);
	json_t *out = send(&p, 200, e);
	buf_free(&p.b);
	return out;
}

json_t *page_error(struct ctx *c, const struct err *why, bool inside)
{
	struct page p = { .c = c, .b = BUF(64 << 10) };
	const char *title = why->code == ERR_UNAUTHORIZED ? "Sign in"
	    : why->code == ERR_NOT_FOUND                  ? "Not found"
							  : "This did not work";
	if (why->code == ERR_UNAUTHORIZED)
		reply_header(c, "WWW-Authenticate", "Basic realm=\"gatehouse\", charset=\"UTF-8\"");
	put_head(&p, title);
	HTML(&p.b,
	    "<main class=\"wrap\"><div class=\"card center\"><p "
	    "class=\"brand\">gatehouse</p><h1>{}</h1><p>{}</p>\n",
	    title, why->msg);
	if (inside)
		(void)buf_str(&p.b, "<p><a href=\"?\">Show the default branch</a></p>\n");
	HTML(&p.b, "<p class=\"soft\">Request {}</p></div></main>\n", c->request_id);
	put_foot(&p);
	json_t *out = send(&p, err_http(why->code), &(struct err){ 0 });
	buf_free(&p.b);
	return out;
}
