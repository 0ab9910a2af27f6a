#include "forge/html.h"

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/str.h"

static void visible(struct buf *b, const char *text, bool markup)
{
	(void)buf_fmt(b, markup ? "<span class=\"ctl\">%s</span>" : "%s", text);
}

static void visible_char(struct buf *b, uint32_t c, bool markup)
{
	static const char *const named[] = { [7] = "\\a",
		[8] = "\\b",
		[9] = "\\t",
		[10] = "\\n",
		[11] = "\\v",
		[12] = "\\f",
		[13] = "\\r",
		[27] = "\\e" };
	char text[16];
	if (c < sizeof named / sizeof *named && named[c] != NULL)
		(void)snprintf(text, sizeof text, "%s", named[c]);
	else
		(void)snprintf(text, sizeof text, c < 0x80 ? "\\x%02x" : "U+%04X", c);
	visible(b, text, markup);
}

/* Characters that are drawn as nothing or reorder their neighbours: C1 controls, zero-width and bidi marks, line and paragraph
 * separators, tags, the byte order mark. */
static bool is_hidden(uint32_t c)
{
	return (c >= 0x7f && c < 0xa0) || c == 0xad || c == 0x61c || c == 0x180e ||
	    (c >= 0x200b && c <= 0x200f) || (c >= 0x2028 && c <= 0x202e) || (c >= 0x2060 && c <= 0x206f) ||
	    c == 0xfeff || (c >= 0xfff9 && c <= 0xfffb) || (c >= 0xe0000 && c <= 0xe007f);
}

/* One whole valid character of n bytes. */
static uint32_t decode(const unsigned char *p, size_t n)
{
	static const unsigned char lead[] = { 0, 0x7f, 0x1f, 0x0f, 0x07 };
	uint32_t c = p[0] & lead[n];
	for (size_t i = 1; i < n; i++)
		c = c << 6 | (p[i] & 0x3f);
	return c;
}

static void put_ascii(struct buf *b, char c, bool markup)
{
	switch (c) {
	case '&':
		(void)buf_str(b, "&amp;");
		return;
	case '<':
		(void)buf_str(b, "&lt;");
		return;
	case '>':
		(void)buf_str(b, "&gt;");
		return;
	case '"':
		(void)buf_str(b, "&quot;");
		return;
	case '\'':
		(void)buf_str(b, "&#39;");
		return;
	default:
		if (((unsigned char)c < 0x20 && c != '\t') || c == 0x7f)
			visible_char(b, (unsigned char)c, markup);
		else
			(void)buf_chr(b, c);
	}
}

static void put(struct buf *b, const char *p, size_t n, bool markup)
{
	for (size_t i = 0; i < n;) {
		if ((unsigned char)p[i] < 0x80) {
			put_ascii(b, p[i++], markup);
			continue;
		}
		size_t len = (unsigned char)p[i] >= 0xf0 ? 4 : (unsigned char)p[i] >= 0xe0 ? 3 : 2;
		if (len > n - i || utf8_valid(p + i, len) != len) {
			char text[8];
			(void)snprintf(text, sizeof text, "\\x%02x", (unsigned char)p[i++]);
			visible(b, text, markup);
			continue;
		}
		uint32_t c = decode((const unsigned char *)p + i, len);
		if (is_hidden(c))
			visible_char(b, c, markup);
		else
			(void)buf_add(b, p + i, len);
		i += len;
	}
}

void html_esc(struct buf *b, const char *p, size_t n)
{
	put(b, p, n, true);
}

void html_attr(struct buf *b, const char *p, size_t n)
{
	put(b, p, n, false);
}

/* The next "{}" or "{=}", or NULL. */
static const char *next_hole(const char *t)
{
	while ((t = strchr(t, '{')) != NULL && strncmp(t, "{}", 2) != 0 && strncmp(t, "{=}", 3) != 0)
		t++;
	return t;
}

void html_fill(struct buf *b, const char *template, const char *const *args)
{
	const char *t = template;
	for (const char *hole; (hole = next_hole(t)) != NULL; args++) {
		assert(*args != NULL);
		(void)buf_add(b, t, (size_t)(hole - t));
		put(b, *args, strlen(*args), hole[1] == '}');
		t = hole + (hole[1] == '}' ? 2 : 3);
	}
	(void)buf_str(b, t);
	assert(*args == NULL);
}
