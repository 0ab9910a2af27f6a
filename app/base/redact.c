#include "base/redact.h"

#include <ctype.h>
#include <limits.h>
#include <string.h>

#include "base/hash.h"
#include "base/id.h"
#include "base/secret.h"
#include "base/str.h"

#define MARK "[redacted]"

/*
 * RED-1: the secret key parts, without separators. A key matches when some of its neighbouring parts, joined,
 * are a row: "api_key", "x-api-key", "apiKey" and "APIKEY" are all "apikey". "tokens" is not "token": it
 * counts them.
 */
static const char *const secret_parts[] = {
	"password",
	"passwords",
	"passwd",
	"passphrase",
	"pwd",
	"secret",
	"secrets",
	"token",
	"apikey",
	"apikeys",
	"authorization",
	"auth",
	"bearer",
	"credential",
	"credentials",
	"privatekey",
	"accesskey",
	"encryptionkey",
	"signingkey",
	"secretkey",
	"sessionkey",
	"sealkey",
	"cookie",
	"cookies",
	"jwt",
	NULL,
};

static bool is_row(const char *p, size_t n)
{
	for (const char *const *row = secret_parts; *row != NULL; row++)
		if ((*row)[0] == p[0] && strlen(*row) == n && memcmp(*row, p, n) == 0)
			return true;
	return false;
}

enum { KEY_MAX = 256, PARTS_MAX = 64, LONGEST_ROW = 13 };

struct parts { /* a key's letters in lower case, and where its parts begin; start[n] is the end */
	char text[KEY_MAX];
	size_t start[PARTS_MAX + 1];
	size_t n;
};

/* A part begins at a letter after a non-letter, at aB, and at the B of ABc. */
static bool begins(const unsigned char *k, size_t at)
{
	if (at == 0 || !isalpha(k[at - 1]))
		return true;
	if (!isupper(k[at]))
		return false;
	return islower(k[at - 1]) || islower(k[at + 1]);
}

/* False for a key that is too long to be judged. */
static bool split(const char *key, struct parts *s)
{
	const unsigned char *k = (const unsigned char *)key;
	size_t len = 0;
	s->n = 0;
	for (size_t i = 0; k[i] != 0; i++) {
		if (!isalpha(k[i]))
			continue;
		if (len == KEY_MAX || s->n == PARTS_MAX)
			return false;
		if (begins(k, i))
			s->start[s->n++] = len;
		s->text[len++] = (char)tolower(k[i]);
	}
	s->start[s->n] = len;
	return true;
}

bool redact_key(const char *key)
{
	struct parts s;
	size_t n = 0;
	while (key[n] >= 'a' && key[n] <= 'z')
		n++;
	if (key[n] == 0) /* one part, as most are */
		return n > LONGEST_ROW ? n > KEY_MAX : is_row(key, n);
	if (!split(key, &s))
		return true;
	for (size_t from = 0; from < s.n; from++)
		for (size_t to = from + 1; to <= s.n && s.start[to] - s.start[from] <= LONGEST_ROW; to++)
			if (is_row(s.text + s.start[from], s.start[to] - s.start[from]))
				return true;
	return false;
}

/* ---- RED-2 */

static bool token_char(char c)
{
	return isalnum((unsigned char)c) || c == '_' || c == '-';
}

enum { PREFIX = 3, SHORTEST = 8 };

/* The exact beginning of a credential: prefix, the 26 characters of its id, '_'. */
static bool exact_token(const char *p, size_t n)
{
	if (n <= PREFIX + ID_TAIL || p[PREFIX + ID_TAIL] != '_')
		return false;
	for (size_t i = PREFIX; i < PREFIX + ID_TAIL; i++)
		if (!islower((unsigned char)p[i]) && !isdigit((unsigned char)p[i]))
			return false;
	return true;
}

/*
 * Length of a credential of ours at p, 0 when there is none. After a letter or digit only the exact beginning
 * counts
 * ("msgr_handler_name" is a word), elsewhere anything of that kind does, cut ones included.
 */
static size_t own_token(const char *p, size_t n, bool in_word)
{
	if (n < PREFIX || p[0] != 'g' || memchr("krgs", p[1], 4) == NULL || p[2] != '_')
		return 0;
	if (in_word && !exact_token(p, n))
		return 0;
	size_t len = PREFIX;
	while (len < n && token_char(p[len]))
		len++;
	return len < PREFIX + SHORTEST ? 0 : len;
}

