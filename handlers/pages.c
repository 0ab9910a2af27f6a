/*
 * pages.c - the forge's page for people, /git/<org>/<repo>?ref=<branch> (FRG-5). A browser signs in as git does: any user name,
 * the key as password. What goes wrong is told as a page, too.
 */
#include <string.h>

#include "base/js.h"
#include "base/str.h"
#include "forge/access.h"
#include "forge/page.h"
#include "forge/view.h"

static const char heads[] = "refs/heads/";

static const struct param page_in[] = {
	IN_REQUIRED(T_STR, "org", "The organisation.", NULL, .max = 4096),
	IN_REQUIRED(T_STR, "repo", "The repository.", NULL, .max = 4096),
	IN(T_STR, "ref", "The branch, also with refs/heads/ before it; the default branch when not given.",
	    NULL, .max = 1024),
	{ 0 },
};

static int find(struct ctx *c, const json_t *in, struct repo *r, struct err *e)
{
	const char *name = js_str(in, "repo");
	if (access_repo(c, js_str(in, "org"), name, r, e) != 0)
		return -1;
	/* A project's repository has no page (FRG-7). */
	return repo_page_url(c, r)[0] == 0 ? repo_absent(name, e) : 0;
}

/* Who asks is not known to see the repository, so nothing of it is shown. */
static bool refuse(struct ctx *c, const struct err *why)
{
	return page_error(c, why, false) != NULL;
}

static json_t *page(struct ctx *c, json_t *in, struct err *e)
{
	struct repo r;
	struct view v = { 0 };
	struct err why = { 0 };
	json_t *out = NULL;
	bool inside = find(c, in, &r, &why) == 0;
	const char *ref = js_str(in, "ref");
	if (ref != NULL && str_starts(ref, heads))
		ref += strlen(heads);
	if (inside && view_read(c->mem, &r, ref != NULL && ref[0] != 0 ? ref : NULL, &v, &why) == 0)
		out = page_branch(c, &v, &why);
	view_free(&v);
	if (out != NULL)
		return out;
	*e = why;
	return page_error(c, &why, inside);
}

const struct op pages_ops[] = {
	{ .id = "repo_page",
	    .routes = { { "GET", "/git/{org}/{repo}" }, { "GET", "/git/{org}/{repo}/" } },
	    .summary = "The page of a branch",
	    .scope = "git",
	    .in = page_in,
	    .status = 200,
	    .flags = OP_RAW_OUT | OP_PUBLIC | OP_HIDDEN | OP_LAX,
	    .run = page,
	    .refuse = refuse },
	{ 0 },
};
