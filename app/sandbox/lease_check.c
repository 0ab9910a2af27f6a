#include "sandbox/lease_check.h"
#include <stdio.h>
#include <string.h>

#include "base/js.h"
#include "base/str.h"
#include "sandbox/image.h"

enum { TTL_MIN_S = 10, ENV_NAMES_MAX = 200, ENV_BYTES_MAX = 128 * 1024 };

/* SBX-1. The other classes need an image and a project's volume. */
static const struct {
	const char *name;
	long long ttl_s;
	bool here;
} classes[] = { { "exec", 900, true }, { "dev", 14400, false }, { "desktop", 14400, false } };

static int check_class(const struct lease_want *w, struct lease_terms *t, struct err *e)
{
	const char *name = w->class == NULL ? "exec" : w->class;
	for (size_t i = 0; i < sizeof classes / sizeof classes[0]; i++) {
		if (strcmp(classes[i].name, name) != 0)
			continue;
		if (!classes[i].here)
			return err_field(e, ERR_BAD_REQUEST, "class",
			    "Class \"%s\" needs an image and a volume, which this deployment does not have; "
			    "ask for \"exec\".",
			    name);
		t->class = classes[i].name;
		t->ttl_s = w->ttl_s == 0 ? classes[i].ttl_s : w->ttl_s;
		return 0;
	}
	return err_field(e, ERR_BAD_REQUEST, "class", "`class` must be one of exec, dev, desktop.");
}

static int check_absent(const struct lease_want *w, struct err *e)
{
	if (w->project != NULL)
		return err_field(e, ERR_BAD_REQUEST, "project",
		    "A project needs a volume, which this deployment does not have; leave `project` out.");
	if (w->image != NULL && strcmp(w->image, IMAGE_HOST) != 0)
		return err_field(e, ERR_BAD_REQUEST, "image",
		    "This deployment has no images but \"%s\"; leave `image` out.", IMAGE_HOST);
	if (w->mounts != NULL)
		return err_field(
		    e, ERR_BAD_REQUEST, "mounts", "This deployment mounts nothing; leave `mounts` out.");
	return 0;
}

/* EGR-1: deny-all is what is given when nothing is said, and all that there is. */
static int check_network(const json_t *network, struct err *e)
{
	if (network == NULL)
		return 0;
	const char *mode = js_str_or(network, "mode", "deny-all");
	if (strcmp(mode, "deny-all") != 0)
		return err_field(e, ERR_BAD_REQUEST, "network.mode",
		    "Sandboxes of this deployment have no network; \"%.40s\" cannot be given, only "
		    "\"deny-all\".",
		    mode);
	if (json_array_size(js_get(network, "allowedHosts")) > 0)
		return err_field(e, ERR_BAD_REQUEST, "network.allowedHosts",
		    "Under \"deny-all\" no host can be allowed; leave `allowedHosts` out.");
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

static int check_env(const struct lease_want *w, struct lease_terms *t, struct err *e)
{
	const char *name;
	json_t *v, *env = json_incref((json_t *)(uintptr_t)w->env);
	auto_json json_t *mine = env;
	size_t bytes = 0;
	json_object_foreach(env, name, v) {
		char field[ERR_PARAM_MAX];
		(void)snprintf(field, sizeof field, "env.%.60s", name);
		if (!env_name(name) || strlen(name) > 128)
			return err_field(e, ERR_BAD_REQUEST, field,
			    "A variable's name is letters, digits and \"_\", not beginning with a digit.");
		/* Other names beginning so are accepted and stripped inside (SBX-31); this one would tell a lie. */
		if (strcmp(name, "SANDBOX_TIER") == 0)
			return err_field(e, ERR_BAD_REQUEST, field,
			    "SANDBOX_TIER is set by the sandbox itself; leave it out.");
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
	*t = (struct lease_terms){ .image = IMAGE_HOST, .workdir = "/mnt/data" };
	if (check_class(w, t, e) != 0 || check_absent(w, e) != 0 || check_network(w->network, e) != 0 ||
	    check_env(w, t, e) != 0)
		return -1;
	if (t->ttl_s < TTL_MIN_S || t->ttl_s > most)
		return err_field(
		    e, ERR_BAD_REQUEST, "ttlSec", "`ttlSec` must be between %d and %lld.", TTL_MIN_S, most);
	return check_limits(conf, w, t, e);
}