/*
 * Keys of others, by how their makers let them begin; a vendor may quote one in an error. At least `least` characters follow. Of some
 * only letters and digits do, so that a name with dashes or underscores in it is none. The longer of two that begin alike stands first.
 */
static const struct shape {
	const char *begin;
	unsigned char least;
	bool dashes;
} shapes[] = {
	{ "sk-ant-", 8, true },
	{ "sk-proj-", 8, true },
	{ "sk-svcacct-", 8, true },
	{ "sk-admin-", 8, true },
	{ "sk-or-", 8, true },
	{ "sk-", 20, false },
	{ "sk_live_", 8, false },
	{ "sk_test_", 8, false },
	{ "AKIA", 16, false },
	{ "ASIA", 16, false },
	{ "AIza", 30, true },
	{ "ghp_", 20, false },
	{ "gho_", 20, false },
	{ "ghu_", 20, false },
	{ "ghs_", 20, false },
	{ "ghr_", 20, false },
	{ "github_pat_", 20, true },
	{ "glpat-", 16, true },
	{ "gsk_", 20, false },
	{ "hf_", 20, false },
	{ "npm_", 20, false },
	{ "nvapi-", 20, true },
	{ "pplx-", 20, false },
	{ "xai-", 20, false },
	{ "xapp-", 10, true },
	{ "xoxa-", 10, true },
	{ "xoxb-", 10, true },
	{ "xoxp-", 10, true },
};

static size_t foreign_token(const char *p, size_t n, bool in_word)
{
	if (in_word)
		return 0;
	for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
		const struct shape *s = &shapes[i];
		if (s->begin[0] != p[0])
			continue;
		size_t begin = strlen(s->begin), len = begin;
		if (n < begin || memcmp(p, s->begin, begin) != 0)
			continue;
		while (len < n && (s->dashes ? token_char(p[len]) : isalnum((unsigned char)p[len])))
			len++;
		if (len >= begin + s->least)
			return len;
	}
	return 0;
}

static size_t any_token(const char *p, size_t at, size_t n)
{
	char before = at > 0 ? p[at - 1] : ' ';
	size_t len = p[at] != 'g' ? 0 : own_token(p + at, n - at, isalnum((unsigned char)before));
	return len != 0 ? len : foreign_token(p + at, n - at, token_char(before));
}

static bool scheme_char(char c)
{
	return isalnum((unsigned char)c) || c == '+' || c == '.' || c == '-';
}

static bool scheme_before(const char *p, size_t at)
{
	while (at > 0 && scheme_char(p[at - 1]))
		if (isalpha((unsigned char)p[--at]))
			return true;
	return false;
}

static bool url_ends(char c)
{
	return (unsigned char)c <= ' ' || c == 0x7f;
}

static bool authority_ends(char c)
{
	return url_ends(c) || memchr("/?#\"<>\\`", c, 8) != NULL;
}

/* A colon with something else than a port after it, outside an IPv6 literal: a password with an unescaped
 * delimiter. */
static bool odd_port(const char *p, size_t n)
{
	const char *colon = n > 0 && p[0] != '[' ? memchr(p, ':', n) : NULL;
	if (colon == NULL)
		return false;
	for (const char *c = colon + 1; c < p + n; c++)
		if (!isdigit((unsigned char)*c))
			return true;
	return false;
}

/* Length of the userinfo of a URL whose authority starts at p, without its '@'; -1 when there is none. */
static ssize_t userinfo(const char *p, size_t n)
{
	size_t end = 0;
	while (end < n && !authority_ends(p[end]))
		end++;
	const char *at = memrchr(p, '@', end);
	if (at == NULL && odd_port(p, end)) {
		while (end < n && end < REDACT_ODD_MAX && !url_ends(p[end]))
			end++;
		at = memrchr(p, '@', end);
	}
	return at == NULL ? -1 : at - p;
}

/* What any token begins with. */
static const bool may_begin[UCHAR_MAX + 1] = {
	['s'] = true, ['A'] = true, ['g'] = true, ['x'] = true, ['h'] = true, ['n'] = true, ['p'] = true
};

static void tokens(const char *p, size_t n, struct buf *out)
{
	size_t done = 0;
	for (size_t i = 0; i < n;) {
		size_t len = may_begin[(unsigned char)p[i]] ? any_token(p, i, n) : 0;
		if (len == 0) {
			i++;
			continue;
		}
		(void)buf_add(out, p + done, i - done);
		(void)buf_str(out, MARK);
		done = i += len;
	}
	(void)buf_add(out, p + done, n - done);
}

