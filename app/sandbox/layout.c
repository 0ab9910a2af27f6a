#include "sandbox/layout.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/js.h"
#include "base/str.h"

enum { AT_MAX = 120, SKILLS_MAX = 20, ID_LONGEST = 64 };

/* The parts besides skills. */
static const struct part {
	const char *name, *at;
	bool writable; /* also: may be scratch space, without a directory of the host */
} parts[] = {
	{ "outputs", "/mnt/user-data/outputs", true },
	{ "scratch", "/mnt/user-data/scratch", true },
	{ "uploads", "/mnt/user-data/uploads", false },
	{ "toolResults", "/mnt/user-data/tool_results", false },
	{ "transcripts", "/mnt/transcripts", false },
};
enum { PARTS = sizeof parts / sizeof parts[0] };

struct job {
	const char *setting, *org;
	json_t *mounts, *scratch, *roots, *ro_roots;
	json_t *all; /* of both */
	struct err *e;
};

/* Absolute, and written in one way only. */
static bool plain(const char *path)
{
	size_t n = strlen(path);
	return path[0] == '/' && n > 1 && path[n - 1] != '/' && strstr(path, "//") == NULL &&
	    strstr(path, "/./") == NULL && strstr(path, "/../") == NULL && !str_ends(path, "/.") &&
	    !str_ends(path, "/..");
}

static bool within(const char *path, const char *dir)
{
	size_t n = strlen(dir);
	return strncmp(path, dir, n) == 0 && (path[n] == '/' || path[n] == '\0');
}

bool layout_root(const char *setting, const char *org, const char *host, char *root, size_t size)
{
	struct str rest = str_of(setting), one, who;
	while (str_cut(&rest, ' ', &one)) {
		if (!str_cut(&one, '=', &who) || !str_eq(who, org) || one.n >= size)
			continue;
		memcpy(root, one.p, one.n);
		root[one.n] = '\0';
		if (within(host, root))
			return true;
	}
	return false;
}

static void bad(struct job *j, const char *field, const char *why)
{
	err_detail_(j->e, ERR_BAD_REQUEST, field, "`%s` %s", field, why);
}

static void taken(struct job *j, const char *field, const char *at)
{
	size_t i;
	json_t *v;
	json_array_foreach(j->all, i, v)
		if (strcmp(json_string_value(v), at) == 0)
			bad(j, field, "is the place of another mount.");
}

static void host_of(struct job *j, const char *field, const char *host, const char *at, bool writable)
{
	char root[PATH_MAX], at_field[ERR_PARAM_MAX];
	(void)snprintf(at_field, sizeof at_field, "%.80s.hostPath", field);
	if (!plain(host))
		bad(j, at_field, "must be an absolute path without `.`, `..` and doubled slashes.");
	else if (!layout_root(j->setting, j->org, host, root, sizeof root))
		bad(j, at_field, "is in no directory that this deployment lists for the org.");
	else
		js_push(j->mounts,
		    js_pack("{s:s,s:s,s:s,s:b}", "at", at, "host", host, "root", root, "ro", !writable));
}

static void one(struct job *j, const char *field, const json_t *m, const char *usual, bool writable)
{
	const char *at = js_str_or(m, "path", usual), *host = js_str(m, "hostPath");
	char sub[ERR_PARAM_MAX];
	(void)snprintf(sub, sizeof sub, "%.80s.path", field);
	if (!plain(at) || !within(at, DRIVER_MNT) || strcmp(at, DRIVER_MNT) == 0 || strlen(at) >= AT_MAX)
		bad(j, sub, "must be a plain path below /mnt.");
	taken(j, sub, at);
	(void)snprintf(sub, sizeof sub, "%.80s.hostPath", field);
	if (host != NULL)
		host_of(j, field, host, at, writable);
	else if (writable)
		js_push(j->scratch, json_string(at));
	else
		bad(j, sub, "is needed: what cannot be written has to come from somewhere.");
	js_push(writable ? j->roots : j->ro_roots, json_string(at));
	js_push(j->all, json_string(at));
}

