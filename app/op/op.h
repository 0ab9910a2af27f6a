/*
 * op.h - one table row per operation. Routing, input check, OpenAPI, `gatehouse call` and the tests are all read from it.
 * A handler file exports `const struct op NAME_ops[]`, ended by a row without id; handlers/all.c lists the tables.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "base/mem.h"

enum op_type {
	T_STR, /* min..max bytes; max 0 means 1024 */
	T_INT, /* a whole number (1.0 is not one), min..max; both 0: any */
	T_NUM, /* any JSON number, min..max; both 0: any */
	T_BOOL,
	T_ENUM, /* one of values */
	T_TIME, /* RFC 3339 UTC, as written by us */
	T_OBJ,  /* fields; NULL: a free-form object */
	T_ARR,  /* of items: fields[0] describes one item; min..max items, max 0 means 1000 */
	T_MAP, /* free keys, at most max of them, 0 means 100; fields[0]: a value, NULL: a string up to 8192 bytes */
	T_ANY,
};

/* A row of an input or output schema. Where a value is read from is derived: a name that stands in the route's path is
 * the path's; the rest is the query's for GET, DELETE and raw-body routes and the JSON body's otherwise. */
struct param {
	const char *name;
	enum op_type type;
	bool required;
	bool nullable; /* output: may be JSON null; input: null is the same as absent */
	long long min, max;
	double least;               /* T_NUM: in place of min, where that is no whole number */
	const char *const *values;  /* T_ENUM, ended by NULL */
	const struct param *fields; /* T_OBJ: ended by a row without name; T_ARR: one row */
	const char *doc;
	const char *example; /* JSON text, used in OpenAPI and run against the handler by a test */
};

enum op_flag {
	OP_STREAM =
	    1, /* may answer with a stream (NDJSON, or bytes): runs in a thread of its own (small stack) */
	OP_TOOL = 2,      /* offered as an MCP tool */
	OP_RAW_IN = 4,    /* the body is bytes, read with reply_read(); parameters come from path and query */
	OP_RAW_OUT = 8,   /* answers something that is not JSON, through reply_* */
	OP_PUBLIC = 16,   /* no credential needed; who is NULL when none (or none valid) was given */
	OP_INTERNAL = 32, /* only on the internal door; not in OpenAPI */
	OP_HIDDEN = 64,   /* not a native op (git wire, pages): not in OpenAPI or `call` */
	OP_ADMIN = 128,   /* org-admin of the caller's org */
	OP_SUPER = 256,   /* super-admin */
	OP_LAX = 512, /* compatibility door: unknown fields are ignored (HTTP-3), and a query beside a body */
	OP_ONCE = 4096,    /* creates: with an Idempotency-Key, once (HTTP-7; auth/once.h) */
	OP_KEEPS = 8192,   /* OP_ONCE in a transaction of its own, by once_begin and once_commit */
	OP_SECRET = 16384, /* the answer holds a secret: only its `id` is stored */
	OP_E2B = 32768,    /* only at the door for the E2B SDK, where nothing else is (ECO-1) */
	OP_BOX = 65536,   /* needs the credential of the sandbox that it is about, and nothing else will do */
	OP_STORES = 2048, /* writes where space is bounded: may answer 507 */
	OP_LONG =
	    1024, /* one answer, but it may take long: it counts as a stream too, so that no worker waits */
};

/* "/v1/sandboxes/{id}", "/v1/git/{org}/{repo}.git/info"; a last "{rest...}" takes the remainder, slashes included. */
struct route {
	const char *method, *path;
};
enum { OP_ROUTES_MAX = 4 };

struct once;      /* auth/once.h */
struct principal; /* auth/principal.h */
struct pg_pool;   /* io/pg.h */
struct conf;      /* io/conf.h */
struct reply;     /* below */

/* The way a request came in, as nginx says it (GATEHOUSE_DOOR): which ops exist there, and in which headers a credential stands. */
enum op_door { DOOR_PUBLIC, DOOR_INTERNAL, DOOR_E2B };

