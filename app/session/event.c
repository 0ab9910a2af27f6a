#include "session/event.h"

#include <stdio.h>
#include <string.h>

#include "base/js.h"
#include "base/limits.h"
#include "base/redact.h"
#include "base/str.h"
#include "sql/session.h"

enum {
	/* Raw bytes of one `log` event: escaped as \u00XX they still fit a payload. */
	LOG_PIECE = 8 * 1024,
	TITLE_MAX = 4096,
};

static const char *or_null(const char *s)
{
	return s == NULL || *s == 0 ? NULL : s;
}

static int no_such(struct err *e)
{
	return err_set(e, ERR_NOT_FOUND, "There is no such session.");
}

/* ---- sessions */

int session_open(struct pg *db, const char *org, const char *kind, const char *title, const char *created_by,
    const char *parent, char id[ID_MAX], struct err *e)
{
	auto_buf struct buf shown = BUF(TITLE_MAX);
	if (redact_plain(title, strlen(title), &shown) != 0)
		return err_set(e, ERR_TOO_LARGE, "The title is longer than %d bytes.", TITLE_MAX);
	id_make("ses", id);
	auto_res struct pg_res *r = PG(
	    db, &q_session_open, e, id, org, kind, buf_c(&shown), or_null(parent), created_by);
	if (r == NULL)
		return -1;
	if (pg_affected(r) == 0)
		return err_set(e, ERR_NOT_FOUND, "There is no such parent session.");
	return 0;
}

/* A row as it lies in r: the strings live as long as r. */
static struct session_row row_of(const struct pg_res *r, int i, const char *org)
{
	return (struct session_row){
		.id = pg_str(r, i, 0),
		.org = org,
		.kind = pg_str(r, i, 1),
		.title = pg_str(r, i, 2),
		.state = pg_str(r, i, 3),
		.parent = pg_str(r, i, 4),
		.root = pg_str(r, i, 5),
		.created_by = pg_str(r, i, 6),
		.last_seq = pg_int(r, i, 7),
		.created_at = pg_str(r, i, 8),
		.closed_at = pg_str(r, i, 9),
	};
}

int session_get(
    struct pg *db, struct mem *m, const char *org, const char *id, struct session_row *row, struct err *e)
{
	/* What is no id may not even be text that PostgreSQL takes. */
	if (!id_is("ses", id))
		return no_such(e);
	auto_res struct pg_res *r = PG(db, &q_session_get, e, org, id);
	if (r == NULL)
		return -1;
	if (pg_rows(r) == 0)
		return no_such(e);
	*row = row_of(r, 0, org);
	const char **text[] = { &row->id, &row->org, &row->kind, &row->title, &row->state, &row->parent,
		&row->root, &row->created_by, &row->created_at, &row->closed_at };
	for (size_t i = 0; i < sizeof text / sizeof text[0]; i++)
		*text[i] = mem_str(m, *text[i]);
	return 0;
}

json_t *session_json(const struct session_row *row)
{
	json_t *v = js_pack("{s:s, s:s, s:s, s:s, s:s, s:I, s:s, s:s}", "id", row->id, "kind", row->kind,
	    "title", row->title, "state", row->state, "root", row->root, "lastSeq", (json_int_t)row->last_seq,
	    "createdBy", row->created_by, "createdAt", row->created_at);
	js_set_str(v, "parent", or_null(row->parent));
	js_set_str(v, "closedAt", or_null(row->closed_at));
	return v;
}

json_t *session_list(struct pg *db, const char *org, const char *before, int limit, const char *root,
    const char *state, struct err *e)
{
	auto_mem struct mem *m = mem_new();
	/* Above every id in any collation: letters sort behind letters. */
	const char *below = *before == 0 ? "zzzz" : before;
	auto_res struct pg_res *r = PG(
	    db, &q_session_list, e, org, below, pg_num(m, limit), or_null(root), or_null(state));
	if (r == NULL)
		return NULL;
	json_t *rows = js_pack("[]");
	for (int i = 0; i < pg_rows(r); i++) {
		struct session_row row = row_of(r, i, org);
		js_push(rows, session_json(&row));
	}
	return rows;
}

/* ---- writing */

