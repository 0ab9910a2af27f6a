#include "io/conf.h"

#include <assert.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/secret.h"
#include "base/str.h"
#include "io/conf_file.h"
#include "io/file.h"

#define STANDARD_FILE "/etc/gatehouse/gatehouse.conf"

enum {
	FILE_MAX = 256 * 1024,
	STR_MAX = 1024,
	PATH_LEN_MAX = 4095,
	SECRET_MAX = 4096,
	SHOWN_MAX = 120,
	EXAMPLE_WIDTH = 100,
	SLOTS = 1024
};

struct old { /* strings that a reader may still hold */
	struct old *next;
	char *s;
};
struct conf {
	char *path; /* NULL: no file */
	size_t n;
	const struct conf_key **key; /* by index, as str and num */
	uint16_t slot[SLOTS]; /* index + 1 at the name's hash, or behind it; requests ask many a time */
	char *_Atomic *str;
	_Atomic long long *num;
	struct old *old;
};

/* Requests ask for some twenty settings each. */
static size_t home(const char *name)
{
	return hash_own(name, strlen(name)) % SLOTS;
}

static ssize_t key_index(const struct conf *c, const char *name)
{
	for (size_t at = home(name); c->slot[at] != 0; at = (at + 1) % SLOTS)
		if (strcmp(c->key[c->slot[at] - 1]->name, name) == 0)
			return c->slot[at] - 1;
	return -1;
}

static void index_keys(struct conf *c)
{
	assert(c->n <= SLOTS / 2);
	for (size_t i = 0; i < c->n; i++) {
		size_t at = home(c->key[i]->name);
		while (c->slot[at] != 0)
			at = (at + 1) % SLOTS;
		c->slot[at] = (uint16_t)(i + 1);
	}
}

/* ---- judging a value */

static const char *const yes[] = { "yes", "true", "on", "1", NULL };
static const char *const no[] = { "no", "false", "off", "0", NULL };

/* What a key allows, as the end of "it must be …". */
static void allowed(const struct conf_key *k, const char *special, struct buf *out)
{
	if (special != NULL) {
		(void)buf_str(out, special);
	} else if (k->type == CONF_INT) {
		(void)buf_fmt(out, "a whole number from %lld to %lld", k->min, k->max);
	} else if (k->type == CONF_BOOL) {
		(void)buf_str(out, "yes or no");
	} else if (k->type == CONF_ENUM) {
		(void)buf_str(out, "one of");
		for (size_t i = 0; k->values[i] != NULL; i++)
			(void)buf_fmt(out, "%s %s", i == 0 ? "" : ",", k->values[i]);
	} else if (k->type == CONF_PATH) {
		(void)buf_fmt(
		    out, "an absolute path of at most %lld bytes", k->max == 0 ? PATH_LEN_MAX : k->max);
	} else {
		(void)buf_fmt(out, "text of at most %lld bytes without control characters",
		    k->max == 0 ? STR_MAX : k->max);
	}
}

static bool has_control(const char *v)
{
	for (; *v != 0; v++)
		if ((unsigned char)*v < 0x20 || *v == 0x7f)
			return true;
	return false;
}

static bool type_ok(const struct conf_key *k, const char *v, long long *num)
{
	size_t n = strlen(v);
	switch (k->type) {
	case CONF_INT:
		return str_int(v, k->min, k->max, num);
	case CONF_BOOL:
		*num = str_one_of(v, yes);
		return *num != 0 || str_one_of(v, no);
	case CONF_ENUM:
		return str_one_of(v, k->values);
	case CONF_PATH:
		return !has_control(v) && v[0] == '/' && n <= (size_t)(k->max == 0 ? PATH_LEN_MAX : k->max);
	case CONF_STR:
		return !has_control(v) && n <= (size_t)(k->max == 0 ? STR_MAX : k->max);
	}
	return false;
}

