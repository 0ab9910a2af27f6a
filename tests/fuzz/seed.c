#include <stdio.h>
#include <string.h>

#include "../csv.h"
#include "base/buf.h"
#include "base/hash.h"
#include "base/mem.h"
#include "base/str.h"
#include "fuzz.h"
#include "io/file.h"

enum { SEEDS_BYTES = 1 << 20 };

/* Which columns of the rows that the project has to answer are a target's input. */
static const struct {
	const char *target, *file, *column;
	bool hex;
} rows[] = {
	{ "address", "tests/cases/egress/addresses.csv", "address", false },
	{ "host", "tests/cases/egress/hosts.csv", "spelling", false },
	{ "host", "tests/cases/egress/hosts.csv", "allow_entry_or_mode", false },
	{ "head", "tests/cases/egress/requests.csv", "raw_escaped", false },
	{ "hello", "tests/cases/egress/client-hellos.csv", "hex", true },
};

static int of_rows(size_t i, fuzz_seed_fn *each, void *arg)
{
	struct csv c = csv_open(rows[i].file);
	int n = 0;
	for (; csv_next(&c); n++) {
		auto_free char *cell = xstrdup(csv_get(&c, rows[i].column));
		auto_free unsigned char *raw = xcalloc(1, strlen(cell) / 2 + 1);
		if (!rows[i].hex)
			each(arg, (const uint8_t *)cell, csv_unescape(cell));
		else if (hex_decode(cell, raw, strlen(cell) / 2) > 0)
			each(arg, raw, strlen(cell) / 2);
	}
	csv_close(&c);
	return n;
}

int fuzz_seeds(const struct fuzz_target *t, fuzz_seed_fn *each, void *arg)
{
	char path[128];
	int n = 0;
	auto_buf struct buf text = BUF(SEEDS_BYTES);
	struct err e = { 0 };
	(void)snprintf(path, sizeof path, "tests/fuzz/seeds/%s", t->name);
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
		if (strcmp(rows[i].target, t->name) == 0)
			n += of_rows(i, each, arg);
	if (file_read(path, &text, &e) != 0)
		return n;
	struct str all = { buf_c(&text), text.n }, line;
	for (; str_cut(&all, '\n', &line); n++) {
		auto_free char *seed = xcalloc(1, line.n + 1);
		memcpy(seed, line.p, line.n);
		each(arg, (const uint8_t *)seed, csv_unescape(seed));
	}
	return n;
}
