/*
 * egress.c - the egress boundary as its users see it: a sandbox's policy (EGR-9), what was decided (EGR-15), and the org's
 * brokered credentials (EGR-8).
 * Invariant: a credential's value is in the request that binds it and in no answer.
 */
#include <string.h>

#include "auth/broker.h"
#include "base/js.h"
#include "base/limits.h"
#include "base/str.h"
#include "handlers/handlers.h"
#include "handlers/sandbox.h"
#include "sandbox/network.h"

enum { NAME_BYTES = 80, VALUE_BYTES = 4096, HOST_BYTES = 300 };

#define ECR "ecr_01jdq3v8m5c7x2k9f4t6w0b1ra"

static const char *const modes[] = { "deny-all", "allow-all", "static", "resolver", NULL };
static const char *const verdicts[] = { "allow", "deny", "bad_request", NULL };
static const char *const kinds[] = { "decision", "close", NULL };

static const struct param host = {
	.type = T_STR,
	.min = 1,
	.max = HOST_BYTES,
	.doc =
	    "An exact host, or with a leading dot a domain and everything below it; with `:port` that port "
	    "only, else 80 and 443.",
	.example = "\"api.example.com\"",
};

#define MODE_DOC                                                                                             \
	"deny-all: nothing. static: what `allowedHosts` lists. allow-all: every public address, where the "  \
	"deployment permits it. resolver: what the deployment's own resolver says."

const struct param network_in[] = {
	{ .name = "mode",
	    .type = T_ENUM,
	    .values = modes,
	    .doc = MODE_DOC " When not given: static with hosts, deny-all without.",
	    .example = "\"static\"" },
	{ .name = "allowedHosts",
	    .type = T_ARR,
	    .max = 1000,
	    .fields = &host,
	    .doc = "What may be reached under static; private and reserved addresses never are.",
	    .example = "[\"api.example.com\", \".example.org\"]" },
	{ 0 },
};

#define NETWORK_OUT                                                                                          \
	{ .name = "mode",                                                                                    \
		.type = T_ENUM,                                                                              \
		.required = true,                                                                            \
		.values = modes,                                                                             \
		.doc = MODE_DOC,                                                                             \
		.example = "\"deny-all\"" },                                                                 \
	    { .name = "allowedHosts",                                                                        \
		    .type = T_ARR,                                                                           \
		    .required = true,                                                                        \
		    .fields = &host,                                                                         \
		    .doc = "Of static.",                                                                     \
		    .example = "[]" },                                                                       \
	{                                                                                                    \
		.name = "observe", .type = T_BOOL, .required = true,                                         \
		.doc = "The deployment reports what the policy refuses by name, and lets it pass.",          \
		.example = "false"                                                                           \
	}
const struct param network_out[] = { NETWORK_OUT, { 0 } };

static const struct param set_in[] = {
	SANDBOX_ID,
	{ .name = "mode",
	    .type = T_ENUM,
	    .values = modes,
	    .doc = MODE_DOC " When not given: static with hosts, deny-all without.",
	    .example = "\"deny-all\"" },
	{ .name = "allowedHosts",
	    .type = T_ARR,
	    .max = 1000,
	    .fields = &host,
	    .doc = "What may be reached under static. It replaces the list before.",
	    .example = "[]" },
	{ 0 },
};

#define BY_PROXY                                                                                             \
	"If the sandbox was leased with deny-all, what is allowed is reached by the proxy variables only "   \
	"(HTTP_PROXY and "                                                                                   \
	"its like): tools that know no proxy are caught where the lease itself had a policy."
static const struct param set_out[] = {
	NETWORK_OUT,
	{ .name = "note",
	    .type = T_STR,
	    .max = 300,
	    .doc = "Where something is allowed: which tools reach it.",
	    .example = "\"" BY_PROXY "\"" },
	{ 0 },
};

/* ---- what was decided */

