/* flow_forge.c - git itself against the forge behind nginx: the wire (FRG-1), who may enter (FRG-2), what a grant may (FRG-3). */
#include "../t.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/js.h"
#include "base/str.h"
#include "gitclient.h"
#include "io/proc.h"
#include "stack.h"

static struct stack stack;
static struct stack_org acme, other;

#define ZERO "0000000000000000000000000000000000000000"

/* ---- helpers */

static void create(const char *name)
{
	auto_web struct web w = { 0 };
	web_json(&stack, "POST", "/v1/git/repos", acme.member, js_pack("{s:s}", "name", name), &w);
	assert_int_equal(w.status, 201);
}

static void grant_for(const char *repo, const char *ref, char out[200])
{
	char path[200];
	auto_web struct web w = { 0 };
	(void)snprintf(path, sizeof path, "/v1/git/repos/%s/grants", repo);
	web_json(&stack, "POST", path, acme.member, js_pack("{s:s}", "ref", ref), &w);
	assert_int_equal(w.status, 201);
	(void)snprintf(out, 200, "%s", js_str(w.json, "grant"));
}

/* A repository with two commits on main, as a clone "w" in the client's home. */
static void seed(struct gitclient *g, const char *repo)
{
	char url[200];
	create(repo);
	gitclient_start(g, &stack, acme.member);
	GIT_OK(g, "", "clone", "-q", gitclient_url(g, acme.slug, repo, url), "w");
	gitclient_commit(g, "w", "a.txt", "one\n");
	gitclient_commit(g, "w", "b.txt", "two\n");
	GIT_OK(g, "w", "push", "-q", "origin", "main");
}

/* The tip in the forge's own storage; "" for none. */
static void tip(const char *repo, const char *ref, char out[65])
{
	char dir[200];
	(void)snprintf(dir, sizeof dir, "%s/forge/%s/%s.git", stack.dir, acme.slug, repo);
	struct gitclient g;
	gitclient_start(&g, &stack, NULL);
	g.extra[0] = "safe.directory=*";
	bool there = gitclient_try(
			 &g, "", "--git-dir", dir, "show-ref", "--verify", "--hash", ref, (char *)0) == 0;
	(void)snprintf(out, 65, "%.*s", there ? 40 : 0, g.said);
	gitclient_end(&g);
}

static void assert_tip(const char *repo, const char *ref, const char *id)
{
	char now[65];
	tip(repo, ref, now);
	assert_string_equal(now, id);
}

/* One raw request to a service of a repository. */
static void raw(const char *repo, const char *method, const char *what, const char *password,
    const char *type, const void *body, size_t n, struct web *w)
{
	char path[300], auth[400], content[100];
	gitclient_basic(password == NULL ? "" : password, auth);
	const char *headers[2] = { password == NULL ? NULL : auth, NULL };
	(void)snprintf(path, sizeof path, "/v1/git/%s/%s.git/%s", acme.slug, repo, what);
	(void)snprintf(content, sizeof content, "application/x-%s", type);
	web_do(&stack,
	    &(struct web_req){ .method = method,
		.path = path,
		.headers = headers,
		.body = body,
		.body_n = n,
		.type = content },
	    w);
}

/* A push made by hand: its command lines, a flush, and a pack without objects. What git answered is in w. */
static void push_by_hand(
    const char *repo, const char *password, const char *const (*commands)[3], size_t n, struct web *w)
{
	static const char pack[] = "PACK\0\0\0\2\0\0\0\0\x02\x9d\x08\x82\x3b\xd8\xa8\xea\xb5\x10\xad\x6a\xc7"
				   "\x5c\x82\x3c\xfd\x3e\xd3\x1e";
	auto_buf struct buf b = BUF(65536);
	for (size_t i = 0; i < n; i++) {
		char line[400];
		int len = snprintf(
		    line, sizeof line, "%s %s %s", commands[i][0], commands[i][1], commands[i][2]);
		static const char caps[] = "\0 report-status";
		size_t extra = i == 0 ? sizeof caps - 1 : 0;
		(void)buf_fmt(&b, "%04zx%s", (size_t)len + extra + 4, line);
		(void)buf_add(&b, caps, extra);
	}
	(void)buf_str(&b, "0000");
	(void)buf_add(&b, pack, sizeof pack - 1);
	raw(repo, "POST", "git-receive-pack", password, "git-receive-pack-request", b.p, b.n, w);
}

