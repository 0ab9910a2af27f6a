#include "model/markup.h"

#include <stdint.h>
#include <string.h>

/* MOD-12. No marker's inside holds a first byte of one, a backtick or a line end: markup_feed depends on it. */
static const struct marker {
	const char *text, *family;
} markers[MARKUP_MARKERS] = {
	{ "<\xEF\xBD\x9C"
	  "DSML\xEF\xBD\x9Ctool_calls>",
	    "deepseek" },
	{ "<\xEF\xBD\x9Ctool\xE2\x96\x81"
	  "call\xE2\x96\x81"
	  "begin\xEF\xBD\x9C>",
	    "deepseek" },
	{ "<\xEF\xBD\x9Ctool\xE2\x96\x81"
	  "calls\xE2\x96\x81"
	  "begin\xEF\xBD\x9C>",
	    "deepseek" },
	{ "<tool_call>", "hermes" },
	{ "[TOOL_CALLS]", "mistral" },
	{ "<|python_tag|>", "llama" },
	{ "<|tool_call>", "gemma" },
};

/* LEAD: a run of ticks at the start of a line, which may open a fence; RUN: one within a line, which opens inline code;
 * CLOSING: one inside inline code; INFO: behind a fence's opening run; FENCE and its CLOSE: inside. */
enum { PROSE, LEAD, RUN, INLINE, CLOSING, INFO, FENCE, CLOSE };

static bool in_code(int state)
{
	return state == INLINE || state == CLOSING || state == INFO;
}

/* Code that had not ended is over: the suspect was in code, or it was not. */
static void settle(struct markup *m, bool was_code)
{
	if (m->suspect != 0 && !was_code && m->found == 0)
		m->found = m->suspect;
	m->suspect = 0;
	m->since = 0;
}

static void new_line(struct markup *m)
{
	switch (m->state) {
	case INLINE:
	case CLOSING:
		/* A run that reaches the end of the line may be the one that closes. */
		settle(m, m->state == CLOSING && m->run == m->opened);
		m->state = PROSE;
		break;
	case LEAD:
		m->state = m->run >= 3 ? FENCE : PROSE;
		m->opened = m->run;
		break;
	case INFO:
		settle(m, true);
		m->state = FENCE;
		break;
	case CLOSE:
		m->state = m->run >= m->opened ? PROSE : FENCE;
		break;
	case FENCE:
		break;
	default:
		m->state = PROSE;
	}
	m->indent = 0;
}

/* c ends a run of ticks (or follows one). */
static void after_run(struct markup *m, char c)
{
	switch (m->state) {
	case LEAD:
		m->opened = m->run;
		m->state = m->run >= 3 ? INFO : m->tick == '`' ? INLINE : PROSE;
		break;
	case RUN:
		m->opened = m->run;
		m->state = INLINE;
		break;
	case CLOSING:
		if (m->run == m->opened) {
			settle(m, true);
			m->state = PROSE;
		} else {
			m->state = INLINE;
		}
		break;
	case CLOSE: /* only blanks may follow a fence's end */
		if (c != ' ' && c != '\t')
			m->state = FENCE;
		break;
	default:
		break;
	}
}

static bool starts_run(struct markup *m, char c)
{
	bool lead = m->indent <= 3 && (c == '`' || c == '~');
	switch (m->state) {
	case PROSE:
		if (lead)
			m->state = LEAD;
		else if (c == '`')
			m->state = RUN;
		else
			return false;
		break;
	case INLINE:
		if (c != '`')
			return false;
		m->state = CLOSING;
		break;
	case INFO: /* a backtick behind ``` makes it inline code; behind ~~~ it means nothing */
		if (c != '`' || m->tick != '`')
			return false;
		m->state = CLOSING;
		break;
	case FENCE:
		if (!lead || c != m->tick)
			return false;
		m->state = CLOSE;
		break;
	default:
		return false;
	}
	if (m->state != CLOSING && m->state != CLOSE)
		m->tick = c;
	m->run = 1;
	return true;
}

static bool in_run(const struct markup *m)
{
	return m->state == LEAD || m->state == RUN || m->state == CLOSING || m->state == CLOSE;
}

static void step(struct markup *m, char c)
{
	if (c == '\r')
		return;
	if (in_run(m)) {
		if (c == m->tick) {
			m->run++;
			return;
		}
		if (c != '\n')
			after_run(m, c);
	}
	if (c == '\n') {
		new_line(m);
		return;
	}
	(void)starts_run(m, c);
	if (m->indent != SIZE_MAX)
		m->indent = c == ' ' ? m->indent + 1 : SIZE_MAX;
}

/* One more byte of a marker that may be one: 1 + its number when it is whole, 0 when it goes on, -1 when it is none. */
static int grow(struct markup *m, char c)
{
	m->seen[m->n_seen++] = c;
	for (int i = 0; i < MARKUP_MARKERS; i++)
		if (strncmp(markers[i].text, m->seen, m->n_seen) == 0)
			return markers[i].text[m->n_seen] == 0 ? 1 + i : 0;
	m->n_seen = 0;
	return -1;
}

static void match(struct markup *m, char c)
{
	if (m->n_seen == 0 && c != '<' && c != '[')
		return;
	int which = grow(m, c);
	if (which < 0 && (c == '<' || c == '['))
		which = grow(m, c);
	if (which <= 0)
		return;
	size_t n = m->n_seen;
	m->n_seen = 0;
	if (m->state == FENCE || m->state == CLOSE)
		return;
	if (!in_code(m->state)) {
		m->found = which;
	} else if (m->suspect == 0) {
		m->suspect = which;
		m->since = n - 1; /* this byte is counted by the caller */
	}
}

bool markup_feed(struct markup *m, const char *p, size_t n)
{
	for (size_t i = 0; i < n && m->found == 0; i++) {
		step(m, p[i]);
		match(m, p[i]);
		if (m->suspect != 0 && ++m->since > MARKUP_HELD_MAX)
			settle(m, false);
	}
	return m->found != 0;
}

bool markup_end(struct markup *m)
{
	if (m->state == CLOSING && m->run == m->opened)
		settle(m, true);
	settle(m, m->state == INFO);
	m->n_seen = 0;
	return m->found != 0;
}

size_t markup_held(const struct markup *m)
{
	bool fenced = m->state == FENCE || m->state == CLOSE;
	size_t begun = fenced ? 0 : m->n_seen;
	return m->suspect != 0 && m->since > begun ? m->since : begun;
}

const char *markup_family(const struct markup *m)
{
	return m->found == 0 ? NULL : markers[m->found - 1].family;
}

bool markup_in(const char *p, size_t n, struct markup *m)
{
	*m = (struct markup){ 0 };
	(void)markup_feed(m, p, n);
	return markup_end(m);
}
