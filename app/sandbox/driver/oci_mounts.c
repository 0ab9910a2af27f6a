/* oci_mounts.c - from what a row asks for to mounts that no place of the host has (mount.h). */
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "io/userns.h"
#include "sandbox/driver/oci_int.h"

enum { NOBODY = 65534 };

/* The directory, found without following any link below the root that the deployment lists. */
static int open_host(const struct driver_mount *m, struct err *e)
{
	struct open_how how = { .flags = O_PATH | O_DIRECTORY | O_CLOEXEC,
		.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS };
	const char *rest = m->host + strlen(m->root);
	rest += strspn(rest, "/");
	auto_fd int root = open(m->root, O_PATH | O_DIRECTORY | O_CLOEXEC);
	int fd = root < 0 ? -1
			  : (int)syscall(SYS_openat2, root, rest[0] == '\0' ? "." : rest, &how, sizeof how);
	if (fd < 0)
		err_field(e, ERR_BAD_REQUEST, "mounts",
		    "A directory of `mounts` cannot be opened on the node (%s); links are not followed.",
		    strerror(errno));
	return fd;
}

/* Its owner is the agent inside, and what the agent writes is its owner's. */
static int mount_host(const struct driver_mount *m, uid_t uid_base, struct err *e)
{
	struct stat st;
	auto_fd int dir = open_host(m, e);
	if (dir < 0)
		return -1;
	if (fstat(dir, &st) != 0 || (!m->read_only && st.st_uid == 0))
		return err_field(e, ERR_BAD_REQUEST, "mounts",
		    "What a sandbox may write must not belong to the node's root: give the directory to "
		    "another user.");
	/* gVisor makes files as the root of the range and gives them away: as nobody, for that moment. */
	uid_t nobody = st.st_uid != NOBODY && st.st_gid != NOBODY ? NOBODY : NOBODY - 1;
	const struct userns_map map = { st.st_uid, st.st_gid, uid_base + IMAGE_UID, 1, nobody, uid_base };
	auto_fd int at = mount_clone(dir, e);
	auto_fd int ids = at < 0 ? -1 : userns_make(&map, e);
	if (ids < 0 || mount_set(at, ids, m->read_only, e) != 0)
		return -1;
	return steal_fd(&at);
}

static int one(const struct oci *o, const struct driver_mount *m, uid_t uid_base, struct err *e)
{
	if (m->volume == NULL)
		return mount_host(m, uid_base, e);
	if (o->volumes == NULL || o->volumes->why_not[0] != '\0')
		return err_set(e, ERR_UNAVAILABLE, "This node has no volumes: %s",
		    o->volumes == NULL ? "nobody gave it any" : o->volumes->why_not);
	return volume_mount(o->volumes, m->volume, m->size_bytes,
	    strcmp(m->at, DRIVER_STATE) == 0 ? &IMAGE_HOME[sizeof DRIVER_STATE] : NULL, uid_base, e);
}

int oci_mounts_make(
    const struct oci *o, const struct driver_spec *s, uid_t uid_base, struct oci_mounts *m, struct err *e)
{
	m->n = 0;
	if (s->n_mounts + (s->scratch == NULL ? 0 : DRIVER_SCRATCH_MAX) > DRIVER_MOUNTS_MAX)
		return err_set(e, ERR_INTERNAL, "A sandbox has too many mounts.");
	for (const char *const *to = s->scratch; to != NULL && *to != NULL; to++)
		m->at[m->n++] = (struct mount_place){ -1, *to + 1 };
	for (size_t i = 0; i < s->n_mounts; i++) {
		int fd = one(o, &s->mounts[i], uid_base, e);
		if (fd < 0) {
			oci_mounts_close(m);
			return -1;
		}
		(void)snprintf(m->names[i], sizeof m->names[i], OCI_PLACED, i);
		m->at[m->n++] = (struct mount_place){ fd, m->names[i] };
		m->at[m->n++] = (struct mount_place){ -1, s->mounts[i].at + 1 };
	}
	return 0;
}

void oci_mounts_close(struct oci_mounts *m)
{
	for (size_t i = 0; i < m->n; i++)
		if (m->at[i].mount >= 0)
			(void)close(m->at[i].mount);
	m->n = 0;
}
