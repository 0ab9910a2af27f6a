#include "sandbox/lease_check.h"
#include <stdio.h>
#include <string.h>

#include "base/js.h"
#include "base/str.h"
#include "sandbox/image.h"
#include "sandbox/layout.h"

enum { TTL_MIN_S = 10, ENV_NAMES_MAX = 200, ENV_BYTES_MAX = 128 * 1024 };

/* SBX-1. A desktop needs an image of its own. */
static const struct {
	const char *name;
	long long ttl_s;
	bool here, project;
} classes[] = {
	{ "exec", 900, .here = true },
	{ "dev", 14400, .here = true, .project = true },
	{ "desktop", 14400, .project = true },
};

static int check_class(const struct lease_want *w, long long most, struct lease_terms *t, struct err *e)
{
	const char *name = w->class == NULL ? "exec" : w->class;
	for (size_t i = 0; i < sizeof classes / sizeof classes[0]; i++) {
		if (strcmp(classes[i].name, name) != 0)
			continue;
		if (!classes[i].here)
			return err_field(e, ERR_BAD_REQUEST, "class",
			    "Class \"%s\" needs an image of its own, which this deployment does not have; "
			    "ask for \"exec\" or \"dev\".",
			    name);
		/* SBX-62: a run keeps nothing. */
		if (classes[i].project && w->project == NULL && w->session == NULL)
			return err_field(e, ERR_BAD_REQUEST, "project",
			    "Class \"%s\" needs `project`: it works on the project's volume.", name);
		t->class = classes[i].name;
		t->ttl_s = w->ttl_s != 0 ? w->ttl_s : classes[i].ttl_s < most ? classes[i].ttl_s : most;
		return 0;
	}
	return err_field(e, ERR_BAD_REQUEST, "class", "`class` must be one of exec, dev, desktop.");
}

int lease_project(const char *name, char slug[LEASE_PROJECT_MAX], struct err *e)
{
	if (str_slug(name, slug, LEASE_PROJECT_MAX))
		return 0;
	return err_field(e, ERR_BAD_REQUEST, "project",
	    "`project` must become a slug of 1 to %d letters, digits and dashes.", LEASE_PROJECT_MAX - 1);
}

/* SBX-32: outputs, else the project's volume, else scratch space. */
static int check_places(
    const struct conf *conf, const struct lease_want *w, struct lease_terms *t, struct err *e)
{
	t->workdir = w->project != NULL ? DRIVER_WORK : IMAGE_DATA;
	if (w->project != NULL && lease_project(w->project, t->project, e) != 0)
		return -1;
	if (w->mounts == NULL)
		return 0;
	t->mounts = layout_check(conf_str(conf, "SANDBOX_MOUNT_ROOTS"), w->org, w->mounts, e);
	t->workdir = js_str_or(t->mounts, "workdir", IMAGE_DATA);
	return t->mounts == NULL ? -1 : 0;
}

static int check_absent(const struct lease_want *w, struct err *e)
{
	if (w->image != NULL && strcmp(w->image, IMAGE_HOST) != 0)
		return err_field(e, ERR_BAD_REQUEST, "image",
		    "This deployment has no images but \"%s\"; leave `image` out.", IMAGE_HOST);
	return 0;
}

bool lease_unisolated(const struct conf *conf)
{
	return strcmp(conf_str(conf, "SANDBOX_DRIVER"), "process") == 0 &&
	    conf_bool(conf, "SANDBOX_ALLOW_UNISOLATED");
}

/* DRV-5: what nothing enforces is refused by name, also where less would be asked than everybody gets. */
static int check_unisolated(const struct lease_want *w, struct err *e)
{
	static const char why[] =
	    "Sandboxes of this deployment are not isolated at all (SANDBOX_DRIVER=process)";
	const char *mode = js_str_or(w->network, "mode", "allow-all"), *name;
	const json_t *v;
	char field[ERR_PARAM_MAX];
	const char *kept = w->project != NULL ? "project"
	    : w->state_of != NULL             ? "session"
	    : w->mounts != NULL               ? "mounts"
					      : NULL;
	if (kept != NULL)
		return err_field(
		    e, ERR_BAD_REQUEST, kept, "%s and mount nothing; leave `%s` out.", why, kept);
	if (w->runtime != NULL)
		return err_field(
		    e, ERR_BAD_REQUEST, "runtime", "%s and have no runtime; leave `runtime` out.", why);
	json_object_foreach((json_t *)(uintptr_t)w->limits, name, v) {
		if (json_is_null(v))
			continue;
		(void)snprintf(field, sizeof field, "limits.%.60s", name);
		return err_field(
		    e, ERR_BAD_REQUEST, field, "%s and nothing enforces `%s`; leave it out.", why, field);
	}
	if (strcmp(mode, "allow-all") != 0)
		return err_field(e, ERR_BAD_REQUEST, "network.mode",
		    "%s and have the host's network; \"%.40s\" cannot be given, only \"allow-all\".", why,
		    mode);
	if (json_array_size(js_get(w->network, "allowedHosts")) > 0)
		return err_field(e, ERR_BAD_REQUEST, "network.allowedHosts",
		    "%s and nothing enforces `network.allowedHosts`; leave it out.", why);
	return 0;
}