static void skill(struct job *j, const json_t *skills, size_t i)
{
	static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-";
	const json_t *s = json_array_get(skills, i);
	const char *id = js_str_or(s, "id", "");
	char field[ERR_PARAM_MAX], sub[ERR_PARAM_MAX], at[AT_MAX];
	(void)snprintf(field, sizeof field, "mounts.skills[%zu]", i);
	(void)snprintf(sub, sizeof sub, "%.80s.id", field);
	if (!str_only(id, letters) || strstr(id, "..") != NULL || strcmp(id, ".") == 0 ||
	    strlen(id) > ID_LONGEST) {
		bad(j, sub, "must be letters, digits, `_`, `.` and `-`, without `..`.");
		id = "?";
	}
	for (size_t k = 0; k < i; k++)
		if (strcmp(js_str_or(json_array_get(skills, k), "id", ""), id) == 0)
			bad(j, sub, "is the id of another skill.");
	(void)snprintf(at, sizeof at, "/mnt/skills/%s", id);
	one(j, field, s, at, false);
}

/* What stands inside another one would be hidden by it, or be written through it. */
static void nesting(struct job *j, const json_t *mounts)
{
	const char *outputs = js_str_or(js_get(mounts, "outputs"), "path", parts[0].at);
	const char *scratch = js_str_or(js_get(mounts, "scratch"), "path", parts[1].at);
	size_t i, k;
	json_t *a, *b;
	json_array_foreach(j->all, i, a) {
		json_array_foreach(j->all, k, b) {
			const char *in = json_string_value(a), *out = json_string_value(b);
			if (strcmp(in, out) == 0 || !within(in, out))
				continue;
			bool both = strcmp(in, scratch) == 0 && strcmp(out, outputs) == 0;
			bad(j, both ? "mounts.scratch.path" : "mounts",
			    both ? "must not be inside `outputs`." : "has a mount inside another one.");
		}
	}
}

json_t *layout_check(const char *setting, const char *org, const json_t *mounts, struct err *e)
{
	auto_json json_t *checked = js_pack("{s:s,s:o,s:o,s:o,s:o}", "workdir", "", "mounts", json_array(),
	    "scratch", json_array(), "roots", json_array(), "roRoots", json_array());
	auto_json json_t *all = json_array();
	struct job j = { setting, org, json_object_get(checked, "mounts"),
		json_object_get(checked, "scratch"), json_object_get(checked, "roots"),
		json_object_get(checked, "roRoots"), all, e };
	const json_t *skills = js_get(mounts, "skills");
	if (js_get(mounts, "outputs") == NULL)
		bad(&j, "mounts.outputs", "is needed in a layout of mounts.");
	for (size_t i = 0; i < PARTS; i++) {
		char field[ERR_PARAM_MAX];
		const json_t *m = js_get(mounts, parts[i].name);
		(void)snprintf(field, sizeof field, "mounts.%s", parts[i].name);
		if (m != NULL)
			one(&j, field, m, parts[i].at, parts[i].writable);
	}
	for (size_t i = 0; i < json_array_size(skills) && i < SKILLS_MAX; i++)
		skill(&j, skills, i);
	if (json_array_size(skills) > SKILLS_MAX)
		bad(&j, "mounts.skills", "holds at most 20 skills.");
	nesting(&j, mounts);
	if (e->code != ERR_NONE)
		return NULL;
	js_set(checked, "workdir", json_incref(json_array_get(j.roots, 0)));
	return steal(checked);
}

static void strings(const json_t *list, const char **out)
{
	size_t i, n = 0;
	json_t *v;
	json_array_foreach(list, i, v)
		if (n < DRIVER_MOUNTS_MAX - 1)
			out[n++] = json_string_value(v);
	out[n] = NULL;
}

void layout_read(const json_t *checked, struct layout *out)
{
	size_t i;
	json_t *m;
	out->n_mounts = 0;
	json_array_foreach(js_get(checked, "mounts"), i, m)
		if (out->n_mounts < DRIVER_MOUNTS_MAX)
			out->mounts[out->n_mounts++] = (struct driver_mount){ .at = js_str_or(m, "at", ""),
				.host = js_str_or(m, "host", ""),
				.root = js_str_or(m, "root", ""),
				.read_only = js_bool(m, "ro", true) };
	strings(js_get(checked, "scratch"), out->scratch);
	strings(js_get(checked, "roots"), out->roots);
	strings(js_get(checked, "roRoots"), out->ro_roots);
}
