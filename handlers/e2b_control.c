/*
 * e2b_control.c - the control plane of the E2B SDK: create, connect, list, look, time, network, kill. What cannot be given exactly
 * is refused by name.
 * Invariants: the org is the key's; a sandbox's token is in the answer of create and connect and nowhere else.
 */
#include <string.h>

#include "auth/cred.h"
#include "base/clock.h"
#include "base/js.h"
#include "base/limits.h"
#include "base/str.h"
#include "handlers/e2b.h"
#include "handlers/e2b_network.h"
#include "handlers/handlers.h"
#include "handlers/sandbox.h"
#include "sandbox/door.h"
#include "sandbox/network.h"

enum { DEFAULT_S = 300, LEAST_S = 10, LIST_MAX = 100, METADATA_BYTES = 16 * 1024, TOKEN_LEAST_S = 60 };

static const char *const templates[][2] = { { "base", "exec" }, { "exec", "exec" }, { "dev", "dev" },
	{ "desktop", "desktop" }, { NULL, NULL } };

static const struct param id_in[] = { SANDBOX_ID, { 0 } };

/* ---- what is answered */

static const char *template_of(const json_t *row)
{
	const char *class = js_str_or(row, "class", "");
	return strcmp(class, "exec") == 0 ? "base" : class;
}

static json_t *listed(const json_t *row)
{
	return js_pack("{s:s,s:s,s:s,s:s,s:s,s:s,s:I,s:I,s:I,s:O,s:s}", "templateID", template_of(row),
	    "sandboxID", js_str_or(row, "id", ""), "clientID", "gatehouse", "startedAt",
	    js_str_or(row, "createdAt", ""), "endAt", js_str_or(row, "expiresAt", ""), "state", "running",
	    "cpuCount", (json_int_t)(js_int(row, "cpuMilli", 0) + 999) / 1000, "memoryMB",
	    (json_int_t)js_int(row, "memoryMb", 0), "diskSizeMB", (json_int_t)js_int(row, "diskMb", 0),
	    "metadata", js_get(row, "metadata"), "envdVersion", E2B_ENVD_VERSION);
}

/* A token for work in the sandbox, good for as long as that lives, and as the key that it is asked for with. */
static json_t *token(struct ctx *c, struct pg *db, const json_t *row, struct err *e)
{
	struct cred cred;
	long long left_s = js_int(row, "leftMs", 0) / 1000;
	const struct cred_new want = {
		.kind = CRED_SANDBOX,
		.org = c->who->org,
		.user = c->who->user,
		.scopes = "sandboxes",
		.sandbox = js_str_or(row, "id", ""),
		.minted_by = c->who->kind == CRED_KEY ? c->who->cred_id : NULL,
		.ttl_s = left_s < TOKEN_LEAST_S ? TOKEN_LEAST_S : left_s,
	};
	if (cred_create(db, &want, &cred, e) != 0)
		return NULL;
	auto_secret struct secret *text = cred.text;
	return json_string(secret_use(text));
}

static json_t *handle(struct ctx *c, struct pg *db, const char *id, struct err *e)
{
	auto_json json_t *row = door_get(db, c->who->org, id, e);
	json_t *text = row == NULL ? NULL : token(c, db, row, e);
	if (text == NULL)
		return NULL;
	return js_pack("{s:s,s:s,s:s,s:s,s:o,s:n,s:n}", "templateID", template_of(row), "sandboxID", id,
	    "clientID", "gatehouse", "envdVersion", E2B_ENVD_VERSION, "envdAccessToken", text,
	    "trafficAccessToken", "domain");
}

/* ---- create */

