/*
 * err.h - one error value, owned by the caller, never allocated, never NULL.
 * One table (err.c) maps a code to its HTTP status, envelope type (HTTP-4) and CLI exit status.
 */
#pragma once

#include <stdbool.h>

enum err_code {
	ERR_NONE,
	ERR_BAD_REQUEST,  /* 400 */
	ERR_UNAUTHORIZED, /* 401 */
	ERR_PAYMENT,      /* 402 */
	ERR_FORBIDDEN,    /* 403 */
	ERR_NOT_FOUND,    /* 404: also another org's object (ID-4) */
	ERR_METHOD,       /* 405 */
	ERR_CONFLICT,     /* 409 */
	ERR_TOO_LARGE,    /* 413 */
	ERR_MEDIA,        /* 415 */
	ERR_RATE,         /* 429 */
	ERR_UPSTREAM,     /* 502: a back end answered wrongly */
	ERR_UNAVAILABLE,  /* 503: try again (Retry-After is sent) */
	ERR_TIMEOUT,      /* 504 */
	ERR_STORAGE,      /* 507: what it writes to is full; trying again does not help */
	ERR_INTERNAL,     /* 500: our own fault, or PostgreSQL refused what we sent */
	ERR_MAX_
};

enum { ERR_MSG_MAX = 480, ERR_PARAM_MAX = 96, ERR_DETAILS_MAX = 8 };

struct err_detail {
	char param[ERR_PARAM_MAX];
	char msg[160];
};

struct err {
	enum err_code code;
	const char *reason;        /* static string for the envelope's `code`; NULL means err_name(code) */
	int retry_s;               /* Retry-After; 0: none, for a 429 or 503 a default */
	char msg[ERR_MSG_MAX];     /* one sentence for the client; no secrets, no SQL, no server paths */
	char param[ERR_PARAM_MAX]; /* the field at fault, or "" */
	int n_details;             /* where several things are wrong at once */
	struct err_detail details[ERR_DETAILS_MAX];
};

/*
 * Fill e and return -1, so a function can end with: return err_set(e, ...). The first error wins.
 * They are macros so that a compiler or analyzer sees the -1 without seeing err.c.
 */
#define err_set(e, ...)     (err_set_(e, __VA_ARGS__), err_given())
/* err_field(e, code, param, fmt, ...): the same for a named field. */
#define err_field(e, ...)   (err_field_(e, __VA_ARGS__), err_given())
/* err_detail(e, code, param, fmt, ...): add one of several violations; more than ERR_DETAILS_MAX are dropped. The first also
 * sets code, msg and param. */
#define err_detail(e, ...)  (err_detail_(e, __VA_ARGS__), err_given())
/* Replace e by another error: only where a caller gives a fault a better meaning. */
#define err_replace(e, ...) (err_replace_(e, __VA_ARGS__), err_given())

void err_set_(struct err *e, enum err_code code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
void err_field_(struct err *e, enum err_code code, const char *param, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
void err_detail_(struct err *e, enum err_code code, const char *param, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
void err_replace_(struct err *e, enum err_code code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
static inline int err_given(void)
{
	return -1;
}
void err_clear(struct err *e);
bool err_is(const struct err *e, const char *reason); /* has it this reason? */

int err_http(enum err_code code);
const char *err_name(enum err_code code);     /* "not_found" */
const char *err_type(enum err_code code);     /* "not_found_error" (HTTP-4) */
int err_exit(enum err_code code);             /* sysexits-like status for the CLI */
enum err_code err_from_http(int http_status); /* the other way, for clients of our own servers */
