#include "t.h"

#include "boxtest.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/js.h"
#include "io/file.h"

static const char *const runsc_places[] = { "/usr/bin/runsc", "/usr/local/bin/runsc", "/usr/sbin/runsc",
	NULL };

const char *boxtest_runsc(void)
{
	for (const char *const *p = runsc_places; *p != NULL; p++)
		if (access(*p, X_OK) == 0)
			return *p;
	return NULL;
}

static json_t *bind_at(const char *place, const char *from, const char *how)
{
	return js_pack("{s:s, s:s, s:s, s:[s, s]}", "destination", place, "type", "bind", "source", from,
	    "options", "rbind", how);
}

/* The host's /usr under a root that has nothing else, and the test's directories where they are on the host. */
static json_t *mounts(const struct boxtest *t, const char *box)
{
	static const char *const own[] = { "run", "work", "two", "out" };
	json_t *list = json_array();
	js_push(list, js_pack("{s:s, s:s, s:s}", "destination", "/proc", "type", "proc", "source", "proc"));
	js_push(list, js_pack("{s:s, s:s, s:s}", "destination", "/tmp", "type", "tmpfs", "source", "tmpfs"));
	js_push(list, bind_at("/usr", "/usr", "ro"));
	js_push(list, bind_at("/etc", "/etc", "ro"));
	js_push(list, bind_at("/box", box, "ro"));
	for (size_t i = 0; i < sizeof own / sizeof own[0]; i++) {
		char path[128];
		(void)snprintf(path, sizeof path, "%s/%s", t->dir, own[i]);
		js_push(list, bind_at(path, path, "rw"));
	}
	return list;
}

static void write_bundle(const struct boxtest *t, const char *bundle, const char *box)
{
	static const char *const links[] = { "bin", "lib", "lib64", "sbin" };
	char path[160], target[32];
	struct err e = { 0 };
	auto_buf struct buf text = BUF(16384);
	(void)snprintf(path, sizeof path, "%s/root", bundle);
	assert_int_equal(file_mkdirs(path, 0755, &e), 0);
	for (size_t i = 0; i < sizeof links / sizeof links[0]; i++) {
		(void)snprintf(path, sizeof path, "%s/root/%s", bundle, links[i]);
		(void)snprintf(target, sizeof target, "usr/%s", links[i]);
		assert_int_equal(symlink(target, path), 0);
	}
	auto_json json_t *conf = js_pack("{s:s, s:{s:b, s:{s:i, s:i}, s:[s], s:[s], s:s, s:b}, s:{s:s, s:b}, "
					 "s:s, s:o, s:{s:[{s:s}, {s:s}, {s:s}, {s:s}, {s:s}]}}",
	    "ociVersion", "1.0.2", "process", "terminal", 0, "user", "uid", (int)t->uid, "gid", (int)t->uid,
	    "args", "/box", "env", "HIDDEN=1", "cwd", "/", "noNewPrivileges", 1, "root", "path", "root",
	    "readonly", 1, "hostname", "box", "mounts", mounts(t, box), "linux", "namespaces", "type", "pid",
	    "type", "mount", "type", "ipc", "type", "uts", "type", "network");
	assert_int_equal(js_dump_buf(&text, conf), 0);
	(void)snprintf(path, sizeof path, "%s/config.json", bundle);
	assert_int_equal(file_write(path, text.p, text.n, 0644, &e), 0);
}

void boxtest_exec_runsc(const struct boxtest *t, const char *box, int config, int log)
{
	char bundle[96], state[96], id[32];
	(void)snprintf(bundle, sizeof bundle, "%s/bundle", t->dir);
	(void)snprintf(state, sizeof state, "%s/state", t->dir);
	(void)snprintf(id, sizeof id, "boxtest-%s", t->dir + strlen(t->dir) - 6);
	write_bundle(t, bundle, box);
	if (dup2(config, 0) == 0 && dup2(log, 1) == 1 && dup2(log, 2) == 2)
		(void)execl(boxtest_runsc(), "runsc", "--root", state, "--host-uds=create", "--network=none",
		    "--ignore-cgroups", "run", "-bundle", bundle, id, (char *)0);
	_exit(99);
}
