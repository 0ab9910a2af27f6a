#include "forge/patch.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "forge/html.h"

enum { PAIR_MAX = 200 };

/* Inside a hunk: what is still to come of it, and the numbers of the next lines. */
struct hunk {
	long old_left, new_left, old_no, new_no;
};

static bool starts(struct str s, const char *prefix)
{
	size_t n = strlen(prefix);
	return s.n >= n && memcmp(s.p, prefix, n) == 0;
}

static struct str line_of(struct str rest)
{
	const char *end = rest.n > 0 ? memchr(rest.p, '\n', rest.n) : NULL;
	return (struct str){ rest.p, end != NULL ? (size_t)(end - rest.p) : rest.n };
}

static void skip_line(struct str *rest, struct str line)
{
	size_t n = line.n < rest->n ? line.n + 1 : line.n;
	rest->p += n;
	rest->n -= n;
}

/* "12" or "12,7" after a sign; a count that is not said is 1. */
static const char *take_range(const char *s, long *no, long *count)
{
	char *end;
	*no = strtol(s, &end, 10);
	*count = 1;
	if (*end == ',')
		*count = strtol(end + 1, &end, 10);
	return end;
}

/* As git counts: what is more can be no line of a file that was read. */
static bool line_no(long n)
{
	return n >= 0 && n <= INT_MAX;
}

/* "@@ -12,7 +12,9 @@ context" */
static bool hunk_start(struct str line, struct hunk *h)
{
	char head[80];
	if (!starts(line, "@@ -"))
		return false;
	(void)snprintf(
	    head, sizeof head, "%.*s", (int)(line.n < sizeof head ? line.n : sizeof head - 1), line.p);
	const char *s = take_range(head + 4, &h->old_no, &h->old_left);
	if (s[0] != ' ' || s[1] != '+')
		return false;
	s = take_range(s + 2, &h->new_no, &h->new_left);
	return s[0] == ' ' && s[1] == '@' && line_no(h->old_no) && line_no(h->new_no) &&
	    line_no(h->old_left) && line_no(h->new_left);
}

/* Count a line of a hunk; false when it is none (git never writes that; a cut patch may end anywhere). */
static bool hunk_line(struct hunk *h, struct str line)
{
	char sign = line.n > 0 ? line.p[0] : ' ';
	if (sign == '\\')
		return true;
	if (sign != ' ' && sign != '+' && sign != '-')
		return false;
	h->old_left -= sign != '+';
	h->new_left -= sign != '-';
	return true;
}

static bool hunk_open(const struct hunk *h)
{
	return h->old_left > 0 || h->new_left > 0;
}

bool patch_next(struct str *rest, struct str *file)
{
	static const char start[] = "diff --git ";
	struct hunk h = { 0 };
	bool seen = false;
	*file = (struct str){ rest->p, 0 };
	while (rest->n > 0) {
		struct str line = line_of(*rest);
		if (hunk_open(&h)) {
			if (!hunk_line(&h, line))
				h = (struct hunk){ 0 };
		} else if (starts(line, start)) {
			if (seen)
				break;
			seen = true;
		} else if (!hunk_start(line, &h)) {
			h = (struct hunk){ 0 };
		}
		skip_line(rest, line);
		file->n = (size_t)(rest->p - file->p);
	}
	return seen;
}

bool patch_has_lines(struct str file)
{
	for (struct hunk h; file.n > 0;) {
		struct str line = line_of(file);
		if (hunk_start(line, &h))
			return true;
		skip_line(&file, line);
	}
	return false;
}

/* ---- lines */

static void put_number(struct buf *b, long no)
{
	if (no > 0)
		(void)buf_fmt(b, "<td class=\"n\">%ld</td>", no);
	else
		(void)buf_str(b, "<td class=\"n\"></td>");
}

/* The text of a line without its sign, at most PATCH_LINE_BYTES, and nothing cut inside a character. */
static struct str text_of(struct str line, bool *cut)
{
	struct str t = line.n > 0 ? (struct str){ line.p + 1, line.n - 1 } : line;
	*cut = t.n > PATCH_LINE_BYTES;
	if (*cut) {
		t.n = PATCH_LINE_BYTES;
		t.n -= utf8_tail(t.p, t.n);
	}
	return t;
}

struct mark { /* the differing middle; empty when n is 0 */
	size_t at, n;
};

static void put_text(struct buf *b, struct str line, struct mark m)
{
	bool cut;
	struct str t = text_of(line, &cut);
	if (m.n == 0 || m.at + m.n > t.n) {
		html_esc(b, t.p, t.n);
	} else {
		html_esc(b, t.p, m.at);
		(void)buf_str(b, "<b>");
		html_esc(b, t.p + m.at, m.n);
		(void)buf_str(b, "</b>");
		html_esc(b, t.p + m.at + m.n, t.n - m.at - m.n);
	}
	if (cut)
		(void)buf_str(b, " <span class=\"ctl\">line cut</span>");
}