/* What other deployments of this API have and this one does not. */
static int absent(const json_t *in, struct err *e)
{
	static const char *const never[] = { "mcp", "iam", "volumeMounts", "autoPauseMemory", NULL };
	for (const char *const *name = never; *name != NULL; name++)
		if (js_get(in, *name) != NULL)
			return err_field(
			    e, ERR_BAD_REQUEST, *name, "`%s` is not offered here; leave it out.", *name);
	if (js_bool(in, "autoPause", false) || js_bool(js_get(in, "autoResume"), "enabled", false))
		return err_field(e, ERR_BAD_REQUEST, "autoPause",
		    "Sandboxes are not paused here: at the end of their time they end. Leave `autoPause` and "
		    "`autoResume` out.");
	return 0;
}

/* The class of a template's name; what stands behind its colon is a project. */
static const char *class_of(const char *template, struct err *e)
{
	struct str rest = str_of(template), name = { "base", 4 };
	(void)str_cut(&rest, ':', &name);
	for (size_t i = 0; templates[i][0] != NULL; i++)
		if (str_eq(name, templates[i][0]))
			return templates[i][1];
	err_field(e, ERR_BAD_REQUEST, "templateID",
	    "There is no template \"%.60s\" here; ask for \"base\" or a class (exec, dev, desktop), with "
	    "\":project\" behind it for one that keeps a volume.",
	    template);
	return NULL;
}

static int check_metadata(struct ctx *c, json_t *metadata, struct err *e)
{
	const char *name;
	json_t *v;
	if (metadata == NULL)
		return 0;
	json_object_foreach(metadata, name, v)
		if (!json_is_string(v))
			return err_field(e, ERR_BAD_REQUEST, "metadata", "`metadata` holds strings only.");
	if (strlen(js_dump(c->mem, metadata)) > METADATA_BYTES)
		return err_field(
		    e, ERR_BAD_REQUEST, "metadata", "`metadata` holds at most %d bytes.", METADATA_BYTES);
	return 0;
}

/* The lease is there: what is left is to write on it and to hand it over. Without that nobody could use it. */
static json_t *hand_over(struct ctx *c, const char *id, const json_t *metadata, struct err *e)
{
	auto_pg struct pg *db = handler_db(c, e);
	if (db == NULL || (metadata != NULL && door_tag(db, c->who->org, id, metadata, e) != 0))
		return NULL;
	return handle(c, db, id, e);
}

static json_t *create(struct ctx *c, json_t *in, struct err *e)
{
	bool created;
	json_t *metadata = js_get(in, "metadata"), *network = NULL;
	const char *template = js_str_or(in, "templateID", "base"), *colon = strchr(template, ':'),
		   *class = class_of(template, e);
	long long most = conf_int(c->conf, "SANDBOX_MAX_TTL_S"), ttl_s = js_int(in, "timeout", DEFAULT_S);
	if (ttl_s < LEAST_S || ttl_s > most) {
		err_field(e, ERR_BAD_REQUEST, "timeout", "`timeout` must be between %d and %lld seconds.",
		    LEAST_S, most);
		return NULL;
	}
	if (class == NULL || absent(in, e) != 0 || check_metadata(c, metadata, e) != 0 ||
	    (network = e2b_network(in, js_get(in, "network"), e)) == NULL)
		return NULL;
	const struct lease_want want = {
		.org = c->who->org,
		.user = c->who->user,
		.class = class,
		.project = colon == NULL ? NULL : colon + 1,
		.ttl_s = ttl_s,
		.network = json_is_null(network) ? NULL : mem_json(c->mem, network),
		.env = js_get(in, "envVars"),
	};
	auto_json json_t *got = lease_take(c, &want, &created, e);
	if (got == NULL)
		return NULL;
	const char *id = js_str_or(got, "id", "");
	/* A project's sandbox that lives already is another's, too. */
	json_t *out = hand_over(c, id, created ? metadata : NULL, e);
	struct err ignored = { 0 }; /* it was asked for, so its node ends it all the same */
	if (out == NULL && created)
		(void)lease_end(c, c->who->org, id, &ignored);
	return out;
}

/* ---- list, look */

