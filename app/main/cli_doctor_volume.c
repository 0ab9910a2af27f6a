/* cli_doctor_volume.c - a volume survives its lease and nothing else does, tried out on each node (SBX-64). */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "cli_doctor.h"
#include "sandbox/inspect.h"
#include "sandbox/lease_volume.h"

enum { TAKE_MS = 5000, LEASE_S = 120, RUN_S = 60, SAID_MAX = 64 * 1024, TOKEN = 8, NAME_MAX = 160 };

struct trial {
	struct doctor *d;
	struct ctx c;
	const char *node, *project;
};

static int run(struct trial *t, const char *id, const char *script, struct buf *said, struct err *e)
{
	struct box_addr at;
	struct box_exit x = { 0 };
	auto_pg struct pg *db = pg_take(t->d->db, TAKE_MS, e);
	if (db == NULL || box_find(db, "admin", id, &at, e) != 0)
		return -1;
	pg_put(steal(db));
	auto_json json_t *argv = js_pack("[s,s,s]", "bash", "-c", script);
	const struct box_cmd cmd = { .argv = argv, .timeout_s = RUN_S };
	int rc = box_run(&at, &cmd, &x, e);
	if (rc == 0)
		rc = buf_add(said, buf_c(&x.out), x.out.n);
	box_exit_free(&x);
	return rc;
}

/* One lease of the project, from its begin to its end. */
static int lease(struct trial *t, const char *script, struct buf *said, struct err *e)
{
	bool created;
	struct err later = { 0 };
	auto_json json_t *got = lease_take(&t->c,
	    &(struct lease_want){
		.org = "admin", .user = "doctor", .node = t->node, .project = t->project, .ttl_s = LEASE_S },
	    &created, e);
	if (got == NULL)
		return -1;
	if (!created)
		return err_set(e, ERR_CONFLICT, "Another doctor is at it: try again when it is done.");
	const char *id = js_str_or(got, "id", "");
	int rc = run(t, id, script, said, e);
	if (lease_end(&t->c, "admin", id, &later) != 0 && rc == 0) {
		*e = later;
		rc = -1;
	}
	return rc;
}

static int try(struct trial *t, struct buf *seen, struct err *e)
{
	unsigned char rnd[TOKEN];
	char token[2 * TOKEN + 1];
	auto_buf struct buf leave = BUF(4096), find = BUF(4096), left = BUF(SAID_MAX), found = BUF(SAID_MAX);
	random_bytes(rnd, sizeof rnd);
	hex_encode(rnd, sizeof rnd, token);
	inspect_leave_script(token, &leave);
	inspect_find_script(&find);
	return lease(t, buf_c(&leave), &left, e) != 0 || lease(t, buf_c(&find), &found, e) != 0
	    ? -1
	    : inspect_outlived(token, buf_c(&left), buf_c(&found), seen, e);
}

void doctor_volume(struct doctor *d, const char *node, const char *why_not)
{
	char slug[LEASE_PROJECT_MAX];
	struct err e = { 0 }, later = { 0 };
	auto_buf struct buf seen = BUF(1024);
	const char *name = mem_fmt(d->mem, "sandbox.%.60s.volume", node);
	const char *project = mem_fmt(d->mem, "doctor %.50s", node);
	struct trial t = { .d = d,
		.c = { .mem = d->mem, .db = d->db, .conf = d->conf, .deadline_ms = clock_ms() + 300000 },
		.node = node,
		.project = project };
	if (why_not[0] != '\0') {
		doctor_say(d, DOCTOR_SKIP, name, why_not, NULL);
		return;
	}
	int rc = try(&t, &seen, &e);
	if (lease_project(project, slug, &later) == 0 && volume_purge(&t.c, "admin", slug, &later) < 0 &&
	    rc == 0)
		rc = err_set(&e, later.code, "%s", later.msg);
	doctor_say(d, rc == 0 ? DOCTOR_OK : DOCTOR_FAIL, name, rc == 0 ? buf_c(&seen) : e.msg,
	    "nothing that matters may be kept in a volume until it is mended: see the log of "
	    "gatehouse-sandboxd on "
	    "that node");
}