static void assert_refused_by_hand(
    const char *repo, const char *password, const char *const (*commands)[3], size_t n)
{
	auto_web struct web w = { 0 };
	push_by_hand(repo, password, commands, n, &w);
	assert_int_equal(w.status, 200);
	if (strstr(w.body, "ng refs/") == NULL || strstr(w.body, "ok refs/") != NULL)
		fail_msg("not refused: %s", w.body);
}

/* ---- the wire */

static void an_empty_repository_clones_with_its_branch(void **s) /* FRG-1 */
{
	(void)s;
	char url[200];
	create("empty");
	for (int protocol = 0; protocol <= 2; protocol += 2) {
		struct gitclient g;
		gitclient_start(&g, &stack, acme.member);
		g.protocol = protocol;
		GIT_OK(&g, "", "clone", gitclient_url(&g, acme.slug, "empty", url), "w");
		assert_non_null(strstr(g.said, "empty repository"));
		GIT_OK(&g, "w", "symbolic-ref", "HEAD");
		/* Only protocol 2 tells the branch of an empty repository. */
		assert_string_equal(g.said, protocol == 2 ? "refs/heads/main\n" : "refs/heads/trunk\n");
		gitclient_end(&g);
	}
}

static void push_fetch_and_clone_in_both_protocols(void **s) /* FRG-1 */
{
	(void)s;
	char url[200], id[65], got[65];
	for (int protocol = 0; protocol <= 2; protocol += 2) {
		struct gitclient g;
		seed(&g, protocol == 2 ? "wire2" : "wire0");
		g.protocol = protocol;
		GIT_OK(&g, "", "clone", "-q",
		    gitclient_url(&g, acme.slug, protocol == 2 ? "wire2" : "wire0", url), "c");
		gitclient_commit(&g, "w", "c.txt", "three\n");
		GIT_OK(&g, "w", "push", "-q", "origin", "HEAD:feature/x", "HEAD:refs/tags/v1");
		GIT_OK(&g, "c", "fetch", "-q");
		gitclient_id(&g, "w", "HEAD", id);
		gitclient_id(&g, "c", "origin/feature/x", got);
		assert_string_equal(id, got);
		GIT_OK(&g, "", "clone", "-q", "--depth=1", "--branch=feature/x", url, "shallow");
		GIT_OK(&g, "shallow", "rev-list", "--count", "HEAD");
		assert_string_equal(g.said, "1\n");
		GIT_OK(&g, "", "clone", "-q", "--bare", "--filter=blob:none", url, "partial");
		GIT_OK(&g, "w", "push", "-q", "origin", ":feature/x");
		GIT_OK(&g, "w", "push", "-q", "--force", "origin", "HEAD~1:main");
		gitclient_end(&g);
	}
}

static void many_refs_are_asked_for_in_a_gzipped_body(void **s) /* FRG-1 */
{
	(void)s;
	char url[200], name[40];
	struct gitclient g;
	seed(&g, "gzip");
	for (int i = 0; i < 60; i++) {
		(void)snprintf(name, sizeof name, "%d", i);
		GIT_OK(&g, "w", "commit", "-q", "--allow-empty", "-m", name);
		GIT_OK(&g, "w", "branch", name);
	}
	GIT_OK(&g, "w", "push", "-q", "--all", "origin");
	for (g.protocol = 0; g.protocol <= 2; g.protocol += 2) {
		GIT_OK(&g, "", "-c", "core.compression=1", "clone", "-q", "--mirror",
		    gitclient_url(&g, acme.slug, "gzip", url), g.protocol == 2 ? "m2" : "m0");
		GIT_OK(&g, g.protocol == 2 ? "m2" : "m0", "for-each-ref", "refs/heads/59");
		assert_non_null(strstr(g.said, "refs/heads/59"));
	}
	gitclient_end(&g);
}

