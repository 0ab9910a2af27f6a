/*
 * redact.h - the one redactor (RED-1…4). Everything that is logged, narrated or kept for people passes here.
 * Key parts that look secret are one table in redact.c.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"

/* A key whose parts (split at '-', '_', '.', spaces and case changes) name a secret (RED-1). */
bool redact_key(const char *key);
/* A deep copy with secret-keyed values replaced by "[redacted]" and every string run through redact_plain. New reference. */
json_t *redact_json(const json_t *v);
/*
 * Behind a URL's password with an unescaped delimiter its '@' is looked for in so many bytes: the search stays linear over text full of
 * such, and a line without blanks is not lost as far as its last '@'.
 */
enum { REDACT_ODD_MAX = 1024 };
/* RED-2: URL passwords, and tokens of our own and of well-known others by their shapes. Appends to out; -1 when it does not fit. */
int redact_plain(const char *p, size_t n, struct buf *out);
/* RED-3: JSON text gets both rules, other text RED-2. Appends to out. */
int redact_text(const char *p, size_t n, struct buf *out);
/* RED-4: text that must be JSON; replaced whole when it does not parse. */
int redact_must_json(const char *p, size_t n, struct buf *out);
/*
 * COD-8: remove one known secret, its base64 form at any alignment, and its percent-encoded form, from text. Appends to out.
 * A secret shorter than 4 bytes is not searched for.
 */
int redact_secret(const char *p, size_t n, const char *secret, struct buf *out);
