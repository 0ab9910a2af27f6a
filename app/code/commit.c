#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/js.h"
#include "base/limits.h"
#include "base/str.h"
#include "code/run.h"
#include "code/verify.h"
#include "io/file.h"

enum { GIT_S = 300, SUBJECT_BYTES = 100, MESSAGE_BYTES = 1024 };

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

/* COD-6: what the commands say is not read; whether something changed is read from the tip. */
static int run_quietly(struct run *r, json_t *argv, const char *in, struct err *e)
{
	struct box_exit x = { 0 };
	int rc = run_inside(r, r->checkout, argv, in, GIT_S, &x, e);
	box_exit_free(&x);
	return rc;
}

int run_commit(struct run *r, struct err *e)
{
	auto_buf struct buf message = BUF(MESSAGE_BYTES);
	run_message(r, &message);
	if (run_go(r, e) != 0 || run_quietly(r, js_pack("[s,s,s]", "git", "add", "-A"), NULL, e) != 0)
		return -1;
	json_t *commit = js_pack("[s,s,s,s,s,s,s,s]", "git", "-c", "commit.gpgSign=false", "commit", "-q",
	    "--cleanup=whitespace", "-F", "-");
	if (run_quietly(r, commit, buf_c(&message), e) != 0 || run_read_tip(r, r->tip, e) != 0)
		return -1;
	crash_point("run.committed");
	if (r->tip[0] == 0 && r->base[0] != 0)
		return err_set(e, ERR_BAD_REQUEST,
		    "The checkout's repository can no longer be read after the tool; nothing was pushed.");
	if (strcmp(r->tip, r->base) == 0)
		return run_step(r, "commit", "ok", e, "Nothing changed");
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
		return err_set(e, ERR_BAD_REQUEST, "The change was refused: it is larger than %d MiB.",
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
		return err_set(e, ERR_BAD_REQUEST,
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
