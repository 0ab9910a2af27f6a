/*
 * providers.c - who answers model calls (MOD-2): an org's own providers, their keys, models and prices, and what the org routes
 * where. Only its admins see and change them; an admin of the org `admin` thereby the deployment's, which every org may use.
 * Invariants: a provider's key is in no answer; the row that answers is what is in force everywhere once it has answered.
 */
#include <string.h>

#include "auth/once.h"
#include "auth/principal.h"
#include "base/js.h"
#include "handlers/handlers.h"
#include "model/catalog.h"
#include "model/probe.h"
#include "model/provider.h"

enum { BODY_BYTES = 1 << 20, TOKENS_MAX = 1000000000, ALLOW_MAX = 500 };

static const char *const owners[] = { "org", "deployment", NULL };
static const char *const states[] = { "ready", "cooling", NULL };
static const char *const tiers[] = { "free", "paid", NULL };

#define NAME                                                                                                 \
	IN_REQUIRED(T_STR, "name", "The provider's name, the first part of its models' addresses.",          \
	    "\"openai\"", .min = 1, .max = PROVIDER_NAME_BYTES)
static const struct param key_in = { .type = T_STR,
	.min = 1,
	.max = PROVIDER_SECRET_BYTES,
	.doc = "A key as the provider gave it. It is stored sealed and never shown again.",
	.example = "\"example-key\"" };
static const struct param target = { .type = T_STR,
	.min = 1,
	.max = MODEL_ADDRESS_BYTES,
	.doc = "\"provider/model\", or an alias.",
	.example = "\"openai/gpt-5\"" };
static const struct param targets = { .type = T_ARR,
	.min = 1,
	.max = ROUTE_TARGETS_MAX,
	.fields = &target,
	.doc = "Who is asked, in this order.",
	.example = "[\"openai/gpt-5\"]" };

#define PRICE(name_, doc_)                                                                                   \
	IN(T_INT, (name_), doc_ " In millicents (thousandths of a cent) per million tokens.", "125000",      \
	    .max = PROVIDER_PRICE_MAX)
#define PRICE_MUST(name_, doc_)                                                                              \
	IN_REQUIRED(T_INT, (name_), doc_ " In millicents (thousandths of a cent) per million tokens.",       \
	    "125000", .max = PROVIDER_PRICE_MAX)
static const struct param prices_in[] = {
	PRICE_MUST("input", "Of input."),
	PRICE("cached", "Of input that was read from the provider's cache; as input when not given."),
	PRICE("cacheWrite", "Of input that was written to it; as input when not given."),
	PRICE_MUST("output", "Of output."),
	PRICE("reasoning", "Of reasoning; as output when not given."),
	{ 0 },
};
#define MODEL_FIELDS(prices_)                                                                                \
	IN_REQUIRED(T_STR, "name", "As clients write it.", "\"gpt-5\"", .min = 1, .max = MODEL_NAME_BYTES),  \
	    IN(T_STR, "upstream", "As the provider calls it; the name when not given.", "\"gpt-5\"",         \
		.min = 1, .max = MODEL_NAME_BYTES),                                                          \
	    IN(T_INT, "contextTokens", "Its context; 0: not stated.", "400000", .max = TOKENS_MAX),          \
	    IN(T_INT, "outputTokens", "The most it writes; 0: not stated.", "128000", .max = TOKENS_MAX),    \
	    IN(T_ARR, "fallbacks", "Who is asked when this one cannot answer, in this order.", "[]",         \
		.max = ROUTE_TARGETS_MAX, .fields = &target),                                                \
	    IN_REQUIRED(T_OBJ, "prices", "What it costs.", "{\"input\":125000,\"output\":1000000}",          \
		.fields = (prices_))
static const struct param model_fields[] = { MODEL_FIELDS(prices_in), { 0 } };
static const struct param model = { .type = T_OBJ, .fields = model_fields };

#define WIRE_DOC "What it speaks."
#define URL_DOC                                                                                              \
	"What stands before /chat/completions, /responses or /messages; https, to a public address, unless " \
	"an operator lists the host in MODEL_INWARD_HOSTS."