/* An empty value is the default, which needs no judging when it is empty itself. */
static int judge(const struct conf_key *k, const char *v, long long *num, struct err *e)
{
	*num = 0;
	if (v[0] == 0)
		return 0;
	const char *special = NULL;
	if (type_ok(k, v, num) && (k->wrong == NULL || (special = k->wrong(v)) == NULL))
		return 0;
	auto_buf struct buf what = BUF(256);
	allowed(k, special, &what);
	return err_field(e, ERR_BAD_REQUEST, k->name, "%s is %s%.*s%s: it must be %s.", k->name,
	    k->secret ? "" : "\"", SHOWN_MAX, k->secret ? "wrong" : v, k->secret ? "" : "\"", buf_c(&what));
}

/* ---- reading */

static void set(struct conf *c, size_t i, const char *v, long long num)
{
	char *was = c->str[i];
	c->num[i] = num;
	c->str[i] = xstrdup(v);
	if (was == NULL)
		return;
	struct old *o = xcalloc(1, sizeof *o);
	*o = (struct old){ c->old, was };
	c->old = o;
}

static int put(struct conf *c, size_t i, const char *v, struct err *e)
{
	long long num;
	if (v[0] == 0 && c->key[i]->filled)
		return err_field(e, ERR_BAD_REQUEST, c->key[i]->name,
		    "%s is empty: it must be text of at least one byte; leave it out for \"%s\".",
		    c->key[i]->name, c->key[i]->def);
	if (v[0] == 0)
		v = c->key[i]->def;
	if (judge(c->key[i], v, &num, e) != 0)
		return -1;
	set(c, i, v, num);
	return 0;
}

static int from_file(void *arg, const char *key, const char *value, int line, struct err *e)
{
	ssize_t i = key_index(arg, key);
	if (i < 0)
		return err_field(e, ERR_BAD_REQUEST, key,
		    "\"%.60s\" in line %d is not a setting of gatehouse.", key, line);
	return put(arg, (size_t)i, value, e);
}

/* The file's name before what is wrong with it. */
static int in_file(const char *path, struct err *e)
{
	struct err why = *e;
	return err_replace(e, why.code, "%s: %s", path, why.msg);
}

static int read_file(struct conf *c, struct err *e)
{
	if (c->path == NULL)
		return 0;
	auto_buf struct buf text = BUF(FILE_MAX);
	if (file_read(c->path, &text, e) != 0 || conf_file_parse(buf_c(&text), text.n, from_file, c, e) != 0)
		return in_file(c->path, e);
	return 0;
}

static int read_all(struct conf *c, struct err *e)
{
	for (size_t i = 0; i < c->n; i++) {
		int rc = put(c, i, c->key[i]->def, e);
		assert(rc == 0); /* a default outside its own bounds */
	}
	if (read_file(c, e) != 0)
		return -1;
	for (size_t i = 0; i < c->n; i++) {
		const char *v = getenv(c->key[i]->name);
		if (v != NULL && put(c, i, v, e) != 0)
			return -1;
	}
	return 0;
}

static struct conf *empty(const char *path)
{
	struct conf *c = xcalloc(1, sizeof *c);
	while (conf_key_at(c->n) != NULL)
		c->n++;
	c->key = xcalloc(c->n, sizeof *c->key);
	for (size_t i = 0; i < c->n; i++)
		c->key[i] = conf_key_at(i);
	index_keys(c);
	c->str = xcalloc(c->n, sizeof *c->str);
	c->num = xcalloc(c->n, sizeof *c->num);
	c->path = path == NULL ? NULL : xstrdup(path);
	return c;
}

struct conf *conf_load(const char *path_or_null, struct err *e)
{
	const char *path = path_or_null == NULL ? getenv("GATEHOUSE_CONFIG") : path_or_null;
	if (path == NULL && access(STANDARD_FILE, F_OK) == 0)
		path = STANDARD_FILE;
	struct conf *c = empty(path);
	if (read_all(c, e) == 0)
		return c;
	conf_free(c);
	return NULL;
}

void conf_free(struct conf *c)
{
	if (c == NULL)
		return;
	for (struct old *o = c->old, *next; o != NULL; o = next) {
		next = o->next;
		free(o->s);
		free(o);
	}
	for (size_t i = 0; i < c->n; i++)
		free(c->str[i]);
	free(c->key);
	free(c->str);
	free(c->num);
	free(c->path);
	free(c);
}

