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
	.doc = "An exact host, or with a leading dot a domain and everything below it; with `:port` that "
	       "port only, else 80 and 443.",
	.example = "\"api.example.com\"",
};

#define MODE_DOC                                                                                             \
	"deny-all: nothing. static: what `allowedHosts` lists. allow-all: every public address, where the "  \
	"deployment permits it. resolver: what the deployment's own resolver says."

const struct param network_in[] = {
	IN(T_ENUM, "mode", MODE_DOC " When not given: static with hosts, deny-all without.", "\"static\"",
	    .values = modes),
	IN(T_ARR, "allowedHosts",
	    "What may be reached under static; private and reserved addresses never are.",
	    "[\"api.example.com\", \".example.org\"]", .max = 1000, .fields = &host),
	{ 0 },
};

#define NETWORK_OUT                                                                                          \
	OUT(T_ENUM, "mode", MODE_DOC, "\"deny-all\"", .values = modes),                                      \
	    OUT(T_ARR, "allowedHosts", "What may be reached under static.", "[]", .fields = &host),          \
	    OUT(T_BOOL, "observe",                                                                           \
		"The deployment reports what the policy refuses by name, and lets it pass.", "false")
const struct param network_out[] = { NETWORK_OUT, { 0 } };

static const struct param set_in[] = {
	SANDBOX_ID,
	IN(T_ENUM, "mode", MODE_DOC " When not given: static with hosts, deny-all without.", "\"deny-all\"",
	    .values = modes),
	IN(T_ARR, "allowedHosts", "What may be reached under static. It replaces the list before.", "[]",
	    .max = 1000, .fields = &host),
	{ 0 },
};

#define BY_PROXY                                                                                             \
	"If the sandbox was leased with deny-all, what is allowed is reached by the proxy variables only "   \
	"(HTTP_PROXY and "                                                                                   \
	"its like): tools that know no proxy are caught where the lease itself had a policy."
static const struct param set_out[] = {
	NETWORK_OUT,
	OUT_MAYBE(T_STR, "note", "Where something is allowed: which tools reach it.", "\"" BY_PROXY "\"",
	    .max = 300),
	{ 0 },
};

/* ---- what was decided */

static const struct param audit_in[] = {
	SANDBOX_ID,
	IN(T_ENUM, "verdict", "Only decisions of this verdict.", NULL, .values = verdicts),
	LIST_PARAMS,
	{ 0 },
};
static const struct param audit_row[] = {
	OUT(T_STR, "id", "Names the row.", "\"4711\""),
	OUT(T_TIME, "at", "When it was decided, or ended.", "\"2026-01-31T12:00:00.000Z\""),
	OUT(T_ENUM, "kind", "A decision, or the end of what was let pass.", "\"decision\"", .values = kinds),
	OUT(T_STR, "form", "How it was asked: http, connect, socks and others.", "\"connect\""),
	OUT(T_STR, "host", "The canonical name, or what was asked when it has none.", "\"api.example.com\"",
	    .max = 2000),
	OUT(T_INT, "port", "0: none.", "443", .max = 65535),
	OUT(T_ENUM, "verdict", "What was decided.", "\"deny\"", .values = verdicts),
	OUT(T_STR, "reason", "Why, in one word.", "\"not_on_allowlist\""),
	OUT(T_BOOL, "observed", "It was let pass all the same: the deployment observes.", "false"),
	OUT_NULL(T_STR, "class", "Of the address that was judged.", "null"),
	OUT_NULL(T_STR, "address", "That address.", "null"),
	OUT_NULL(T_INT, "bytesOut", "Of a close: from the sandbox.", "null"),
	OUT_NULL(T_INT, "bytesIn", "Of a close: to the sandbox.", "null"),
	OUT_NULL(T_INT, "durationMs", "Of a close: how long it was open.", "null"),
	{ 0 },
};
static const struct param audit_out[] = { LIST_OUT(audit_row, "Newest first."), { 0 } };

