/* fleet_volume.c - the volumes of this node: mounted with their sandboxes, looked after by the reaper (SBX-45, SBX-61). */
#include <limits.h>
#include <string.h>

#include "base/clock.h"
#include "base/crash.h"
#include "base/js.h"
#include "base/log.h"
#include "sandbox/fleet_int.h"
#include "sandbox/image.h"
#include "sandbox/layout.h"
#include "sql/volume.h"

enum { TAKE_MS = 5000, MEASURE_MS = 60000, WORTH_TELLING = 1 << 20 };

/* ---- into a sandbox */

static const char *name_of(struct mem *m, const char *kind, const char *org, const char *name)
{
	char text[VOLUME_NAME_MAX];
	volume_name(text, kind, org, name);
	return mem_str(m, text);
}

/* The API has checked it against its setting; what counts is this host's. */
static int still_listed(const struct fleet *f, const char *org, const struct driver_mount *m, struct err *e)
{
	char root[PATH_MAX];
	if (layout_root(f->o.mount_roots, org, m->host, root, sizeof root) && strcmp(root, m->root) == 0)
		return 0;
	return err_field(e, ERR_BAD_REQUEST, "mounts",
	    "A directory of `mounts` is in none that this node lists for the org (SANDBOX_MOUNT_ROOTS).");
}

static int lay_out(struct fleet *f, struct mem *m, const struct row_keeps *k, struct driver_mount *mounts,
    struct driver_spec *s, struct err *e)
{
	struct layout *l = mem_alloc(m, sizeof *l);
	layout_read(mem_json(m, js_parse(k->mounts, strlen(k->mounts), e)), l);
	for (size_t i = 0; i < l->n_mounts; i++) {
		if (still_listed(f, k->org, &l->mounts[i], e) != 0)
			return -1;
		mounts[s->n_mounts++] = l->mounts[i];
	}
	s->scratch = l->scratch;
	s->roots = l->roots;
	s->ro_roots = l->ro_roots;
	return e->code == ERR_NONE ? 0 : -1;
}

int box_mounts(
    struct fleet *f, struct mem *m, const struct row_keeps *k, struct driver_spec *s, struct err *e)
{
	static const char *const with_work[] = { DRIVER_WORK, IMAGE_DATA, "/tmp", DRIVER_STATE, NULL };
	struct driver_mount *mounts = mem_alloc(m, (DRIVER_MOUNTS_MAX + DRIVER_VOLUMES_MAX) * sizeof *mounts);
	s->mounts = mounts;
	s->roots = k->project == NULL ? NULL : with_work;
	if (k->project != NULL)
		mounts[s->n_mounts++] = (struct driver_mount){ .volume = name_of(
								   m, VOLUME_PROJECT, k->org, k->project),
			.size_bytes = k->project_bytes,
			.at = DRIVER_WORK };
	if (k->state_of != NULL)
		mounts[s->n_mounts++] = (struct driver_mount){ .volume = name_of(
								   m, VOLUME_SESSION, k->org, k->state_of),
			.size_bytes = k->state_bytes,
			.at = DRIVER_STATE };
	return k->mounts[0] == '\0' ? 0 : lay_out(f, m, k, mounts, s, e);
}

/* ---- deleting */

static bool is_due(struct fleet *f, struct pg *db, const char *const of[3], struct err *e)
{
	auto_res struct pg_res *r = PG(db, &q_volume_n_due, e, f->o.node, of[0], of[1], of[2]);
	return r != NULL && pg_rows(r) == 1;
}

/* The row is locked first, and only then is it looked who has it: a lease takes it in the same order. */
static int purge(struct fleet *f, struct pg *db, const char *const of[3], struct err *e)
{
	char name[VOLUME_NAME_MAX];
	volume_name(name, of[1], of[0], of[2]);
	if (pg_begin(db, e) != 0)
		return -1;
	auto_res struct pg_res *r = PG(db, &q_volume_n_lock, e, f->o.node, of[0], of[1], of[2]);
	if (r == NULL || pg_rows(r) == 0)
		return r == NULL ? -1 : 0;
	if (!is_due(f, db, of, e))
		return e->code != ERR_NONE ? -1
					   : err_set(e, ERR_CONFLICT, "The volume is in use by a sandbox.");
	if (volume_remove(f->o.volumes, name, e) != 0)
		return -1;
	crash_point("volume.removed");
	auto_res struct pg_res *gone = PG(db, &q_volume_n_delete, e, f->o.node, of[0], of[1], of[2]);
	return gone == NULL ? -1 : pg_commit(db, e);
}

