#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/js.h"
#include "base/limits.h"
#include "base/str.h"
#include "code/run.h"
#include "code/verify.h"
#include "io/file.h"

enum { GIT_S = 300, SUBJECT_BYTES = 100, MESSAGE_BYTES = 1024, WORDS_BYTES = 400, NO_EXIT = 256 };

int run_read_tip(struct run *r, char tip[RGIT_ID_MAX], struct err *e)
{
	struct box_exit x = { 0 };
	json_t *argv = js_pack("[s,s,s,s,s]", "git", "rev-parse", "-q", "--verify", "HEAD^{commit}");
	tip[0] = 0;
	int rc = run_inside(r, r->checkout, argv, NULL, GIT_S, &x, e);
	/* Whatever else it says is the sandbox's affair: a tip is an id or there is none. */
	if (rc == 0 && x.exit_code == 0)
		(void)rgit_id_line(buf_c(&x.out), x.out.n, tip);
	box_exit_free(&x);
	return rc;
}

void run_message(const struct run *r, struct buf *out)
{
	static const char none[] = "agent changes";
	const char *p = r->prompt + strspn(r->prompt, " \t\r");
	size_t n = strcspn(p, "\n");
	while (n > 0 && strchr(" \t\r", p[n - 1]) != NULL)
		n--;
	if (n > SUBJECT_BYTES)
		n = utf8_valid(p, SUBJECT_BYTES);
	(void)buf_add(out, n == 0 ? none : p, n == 0 ? sizeof none - 1 : n);
	(void)buf_fmt(out, "\n\nRun: %s\n", r->session);
}

/* The end of what git said, on one line: it names the file or the hook before its last "fatal". */
static void last_words(const struct box_exit *x, struct buf *out)
{
	const struct buf *said = x->errout.n > 0 ? &x->errout : &x->out;
	size_t from = said->n > WORDS_BYTES ? said->n - WORDS_BYTES : 0;
	while (from > 0 && from < said->n && ((unsigned char)said->p[from] & 0xC0) == 0x80)
		from++;
	struct str rest = { said->n == 0 ? "" : said->p + from, said->n - from }, line;
	while (str_cut(&rest, '\n', &line)) {
		size_t n = utf8_valid(line.p, line.n);
		if (n == 0 || memmem(line.p, n, "hint:", 5) == line.p)
			continue;
		(void)buf_fmt(out, "%s%.*s", out->n == 0 ? "" : "; ", (int)n, line.p);
	}
}

/*
 * A command of ours, argv taken: how it exited, NO_EXIT when it was killed. Whatever is not 0 is written to *why, as the
 * caller knows what that means. -1 only when it is unknown how it ended, or the attempt may not go on.
 */
static int git(struct run *r, const char *what, json_t *argv, const char *in, struct err *why, struct err *e)
{
	struct box_exit x = { 0 };
	auto_buf struct buf words = BUF(2 * WORDS_BYTES);
	int rc = run_inside(r, r->checkout, argv, in, GIT_S, &x, e);
	int code = x.signal[0] != 0 || x.timed_out || x.exit_code < 0 ? NO_EXIT : x.exit_code;
	last_words(&x, &words);
	box_exit_free(&x);
	if (rc != 0)
		return -1;
	if (code != 0)
		(void)run_fail(why, "commit_failed", "The work could not be committed: %s %s (%d): %s", what,
		    code == NO_EXIT ? "was killed" : "failed", code, buf_c(&words));
	return code;
}

/* 1: committed. 0: there was nothing to commit, or it could not be done, which is then in *why. */
static int stage_and_commit(struct run *r, struct err *why, struct err *e)
{
	auto_buf struct buf message = BUF(MESSAGE_BYTES);
	struct err ignored = { 0 }; /* whatever still stands in the way, git add names */
	run_message(r, &message);
	/* The tool has ended, so a lock that is still there belongs to a git that was killed. */
	json_t *unlock = js_pack("[s,s,s,s]", "rm", "-f", "--", ".git/index.lock");
	if (git(r, "rm", unlock, NULL, &ignored, e) < 0)
		return -1;
	json_t *add = js_pack("[s,s,s,s,s]", "git", "-c", "advice.addEmbeddedRepo=false", "add", "-A");
	int rc = git(r, "git add", add, NULL, why, e);
	if (rc != 0)
		return rc < 0 ? -1 : 0;
	/* Exit 1: nothing to commit. It runs no hook, so nobody else can make it say so. */
	struct err looked = { 0 };
	json_t *look = js_pack("[s,s,s,s]", "git", "commit", "--porcelain", "--dry-run");
	rc = git(r, "git commit", look, NULL, &looked, e);
	if (rc > 1)
		*why = looked;
	if (rc != 0)
		return rc < 0 ? -1 : 0;
	json_t *commit = js_pack("[s,s,s,s,s,s,s,s]", "git", "-c", "commit.gpgSign=false", "commit", "-q",
	    "--cleanup=whitespace", "-F", "-");
	rc = git(r, "git commit", commit, buf_c(&message), why, e);
	return rc < 0 ? -1 : rc == 0;
}