/* The bytes git sends gzip'd, from `gzip -n` of "0000": nothing is pushed, nothing breaks. */
static void a_gzipped_push_is_inflated(void **s) /* FRG-1 */
{
	(void)s;
	static const unsigned char flush[] = { 0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3, 0x33, 0x30, 0x30, 0x30, 0,
		0, 0x72, 0xc4, 0x9b, 0x0c, 4, 0, 0, 0 };
	char auth[400], path[200];
	create("zip");
	gitclient_basic(acme.member, auth);
	(void)snprintf(path, sizeof path, "/v1/git/%s/zip.git/git-receive-pack", acme.slug);
	static const struct {
		const char *encoding;
		size_t n;
		int status;
	} rows[] = { { "Content-Encoding: gzip", sizeof flush, 200 },
		{ "Content-Encoding: X-GZIP", sizeof flush, 200 }, { "Content-Encoding: br", 1, 415 },
		{ "Content-Encoding: gzip", 12, 400 } };
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		const char *headers[] = { auth, rows[i].encoding, NULL };
		auto_web struct web w = { 0 };
		web_do(&stack,
		    &(struct web_req){ .method = "POST",
			.path = path,
			.headers = headers,
			.body = (const char *)flush,
			.body_n = rows[i].n,
			.type = "application/x-git-receive-pack-request" },
		    &w);
		assert_int_equal(w.status, rows[i].status);
	}
}

static void a_large_push_is_probed_and_chunked(void **s) /* FRG-1 */
{
	(void)s;
	struct gitclient g;
	seed(&g, "chunked");
	auto_buf struct buf text = BUF(1 << 20);
	for (unsigned i = 1; text.n < 600000; i++)
		(void)buf_fmt(&text, "%u\n", i * 2654435761u);
	gitclient_commit(&g, "w", "big.txt", buf_c(&text));
	g.extra[0] = "http.postBuffer=65536";
	GIT_OK(&g, "w", "push", "-q", "origin", "main");
	char id[65];
	gitclient_id(&g, "w", "HEAD", id);
	assert_tip("chunked", "refs/heads/main", id);
	/* The same with a grant: the probe is no push of zero refs. */
	char grant[200];
	grant_for("chunked", "big", grant);
	struct gitclient h = g;
	(void)snprintf(h.password, sizeof h.password, "%s", grant);
	gitclient_commit(&g, "w", "big2.txt", buf_c(&text) + 1);
	GIT_OK(&h, "w", "push", "-q", "origin", "HEAD:big");
	gitclient_end(&g);
}

static void only_the_path_says_what_is_done(void **s) /* FRG-1 */
{
	(void)s;
	struct gitclient g;
	char id[65], want[200];
	seed(&g, "path");
	gitclient_id(&g, "w", "HEAD", id);
	gitclient_end(&g);
	(void)snprintf(want, sizeof want, "0032want %s\n00000009done\n", id);
	const struct {
		const char *method, *what, *type;
		int status;
	} rows[] = {
		{ "POST", "git-upload-pack?service=git-receive-pack", "git-upload-pack-request", 200 },
		{ "POST", "git-upload-pack", "git-receive-pack-request", 415 },
		{ "POST", "git-upload-pack", "www-form-urlencoded", 415 },
		{ "POST", "git-receive-pack?service=git-upload-pack", "git-upload-pack-request", 415 },
		{ "GET", "git-upload-pack", "x", 405 },
		{ "GET", "info/refs", "x", 400 },
		{ "GET", "info/refs?service=git-annex", "x", 400 },
		{ "GET", "info/refs?service=git-upload-pack&service=git-receive-pack", "x", 400 },
		{ "GET", "info/refs?service=git-upload-pack", "x", 200 },
		{ "GET", "HEAD", "x", 404 },
		{ "GET", "objects/info/packs", "x", 404 },
		{ "GET", "config", "x", 404 },
		{ "POST", "git-upload-archive", "git-upload-archive-request", 404 },
	};
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		auto_web struct web w = { 0 };
		bool post = rows[i].method[0] == 'P';
		raw("path", rows[i].method, rows[i].what, acme.member, rows[i].type, post ? want : NULL,
		    post ? strlen(want) : 0, &w);
		if (w.status != rows[i].status)
			fail_msg("%s %s: %ld", rows[i].method, rows[i].what, w.status);
		char type[100] = "";
		(void)web_header(&w, "Content-Type", type, sizeof type);
		if (i == 0)
			assert_string_equal(type, "application/x-git-upload-pack-result");
	}
}

