#include "sandbox/door.h"

#include <string.h>

#include "base/js.h"
#include "io/conf.h"
#include "sandbox/client_int.h"
#include "sql/sandbox.h"

static int not_there(struct err *e)
{
	return err_set(e, ERR_NOT_FOUND, "There is no such sandbox, or it has ended.");
}

static json_t *object(const struct pg_res *r, int i)
{
	struct err ignored = { 0 }; /* our own JSON; a row that makes no sense shows nothing */
	auto_json json_t *limits = js_parse(pg_str(r, i, 2), strlen(pg_str(r, i, 2)), &ignored);
	json_t *metadata = js_parse(pg_str(r, i, 3), strlen(pg_str(r, i, 3)), &ignored);
	return js_pack("{s:s,s:s,s:I,s:I,s:I,s:o,s:s,s:s,s:s,s:I}", "id", pg_str(r, i, 0), "class",
	    pg_str(r, i, 1), "memoryMb", (json_int_t)js_int(limits, "memoryMb", 0), "cpuMilli",
	    (json_int_t)js_int(limits, "cpuMilli", 0), "diskMb", (json_int_t)js_int(limits, "diskMb", 0),
	    "metadata", metadata == NULL ? json_object() : metadata, "network", pg_str(r, i, 4), "createdAt",
	    pg_str(r, i, 5), "expiresAt", pg_str(r, i, 6), "leftMs", (json_int_t)pg_int(r, i, 7));
}

json_t *door_get(struct pg *db, const char *org, const char *id, struct err *e)
{
	auto_res struct pg_res *r = PG(db, &q_sandbox_door_get, e, org, id);
	if (r == NULL)
		return NULL;
	if (pg_rows(r) == 1)
		return object(r, 0);
	(void)not_there(e);
	return NULL;
}

json_t *door_list(struct pg *db, const char *org, const struct door_filter *f, struct err *e)
{
	auto_mem struct mem *m = mem_new();
	const char *metadata = f->metadata == NULL ? "{}" : js_dump(m, f->metadata);
	auto_res struct pg_res *r = PG(db, &q_sandbox_door_list, e, org, f->after, pg_num(m, f->limit),
	    f->oldest_first ? "true" : "false", metadata, f->started_after, f->class);
	if (r == NULL)
		return NULL;
	json_t *rows = json_array();
	for (int i = 0; i < pg_rows(r); i++)
		js_push(rows, object(r, i));
	return rows;
}

int door_tag(struct pg *db, const char *org, const char *id, const json_t *metadata, struct err *e)
{
	auto_mem struct mem *m = mem_new();
	auto_res struct pg_res *r = PG(db, &q_sandbox_tag, e, org, id, js_dump(m, metadata));
	if (r == NULL)
		return -1;
	return pg_affected(r) == 1 ? 0 : not_there(e);
}

int lease_renew(struct ctx *c, const char *org, const char *id, long long ttl_s, bool longer, struct err *e)
{
	struct box_addr a;
	long long most = conf_int(c->conf, "SANDBOX_MAX_TTL_S");
	if (ttl_s < 1 || ttl_s > most)
		return err_field(e, ERR_BAD_REQUEST, "timeout",
		    "A lease can be given between 1 and %lld more seconds.", most);
	auto_pg struct pg *db = pg_take(c->db, CLIENT_TAKE_MS, e);
	if (db == NULL || box_find(db, org, id, &a, e) != 0)
		return e->code == ERR_CONFLICT ? err_replace(e, ERR_NOT_FOUND, "The sandbox is not running.")
					       : -1;
	auto_res struct pg_res *r = PG(
	    db, &q_sandbox_renew, e, org, id, pg_num(c->mem, ttl_s), longer ? "true" : "false");
	if (r == NULL)
		return -1;
	if (pg_rows(r) == 0)
		return not_there(e);
	auto_json json_t *body = js_pack("{s:I}", "leftMs", (json_int_t)pg_int(r, 0, 0));
	pg_put(steal(db));
	return client_call(&a, "POST", client_url(c->mem, &a, "/lease"), body, CLIENT_CALL_MS, NULL, e);
}
