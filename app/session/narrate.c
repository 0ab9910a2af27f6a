#include "session/narrate.h"

#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/js.h"
#include "base/log.h"
#include "base/redact.h"
#include "base/str.h"

enum {
	SAY_BYTES = 8 * 1024,
	SAY_MS = 1000,
	APPEND_WAIT_MS = 5000,
	OWN_TOKEN_BYTES = 128, /* longer than any credential of ours */
	MARK_BYTES = 64,
};

/* The newest bytes of a stream. What was pushed out at the front is only counted. */
struct window {
	char *p;
	size_t n, cap;
	unsigned long long skipped;
};

struct narrator {
	struct narrate_to to;
	size_t word; /* longest form of a secret: a cut inside a word loses this much around it */
	struct window say, tail;
	int64_t said_ms, fed_ms;
	bool broken;
};

static void window_add(struct window *w, const char *p, size_t n)
{
	if (n > w->cap) {
		w->skipped += n - w->cap;
		p += n - w->cap;
		n = w->cap;
	}
	size_t over = w->n + n > w->cap ? w->n + n - w->cap : 0;
	memmove(w->p, w->p + over, w->n - over);
	w->skipped += over;
	w->n -= over;
	memcpy(w->p + w->n, p, n);
	w->n += n;
}

static void window_drop(struct window *w, size_t n)
{
	memmove(w->p, w->p + n, w->n - n);
	w->n -= n;
}

