#include "sandbox/volume.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/loop.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/crash.h"
#include "base/mem.h"
#include "io/file.h"
#include "io/proc.h"
#include "io/userns.h"
#include "sandbox/image.h"
#include "sandbox/mount.h"

enum { MKFS_MS = 60000, LOOP_TRIES = 64, LOOK_MS = 3, BLOCK = 4096, IDS = 65536 };
enum { PROBE_BYTES = 8 << 20 };

void volume_name(char out[VOLUME_NAME_MAX], const char *kind, const char *org, const char *name)
{
	(void)snprintf(out, VOLUME_NAME_MAX, "%s.%s.%s", kind, org, name);
}

static int path_of(
    const struct volumes *v, const char *name, const char *end, char out[VOLUME_PATH_MAX], struct err *e)
{
	int n = snprintf(out, VOLUME_PATH_MAX, "%s/%s.ext4%s", v->dir, name, end);
	return n < VOLUME_PATH_MAX ? 0 : err_set(e, ERR_INTERNAL, "The path of a volume is too long.");
}

static int full_or(int why, const char *what, struct err *e)
{
	if (why == ENOSPC || why == EDQUOT)
		return err_set(e, ERR_STORAGE, "The disk that holds this node's volumes is full.");
	return err_set(e, ERR_UNAVAILABLE, "%s: %s.", what, strerror(why));
}

/* ---- making one */

static int format(const char *path, struct err *e)
{
	/* No lazy work that would fill a sparse file later, no reserve for root, and the agent's from the beginning. */
	const char *const argv[] = { "mkfs.ext4", "-q", "-F", "-b", "4096", "-m", "0", "-e", "remount-ro",
		"-E", "root_owner=1000:1000,lazy_itable_init=0,lazy_journal_init=1", path, NULL };
	_Static_assert(IMAGE_UID == 1000, "the owner above");
	struct proc_opts o = {
		.argv = argv, .stdin_fd = -1, .stdout_fd = -1, .stderr_fd = -1, .timeout_ms = MKFS_MS
	};
	auto_proc struct proc_result res = { 0 };
	if (proc_run(&o, &res, e) != 0)
		return -1;
	if (res.exit_code == 0)
		return 0;
	if (strstr(buf_c(&res.errout), "No space left") != NULL)
		return full_or(ENOSPC, "", e);
	return err_set(e, ERR_UNAVAILABLE, "A volume could not be formatted: %.*s.",
	    (int)strcspn(buf_c(&res.errout), "\n"), buf_c(&res.errout));
}

static int sync_dir(const char *dir)
{
	auto_fd int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return fd >= 0 && fsync(fd) == 0 ? 0 : -1;
}

/* Under its name only once it is whole. Two makers: each has the name for itself by the row of the lease; whatever an earlier
 * one left half done is written over. */
static int make(const struct volumes *v, const char *name, int64_t size, struct err *e)
{
	char part[VOLUME_PATH_MAX], path[VOLUME_PATH_MAX];
	if (volumes_room(v, e) != 0 || path_of(v, name, ".new", part, e) != 0 ||
	    path_of(v, name, "", path, e) != 0)
		return -1;
	(void)unlink(part);
	auto_fd int fd = open(part, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0 || ftruncate(fd, size) != 0)
		return full_or(errno, "A volume could not be made", e);
	crash_point("volume.part");
	int rc = format(part, e);
	if (rc == 0 && (fsync(fd) != 0 || rename(part, path) != 0 || sync_dir(v->dir) != 0))
		rc = full_or(errno, "A volume could not be made", e);
	if (rc != 0)
		(void)unlink(part);
	crash_point("volume.made");
	return rc;
}

/* ---- its file, locked */

/* -1 with errno: ENOENT, EWOULDBLOCK while somebody has it. */
static int lock(const char *path)
{
	struct stat mine, there;
	auto_fd int fd = open(path, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) != 0 || fstat(fd, &mine) != 0)
		return -1;
	/* Deleted between the two: what we hold is nobody's volume. */
	if (lstat(path, &there) != 0)
		return -1;
	if (mine.st_ino != there.st_ino || mine.st_dev != there.st_dev) {
		errno = ENOENT;
		return -1;
	}
	return steal_fd(&fd);
}

static int lock_or_make(const struct volumes *v, const char *name, int64_t size, struct err *e)
{
	char path[VOLUME_PATH_MAX];
	if (path_of(v, name, "", path, e) != 0)
		return -1;
	int fd = lock(path);
	if (fd < 0 && errno == ENOENT) {
		if (make(v, name, size, e) != 0)
			return -1;
		fd = lock(path);
	}
	if (fd >= 0)
		return fd;
	return errno == EWOULDBLOCK
	    ? err_set(e, ERR_CONFLICT, "The volume is still in use by another sandbox.")
	    : err_set(e, ERR_UNAVAILABLE, "The volume could not be opened: %s.", strerror(errno));
}

/* ---- the loop device */

/* The device ends with its last user, which will be the mount (LO_FLAGS_AUTOCLEAR). Its open descriptor, or -1 with errno. */
static int attach(int ctl, int image, char dev[32])
{
	struct loop_config c = { .fd = (uint32_t)image,
		.block_size = BLOCK,
		.info.lo_flags = LO_FLAGS_AUTOCLEAR | LO_FLAGS_DIRECT_IO };
	for (int i = 0; i < LOOP_TRIES; i++) {
		int n = ioctl(ctl, LOOP_CTL_GET_FREE);
		if (n < 0)
			return -1;
		(void)snprintf(dev, 32, "/dev/loop%d", n);
		auto_fd int fd = open(dev, O_RDWR | O_CLOEXEC);
		if (fd >= 0 && ioctl(fd, LOOP_CONFIGURE, &c) == 0)
			return steal_fd(&fd);
		/* Somebody else took it in between; a node of /dev may take a moment to appear. */
		if (errno != EBUSY && errno != ENXIO && errno != ENOENT)
			return -1;
		(void)poll(NULL, 0, i / 8);
	}
	return -1;
}