/* ---- who may enter */

static void nobody_is_challenged_and_strangers_find_nothing(void **s) /* FRG-2, ID-4 */
{
	(void)s;
	char url[200], theirs[65536] = "", narrow[128];
	create("private");
	const char *const nobody[] = { NULL, "",
		"gk_00000000000000000000000000_0000000000000000000000000000000000000000000", "x" };
	for (size_t i = 0; i < sizeof nobody / sizeof *nobody; i++)
		for (int there = 0; there < 2; there++) {
			char challenge[100] = "";
			auto_web struct web w = { 0 };
			raw(there ? "private" : "nowhere", "GET", "info/refs?service=git-upload-pack",
			    nobody[i], "x", NULL, 0, &w);
			assert_int_equal(w.status, 401);
			assert_true(web_header(&w, "WWW-Authenticate", challenge, sizeof challenge));
			assert_true(str_starts(challenge, "Basic realm="));
		}
	static const char *const whats[] = { "info/refs?service=git-upload-pack",
		"info/refs?service=git-receive-pack" };
	for (size_t i = 0; i < 4; i++) {
		auto_web struct web w = { 0 };
		raw(i < 2 ? "private" : "nowhere", "GET", whats[i % 2], other.key, "x", NULL, 0, &w);
		assert_int_equal(w.status, 404);
		(void)snprintf(theirs, sizeof theirs, "%s", web_error(&w, "message"));
		assert_string_equal(theirs,
		    i < 2 ? "There is no repository private in this organisation."
			  : "There is no repository nowhere in this organisation.");
	}
	struct gitclient g;
	gitclient_start(&g, &stack, other.key);
	GIT_NO(&g, "", "not found", "clone", gitclient_url(&g, acme.slug, "private", url), "w");
	g.password[0] = 0;
	GIT_NO(&g, "", "could not read Username", "clone", url, "w");
	gitclient_end(&g);
	stack_key(&stack, acme.slug, "narrow", false, "coding", narrow);
	auto_web struct web w = { 0 };
	raw("private", "GET", whats[0], narrow, "x", NULL, 0, &w);
	assert_int_equal(w.status, 403);
}

/* ---- grants */

static void a_grant_moves_its_branch_forward_and_reads(void **s) /* FRG-3 */
{
	(void)s;
	char grant[200], id[65], url[200];
	struct gitclient g, h;
	seed(&g, "granted");
	grant_for("granted", "agent/x", grant);
	gitclient_start(&h, &stack, grant);
	GIT_OK(&h, "", "clone", "-q", gitclient_url(&h, acme.slug, "granted", url), "w");
	for (int i = 0; i < 2; i++) {
		gitclient_commit(&h, "w", i == 0 ? "x" : "y", "x\n");
		GIT_OK(&h, "w", "push", "-q", "origin", "HEAD:agent/x");
		gitclient_id(&h, "w", "HEAD", id);
		assert_tip("granted", "refs/heads/agent/x", id);
	}
	GIT_OK(&h, "w", "push", "origin", "HEAD:agent/x"); /* nothing to do */
	gitclient_end(&h);
	gitclient_end(&g);
}