static void put_row(struct buf *b, struct hunk *h, struct str line, struct mark m)
{
	char sign = line.n > 0 ? line.p[0] : ' ';
	(void)buf_fmt(b, "<tr%s>", sign == '+' ? " class=\"a\"" : sign == '-' ? " class=\"d\"" : "");
	put_number(b, sign == '+' ? 0 : h->old_no++);
	put_number(b, sign == '-' ? 0 : h->new_no++);
	(void)buf_fmt(b, "<td class=\"c\"><i>%c</i>", sign);
	put_text(b, line, m);
	(void)buf_str(b, "</td></tr>\n");
}

static bool is_middle(char c)
{
	return ((unsigned char)c & 0xc0) == 0x80;
}

/* What differs between two lines, when they have enough in common for that to help. */
static void differ(struct str old, struct str new, struct mark *mo, struct mark *mn)
{
	bool cut;
	struct str a = text_of(old, &cut), z = text_of(new, &cut);
	size_t least = a.n < z.n ? a.n : z.n, head = 0, tail = 0;
	while (head < least && a.p[head] == z.p[head])
		head++;
	while (head > 0 && ((head < a.n && is_middle(a.p[head])) || (head < z.n && is_middle(z.p[head]))))
		head--;
	while (tail < least - head && a.p[a.n - 1 - tail] == z.p[z.n - 1 - tail])
		tail++;
	while (tail > 0 && is_middle(a.p[a.n - tail]))
		tail--;
	*mo = *mn = (struct mark){ 0 };
	if ((head + tail) * 3 < least)
		return;
	*mo = (struct mark){ head, a.n - head - tail };
	*mn = (struct mark){ head, z.n - head - tail };
}

/* Lines that follow each other with the same sign, up to PAIR_MAX. */
static size_t run_of(struct str rest, char sign, struct str *lines)
{
	size_t n = 0;
	while (n < PAIR_MAX && rest.n > 0) {
		struct str line = line_of(rest);
		if (line.n == 0 || line.p[0] != sign)
			break;
		lines[n++] = line;
		skip_line(&rest, line);
	}
	return n;
}

static void put_no_newline(struct buf *b)
{
	(void)buf_str(b,
	    "<tr class=\"h\"><td class=\"n\"></td><td class=\"n\"></td><td class=\"c\">no line end at the "
	    "end of "
	    "the file</td></tr>\n");
}

/* One line, or a run of removed lines with as many added ones after it. Lines taken. */
static size_t put_some(struct buf *b, struct hunk *h, struct str rest)
{
	struct str old[PAIR_MAX], new[PAIR_MAX], line = line_of(rest);
	if (line.n > 0 && line.p[0] == '\\') {
		put_no_newline(b);
		return 1;
	}
	size_t n = run_of(rest, '-', old);
	struct str behind = rest;
	for (size_t i = 0; i < n; i++)
		skip_line(&behind, old[i]);
	if (n == 0 || n == PAIR_MAX || run_of(behind, '+', new) != n) {
		put_row(b, h, line, (struct mark){ 0 });
		return 1;
	}
	struct mark mo[PAIR_MAX], mn[PAIR_MAX];
	for (size_t i = 0; i < n; i++) {
		differ(old[i], new[i], &mo[i], &mn[i]);
		put_row(b, h, old[i], mo[i]);
	}
	for (size_t i = 0; i < n; i++)
		put_row(b, h, new[i], mn[i]);
	return 2 * n;
}

static void put_hunk_head(struct buf *b, struct str line)
{
	(void)buf_str(b, "<tr class=\"h\"><td class=\"n\"></td><td class=\"n\"></td><td class=\"c\">");
	html_esc(b, line.p, line.n < 200 ? line.n : 200);
	(void)buf_str(b, "</td></tr>\n");
}

bool patch_rows(struct buf *b, struct str file, int *budget)
{
	struct hunk h = { 0 };
	while (file.n > 0) {
		struct str line = line_of(file);
		if (!hunk_open(&h) && !(line.n > 0 && line.p[0] == '\\' && h.new_no > 0)) {
			if (hunk_start(line, &h))
				put_hunk_head(b, line);
			else
				h = (struct hunk){ 0 };
			skip_line(&file, line);
			continue;
		}
		if (*budget <= 0 || b->full)
			return false;
		for (size_t n = put_some(b, &h, file); n > 0 && file.n > 0; n--) {
			line = line_of(file);
			if (!hunk_line(&h, line))
				return true;
			skip_line(&file, line);
			--*budget;
		}
	}
	return true;
}
