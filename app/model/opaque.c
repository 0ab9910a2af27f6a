/*
 * Reasoning that only its maker can read, on its way through a client of another wire and back: a mark in front says whose it is, so that
 * it is restored where it came from and goes nowhere else. "gh1.m.SIGNATURE", "gh1.x.DATA" (nothing readable), "gh1.r.ID.ENCRYPTED",
 * "gh1.c." (chat has nothing of the kind).
 */
#include <string.h>

#include "model/wire_int.h"

#define MARK "gh1."
enum { MARK_N = 6 }; /* with the letter and its dot */

bool wire_marked(const char *s)
{
	return s != NULL && str_starts(s, MARK);
}

void wire_mark(struct buf *out, enum provider_wire maker, bool redacted, struct str id, struct str opaque)
{
	static const char letters[WIRES] = { 'c', 'r', 'm' };
	char letter = maker == WIRE_MESSAGES && redacted ? 'x' : letters[maker];
	(void)buf_fmt(out, MARK "%c.", letter);
	if (letter == 'r') {
		(void)buf_add(out, id.p, id.n);
		(void)buf_chr(out, '.');
	}
	(void)buf_add(out, opaque.p, opaque.n);
}

void wire_unmark(struct mem *m, enum provider_wire here, const char *s, struct wire_part *part)
{
	part->maker = here;
	part->opaque = s == NULL ? NULL : mem_str(m, s);
	if (!wire_marked(s) || strlen(s) < MARK_N)
		return;
	char letter = s[MARK_N - 2];
	const char *rest = s + MARK_N;
	part->maker = letter == 'r' ? WIRE_RESPONSES : letter == 'c' ? WIRE_CHAT : WIRE_MESSAGES;
	part->redacted = letter == 'x';
	if (letter == 'r') {
		const char *dot = strchr(rest, '.');
		if (dot != NULL) {
			part->id = mem_strn(m, rest, (size_t)(dot - rest));
			rest = dot + 1;
		}
	}
	part->opaque = rest[0] == 0 ? NULL : mem_str(m, rest);
}