static void everything_else_is_refused_to_a_grant(void **s) /* FRG-3 */
{
	(void)s;
	char grant[200], main_id[65], mine[65], url[200];
	struct gitclient g;
	seed(&g, "refuse");
	grant_for("refuse", "refs/heads/agent/x", grant);
	gitclient_id(&g, "w", "HEAD", main_id);
	(void)snprintf(g.password, sizeof g.password, "%s", grant);
	gitclient_commit(&g, "w", "x", "x\n");
	gitclient_id(&g, "w", "HEAD", mine);
	GIT_OK(&g, "w", "push", "-q", "origin", "HEAD:agent/x");
	gitclient_commit(&g, "w", "y", "y\n");
	GIT_NO(&g, "w", "may push refs/heads/agent/x, not refs/heads/main", "push", "origin", "HEAD:main");
	GIT_NO(&g, "w", "not refs/heads/agent/y", "push", "origin", "HEAD:agent/y");
	GIT_NO(&g, "w", "not refs/tags/v1", "push", "origin", "HEAD:refs/tags/v1");
	GIT_NO(&g, "w", "names 2", "push", "origin", "HEAD:agent/x", "HEAD:agent/y");
	GIT_NO(&g, "w", "may not delete", "push", "origin", ":agent/x");
	GIT_NO(&g, "w", "may not force", "push", "--force", "origin", "HEAD~2:agent/x");
	GIT_OK(&g, "w", "commit", "-q", "--amend", "-m", "z");
	GIT_OK(&g, "w", "reset", "-q", "--hard", "HEAD~2");
	gitclient_commit(&g, "w", "side", "s\n");
	GIT_NO(&g, "w", "may not force", "push", "--force", "origin", "HEAD:agent/x");
	assert_tip("refuse", "refs/heads/main", main_id);
	assert_tip("refuse", "refs/heads/agent/x", mine);
	assert_tip("refuse", "refs/heads/agent/y", "");
	/* By hand: what git's own client would not send. */
	const char *const lie_new[][3] = { { ZERO, main_id, "refs/heads/agent/x" } };
	const char *const lie_old[][3] = { { main_id, main_id, "refs/heads/agent/x" } };
	const char *const twice[][3] = { { mine, mine, "refs/heads/agent/x" },
		{ mine, mine, "refs/heads/agent/x" } };
	const char *const back[][3] = { { mine, main_id, "refs/heads/agent/x" } };
	const char *const gone[][3] = { { ZERO, ZERO, "refs/heads/agent/x" } };
	assert_refused_by_hand("refuse", grant, lie_new, 1);
	assert_refused_by_hand("refuse", grant, lie_old, 1);
	assert_refused_by_hand("refuse", grant, twice, 2);
	assert_refused_by_hand("refuse", grant, back, 1);
	assert_refused_by_hand("refuse", grant, gone, 1);
	assert_tip("refuse", "refs/heads/agent/x", mine);
	/* Another repository does not exist for it, and neither does the API. */
	create("refuse2");
	GIT_NO(&g, "", "not found", "clone", gitclient_url(&g, acme.slug, "refuse2", url), "o");
	gitclient_end(&g);
}

static void a_grants_push_of_nothing_is_refused_and_its_probe_is_not(void **s) /* FRG-3 */
{
	(void)s;
	char grant[200];
	create("nothing");
	grant_for("nothing", "x", grant);
	static const struct {
		const char *body;
		int by_grant, by_member;
	} rows[] = { { "0000", 200, 200 }, { "0000PACK", 403, 200 }, { "00000000", 403, 200 },
		{ "", 403, 400 },
		{ "0034shallow 1111111111111111111111111111111111111111"
		  "0000",
		    403, 200 } };
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		auto_web struct web w = { 0 }, w2 = { 0 };
		raw("nothing", "POST", "git-receive-pack", grant, "git-receive-pack-request", rows[i].body,
		    strlen(rows[i].body), &w);
		if (w.status != rows[i].by_grant)
			fail_msg("\"%s\": %ld", rows[i].body, w.status);
		raw("nothing", "POST", "git-receive-pack", acme.member, "git-receive-pack-request",
		    rows[i].body, strlen(rows[i].body), &w2);
		assert_int_equal(w2.status, rows[i].by_member);
	}
	assert_tip("nothing", "refs/heads/x", "");
}

