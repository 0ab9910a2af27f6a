#include "code/clone.h"

#include <dirent.h>
#include <string.h>

#include "base/str.h"
#include "io/file.h"

enum {
	LOCAL_MS = 30 * 1000,
	ASK_MS = 60 * 1000,
	TRANSFER_MS = 600 * 1000, /* low speed limits end a stalled one much earlier */
	REFS_BYTES = 4096,        /* enough of a list of refs to know that there are some */
};

int clone_init(const struct rgit_repo *repo, struct err *e)
{
	if (file_mkdirs(repo->dir, 0700, e) != 0)
		return -1;
	const char *const args[] = { "init", "-q", "--bare", "--template=", NULL };
	auto_proc struct proc_result r = { 0 };
	return rgit_must(
	    repo, &(struct rgit_call){ .args = args, .timeout_ms = LOCAL_MS }, "Making a clone", &r, e);
}

/* Does the remote have any branch at all? Past the cap there are many. */
static int is_empty(const struct rgit_repo *repo, const struct rgit_remote *r, bool *empty, struct err *e)
{
	const char *const args[] = { "ls-remote", "--quiet", "--", r->url, NULL };
	const struct rgit_call c = {
		.args = args, .remote = r, .timeout_ms = ASK_MS, .max_out_bytes = REFS_BYTES
	};
	auto_proc struct proc_result res = { 0 };
	struct err big = { 0 };
	*empty = false;
	if (rgit_run(repo, &c, &res, &big) != 0) {
		if (big.code == ERR_TOO_LARGE)
			return 0;
		*e = big;
		return -1;
	}
	if (res.exit_code != 0)
		return rgit_failed(repo, &c, &res, "Reading the repository's branches", e);
	*empty = res.out.n == 0;
	return 0;
}

static int missing_branch(
    const struct rgit_repo *repo, const struct rgit_remote *r, const char *branch, struct err *e)
{
	bool empty;
	if (is_empty(repo, r, &empty, e) != 0)
		return -1;
	if (empty)
		return 0;
	if (branch == NULL)
		return err_set(e, ERR_NOT_FOUND,
		    "The repository's HEAD names no branch; say which one to start from in base.");
	return err_field(e, ERR_NOT_FOUND, "base", "The repository has no branch %s to start from.", branch);
}

int clone_fetch(const struct rgit_repo *repo, const struct rgit_remote *r, const char *branch,
    char tip[RGIT_ID_MAX], struct err *e)
{
	auto_mem struct mem *m = mem_new();
	const char *spec = branch == NULL ? "HEAD:refs/gatehouse/base"
					  : mem_fmt(m, "refs/heads/%s:refs/gatehouse/base", branch);
	const char *const args[] = { "fetch", "--quiet", "--depth=1", "--no-tags", "--no-write-fetch-head",
		"--", r->url, spec, NULL };
	const struct rgit_call c = { .args = args, .remote = r, .timeout_ms = TRANSFER_MS };
	auto_proc struct proc_result res = { 0 };
	tip[0] = 0;
	if (rgit_run(repo, &c, &res, e) != 0)
		return -1;
	if (res.exit_code != 0 && strstr(buf_c(&res.errout), "couldn't find remote ref") != NULL)
		return missing_branch(repo, r, branch, e);
	if (res.exit_code != 0)
		return rgit_failed(repo, &c, &res, "Fetching the repository", e);
	const char *const read[] = { "rev-parse", "--verify", "refs/gatehouse/base^{commit}", NULL };
	auto_proc struct proc_result id = { 0 };
	if (rgit_must(repo, &(struct rgit_call){ .args = read, .timeout_ms = LOCAL_MS },
		"Reading the fetched commit", &id, e) != 0)
		return -1;
	if (!rgit_id_line(buf_c(&id.out), id.out.n, tip))
		return err_set(e, ERR_INTERNAL, "The fetched commit could not be read.");
	return 0;
}

char *clone_pack(const struct rgit_repo *repo, struct mem *m)
{
	char *dir = mem_fmt(m, "%s/objects/pack", repo->dir), *found = NULL;
	DIR *d = opendir(dir);
	if (d == NULL)
		return NULL;
	for (const struct dirent *f; found == NULL && (f = readdir(d)) != NULL;)
		if (str_starts(f->d_name, "pack-") && str_ends(f->d_name, ".pack"))
			found = mem_fmt(
			    m, "%s/%.*s", dir, (int)(strlen(f->d_name) - strlen(".pack")), f->d_name);
	(void)closedir(d);
	return found;
}

int clone_remote_tip(const struct rgit_repo *repo, const struct rgit_remote *r, const char *branch,
    char tip[RGIT_ID_MAX], struct err *e)
{
	auto_mem struct mem *m = mem_new();
	const char *ref = mem_fmt(m, "refs/heads/%s", branch);
	const char *const args[] = { "ls-remote", "--quiet", "--", r->url, ref, NULL };
	const struct rgit_call c = { .args = args, .remote = r, .timeout_ms = ASK_MS };
	auto_proc struct proc_result res = { 0 };
	tip[0] = 0;
	if (rgit_must(repo, &c, "Reading the branch back", &res, e) != 0)
		return -1;
	struct str all = { res.out.p, res.out.n }, line, id;
	while (str_cut(&all, '\n', &line))
		/* The pattern also matches refs that merely end in it. */
		if (str_cut(&line, '\t', &id) && str_eq(line, ref) && rgit_id_ok(id.p, id.n)) {
			memcpy(tip, id.p, id.n);
			tip[id.n] = 0;
		}
	return 0;
}

int clone_push(const struct rgit_repo *repo, const struct rgit_remote *r, const char *tip, const char *branch,
    struct err *e)
{
	auto_mem struct mem *m = mem_new();
	const char *const args[] = { "push", "--quiet", "--no-verify", "--no-follow-tags", "--", r->url,
		mem_fmt(m, "%s:refs/heads/%s", tip, branch), NULL };
	const struct rgit_call c = { .args = args, .remote = r, .timeout_ms = TRANSFER_MS };
	auto_proc struct proc_result res = { 0 };
	return rgit_must(repo, &c, "Pushing the branch", &res, e);
}
