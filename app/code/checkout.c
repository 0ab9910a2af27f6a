#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "auth/cred.h"
#include "base/js.h"
#include "base/str.h"
#include "code/ask.h"
#include "code/clone.h"
#include "code/run.h"
#include "io/file.h"
#include "io/reach.h"

enum {
	GRANT_S = 900, /* longer than any one talk with the remote (clone.c) */
	LIST_MS = 60 * 1000,
	LIST_BYTES = 64 << 20, /* half a million files */
};

/* ---- the remote and its credential, for one act */

struct grant {
	const char *ref;
	struct cred cred;
};

static int mint(struct run *r, struct pg *db, void *arg, struct err *e)
{
	struct grant *g = arg;
	const struct cred_new want = {
		.kind = CRED_GRANT,
		.org = r->org,
		.user = r->created_by,
		.name = "coding run",
		.repo = r->repo,
		.ref = g->ref,
		.session = r->session, /* revoked with it */
		.ttl_s = GRANT_S,
	};
	/* Under the fence: who takes the job over revokes all grants first, and none is minted by the one before after that. */
	if (pg_begin(db, e) == 0 && run_hold(r, db, e) == 0 && cred_create(db, &want, &g->cred, e) == 0 &&
	    pg_commit(db, e) == 0)
		return 0;
	secret_free(g->cred.text);
	g->cred.text = NULL;
	return -1;
}

static const char *or_null(const char *s)
{
	return s[0] == 0 ? NULL : s;
}

static const char *url_of(const struct run *r, const char *origin)
{
	return r->clone_url != NULL ? r->clone_url
				    : mem_fmt(r->mem, "%s/v1/git/%s/%s.git", origin, r->org, r->repo);
}

const char *run_plain_url(const struct run *r)
{
	return url_of(r, conf_str(r->svc->conf, "PUBLIC_URL"));
}

/* What a caller named may not lead the runner into the deployment's own network. */
static int judge_host(struct run *r, const char **pin, struct err *e)
{
	struct ask_host h;
	if (!ask_host_of(r->clone_url, &h))
		return err_set(e, ERR_INTERNAL, "The repository's URL cannot be read.");
	if (ask_host_listed(conf_str(r->svc->conf, "ALLOW_PRIVATE_CLONE_HOSTS"), &h))
		return 0;
	return reach_pin(r->mem, h.name, h.port, conf_bool(r->svc->conf, "EGRESS_NAT64"), pin, e);
}

int run_remote(struct run *r, struct rgit_remote *to, struct secret **token, struct err *e)
{
	const struct conf *conf = r->svc->conf;
	const char *forge = or_null(conf_str(conf, "FORGE_URL"));
	*to = (struct rgit_remote){ .protocols = "https:http" };
	*token = NULL;
	if (r->clone_url != NULL) {
		to->url = r->clone_url;
		if (judge_host(r, &to->pin, e) != 0)
			return -1;
		if (r->token != NULL) {
			to->user = r->credential_user;
			*token = secret_new(secret_use(r->token), secret_len(r->token));
		}
	} else {
		struct grant g = { .ref = mem_fmt(r->mem, "refs/heads/%s", r->branch) };
		if (run_try(r, mint, &g, e) != 0)
			return -1;
		to->url = url_of(r, forge != NULL ? forge : conf_str(conf, "PUBLIC_URL"));
		to->ca_file = or_null(conf_str(conf, "CA_FILE"));
		to->user = "grant";
		*token = g.cred.text;
	}
	to->token = *token;
	return 0;
}

/* ---- fetch */

int run_fetch(struct run *r, struct err *e)
{
	struct rgit_remote remote;
	auto_secret struct secret *token = NULL;
	if (run_go(r, e) != 0 || clone_init(&r->git, e) != 0 || run_remote(r, &remote, &token, e) != 0)
		return -1;
	int64_t until = run_patience(r);
	struct err one;
	do {
		one = (struct err){ 0 };
		(void)clone_fetch(&r->git, &remote, r->base_branch, r->base, &one);
	} while (one.code == ERR_UNAVAILABLE && run_again(r, &one, until));
	if (one.code != ERR_NONE) {
		*e = one;
		return -1;
	}
	crash_point("run.fetched");
	const char *from = r->base_branch == NULL ? "HEAD" : r->base_branch;
	if (r->base[0] == 0)
		return run_step(r, "fetch", "ok", e, "The repository is empty; the branch begins here");
	return run_step(r, "fetch", "ok", e, "Fetched %s at %.12s", from, r->base);
}