static void an_expired_or_revoked_grant_is_nobody(void **s) /* FRG-3 */
{
	(void)s;
	char grant[200];
	static const char *const ends[] = {
		"UPDATE credentials SET expires_at = now() - interval '1 second' WHERE kind = 'grant'",
		"UPDATE credentials SET revoked_at = now() WHERE kind = 'grant'"
	};
	create("late");
	for (size_t i = 0; i < 2; i++) {
		grant_for("late", "x", grant);
		auto_web struct web before = { 0 }, after = { 0 };
		raw("late", "POST", "git-receive-pack", grant, "git-receive-pack-request", "0000", 4,
		    &before);
		assert_int_equal(before.status, 200);
		stack_sql(&stack, ends[i], NULL);
		raw("late", "POST", "git-receive-pack", grant, "git-receive-pack-request", "0000", 4, &after);
		assert_int_equal(after.status, 401);
	}
}

/* Run by hand, with what smarthttp sets and without. */
static void the_hook_accepts_nothing_without_stated_rights(void **s) /* FRG-3 */
{
	(void)s;
	static const char *const envs[][5] = { { NULL }, { "GATEHOUSE_PUSH_BY=member", NULL },
		{ "GATEHOUSE_PUSH_BY=root", "GATEHOUSE_DEFAULT_BRANCH=main", NULL },
		{ "GATEHOUSE_PUSH_BY=grant", "GATEHOUSE_DEFAULT_BRANCH=main", NULL },
		{ "GATEHOUSE_PUSH_BY=member", "GATEHOUSE_DEFAULT_BRANCH=main",
		    "GATEHOUSE_GRANT_REF=refs/heads/x", NULL },
		{ "GATEHOUSE_PUSH_BY=member", "GATEHOUSE_DEFAULT_BRANCH=main", NULL } };
	char program[200];
	(void)snprintf(program, sizeof program, "%s/bin/gatehouse", stack.dir);
	const char *const argv[] = { program, "hook", "hooks/pre-receive", NULL };
	const char *const wrong[] = { program, "hook", "hooks/update", NULL };
	for (size_t i = 0; i < 7; i++) {
		struct err e = { 0 };
		auto_proc struct proc_result r = { 0 };
		const struct proc_opts o = { .argv = i < 6 ? argv : wrong,
			.env = envs[i < 6 ? i : 5],
			.stdin_fd = -1,
			.stdout_fd = -1,
			.stderr_fd = -1,
			.timeout_ms = 60000 };
		assert_int_equal(proc_run(&o, &r, &e), 0);
		if ((r.exit_code == 0) != (i == 5))
			fail_msg("row %zu: exit %d %s", i, r.exit_code, buf_c(&r.errout));
	}
}

/* ---- members */

static void a_member_stays_among_branches_and_tags(void **s) /* FRG-3 */
{
	(void)s;
	struct gitclient g;
	seed(&g, "member");
	GIT_NO(&g, "w", "Only refs/heads/ and refs/tags/", "push", "origin", "HEAD:refs/heads/ok",
	    "HEAD:refs/replace/x");
	assert_tip("member", "refs/heads/ok", "");
	GIT_NO(&g, "w", "default branch main cannot be deleted", "push", "origin", ":main");
	GIT_NO(&g, "w", "refs/for/main", "push", "origin", "HEAD:refs/for/main");
	GIT_OK(&g, "w", "push", "-q", "origin", "HEAD:refs/heads/\xc3\xbcml\xc3\xa4ut", "HEAD:a/b/c");
	gitclient_end(&g);
}

/* Everybody builds on the same tip and pushes to the same branch at once. */
struct racer {
	struct gitclient g;
	int rc;
};

static void *race(void *arg)
{
	struct racer *r = arg;
	r->rc = gitclient_try(&r->g, "w", "push", "-q", "origin", "HEAD:agent/race", (char *)0);
	return NULL;
}