/* Their SDK encodes names and values before it makes a query of them, and that is a value of the query. */
static json_t *metadata_filter(const json_t *in, struct err *e)
{
	auto_json json_t *pairs = query_parse(js_str_or(in, "metadata", ""), e), *out = json_object();
	const char *name;
	json_t *v;
	json_object_foreach(pairs, name, v) {
		auto_buf struct buf pair = BUF(METADATA_BYTES * 2);
		(void)buf_fmt(&pair, "%s=%s", name, json_string_value(v));
		auto_json json_t *plain = query_parse(buf_c(&pair), e);
		if (plain == NULL)
			return NULL;
		(void)json_object_update(out, plain);
	}
	return pairs == NULL ? NULL : steal(out);
}

static bool wants_running(const char *states)
{
	struct str rest = str_of(states), one;
	while (str_cut(&rest, ',', &one))
		if (str_eq(one, "running"))
			return true;
	return states == NULL;
}

static json_t *list(struct ctx *c, json_t *in, struct err *e)
{
	const char *template = js_str(in, "template"), *after = js_str_or(in, "nextToken", "");
	auto_json json_t *metadata = metadata_filter(in, e);
	int limit = (int)js_int(in, "limit", LIST_MAX);
	if (metadata == NULL)
		return NULL;
	if (after[0] != '\0' && !id_is("sbx", after)) {
		err_field(e, ERR_BAD_REQUEST, "nextToken", "`nextToken` must be that of an earlier page.");
		return NULL;
	}
	const struct door_filter f = { .after = after,
		.limit = limit + 1,
		.oldest_first = strcmp(js_str_or(in, "order", "desc"), "asc") == 0,
		.metadata = metadata,
		.started_after = js_str(in, "startedAfter"),
		.class = template == NULL ? NULL : class_of(template, e) };
	if (template != NULL && f.class == NULL)
		return NULL;
	auto_pg struct pg *db = handler_db(c, e);
	auto_json json_t *rows = db == NULL ? NULL : door_list(db, c->who->org, &f, e), *out = json_array();
	if (rows == NULL)
		return NULL;
	for (int i = 0; i < limit && wants_running(js_str(in, "state")) && i < (int)json_array_size(rows);
	     i++)
		js_push(out, listed(json_array_get(rows, (size_t)i)));
	if ((int)json_array_size(rows) > limit && json_array_size(out) > 0)
		reply_header(c, "x-next-token",
		    mem_str(c->mem, js_str_or(json_array_get(rows, (size_t)limit - 1), "id", "")));
	return steal(out);
}

static json_t *get(struct ctx *c, json_t *in, struct err *e)
{
	auto_pg struct pg *db = handler_db(c, e);
	auto_json json_t *row = db == NULL ? NULL : door_get(db, c->who->org, js_str_or(in, "id", ""), e);
	if (row == NULL)
		return NULL;
	json_t *out = listed(row);
	auto_json json_t *policy = network_object(c->conf, js_str_or(row, "network", ""));
	e2b_network_tell(policy, out);
	js_set(out, "lifecycle", js_pack("{s:b,s:s}", "autoResume", false, "onTimeout", "kill"));
	js_set(out, "volumeMounts", json_array());
	return out;
}

/* ---- connect, time, network, kill */

static json_t *done(struct ctx *c)
{
	(void)reply_begin(c, 204, NULL);
	return REPLIED;
}

static json_t *join(struct ctx *c, json_t *in, struct err *e)
{
	const char *id = js_str_or(in, "id", "");
	if (lease_renew(c, c->who->org, id, js_int(in, "timeout", DEFAULT_S), true, e) != 0)
		return NULL;
	auto_pg struct pg *db = handler_db(c, e);
	return db == NULL ? NULL : handle(c, db, id, e);
}

static json_t *kill_it(struct ctx *c, json_t *in, struct err *e)
{
	const char *id = js_str_or(in, "id", "");
	auto_pg struct pg *db = handler_db(c, e);
	auto_json json_t *row = db == NULL ? NULL : door_get(db, c->who->org, id, e);
	if (row == NULL)
		return NULL;
	pg_put(steal(db));
	return lease_end(c, c->who->org, id, e) == 0 ? done(c) : NULL;
}