int fleet_purge(struct fleet *f, const char *org, const char *kind, const char *name, struct err *e)
{
	const char *const of[] = { org, kind, name };
	if (f->o.volumes == NULL)
		return err_set(e, ERR_UNAVAILABLE, "This node has no volumes.");
	auto_pg struct pg *db = pg_take(f->o.db, TAKE_MS, e);
	return db == NULL ? -1 : purge(f, db, of, e);
}

/* ---- the reaper's */

static void delete_due(struct fleet *f, struct pg *db)
{
	struct err e = { 0 };
	auto_res struct pg_res *r = PG(db, &q_volume_n_due, &e, f->o.node, NULL, NULL, NULL);
	for (int i = 0; r != NULL && i < pg_rows(r); i++) {
		struct err why = { 0 };
		const char *const of[] = { pg_str(r, i, 0), pg_str(r, i, 1), pg_str(r, i, 2) };
		int rc = purge(f, db, of, &why);
		pg_rollback(db);
		log_kv(rc == 0 ? LOG_INFO_ : LOG_WARN_, rc == 0 ? "volume deleted" : "volume not deleted yet",
		    "org", of[0], "kind", of[1], "name", of[2], "error", rc == 0 ? NULL : why.msg, (char *)0);
	}
}

void fleet_volumes_unmade(struct fleet *f)
{
	struct err ignored = { 0 }; /* then the next round does it */
	auto_pg struct pg *db = f->o.volumes == NULL ? NULL : pg_take(f->o.db, TAKE_MS, &ignored);
	if (db != NULL)
		delete_due(f, db);
}

/* sandbox: only the volumes that it has; NULL: all of this node. */
static void measure(struct fleet *f, struct pg *db, const char *sandbox)
{
	struct err e = { 0 };
	auto_mem struct mem *m = mem_new();
	auto_res struct pg_res *r = PG(db, &q_volume_n_all, &e, f->o.node, sandbox);
	for (int i = 0; r != NULL && i < pg_rows(r); i++) {
		char name[VOLUME_NAME_MAX];
		volume_name(name, pg_str(r, i, 1), pg_str(r, i, 0), pg_str(r, i, 2));
		int64_t used = volume_used(f->o.volumes, name), told = pg_int(r, i, 3);
		if (used - told < WORTH_TELLING && told - used < WORTH_TELLING)
			continue;
		auto_res struct pg_res *put = PG(db, &q_volume_n_used, &e, f->o.node, pg_str(r, i, 0),
		    pg_str(r, i, 1), pg_str(r, i, 2), pg_num(m, used));
		(void)put;
	}
}

static void stamp(struct fleet *f, struct pg *db)
{
	struct err ignored = { 0 };
	auto_res struct pg_res *r = PG(db, &q_volume_n_stamp, &ignored, f->o.node);
	(void)r;
}

void fleet_volumes_used(struct fleet *f)
{
	struct err ignored = { 0 }; /* then the next round says it: no lease fails for it (SBX-61) */
	auto_pg struct pg *db = f->o.volumes == NULL ? NULL : pg_take(f->o.db, TAKE_MS, &ignored);
	if (db != NULL)
		stamp(f, db);
}

void fleet_volumes_left(struct fleet *f, const char *sandbox)
{
	struct err ignored = { 0 }; /* then a later round says it */
	auto_pg struct pg *db = f->o.volumes == NULL ? NULL : pg_take(f->o.db, TAKE_MS, &ignored);
	if (db != NULL)
		measure(f, db, sandbox);
}

/* What fails here is done by a later round. */
void fleet_volumes(struct fleet *f)
{
	struct err e = { 0 };
	auto_pg struct pg *db = f->o.volumes == NULL ? NULL : pg_take(f->o.db, TAKE_MS, &e);
	if (db == NULL)
		return;
	delete_due(f, db);
	stamp(f, db);
	if (f->measured_ms != 0 && clock_ms() - f->measured_ms < MEASURE_MS)
		return;
	f->measured_ms = clock_ms();
	measure(f, db, NULL);
}