static bool is_space(char c)
{
	return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

/* Secrets hold no white space, so text that is cut only there never shows half of one. */
static size_t whole_words(const struct window *w)
{
	size_t n = w->n;
	while (n > 0 && !is_space(w->p[n - 1]))
		n--;
	return n;
}

/* Where the first `n` bytes may begin to be shown after something before them was left out. */
static size_t first_word(const struct window *w, size_t n, size_t word)
{
	if (w->skipped == 0)
		return 0;
	for (size_t i = 0; i < n; i++)
		if (is_space(w->p[i]))
			return i + 1;
	return word < n ? word : n;
}

/* The first n bytes of w as they may be shown: at most `max`, the end of them. */
static void clean(const struct narrator *t, const struct window *w, size_t n, size_t max, struct buf *out)
{
	size_t from = first_word(w, n, t->word);
	auto_buf struct buf all = BUF(16 * (w->cap + 1));
	int rc = t->to.hide == NULL ? buf_add(&all, w->p + from, n - from)
				    : redact_secret(w->p + from, n - from, secret_use(t->to.hide), &all);
	if (rc != 0)
		return;
	unsigned long long left_out = w->skipped + from;
	size_t at = 0;
	if (left_out > 0 || all.n > max) {
		at = all.n + MARK_BYTES > max ? all.n + MARK_BYTES - max : 0;
		while (at > 0 && at < all.n && ((unsigned char)all.p[at] & 0xc0) == 0x80)
			at++; /* not into a character */
		(void)buf_fmt(out, "[%llu bytes left out]\n", left_out + at);
	}
	if (all.n > at)
		(void)buf_add(out, all.p + at, all.n - at);
}

struct narrator *narrate_new(const struct narrate_to *to)
{
	struct narrator *t = xcalloc(1, sizeof *t);
	t->to = *to;
	/* Percent-encoding triples a secret; base64 grows it less. */
	t->word = to->hide == NULL ? OWN_TOKEN_BYTES : 3 * secret_len(to->hide) + OWN_TOKEN_BYTES;
	t->say.cap = SAY_BYTES + t->word;
	t->tail.cap = NARRATE_TAIL_BYTES + t->word;
	t->say.p = xcalloc(1, t->say.cap);
	t->tail.p = xcalloc(1, t->tail.cap);
	return t;
}

void narrate_free(struct narrator *t)
{
	if (t == NULL)
		return;
	free(t->say.p);
	free(t->tail.p);
	free(t);
}

/* True when it may be said later: PostgreSQL is away. Anything else ends the narration. */
static bool later(struct narrator *t, const struct err *e)
{
	if (e->code == ERR_UNAVAILABLE)
		return true;
	t->broken = true;
	log_warn("narration ended", "session", t->to.session, "org", t->to.org, "error", e->msg);
	return false;
}

/* Say the first n bytes that wait. While PostgreSQL is away they go on waiting (REL-2): the newest, as the window has room. */
static void say(struct narrator *t, size_t n)
{
	auto_buf struct buf text = BUF(SAY_BYTES + MARK_BYTES);
	clean(t, &t->say, n, SAY_BYTES, &text);
	t->said_ms = clock_ms();
	struct err e = { 0 };
	auto_pg struct pg *db = text.n == 0 ? NULL : pg_take(t->to.db, APPEND_WAIT_MS, &e);
	bool said = text.n == 0 ||
	    (db != NULL && session_log(db, t->to.org, t->to.session, text.p, text.n, t->to.fence, &e) == 0);
	if (!said && later(t, &e))
		return;
	window_drop(&t->say, n);
	t->say.skipped = 0;
}

/* Say what can be said now. A last word that may go on is held back; after a silence only where it could be a secret. */
static void say_some(struct narrator *t, bool silent)
{
	if (t->broken || clock_ms() - t->said_ms < SAY_MS)
		return;
	size_t n = whole_words(&t->say);
	if (n == 0 && t->say.n == t->say.cap) {
		/* A word longer than the window cannot be cut safely. */
		t->say.skipped += t->say.n;
		t->say.n = 0;
		return;
	}
	if (silent && t->to.hide == NULL)
		n = t->say.n;
	if (n > 0)
		say(t, n);
}

void narrate_output(struct narrator *t, const char *p, size_t len)
{
	window_add(&t->tail, p, len);
	if (t->broken || len == 0)
		return;
	window_add(&t->say, p, len);
	say_some(t, false);
	t->fed_ms = clock_ms();
}

void narrate_box_line(struct narrator *t, const json_t *line)
{
	const char *type = js_str_or(line, "type", ""), *data = js_str(line, "data");
	if (data == NULL || (strcmp(type, "stdout") != 0 && strcmp(type, "stderr") != 0))
		return;
	size_t n = json_string_length(json_object_get(line, "data"));
	if (strcmp(js_str_or(line, "enc", "utf8"), "base64") != 0) {
		narrate_output(t, data, n);
		return;
	}
	auto_free unsigned char *raw = xcalloc(1, n + 1);
	ssize_t got = b64_decode(data, n, raw);
	if (got > 0)
		narrate_output(t, (const char *)raw, (size_t)got);
}

void narrate_tick(struct narrator *t)
{
	say_some(t, clock_ms() - t->fed_ms >= SAY_MS);
}

int narrate_exit(struct narrator *t, const char *how)
{
	if (!t->broken && (t->say.n > 0 || t->say.skipped > 0))
		say(t, t->say.n);
	if (t->broken)
		return 0;
	if (t->say.n > 0 || t->say.skipped > 0)
		return -1;
	auto_json json_t *v = js_pack("{s:s}", "step", "exit");
	js_set(v, "message", js_text(how, strlen(how)));
	struct err e = { 0 };
	auto_pg struct pg *db = pg_take(t->to.db, APPEND_WAIT_MS, &e);
	if (db != NULL && session_append(db, t->to.org, t->to.session, "tool-call", v, t->to.fence, &e) == 0)
		return 0;
	return later(t, &e) ? -1 : 0;
}

void narrate_tail(const struct narrator *t, struct buf *out)
{
	auto_buf struct buf all = BUF(NARRATE_TAIL_BYTES + MARK_BYTES);
	clean(t, &t->tail, t->tail.n, NARRATE_TAIL_BYTES, &all);
	for (size_t i = 0; i < all.n;
	     i++) /* U+0000 is no text: JSON could carry it, many readers could not */
		(void)(all.p[i] == 0 ? buf_str(out, "\xEF\xBF\xBD") : buf_chr(out, all.p[i]));
}
