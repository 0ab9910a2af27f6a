#include "op/connect.h"

#include <string.h>

#include "base/buf.h"
#include "base/js.h"
#include "base/str.h"

enum { TIMEOUT_DIGITS = 10 };

/* By enum err_code. Clients take "unavailable" for what they talk to being gone for good; what passes is "aborted", which says that it
 * may be tried again. */
static const struct {
	const char *code;
	int status; /* of a unary answer: the protocol fixes it */
} codes[ERR_MAX_] = {
	[ERR_NONE] = { "unknown", 500 },
	[ERR_BAD_REQUEST] = { "invalid_argument", 400 },
	[ERR_UNAUTHORIZED] = { "unauthenticated", 401 },
	[ERR_PAYMENT] = { "failed_precondition", 400 },
	[ERR_FORBIDDEN] = { "permission_denied", 403 },
	[ERR_NOT_FOUND] = { "not_found", 404 },
	[ERR_METHOD] = { "unimplemented", 501 },
	[ERR_CONFLICT] = { "failed_precondition", 400 },
	[ERR_TOO_LARGE] = { "invalid_argument", 400 },
	[ERR_MEDIA] = { "invalid_argument", 400 },
	[ERR_RATE] = { "resource_exhausted", 429 },
	[ERR_UPSTREAM] = { "internal", 500 },
	[ERR_UNAVAILABLE] = { "aborted", 409 },
	[ERR_TIMEOUT] = { "deadline_exceeded", 504 },
	[ERR_STORAGE] = { "resource_exhausted", 429 },
	[ERR_INTERNAL] = { "internal", 500 },
};

/* Where one code of ours is told as another, the reason says so. */
static const struct {
	const char *reason, *code;
	int status;
} reasons[] = {
	{ "already_exists", "already_exists", 409 },
	{ CONNECT_OVER, "unavailable", 503 },
	{ "unimplemented", "unimplemented", 501 },
	{ "data_loss", "data_loss", 500 },
};

static const char *code_of(const struct err *e, int *status)
{
	for (size_t i = 0; e->reason != NULL && i < sizeof reasons / sizeof reasons[0]; i++)
		if (strcmp(e->reason, reasons[i].reason) == 0) {
			*status = reasons[i].status;
			return reasons[i].code;
		}
	*status = codes[e->code].status;
	return codes[e->code].code;
}

const char *connect_code(const struct err *e)
{
	int status;
	return code_of(e, &status);
}

int connect_frame(
    const void *p, size_t n, size_t max_bytes, unsigned char *flags, struct str *message, struct err *e)
{
	const unsigned char *b = p;
	if (n < CONNECT_HEAD)
		return 0;
	size_t len = (size_t)b[1] << 24 | (size_t)b[2] << 16 | (size_t)b[3] << 8 | b[4];
	if (len > max_bytes)
		return err_set(e, ERR_TOO_LARGE, "The message is longer than %zu bytes.", max_bytes);
	if (n - CONNECT_HEAD < len)
		return 0;
	*flags = b[0];
	*message = (struct str){ (const char *)b + CONNECT_HEAD, len };
	return 1;
}

static bool is_stream(const char *type)
{
	static const char want[] = "application/connect+json";
	if (type == NULL || !str_starts(type, want))
		return false;
	const char *rest = type + sizeof want - 1;
	return rest[strspn(rest, " \t")] == '\0' || rest[strspn(rest, " \t")] == ';';
}

static json_t *message_of(unsigned char flags, struct str s, struct err *e)
{
	if (flags != 0) {
		err_set(
		    e, ERR_BAD_REQUEST, "The message is compressed or of an unknown kind; send plain JSON.");
		return NULL;
	}
	json_t *v = s.n == 0 ? json_object() : js_parse(s.p, s.n, e);
	if (v == NULL || json_is_object(v))
		return v;
	json_decref(v);
	err_set(e, ERR_BAD_REQUEST, "The message must be a JSON object.");
	return NULL;
}

json_t *connect_read(struct ctx *c, size_t max_bytes, struct err *e)
{
	unsigned char flags = 0;
	struct str s = { 0 };
	if (!is_stream(reply_param(c, "CONTENT_TYPE"))) {
		err_set(e, ERR_MEDIA, "Send this call with Content-Type: application/connect+json.");
		return NULL;
	}
	auto_buf struct buf body = BUF(max_bytes + CONNECT_HEAD + 4096);
	for (int got = 0; got <= 0;) {
		char *room = buf_room(&body, 4096);
		ssize_t n = room == NULL ? -1 : reply_read(c, room, 4096);
		if (n <= 0) {
			err_set(e, ERR_BAD_REQUEST, "The message ended before its length.");
			return NULL;
		}
		buf_grew(&body, (size_t)n);
		got = connect_frame(body.p, body.n, max_bytes, &flags, &s, e);
		if (got < 0)
			return NULL;
	}
	return message_of(flags, s, e);
}

int connect_timeout(struct ctx *c, long long *ms, struct err *e)
{
	const char *text = reply_param(c, "HTTP_CONNECT_TIMEOUT_MS");
	*ms = 0;
	if (text == NULL || text[0] == '\0')
		return 0;
	if (strlen(text) <= TIMEOUT_DIGITS && str_int(text, 0, 9999999999LL, ms))
		return 0;
	return err_set(e, ERR_BAD_REQUEST, "`Connect-Timeout-Ms` must be a whole number of milliseconds.");
}

int connect_begin(struct ctx *c)
{
	reply_header(c, "Cache-Control", "no-store");
	return reply_begin(c, 200, "application/connect+json");
}

static int send(struct ctx *c, unsigned char flags, json_t *message)
{
	auto_json json_t *mine = message;
	auto_free char *text = json_dumps(mine, JSON_COMPACT);
	if (text == NULL)
		abort();
	size_t n = strlen(text);
	const unsigned char head[CONNECT_HEAD] = { flags, (unsigned char)(n >> 24), (unsigned char)(n >> 16),
		(unsigned char)(n >> 8), (unsigned char)n };
	if (reply_write(c, head, sizeof head) != 0 || reply_write(c, text, n) != 0)
		return -1;
	return reply_flush(c);
}

int connect_send(struct ctx *c, json_t *message)
{
	return send(c, 0, message);
}

static json_t *error_object(const struct err *e)
{
	return js_pack("{s:s,s:s}", "code", connect_code(e), "message", e->msg);
}

void connect_end(struct ctx *c, const struct err *e)
{
	if (!c->reply->begun)
		(void)connect_begin(c);
	(void)send(
	    c, CONNECT_END, e->code == ERR_NONE ? json_object() : js_pack("{s:o}", "error", error_object(e)));
}

void connect_refuse(struct ctx *c, const struct err *e)
{
	int status;
	(void)code_of(e, &status);
	auto_json json_t *o = error_object(e);
	const char *text = js_dump(c->mem, o);
	(void)reply_begin(c, status, "application/json");
	(void)reply_write(c, text, strlen(text));
}
