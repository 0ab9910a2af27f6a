/*
 * Most events of a stream repeat the one before but for the text they give: the same id, model and marks around another word. Such
 * an event is not read again. Where every byte around the text is that of an event that was read, gave one text and did nothing
 * else, this one does the same with its own text: JSON is read from left to right, so what precedes the text and what follows its
 * closing quote mean what they meant there. What some vendors add to every event of theirs, a text that hides its length, may
 * differ too, as nobody reads it.
 */
#include <string.h>

#include "model/wire_int.h"

/* The string that is to stand at *p, which is then behind it. */
static bool string(const char **p, const char *end, struct scan_text *t)
{
	struct scan s = scan_of((struct str){ *p, (size_t)(end - *p) });
	if (!scan_string(&s, t))
		return false;
	*p = s.p;
	return true;
}

void wire_again_learn(struct wire_in *in, struct str data)
{
	struct wire_again *m = &in->again;
	const struct wire_piece *p = in->pieces;
	static const char pad[] = "\"obfuscation\":\"";
	m->known = false;
	if (!in->repeats || in->pass != WIRE_PASS || in->n_pieces != 1 || in->n_fixed > 0 ||
	    (p->kind != WIRE_P_TEXT && p->kind != WIRE_P_REASONING))
		return;
	/* As it stands in the event, not unescaped. */
	if ((uintptr_t)p->text.p <= (uintptr_t)data.p || (uintptr_t)p->text.p >= (uintptr_t)(data.p + data.n))
		return;
	buf_reset(&m->event);
	if (buf_add(&m->event, data.p, data.n) != 0)
		return;
	m->known = true;
	m->kind = p->kind;
	m->choice = p->choice;
	m->text = (size_t)(p->text.p - data.p) - 1;
	m->behind = m->text + p->text.n + 2;
	m->pad = m->pad_behind = data.n;
	const char *at = memmem(m->event.p + m->behind, data.n - m->behind, pad, sizeof pad - 1);
	if (at == NULL)
		return;
	struct scan_text unread;
	at += sizeof pad - 2;
	m->pad = (size_t)(at - m->event.p);
	m->known = string(&at, m->event.p + data.n, &unread);
	m->pad_behind = (size_t)(at - m->event.p);
}

/* Do the bytes [from, upto) of what is remembered stand at *p? Then it is behind them. */
static bool same(const struct wire_again *m, size_t from, size_t upto, const char **p, const char *end)
{
	size_t n = upto - from;
	if ((size_t)(end - *p) < n || memcmp(*p, m->event.p + from, n) != 0)
		return false;
	*p += n;
	return true;
}

bool wire_again(struct wire_in *in, struct str data)
{
	const struct wire_again *m = &in->again;
	const char *p = data.p, *end = p + data.n;
	struct scan_text text, pad = { { "", 0 }, false };
	if (!m->known || !same(m, 0, m->text, &p, end) || !string(&p, end, &text) ||
	    !same(m, m->behind, m->pad, &p, end))
		return false;
	if (m->pad < m->event.n && (!string(&p, end, &pad) || !same(m, m->pad_behind, m->event.n, &p, end)))
		return false;
	if (p != end || !wire_in_utf8(text.raw) || !wire_in_utf8(pad.raw))
		return false;
	wire_in_text(in, m->kind, m->choice, wire_in_str(in, text));
	return true;
}
