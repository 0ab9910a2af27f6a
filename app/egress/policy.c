#include "egress/policy.h"

#include <string.h>

#include "base/js.h"
#include "base/mem.h"
#include "base/str.h"
#include "egress/reason.h"

static const char *const modes[] = {
	[POLICY_DENY_ALL] = "deny-all",
	[POLICY_ALLOW_ALL] = "allow-all",
	[POLICY_STATIC] = "static",
	[POLICY_RESOLVER] = "resolver",
};
enum { N_MODES = sizeof modes / sizeof modes[0] };

const char *policy_mode_name(enum policy_mode mode)
{
	return mode == POLICY_UNAVAILABLE ? "unavailable" : modes[mode];
}

static int bad_entry(struct err *e, const char *why)
{
	if (e->code == ERR_NONE)
		e->reason = reason_name(REASON_BAD_ENTRY);
	return err_field(e, ERR_BAD_REQUEST, "allowedHosts", "%s", why);
}

static int parse_mode(const json_t *stored, size_t n_hosts, enum policy_mode *mode, struct err *e)
{
	const json_t *given = js_get(stored, "mode");
	*mode = n_hosts > 0 ? POLICY_STATIC : POLICY_DENY_ALL;
	if (given == NULL)
		return 0;
	for (int m = POLICY_DENY_ALL; m < N_MODES; m++)
		if (json_is_string(given) && strcmp(json_string_value(given), modes[m]) == 0) {
			*mode = (enum policy_mode)m;
			return 0;
		}
	return err_field(
	    e, ERR_BAD_REQUEST, "mode", "The mode is one of deny-all, allow-all, static and resolver.");
}

struct egress_policy *policy_parse(const json_t *stored, struct err *e)
{
	const json_t *hosts = js_get(stored, "allowedHosts");
	size_t n = json_array_size(hosts);
	if (!json_is_object(stored) || (hosts != NULL && !json_is_array(hosts)) || n > POLICY_HOSTS_MAX) {
		(void)bad_entry(e, "The hosts are a list of at most 1000 host patterns.");
		return NULL;
	}
	struct egress_policy *p = xcalloc(1, sizeof *p);
	p->refs = 1;
	p->hosts = xcalloc(n + 1, sizeof *p->hosts);
	for (size_t i = 0; i < n; i++) {
		const json_t *v = json_array_get(hosts, i);
		const char *why = "A host pattern is a string.";
		/* string_length: a NUL in it is a byte like any other, and refused */
		struct str text = { json_string_value(v), json_string_length(v) };
		if (!json_is_string(v) || !host_pattern_parse(text, &p->hosts[i], &why)) {
			(void)bad_entry(e, why);
			policy_unref(p);
			return NULL;
		}
		p->n_hosts++;
	}
	if (parse_mode(stored, n, &p->mode, e) != 0) {
		policy_unref(p);
		return NULL;
	}
	return p;
}

struct egress_policy *policy_unavailable(void)
{
	struct egress_policy *p = xcalloc(1, sizeof *p);
	p->mode = POLICY_UNAVAILABLE;
	p->refs = 1;
	return p;
}

struct egress_policy *policy_ref(struct egress_policy *p)
{
	p->refs++;
	return p;
}

void policy_unref(struct egress_policy *p)
{
	if (p == NULL || --p->refs > 0)
		return;
	policy_patterns_free(p->hosts, p->n_hosts);
	free(p);
}

/* ---- the deployment's side */

int policy_patterns(const char *list, struct host_pattern **out, size_t *n, struct err *e)
{
	size_t room = 1;
	for (const char *c = list; *c != 0; c++)
		room += *c == ',' || *c == ' ';
	struct host_pattern *all = xcalloc(room, sizeof *all);
	size_t count = 0;
	for (const char *at = list; *at != 0;) {
		size_t len = strcspn(at, ", ");
		const char *why;
		if (len > 0 && !host_pattern_parse((struct str){ at, len }, &all[count], &why)) {
			policy_patterns_free(all, count);
			return err_set(e, ERR_BAD_REQUEST, "%.*s: %s", len > 200 ? 200 : (int)len, at, why);
		}
		count += len > 0;
		at += len + (at[len] != 0);
	}
	*out = all;
	*n = count;
	return 0;
}

void policy_patterns_free(struct host_pattern *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		host_pattern_free(&p[i]);
	free(p);
}

void policy_site_free(struct egress_site *s)
{
	policy_patterns_free(s->inward, s->n_inward);
	free(s->self);
	*s = (struct egress_site){ 0 };
}