static json_t *set_timeout(struct ctx *c, json_t *in, struct err *e)
{
	long long s = js_int(in, "timeout", 0);
	if (s == 0)
		return kill_it(c, in, e);
	return lease_renew(c, c->who->org, js_str_or(in, "id", ""), s, false, e) == 0 ? done(c) : NULL;
}

static json_t *refresh(struct ctx *c, json_t *in, struct err *e)
{
	long long s = js_int(in, "duration", DEFAULT_S);
	return lease_renew(c, c->who->org, js_str_or(in, "id", ""), s, true, e) == 0 ? done(c) : NULL;
}

static json_t *set_network(struct ctx *c, json_t *in, struct err *e)
{
	auto_json json_t *said = e2b_network(in, in, e);
	/* Nothing said takes back what was. */
	auto_json json_t *asked = said == NULL || !json_is_null(said) ? json_incref(said)
								      : js_pack("{s:s}", "mode", "deny-all");
	auto_json json_t *got = asked == NULL
	    ? NULL
	    : network_set(c, c->who->org, js_str_or(in, "id", ""), asked, e);
	return got == NULL ? NULL : done(c);
}

/* ---- what is not offered */

static json_t *refused(struct ctx *c, json_t *in, struct err *e)
{
	(void)in;
	const char *last = strrchr(c->path, '/');
	err_set(e, ERR_BAD_REQUEST, "`%.60s` is not offered here: sandboxes run until they end.",
	    last == NULL ? c->path : last + 1);
	return NULL;
}

static json_t *other(struct ctx *c, json_t *in, struct err *e)
{
	(void)in;
	err_set(e, ERR_NOT_FOUND,
	    "There is nothing at %.100s: this door has sandboxes of the E2B API, and no more.", c->path);
	return NULL;
}

#define TIME_FIELD(field) IN(T_INT, (field), "Seconds.", NULL, .max = INT32_MAX)
static const struct param create_in[] = {
	IN(T_STR, "templateID", "\"base\" or a class, or one with \":project\".", NULL, .max = 200),
	TIME_FIELD("timeout"),
	IN(T_OBJ, "metadata", "Strings of the client's own.", NULL),
	IN(T_MAP, "envVars", "Environment of every command.", NULL, .max = 200),
	IN(T_BOOL, "autoPause", "Refused.", NULL),
	IN(T_OBJ, "autoResume", "Refused.", NULL),
	E2B_NETWORK_FIELDS,
	IN(T_OBJ, "network", "What it may reach.", NULL, .fields = e2b_network_in),
	{ 0 },
};
static const struct param list_in[] = {
	IN(T_STR, "metadata", "Pairs that it must have.", NULL, .max = METADATA_BYTES),
	IN(T_STR, "state", "Only running ones are there.", NULL, .max = 100),
	IN(T_INT, "limit", "So many at most.", NULL, .min = 1, .max = LIST_MAX),
	IN(T_STR, "nextToken", "Of the page before.", NULL, .max = 64),
	IN(T_STR, "order", "asc: oldest first.", NULL, .max = 8),
	IN(T_TIME, "startedAfter", "Leased after this moment.", NULL),
	IN(T_STR, "template", "Only of this template.", NULL, .max = 200),
	{ 0 },
};
static const struct param other_in[] = {
	IN_REQUIRED(T_STR, "rest", "Some path.", NULL, .max = LIMIT_PATH_BYTES), { 0 }
};
static const struct param timeout_in[] = { SANDBOX_ID, TIME_FIELD("timeout"), { 0 } };
static const struct param set_timeout_in[] = { SANDBOX_ID,
	IN_REQUIRED(T_INT, "timeout", "Seconds from now.", NULL, .max = INT32_MAX), { 0 } };
