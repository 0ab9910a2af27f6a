#include "sandbox/driver/oci_config.h"

#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include "base/js.h"
#include "base/mem.h"
#include "base/str.h"
#include "sandbox/driver/oci_seccomp.h"
#include "sandbox/image.h"

enum {
	MIB = 1 << 20,
	SHM_MAX_MB = 1024, /* SBX-30: what a browser needs */
	INODES_PER_MIB =
	    256, /* one for a page, so that empty files (about 1 KiB of memory each) add a quarter at most */
	CPU_PERIOD_US = 100000,
	/* Threads and ptrace stubs of gVisor's kernel are processes of the host too. */
	GVISOR_PIDS = 512,
	OOM_SCORE = 100, /* before the host's own services; the box makes its commands go before itself */
};

const struct oci_rlimit oci_rlimits[OCI_RLIMITS] = {
	{ "RLIMIT_CORE", RLIMIT_CORE, 0 },
	{ "RLIMIT_NOFILE", RLIMIT_NOFILE, 65536 },
	{ "RLIMIT_NPROC", RLIMIT_NPROC, 65536 }, /* the pids limit is the one that counts */
	{ "RLIMIT_MEMLOCK", RLIMIT_MEMLOCK, 64LL * MIB },
	{ "RLIMIT_MSGQUEUE", RLIMIT_MSGQUEUE, 819200 },
	{ "RLIMIT_STACK", RLIMIT_STACK, 8LL * MIB },
};

/* Views of the kernel that are not namespaced, as container engines mask them. */
static const char *const masked[] = { "/proc/acpi", "/proc/asound", "/proc/interrupts", "/proc/kcore",
	"/proc/keys", "/proc/latency_stats", "/proc/sched_debug", "/proc/scsi", "/proc/timer_list",
	"/proc/timer_stats", NULL };
static const char *const read_only[] = { "/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys",
	"/proc/sysrq-trigger", NULL };

static json_t *strings(const char *const *list)
{
	json_t *a = json_array();
	for (; *list != NULL; list++)
		js_push(a, json_string(*list));
	return a;
}

/* options: separated by commas, as in fstab */
static void mount_at(
    json_t *mounts, const char *to, const char *type, const char *source, const char *options)
{
	json_t *list = json_array();
	struct str rest = str_of(options), one;
	while (str_cut(&rest, ',', &one))
		js_push(list, json_stringn(one.p, one.n));
	js_push(mounts,
	    js_pack("{s:s,s:s,s:s,s:o}", "destination", to, "type", type, "source", source, "options", list));
}

/* Memory of the sandbox: a bound on bytes and on files, so that a writer is told ENOSPC and nothing is killed. (gVisor
 * counts only the bytes.) */
static void scratch(json_t *mounts, const char *to, long long size_mb, const char *options)
{
	char text[160];
	(void)snprintf(text, sizeof text, "nosuid,nodev,size=%lldm,nr_inodes=%lld,%s", size_mb,
	    size_mb * INODES_PER_MIB, options);
	mount_at(mounts, to, "tmpfs", "tmpfs", text);
}

/* What was placed for it. It was made nosuid and nodev, and read-only where that is meant. */
static void placed(json_t *mounts, const struct oci_config *c, const char *name, const char *to)
{
	char from[BUNDLE_PATH];
	(void)snprintf(from, sizeof from, "%s/%s", c->placed, name);
	mount_at(mounts, to, "bind", from, "bind,rw,nosuid,nodev");
}

/* As what id the box and its commands run, inside. */
static uid_t agent_id(const struct oci_config *c)
{
	return IMAGE_UID + (c->userns ? 0 : c->uid_base);
}

static json_t *mounts(const struct oci_config *c)
{
	json_t *m = json_array();
	const char *bind = "bind,ro,nosuid,nodev";
	char agent[64];
	(void)snprintf(agent, sizeof agent, "mode=0755,uid=%u,gid=%u", agent_id(c), agent_id(c));
	mount_at(m, "/proc", "proc", "proc", "nosuid,noexec,nodev");
	mount_at(m, "/dev", "tmpfs", "tmpfs", "nosuid,noexec,strictatime,mode=755,size=64k");
	mount_at(m, "/dev/pts", "devpts", "devpts", "nosuid,noexec,newinstance,ptmxmode=0666,mode=0620");
	long long shm_mb = c->limits.memory_mb / 2;
	scratch(m, "/dev/shm", shm_mb < SHM_MAX_MB ? shm_mb : SHM_MAX_MB, "noexec,mode=1777");
	mount_at(m, "/usr", "bind", "/usr", bind);
	for (const char *const *e = c->etc; *e != NULL; e++)
		mount_at(m, *e, "bind", *e, bind);
	if (!c->userns) {
		mount_at(m, "/etc/passwd", "bind", c->passwd, bind);
		mount_at(m, "/etc/group", "bind", c->group, bind);
	}
	/* The disk limit is the sum of what can be written and does not outlive it; half of it is for the work itself. */
	if (c->scratch == NULL)
		scratch(m, IMAGE_DATA, c->limits.disk_mb / 2, agent);
	else
		placed(m, c, OCI_PLACES, DRIVER_MNT);
	for (const char *const *to = c->scratch; to != NULL && *to != NULL; to++)
		scratch(m, *to, c->limits.disk_mb / 2 / DRIVER_SCRATCH_MAX, agent);
	scratch(m, "/tmp", c->limits.disk_mb / 4, "mode=1777");
	bool state = false;
	for (size_t i = 0; i < c->n_mounts; i++) {
		char name[32];
		(void)snprintf(name, sizeof name, OCI_PLACED, i);
		placed(m, c, name, c->mounts[i].at);
		state = state || strcmp(c->mounts[i].at, DRIVER_STATE) == 0;
	}
	if (!state) {
		scratch(m, DRIVER_STATE, c->limits.disk_mb / 8, agent);
		scratch(m, IMAGE_HOME, c->limits.disk_mb / 8, agent);
	}
	mount_at(m, "/run/gatehouse", "bind", c->socket_dir, "bind,rw,nosuid,nodev,noexec");
	return m;
}