#define SETTINGS(must)                                                                                       \
	IN(T_ENUM, "wire", WIRE_DOC, "\"openai-chat\"", .values = provider_wires, .required = (must)),       \
	    IN(T_STR, "baseUrl", URL_DOC, "\"https://api.example.com/v1\"", .min = 1,                        \
		.max = PROVIDER_URL_BYTES, .required = (must)),                                              \
	    IN(T_ARR, "models", "Its models with their prices. They replace those before.",                  \
		"[{\"name\":\"gpt-5\",\"prices\":{\"input\":125000,\"output\":1000000}}]",                   \
		.max = PROVIDER_MODELS_MAX, .fields = &model),                                               \
	    IN(T_BOOL, "enabled", "Switched off it is as if it were not there.", "true")

static const struct param create_in[] = {
	NAME,
	SETTINGS(true),
	IN(T_ARR, "keys", "Its keys, used in turn; none for a provider that wants none.", "[\"example-key\"]",
	    .max = PROVIDER_KEYS_MAX, .fields = &key_in),
	{ 0 },
};
static const struct param key_id = { .type = T_STR, .min = 1, .max = 64, .doc = "A key's id." };
static const struct param update_in[] = {
	NAME,
	SETTINGS(false),
	IN(T_ARR, "addKeys", "Keys that are added.", "[\"example-key-2\"]", .max = PROVIDER_KEYS_MAX,
	    .fields = &key_in),
	IN(T_ARR, "removeKeys", "Ids of keys that are removed.", NULL, .max = PROVIDER_KEYS_MAX,
	    .fields = &key_id),
	{ 0 },
};
static const struct param name_in[] = { NAME, { 0 } };

static const struct param rests_for = { .type = T_STR, .max = MODEL_NAME_BYTES, .doc = "A model." };
static const struct param key_row[] = {
	OUT(T_STR, "id", "Names the key; no secret.", "\"mky_01jdvk2m8q4e6r8t0v2x4z6a8c\""),
	OUT(T_ENUM, "state", "Is it used, or does it cool down.", "\"ready\"", .values = states),
	OUT_NULL(T_TIME, "until", "When it is used again.", "null"),
	OUT_NULL(T_STR, "why", "refused (401), limited (429), or fault (5xx, silence).", "null"),
	OUT(T_ARR, "restsFor",
	    "Models that it is not used for now, as the provider refused them to it (402, 403).", "[]",
	    .max = PROVIDER_MODELS_MAX, .fields = &rests_for),
	OUT(T_TIME, "createdAt", "When it was added.", "\"2026-01-31T12:00:00.000Z\""),
	{ 0 },
};
static const struct param key_out = { .type = T_OBJ, .fields = key_row };
static const struct param provider_out[] = {
	OUT(T_STR, "name", "The first part of its models' addresses.", "\"openai\""),
	OUT(T_ENUM, "owner", "Your org, or the deployment, whose providers every org may use.", "\"org\"",
	    .values = owners),
	OUT(T_ENUM, "wire", WIRE_DOC, "\"openai-chat\"", .values = provider_wires),
	OUT_NULL(
	    T_STR, "baseUrl", "Where it is; null where it is not yours.", "\"https://api.example.com/v1\""),
	OUT(T_BOOL, "enabled", "Switched off it is as if it were not there.", "true"),
	OUT(T_ARR, "keys", "Its keys, never their secrets; empty where it is not yours.", "[]",
	    .fields = &key_out),
	OUT(T_ARR, "models", "Its models with their prices.", "[]", .fields = &model),
	OUT_NULL(T_STR, "createdBy", "Who added it; null where it is not yours.", "\"ada\""),
	OUT(T_TIME, "createdAt", "When it was added.", "\"2026-01-31T12:00:00.000Z\""),
	{ 0 },
};
static const struct param providers_out[] = {
	LIST_OUT(provider_out, "Your org's and the deployment's, by name."), { 0 }
};

static const struct param test_in[] = {
	NAME,
	IN(T_STR, "model", "Which of its models; the first when not given.", "\"gpt-5\"", .min = 1,
	    .max = MODEL_NAME_BYTES),
	IN(T_STR, "key", "The id of the key to try; any when not given.", NULL, .min = 1, .max = 64),
	{ 0 },
};
static const struct param test_out[] = {
	OUT(T_BOOL, "ok", "Did it answer as a model does.", "true"),
	OUT(T_INT, "status", "Of its answer; 0: there was none.", "200"),
	OUT(T_INT, "latencyMs", "Until the answer was whole.", "420"),
	OUT(T_STR, "model", "The model that was asked.", "\"gpt-5\""),
	OUT_NULL(T_STR, "key", "The id of the key that was used; null: it wants none.", "null"),
	OUT(T_STR, "message", "The start of what came back, without any key; or why nothing did.",
	    "\"{\\\"choices\\\":[]}\"", .max = 2000),
	{ 0 },
};

