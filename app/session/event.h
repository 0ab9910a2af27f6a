/*
 * event.h - sessions and their append-only log (SES-1, 3, 5; STR-2).
 * seq counts from 1 without gaps; a session is closed once (done, error, stopped), its last event is `result` or `error`,
 * and nothing is appended after. Stored kinds: status, step, tool-call, log, message; on the stream the last `status` is
 * the result/error line. Payloads are JSON objects of at most LIMIT_EVENT_BYTES, run through redact_json.
 */
#pragma once

#include "base/buf.h"
#include "base/err.h"
#include "base/id.h"
#include "io/pg.h"

struct fence { /* who may write: NULL where no job is behind the session */
	const char *job_id;
	long long fence;
};
struct session_row {
	const char *id, *org, *kind, *title, *state, *root, *parent, *created_by; /* in the arena */
	const char *created_at, *closed_at;                                       /* "" while open */
	long long last_seq;
};

/* Open a session inside the caller's transaction, writing its id. parent may be NULL. */
int session_open(struct pg *db, const char *org, const char *kind, const char *title, const char *created_by,
    const char *parent, char id[ID_MAX], struct err *e);
int session_get(
    struct pg *db, struct mem *m, const char *org, const char *id, struct session_row *row, struct err *e);
/* Sessions as JSON rows, newest first, ids below `before` ("" for the start); root and state may be NULL. New reference. */
json_t *session_list(struct pg *db, const char *org, const char *before, int limit, const char *root,
    const char *state, struct err *e);
/* {id, kind, title, state, parent, root, lastSeq, createdBy, createdAt, closedAt}. New reference. */
json_t *session_json(const struct session_row *row);

/* Append one event and NOTIFY gh_event "ORG SESSION SEQ ROOT". `payload` is borrowed: an object with the event's own fields
 * (step, message, status, …), no seq, time or type, and no session but, as the first field, its own. Oversized: ERR_TOO_LARGE;
 * closed: ERR_CONFLICT with reason "closed"; stale fence: ERR_CONFLICT with reason "fenced". Locks the job's row, then the
 * session's: a transaction that touches both does it in this order. */
int session_append(struct pg *db, const char *org, const char *id, const char *kind, const json_t *payload,
    const struct fence *f, struct err *e);
/* Several events of one kind, all or none, in one statement. An empty array writes nothing. */
int session_append_all(struct pg *db, const char *org, const char *id, const char *kind,
    const json_t *payloads, const struct fence *f, struct err *e);
/* Close: append the terminal event ({"type":"result"…} or {"type":"error"…} line made of payload) and set state in one
 * statement. state: "done", "error", "stopped" (which gets `code` "stopped" when the payload names none). A second close is
 * ERR_CONFLICT, reason "closed". */
int session_close(struct pg *db, const char *org, const char *id, const char *state, const json_t *payload,
    const struct fence *f, struct err *e);
/* Shorthand used by runs: {"step","message","status"}. `status`: "running", "ok", "failed" or NULL. */
int session_step(struct pg *db, const char *org, const char *id, const char *step, const char *message,
    const char *status, const struct fence *f, struct err *e);
/* Output of any bytes, at most SESSION_LOG_BYTES: `log` events {"message"} of whole lines where they fit, one transaction. */
enum { SESSION_LOG_BYTES = 1 << 20 };
int session_log(struct pg *db, const char *org, const char *id, const char *p, size_t n,
    const struct fence *f, struct err *e);

/* Events after `after`, at most limit, as an array of whole stream lines {"seq","time","type",…}. New reference. */
json_t *session_read(
    struct pg *db, const char *org, const char *id, long long after, int limit, struct err *e);
/* Append the stream line, without its end, of a row whose first columns are seq, time, type, payload. */
int session_line(struct buf *b, const struct pg_res *r, int row);
/* Does that line hold `session` already? */
bool session_line_named(const struct pg_res *r, int row);
