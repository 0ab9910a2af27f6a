#include "sandbox/driver/oci_ids.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/capability.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/str.h"
#include "io/file.h"

enum { MAPS_MAX = 8, MAP_TEXT = 512 };

/* What building a sandbox takes; those of them that sandboxd has (systemd/gatehouse-sandboxd.service). */
static const int caps[] = { CAP_SYS_ADMIN, CAP_NET_ADMIN, CAP_SETUID, CAP_SETGID, CAP_CHOWN, CAP_DAC_OVERRIDE,
	CAP_SYS_PTRACE, CAP_SYS_CHROOT, CAP_KILL, CAP_FOWNER };

int oci_ids_enter(const void *arg)
{
	const uid_t id = *(const uid_t *)arg;
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[2], keep[2] = { { 0 } };
	if (syscall(SYS_capget, &head, data) != 0)
		return -1;
	for (size_t i = 0; i < sizeof caps / sizeof caps[0]; i++) {
		uint32_t bit = 1U << (caps[i] % 32) & data[caps[i] / 32].permitted;
		keep[caps[i] / 32].permitted |= bit;
		keep[caps[i] / 32].effective |= bit;
		keep[caps[i] / 32].inheritable |= bit;
	}
	/* The C library would ask all threads to follow; there is one. */
	if (prctl(PR_SET_KEEPCAPS, 1) != 0 || syscall(SYS_setgroups, 0, NULL) != 0 ||
	    syscall(SYS_setresgid, id, id, id) != 0 || syscall(SYS_setresuid, id, id, id) != 0 ||
	    syscall(SYS_capset, &head, keep) != 0)
		return -1;
	for (size_t i = 0; i < sizeof caps / sizeof caps[0]; i++)
		if ((keep[caps[i] / 32].permitted & 1U << (caps[i] % 32)) != 0 &&
		    prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, caps[i], 0, 0) != 0)
			return -1;
	return 0;
}

int oci_ids_links(const char *dir, struct err *e)
{
	static const char *const names[] = { "newuidmap", "newgidmap" };
	char self[PATH_MAX], path[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
	if (n < 0 || file_mkdirs(dir, 0755, e) != 0)
		return err_set(e, ERR_UNAVAILABLE, "The directory for runsc's helpers cannot be made.");
	self[n] = '\0';
	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
		(void)snprintf(path, sizeof path, "%s/%s", dir, names[i]);
		(void)unlink(path); /* of an earlier version */
		if (symlink(self, path) != 0)
			return err_set(
			    e, ERR_UNAVAILABLE, "A helper of runsc cannot be made: %s.", strerror(errno));
	}
	return 0;
}

/* PID (inside, outside, count)...: one line each into the process's map. */
static int write_map(const char *file, int argc, char **argv)
{
	char path[64], text[MAP_TEXT];
	long long pid, v;
	size_t n = 0;
	if (argc < 5 || (argc - 2) % 3 != 0 || (argc - 2) / 3 > MAPS_MAX ||
	    !str_int(argv[1], 1, INT_MAX, &pid))
		return -1;
	for (int i = 2; i < argc; i++) {
		if (!str_int(argv[i], 0, UINT32_MAX, &v))
			return -1;
		n += (size_t)snprintf(text + n, sizeof text - n, "%lld%c", v, (i - 2) % 3 == 2 ? '\n' : ' ');
	}
	(void)snprintf(path, sizeof path, "/proc/%lld/%s", pid, file);
	auto_fd int fd = open(path, O_WRONLY | O_CLOEXEC);
	return fd >= 0 && write(fd, text, n) == (ssize_t)n ? 0 : -1; /* the kernel takes a map whole */
}

bool oci_ids_main(int argc, char **argv, int *rc)
{
	const char *name = argc == 0 ? "" : argv[0];
	const char *base = strrchr(name, '/') == NULL ? name : strrchr(name, '/') + 1;
	bool uid = strcmp(base, "newuidmap") == 0;
	if (!uid && strcmp(base, "newgidmap") != 0)
		return false;
	*rc = write_map(uid ? "uid_map" : "gid_map", argc, argv) == 0 ? 0 : 1;
	if (*rc != 0)
		(void)fprintf(stderr, "%s: the map cannot be written: %s\n", base, strerror(errno));
	return true;
}
