/*
 * sandboxes.c - leases: take, list, look at, stop what runs, end (SBX-1…5, 44, 45).
 * Invariants: no field names an org (SBX-2); the reply says what the lease got, never what was asked for.
 */
#include "handlers/sandbox.h"

#include <string.h>

#include "base/hash.h"
#include "base/js.h"
#include "base/limits.h"
#include "base/str.h"
#include "handlers/handlers.h"
#include "sandbox/lease_volume.h"

static const char *const classes[] = { "exec", "dev", "desktop", NULL };
static const char *const states[] = { "pending", "running", "error", "ended", NULL };
static const char *const reaches[] = { "none", "proxy", "open", NULL };

static const struct param variable = { .type = T_STR, .max = 32768, .doc = "Its value." };

static const struct param limits_in[] = {
	IN(T_INT, "memoryMb", "Memory in MiB; at most 8192 where the deployment sets nothing else.", "1024",
	    .min = 64, .max = 1 << 20),
	IN(T_NUM, "cpus", "Processors, also a part of one; at most 8 where the deployment sets nothing else.",
	    "1.5", .least = 0.1, .max = 1024),
	IN(T_INT, "pids", "Processes and threads; at most 4096 where the deployment sets nothing else.",
	    "256", .min = 16, .max = 1000000),
	IN(T_INT, "diskMb",
	    "All writable file systems together, in MiB; they count as memory, of which they are at most "
	    "three quarters.",
	    "1024", .min = 16, .max = 1 << 20),
	{ 0 },
};
#define MOUNT_PLACE(where, usual)                                                                            \
	IN(T_STR, "path", "Where it is in the sandbox, below /mnt; " usual " when not given.", NULL,         \
	    .min = 1, .max = 120),                                                                           \
	    IN(T_STR, "hostPath",                                                                            \
		"A directory of the node, below one that the deployment lists for the org" where, NULL,      \
		.min = 1, .max = 1024)