/* What a handler is given. Everything in it lives as long as the request. */
struct ctx {
	struct mem *mem;
	const struct principal *who; /* never NULL unless OP_PUBLIC */
	struct pg_pool *db;
	const struct conf *conf;
	void *app; /* the process's services: struct api (handlers/handlers.h), in sandboxd struct sandboxd */
	struct reply *reply;
	const char *request_id;            /* HTTP-5 */
	const char *traceparent;           /* NULL when absent */
	const char *method, *path, *query; /* decoded path; raw query */
	enum op_door door;
	int64_t deadline_ms; /* monotonic */
	struct once *once;   /* NULL: no Idempotency-Key */
};

/*
 * A handler returns a new reference to its JSON reply; NULL with e set; or REPLIED when it answered through reply_*
 * (an error set after that is logged, the stream has its own ending).
 */
typedef json_t *op_fn(struct ctx *c, json_t *in, struct err *e);
#define REPLIED (json_true())

struct op {
	const char *id; /* lease_sandbox */
	struct route routes[OP_ROUTES_MAX];
	const char *summary, *doc;
	/* Op group that a key must hold: "sandboxes", "coding", "git", "sessions", "keys", "node". */
	const char *scope;
	const struct param *in, *out;
	/* OP_STREAM: a line of the stream, where the op may also answer with one JSON value (`out`, `status`). NULL: it always
	 * streams, and `out` is a line. A stream's status is 200. */
	const struct param *line;
	int status; /* of a JSON reply */
	unsigned flags;
	size_t max_body_bytes; /* 0: LIMIT_BODY_BYTES; for OP_RAW_IN: SIZE_MAX means unbounded */
	op_fn *run;
	/* OP_KEEPS: answer a repetition, where the first answer is not there, from what once_commit was given. ERR_NOT_FOUND: that is
	 * not there, and never was as promised; the op runs again. NULL: an OP_SECRET op. */
	op_fn *again;
	/* Tell an error, of `run` or what kept it from being called, where that is not done with the envelope: true when it has
	 * answered. May be NULL. */
	bool (*refuse)(struct ctx *c, const struct err *why);
};

/* ---- reply.c: answering with something else than one JSON value. Implemented by the server core (io/fcgi), faked in tests. */
struct reply_vt {
	int (*head)(struct reply *r, int status, const char *headers); /* "Name: value\r\n" lines */
	int (*write)(struct reply *r, const void *p, size_t n);
	int (*flush)(struct reply *r);
	ssize_t (*read)(struct reply *r, void *p, size_t n);
	bool (*gone)(struct reply *r);
	const char *(*param)(struct reply *r, const char *name);
	bool (*twice)(struct reply *r, const char *name); /* may be NULL: never */
	bool (*draining)(struct reply *r);                /* may be NULL: never */
};
struct reply {
	const struct reply_vt *vt;
	bool begun;          /* the head has been sent */
	bool sse;            /* a stream of events, as SSE (stream.c) */
	bool unbuffered;     /* nginx is to pass everything on at once: set by the core for an OP_STREAM op */
	int status;          /* as sent, or as reply_status() wants it before */
	const char *headers; /* of reply_header(), in the arena; NULL when none */
};

/* Add a header to whatever reply follows (JSON replies too). The value must be free of CR and LF; asserted. */
void reply_header(struct ctx *c, const char *name, const char *value);
/* Status of the JSON reply that will follow, instead of the op's own. */
void reply_status(struct ctx *c, int status);
/* Send the head, with X-Request-Id; afterwards only reply_write/_flush/_line. content_type may be NULL (none). -1 when the
 * client is gone. */
int reply_begin(struct ctx *c, int status, const char *content_type);
int reply_write(struct ctx *c, const void *p, size_t n);
int reply_flush(struct ctx *c);
/* Body bytes of an OP_RAW_IN op: >0, 0 at its end, -1 when the client went away. */
ssize_t reply_read(struct ctx *c, void *p, size_t n);
/* The same in larger pieces: it goes on for a moment (at most as long as one piece takes, and 200 ms) until n bytes are there. For
 * what passes them on: each piece costs a turn of everybody on the way. */