int conf_reload(struct conf *c, struct err *e)
{
	struct conf *fresh = empty(c->path);
	int rc = read_all(fresh, e);
	for (size_t i = 0; rc == 0 && i < c->n; i++) {
		if (strcmp(c->str[i], fresh->str[i]) == 0)
			continue;
		if (c->key[i]->reload)
			set(c, i, fresh->str[i], fresh->num[i]);
		else
			log_warn("a changed setting needs a restart", "setting", c->key[i]->name);
	}
	conf_free(fresh);
	return rc;
}

/* ---- asking */

static size_t must_find(const struct conf *c, const char *key)
{
	ssize_t i = key_index(c, key);
	assert(i >= 0);
	return (size_t)i;
}

const char *conf_str(const struct conf *c, const char *key)
{
	return c->str[must_find(c, key)];
}

long long conf_int(const struct conf *c, const char *key)
{
	size_t i = must_find(c, key);
	assert(c->key[i]->type == CONF_INT);
	return c->num[i];
}

bool conf_bool(const struct conf *c, const char *key)
{
	size_t i = must_find(c, key);
	assert(c->key[i]->type == CONF_BOOL);
	return c->num[i] != 0;
}

int conf_secret(const struct conf *c, const char *key, struct secret **secret, struct err *e)
{
	const char *path = conf_str(c, key);
	auto_buf struct buf text = BUF(SECRET_MAX);
	struct err why = { 0 };
	struct stat st;
	*secret = NULL;
	if (path[0] == 0)
		return 0;
	if (stat(path, &st) != 0 || file_read(path, &text, &why) != 0)
		return err_set(e, ERR_BAD_REQUEST, "%s (%.200s) cannot be read.", key, path);
	size_t n = strcspn(buf_c(&text), "\r\n");
	if ((st.st_mode & 077) == 0 && n > 0)
		*secret = secret_new(buf_c(&text), n);
	if (text.p != NULL)
		secret_wipe(text.p, text.n);
	return *secret != NULL ? 0
			       : err_set(e, ERR_BAD_REQUEST,
				     "%s (%.200s) must hold a key in its first line and be readable by its "
				     "owner only (chmod 600).",
				     key, path);
}

void conf_log(const struct conf *c, const char *process)
{
	static const char *const levels[] = { "debug", "info", "warn", "error" };
	int level = 0;
	while (strcmp(levels[level], conf_str(c, "LOG_LEVEL")) != 0)
		level++;
	log_setup(process, (enum log_level)level,
	    strcmp(conf_str(c, "LOG_FORMAT"), "json") == 0 ? LOG_JSON : LOG_LOGFMT);
}

/* ---- the example */

static void comment(FILE *to, const char *text)
{
	size_t col = 0;
	struct str rest = str_of(text), word;
	while (str_cut(&rest, ' ', &word)) {
		if (col > 0 && col + 1 + word.n > EXAMPLE_WIDTH) {
			(void)fputc('\n', to);
			col = 0;
		}
		(void)fprintf(to, "%s %.*s", col == 0 ? "#" : "", (int)word.n, word.p);
		col += 1 + word.n;
	}
	(void)fputc('\n', to);
}

void conf_example(FILE *to)
{
	comment(to,
	    "gatehouse: every setting with its default. Lines are KEY=value in the syntax of systemd's "
	    "EnvironmentFile; an "
	    "environment variable of the same name wins over this file; an empty value means the default. "
	    "Settings marked "
	    "(reload) are read again on SIGHUP, the others at start.");
	const struct conf_key *k;
	for (size_t i = 0; (k = conf_key_at(i)) != NULL; i++) {
		if (k->section != NULL)
			(void)fprintf(to, "\n# ---- %s\n", k->section);
		auto_buf struct buf text = BUF(4096);
		(void)buf_fmt(&text, "%s", k->doc);
		if (k->type == CONF_INT || k->type == CONF_BOOL || k->type == CONF_ENUM) {
			auto_buf struct buf what = BUF(256);
			allowed(k, NULL, &what);
			(void)buf_fmt(&text, " (%s)", buf_c(&what));
		}
		(void)buf_str(&text, k->reload ? " (reload)" : "");
		(void)fputc('\n', to);
		comment(to, buf_c(&text));
		(void)fprintf(to, "#%s=%s\n", k->name, k->def);
	}
}