static const struct param audit_in[] = {
	SANDBOX_ID,
	{ .name = "verdict", .type = T_ENUM, .values = verdicts, .doc = "Only decisions of this verdict." },
	LIST_PARAMS,
	{ 0 },
};
static const struct param audit_row[] = {
	{ .name = "id", .type = T_STR, .required = true, .doc = "Of the row.", .example = "\"4711\"" },
	{ .name = "at",
	    .type = T_TIME,
	    .required = true,
	    .doc = "When.",
	    .example = "\"2026-01-31T12:00:00.000Z\"" },
	{ .name = "kind",
	    .type = T_ENUM,
	    .required = true,
	    .values = kinds,
	    .doc = "A decision, or the end of what was let pass.",
	    .example = "\"decision\"" },
	{ .name = "form",
	    .type = T_STR,
	    .required = true,
	    .doc = "How it was asked: http, connect, socks and others.",
	    .example = "\"connect\"" },
	{ .name = "host",
	    .type = T_STR,
	    .required = true,
	    .max = 2000,
	    .doc = "The canonical name, or what was asked when it has none.",
	    .example = "\"api.example.com\"" },
	{ .name = "port",
	    .type = T_INT,
	    .required = true,
	    .max = 65535,
	    .doc = "0: none.",
	    .example = "443" },
	{ .name = "verdict",
	    .type = T_ENUM,
	    .required = true,
	    .values = verdicts,
	    .doc = "What was decided.",
	    .example = "\"deny\"" },
	{ .name = "reason",
	    .type = T_STR,
	    .required = true,
	    .doc = "Why, in one word.",
	    .example = "\"not_on_allowlist\"" },
	{ .name = "observed",
	    .type = T_BOOL,
	    .required = true,
	    .doc = "It was let pass all the same: the deployment observes.",
	    .example = "false" },
	{ .name = "class",
	    .type = T_STR,
	    .required = true,
	    .nullable = true,
	    .doc = "Of the address that was judged.",
	    .example = "null" },
	{ .name = "address",
	    .type = T_STR,
	    .required = true,
	    .nullable = true,
	    .doc = "That address.",
	    .example = "null" },
	{ .name = "bytesOut",
	    .type = T_INT,
	    .required = true,
	    .nullable = true,
	    .doc = "Of a close: from the sandbox.",
	    .example = "null" },
	{ .name = "bytesIn",
	    .type = T_INT,
	    .required = true,
	    .nullable = true,
	    .doc = "Of a close: to the sandbox.",
	    .example = "null" },
	{ .name = "durationMs",
	    .type = T_INT,
	    .required = true,
	    .nullable = true,
	    .doc = "Of a close.",
	    .example = "null" },
	{ 0 },
};
static const struct param audit_out[] = { LIST_OUT(audit_row, "Newest first."), { 0 } };

/* ---- brokered credentials */

#define CREDENTIAL_FIELDS                                                                                    \
	{ .name = "id",                                                                                      \
		.type = T_STR,                                                                               \
		.required = true,                                                                            \
		.doc = "Names the credential.",                                                              \
		.example = "\"" ECR "\"" },                                                                  \
	    { .name = "name",                                                                                \
		    .type = T_STR,                                                                           \
		    .required = true,                                                                        \
		    .doc = "What it is for.",                                                                \
		    .example = "\"registry\"" },                                                             \
	    { .name = "host",                                                                                \
		    .type = T_STR,                                                                           \
		    .required = true,                                                                        \
		    .max = HOST_BYTES,                                                                       \
		    .doc = "Where it is sent.",                                                              \
		    .example = "\"registry.example.com\"" },                                                 \
	    { .name = "header",                                                                              \
		    .type = T_STR,                                                                           \
		    .required = true,                                                                        \
		    .doc = "In which header.",                                                               \
		    .example = "\"authorization\"" },                                                        \
	    { .name = "createdBy",                                                                           \
		    .type = T_STR,                                                                           \
		    .required = true,                                                                        \
		    .doc = "Who bound it.",                                                                  \
		    .example = "\"ada\"" },                                                                  \
	{                                                                                                    \
		.name = "createdAt", .type = T_TIME, .required = true, .doc = "When.",                       \
		.example = "\"2026-01-31T12:00:00.000Z\""                                                    \
	}
static const struct param bind_in[] = {
	{ .name = "name",
	    .type = T_STR,
	    .required = true,
	    .min = 1,
	    .max = NAME_BYTES,
	    .doc = "What it is for.",
	    .example = "\"registry\"" },
	{ .name = "host",
	    .type = T_STR,
	    .required = true,
	    .min = 1,
	    .max = HOST_BYTES,
	    .doc = "Where it is sent: a host, or with a leading dot a domain. It must be allowed by the "
		   "sandbox's "
		   "policy, too.",
	    .example = "\"registry.example.com\"" },
	{ .name = "header",
	    .type = T_STR,
	    .required = true,
	    .min = 1,
	    .max = 64,
	    .doc = "The header's name; one that the sandbox sends under it is replaced.",
	    .example = "\"Authorization\"" },
	{ .name = "value",
	    .type = T_STR,
	    .required = true,
	    .min = 1,
	    .max = VALUE_BYTES,
	    .doc = "Its whole value. It is stored sealed and never shown again.",
	    .example = "\"Bearer example\"" },
	{ 0 },
};
static const struct param credential_out[] = { CREDENTIAL_FIELDS, { 0 } };
static const struct param credentials_in[] = { LIST_PARAMS, { 0 } };
static const struct param credentials_out[] = {
	LIST_OUT(credential_out, "Newest first, never with their values."), { 0 }
};
static const struct param remove_in[] = {
	{ .name = "id",
	    .type = T_STR,
	    .required = true,
	    .min = 1,
	    .max = 64,
	    .doc = "The credential's id.",
	    .example = "\"" ECR "\"" },
	{ 0 },
};
static const struct param remove_out[] = { { 0 } };

static json_t *set(struct ctx *c, json_t *in, struct err *e)
{
	json_t *o = network_set(c, c->who->org, js_str_or(in, "id", ""), in, e);
	if (o != NULL && strcmp(js_str_or(o, "mode", ""), "deny-all") != 0)
		js_set_str(o, "note", BY_PROXY);
	return o;
}

