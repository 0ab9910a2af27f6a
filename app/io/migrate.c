#include "io/migrate.h"

#include <string.h>

#include "base/hash.h"
#include "sql/migrate.h"

static bool same(const struct pg_res *r, int row, const struct migration *m)
{
	char hex[SHA256_HEX];
	sha256_hex(m->sql, strlen(m->sql), hex);
	return strcmp(pg_str(r, row, 0), m->name) == 0 && strcmp(pg_str(r, row, 1), hex) == 0;
}

/* The record is a beginning of the set, or -1 with e saying what the operator can do. */
static int compare(const struct pg_res *applied, const struct migration *set, struct err *e)
{
	for (int i = 0; i < pg_rows(applied); i++) {
		const char *name = pg_str(applied, i, 0);
		if (set[i].name == NULL)
			return err_set(e, ERR_CONFLICT,
			    "The database has migration %s, which this version does not know; install the "
			    "newer version.",
			    name);
		if (strcmp(set[i].name, name) != 0)
			return err_set(e, ERR_CONFLICT,
			    "The database has migration %s where this version has %s; install the version it "
			    "belongs to.",
			    name, set[i].name);
		if (!same(applied, i, &set[i]))
			return err_set(e, ERR_CONFLICT,
			    "Migration %s was changed after it had been applied; restore the file and add a "
			    "new one.",
			    name);
	}
	return pg_rows(applied);
}

static int apply(struct pg *db, const struct migration *m, struct err *e)
{
	char hex[SHA256_HEX];
	sha256_hex(m->sql, strlen(m->sql), hex);
	struct err why = { 0 };
	if (pg_script(db, m->sql, &why) == 0) {
		auto_res struct pg_res *r = PG(db, &q_migrate_record, &why, m->name, hex);
		if (r != NULL && pg_commit(db, &why) == 0)
			return 0;
	}
	return err_set(
	    e, why.code, "Migration %s failed and was rolled back; the log has the details.", m->name);
}

/* One transaction: 1 when it applied the next one, 0 when there is none, -1 on failure. The lock belongs to the
 * transaction: a session's would be lost unnoticed when the pool replaces a connection. */
static int step(struct pg *db, const struct migration *set, struct err *e)
{
	if (pg_begin(db, e) != 0)
		return -1;
	auto_res struct pg_res *lock = PG0(db, &q_migrate_lock, e);
	auto_res struct pg_res *table = lock == NULL ? NULL : PG0(db, &q_migrate_table, e);
	auto_res struct pg_res *applied = table == NULL ? NULL : PG0(db, &q_migrate_applied, e);
	int n = applied == NULL ? -1 : compare(applied, set, e);
	if (n < 0)
		return -1;
	if (set[n].name == NULL)
		return pg_commit(db, e);
	return apply(db, &set[n], e) == 0 ? 1 : -1;
}

int migrate_up(struct pg_pool *pool, const struct migration *set, struct err *e)
{
	auto_pg struct pg *db = pg_take(pool, 0, e);
	if (db == NULL)
		return -1;
	int n = 0, rc;
	while ((rc = step(db, set, e)) == 1)
		n++;
	return rc == 0 ? n : -1;
}

int migrate_pending(struct pg *db, const struct migration *set, struct err *e)
{
	auto_res struct pg_res *exists = PG0(db, &q_migrate_exists, e);
	if (exists == NULL)
		return -1;
	auto_res struct pg_res *applied = pg_bool(exists, 0, 0) ? PG0(db, &q_migrate_applied, e) : NULL;
	if (applied == NULL && e->code != ERR_NONE)
		return -1;
	int n = 0;
	for (int i = 0; set[i].name != NULL; i++)
		n += applied == NULL || i >= pg_rows(applied) || !same(applied, i, &set[i]);
	return n;
}
