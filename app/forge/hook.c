#include "forge/hook.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/str.h"
#include "forge/refpolicy.h"
#include "io/proc.h"

enum { COMMANDS_MAX = 20000, INPUT_BYTES = 16 << 20, ANCESTRY_MS = 60 * 1000, ENV_MAX = 128 };

extern char **environ;

static int read_all(struct buf *in, struct err *e)
{
	for (;;) {
		char *p = buf_room(in, 65536);
		if (p == NULL)
			return err_set(
			    e, ERR_TOO_LARGE, "This push names too many refs: push them in several steps.");
		ssize_t n = read(STDIN_FILENO, p, 65536);
		if (n < 0)
			return err_set(e, ERR_INTERNAL, "The push could not be read.");
		if (n == 0)
			return 0;
		buf_grew(in, (size_t)n);
	}
}

/* "old SP new SP ref LF"; a ref name holds neither spaces nor line ends. Cuts the text in place. */
static int parse(char *text, struct ref_change *c, size_t *n, struct err *e)
{
	*n = 0;
	for (char *save = NULL, *line = strtok_r(text, "\n", &save); line != NULL;
	     line = strtok_r(NULL, "\n", &save)) {
		char *new_id = strchr(line, ' '), *ref = new_id != NULL ? strchr(new_id + 1, ' ') : NULL;
		if (ref == NULL || *n == COMMANDS_MAX)
			return err_set(
			    e, ERR_TOO_LARGE, "This push names too many refs: push them in several steps.");
		*new_id++ = 0;
		*ref++ = 0;
		c[(*n)++] = (struct ref_change){ .old_id = line, .new_id = new_id, .ref = ref };
	}
	return 0;
}

/* Is old_id part of new_id's history? Asked with the hook's own environment, so that git looks into the quarantine. */
static int ask_forced(struct ref_change *c, struct err *e)
{
	if (str_only(c->old_id, "0") || str_only(c->new_id, "0"))
		return 0;
	const char *env[ENV_MAX] = { "PATH=/usr/local/bin:/usr/bin:/bin", "LANG=C.UTF-8" };
	size_t n = 2;
	for (char **v = environ; *v != NULL && n < ENV_MAX; v++)
		if (str_starts(*v, "GIT_"))
			env[n++] = *v;
	char cwd[4096];
	if (n == ENV_MAX || getcwd(cwd, sizeof cwd) == NULL)
		return err_set(e, ERR_INTERNAL, "The push could not be judged.");
	const char *const argv[] = { "git", "merge-base", "--is-ancestor", c->old_id, c->new_id, NULL };
	const struct proc_opts o = { .argv = argv,
		.env = env,
		.cwd = cwd,
		.stdin_fd = -1,
		.stdout_fd = -1,
		.stderr_fd = -1,
		.timeout_ms = ANCESTRY_MS,
		.max_out_bytes = 4096 };
	auto_proc struct proc_result r = { 0 };
	if (proc_run(&o, &r, e) != 0)
		return -1;
	if (r.exit_code != 0 && r.exit_code != 1)
		return err_set(e, ERR_INTERNAL, "The push could not be judged: its history cannot be read.");
	c->forced = r.exit_code == 1;
	return 0;
}

static int rights_of_env(struct ref_rights *rights, struct err *e)
{
	const char *by = getenv(HOOK_ENV_BY), *ref = getenv(HOOK_ENV_REF), *def = getenv(HOOK_ENV_DEFAULT);
	bool grant = by != NULL && strcmp(by, "grant") == 0, member = by != NULL && strcmp(by, "member") == 0;
	if (def == NULL || (!grant && !member) || grant != (ref != NULL))
		return err_set(e, ERR_FORBIDDEN, "This repository accepts pushes through gatehouse only.");
	*rights = (struct ref_rights){ .grant_ref = ref, .default_branch = def };
	return 0;
}

static int judge_push(struct err *e)
{
	struct ref_rights rights = { 0 }; /* none */
	if (rights_of_env(&rights, e) != 0)
		return -1;
	auto_buf struct buf in = BUF(INPUT_BYTES);
	if (read_all(&in, e) != 0 || buf_chr(&in, 0) != 0)
		return -1;
	auto_free struct ref_change *changes = xcalloc(COMMANDS_MAX, sizeof *changes);
	size_t n;
	if (parse(in.p, changes, &n, e) != 0)
		return -1;
	/* Only a grant is bound to move forward, and it has one ref: the rest is judged without reading history. */
	if (rights.grant_ref != NULL && n == 1 && ask_forced(&changes[0], e) != 0)
		return -1;
	return refpolicy_judge(&rights, changes, n, e);
}

int hook_main(int argc, char **argv)
{
	const char *name = argc > 0 ? strrchr(argv[0], '/') : NULL;
	name = name != NULL ? name + 1 : argc > 0 ? argv[0] : "";
	struct err e = { 0 };
	if (strcmp(name, "pre-receive") != 0)
		err_set(&e, ERR_BAD_REQUEST, "There is only one hook: pre-receive.");
	else if (judge_push(&e) == 0)
		return 0;
	else if (e.code == ERR_NONE)
		err_set(&e, ERR_INTERNAL, "The push could not be judged.");
	(void)fprintf(stderr, "gatehouse: %s\n", e.msg);
	return 1;
}