/* Why a write found nothing to write to. */
static int refused(
    struct pg *db, const char *org, const char *id, const char *job, const char *fence, struct err *e)
{
	auto_res struct pg_res *r = PG(db, &q_session_refusal, e, id, org, job, fence);
	if (r == NULL)
		return -1;
	if (pg_rows(r) == 0)
		return no_such(e);
	bool stale = pg_bool(r, 0, 1);
	(void)err_set(e, ERR_CONFLICT,
	    stale ? "This worker no longer holds the job of the session."
		  : "The session is closed; nothing can be added to it.");
	e->reason = stale ? "fenced" : "closed";
	return -1;
}

/* `session` may stand first and name the event's own session, for who has only the stream; see session_line_named. */
static bool names_itself(const json_t *payload, const char *id)
{
	const char *first = json_object_iter_key(json_object_iter((json_t *)(uintptr_t)payload));
	return first != NULL && strcmp(first, "session") == 0 &&
	    strcmp(js_str_or(payload, first, ""), id) == 0;
}

/* Check and redact a payload and append it to b as text. */
static int payload_text(struct buf *b, const char *id, const json_t *payload, struct err *e)
{
	static const char *const ours[] = { "seq", "time", "type", "session" };
	if (!json_is_object(payload))
		return err_set(e, ERR_BAD_REQUEST, "The payload of an event is an object.");
	for (size_t i = 0; i < sizeof ours / sizeof ours[0]; i++)
		if (json_object_get(payload, ours[i]) != NULL &&
		    (strcmp(ours[i], "session") != 0 || !names_itself(payload, id)))
			return err_field(e, ERR_BAD_REQUEST, ours[i],
			    "The payload of an event cannot hold `%s`.", ours[i]);
	auto_json json_t *shown = redact_json(payload);
	size_t before = b->n;
	if (js_dump_buf(b, shown) != 0 || b->n - before > LIMIT_EVENT_BYTES)
		return err_set(e, ERR_TOO_LARGE, "An event holds at most %d bytes.", LIMIT_EVENT_BYTES);
	if (js_depth(b->p + before, b->n - before) > LIMIT_JSON_DEPTH)
		return err_set(
		    e, ERR_BAD_REQUEST, "An event is nested at most %d levels deep.", LIMIT_JSON_DEPTH);
	return 0;
}

int session_append_all(struct pg *db, const char *org, const char *id, const char *kind,
    const json_t *payloads, const struct fence *f, struct err *e)
{
	size_t n = json_array_size(payloads);
	if (n == 0)
		return 0;
	auto_buf struct buf b = BUF(n * (LIMIT_EVENT_BYTES + 2) + LIMIT_EVENT_BYTES);
	for (size_t i = 0; i < n; i++) {
		(void)buf_chr(&b, i == 0 ? '[' : ',');
		if (payload_text(&b, id, json_array_get(payloads, i), e) != 0)
			return -1;
	}
	(void)buf_chr(&b, ']');
	auto_mem struct mem *m = mem_new();
	const char *job = f == NULL ? NULL : f->job_id, *fence = f == NULL ? NULL : pg_num(m, f->fence);
	auto_res struct pg_res *r = PG(
	    db, &q_session_append, e, id, org, kind, buf_c(&b), pg_num(m, (long long)n), job, fence);
	if (r == NULL)
		return -1;
	return pg_rows(r) == 1 ? 0 : refused(db, org, id, job, fence, e);
}

int session_append(struct pg *db, const char *org, const char *id, const char *kind, const json_t *payload,
    const struct fence *f, struct err *e)
{
	auto_json json_t *one = js_pack("[O]", payload);
	return session_append_all(db, org, id, kind, one, f, e);
}

int session_close(struct pg *db, const char *org, const char *id, const char *state, const json_t *payload,
    const struct fence *f, struct err *e)
{
	auto_json json_t *last = json_copy((json_t *)(uintptr_t)payload);
	if (strcmp(state, "stopped") == 0 && js_get(last, "code") == NULL)
		js_set_str(last, "code", "stopped");
	auto_buf struct buf b = BUF(2 * LIMIT_EVENT_BYTES);
	if (payload_text(&b, id, last, e) != 0)
		return -1;
	auto_mem struct mem *m = mem_new();
	const char *job = f == NULL ? NULL : f->job_id, *fence = f == NULL ? NULL : pg_num(m, f->fence);
	auto_res struct pg_res *r = PG(db, &q_session_close, e, id, org, state, buf_c(&b), job, fence);
	if (r == NULL)
		return -1;
	return pg_rows(r) == 1 ? 0 : refused(db, org, id, job, fence, e);
}

