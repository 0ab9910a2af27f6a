/*
 * conf.h - configuration: tables of keys (conf_keys*.c: default, bounds, doc), one file of KEY=value lines in the syntax of
 * systemd's EnvironmentFile, environment over file (RUN-1). An empty value means the default, except where a key is `filled`. A wrong value or an unknown
 * key stops the process at start with the key, the value and what is allowed.
 *
 * A snapshot is read from many threads. conf_reload (SIGHUP) puts new values of the keys marked `reload` into it; strings
 * handed out before stay valid until conf_free. On any error it keeps all old values.
 */
#pragma once

#include <stdbool.h>
#include <stdio.h>

#include "base/err.h"

enum conf_type {
	CONF_STR,  /* up to max bytes (0: 1024) */
	CONF_INT,  /* min..max */
	CONF_BOOL, /* yes, no (also true, false, on, off, 1, 0) */
	CONF_ENUM, /* one of values */
	CONF_PATH, /* absolute; up to max bytes (0: 4095) */
};

struct conf_key {
	const char *name, *def;
	enum conf_type type;
	long long min, max;
	const char *const *values;
	bool reload; /* may change on SIGHUP */
	bool secret; /* its value is never shown */
	bool filled; /* given empty it is refused: whoever empties it does not mean the default */
	/* A further rule: NULL when the value is fine, otherwise what is allowed ("a URL such as https://host"). */
	const char *(*wrong)(const char *value);
	const char *section; /* heading before this row in the example */
	const char *doc;
};
/* The keys, in the order of the annotated example, which is generated from them; NULL behind the last one. */
const struct conf_key *conf_key_at(size_t i);

struct conf;
struct secret;

/* Read the file (path, else $GATEHOUSE_CONFIG, else /etc/gatehouse/gatehouse.conf if it exists) and the environment. NULL
 * with e set (ERR_BAD_REQUEST; the message is for the operator and may name the file). */
struct conf *conf_load(const char *path_or_null, struct err *e) __attribute__((warn_unused_result));
void conf_free(struct conf *c);
/* The same file and the environment again. A changed key that is not `reload` keeps its value and is logged as needing a
 * restart. -1 with e: nothing has changed. One caller at a time. */
int conf_reload(struct conf *c, struct err *e);
/* Values by key; an unknown key is our own bug and asserts. */
const char *conf_str(const struct conf *c, const char *key) __attribute__((returns_nonnull));
long long conf_int(const struct conf *c, const char *key);
bool conf_bool(const struct conf *c, const char *key);
/*
 * The first line of the file that this setting names, which only its owner may be able to read, in *secret (the caller's); NULL where
 * the setting is empty. ERR_BAD_REQUEST names the setting and what is wanted.
 */
int conf_secret(const struct conf *c, const char *key, struct secret **secret, struct err *e);
/* LOG_LEVEL and LOG_FORMAT into log_setup; at start and after a reload. `process` is a literal. */
void conf_log(const struct conf *c, const char *process);
/* What is allowed where an OIDC_* URL is not (NULL: it is fine); for a URL that the issuer names, too. */
const char *conf_oidc_url(const char *value);
/* The annotated example file, systemd/gatehouse.conf (a test compares; `make golden` rewrites). */
void conf_example(FILE *to);
