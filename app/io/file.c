#include "io/file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/file_err.h"

enum { CHUNK_BYTES = 16 * 1024 };

int file_failed(const char *act, struct err *e)
{
	int why = errno;
	enum err_code code = ERR_INTERNAL;
	if (why == ENOENT)
		code = ERR_NOT_FOUND;
	else if (why == ENOSPC || why == EDQUOT || why == EMFILE || why == ENFILE || why == ENOMEM)
		code = ERR_UNAVAILABLE;
	return err_set(e, code, "%s: %s.", act, strerrordesc_np(why));
}

int file_read(const char *path, struct buf *out, struct err *e)
{
	static const char act[] = "A file could not be read";
	auto_fd int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
	if (fd < 0)
		return file_failed(act, e);
	char chunk[CHUNK_BYTES];
	for (;;) {
		ssize_t n = read(fd, chunk, sizeof chunk);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return file_failed(act, e);
		if (n == 0)
			return 0;
		if (buf_add(out, chunk, (size_t)n) != 0)
			return err_set(e, ERR_TOO_LARGE, "A file is larger than %zu bytes.", out->max);
	}
}

int fd_write_all(int fd, const void *p, size_t n)
{
	const char *from = p;
	while (n > 0) {
		ssize_t put = write(fd, from, n);
		if (put < 0 && errno == EINTR)
			continue;
		if (put < 0)
			return -1;
		from += put;
		n -= (size_t)put;
	}
	return 0;
}

/* Length of the directory part of path, its last '/' included; 0 when there is none. */
static size_t dir_len(const char *path)
{
	const char *slash = strrchr(path, '/');
	return slash == NULL ? 0 : (size_t)(slash - path) + 1;
}

/* The rename itself must survive a power cut. */
static int sync_dir(const char *path)
{
	char dir[PATH_MAX];
	(void)snprintf(dir, sizeof dir, "%.*s", (int)dir_len(path), path);
	auto_fd int fd = open(dir[0] == 0 ? "." : dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return fd < 0 ? -1 : fsync(fd);
}

static int fill(int fd, const void *p, size_t n, mode_t mode)
{
	if (fd_write_all(fd, p, n) != 0 || fchmod(fd, mode) != 0)
		return -1;
	return fsync(fd);
}

int file_write(const char *path, const void *p, size_t n, mode_t mode, struct err *e)
{
	static const char act[] = "A file could not be written";
	char tmp[PATH_MAX];
	size_t dir = dir_len(path);
	if ((size_t)snprintf(tmp, sizeof tmp, "%.*s.%s.XXXXXX", (int)dir, path, path + dir) >= sizeof tmp) {
		errno = ENAMETOOLONG;
		return file_failed(act, e);
	}
	auto_fd int fd = mkostemp(tmp, O_CLOEXEC);
	if (fd < 0)
		return file_failed(act, e);
	if (fill(fd, p, n, mode) != 0 || rename(tmp, path) != 0) {
		(void)file_failed(act, e);
		(void)unlink(tmp);
		return -1;
	}
	return sync_dir(path) == 0 ? 0 : file_failed(act, e);
}

int file_mkdirs(const char *path, mode_t mode, struct err *e)
{
	static const char act[] = "A directory could not be made";
	char part[PATH_MAX];
	struct stat st;
	if ((size_t)snprintf(part, sizeof part, "%s", path) >= sizeof part) {
		errno = ENAMETOOLONG;
		return file_failed(act, e);
	}
	for (char *slash = strchr(part + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
		*slash = 0;
		if (mkdir(part, mode) != 0 && errno != EEXIST)
			return file_failed(act, e);
		*slash = '/';
	}
	if (mkdir(part, mode) != 0 && errno != EEXIST)
		return file_failed(act, e);
	if (stat(part, &st) != 0)
		return file_failed(act, e);
	if (S_ISDIR(st.st_mode))
		return 0;
	errno = ENOTDIR;
	return file_failed(act, e);
}

int file_tmpdir(const char *parent, char *out, size_t size, struct err *e)
{
	static const char act[] = "A temporary directory could not be made";
	if ((size_t)snprintf(out, size, "%s/gh.XXXXXX", parent) >= size) {
		errno = ENAMETOOLONG;
		return file_failed(act, e);
	}
	return mkdtemp(out) == NULL ? file_failed(act, e) : 0;
}
