/* volumes.c - the disks of projects, which outlive their sandboxes: list, delete (SBX-45, SBX-61). */
#include "handlers/sandbox.h"

#include "base/js.h"
#include "handlers/handlers.h"
#include "sandbox/lease_volume.h"

static const struct param volume_out[] = {
	OUT(T_STR, "project", "The slug of its project.", "\"deep-research\"", .max = 200),
	OUT(T_INT, "sizeBytes", "What its files and their administration may take.", "21474836480",
	    .max = INT64_MAX),
	OUT(T_INT, "usedBytes",
	    "What it takes of its node's disk: as of the end of its lease, while it has one as of a minute "
	    "ago at most.",
	    "73400320", .max = INT64_MAX),
	OUT_NULL(T_STR, "lastLeased", "The last day (UTC) on which a sandbox had it.", "\"2026-01-31\"",
	    .max = 10),
	OUT(T_STR, "node", "The host it is on; the project's leases are placed there.", "\"node1\"",
	    .max = 200),
	OUT_NULL(T_STR, "sandbox", "The live sandbox that has it.", "null", .max = 64),
	{ 0 },
};
static const struct param list_out[] = { LIST_OUT(volume_out, "Volumes of the org, by project."), { 0 } };
static const struct param purge_in[] = {
	IN_REQUIRED(
	    T_STR, "project", "The project; its slug counts.", "\"deep-research\"", .min = 1, .max = 200),
	{ 0 },
};

static json_t *list(struct ctx *c, json_t *in, struct err *e)
{
	const char *cursor = list_cursor(c, in, e);
	auto_pg struct pg *db = cursor == NULL ? NULL : handler_db(c, e);
	if (db == NULL)
		return NULL;
	int limit = list_limit(in);
	json_t *rows = volume_rows(db, c->who->org, cursor, limit + 1, e);
	return rows == NULL ? NULL : list_reply(rows, limit, "project");
}

static json_t *purge(struct ctx *c, json_t *in, struct err *e)
{
	char slug[LEASE_PROJECT_MAX];
	if (lease_project(js_str_or(in, "project", ""), slug, e) != 0)
		return NULL;
	int gone = volume_purge(c, c->who->org, slug, e);
	if (gone == 0)
		(void)err_set(e, ERR_NOT_FOUND, "There is no volume of the project \"%.100s\".", slug);
	return gone == 1 ? json_object() : NULL;
}

const struct op volumes_ops[] = {
	{
	    .id = "list_volumes",
	    .routes = { { "GET", "/v1/volumes" } },
	    .summary = "List volumes",
	    .doc = "The disks of the org's projects, which outlive their sandboxes.",
	    .scope = "sandboxes",
	    .in = op_list_in,
	    .out = list_out,
	    .status = 200,
	    .flags = OP_TOOL,
	    .run = list,
	},
	{
	    .id = "purge_volume",
	    .routes = { { "DELETE", "/v1/volumes/{project}" } },
	    .summary = "Delete a volume",
	    .doc =
		"With everything in it, for good. A 409 while a sandbox has it, a 404 where there is none.",
	    .scope = "sandboxes",
	    .in = purge_in,
	    .out = op_none,
	    .status = 200,
	    .flags = OP_TOOL | OP_LONG,
	    .run = purge,
	},
	{ 0 },
};
