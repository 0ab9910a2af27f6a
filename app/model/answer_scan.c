/*
 * What nearly every buffered answer of chat.completions is: one choice that says a text. It is read in place, and the tree that
 * answer_read.c reads is not made. Nothing is refused here: whatever is not plain (a call, an error, a list, a key that stands twice, what
 * a tree may not hold) is left to the tree, and of the rest both say the same.
 */
#include <string.h>

#include "model/wire_int.h"

enum {
	KEYS_MAX = 24,     /* of one object */
	NUMBER_BYTES = 17, /* what is longer may not fit */
};

/* The keys of an object so far. */
struct keys {
	size_t n;
	struct str key[KEYS_MAX];
};

static void leave(struct scan *s)
{
	s->bad = true;
}

/* At an object's beginning. */
static bool begin(struct scan *s, struct keys *k)
{
	k->n = 0;
	if (scan_peek(s) != '{')
		leave(s);
	return !s->bad && scan_object(s);
}

static bool next(struct scan *s, struct keys *k, struct str *key)
{
	if (!scan_key(s, key))
		return false;
	if (k->n == KEYS_MAX || memchr(key->p, '\\', key->n) != NULL)
		leave(s);
	for (size_t i = 0; i < k->n; i++)
		if (k->key[i].n == key->n && memcmp(k->key[i].p, key->p, key->n) == 0)
			leave(s);
	if (s->bad)
		return false;
	k->key[k->n++] = *key;
	return true;
}

/* A value that nobody asks for: one that a tree holds, whatever is in it. */
static void other(struct scan *s)
{
	struct str v;
	char c = scan_peek(s);
	if (!scan_value(s, &v))
		return;
	bool number = c == '-' || (c >= '0' && c <= '9');
	if (number ? v.n > NUMBER_BYTES || memchr(v.p, 'e', v.n) != NULL || memchr(v.p, 'E', v.n) != NULL
		   : (c == '{' || c == '[') && v.n > 2)
		leave(s);
}

/* What has to be null, or nothing at all. */
static void none(struct scan *s, bool or_list)
{
	char c = scan_peek(s);
	if (c == 'n' || (c == '[' && or_list))
		other(s);
	else
		leave(s);
}

/* A string, in the arena; NULL for null. */
static const char *text(struct scan *s, struct mem *m)
{
	struct scan_text t;
	if (scan_peek(s) != '"') {
		none(s, false);
		return NULL;
	}
	if (!scan_string(s, &t))
		return NULL;
	if (!t.escaped)
		return mem_strn(m, t.raw.p, t.raw.n);
	auto_buf struct buf b = BUF(t.raw.n);
	(void)scan_unescape(t, &b);
	return mem_strn(m, buf_c(&b), b.n);
}

struct said {
	bool message;
	const char *content, *refusal, *finish;
};

static void message(struct scan *s, struct mem *m, struct said *to)
{
	struct keys k;
	struct str key;
	to->message = begin(s, &k);
	while (to->message && next(s, &k, &key)) {
		if (str_eq(key, "content"))
			to->content = text(s, m);
		else if (str_eq(key, "refusal"))
			to->refusal = text(s, m);
		else if (str_eq(key, "tool_calls"))
			none(s, true);
		else if (str_eq(key, "function_call") || str_eq(key, "reasoning_content") ||
		    str_eq(key, "reasoning"))
			none(s, false);
		else
			other(s);
	}
}

/* The only one. */
static void choices(struct scan *s, struct mem *m, struct said *to)
{
	struct keys k;
	struct str key;
	if (scan_peek(s) != '[' || !scan_array(s) || !scan_item(s) || !begin(s, &k)) {
		leave(s);
		return;
	}
	while (next(s, &k, &key)) {
		if (str_eq(key, "message"))
			message(s, m, to);
		else if (str_eq(key, "finish_reason"))
			to->finish = text(s, m);
		else
			other(s);
	}
	if (scan_item(s))
		leave(s);
}

static void counts(struct scan *s, struct wire_counts *c, int depth)
{
	struct keys k;
	struct str key;
	long long n;
	if (!begin(s, &k))
		return;
	while (next(s, &k, &key)) {
		char at = scan_peek(s);
		if (at == '{' && depth == 0) /* …_details */
			counts(s, c, 1);
		else if (at != '-' && (at < '0' || at > '9'))
			other(s);
		else if (scan_int(s, &n))
			wire_count(c, key, n);
		else
			leave(s);
	}
}

static void object(struct scan *s)
{
	struct scan_text t;
	if (scan_peek(s) != '"')
		other(s);
	else if (scan_string(s, &t) && (t.escaped || str_eq(t.raw, "error")))
		leave(s);
}

struct read {
	struct wire_answer *out;
	struct wire_counts counts;
	struct said said;
};

static void member(struct scan *s, struct mem *m, struct str key, struct read *r)
{
	if (str_eq(key, "id"))
		r->out->id = text(s, m);
	else if (str_eq(key, "model"))
		r->out->model = text(s, m);
	else if (str_eq(key, "object"))
		object(s);
	else if (str_eq(key, "choices"))
		choices(s, m, &r->said);
	else if (str_eq(key, "error") || str_eq(key, "status") || str_eq(key, "type"))
		none(s, false);
	else if (str_eq(key, "usage") && scan_peek(s) != 'n')
		counts(s, &r->counts, 0);
	else
		other(s);
}

static void add(struct wire_answer *a, enum wire_part_kind kind, const char *said)
{
	if (said != NULL && said[0] != 0)
		a->parts[a->n_parts++] = (struct wire_part){ .kind = kind, .text = said };
}

/* Escapes of characters: half a pair of them, or none, may be meant. */
static bool has_unicode(struct str s)
{
	for (const char *at; (at = memchr(s.p, '\\', s.n)) != NULL; s.n -= (size_t)(at - s.p), s.p = at) {
		at++;
		if (at == s.p + s.n || *at++ == 'u')
			return true;
	}
	return false;
}

bool wire_answer_plain(struct mem *m, struct str body, struct wire_answer *out)
{
	struct scan s = scan_of(body);
	struct wire_answer a = { .n = 1 };
	struct read r = { .out = &a };
	struct keys k;
	struct str key;
	if (has_unicode(body) || utf8_valid(body.p, body.n) != body.n || !begin(&s, &k))
		return false;
	while (next(&s, &k, &key))
		member(&s, m, key, &r);
	if (!scan_done(&s) || !r.said.message)
		return false;
	a.parts = mem_alloc(m, 2 * sizeof *a.parts);
	add(&a, WIRE_TEXT, r.said.content);
	add(&a, WIRE_REFUSAL, r.said.refusal);
	a.finish = wire_finish_of(WIRE_CHAT, str_of(r.said.finish));
	if (a.finish == WIRE_UNFINISHED)
		a.finish = WIRE_STOP;
	a.usage = wire_counts_usage(WIRE_CHAT, &r.counts);
	*out = a;
	return true;
}
