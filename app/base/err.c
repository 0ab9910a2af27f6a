#include "base/err.h"

#include <assert.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

static const struct {
	int http;
	const char *name, *type;
	int exit;
} codes[ERR_MAX_] = {
	[ERR_NONE] = { 200, "none", "none", 0 },
	[ERR_BAD_REQUEST] = { 400, "bad_request", "invalid_request_error", 64 },
	[ERR_UNAUTHORIZED] = { 401, "unauthorized", "authentication_error", 77 },
	[ERR_PAYMENT] = { 402, "payment_required", "insufficient_quota", 77 },
	[ERR_FORBIDDEN] = { 403, "forbidden", "permission_error", 77 },
	[ERR_NOT_FOUND] = { 404, "not_found", "not_found_error", 66 },
	[ERR_METHOD] = { 405, "method_not_allowed", "invalid_request_error", 64 },
	[ERR_CONFLICT] = { 409, "conflict", "conflict_error", 73 },
	[ERR_TOO_LARGE] = { 413, "too_large", "invalid_request_error", 64 },
	[ERR_MEDIA] = { 415, "unsupported_media_type", "invalid_request_error", 64 },
	[ERR_RATE] = { 429, "rate_limited", "rate_limit_error", 75 },
	[ERR_UPSTREAM] = { 502, "upstream", "upstream_error", 69 },
	[ERR_UNAVAILABLE] = { 503, "unavailable", "api_error", 75 },
	[ERR_TIMEOUT] = { 504, "timeout", "upstream_error", 75 },
	[ERR_STORAGE] = { 507, "no_space", "api_error", 74 },
	[ERR_INTERNAL] = { 500, "internal", "api_error", 70 },
};

/* vsnprintf cuts bytes; a cut inside a UTF-8 character would make the envelope invalid JSON. */
static __attribute__((format(printf, 3, 0))) void fill(char *dst, size_t size, const char *fmt, va_list ap)
{
	int n = vsnprintf(dst, size, fmt, ap);
	if (n < 0 || (size_t)n < size)
		return;
	size_t end = size - 1, start = end;
	while (start > 0 && ((unsigned char)dst[start - 1] & 0xC0) == 0x80)
		start--;
	if (start > 0 && ((unsigned char)dst[start - 1] & 0x80) != 0)
		dst[start - 1] = 0;
}

static __attribute__((format(printf, 4, 0))) void set(
    struct err *e, enum err_code code, const char *param, const char *fmt, va_list ap)
{
	assert(code > ERR_NONE && code < ERR_MAX_);
	/* Put together elsewhere: what is formatted may be a part of *e. */
	char msg[ERR_MSG_MAX] = "", named[ERR_PARAM_MAX];
	(void)snprintf(named, sizeof named, "%s", param);
	fill(msg, sizeof msg, fmt, ap);
	e->code = code;
	memcpy(e->param, named, sizeof e->param);
	memcpy(e->msg, msg, sizeof e->msg);
}

void err_set_(struct err *e, enum err_code code, const char *fmt, ...)
{
	if (e->code != ERR_NONE)
		return;
	va_list ap;
	va_start(ap, fmt);
	set(e, code, "", fmt, ap);
	va_end(ap);
}

void err_field_(struct err *e, enum err_code code, const char *param, const char *fmt, ...)
{
	if (e->code != ERR_NONE)
		return;
	va_list ap;
	va_start(ap, fmt);
	set(e, code, param, fmt, ap);
	va_end(ap);
}

void err_detail_(struct err *e, enum err_code code, const char *param, const char *fmt, ...)
{
	va_list ap;
	if (e->code == ERR_NONE) {
		va_start(ap, fmt);
		set(e, code, param, fmt, ap);
		va_end(ap);
	}
	if (e->n_details < ERR_DETAILS_MAX) {
		struct err_detail *d = &e->details[e->n_details++];
		(void)snprintf(d->param, sizeof d->param, "%s", param);
		va_start(ap, fmt);
		fill(d->msg, sizeof d->msg, fmt, ap);
		va_end(ap);
	}
}

void err_replace_(struct err *e, enum err_code code, const char *fmt, ...)
{
	struct err made = { .code = ERR_NONE };
	va_list ap;
	va_start(ap, fmt);
	set(&made, code, "", fmt, ap);
	va_end(ap);
	*e = made;
}

void err_clear(struct err *e)
{
	*e = (struct err){ .code = ERR_NONE };
}

bool err_is(const struct err *e, const char *reason)
{
	return e->reason != NULL && strcmp(e->reason, reason) == 0;
}

int err_http(enum err_code code)
{
	return codes[code].http;
}

const char *err_name(enum err_code code)
{
	return codes[code].name;
}

const char *err_type(enum err_code code)
{
	return codes[code].type;
}

int err_exit(enum err_code code)
{
	return codes[code].exit;
}

enum err_code err_from_http(int http_status)
{
	for (int c = ERR_NONE; c < ERR_MAX_; c++)
		if (codes[c].http == http_status)
			return (enum err_code)c;
	return http_status >= 500 ? ERR_UPSTREAM : ERR_BAD_REQUEST;
}
