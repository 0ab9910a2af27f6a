/*
 * e2b_network.c - network rules of the E2B SDK as policies of ours (EGR-1). There everything is allowed that is not denied, and
 * addresses, blocks and names are mixed; here nothing is reached that no name allows. Only what means the same in both is taken.
 */
#include "handlers/e2b_network.h"

#include <string.h>

#include "base/addr.h"
#include "base/host.h"
#include "base/js.h"

static const char everything[] = "0.0.0.0/0";

const struct param e2b_hosts[] = { { .type = T_STR, .min = 1, .max = 300, .doc = "A name, or 0.0.0.0/0." } };
const struct param e2b_network_in[] = { E2B_EGRESS_FIELDS, { 0 } };

static bool holds_everything(const json_t *list)
{
	size_t i;
	const json_t *v;
	json_array_foreach((json_t *)(uintptr_t)list, i, v)
		if (strcmp(json_string_value(v), everything) == 0)
			return true;
	return false;
}

/* What else may stand beside the lists. */
static int check_others(const json_t *egress, struct err *e)
{
	static const char *const never[] = { "rules", "egressProxy", "maskRequestHost", "httpsPorts", NULL };
	for (const char *const *name = never; *name != NULL; name++)
		if (js_get(egress, *name) != NULL)
			return err_field(e, ERR_BAD_REQUEST, *name,
			    "`network.%s` is not offered here; leave it out.", *name);
	if (js_bool(egress, "allowPublicTraffic", false))
		return err_field(e, ERR_BAD_REQUEST, "allowPublicTraffic",
		    "Ports of a sandbox cannot be reached from outside here; leave `allowPublicTraffic` "
		    "out.");
	return 0;
}

static int check_denied(const json_t *denied, struct err *e)
{
	size_t i;
	const json_t *v;
	json_array_foreach((json_t *)(uintptr_t)denied, i, v)
		if (strcmp(json_string_value(v), everything) != 0)
			return err_field(e, ERR_BAD_REQUEST, "denyOut",
			    "\"%.80s\" cannot be denied by itself here; deny %s and allow names.",
			    json_string_value(v), everything);
	return 0;
}

static bool is_block(const char *s)
{
	struct host h;
	return strchr(s, '/') != NULL ||
	    (host_canon((struct str){ s, strlen(s) }, HOST_BARE, &h) && h.literal);
}

static int check_allowed(const json_t *allowed, struct err *e)
{
	size_t i;
	const json_t *v;
	json_array_foreach((json_t *)(uintptr_t)allowed, i, v) {
		const char *s = json_string_value(v);
		if (s[0] == '*')
			return err_field(e, ERR_BAD_REQUEST, "allowOut",
			    "\"%.80s\" leaves the domain itself out, which no policy here says; name the "
			    "hosts.",
			    s);
		if (s[0] == '.')
			return err_field(
			    e, ERR_BAD_REQUEST, "allowOut", "\"%.80s\" is no host name of that API.", s);
		if (is_block(s))
			return err_field(e, ERR_BAD_REQUEST, "allowOut",
			    "\"%.80s\" is an address; here sandboxes reach names only.", s);
	}
	return 0;
}

static json_t *policy(const char *mode, json_t *hosts)
{
	return js_pack("{s:s,s:o}", "mode", mode, "allowedHosts", hosts == NULL ? json_array() : hosts);
}

json_t *e2b_network(const json_t *in, const json_t *egress, struct err *e)
{
	json_t *allowed = js_get(egress, "allowOut"), *denied = js_get(egress, "denyOut"),
	       *all = js_get(in, "allow_internet_access");
	bool listed = json_array_size(allowed) > 0, denies = json_array_size(denied) > 0;
	if (check_others(egress, e) != 0 || check_denied(denied, e) != 0)
		return NULL;
	if (json_is_false(all) && listed) {
		err_field(e, ERR_BAD_REQUEST, "allowOut",
		    "Without internet access nothing can be allowed; leave one of both out.");
		return NULL;
	}
	if (holds_everything(allowed) || (json_is_true(all) && !listed && !denies))
		return policy("allow-all", NULL);
	if (!listed && !denies && all == NULL)
		return json_null();
	if (!listed)
		return policy("deny-all", NULL);
	if (check_allowed(allowed, e) != 0)
		return NULL;
	if (denies)
		return policy("static", json_incref(allowed));
	err_field(e, ERR_BAD_REQUEST, "denyOut",
	    "Where names are allowed everything else must be denied: `denyOut` is [\"%s\"].", everything);
	return NULL;
}

void e2b_network_tell(const json_t *p, json_t *out)
{
	const char *mode = js_str_or(p, "mode", "deny-all");
	bool all = strcmp(mode, "allow-all") == 0, none = strcmp(mode, "deny-all") == 0;
	js_set(out, "allowInternetAccess", all || none ? json_boolean(all) : json_null());
	js_set(out, "network",
	    all ? json_object()
		: js_pack("{s:O,s:[s]}", "allowOut", js_get(p, "allowedHosts"), "denyOut", everything));
}