#define MOUNT_SCRATCH "; scratch space when not given."
#define MOUNT_NEEDED  "; needed."
static const struct param outputs_in[] = { MOUNT_PLACE(MOUNT_SCRATCH, "/mnt/user-data/outputs"), { 0 } };
static const struct param scratch_in[] = { MOUNT_PLACE(MOUNT_SCRATCH, "/mnt/user-data/scratch"), { 0 } };
static const struct param uploads_in[] = { MOUNT_PLACE(MOUNT_NEEDED, "/mnt/user-data/uploads"), { 0 } };
static const struct param results_in[] = { MOUNT_PLACE(MOUNT_NEEDED, "/mnt/user-data/tool_results"), { 0 } };
static const struct param transcripts_in[] = { MOUNT_PLACE(MOUNT_NEEDED, "/mnt/transcripts"), { 0 } };
static const struct param skill_in[] = {
	IN_REQUIRED(T_STR, "id", "Letters, digits, `_`, `.` and `-`.", NULL, .min = 1, .max = 64),
	MOUNT_PLACE(MOUNT_NEEDED, "/mnt/skills/ and the id"),
	{ 0 },
};
static const struct param one_skill = { .type = T_OBJ, .fields = skill_in, .doc = "One skill." };
static const struct param mounts_in[] = {
	IN(T_OBJ, "outputs", "Can be written. Needed in a layout.", NULL, .fields = outputs_in),
	IN(T_OBJ, "scratch", "Can be written.", NULL, .fields = scratch_in),
	IN(T_OBJ, "uploads", "Read-only.", NULL, .fields = uploads_in),
	IN(T_OBJ, "toolResults", "Read-only.", NULL, .fields = results_in),
	IN(T_OBJ, "transcripts", "Read-only.", NULL, .fields = transcripts_in),
	IN(T_ARR, "skills", "Read-only.", NULL, .max = 20, .fields = &one_skill),
	{ 0 },
};
static const struct param lease_in[] = {
	IN(T_ENUM, "class",
	    "What it is for: exec for a task, dev for a project that is worked on for longer. desktop needs "
	    "an image, which there is none of in this version.",
	    "\"exec\"", .values = classes),
	IN(T_STR, "project",
	    "Works in /work, on the project's volume, which outlives the lease. Its slug counts: \"Deep "
	    "Research\" is deep-research. A project has one live sandbox: where there is one of the same "
	    "class and runtime it is given back, otherwise this is a 409 that names it. Needed for dev.",
	    NULL, .min = 1, .max = 200),
	IN(T_STR, "session",
	    "Has this session's state directory at /state, with HOME in it, as the session's sandbox before "
	    "it left them. It is deleted when the session is over; without a session /state is scratch "
	    "space.",
	    NULL, .min = 1, .max = 64),
	IN(T_STR, "image", "Only `host` in this version.", "\"host\"", .min = 1, .max = 300),
	IN(T_STR, "runtime",
	    "The isolation boundary: runc, gvisor, kata-clh, kata-fc. It is given or refused, never "
	    "replaced. The deployment decides when not given.",
	    NULL, .min = 1, .max = 64),
	IN(T_INT, "ttlSec",
	    "Length of the lease in seconds; 900 for exec and 14400 for dev when not given. At most 86400 "
	    "where the deployment sets nothing else.",
	    "600", .min = 10, .max = 2592000),
	IN(T_STR, "id",
	    "Resume this sandbox if it still runs; otherwise another one is leased, as its id says. The "
	    "other fields are then those of the new one.",
	    NULL, .min = 1, .max = 64),
	IN(T_OBJ, "network",
	    "What it may reach; nothing when not given. It can be changed while the sandbox runs.", NULL,
	    .fields = network_in),
	IN(T_MAP, "env",
	    "Environment of every command. Nothing secret. Names beginning with SANDBOX_ are the sandbox's "
	    "own; those of the proxy (HTTP_PROXY and its like) are, too, and refused.",
	    "{\"LANG\":\"C.UTF-8\"}", .max = 200, .fields = &variable),
	IN(T_OBJ, "limits", "Beyond the deployment's maximum they are refused.", NULL, .fields = limits_in),
	IN(T_OBJ, "mounts",
	    "A layout of mounts; commands then start in `outputs`, and files are read in any of them and "
	    "written in `outputs` and `scratch` only.",
	    NULL, .fields = mounts_in),
	{ 0 },
};
static const struct param isolation_out[] = {
	OUT(T_BOOL, "kernel", "Has it a kernel of its own.", "false"),
	OUT(T_ENUM, "network",
	    "none: nothing. proxy: what its policy allows, through the egress boundary only.", "\"none\"",
	    .values = reaches),
	OUT(T_INT, "tier",
	    "2: nothing can be reached that its policy does not name. 1: more can (allow-all, or a "
	    "deployment that observes). 0: not isolated.",
	    "2", .max = 2),
	{ 0 },
};
#define SANDBOX_FIELDS                                                                                       \
	SANDBOX_ID, OUT(T_ENUM, "class", "What is installed.", "\"exec\"", .values = classes),               \
	    OUT_NULL(T_STR, "project", "The slug of its project.", "null", .max = 200),                      \
	    OUT(T_ENUM, "status", "Where its life stands.", "\"running\"", .values = states),                \
	    OUT(T_STR, "image", "`host`: the host's programs under a root of its own.", "\"host\"",          \
		.max = 300),                                                                                 \
	    OUT(T_STR, "runtime", "The boundary it got; empty is the host's default.", "\"\"", .max = 16),   \
	    OUT(T_OBJ, "isolation", "What is enforced.", NULL, .fields = isolation_out),                     \
	    OUT(T_STR, "workdir", "Where commands start.", "\"/mnt/data\"", .max = 200),                     \
	    OUT(T_OBJ, "network", "The policy in force.", NULL, .fields = network_out),                      \
	    OUT_NULL(T_STR, "volume", "Its disk that outlives the lease.", "null"),                          \
	    OUT(T_STR, "node", "The host it is on.", "\"node1\"", .max = 200),                               \
	    OUT_NULL(T_STR, "error", "Why it is in error: its last words.", "null", .max = 1000),            \
	    OUT(T_TIME, "createdAt", "When it was leased.", "\"2026-01-31T12:00:00.000Z\""),                 \
	    OUT(T_TIME, "lastUsedAt", "When it was last worked with.", "\"2026-01-31T12:00:00.000Z\""),      \
	    OUT(T_TIME, "expiresAt", "When the lease ends by itself.", "\"2026-01-31T12:10:00.000Z\"")

