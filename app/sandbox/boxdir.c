#include "sandbox/boxdir.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "io/file.h"

/* A directory, not a link, that is ours and that nobody else can make names in. */
static bool safe(const char *path)
{
	struct stat st;
	return lstat(path, &st) == 0 && S_ISDIR(st.st_mode) && st.st_uid == geteuid() &&
	    (st.st_mode & 022) == 0;
}

static bool usable(const char *path)
{
	if (path[0] != '/' || strlen(path) > BOXDIR_BASE_MAX)
		return false;
	if (mkdir(path, 0711) != 0 && errno != EEXIST)
		return false;
	return safe(path) && access(path, W_OK | X_OK) == 0;
}

int boxdir_base(const char *const *candidates, int n, char out[BOXDIR_BASE_MAX + 1], struct err *e)
{
	const char *first = NULL;
	for (int i = 0; i < n; i++) {
		const char *c = candidates[i];
		if (c == NULL || c[0] == '\0')
			continue;
		if (first == NULL)
			first = c;
		if (!usable(c))
			continue;
		(void)snprintf(out, BOXDIR_BASE_MAX + 1, "%s", c);
		return 0;
	}
	return err_set(e, ERR_UNAVAILABLE,
	    "No directory for the sandboxes' sockets: \"%.80s\" must be an absolute path of at most %d "
	    "bytes, owned by this "
	    "process and writable by nobody else.",
	    first == NULL ? "" : first, BOXDIR_BASE_MAX);
}

int boxdir_names(const char *setting, char tmp[BOXDIR_PATH_MAX], const char *names[BOXDIR_NAMES])
{
	const char *dir = getenv("TMPDIR");
	if (setting[0] != '\0') {
		names[0] = setting;
		return 1;
	}
	/* The temporary directory itself is everybody's. */
	(void)snprintf(tmp, BOXDIR_PATH_MAX, "%.80s/gatehouse-%u", dir == NULL ? "/tmp" : dir, geteuid());
	names[0] = "/run/gatehouse/s";
	names[1] = "/run/gatehouse";
	names[2] = getenv("XDG_RUNTIME_DIR");
	names[3] = tmp;
	return BOXDIR_NAMES;
}

int boxdir_make(const char *base, const char *id, uid_t owner, char out[BOXDIR_PATH_MAX], struct err *e)
{
	if (boxdir_remove(base, id, e) != 0)
		return -1;
	if (snprintf(out, BOXDIR_PATH_MAX, "%s/%s", base, id) >= BOXDIR_PATH_MAX - (int)sizeof BOXDIR_SOCKET)
		return err_set(e, ERR_INTERNAL, "The path of a sandbox's socket is too long.");
	if (mkdir(out, 0700) != 0 || chown(out, owner, owner) != 0)
		return err_set(e, ERR_UNAVAILABLE,
		    "The directory of a sandbox's socket could not be made: %s.", strerror(errno));
	return 0;
}

int boxdir_close(const char *path, struct err *e)
{
	/* A descriptor, so that what is changed is a directory whatever a hostile owner made of its name's contents. */
	auto_fd int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 || fchown(fd, geteuid(), getegid()) != 0 || fchmod(fd, 0700) != 0)
		return err_set(e, ERR_UNAVAILABLE,
		    "The directory of a sandbox's socket could not be closed: %s.", strerror(errno));
	return 0;
}

int boxdir_remove(const char *base, const char *id, struct err *e)
{
	char path[BOXDIR_PATH_MAX];
	(void)snprintf(path, sizeof path, "%s/%s", base, id);
	return file_rmtree(path, e);
}