static const struct param allow_item = { .type = T_STR,
	.min = 1,
	.max = MODEL_ADDRESS_BYTES,
	.doc = "\"provider/model\", \"provider/*\", an alias, or \"*\".",
	.example = "\"openai/*\"" };
#define ALIASES_DOC                                                                                          \
	"Names of your own for models, each with whom to ask in order. `free` and `paid` are the tiers: "    \
	"what "                                                                                              \
	"requests get that name no model."
static const struct param routing_in[] = {
	IN(T_MAP, "aliases", ALIASES_DOC " They replace all those before.", "{\"fast\":[\"openai/gpt-5\"]}",
	    .fields = &targets),
	IN(T_ARR, "allow", "What your org may use; everything else is refused.", "[\"*\"]", .max = ALLOW_MAX,
	    .fields = &allow_item),
	IN(T_BOOL, "allowAll", "No such list any more.", "true"),
	{ 0 },
};
static const struct param routing_out[] = {
	OUT(T_ENUM, "tier", "What the operator of this service says your org is.", "\"free\"",
	    .values = tiers),
	OUT_NULL(T_ARR, "allow", "What your org may use; null: everything.", "null", .max = ALLOW_MAX,
	    .fields = &allow_item),
	OUT(T_BOOL, "allowAll", "There is no such list, as it is set, too.", "true"),
	OUT_NULL(T_ARR, "allowedAtMost",
	    "What the operator lets it use; null: everything. Both must allow a model.", "null",
	    .max = ALLOW_MAX, .fields = &allow_item),
	OUT(T_MAP, "aliases", ALIASES_DOC, "{}", .fields = &targets),
	{ 0 },
};

static struct provider_by by_of(const struct ctx *c)
{
	return (struct provider_by){ .org = c->who->org,
		.user = c->who->user,
		.conf = c->conf,
		.seal = ((struct api *)c->app)->seal,
		.mem = c->mem };
}

/* It is committed: this process, too, sees it from now on. */
static json_t *told(struct ctx *c, json_t *row)
{
	catalog_forget(((struct api *)c->app)->catalog, c->who->org);
	reply_header(c, "Cache-Control", "no-store");
	return row;
}

static json_t *create(struct ctx *c, json_t *in, struct err *e)
{
	struct provider_by by = by_of(c);
	auto_pg struct pg *db = handler_db(c, e);
	if (db == NULL || once_begin(c, db, e) != 0)
		return NULL;
	auto_json json_t *row = provider_create(db, &by, in, e);
	if (row == NULL || once_commit(c, db, true, json_incref(row), e) != 0)
		return NULL;
	return told(c, steal(row));
}

static json_t *list(struct ctx *c, json_t *in, struct err *e)
{
	const char *after = list_cursor(c, in, e);
	auto_pg struct pg *db = after == NULL ? NULL : handler_db(c, e);
	if (db == NULL)
		return NULL;
	int limit = list_limit(in);
	json_t *rows = provider_list(db, c->who->org, after, limit + 1, e);
	return rows == NULL ? NULL : list_reply(rows, limit, "_key");
}

static json_t *get(struct ctx *c, json_t *in, struct err *e)
{
	auto_pg struct pg *db = handler_db(c, e);
	return db == NULL ? NULL : provider_get(db, c->who->org, js_str_or(in, "name", ""), e);
}

static json_t *update(struct ctx *c, json_t *in, struct err *e)
{
	struct provider_by by = by_of(c);
	auto_pg struct pg *db = handler_db(c, e);
	if (db == NULL || pg_begin(db, e) != 0)
		return NULL;
	auto_json json_t *row = provider_update(db, &by, js_str_or(in, "name", ""), in, e);
	return row == NULL || pg_commit(db, e) != 0 ? NULL : told(c, steal(row));
}

static json_t *delete (struct ctx *c, json_t *in, struct err *e)
{
	auto_pg struct pg *db = handler_db(c, e);
	if (db == NULL || provider_delete(db, c->who->org, js_str_or(in, "name", ""), e) != 0)
		return NULL;
	return told(c, json_object());
}