static void url_user(const char *p, size_t n, struct buf *out)
{
	const char *colon = memchr(p, ':', n);
	if (colon != NULL) {
		tokens(p, (size_t)(colon - p), out);
		(void)buf_chr(out, ':');
	}
	if (n > 0)
		(void)buf_str(out, MARK);
}

int redact_plain(const char *p, size_t n, struct buf *out)
{
	size_t done = 0;
	const char *colon;
	for (size_t i = 0; i + 3 <= n && (colon = memchr(p + i, ':', n - 2 - i)) != NULL; i++) {
		i = (size_t)(colon - p);
		if (p[i + 1] != '/' || p[i + 2] != '/' || !scheme_before(p + done, i - done))
			continue;
		ssize_t user = userinfo(p + i + 3, n - i - 3);
		if (user < 0)
			continue;
		tokens(p + done, i + 3 - done, out);
		url_user(p + i + 3, (size_t)user, out);
		done = i + 3 + (size_t)user;
		i = done;
	}
	tokens(p + done, n - done, out);
	return out->full ? -1 : 0;
}

/* ---- COD-8 */

enum { NEEDLES = 6, SHORTEST_SECRET = 4 };

struct needle { /* the characters of a base64 text that depend on the secret alone */
	char *text;
	size_t n;
};

/* The base64 form when `pad` bytes (0..2) of something else stand before the secret. */
static struct needle needle_make(const char *secret, size_t n, size_t pad, bool url)
{
	char *raw = xcalloc(1, n + pad);
	struct needle d = { xcalloc(1, B64_SIZE(n + pad)), 8 * (n + pad) / 6 };
	memcpy(raw + pad, secret, n);
	(void)b64_encode(raw, n + pad, d.text);
	size_t skip = (8 * pad + 5) / 6;
	d.n -= skip;
	memmove(d.text, d.text + skip, d.n);
	for (size_t i = 0; url && i < d.n; i++)
		d.text[i] = d.text[i] == '+' ? '-' : d.text[i] == '/' ? '_' : d.text[i];
	secret_wipe(raw, n + pad);
	free(raw);
	return d;
}

/* Bytes of p that spell the secret, each plainly or as %XX; 0 when it is not there. */
static size_t spelled(const char *p, size_t n, const char *secret)
{
	size_t at = 0;
	for (; *secret != 0; secret++) {
		unsigned char byte;
		char hex[3] = { 0 };
		if (at + 3 <= n && p[at] == '%') {
			memcpy(hex, p + at + 1, 2);
			if (hex_decode(hex, &byte, 1) == 1 && (char)byte == *secret) {
				at += 3;
				continue;
			}
		}
		if (at >= n || p[at] != *secret)
			return 0;
		at++;
	}
	return at;
}

static bool b64_char(char c)
{
	return isalnum((unsigned char)c) || memchr("+/-_=", c, 5) != NULL;
}

static bool any_needle(const struct needle *d, const char *p, size_t n)
{
	for (int i = 0; i < NEEDLES; i++)
		if (d[i].n <= n && memcmp(d[i].text, p, d[i].n) == 0)
			return true;
	return false;
}

static void without(const char *p, size_t n, const char *secret, const struct needle *d, struct buf *out)
{
	size_t done = 0;
	for (size_t i = 0; i < n;) {
		size_t from = i, to = i + spelled(p + i, n - i, secret);
		if (to == i && any_needle(d, p + i, n - i)) {
			/* The whole base64 text goes: its edges hold bits of the secret too. */
			while (from > done && b64_char(p[from - 1]))
				from--;
			while (to < n && b64_char(p[to]))
				to++;
		}
		if (to == i) {
			i++;
			continue;
		}
		(void)buf_add(out, p + done, from - done);
		(void)buf_str(out, MARK);
		done = i = to;
	}
	(void)buf_add(out, p + done, n - done);
}

int redact_secret(const char *p, size_t n, const char *secret, struct buf *out)
{
	size_t len = strlen(secret);
	if (len < SHORTEST_SECRET)
		return buf_add(out, p, n);
	struct needle d[NEEDLES];
	for (int i = 0; i < NEEDLES; i++)
		d[i] = needle_make(secret, len, (size_t)i % 3, i >= 3);
	without(p, n, secret, d, out);
	for (int i = 0; i < NEEDLES; i++) {
		secret_wipe(d[i].text, d[i].n);
		free(d[i].text);
	}
	return out->full ? -1 : 0;
}
