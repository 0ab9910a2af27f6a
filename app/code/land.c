#include <string.h>

#include "base/js.h"
#include "base/log.h"
#include "code/clone.h"
#include "code/run.h"
#include "forge/propose.h"
#include "io/http.h"

enum { CONNECT_MS = 5000, ASK_MS = 30 * 1000 };

int run_push(struct run *r, struct err *e)
{
	struct rgit_remote remote;
	auto_secret struct secret *token = NULL;
	if (run_go(r, e) != 0)
		return -1;
	crash_point("run.pushing");
	if (run_remote(r, &remote, &token, e) != 0)
		return -1;
	int64_t until = run_patience(r);
	struct err one;
	do { /* a push that arrived without an answer is up to date the second time */
		one = (struct err){ 0 };
		(void)clone_push(&r->git, &remote, r->tip, r->branch, &one);
	} while (one.code == ERR_UNAVAILABLE && run_again(r, &one, until));
	if (one.code != ERR_NONE) {
		*e = one;
		return -1;
	}
	crash_point("run.pushed");
	return run_step(r, "push", "ok", e, "Pushed %.12s to %s", r->tip, r->branch);
}

/* The forge's own storage, through its internal door: not what a push said, not what a cache holds (COD-6). */
static int forge_tip(struct run *r, char tip[RGIT_ID_MAX], struct err *e)
{
	const char *url = mem_fmt(r->mem, "http://forge/v1/forge/%s/%s/tip?branch=%s", r->org, r->repo,
	    http_escape(r->mem, r->branch));
	const struct http_req q = {
		.method = "GET",
		.url = url,
		.unix_socket = conf_str(r->svc->conf, "INTERNAL_SOCKET"),
		.connect_ms = CONNECT_MS,
		.total_ms = ASK_MS,
	};
	struct http_res res = { 0 };
	int rc = http_do(&q, &res, e);
	if (rc != 0 && e->code == ERR_UPSTREAM) /* broken off; asking again harms nothing */
		(void)err_replace(e, ERR_UNAVAILABLE, "The forge does not answer.");
	if (rc == 0 && res.status == 200) {
		auto_json json_t *v = js_parse(buf_c(&res.body), res.body.n, e);
		const char *id = js_str_or(v, "commit", "");
		if (!rgit_id_line(id, strlen(id), tip))
			rc = err_set(
			    e, ERR_UPSTREAM, "The forge's answer about the branch could not be read.");
	} else if (rc == 0 && res.status != 404) {
		rc = http_envelope(&res, e);
		if (res.status >= 502) /* nginx, whose api is not there */
			(void)err_replace(e, ERR_UNAVAILABLE, "The forge does not answer.");
	}
	http_res_free(&res);
	return rc;
}

static int ask_tip(struct run *r, char tip[RGIT_ID_MAX], struct err *e)
{
	tip[0] = 0;
	if (r->repo != NULL)
		return forge_tip(r, tip, e);
	struct rgit_remote remote;
	auto_secret struct secret *token = NULL;
	if (run_remote(r, &remote, &token, e) != 0)
		return -1;
	return clone_remote_tip(&r->git, &remote, r->branch, tip, e);
}

int run_stored_tip(struct run *r, char tip[RGIT_ID_MAX], struct err *e)
{
	int64_t until = run_patience(r);
	struct err one;
	do {
		one = (struct err){ 0 };
		if (ask_tip(r, tip, &one) == 0)
			return 0;
	} while (one.code == ERR_UNAVAILABLE && run_again(r, &one, until));
	*e = one;
	return -1;
}

int run_verify(struct run *r, struct err *e)
{
	char stored[RGIT_ID_MAX];
	if (run_stored_tip(r, stored, e) != 0)
		return -1;
	if (strcmp(stored, r->tip) != 0)
		return err_set(e, ERR_UPSTREAM,
		    "The branch %s is not in the repository's storage as it was pushed.", r->branch);
	crash_point("run.verified");
	return run_step(r, "verify", "ok", e, "The repository holds %s at %.12s", r->branch, r->tip);
}

static int find_repo(struct run *r, struct pg *db, void *arg, struct err *e)
{
	struct ctx c = run_ctx(r);
	return repo_get(&c, db, r->org, r->repo, arg, e);
}

int run_propose(struct run *r, const char **url, struct err *e)
{
	*url = "";
	if (r->repo == NULL)
		return 0;
	struct repo repo;
	struct err one = { 0 };
	struct ctx c = run_ctx(r);
	const char *page = run_try(r, find_repo, &repo, &one) != 0 ? NULL
								   : propose(&c, &repo, r->branch, &one);
	if (page == NULL)
		return run_step(
		    r, "propose", "failed", e, "The branch was pushed, but not proposed: %s", one.msg);
	*url = page;
	if (page[0] == 0)
		return run_step(r, "propose", "ok", e, "The repository belongs to a project and has no page");
	return run_step(r, "propose", "ok", e, "Proposed: %s", page);
}