/* ---- hand-over: the pack travels over the box channel; nothing in the sandbox talks to the remote */

static ssize_t read_fd(void *arg, void *p, size_t n)
{
	return read(*(const int *)arg, p, n);
}

static int put_file(struct run *r, const char *from, const char *to, struct err *e)
{
	auto_fd int fd = open(from, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return err_set(e, ERR_INTERNAL, "The fetched commit could not be read.");
	int64_t until = run_patience(r);
	for (;;) {
		struct err one = { 0 };
		if (lseek(fd, 0, SEEK_SET) == 0 && box_put(&r->box, to, 0444, read_fd, &fd, &one) == 0)
			return 0;
		if (!run_again(r, &one, until)) {
			*e = one;
			return -1;
		}
	}
}

static int put_objects(struct run *r, struct err *e)
{
	char *pack = clone_pack(&r->git, r->mem);
	if (pack == NULL)
		return err_set(e, ERR_INTERNAL, "The fetched commit could not be found.");
	const char *name = strrchr(pack, '/') + 1;
	char *to = mem_fmt(r->mem, "%s/.git/objects/pack/%s", r->checkout, name);
	/* The index last: git looks for a pack by its index. */
	if (put_file(r, mem_fmt(r->mem, "%s.pack", pack), mem_fmt(r->mem, "%s.pack", to), e) != 0 ||
	    put_file(r, mem_fmt(r->mem, "%s.idx", pack), mem_fmt(r->mem, "%s.idx", to), e) != 0)
		return -1;
	const char *shallow = mem_fmt(r->mem, "%s/shallow", r->git.dir);
	/* Absent when the fetched commit has no parent at all. */
	return access(shallow, F_OK) == 0
	    ? put_file(r, shallow, mem_fmt(r->mem, "%s/.git/shallow", r->checkout), e)
	    : 0;
}

/* Git takes nothing from a directory that its index calls a repository, and says nothing about it. */
static int say_repositories(struct run *r, struct err *e)
{
	const char *const args[] = { "ls-tree", "-r", "-z", "--full-tree", r->base, NULL };
	const struct rgit_call c = {
		.args = args, .hostile = true, .timeout_ms = LIST_MS, .max_out_bytes = LIST_BYTES
	};
	auto_proc struct proc_result p = { 0 };
	struct err one = { 0 };
	if (rgit_must(&r->git, &c, "Looking for repositories inside", &p, &one) != 0)
		return run_go(r, e) != 0 ? -1 : run_step(r, "checkout", NULL, e, "%s", one.msg);
	struct str all = { p.out.p, p.out.n }, line, mode;
	while (str_cut(&all, 0, &line)) {
		if (!str_cut(&line, ' ', &mode) || !str_eq(mode, "160000") || !str_cut(&line, '\t', &mode))
			continue;
		return run_step(r, "checkout", NULL, e,
		    "%.*s is a repository of its own and empty here: what is written into it, or into "
		    "another "
		    "like it, is not taken",
		    (int)utf8_valid(line.p, line.n), line.p);
	}
	return 0;
}

int run_checkout(struct run *r, struct err *e)
{
	char found[RGIT_ID_MAX];
	if (run_go(r, e) != 0)
		return -1;
	json_t *init = js_pack("[s,s,s,s,s,s]", "git", "init", "-q", "--template=", "-b", r->branch);
	js_push(init, json_string("--"));
	js_push(init, json_string(r->checkout));
	json_t *remote = js_pack("[s,s,s,s,s]", "git", "remote", "add", "origin", run_plain_url(r));
	if (run_inside_must(r, r->box.workdir, init, "Making the checkout", e) != 0 ||
	    run_inside_must(r, r->checkout, remote, "Making the checkout", e) != 0)
		return -1;
	if (r->base[0] != 0) {
		json_t *reset = js_pack("[s,s,s,s,s]", "git", "reset", "-q", "--hard", r->base);
		if (put_objects(r, e) != 0 ||
		    run_inside_must(r, r->checkout, reset, "Checking the branch out", e) != 0 ||
		    say_repositories(r, e) != 0)
			return -1;
	}
	if (run_read_tip(r, found, e) != 0)
		return -1;
	if (strcmp(found, r->base) != 0)
		return err_set(e, ERR_INTERNAL, "The checkout is not at the commit that was handed over.");
	crash_point("run.checked_out");
	return run_step(r, "checkout", "ok", e, "Checked out on %s", r->branch);
}
