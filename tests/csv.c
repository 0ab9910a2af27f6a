#include "csv.h"

#include "t.h"

#include <string.h>

#include "base/buf.h"
#include "base/hash.h"
#include "base/mem.h"
#include "io/file.h"

enum { FILE_BYTES = 1 << 20 };

/* Cuts one cell off; *end: the line ends after it. */
static char *cell(struct csv *c, bool *end)
{
	char *begin = c->at, *out = begin, *p = begin;
	bool quoted = *p == '"';
	if (quoted)
		begin = out = ++p;
	for (; *p != 0; p++) {
		if (quoted && p[0] == '"' && p[1] == '"')
			p++;
		else if (quoted ? *p == '"' : *p == ',' || *p == '\n' || *p == '\r')
			break;
		*out++ = *p;
	}
	p += quoted;
	if (*p == '\r')
		p++;
	*end = *p != ',';
	c->at = p + (*p != 0);
	*out = 0;
	return begin;
}

static int row(struct csv *c, char **cells)
{
	int n = 0;
	for (bool end = false; !end; n++) {
		assert_true(n < CSV_COLUMNS);
		cells[n] = cell(c, &end);
	}
	c->line++;
	return n;
}

struct csv csv_open(const char *path)
{
	struct csv c = { 0 };
	struct err e = { 0 };
	auto_buf struct buf text = BUF(FILE_BYTES);
	if (file_read(path, &text, &e) != 0)
		fail_msg("%s: %s", path, e.msg);
	c.text = c.at = xstrdup(buf_c(&text));
	c.n_columns = row(&c, c.column);
	return c;
}

void csv_close(struct csv *c)
{
	free(c->text);
}

bool csv_next(struct csv *c)
{
	if (*c->at == 0)
		return false;
	if (row(c, c->cell) != c->n_columns)
		fail_msg("line %d has another number of cells than the first", c->line);
	return true;
}

const char *csv_get(const struct csv *c, const char *column)
{
	for (int i = 0; i < c->n_columns; i++)
		if (strcmp(c->column[i], column) == 0)
			return c->cell[i];
	fail_msg("there is no column %s", column);
	return NULL;
}

size_t csv_unescape(char *s)
{
	char *out = s;
	for (const char *p = s; *p != 0; p++) {
		unsigned char byte;
		if (p[0] != '\\' || p[1] == 0) {
			*out++ = *p;
		} else if (p[1] == 'x' && hex_decode((char[]){ p[2], p[3], 0 }, &byte, 1) == 1) {
			*out++ = (char)byte;
			p += 3;
		} else {
			p++;
			*out++ = *p == 'r' ? '\r' : *p == 'n' ? '\n' : *p;
		}
	}
	*out = 0;
	return (size_t)(out - s);
}
