#include "sandbox/mount.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/str.h"

static int failed(const char *what, struct err *e)
{
	return err_set(e, ERR_UNAVAILABLE, "%s: %s.", what, strerror(errno));
}

int mount_ext4(const char *device, struct err *e)
{
	auto_fd int fs = fsopen("ext4", FSOPEN_CLOEXEC);
	/* discard: what is deleted inside is given back to the host's disk. */
	if (fs < 0 || fsconfig(fs, FSCONFIG_SET_STRING, "source", device, 0) != 0 ||
	    fsconfig(fs, FSCONFIG_SET_FLAG, "discard", NULL, 0) != 0 ||
	    fsconfig(fs, FSCONFIG_SET_FLAG, "noinit_itable", NULL, 0) != 0 ||
	    fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) != 0)
		return failed("A volume could not be mounted", e);
	auto_fd int at = fsmount(fs, FSMOUNT_CLOEXEC, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);
	if (at < 0)
		return failed("A volume could not be mounted", e);
	/* For e2fsck, which makes it again when it needs it; inside it would be in the way of `git clone … .`. */
	(void)unlinkat(at, "lost+found", AT_REMOVEDIR);
	return steal_fd(&at);
}

int mount_clone(int dir, struct err *e)
{
	int at = open_tree(dir, "", AT_EMPTY_PATH | OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
	return at >= 0 ? at : failed("A directory could not be made a mount", e);
}

int mount_set(int mount, int userns, bool read_only, struct err *e)
{
	struct mount_attr a = { .attr_set = MOUNT_ATTR_IDMAP | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV |
		    (read_only ? MOUNT_ATTR_RDONLY : 0),
		.userns_fd = (unsigned)userns };
	return mount_setattr(mount, "", AT_EMPTY_PATH, &a, sizeof a) == 0
	    ? 0
	    : failed("The ids of a mount could not be mapped", e);
}

/* mkdir -p below `at`, without following links: nobody but us has written there. The last directory's descriptor. */
static int walk(int at, const char *name)
{
	struct str rest = str_of(name), part;
	auto_fd int dir = fcntl(at, F_DUPFD_CLOEXEC, 3);
	while (dir >= 0 && str_cut(&rest, '/', &part)) {
		char one[256];
		if (part.n >= sizeof one)
			return -1;
		memcpy(one, part.p, part.n);
		one[part.n] = '\0';
		if (mkdirat(dir, one, 0755) != 0 && errno != EEXIST)
			return -1;
		int next = openat(dir, one, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		(void)close(dir);
		dir = next;
	}
	return steal_fd(&dir);
}

int mount_place_all(const char *dir, const struct mount_place *list, size_t n, struct err *e)
{
	if (mount("tmpfs", dir, "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, "size=1m,mode=0755") != 0)
		return failed("The mounts of a sandbox could not be placed", e);
	auto_fd int top = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
	for (size_t i = 0; i < n; i++) {
		auto_fd int to = top < 0 ? -1 : walk(top, list[i].name);
		if (to >= 0 && list[i].mount < 0)
			continue;
		if (to < 0 ||
		    move_mount(
			list[i].mount, "", to, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH) != 0)
			return failed("The mounts of a sandbox could not be placed", e);
	}
	return 0;
}
