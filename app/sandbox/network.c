#include "sandbox/network.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/host.h"
#include "base/js.h"
#include "base/str.h"
#include "sandbox/client_int.h"
#include "sandbox/netns.h"
#include "sql/sandbox.h"

enum { HOSTS_MAX = 1000, FORCE_MS = 3000, LOOK_MS = 4 };

/* ---- checking what is written (EGR-1, EGR-2) */

static int check_host(const json_t *v, size_t i, const char *field, struct err *e)
{
	struct host_pattern p;
	const char *why = "A host is a string.";
	const struct str text = { json_string_value(v), json_string_length(v) };
	char name[ERR_PARAM_MAX];
	(void)snprintf(name, sizeof name, "%sallowedHosts[%zu]", field, i);
	if (!json_is_string(v))
		return err_field(e, ERR_BAD_REQUEST, name, "%s", why);
	if (!host_pattern_parse(text, &p, &why))
		return err_field(e, ERR_BAD_REQUEST, name, "\"%.80s\" is not allowed here: %s", text.p, why);
	host_pattern_free(&p);
	return 0;
}

static int check_hosts(const char *mode, const json_t *hosts, const char *field, json_t **out, struct err *e)
{
	char name[ERR_PARAM_MAX];
	size_t i;
	json_t *v;
	auto_json json_t *list = json_array();
	(void)snprintf(name, sizeof name, "%sallowedHosts", field);
	if (json_array_size(hosts) > 0 && strcmp(mode, "static") != 0)
		return err_field(e, ERR_BAD_REQUEST, name,
		    "Under \"%s\" no host can be listed; leave `%s` out, or make the mode \"static\".", mode,
		    name);
	if (json_array_size(hosts) > HOSTS_MAX)
		return err_field(e, ERR_BAD_REQUEST, name, "At most %d hosts can be listed.", HOSTS_MAX);
	json_array_foreach(hosts, i, v) {
		if (check_host(v, i, field, e) != 0)
			return -1;
		js_push(list, json_incref(v));
	}
	*out = steal(list);
	return 0;
}

/* What the deployment permits. */
static int check_mode(const struct conf *conf, const char *mode, const char *field, struct err *e)
{
	char name[ERR_PARAM_MAX];
	(void)snprintf(name, sizeof name, "%smode", field);
	if (strcmp(mode, "resolver") == 0 && conf_str(conf, "EGRESS_RESOLVER")[0] == '\0')
		return err_field(e, ERR_BAD_REQUEST, name,
		    "This deployment has no resolver of policies (EGRESS_RESOLVER); list the hosts.");
	if (strcmp(mode, "allow-all") != 0)
		return 0;
	if (!conf_bool(conf, "EGRESS_ALLOW_ALL"))
		return err_field(e, ERR_BAD_REQUEST, name,
		    "This deployment does not permit \"allow-all\" (EGRESS_ALLOW_ALL); list the hosts.");
	if (conf_bool(conf, "SANDBOX_STRICT_EGRESS"))
		return err_field(e, ERR_BAD_REQUEST, name,
		    "\"allow-all\" is tier 1, which this deployment refuses (SANDBOX_STRICT_EGRESS); list "
		    "the hosts.");
	return 0;
}

int network_check(
    const struct conf *conf, const json_t *asked, const char *field, struct network *got, struct err *e)
{
	const json_t *hosts = js_get(asked, "allowedHosts");
	const char *mode = js_str_or(asked, "mode", json_array_size(hosts) > 0 ? "static" : "deny-all");
	json_t *list = NULL;
	if (conf_bool(conf, "EGRESS_OBSERVE") && conf_bool(conf, "SANDBOX_STRICT_EGRESS"))
		return err_set(e, ERR_UNAVAILABLE,
		    "EGRESS_OBSERVE makes every sandbox tier 1, which SANDBOX_STRICT_EGRESS refuses: an "
		    "operator must choose.");
	if (check_mode(conf, mode, field, e) != 0 || check_hosts(mode, hosts, field, &list, e) != 0)
		return -1;
	bool none = strcmp(mode, "deny-all") == 0;
	*got = (struct network){
		.policy = js_pack("{s:s,s:o}", "mode", mode, "allowedHosts", list),
		.reach = none ? "none" : "proxy",
		/* Whatever is reached passes the boundary; but under allow-all nobody has said what it may be. */
		.tier = network_tier(conf, strcmp(mode, "allow-all") == 0 ? 1 : 2),
	};
	return 0;
}

struct network network_open(void)
{
	return (struct network){ .policy = js_pack("{s:s,s:[]}", "mode", "allow-all", "allowedHosts"),
		.reach = "open",
		.tier = 0 };
}

/* ---- telling */

int network_tier(const struct conf *conf, long long stored_tier)
{
	return stored_tier > 1 && conf_bool(conf, "EGRESS_OBSERVE") ? 1 : (int)stored_tier;
}

json_t *network_object(const struct conf *conf, const char *stored)
{
	struct err e = { 0 };
	json_t *o = js_parse(stored, strlen(stored), &e);
	/* A row that makes no sense lets nothing out. */
	if (js_str(o, "mode") == NULL || !json_is_array(js_get(o, "allowedHosts"))) {
		json_decref(o);
		o = js_pack("{s:s,s:[]}", "mode", "deny-all", "allowedHosts");
	}
	js_set(o, "observe", json_boolean(conf_bool(conf, "EGRESS_OBSERVE")));
	return o;
}

