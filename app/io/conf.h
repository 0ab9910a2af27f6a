/*
 * conf.h - configuration: one table of keys (name, default, bounds, doc), one file of KEY=value lines (systemd
 * EnvironmentFile syntax), environment over file (RUN-1). A wrong value stops the process at start with the key, the value
 * and what is allowed; on SIGHUP a file that does not parse keeps the old values and says so.
 */
#pragma once

#include <stdbool.h>
#include <stdio.h>

#include "base/err.h"

enum conf_type { CONF_STR, CONF_INT, CONF_BOOL, CONF_ENUM, CONF_PATH };

struct conf_key {
	const char *name, *def;
	enum conf_type type;
	long long min, max;
	const char *const *values;
	bool reload; /* may change on SIGHUP */
	bool secret; /* never shown */
	const char *doc;
};
extern const struct conf_key conf_keys[]; /* ended by a row without name; the annotated example is generated from it */

struct conf; /* an immutable snapshot */

/* Read the file ($GATEHOUSE_CONFIG, else /etc/gatehouse/gatehouse.conf if it exists) and the environment. NULL with e set. */
struct conf *conf_load(const char *path_or_null, struct err *e);
void conf_free(struct conf *c);
/* Values by key; an unknown key is our own bug and asserts. Strings live as long as the snapshot. */
const char *conf_str(const struct conf *c, const char *key);
long long conf_int(const struct conf *c, const char *key);
bool conf_bool(const struct conf *c, const char *key);
/* The annotated example file, for systemd/gatehouse.conf (a test compares). */
void conf_example(FILE *to);