static json_t *test(struct ctx *c, json_t *in, struct err *e)
{
	const struct probe_ask ask = { .org = c->who->org,
		.provider = js_str_or(in, "name", ""),
		.model = js_str(in, "model"),
		.key = js_str(in, "key") };
	return probe_provider(((struct api *)c->app)->catalog, c->mem, &ask, e);
}

static json_t *routing(struct ctx *c, json_t *in, struct err *e)
{
	(void)in;
	auto_pg struct pg *db = handler_db(c, e);
	return db == NULL ? NULL : provider_routing(db, c->who->org, e);
}

static json_t *set_routing(struct ctx *c, json_t *in, struct err *e)
{
	struct provider_by by = by_of(c);
	auto_pg struct pg *db = handler_db(c, e);
	if (db == NULL || pg_begin(db, e) != 0)
		return NULL;
	auto_json json_t *row = provider_routing_set(db, &by, in, e);
	return row == NULL || pg_commit(db, e) != 0 ? NULL : told(c, steal(row));
}

const struct op providers_ops[] = {
	{ .id = "create_provider",
	    .routes = { { "POST", "/v1/models/providers" } },
	    .summary = "Add a model provider",
	    .doc = "Its models are addressed as `name/model` from now on. An admin of the org `admin` adds "
		   "it for all orgs.",
	    .scope = "models",
	    .in = create_in,
	    .out = provider_out,
	    .status = 201,
	    .flags = OP_ADMIN | OP_ONCE | OP_KEEPS,
	    .max_body_bytes = BODY_BYTES,
	    .run = create },
	{ .id = "list_providers",
	    .routes = { { "GET", "/v1/models/providers" } },
	    .summary = "List model providers",
	    .doc = "Your org's and the deployment's, never with their secrets.",
	    .scope = "models",
	    .in = op_list_in,
	    .out = providers_out,
	    .status = 200,
	    .flags = OP_ADMIN,
	    .run = list },
	{ .id = "get_provider",
	    .routes = { { "GET", "/v1/models/providers/{name}" } },
	    .summary = "Read a model provider",
	    .doc = "Of two of one name your org's own, which hides the deployment's.",
	    .scope = "models",
	    .in = name_in,
	    .out = provider_out,
	    .status = 200,
	    .flags = OP_ADMIN,
	    .run = get },
	{ .id = "test_provider",
	    .routes = { { "POST", "/v1/models/providers/{name}/test" } },
	    .summary = "Try a model provider",
	    .doc = "One small real call, which the provider may charge for. A key that answers cools down no "
		   "more.",
	    .scope = "models",
	    .in = test_in,
	    .out = test_out,
	    .status = 200,
	    .flags = OP_ADMIN | OP_LONG,
	    .run = test },
	{ .id = "update_provider",
	    .routes = { { "PATCH", "/v1/models/providers/{name}" } },
	    .summary = "Change a model provider",
	    .doc = "What is given changes, and is in force for every call that begins after the answer; "
		   "calls under way end as they began. Another scheme, host or port in `baseUrl` removes the "
		   "keys, which were for the one before: give them again in `addKeys`.",
	    .scope = "models",
	    .in = update_in,
	    .out = provider_out,
	    .status = 200,
	    .flags = OP_ADMIN,
	    .max_body_bytes = BODY_BYTES,
	    .run = update },
	{ .id = "delete_provider",
	    .routes = { { "DELETE", "/v1/models/providers/{name}" } },
	    .summary = "Remove a model provider",
	    .doc = "With its keys and models. Calls under way end as they began.",
	    .scope = "models",
	    .in = name_in,
	    .out = op_none,
	    .status = 200,
	    .flags = OP_ADMIN,
	    .run = delete },
	{ .id = "get_model_routing",
	    .routes = { { "GET", "/v1/models/routing" } },
	    .summary = "What model names mean",
	    .doc = "Your org's aliases, the defaults of its tiers, and what it may use.",
	    .scope = "models",
	    .in = NULL,
	    .out = routing_out,
	    .status = 200,
	    .flags = OP_ADMIN,
	    .run = routing },
	{ .id = "set_model_routing",
	    .routes = { { "PUT", "/v1/models/routing" } },
	    .summary = "Say what model names mean",
	    .doc =
		"What is given changes. The deployment's aliases count where your org has none of the name.",
	    .scope = "models",
	    .in = routing_in,
	    .out = routing_out,
	    .status = 200,
	    .flags = OP_ADMIN,
	    .run = set_routing },
	{ 0 },
};
