/* cli_doctor_egress.c - is the egress boundary of each node there? Asked at the node's door: its own socket is root's. */
#include "base/js.h"
#include "base/str.h"
#include "cli_doctor.h"
#include "io/http.h"
#include "sandbox/node.h"
#include "sql/sandbox.h"

enum { TAKE_MS = 5000, ASK_MS = 5000 };

static void one(struct doctor *d, const char *node, const char *address)
{
	const char *name = mem_fmt(d->mem, "egress.%s", node);
	struct err e = { 0 };
	struct http_res res = { 0 };
	const struct http_req q = { .method = "GET",
		.url = "http://node/v1/node/egress/metrics",
		.unix_socket = str_starts(address, "unix:") ? address + 5 : address,
		.connect_ms = ASK_MS,
		.total_ms = ASK_MS };
	int rc = http_do(&q, &res, &e);
	if (rc == 0 && res.status != 200)
		rc = http_envelope(&res, &e);
	doctor_say(d, rc == 0 ? DOCTOR_OK : DOCTOR_FAIL, name,
	    rc == 0 ? "the boundary answers; sandboxes may be leased with a policy" : e.msg,
	    "start gatehouse-egress on that host; until then only deny-all can be leased there");
	http_res_free(&res);
}

void doctor_egress(struct doctor *d)
{
	struct err e = { 0 };
	auto_pg struct pg *db = pg_take(d->db, TAKE_MS, &e);
	auto_res struct pg_res *r = db == NULL ? NULL
					       : PG(db, &q_node_doors, &e, pg_num(d->mem, NODE_SILENT_S));
	for (int i = 0; r != NULL && i < pg_rows(r); i++)
		one(d, pg_str(r, i, 0), pg_str(r, i, 1));
}
