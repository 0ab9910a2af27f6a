/* cli_doctor.h - shared between the files of `gatehouse doctor` only (RUN-5). */
#pragma once

#include "base/js.h"
#include "io/conf.h"
#include "io/pg.h"

struct doctor {
	const struct conf *conf;
	struct pg_pool *db; /* NULL until the configuration was read */
	struct mem *mem;
	bool json;       /* one document at the end instead of lines */
	bool db_answers; /* else what needs it is skipped */
	json_t *lines;   /* with json */
	int failed;
};
enum verdict { DOCTOR_OK, DOCTOR_FAIL, DOCTOR_SKIP };
/* One line: `what` was seen, or is wrong; `remedy` is what to do about a failure. */
void doctor_say(struct doctor *d, enum verdict v, const char *name, const char *what, const char *remedy);

/* cli_doctor_inside.c: a line for each node, and for each of its runtimes the lines of sandbox/inspect.h, from a sandbox
 * that is leased for it. */
void doctor_sandboxes(struct doctor *d);
/* cli_doctor_volume.c: a line for a node that offers sandboxes; why_not: it holds no volumes. */
void doctor_volume(struct doctor *d, const char *node, const char *why_not);
/* cli_doctor_egress.c: a line for the boundary of each node that offers sandboxes. */
void doctor_egress(struct doctor *d);
/* cli_doctor_money.c: lines for credit, reports, balances, open calls, books, and keys of providers. */
void doctor_money(struct doctor *d);