static int loop(int image, char dev[32], struct err *e)
{
	auto_fd int ctl = open("/dev/loop-control", O_RDWR | O_CLOEXEC);
	int fd = ctl < 0 ? -1 : attach(ctl, image, dev);
	if (fd < 0)
		err_set(e, ERR_UNAVAILABLE, "This host gives no loop device, which a volume needs: %s.",
		    strerror(errno));
	return fd;
}

/* Never through a link that code of an earlier lease left in its place. */
static int give_home(int at, const char *home, struct err *e)
{
	if (home == NULL || mkdirat(at, home, 0755) != 0) {
		return home == NULL || errno == EEXIST ? 0 : full_or(errno, "A volume has no room", e);
	}
	return fchownat(at, home, IMAGE_UID, IMAGE_UID, AT_SYMLINK_NOFOLLOW) == 0
	    ? 0
	    : full_or(errno, "A directory of a volume could not be given away", e);
}

int volume_mount(
    const struct volumes *v, const char *name, int64_t size, const char *home, uid_t uid_base, struct err *e)
{
	char dev[32];
	const struct userns_map map = { .uid = 0, .gid = 0, .host = uid_base, .count = IDS };
	auto_fd int image = lock_or_make(v, name, size, e);
	if (image < 0 || volumes_room(v, e) != 0)
		return -1;
	auto_fd int device = loop(image, dev, e);
	if (device < 0)
		return -1;
	crash_point("volume.loop");
	auto_fd int at = mount_ext4(dev, e);
	auto_fd int ids = at < 0 || give_home(at, home, e) != 0 ? -1 : userns_make(&map, e);
	if (ids < 0 || mount_set(at, ids, false, e) != 0)
		return -1;
	crash_point("volume.mounted");
	return steal_fd(&at);
}

int volume_settle(const struct volumes *v, const char *name, int64_t deadline_ms, struct err *e)
{
	char path[VOLUME_PATH_MAX];
	if (path_of(v, name, "", path, e) != 0)
		return -1;
	for (;;) {
		auto_fd int fd = lock(path);
		if (fd >= 0 || errno == ENOENT)
			return 0;
		if (clock_ms() >= deadline_ms)
			return err_set(e, ERR_UNAVAILABLE, "A volume of the sandbox is still mounted.");
		(void)poll(NULL, 0, LOOK_MS);
	}
}

int volume_remove(const struct volumes *v, const char *name, struct err *e)
{
	char path[VOLUME_PATH_MAX], part[VOLUME_PATH_MAX];
	if (path_of(v, name, "", path, e) != 0 || path_of(v, name, ".new", part, e) != 0)
		return -1;
	(void)unlink(part);
	auto_fd int fd = lock(path);
	if (fd < 0 && errno == ENOENT)
		return 0;
	if (fd < 0 && errno == EWOULDBLOCK)
		return err_set(e, ERR_CONFLICT, "The volume is in use by a sandbox.");
	if (fd < 0 || unlink(path) != 0)
		return err_set(e, ERR_UNAVAILABLE, "The volume could not be deleted: %s.", strerror(errno));
	(void)sync_dir(v->dir); /* a power cut before it brings back what is deleted again then */
	return 0;
}

int64_t volume_used(const struct volumes *v, const char *name)
{
	char path[VOLUME_PATH_MAX];
	struct err ignored = { 0 };
	struct stat st;
	return path_of(v, name, "", path, &ignored) == 0 && lstat(path, &st) == 0
	    ? (int64_t)st.st_blocks * 512
	    : 0;
}

int volumes_room(const struct volumes *v, struct err *e)
{
	struct statvfs fs;
	if (statvfs(v->dir, &fs) != 0)
		return err_set(
		    e, ERR_UNAVAILABLE, "The directory of volumes cannot be used: %s.", strerror(errno));
	return (int64_t)(fs.f_bavail * fs.f_frsize) >= v->spare_bytes ? 0 : full_or(ENOSPC, "", e);
}

static int try_one(struct volumes *v, struct err *e)
{
	static const char probe[] = "probe";
	struct err later = { 0 };
	if (file_mkdirs(v->dir, 0700, e) != 0)
		return -1;
	auto_fd int at = volume_mount(v, probe, PROBE_BYTES, NULL, IDS, e);
	if (at >= 0) {
		(void)close(steal_fd(&at));
		(void)volume_settle(v, probe, clock_ms() + MKFS_MS, e);
	}
	(void)volume_remove(v, probe, &later); /* left behind it is written over by the next start's */
	return e->code == ERR_NONE ? 0 : -1;
}

void volumes_open(struct volumes *v, const char *dir, int64_t spare_bytes)
{
	struct err e = { 0 };
	*v = (struct volumes){ .spare_bytes = 0 };
	if (snprintf(v->dir, sizeof v->dir, "%s", dir) >= (int)sizeof v->dir)
		(void)err_set(&e, ERR_UNAVAILABLE, "VOLUME_DIR is too long.");
	else
		(void)try_one(v, &e);
	v->spare_bytes = spare_bytes;
	(void)snprintf(v->why_not, sizeof v->why_not, "%.199s", e.msg);
}