static const struct param refresh_in[] = { SANDBOX_ID, TIME_FIELD("duration"), { 0 } };
static const struct param set_network_in[] = { SANDBOX_ID, E2B_NETWORK_FIELDS, E2B_EGRESS_FIELDS, { 0 } };

#define CONTROL .scope = "sandboxes", .flags = E2B_CONTROL, .refuse = e2b_refuse
const struct op e2b_control_ops[] = {
	{ .id = "e2b_create",
	    .routes = { { "POST", "/sandboxes" }, { "POST", "/v2/sandboxes" } },
	    .summary = "Lease a sandbox",
	    CONTROL,
	    .in = create_in,
	    .status = 201,
	    .run = create },
	{ .id = "e2b_list",
	    .routes = { { "GET", "/sandboxes" }, { "GET", "/v2/sandboxes" } },
	    .summary = "List running sandboxes",
	    CONTROL,
	    .in = list_in,
	    .status = 200,
	    .run = list },
	{ .id = "e2b_get",
	    .routes = { { "GET", "/sandboxes/{id}" } },
	    .summary = "A running sandbox",
	    CONTROL,
	    .in = id_in,
	    .status = 200,
	    .run = get },
	{ .id = "e2b_kill",
	    .routes = { { "DELETE", "/sandboxes/{id}" } },
	    .summary = "End a sandbox",
	    CONTROL,
	    .in = id_in,
	    .status = 204,
	    .run = kill_it },
	{ .id = "e2b_connect",
	    .routes = { { "POST", "/sandboxes/{id}/connect" }, { "POST", "/v2/sandboxes/{id}/connect" },
		{ "POST", "/sandboxes/{id}/resume" } },
	    .summary = "A token for a running sandbox",
	    CONTROL,
	    .in = timeout_in,
	    .status = 200,
	    .run = join },
	{ .id = "e2b_timeout",
	    .routes = { { "POST", "/sandboxes/{id}/timeout" } },
	    .summary = "A new end of a lease",
	    CONTROL,
	    .in = set_timeout_in,
	    .status = 204,
	    .run = set_timeout },
	{ .id = "e2b_refresh",
	    .routes = { { "POST", "/sandboxes/{id}/refreshes" } },
	    .summary = "A later end of a lease",
	    CONTROL,
	    .in = refresh_in,
	    .status = 204,
	    .run = refresh },
	{ .id = "e2b_network",
	    .routes = { { "PUT", "/sandboxes/{id}/network" } },
	    .summary = "What a sandbox may reach",
	    CONTROL,
	    .in = set_network_in,
	    .status = 204,
	    .run = set_network },
	{ .id = "e2b_refused",
	    .routes = { { "POST", "/sandboxes/{id}/pause" }, { "POST", "/sandboxes/{id}/fork" },
		{ "POST", "/sandboxes/{id}/snapshots" }, { "GET", "/sandboxes/{id}/metrics" } },
	    .summary = "What is not offered",
	    CONTROL,
	    .in = id_in,
	    .status = 200,
	    .run = refused },
	{ .id = "e2b_root",
	    .routes = { { "GET", "/" }, { "POST", "/" } },
	    .summary = "Nothing",
	    .scope = "sandboxes",
	    .flags = OP_E2B | OP_HIDDEN | OP_LAX | OP_PUBLIC | OP_RAW_IN,
	    .status = 200,
	    .run = other,
	    .refuse = e2b_refuse },
	{ .id = "e2b_other",
	    .routes = { { "GET", "/{rest...}" }, { "POST", "/{rest...}" }, { "PUT", "/{rest...}" },
		{ "DELETE", "/{rest...}" } },
	    .summary = "Everything else",
	    .scope = "sandboxes",
	    .flags = OP_E2B | OP_HIDDEN | OP_LAX | OP_PUBLIC | OP_RAW_IN,
	    .in = other_in,
	    .status = 200,
	    .run = other,
	    .refuse = e2b_refuse },
	{ 0 },
};