static json_t *audit(struct ctx *c, json_t *in, struct err *e)
{
	const char *cursor = list_cursor(c, in, e);
	auto_pg struct pg *db = cursor == NULL ? NULL : pg_take(c->db, SANDBOX_TAKE_MS, e);
	if (db == NULL)
		return NULL;
	int limit = list_limit(in);
	json_t *rows = network_audit(
	    db, c->who->org, js_str_or(in, "id", ""), js_str(in, "verdict"), cursor, limit + 1, e);
	return rows == NULL ? NULL : list_reply(rows, limit, "id");
}

static json_t *bind_credential(struct ctx *c, json_t *in, struct err *e)
{
	const char *value = js_str_or(in, "value", ""), *name = js_str_or(in, "name", "");
	if (!str_shows(name)) {
		err_field(
		    e, ERR_BAD_REQUEST, "name", "`name` must show something, without control characters.");
		return NULL;
	}
	auto_secret struct secret *s = secret_new(value, strlen(value));
	const struct broker_new want = { .org = c->who->org,
		.user = c->who->user,
		.name = name,
		.host = js_str_or(in, "host", ""),
		.header = js_str_or(in, "header", ""),
		.value = s };
	auto_pg struct pg *db = pg_take(c->db, SANDBOX_TAKE_MS, e);
	return db == NULL ? NULL : broker_bind(db, ((struct api *)c->app)->seal, &want, e);
}

static json_t *list_credentials(struct ctx *c, json_t *in, struct err *e)
{
	const char *cursor = list_cursor(c, in, e);
	auto_pg struct pg *db = cursor == NULL ? NULL : pg_take(c->db, SANDBOX_TAKE_MS, e);
	if (db == NULL)
		return NULL;
	int limit = list_limit(in);
	json_t *rows = broker_list(db, c->who->org, cursor, limit + 1, e);
	return rows == NULL ? NULL : list_reply(rows, limit, "id");
}

static json_t *remove_credential(struct ctx *c, json_t *in, struct err *e)
{
	auto_pg struct pg *db = pg_take(c->db, SANDBOX_TAKE_MS, e);
	return db == NULL || broker_remove(db, c->who->org, js_str_or(in, "id", ""), e) != 0 ? NULL
											     : js_pack("{}");
}

const struct op egress_ops[] = {
	{
	    .id = "set_network_policy",
	    .routes = { { "PUT", "/v1/sandboxes/{id}/network" } },
	    .summary = "Change what a sandbox may reach",
	    .doc =
		"Answers when it is in force: new connections obey it, and those to what is no longer "
		"allowed are closed. A sandbox that was leased with deny-all reaches what is allowed later "
		"by its proxy variables only: tools that know no proxy, and its DNS, are not caught in it. "
		"503 "
		"when the boundary has not confirmed it; it is written then, and in force as soon as the "
		"boundary is back.",
	    .scope = "sandboxes",
	    .in = set_in,
	    .out = set_out,
	    .status = 200,
	    .flags = OP_TOOL | OP_LONG,
	    .run = set,
	},
	{
	    .id = "list_egress",
	    .routes = { { "GET", "/v1/sandboxes/{id}/egress" } },
	    .summary = "What a sandbox asked to reach",
	    .doc =
		"One row a decision and one a close, newest first; also of a sandbox that has ended, as long "
		"as the deployment keeps them.",
	    .scope = "sandboxes",
	    .in = audit_in,
	    .out = audit_out,
	    .status = 200,
	    .flags = OP_TOOL,
	    .run = audit,
	},
	{
	    .id = "bind_egress_credential",
	    .routes = { { "POST", "/v1/egress/credentials" } },
	    .summary = "Bind a credential to a host",
	    .doc =
		"The boundary adds it to plain-HTTP requests of your org's sandboxes to that host, which it "
		"sends on over HTTPS; the sandboxes never hold it.",
	    .scope = "sandboxes",
	    .in = bind_in,
	    .out = credential_out,
	    .status = 201,
	    .flags = OP_ADMIN | OP_ONCE,
	    .run = bind_credential,
	},
	{
	    .id = "list_egress_credentials",
	    .routes = { { "GET", "/v1/egress/credentials" } },
	    .summary = "List bound credentials",
	    .doc = "Those of your org, never their values.",
	    .scope = "sandboxes",
	    .in = credentials_in,
	    .out = credentials_out,
	    .status = 200,
	    .flags = OP_ADMIN,
	    .run = list_credentials,
	},
	{
	    .id = "remove_egress_credential",
	    .routes = { { "DELETE", "/v1/egress/credentials/{id}" } },
	    .summary = "Remove a bound credential",
	    .doc = "From now on no request is given it.",
	    .scope = "sandboxes",
	    .in = remove_in,
	    .out = remove_out,
	    .status = 200,
	    .flags = OP_ADMIN,
	    .run = remove_credential,
	},
	{ 0 },
};
