#include "forge/cgi.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/hash.h"
#include "base/str.h"

static int bad_head(struct err *e)
{
	return err_set(e, ERR_INTERNAL, "git answered in a way that cannot be passed on.");
}

/* The value of "Name: value" when the line has that name. */
static bool header_is(struct str line, const char *name, struct str *value)
{
	size_t n = strlen(name);
	if (line.n <= n || line.p[n] != ':' || strncasecmp(line.p, name, n) != 0)
		return false;
	*value = (struct str){ line.p + n + 1, line.n - n - 1 };
	while (value->n > 0 && value->p[0] == ' ')
		*value = (struct str){ value->p + 1, value->n - 1 };
	return true;
}

static int take_line(struct str line, struct cgi_head *h, struct err *e)
{
	struct str v;
	if (memchr(line.p, ':', line.n) == NULL || memchr(line.p, 0, line.n) != NULL)
		return bad_head(e);
	if (header_is(line, "Status", &v)) {
		char code[4] = { 0 };
		long long status;
		if (v.n < 3 || (v.n > 3 && v.p[3] != ' '))
			return bad_head(e);
		memcpy(code, v.p, 3);
		if (!str_int(code, 100, 599, &status))
			return bad_head(e);
		h->status = (int)status;
	} else if (header_is(line, "Content-Type", &v)) {
		if (v.n >= sizeof h->content_type || memchr(v.p, '\r', v.n) != NULL)
			return bad_head(e);
		(void)snprintf(h->content_type, sizeof h->content_type, "%.*s", (int)v.n, v.p);
	}
	return 0;
}

int cgi_head_parse(const char *p, size_t n, struct cgi_head *h, struct err *e)
{
	*h = (struct cgi_head){ .status = 200 };
	size_t at = 0;
	while (at < n) {
		const char *end = memchr(p + at, '\n', n - at);
		if (end == NULL)
			break;
		struct str line = { p + at, (size_t)(end - p) - at };
		at += line.n + 1;
		if (line.n > 0 && line.p[line.n - 1] == '\r')
			line.n--;
		if (line.n == 0)
			return (int)at;
		if (take_line(line, h, e) != 0)
			return -1;
	}
	return n >= CGI_HEAD_MAX ? bad_head(e) : 0;
}

enum push_start push_start(const char *p, size_t n, size_t *used)
{
	for (size_t at = 0; n - at >= 4;) {
		char digits[5] = { p[at], p[at + 1], p[at + 2], p[at + 3], 0 };
		unsigned char len[2];
		if (hex_decode(digits, len, sizeof len) != 2)
			return PUSH_COMMANDS;
		size_t size = (size_t)len[0] << 8 | len[1];
		*used = at + 4;
		if (size == 0)
			return PUSH_NOTHING;
		if (size < 4)
			return PUSH_COMMANDS;
		/* A shallow client says its borders first; they are no commands. */
		static const char shallow[] = "shallow ";
		size_t have = n - at - 4, want = strlen(shallow);
		if (memcmp(p + at + 4, shallow, have < want ? have : want) != 0)
			return PUSH_COMMANDS;
		if (n - at < size)
			return PUSH_MORE;
		at += size;
	}
	return PUSH_MORE;
}

const char *cgi_client_fault(const char *said)
{
	static const struct {
		const char *words, *fault;
	} known[] = {
		{ "inflating request", "The body is not gzip, as its Content-Encoding says." },
		{ "in the middle of the gzip stream", "The gzip'd body was cut off." },
		{ "protocol error", "The body is no request that git understands." },
		{ "invalid command", "The body asks for a command that git does not have." },
		{ "unknown capability", "The body asks for something that git does not offer." },
		{ "hung up unexpectedly", "The body ended too early." },
		{ "not our ref", "An object was asked for that no branch or tag here has." },
	};
	for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
		if (strstr(said, known[i].words) != NULL)
			return known[i].fault;
	return NULL;
}