int session_step(struct pg *db, const char *org, const char *id, const char *step, const char *message,
    const char *status, const struct fence *f, struct err *e)
{
	auto_json json_t *v = js_pack("{s:s}", "step", step);
	js_set_str(v, "message", message);
	if (status != NULL)
		js_set_str(v, "status", status);
	return session_append(db, org, id, "step", v, f, e);
}

/* How many of n > 0 bytes go into the next event: whole lines if one ends in time, else whole characters. */
static size_t piece(const char *p, size_t n)
{
	if (n <= LOG_PIECE)
		return n;
	const char *nl = memrchr(p, '\n', LOG_PIECE);
	if (nl != NULL)
		return (size_t)(nl - p) + 1;
	return LOG_PIECE - utf8_tail(p, LOG_PIECE);
}

/* One `log` payload. U+0000 is no text: JSON could carry it, many readers could not. */
static json_t *log_payload(const char *p, size_t n)
{
	if (n > 0 && p[n - 1] == '\n')
		n--;
	auto_buf struct buf b = BUF(3 * LOG_PIECE + 3);
	for (size_t i = 0; i < n; i++)
		(void)(p[i] == 0 ? buf_str(&b, "\xEF\xBF\xBD") : buf_chr(&b, p[i]));
	return js_pack("{s:o}", "message", js_text(buf_c(&b), b.n));
}

int session_log(struct pg *db, const char *org, const char *id, const char *p, size_t n,
    const struct fence *f, struct err *e)
{
	if (n > SESSION_LOG_BYTES)
		return err_set(
		    e, ERR_TOO_LARGE, "At most %d bytes of output are kept at a time.", SESSION_LOG_BYTES);
	/* Before the text is cut into events, so that no secret hides across a cut. */
	auto_buf struct buf shown = BUF(16 * SESSION_LOG_BYTES);
	if (redact_plain(p, n, &shown) != 0)
		return err_set(e, ERR_TOO_LARGE, "The output cannot be kept.");
	auto_json json_t *all = js_pack("[]");
	for (size_t at = 0, take; at < shown.n; at += take) {
		take = piece(shown.p + at, shown.n - at);
		js_push(all, log_payload(shown.p + at, take));
	}
	return session_append_all(db, org, id, "log", all, f, e);
}

/* ---- reading */

int session_line(struct buf *b, const struct pg_res *r, int row)
{
	const char *payload = pg_str(r, row, 3); /* an object as we wrote it: "{}" or "{"… */
	(void)buf_fmt(b, "{\"seq\":%s,\"time\":\"%s\",\"type\":\"%s\"", pg_str(r, row, 0), pg_str(r, row, 1),
	    pg_str(r, row, 2));
	if (strcmp(payload, "{}") != 0)
		(void)buf_chr(b, ',');
	(void)buf_str(b, payload + 1);
	return b->full ? -1 : 0;
}

bool session_line_named(const struct pg_res *r, int row)
{
	return str_starts(pg_str(r, row, 3), "{\"session\":");
}

json_t *session_read(
    struct pg *db, const char *org, const char *id, long long after, int limit, struct err *e)
{
	auto_mem struct mem *m = mem_new();
	auto_res struct pg_res *r = PG(db, &q_session_read, e, id, org, pg_num(m, after), pg_num(m, limit));
	if (r == NULL)
		return NULL;
	auto_json json_t *lines = js_pack("[]");
	auto_buf struct buf b = BUF(LIMIT_LINE_BYTES);
	for (int i = 0; i < pg_rows(r); i++) {
		buf_reset(&b);
		json_t *v = session_line(&b, r, i) == 0 ? json_loadb(b.p, b.n, JSON_ALLOW_NUL, NULL) : NULL;
		if (v == NULL) {
			(void)err_set(e, ERR_INTERNAL, "An event of the session cannot be read.");
			return NULL;
		}
		js_push(lines, v);
	}
	return steal(lines);
}
