/*
 * id.h - prefixed, sortable ids (HTTP-8): "ses_" and 26 Crockford base32 characters in lower case:
 * 48 bits of wall time in milliseconds, then 80 random bits.
 */
#pragma once

#include <stdbool.h>

enum { ID_TAIL = 26, ID_MAX = 32 }; /* ID_MAX: prefix of up to 4 letters, '_', tail, NUL */

void id_make(const char *prefix, char out[ID_MAX]);
/* Exactly prefix, '_' and a 26-character tail of the alphabet. */
bool id_is(const char *prefix, const char *s);
const char *id_tail(const char *id); /* what follows the '_' */
