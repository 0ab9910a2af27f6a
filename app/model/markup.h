/*
 * markup.h - raw tool-call tokens of model families in what should be text (MOD-5, MOD-12): recognised, never interpreted. Fed with
 * the text of one completion in any pieces; what stands in Markdown code (inline or fenced) is prose about markup and passes.
 *
 * Text that may still turn out to be a marker is `held`: it must not reach the caller before it is known. An inline code span counts
 * when it closes on its own line, within MARKUP_HELD_MAX bytes of a marker in it; one that does not was none.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

enum { MARKUP_MARKERS = 7, MARKUP_HELD_MAX = 1024, MARKUP_BYTES_MAX = 32 };

struct markup {
	int found; /* 1 + the marker's number; 0: none */
	/* Where we are. */
	int state;
	char tick;          /* the character of the fence or run */
	size_t run, opened; /* length of the run that is being read, and of the one that opened the code */
	size_t indent;      /* blanks since the line began; SIZE_MAX: something else stood there */
	/* A marker that has begun, and the earliest one that stands in code which has not ended. */
	char seen[MARKUP_BYTES_MAX];
	size_t n_seen;
	int suspect;
	size_t since; /* bytes from its first byte to here */
};

/* All zero is the start. True: a marker was found, now or before. */
bool markup_feed(struct markup *m, const char *p, size_t n);
/* The text has ended. True likewise. */
bool markup_end(struct markup *m);
/* How many bytes at the end of what was fed may be part of a marker: they wait. */
size_t markup_held(const struct markup *m);
/* The family of the marker that was found, for the span: "deepseek", "hermes", …; NULL: none was. */
const char *markup_family(const struct markup *m);
/* The whole of a text at once. */
bool markup_in(const char *p, size_t n, struct markup *m);
