/* volumes.c - the disks of projects, which outlive their sandboxes: list, delete (SBX-45, SBX-61). */
#include "handlers/sandbox.h"

#include "base/js.h"
#include "sandbox/lease_volume.h"

static const struct param list_in[] = { LIST_PARAMS, { 0 } };
static const struct param volume_out[] = {
	{ .name = "project",
	    .type = T_STR,
	    .required = true,
	    .max = 200,
	    .doc = "The slug of its project.",
	    .example = "\"deep-research\"" },
	{ .name = "sizeBytes",
	    .type = T_INT,
	    .required = true,
	    .max = INT64_MAX,
	    .doc = "What its files and their administration may take.",
	    .example = "21474836480" },
	{ .name = "usedBytes",
	    .type = T_INT,
	    .required = true,
	    .max = INT64_MAX,
	    .doc = "What it takes of its node's disk: as of the end of its lease, while it has one as of a "
		   "minute "
		   "ago at most.",
	    .example = "73400320" },
	{ .name = "lastLeased",
	    .type = T_STR,
	    .required = true,
	    .nullable = true,
	    .max = 10,
	    .doc = "The last day (UTC) on which a sandbox had it.",
	    .example = "\"2026-01-31\"" },
	{ .name = "node",
	    .type = T_STR,
	    .required = true,
	    .max = 200,
	    .doc = "The host it is on; the project's leases are placed there.",
	    .example = "\"node1\"" },
	{ .name = "sandbox",
	    .type = T_STR,
	    .required = true,
	    .nullable = true,
	    .max = 64,
	    .doc = "The live sandbox that has it.",
	    .example = "null" },
	{ 0 },
};
static const struct param list_out[] = { LIST_OUT(volume_out, "Volumes of the org, by project."), { 0 } };
static const struct param purge_in[] = {
	{ .name = "project",
	    .type = T_STR,
	    .required = true,
	    .min = 1,
	    .max = 200,
	    .doc = "The project; its slug counts.",
	    .example = "\"deep-research\"" },
	{ 0 },
};
static const struct param purge_out[] = { { 0 } };

static json_t *list(struct ctx *c, json_t *in, struct err *e)
{
	const char *cursor = list_cursor(c, in, e);
	auto_pg struct pg *db = cursor == NULL ? NULL : pg_take(c->db, SANDBOX_TAKE_MS, e);
	if (db == NULL)
		return NULL;
	int limit = list_limit(in);
	json_t *rows = volume_rows(db, c->who->org, cursor, limit + 1, e);
	return rows == NULL ? NULL : list_reply(rows, limit, "project");
}

static json_t *purge(struct ctx *c, json_t *in, struct err *e)
{
	char slug[LEASE_PROJECT_MAX];
	if (lease_project(js_str_or(in, "project", ""), slug, e) != 0 ||
	    volume_purge(c, c->who->org, slug, e) != 0)
		return NULL;
	return js_pack("{}");
}

const struct op volumes_ops[] = {
	{
	    .id = "list_volumes",
	    .routes = { { "GET", "/v1/volumes" } },
	    .summary = "List volumes",
	    .doc = "The disks of the org's projects, which outlive their sandboxes.",
	    .scope = "sandboxes",
	    .in = list_in,
	    .out = list_out,
	    .status = 200,
	    .flags = OP_TOOL,
	    .run = list,
	},
	{
	    .id = "purge_volume",
	    .routes = { { "DELETE", "/v1/volumes/{project}" } },
	    .summary = "Delete a volume",
	    .doc = "With everything in it, for good. A 409 while a sandbox has it. Deleting one that is not "
		   "there is fine.",
	    .scope = "sandboxes",
	    .in = purge_in,
	    .out = purge_out,
	    .status = 200,
	    .flags = OP_TOOL | OP_LONG,
	    .run = purge,
	},
	{ 0 },
};