static bool env_name(const char *s)
{
	static const char first[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_";
	return s[0] != '\0' && strchr(first, s[0]) != NULL &&
	    strspn(s,
		"0123456789"
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_") == strlen(s);
}

/* What the sandbox itself sets: asked for, it would not be had. own: the boundary's; none where nothing isolates. */
static int check_own(const json_t *own, const char *name, const char *field, struct err *e)
{
	/* Other names beginning so are accepted and stripped inside (SBX-31); this one would tell a lie. */
	if (strcmp(name, "SANDBOX_TIER") == 0)
		return err_field(
		    e, ERR_BAD_REQUEST, field, "SANDBOX_TIER is set by the sandbox itself; leave it out.");
	if (js_get(own, name) != NULL)
		return err_field(e, ERR_BAD_REQUEST, field,
		    "%s leads to the egress boundary and is set by the sandbox itself; leave it out. A "
		    "command's "
		    "own `env` may change it.",
		    name);
	return 0;
}

static int check_env(const struct lease_want *w, bool bare, struct lease_terms *t, struct err *e)
{
	const char *name;
	auto_json json_t *own = json_object();
	if (!bare)
		network_env(own);
	json_t *v, *env = json_incref((json_t *)(uintptr_t)w->env);
	auto_json json_t *mine = env;
	size_t bytes = 0;
	json_object_foreach(env, name, v) {
		char field[ERR_PARAM_MAX];
		(void)snprintf(field, sizeof field, "env.%.60s", name);
		if (!env_name(name) || strlen(name) > 128)
			return err_field(e, ERR_BAD_REQUEST, field,
			    "A variable's name is letters, digits and \"_\", not beginning with a digit.");
		if (check_own(own, name, field, e) != 0)
			return -1;
		if (!json_is_string(v))
			return err_field(e, ERR_BAD_REQUEST, field, "`%s` must be a string.", field);
		bytes += strlen(name) + json_string_length(v) + 2;
	}
	if (json_object_size(env) > ENV_NAMES_MAX || bytes > ENV_BYTES_MAX)
		return err_field(e, ERR_BAD_REQUEST, "env", "`env` holds at most %d variables and %d bytes.",
		    ENV_NAMES_MAX, ENV_BYTES_MAX);
	t->env = env;
	return 0;
}

static int limit(const json_t *asked, const char *name, long long def, long long least, long long most,
    json_t *out, struct err *e)
{
	char field[ERR_PARAM_MAX];
	long long v = js_int(asked, name, def);
	(void)snprintf(field, sizeof field, "limits.%s", name);
	if (v < least || v > most)
		return err_field(
		    e, ERR_BAD_REQUEST, field, "`%s` must be between %lld and %lld.", field, least, most);
	js_set(out, name, json_integer(v));
	return 0;
}

/* Asking for more than a lease may have is refused, not cut. Scratch space is memory: filling it must leave room to run. */
static int check_limits(
    const struct conf *conf, const struct lease_want *w, struct lease_terms *t, struct err *e)
{
	auto_json json_t *out = json_object();
	const json_t *asked = w->limits, *cpus = js_get(asked, "cpus");
	double most = (double)conf_int(conf, "SANDBOX_MAX_CPUS");
	double n = cpus == NULL ? (double)conf_int(conf, "SANDBOX_CPUS") : json_number_value(cpus);
	long long disk = conf_int(conf, "SANDBOX_DISK_MB"),
		  memory = js_int(asked, "memoryMb", conf_int(conf, "SANDBOX_MEMORY_MB"));
	long long room = memory / 4 * 3;
	if (limit(asked, "memoryMb", memory, 64, conf_int(conf, "SANDBOX_MAX_MEMORY_MB"), out, e) != 0 ||
	    limit(asked, "pids", conf_int(conf, "SANDBOX_PIDS"), 16, conf_int(conf, "SANDBOX_MAX_PIDS"), out,
		e) != 0 ||
	    limit(asked, "diskMb", disk < room ? disk : room, 16, conf_int(conf, "SANDBOX_MAX_DISK_MB"), out,
		e) != 0)
		return -1;
	if (js_int(out, "diskMb", 0) > room)
		return err_field(e, ERR_BAD_REQUEST, "limits.diskMb",
		    "`limits.diskMb` counts as memory and is at most three quarters of `limits.memoryMb`, "
		    "here %lld.",
		    room);
	if (!(n >= 0.1 && n <= most))
		return err_field(
		    e, ERR_BAD_REQUEST, "limits.cpus", "`limits.cpus` must be between 0.1 and %.0f.", most);
	js_set(out, "cpuMilli", json_integer((json_int_t)(n * 1000 + 0.5)));
	t->limits = steal(out);
	return 0;
}

int lease_check(const struct conf *conf, const struct lease_want *w, struct lease_terms *t, struct err *e)
{
	long long most = conf_int(conf, "SANDBOX_MAX_TTL_S");
	*t = (struct lease_terms){ .image = IMAGE_HOST, .workdir = IMAGE_DATA };
	bool bare = lease_unisolated(conf);
	if (check_class(w, most, t, e) != 0 || check_absent(w, e) != 0 ||
	    (bare && check_unisolated(w, e) != 0) || check_env(w, bare, t, e) != 0)
		return -1;
	if (t->ttl_s < TTL_MIN_S || t->ttl_s > most)
		return err_field(
		    e, ERR_BAD_REQUEST, "ttlSec", "`ttlSec` must be between %d and %lld.", TTL_MIN_S, most);
	if (bare) {
		t->limits = json_object();
		t->network = network_open();
		return 0;
	}
	if (network_check(conf, w->network, "network.", &t->network, e) != 0)
		return -1;
	auto_json json_t *policy = t->network.policy;
	t->network.policy = NULL;
	if (check_limits(conf, w, t, e) != 0)
		return -1;
	auto_json json_t *limits = t->limits;
	t->limits = NULL;
	if (check_places(conf, w, t, e) != 0)
		return -1;
	t->network.policy = steal(policy);
	t->limits = steal(limits);
	return 0;
}
