/*
 * cli.h - `gatehouse call` without its HTTP: options and fields from arguments, help from the table, and what comes
 * back, for people or as it is (OP-3).
 */
#pragma once

#include <stdio.h>

#include "base/buf.h"
#include "base/ndjson.h"
#include "op/op.h"

/* "--name value", "--name=value", "--flag"; "--": no options follow. */
struct cli_option {
	const char *name;
	const char **value; /* NULL: a flag */
	bool *flag;
};
/* `all` ends with a row without name. Exactly n_rest arguments that are no options go into rest. */
int cli_options(char **args, const struct cli_option *all, const char **rest, int n_rest, struct err *e);

/*
 * Arguments become an input object, typed by the op's schema:
 *   field=value          text, number, true/false as the schema says; for an array: one more item
 *   a.b=value  a[0].b=v  nested
 *   field=@file          the text of a file, "-" is standard input
 *   field:=json          JSON as it is
 * read_file appends a whole file to a buffer. NULL with e (ERR_BAD_REQUEST) naming the argument.
 */
typedef int cli_read_fn(const char *path, struct buf *out, struct err *e);
json_t *cli_input(const struct op *op, char *const *args, cli_read_fn *read_file, struct err *e);

/* What can be called, one op a line; one op's fields. Appended to out. */
void cli_list(const struct op *const *tables, struct buf *out);
void cli_help(const struct op *op, struct buf *out);

/* Text from elsewhere on a terminal: control characters (escape sequences) become U+FFFD; newlines and tabs stay. */
void cli_clean(const char *p, size_t n, struct buf *out);

/* A stream as readable lines. `columns` > 0: a terminal, where a running step is one line that updates. */
struct cli_render {
	int columns;
	int64_t first_ms;      /* time of the first event */
	bool timed, transient; /* first_ms is known; the last line is to be written over */
	bool open_line;        /* a command's output stopped in the middle of a line */
	/* what has been seen, rendered or not */
	long long last_seq;
	bool ended; /* a terminal line: result, error, exit */
	int exit;   /* status for the shell, once ended */
};
/* Note what a line says about the stream: everything but its text. */
void cli_see(struct cli_render *r, const json_t *line);
/* cli_see, and the line as text. */
void cli_line(struct cli_render *r, const json_t *line, struct buf *out);
/* Before anything else is written to the terminal. */
void cli_settle(struct cli_render *r, struct buf *out);

/* Where an answer goes: readable on a terminal, as it came otherwise. */
enum { CLI_LINE_BYTES = 256 * 1024 };
struct cli_sink {
	FILE *to;
	bool render; /* for people */
	bool lines;  /* NDJSON, also when it is passed on as it is */
	bool closed; /* `to` cannot be written any more */
	struct cli_render view;
	struct ndjson reader;
};
/* op NULL: NDJSON. `render` and `raw` overrule what `to` is. */
struct cli_sink cli_sink_new(const struct op *op, FILE *to, bool render, bool raw);
int cli_sink_data(struct cli_sink *s, const char *p, size_t n);  /* -1: closed, or a line too long */
int cli_sink_value(struct cli_sink *s, const char *p, size_t n); /* one JSON value */
void cli_sink_again(struct cli_sink *s); /* another connection: what was cut off in a line is forgotten */
void cli_sink_end(struct cli_sink *s);   /* the unfinished line, and the memory */