ssize_t reply_read_many(struct ctx *c, void *p, size_t n);
bool reply_gone(struct ctx *c);
/* The process is about to end: a stream says where to resume and ends itself (RUN-6). */
bool reply_draining(struct ctx *c);
/* A request header by its CGI name ("HTTP_ACCEPT", "CONTENT_TYPE") or NULL. */
const char *reply_param(struct ctx *c, const char *name);
/* Is it there more than once? nginx before 1.23 passes on each line of a header but those few of which it refuses a second; reply_param
 * has the first. */
bool reply_param_twice(struct ctx *c, const char *name);

/* ---- stream.c: a stream of events, as NDJSON or, where Accept asks for it, as SSE (STR-1). -1 when the client is gone. */

bool reply_wants_sse(struct ctx *c);
/* reply_begin of a stream of events, never cached. */
int reply_stream(struct ctx *c);
/* What kept a stream of events from beginning may pass (503, 429): answer a GET that wants SSE with a stream that says why in a comment,
 * when to ask again, and ends. A browser's EventSource gives up for good after any error status, and comes back after an end (STR-3).
 * false: this is no such request, or no such error; nothing was answered. */
bool reply_come_back(struct ctx *c, const struct err *why);
/* One event of any process, and a flush. Takes the reference. -1 too when the line passes LIMIT_LINE_BYTES (nothing of it is sent
 * then). `id`: what a client sends back as Last-Event-ID to go on behind it; NULL: none. */
int reply_event(struct ctx *c, const char *id, json_t *v);
int reply_line(struct ctx *c, json_t *v); /* without id */
/* The same for a line that is ready: open, the line with its "\n" by reply_write, close. No flush. */
int reply_event_open(struct ctx *c, const char *id);
int reply_event_close(struct ctx *c);
/* STR-4: a sign of life without id, and a flush. */
int reply_ping(struct ctx *c);

/* ---- check.c: the input check (HTTP-3). Names the field (dotted path for nested ones) and what is allowed. Every violation is
 * in e's details. A JSON null is the same as an absent field: js_get() and friends see it so too. */
int op_check(const struct param *schema, const json_t *in, unsigned flags, struct err *e);
/* The same for a request by this route, in the words of where it is read from: in a query everything is text, and what stands
 * in the path is no field. */
int op_check_route(const struct op *op, const struct route *r, const json_t *in, struct err *e);
/* The same for a reply (in tests): null only where nullable, no default bounds. */
int op_check_out(const struct param *schema, const json_t *out, struct err *e);

/* ---- route.c */
struct route_match {
	const struct op *op;
	const struct route *route;
	json_t *path_params; /* new reference, object of strings */
	char allow[128];     /* on ERR_METHOD: the methods of that path */
	/* On ERR_METHOD an op of that path, on ERR_NOT_FOUND one that it is below of, in whose form the error is told; or NULL. */
	const struct op *near;
};
/* The routes of tables (ended by NULL), which are not copied. */
struct routes;
void routes_free(struct routes *r);
struct routes *routes_new(const struct op *const *tables) MADE_FOR(routes_free);
static inline void auto_routesp(struct routes **p)
{
	routes_free(*p);
}
/* Find the op of a method and decoded path: ERR_NOT_FOUND or ERR_METHOD otherwise. A literal segment beats a parameter. HEAD is
 * GET. Only ops of that door match. */
int route_find(const struct routes *all, const char *method, const char *path, enum op_door door,
    struct route_match *m, struct err *e);
/*
 * What a client wrote (path and query, still encoded; nginx's $request_uri), before anybody merged slashes or decoded: an empty
 * segment inside is ERR_NOT_FOUND; a dot segment, however it is written, and an encoded slash are ERR_BAD_REQUEST. So no value of a
 * client's becomes another path than the one its segments spell. r: the route that was found, or NULL; in the rest of its path, which
 * may hold slashes, an encoded one is like any other.
 */
