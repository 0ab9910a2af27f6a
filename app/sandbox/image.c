#include "sandbox/image.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/mem.h"
#include "io/file.h"

enum { PATH_SIZE = 512, COPY_MAX = 64 << 20 };

/* Mount points keep their mode when a tmpfs is mounted on them: runtimes copy it. */
static const struct {
	const char *path;
	mode_t mode;
} dirs[] = {
	{ "/usr", 0755 },
	{ "/etc", 0755 },
	{ "/etc/alternatives", 0755 },
	{ "/etc/fonts", 0755 },
	{ "/etc/java-17-openjdk", 0755 },
	{ "/etc/ssl", 0755 },
	{ "/etc/ssl/certs", 0755 },
	{ "/proc", 0755 },
	{ "/sys", 0755 },
	{ "/dev", 0755 },
	{ "/tmp", 01777 },
	{ "/state", 0755 },
	{ "/mnt", 0755 },
	{ "/mnt/data", 0755 },
	{ "/work", 0755 },
	{ "/run", 0755 },
	{ "/run/gatehouse", 0755 },
	{ "/var", 0755 },
	{ "/home", 0755 },
	{ "/root", 0755 },
	{ "/opt", 0755 },
};

static const struct {
	const char *path, *to;
} links[] = {
	{ "/bin", "usr/bin" },
	{ "/sbin", "usr/sbin" },
	{ "/lib", "usr/lib" },
	{ "/lib64", "usr/lib64" },
	{ "/var/tmp", "../tmp" },
	{ "/var/run", "../run" },
	{ "/etc/os-release", "../usr/lib/os-release" },
	{ "/etc/localtime", "../usr/share/zoneinfo/Etc/UTC" },
	{ "/etc/mtab", "../proc/mounts" },
};

static const struct {
	const char *path, *text;
} files[] = {
	{ "/etc/passwd",
	    "root:x:0:0:root:/root:/usr/sbin/nologin\n"
	    "agent:x:1000:1000:agent:" IMAGE_HOME ":/bin/bash\n"
	    "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n" },
	{ "/etc/group", "root:x:0:\ntty:x:5:\nagent:x:1000:\nnogroup:x:65534:\n" },
	{ "/etc/hosts", "127.0.0.1\tlocalhost sandbox\n::1\tlocalhost ip6-localhost ip6-loopback\n" },
	{ "/etc/hostname", "sandbox\n" },
	{ "/etc/nsswitch.conf",
	    "passwd: files\ngroup: files\nshadow: files\nhosts: files dns\nservices: files\n"
	    "protocols: files\n" },
	/* The boundary's, where it answers (EGR-16); elsewhere nobody listens, and a name fails at once. */
	{ "/etc/resolv.conf", "nameserver 127.0.0.1\noptions timeout:2 attempts:1\n" },
	{ "/etc/shells", "/bin/sh\n/bin/bash\n" },
	{ "/etc/timezone", "Etc/UTC\n" },
	{ "/etc/host.conf", "multi on\n" },
};

/* Copied when the host has them: the loader's cache and tables that programs expect; none can hold a secret. */
static const char *const copies[] = { "/etc/ld.so.cache", "/etc/ssl/openssl.cnf", "/etc/services",
	"/etc/protocols", "/etc/mime.types" };

static const char *const bound[] = {
	"/etc/alternatives", "/etc/fonts", "/etc/ssl/certs",
	"/etc/java-17-openjdk" /* Debian 12's java keeps its security settings there, and does not start without them */
};

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

static int at(char out[PATH_SIZE], const char *dir, const char *path, struct err *e)
{
	if (snprintf(out, PATH_SIZE, "%s%s", dir, path) >= PATH_SIZE)
		return err_set(e, ERR_INTERNAL, "The path of the sandbox root is too long.");
	return 0;
}

static int failed(struct err *e)
{
	return err_set(e, ERR_UNAVAILABLE, "The sandbox root could not be made: %s.", strerror(errno));
}

static int make_dirs(const char *root, struct err *e)
{
	for (size_t i = 0; i < COUNT(dirs); i++) {
		char path[PATH_SIZE];
		if (at(path, root, dirs[i].path, e) != 0)
			return -1;
		if (mkdir(path, 0755) != 0 && errno != EEXIST)
			return failed(e);
		/* Our umask may be strict; sandboxes are other users. */
		if (chmod(path, dirs[i].mode) != 0)
			return failed(e);
	}
	return 0;
}

static int make_links(const char *root, struct err *e)
{
	for (size_t i = 0; i < COUNT(links); i++) {
		char path[PATH_SIZE];
		if (at(path, root, links[i].path, e) != 0)
			return -1;
		if (symlink(links[i].to, path) != 0 && errno != EEXIST)
			return failed(e);
	}
	return 0;
}

static int copy(const char *root, const char *from, const char *to, mode_t mode, struct err *e)
{
	auto_buf struct buf b = BUF(COPY_MAX);
	char path[PATH_SIZE];
	if (at(path, root, to, e) != 0 || file_read(from, &b, e) != 0)
		return -1;
	return file_write(path, buf_c(&b), b.n, mode, e);
}

static int make_files(const char *root, struct err *e)
{
	for (size_t i = 0; i < COUNT(files); i++) {
		char path[PATH_SIZE];
		if (at(path, root, files[i].path, e) != 0 ||
		    file_write(path, files[i].text, strlen(files[i].text), 0644, e) != 0)
			return -1;
	}
	for (size_t i = 0; i < COUNT(copies); i++)
		if (access(copies[i], R_OK) == 0 && copy(root, copies[i], copies[i], 0644, e) != 0)
			return -1;
	return 0;
}

int image_host_make(const char *dir, const char *box_binary, struct image_binds *binds, struct err *e)
{
	struct stat st;
	if (lstat("/bin", &st) != 0 || !S_ISLNK(st.st_mode))
		return err_set(e, ERR_UNAVAILABLE,
		    "This host keeps /bin outside /usr; image \"host\" needs a merged /usr.");
	if (file_mkdirs(dir, 0755, e) != 0)
		return -1;
	if (make_dirs(dir, e) != 0 || make_links(dir, e) != 0 || make_files(dir, e) != 0)
		return -1;
	if (copy(dir, box_binary, IMAGE_INIT, 0755, e) != 0)
		return -1;
	int n = 0;
	for (size_t i = 0; i < COUNT(bound); i++)
		if (stat(bound[i], &st) == 0 && S_ISDIR(st.st_mode))
			binds->path[n++] = bound[i];
	binds->path[n] = NULL;
	return 0;
}
