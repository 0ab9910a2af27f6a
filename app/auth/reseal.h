/*
 * reseal.h - rotation of the key that seals (SEC-6): every stored value anew under the newest key, and no key given up while a
 * row needs it. A table that holds sealed values is a row of `places` (reseal.c).
 */
#pragma once

#include "auth/seal.h"
#include "io/pg.h"

struct reseal_sum {
	long long done;   /* sealed anew */
	long long broken; /* open with no key that we have; left as they are */
};
/*
 * In batches, each value by itself and only if nobody has changed it meanwhile: to be killed or called twice costs nothing, and
 * everybody else goes on. after_batch (may be NULL) is called now and then; -1 ends it.
 */
int reseal_all(struct pg *db, const struct seal_key *k, int (*after_batch)(void *arg), void *arg,
    struct reseal_sum *sum, struct err *e);
/* How many rows need this key, or may: -1 with e. */
long long reseal_uses(struct pg *db, const char *id, struct err *e);
/* Take every key but the newest out of the file. ERR_CONFLICT while a row needs one; that one stays. *dropped counts. */
int reseal_drop(struct pg *db, const struct seal_key *k, int *dropped, struct err *e);
/*
 * On SIGHUP: read the file again. A key that it no longer has is forgotten unless a row needs it or that cannot be found out;
 * then it is kept, and the log says so. -1 with e: the file is bad and nothing has changed.
 */
int reseal_reload(struct pg_pool *pool, const struct seal_key *k, struct err *e);