/* ---- brokered credentials */

#define CREDENTIAL_FIELDS                                                                                    \
	OUT(T_STR, "id", "Names the credential.", "\"" ECR "\""),                                            \
	    OUT(T_STR, "name", "What it is for.", "\"registry\""),                                           \
	    OUT(T_STR, "host", "Where it is sent.", "\"registry.example.com\"", .max = HOST_BYTES),          \
	    OUT(T_STR, "header", "In which header.", "\"authorization\""),                                   \
	    OUT(T_STR, "createdBy", "Who bound it.", "\"ada\""),                                             \
	    OUT(T_TIME, "createdAt", "When it was bound.", "\"2026-01-31T12:00:00.000Z\"")
static const struct param bind_in[] = {
	IN_REQUIRED(T_STR, "name", "What it is for.", "\"registry\"", .min = 1, .max = NAME_BYTES),
	IN_REQUIRED(T_STR, "host",
	    "Where it is sent: a host, or with a leading dot a domain. It must be allowed by the sandbox's "
	    "policy, too.",
	    "\"registry.example.com\"", .min = 1, .max = HOST_BYTES),
	IN_REQUIRED(T_STR, "header", "The header's name; one that the sandbox sends under it is replaced.",
	    "\"Authorization\"", .min = 1, .max = 64),
	IN_REQUIRED(T_STR, "value", "Its whole value. It is stored sealed and never shown again.",
	    "\"Bearer example\"", .min = 1, .max = VALUE_BYTES),
	{ 0 },
};
static const struct param credential_out[] = { CREDENTIAL_FIELDS, { 0 } };
static const struct param credentials_out[] = {
	LIST_OUT(credential_out, "Newest first, never with their values."), { 0 }
};
static const struct param remove_in[] = {
	IN_ID("id", "The credential's id.", "\"" ECR "\""),
	{ 0 },
};

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
	auto_pg struct pg *db = cursor == NULL ? NULL : handler_db(c, e);
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
	auto_pg struct pg *db = handler_db(c, e);
	return db == NULL ? NULL : broker_bind(db, ((struct api *)c->app)->seal, &want, e);
}

static json_t *list_credentials(struct ctx *c, json_t *in, struct err *e)
{
	const char *cursor = list_cursor(c, in, e);
	auto_pg struct pg *db = cursor == NULL ? NULL : handler_db(c, e);
	if (db == NULL)
		return NULL;
	int limit = list_limit(in);
	json_t *rows = broker_list(db, c->who->org, cursor, limit + 1, e);
	return rows == NULL ? NULL : list_reply(rows, limit, "id");
}

static json_t *remove_credential(struct ctx *c, json_t *in, struct err *e)
{
	auto_pg struct pg *db = handler_db(c, e);
	return db == NULL || broker_remove(db, c->who->org, js_str_or(in, "id", ""), e) != 0 ? NULL
											     : json_object();
}

const struct op egress_ops[] = {
	{
	    .id = "set_network_policy",
	    .routes = { { "PUT", "/v1/sandboxes/{id}/network" } },
	    .summary = "Change what a sandbox may reach",
	    .doc = "Answers when it is in force: new connections obey it, and those to what is no longer "
		   "allowed are closed. A sandbox that was leased with deny-all reaches what is allowed "
		   "later by its proxy variables only: tools that know no proxy, and its DNS, are not caught "
		   "in it. 503 when the boundary has not confirmed it; it is written then, and in force as "
		   "soon as the boundary is back.",
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
	    .doc = "One row a decision and one a close, newest first; also of a sandbox that has ended, as "
		   "long as the deployment keeps them.",
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
	    .doc = "The boundary adds it to plain-HTTP requests of your org's sandboxes to that host, which "
		   "it sends on over HTTPS; the sandboxes never hold it.",
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
	    .in = op_list_in,
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
	    .out = op_none,
	    .status = 200,
	    .flags = OP_ADMIN,
	    .run = remove_credential,
	},
	{ 0 },
};