/* COD-6: changed is what moved the tip; that nothing changed is measured, not concluded from a commit that failed. */
int run_commit(struct run *r, struct err *e)
{
	struct err why = { 0 };
	int done = run_go(r, e) != 0 ? -1 : stage_and_commit(r, &why, e);
	if (done < 0 || run_read_tip(r, r->tip, e) != 0)
		return -1;
	crash_point("run.committed");
	bool moved = strcmp(r->tip, r->base) != 0;
	if (r->tip[0] == 0 && r->base[0] != 0)
		return run_fail(e, "commit_failed",
		    "The checkout's repository can no longer be read after the tool; nothing was pushed.");
	if (done == 1 && !moved)
		return run_fail(e, "commit_failed",
		    "The work was committed, but the checkout is at the commit it began with again; nothing "
		    "was "
		    "pushed.");
	if (!moved && why.code != ERR_NONE) {
		*e = why;
		return -1;
	}
	if (!moved)
		return run_step(r, "commit", "ok", e, "Nothing changed");
	if (why.code != ERR_NONE &&
	    run_step(r, "commit", "failed", e, "Only what the tool committed itself is taken. %s", why.msg) !=
		0)
		return -1;
	return run_step(r, "commit", "ok", e, "Committed %.12s", r->tip);
}

/* ---- out of the sandbox */

struct sink {
	int fd;
	long long n;
};

static int take(void *arg, const char *p, size_t n)
{
	struct sink *s = arg;
	s->n += (long long)n;
	return s->n > VERIFY_PACK_BYTES ? -1 : fd_write_all(s->fd, p, n);
}

static int fetch_pack(struct run *r, const char *inside, int *fd, struct err *e)
{
	auto_fd int mine = open(r->dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	if (mine < 0)
		return err_set(e, ERR_INTERNAL, "The runner could not make a file for the change.");
	struct sink s;
	struct err got;
	int64_t until = run_patience(r);
	int rc;
	do {
		s = (struct sink){ .fd = mine };
		got = (struct err){ 0 };
		if (ftruncate(mine, 0) != 0 || lseek(mine, 0, SEEK_SET) != 0)
			return err_set(e, ERR_INTERNAL, "The runner could not keep the change.");
		rc = box_get(&r->box, inside, 0, (long long)VERIFY_PACK_BYTES + 1, take, &s, &got);
	} while (rc != 0 && s.n <= VERIFY_PACK_BYTES && run_again(r, &got, until));
	if (rc != 0 && s.n <= VERIFY_PACK_BYTES) {
		*e = got;
		return -1;
	}
	if (s.n > VERIFY_PACK_BYTES)
		return run_fail(e, "change_refused", "The change was refused: it is larger than %d MiB.",
		    VERIFY_PACK_BYTES >> 20);
	if (lseek(mine, 0, SEEK_SET) != 0)
		return err_set(e, ERR_INTERNAL, "The change could not be read.");
	*fd = steal_fd(&mine);
	return 0;
}

/* pack-objects names the file after a hash of its own; anything else is not a name we ask for. */
static int pack_name(struct run *r, const struct box_exit *x, const char **path, struct err *e)
{
	char hash[RGIT_ID_MAX];
	if (x->exit_code != 0 || !rgit_id_line(buf_c(&x->out), x->out.n, hash))
		return run_fail(e, "change_refused",
		    "The change could not be packed in the sandbox; its repository is damaged. Nothing was "
		    "pushed.");
	*path = mem_fmt(r->mem, "%s/change-%s.pack", r->box.workdir, hash);
	return 0;
}

int run_collect(struct run *r, int *fd, struct err *e)
{
	auto_buf struct buf want = BUF(4 * RGIT_ID_MAX);
	struct box_exit x = { 0 };
	const char *path = NULL;
	if (run_go(r, e) != 0)
		return -1;
	(void)buf_fmt(&want, "%s\n", r->tip);
	if (r->base[0] != 0)
		(void)buf_fmt(&want, "^%s\n", r->base);
	json_t *argv = js_pack("[s,s,s,s,s,s,o]", "git", "-c", "pack.packSizeLimit=0", "pack-objects",
	    "--revs", "-q", json_string(mem_fmt(r->mem, "%s/change", r->box.workdir)));
	int rc = run_inside(r, r->checkout, argv, buf_c(&want), GIT_S, &x, e);
	if (rc == 0)
		rc = pack_name(r, &x, &path, e);
	box_exit_free(&x);
	if (rc != 0 || fetch_pack(r, path, fd, e) != 0)
		return -1;
	crash_point("run.collected");
	return 0;
}