static const struct param sandbox_out[] = { SANDBOX_FIELDS, { 0 } };
static const struct param id_in[] = { SANDBOX_ID, { 0 } };
static const struct param list_out[] = {
	LIST_OUT(sandbox_out, "Sandboxes of the org, also ended ones, newest first."), { 0 }
};
static const struct param stop_out[] = {
	OUT(T_INT, "stopped", "How many commands that ended; 0 when nothing ran.", "1", .max = INT32_MAX),
	{ 0 },
};
static const struct param end_in[] = {
	SANDBOX_ID,
	IN(T_BOOL, "purge",
	    "Delete the project's volume, too, with everything in it. A 409 while another sandbox has it.",
	    NULL),
	{ 0 },
};

int sandbox_use(struct ctx *c, const json_t *in, struct box_addr *a, struct err *e)
{
	auto_pg struct pg *db = handler_db(c, e);
	return db == NULL ? -1 : lease_use(db, c->who->org, js_str_or(in, "id", ""), a, e);
}

json_t *sandbox_bytes(const char *p, size_t n, const char **enc)
{
	*enc = "utf8";
	/* A NUL is a character, but one that many JSON readers refuse. */
	if (n == 0 || (utf8_valid(p, n) == n && memchr(p, 0, n) == NULL))
		return json_stringn(n == 0 ? "" : p, n);
	*enc = "base64";
	auto_free char *b64 = xcalloc(1, B64_SIZE(n));
	return json_stringn(b64, b64_encode(p, n, b64));
}

static json_t *lease(struct ctx *c, json_t *in, struct err *e)
{
	const struct lease_want want = {
		.org = c->who->org,
		.user = c->who->user,
		.class = js_str(in, "class"),
		.project = js_str(in, "project"),
		.image = js_str(in, "image"),
		.runtime = js_str(in, "runtime"),
		.id = js_str(in, "id"),
		.state_of = js_str(in, "session"),
		.ttl_s = js_int(in, "ttlSec", 0),
		.network = js_get(in, "network"),
		.env = js_get(in, "env"),
		.limits = js_get(in, "limits"),
		.mounts = js_get(in, "mounts"),
	};
	bool created;
	json_t *got = lease_take(c, &want, &created, e);
	if (got != NULL)
		reply_status(c, created ? 201 : 200);
	return got;
}

/* HTTP-7: its answer is not there because it is still being built, or whoever built it has died. */
static json_t *lease_again(struct ctx *c, json_t *made, struct err *e)
{
	auto_pg struct pg *db = handler_db(c, e);
	auto_json json_t *got = db == NULL
	    ? NULL
	    : lease_get(c->conf, db, c->who->org, js_str_or(made, "id", ""), e);
	const char *status = js_str_or(got, "status", "");
	if (got == NULL)
		return NULL;
	if (strcmp(status, "pending") == 0) {
		(void)err_set(e, ERR_CONFLICT, "The sandbox %s is still being built; ask again shortly.",
		    js_str_or(got, "id", ""));
		e->reason = "idempotency_key_in_use";
		e->retry_s = 1;
		return NULL;
	}
	if (strcmp(status, "error") == 0)
		return err_set(e, ERR_NOT_FOUND, "The sandbox could not be built."), NULL;
	return steal(got);
}

static json_t *list(struct ctx *c, json_t *in, struct err *e)
{
	const char *cursor = list_cursor(c, in, e);
	auto_pg struct pg *db = cursor == NULL ? NULL : handler_db(c, e);
	if (db == NULL)
		return NULL;
	int limit = list_limit(in);
	json_t *rows = lease_list(c->conf, db, c->who->org, cursor, limit + 1, e);
	return rows == NULL ? NULL : list_reply(rows, limit, "id");
}