static void of_parallel_pushes_to_one_branch_one_wins(void **s) /* FRG-3 */
{
	(void)s;
	enum { N = 6 };
	static struct racer r[N];
	pthread_t t[N];
	char grant[200], url[200], id[65], won[65] = "", text[20];
	struct gitclient g;
	seed(&g, "race");
	GIT_OK(&g, "w", "push", "-q", "origin", "HEAD:agent/race");
	grant_for("race", "agent/race", grant);
	for (int i = 0; i < N; i++) {
		gitclient_start(&r[i].g, &stack, grant);
		GIT_OK(&r[i].g, "", "clone", "-q", gitclient_url(&g, acme.slug, "race", url), "w");
		(void)snprintf(text, sizeof text, "%d\n", i);
		gitclient_commit(&r[i].g, "w", "mine", text);
	}
	for (int i = 0; i < N; i++)
		assert_int_equal(pthread_create(&t[i], NULL, race, &r[i]), 0);
	int winners = 0;
	for (int i = 0; i < N; i++) {
		(void)pthread_join(t[i], NULL);
		winners += r[i].rc == 0;
		if (r[i].rc == 0)
			gitclient_id(&r[i].g, "w", "HEAD", won);
		gitclient_end(&r[i].g);
	}
	assert_int_equal(winners, 1);
	tip("race", "refs/heads/agent/race", id);
	assert_string_equal(id, won);
	gitclient_end(&g);
}

/* ---- the API and the wire are one */

static void what_the_api_commits_git_clones_and_what_is_deleted_is_gone(void **s) /* FRG-1, FRG-4 */
{
	(void)s;
	char url[200];
	struct gitclient g;
	create("api");
	{
		auto_web struct web w = { 0 };
		web_json(&stack, "POST", "/v1/git/repos/api/push", acme.member,
		    js_pack("{s:s, s:s, s:[{s:s, s:s}]}", "branch", "main", "message", "hello", "files",
			"path", "hello.txt", "content", "hello\n"),
		    &w);
		assert_int_equal(w.status, 200);
		assert_tip("api", "refs/heads/main", js_str(w.json, "commit"));
	}
	gitclient_start(&g, &stack, acme.member);
	GIT_OK(&g, "", "clone", "-q", gitclient_url(&g, acme.slug, "api", url), "w");
	GIT_OK(&g, "w", "show", "HEAD:hello.txt");
	assert_string_equal(g.said, "hello\n");
	auto_web struct web w = { 0 };
	web_json(&stack, "DELETE", "/v1/git/repos/api", acme.member, NULL, &w);
	assert_int_equal(w.status, 200);
	GIT_NO(&g, "w", "not found", "fetch");
	gitclient_end(&g);
}

static int up(void **s)
{
	(void)s;
	stack_up(&stack, 1, 0, 1, NULL);
	stack_org(&stack, &acme);
	stack_org(&stack, &other);
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
		cmocka_unit_test(an_empty_repository_clones_with_its_branch),
		cmocka_unit_test(push_fetch_and_clone_in_both_protocols),
		cmocka_unit_test(many_refs_are_asked_for_in_a_gzipped_body),
		cmocka_unit_test(a_gzipped_push_is_inflated),
		cmocka_unit_test(a_large_push_is_probed_and_chunked),
		cmocka_unit_test(only_the_path_says_what_is_done),
		cmocka_unit_test(nobody_is_challenged_and_strangers_find_nothing),
		cmocka_unit_test(a_grant_moves_its_branch_forward_and_reads),
		cmocka_unit_test(everything_else_is_refused_to_a_grant),
		cmocka_unit_test(a_grants_push_of_nothing_is_refused_and_its_probe_is_not),
		cmocka_unit_test(an_expired_or_revoked_grant_is_nobody),
		cmocka_unit_test(the_hook_accepts_nothing_without_stated_rights),
		cmocka_unit_test(a_member_stays_among_branches_and_tags),
		cmocka_unit_test(of_parallel_pushes_to_one_branch_one_wins),
		cmocka_unit_test(what_the_api_commits_git_clones_and_what_is_deleted_is_gone),
	};
	return cmocka_run_group_tests_name("forge", tests, up, down);
}