int route_raw(const char *uri, const struct route *r, struct err *e);
const struct op *op_by_id(const struct op *const *tables, const char *id);
/* Does `name` stand in the path of this route? */
bool route_has(const struct route *r, const char *name);

/* ---- query.c */
/* Values of a query string as an object of strings (percent-decoded, "+" is a space, a repeated name is an error). */
json_t *query_parse(const char *query, struct err *e);
/* Turn strings of path and query into the types that the schema states ("50" -> 50). What cannot be turned stays a string for
 * op_check to refuse. */
void query_coerce(const struct param *schema, json_t *in);

/* ---- envelope.c, schema.c, openapi.c */
json_t *op_envelope(const struct err *e, const char *request_id); /* HTTP-4 */
json_t *op_schema(const struct param *schema);                    /* JSON Schema of an input object */
json_t *op_schema_out(const struct param *schema);                /* of a reply, or a line of a stream */
json_t *op_openapi(const struct op *const *tables);               /* the whole 3.1 document (OP-1) */

/* ---- request.c: are the fields of this route in a JSON body? Else they are in the query. */
bool op_has_body(const struct op *op, const struct route *r);
/* The HTTP request that carries an input, for clients of the table (CLI, tests). */
struct op_request {
	const char *method, *target; /* path and query, encoded */
	const char *body;            /* JSON; NULL: none (for an OP_RAW_IN op the caller has the bytes) */
};
/* Everything in the arena. ERR_BAD_REQUEST when a field that every route of the op has in its path is missing. */
int op_request(struct mem *m, const struct op *op, const json_t *in, struct op_request *r, struct err *e);
/* An input made of the examples of op->in. */
json_t *op_example(const struct op *op);

/*
 * ---- rows of a table: type, name, what it says, an example as JSON text or NULL; then what else there is to say (`.max = 64`).
 * Of an input: may be given, or must be. Of a reply: always there, there but perhaps null, perhaps not there.
 */
#define ROW(type_, name_, doc_, example_, ...)                                                               \
	{                                                                                                    \
		.name = (name_), .type = (type_), .doc = (doc_), .example = (example_), __VA_ARGS__          \
	}
#define IN(...)          ROW(__VA_ARGS__)
#define IN_REQUIRED(...) ROW(__VA_ARGS__, .required = true)
#define OUT(...)         ROW(__VA_ARGS__, .required = true)
#define OUT_NULL(...)    ROW(__VA_ARGS__, .required = true, .nullable = true)
#define OUT_MAYBE(...)   ROW(__VA_ARGS__)
extern const struct param op_none[]; /* no fields: `.out = op_none` answers {} */
/* An id of ours. */
#define IN_ID(...) IN_REQUIRED(T_STR, __VA_ARGS__, .min = 1, .max = 64)

/* ---- list.c: paging (HTTP-6). Opaque cursors carry the last sort key. */
#define LIST_PARAMS                                                                                          \
	IN(T_INT, "limit", "How many at most; 50 when not given.", NULL, .min = 1, .max = 200),              \
	    IN(T_STR, "cursor", "The `next` of the page before.", NULL, .min = 1, .max = 400)
extern const struct param op_list_in[]; /* LIST_PARAMS and nothing else */
int list_limit(const json_t *in);
/* The sort key in a cursor, in the arena, or "" when absent; ERR_BAD_REQUEST when it is not one of ours. */
const char *list_cursor(struct ctx *c, const json_t *in, struct err *e);
/* {"data": rows (taken), "next": cursor or null}: call with up to limit+1 rows; the surplus row is dropped and `last_key`
 * (of the last kept row) becomes the cursor. A key that begins with '_' is only for that: no row shows it. */
json_t *list_reply(json_t *rows, int limit, const char *key_field);
/* Rows of a list op's output schema. */
#define LIST_OUT(row_fields, data_doc)                                                                       \
	OUT(T_ARR, "data", data_doc, NULL,                                                                   \
	    .fields = &(const struct param){ .type = T_OBJ, .fields = (row_fields) }),                       \
	    OUT_NULL(T_STR, "next", "The `cursor` of the next page, null on the last one.", NULL)
