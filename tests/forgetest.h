/*
 * forgetest.h - the forge's ops in one test program, without a server in front: a private PostgreSQL, a temporary FORGE_ROOT and
 * two organisations, acme (ada) and other (bob). Failures end the test.
 */
#pragma once

#include <jansson.h>

#include "auth/principal.h"
#include "base/err.h"
#include "base/js.h"
#include "io/conf.h"
#include "op/op.h"

struct forgetest {
	struct pg_pool *pool;
	struct conf *conf;
	struct mem *mem; /* of the group */
	char root[64];
};
extern struct forgetest forgetest;
extern const struct principal ada, bob;

/* Group setup and teardown. */
int forgetest_start(void **s);
int forgetest_end(void **s);

struct ctx forgetest_ctx(const struct principal *who, struct reply *reply);
/* An op as the server calls it: authorised, its input (taken) checked, its reply checked against its own schema. NULL with e. */
json_t *call(const struct principal *who, const char *id, json_t *input, struct err *e);
json_t *must(const struct principal *who, const char *id, json_t *input);
void refused(
    const struct principal *who, const char *id, json_t *input, enum err_code code, const char *says);

void create(const char *name); /* a repository of acme */
const char *dir_of(const char *name);
int entries(const char *what); /* of a directory below the root, hidden ones aside; 0 when it is not there */
/* What git says about a repository of acme, without its last line end; it must succeed. */
const char *forge_git(const char *repo, const char *const *args);
#define GIT(repo, ...) forge_git(repo, (const char *const[]){ __VA_ARGS__, NULL })

/* Setup and teardown of a test with a repository "work", and files for it. */
int make_work(void **s);
int drop_work(void **s);
#define WORK(name) cmocka_unit_test_setup_teardown(name, make_work, drop_work)
json_t *file(const char *path, const char *content);
json_t *gone(const char *path);
json_t *push(const char *branch, json_t *files);
/* push_files; the commit, which is the branch's tip. */
const char *pushed(const char *branch, json_t *files);