static json_t *process(const struct oci_config *c)
{
	static const char *const sets[] = { "bounding", "effective", "inheritable", "permitted", "ambient" };
	json_t *caps = json_object(), *limits = json_array();
	for (size_t i = 0; i < sizeof sets / sizeof sets[0]; i++)
		js_set(caps, sets[i], json_array());
	for (int i = 0; i < OCI_RLIMITS; i++) {
		const struct oci_rlimit *r = &oci_rlimits[i];
		json_int_t v = r->want < c->rlimit_max[i] ? r->want : c->rlimit_max[i];
		js_push(limits, js_pack("{s:s,s:I,s:I}", "type", r->name, "soft", v, "hard", v));
	}
	static const char *const box[] = { IMAGE_INIT, NULL };
	return js_pack("{s:b,s:{s:I,s:I,s:i},s:o,s:[s],s:s,s:o,s:b,s:o,s:i}", "terminal", 0, "user", "uid",
	    (json_int_t)agent_id(c), "gid", (json_int_t)agent_id(c), "umask", 022, "args",
	    strings(c->args == NULL ? box : c->args), "env", "PATH=/usr/local/bin:/usr/bin:/bin", "cwd", "/",
	    "capabilities", caps, "noNewPrivileges", 1, "rlimits", limits, "oomScoreAdj", OOM_SCORE);
}

static json_t *namespaces(const struct oci_config *c)
{
	static const char *const own[] = { "pid", "mount", "ipc", "uts", "cgroup" };
	json_t *n = json_array();
	for (size_t i = 0; i < sizeof own / sizeof own[0]; i++)
		js_push(n, js_pack("{s:s}", "type", own[i]));
	if (c->userns)
		js_push(n, js_pack("{s:s}", "type", "user"));
	if (c->netns != NULL)
		js_push(n, js_pack("{s:s,s:s}", "type", "network", "path", c->netns));
	else
		js_push(n, js_pack("{s:s}", "type", "network"));
	return n;
}

static json_t *resources(const struct oci_config *c)
{
	json_int_t bytes = c->limits.memory_mb * MIB, quota = c->limits.cpu_milli * (CPU_PERIOD_US / 1000);
	json_t *memory = js_pack("{s:I}", "limit", bytes);
	/* Memory and swap together: no swap beyond the limit. */
	if (c->swap)
		js_set(memory, "swap", json_integer(bytes));
	return js_pack("{s:o,s:{s:I,s:i},s:{s:I},s:[{s:b,s:s}]}", "memory", memory, "cpu", "quota", quota,
	    "period", CPU_PERIOD_US, "pids", "limit",
	    (json_int_t)(c->limits.pids + (c->kernel ? GVISOR_PIDS : 0)), "devices", "allow", 0, "access",
	    "rwm");
}

static json_t *id_map(const struct oci_config *c)
{
	return js_pack(
	    "[{s:i,s:I,s:i}]", "containerID", 0, "hostID", (json_int_t)c->uid_base, "size", BUNDLE_UID_RANGE);
}

json_t *oci_config(const struct oci_config *c)
{
	json_t *linux_part = js_pack("{s:s,s:o,s:o,s:o,s:o}", "cgroupsPath", c->cgroup, "namespaces",
	    namespaces(c), "resources", resources(c), "maskedPaths", strings(masked), "readonlyPaths",
	    strings(read_only));
	if (c->userns) {
		js_set(linux_part, "uidMappings", id_map(c));
		js_set(linux_part, "gidMappings", id_map(c));
	}
	/* gVisor's kernel answers the sandbox's system calls itself and filters its own towards the host. */
	if (!c->kernel)
		js_set(linux_part, "seccomp", seccomp_profile());
	return js_pack("{s:s,s:s,s:{s:s,s:b},s:o,s:o,s:o}", "ociVersion", "1.0.2", "hostname", "sandbox",
	    "root", "path", c->root, "readonly", 1, "process", process(c), "mounts", mounts(c), "linux",
	    linux_part);
}
