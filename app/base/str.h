/* str.h - views for parsing, and the small text judgements everybody needs. No locale, no allocation. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/types.h>

/* Bytes owned by somebody else; may hold NULs. */
struct str {
	const char *p;
	size_t n;
};

struct str str_of(const char *s); /* NULL becomes empty */
/* Here, so that the length of a literal is known where it is compared: readers ask this of each key for every name they know. */
static inline bool str_eq(struct str a, const char *b)
{
	size_t n = strlen(b);
	return a.n == n && (n == 0 || memcmp(a.p, b, n) == 0);
}
/* Take what stands before the first `sep` off the front of s; false when s is empty (nothing left to take). */
bool str_cut(struct str *s, char sep, struct str *out);
/* As read(2), off the front of a struct str; 0: nothing is left. For callbacks that ask for a body. */
ssize_t str_read(void *str, void *p, size_t n);
struct str str_trim(struct str s); /* without spaces and tabs at both ends (RFC 9110's OWS) */

bool str_starts(const char *s, const char *prefix);
bool str_ends(const char *s, const char *suffix);
/* Every byte of s is in `allowed`, and s is not empty. */
bool str_only(const char *s, const char *allowed);
/* Valid UTF-8 that shows something: not blank throughout, without control characters and line ends. */
bool str_shows(const char *s);
bool str_one_of(const char *s, const char *const *list); /* list ends with NULL */
/* A whole decimal integer in [min, max], no sign-only, no spaces; false otherwise. */
bool str_int(const char *s, long long min, long long max, long long *out);

/* Length of the longest prefix of p[0..n) that is whole, valid UTF-8 (RFC 3629). */
size_t utf8_valid(const char *p, size_t n);
/* v in decimal digits, with a NUL behind them; their number. printf would take ten times as long. */
enum { STR_NUM = 21 };
size_t str_num(long long v, char out[STR_NUM]);
/* a, b and c behind one another, cut to what fits into size bytes with the NUL: "%s%s%s" without printf. */
void str_put(char *out, size_t size, const char *a, const char *b, const char *c);
/* How many bytes at the front of p[0..n) stand for themselves in a JSON string: up to a quote, a backslash or a control character.
 * *ascii becomes false where one of them, or (so it is no more than a hint) one soon behind them, is beyond ASCII. */
size_t str_plain(const char *p, size_t n, bool *ascii);
/*
 * Bytes at the end of p[0..n) that begin a character and may be completed by what follows (0..3);
 * bytes that can never become valid are not counted.
 */
size_t utf8_tail(const char *p, size_t n);

/* Constant-time comparison of equal-length bytes (ID-5). */
bool bytes_equal_ct(const void *a, const void *b, size_t n);

/* Lower-case slug of free text: letters and digits kept, runs of anything else become one '-'. False if empty or longer. */
bool str_slug(const char *s, char *out, size_t size);