/*
 * Both spellings, as some clients read only one. They are there under deny-all too, as the policy may be widened while commands
 * run, and its refusals say why. ALL_PROXY is http, not socks5: Python's httpx fails altogether when it meets a SOCKS URL
 * without its optional package.
 */
void network_env(json_t *env)
{
	static const char *const to_boundary[] = { "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy",
		"https_proxy", "all_proxy", NULL };
	for (const char *const *name = to_boundary; *name != NULL; name++)
		js_set(env, *name, json_sprintf("http://127.0.0.1:%d", NETNS_PROXY_PORT));
	/* What listens inside the sandbox is reached without the boundary. */
	js_set(env, "NO_PROXY", json_string("localhost,127.0.0.1,::1"));
	js_set(env, "no_proxy", json_string("localhost,127.0.0.1,::1"));
	js_set(env, "NODE_USE_ENV_PROXY", json_string("1")); /* node's fetch looks at the others only then */
}

/* ---- changing (EGR-9) */

/* Why nothing was changed. */
static int unchanged(struct pg *db, const char *org, const char *id, struct err *e)
{
	struct box_addr a;
	if (box_find(db, org, id, &a, e) != 0)
		return -1;
	return err_set(
	    e, ERR_CONFLICT, "The driver of this sandbox cannot enforce a policy; it stays \"deny-all\".");
}

/* Wait until the boundary has this version in force. */
static int in_force(struct pg *db, const char *org, const char *id, const char *version, struct err *e)
{
	int64_t until = clock_ms() + FORCE_MS;
	for (int pause = LOOK_MS; clock_ms() < until; pause = pause < 32 ? pause * 2 : pause) {
		auto_res struct pg_res *r = PG(db, &q_sandbox_network_applied, e, org, id, version);
		if (r == NULL)
			return -1;
		if (pg_rows(r) == 0)
			return err_set(e, ERR_CONFLICT, "The sandbox has ended.");
		if (pg_bool(r, 0, 0))
			return 0;
		(void)poll(NULL, 0, pause);
	}
	return err_set(e, ERR_UNAVAILABLE,
	    "The policy is written down, but the egress boundary of the sandbox's node has not confirmed it: "
	    "it "
	    "is away, and lets nothing pass until it is back and has read it.");
}

json_t *network_set(struct ctx *c, const char *org, const char *id, const json_t *asked, struct err *e)
{
	struct network n;
	if (network_check(c->conf, asked, "", &n, e) != 0)
		return NULL;
	const char *text = js_dump(c->mem, mem_json(c->mem, n.policy));
	auto_pg struct pg *db = pg_take(c->db, CLIENT_TAKE_MS, e);
	if (db == NULL)
		return NULL;
	auto_res struct pg_res *r = PG(
	    db, &q_sandbox_network_set, e, org, id, text, n.reach, pg_num(c->mem, n.tier));
	if (r == NULL || (pg_rows(r) == 0 && unchanged(db, org, id, e) != 0) ||
	    in_force(db, org, id, pg_str(r, 0, 0), e) != 0)
		return NULL;
	return network_object(c->conf, text);
}

/* ---- what was decided (EGR-15) */

static json_t *number_or_null(const struct pg_res *r, int row, int col)
{
	return pg_null(r, row, col) ? json_null() : json_integer(pg_int(r, row, col));
}

static json_t *text_or_null(const struct pg_res *r, int row, int col)
{
	return pg_null(r, row, col) ? json_null() : json_string(pg_str(r, row, col));
}

static json_t *audit_row(const struct pg_res *r, int i)
{
	return js_pack("{s:s,s:s,s:s,s:s,s:s,s:I,s:s,s:s,s:b,s:o,s:o,s:o,s:o,s:o}", "id", pg_str(r, i, 0),
	    "at", pg_str(r, i, 1), "kind", pg_str(r, i, 2), "form", pg_str(r, i, 3), "host", pg_str(r, i, 4),
	    "port", (json_int_t)pg_int(r, i, 5), "verdict", pg_str(r, i, 6), "reason", pg_str(r, i, 7),
	    "observed", pg_bool(r, i, 8), "class", text_or_null(r, i, 9), "address", text_or_null(r, i, 10),
	    "bytesOut", number_or_null(r, i, 11), "bytesIn", number_or_null(r, i, 12), "durationMs",
	    number_or_null(r, i, 13));
}

json_t *network_audit(struct pg *db, const char *org, const char *id, const char *verdict, const char *before,
    int limit, struct err *e)
{
	auto_mem struct mem *m = mem_new();
	long long last = INT64_MAX;
	if (before[0] != '\0' && !str_int(before, 1, INT64_MAX, &last)) {
		err_field(e, ERR_BAD_REQUEST, "cursor", "`cursor` is not one of ours.");
		return NULL;
	}
	auto_res struct pg_res *known = PG(db, &q_sandbox_get, e, org, id);
	if (known == NULL)
		return NULL;
	if (pg_rows(known) == 0) {
		err_set(e, ERR_NOT_FOUND, "There is no such sandbox.");
		return NULL;
	}
	auto_res struct pg_res *r = PG(
	    db, &q_sandbox_audit, e, org, id, pg_num(m, last), verdict, pg_num(m, limit));
	if (r == NULL)
		return NULL;
	json_t *rows = json_array();
	for (int i = 0; i < pg_rows(r); i++)
		js_push(rows, audit_row(r, i));
	return rows;
}