static json_t *get(struct ctx *c, json_t *in, struct err *e)
{
	auto_pg struct pg *db = handler_db(c, e);
	return db == NULL ? NULL : lease_get(c->conf, db, c->who->org, js_str_or(in, "id", ""), e);
}

static json_t *stop(struct ctx *c, json_t *in, struct err *e)
{
	struct box_addr a;
	int stopped;
	if (sandbox_use(c, in, &a, e) != 0 || box_stop(&a, &stopped, e) != 0)
		return NULL;
	return js_pack("{s:i}", "stopped", stopped);
}

static json_t *end(struct ctx *c, json_t *in, struct err *e)
{
	const char *org = c->who->org, *id = js_str_or(in, "id", "");
	auto_pg struct pg *db = handler_db(c, e);
	json_t *was = db == NULL ? NULL : mem_json(c->mem, lease_get(c->conf, db, org, id, e));
	const char *project = js_str(was, "project");
	if (was == NULL)
		return NULL;
	pg_put(steal(db));
	if (lease_end(c, org, id, e) != 0)
		return NULL;
	if (js_bool(in, "purge", false) && project != NULL && volume_purge(c, org, project, e) < 0)
		return NULL;
	return json_object();
}

const struct op sandboxes_ops[] = {
	{
	    .id = "lease_sandbox",
	    .routes = { { "POST", "/v1/sandboxes" }, { "POST", "/v1/sandboxes/lease" } },
	    .summary = "Lease a sandbox",
	    .doc =
		"An isolated computer for a limited time. It reaches what `network` allows, through the "
		"egress boundary, and nothing else. 201 with a new one, 200 with the one named by `id`. 503 "
		"with its last words when it could not be started, 507 when the disk for its volume is full.",
	    .scope = "sandboxes",
	    .in = lease_in,
	    .out = sandbox_out,
	    .status = 201,
	    .flags = OP_TOOL | OP_LONG | OP_ONCE | OP_KEEPS | OP_STORES,
	    .run = lease,
	    .again = lease_again,
	},
	{
	    .id = "list_sandboxes",
	    .routes = { { "GET", "/v1/sandboxes" } },
	    .summary = "List sandboxes",
	    .doc = "The org's sandboxes, newest first, also those that have ended.",
	    .scope = "sandboxes",
	    .in = op_list_in,
	    .out = list_out,
	    .status = 200,
	    .flags = OP_TOOL,
	    .run = list,
	},
	{
	    .id = "get_sandbox",
	    .routes = { { "GET", "/v1/sandboxes/{id}" } },
	    .summary = "Look at a sandbox",
	    .doc = "What it is, what isolation it got, and how long its lease lasts.",
	    .scope = "sandboxes",
	    .in = id_in,
	    .out = sandbox_out,
	    .status = 200,
	    .flags = OP_TOOL,
	    .run = get,
	},
	{
	    .id = "stop_run",
	    .routes = { { "POST", "/v1/sandboxes/stop" } },
	    .summary = "Stop what a sandbox is running",
	    .doc = "Ends every command with its whole process tree. The sandbox stays leased and readable.",
	    .scope = "sandboxes",
	    .in = id_in,
	    .out = stop_out,
	    .status = 200,
	    .flags = OP_TOOL | OP_LONG,
	    .run = stop,
	},
	{
	    .id = "end_sandbox",
	    .routes = { { "POST", "/v1/sandboxes/end" }, { "DELETE", "/v1/sandboxes/{id}" } },
	    .summary = "End a sandbox",
	    .doc = "Releases it; answers when it is really gone. The project's volume stays, unless `purge` "
		   "says otherwise. Ending one that has ended is fine.",
	    .scope = "sandboxes",
	    .in = end_in,
	    .out = op_none,
	    .status = 200,
	    .flags = OP_TOOL | OP_LONG,
	    .run = end,
	},
	{ 0 },
};
