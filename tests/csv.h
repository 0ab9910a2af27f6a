/* csv.h - a file of test cases with a header line (RFC 4180), read whole. Tests run in the repository's root. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

enum { CSV_COLUMNS = 16 };

struct csv {
	char *text, *at;
	int n_columns, line;
	char *column[CSV_COLUMNS], *cell[CSV_COLUMNS];
};

struct csv csv_open(const char *path); /* fails the test when it cannot be read */
void csv_close(struct csv *c);
bool csv_next(struct csv *c);                                 /* the next row; false at the end */
const char *csv_get(const struct csv *c, const char *column); /* fails the test when there is none */
/* \r, \n, \\ and \xNN undone in place; the length. */
size_t csv_unescape(char *s);
