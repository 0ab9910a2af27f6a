#include "auth/oidc.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "auth/jwt.h"
#include "base/clock.h"
#include "base/cond.h"
#include "base/js.h"
#include "base/log.h"
#include "base/str.h"
#include "io/http.h"
#include "sql/auth.h"

enum {
	GAP_MS = 5000,   /* between two fetches that unknown keys cause, and after a failed one */
	FETCH_MS = 5000, /* of one request to the issuer */
	CONNECT_MS = 3000,
	DOC_MAX_BYTES = 256 * 1024,
	WAIT_MS = 2000,       /* how long a request waits for a fetch */
	WORKERS_PER_WAIT = 8, /* one of so many workers may wait */
	WAITS_MAX = 2,
	TAKE_MS = 2000,
	USER_MAX_BYTES = 80,
	URL_MAX = 1024,
};

static struct issuer {
	const struct conf *conf; /* NULL: none is configured */
	pthread_t thread;
	int waits_max;
	pthread_mutex_t lock;
	pthread_cond_t wake, fetched;
	/* Under the lock. */
	bool stop, wanted;
	int waits;
	bool failed;       /* the last fetch */
	int64_t tried_ms;  /* when it ended; 0: there was none */
	int64_t loaded_ms; /* when the last good one did */
	unsigned long fetches;
	/* Held for reading while a signature is checked. */
	pthread_rwlock_t set_lock;
	struct jwks *set;
} issuer;

/* ---- the issuer's documents */

static int get(const char *url, struct http_res *res, struct err *e)
{
	const char *ca = conf_str(issuer.conf, "OIDC_CA_FILE");
	const struct http_req q = { .method = "GET",
		.url = url,
		.ca_file = ca[0] != 0 ? ca : NULL,
		.headers = (const char *const[]){ "Accept: application/json", NULL },
		.connect_ms = CONNECT_MS,
		.total_ms = FETCH_MS,
		.max_reply_bytes = DOC_MAX_BYTES };
	if (http_do(&q, res, e) != 0)
		return -1;
	return res->status == 200
	    ? 0
	    : err_set(e, ERR_UPSTREAM, "The issuer answered with status %d.", res->status);
}

/* OpenID Connect Discovery 1.0, 4: the document must name the issuer it was asked for, letter by letter. */
static int discover(char url[URL_MAX], struct err *e)
{
	const char *iss = conf_str(issuer.conf, "OIDC_ISSUER");
	int n = (int)strlen(iss) - str_ends(iss, "/");
	(void)snprintf(url, URL_MAX, "%.*s/.well-known/openid-configuration", n, iss);
	struct http_res res = { 0 };
	int rc = get(url, &res, e);
	auto_json json_t *doc = rc == 0 ? js_parse(buf_c(&res.body), res.body.n, e) : NULL;
	http_res_free(&res);
	if (doc == NULL)
		return -1;
	const char *keys = js_str_or(doc, "jwks_uri", "");
	if (strcmp(js_str_or(doc, "issuer", ""), iss) != 0)
		return err_set(e, ERR_UPSTREAM, "The discovery document is of another issuer.");
	if (conf_oidc_url(keys) != NULL || strlen(keys) >= URL_MAX)
		return err_set(
		    e, ERR_UPSTREAM, "The jwks_uri of the discovery document is not an https URL.");
	memcpy(url, keys, strlen(keys) + 1);
	return 0;
}

static struct jwks *fetch(struct err *e)
{
	char url[URL_MAX];
	(void)snprintf(url, sizeof url, "%s", conf_str(issuer.conf, "OIDC_JWKS_URL"));
	if (url[0] == 0 && discover(url, e) != 0)
		return NULL;
	struct http_res res = { 0 };
	struct jwks *set = get(url, &res, e) == 0 ? jwks_parse(buf_c(&res.body), res.body.n, e) : NULL;
	http_res_free(&res);
	if (set == NULL || jwks_count(set) > 0)
		return set;
	/* A mistake at the issuer, more likely than the wish that nobody signs in any more; and a set of none never grows old. */
	jwks_free(set);
	err_set(e, ERR_UPSTREAM, "The issuer's key set holds no key that can be used.");
	return NULL;
}

static void put_set(struct jwks *set)
{
	(void)pthread_rwlock_wrlock(&issuer.set_lock);
	struct jwks *old = issuer.set;
	issuer.set = set;
	(void)pthread_rwlock_unlock(&issuer.set_lock);
	jwks_free(old);
}

/* ---- the thread */

/* Until the next fetch is due: with the lock held. */
static void wait_due(void)
{
	int64_t every = 1000 * conf_int(issuer.conf, "OIDC_KEYS_REFRESH_S");
	while (!issuer.stop) {
		int64_t soon = issuer.wanted || issuer.failed ? GAP_MS : every;
		int64_t due = issuer.tried_ms == 0 ? 0 : issuer.tried_ms + (soon < every ? soon : every);
		if (clock_ms() >= due)
			return;
		(void)cond_wait_until(&issuer.wake, &issuer.lock, due);
	}
}

static void *keep_keys(void *arg)
{
	(void)arg;
	(void)pthread_mutex_lock(&issuer.lock);
	for (;;) {
		wait_due();
		if (issuer.stop)
			break;
		bool had_failed = issuer.failed;
		(void)pthread_mutex_unlock(&issuer.lock);
		struct err e = { 0 };
		struct jwks *set = fetch(&e);
		if (set != NULL)
			put_set(set);
		else
			log_warn("the issuer's keys cannot be fetched", "why", e.msg);
		if (set != NULL && had_failed)
			log_info("the issuer's keys are there again");
		(void)pthread_mutex_lock(&issuer.lock);
		issuer.tried_ms = clock_ms();
		issuer.failed = set == NULL;
		if (set != NULL)
			issuer.loaded_ms = issuer.tried_ms;
		issuer.fetches++;
		issuer.wanted = false; /* who asked meanwhile looks at this set */
		(void)pthread_cond_broadcast(&issuer.fetched);
	}
	(void)pthread_mutex_unlock(&issuer.lock);
	return NULL;
}

int oidc_start(const struct conf *conf, struct err *e)
{
	static const char *const of_issuer[] = { "OIDC_AUDIENCE", "OIDC_JWKS_URL", "OIDC_ADMIN_GROUP", NULL };
	bool none = conf_str(conf, "OIDC_ISSUER")[0] == 0;
	for (const char *const *k = of_issuer; none && *k != NULL; k++)
		if (conf_str(conf, *k)[0] != 0)
			return err_field(e, ERR_BAD_REQUEST, *k,
			    "%s is set and OIDC_ISSUER is not: set OIDC_ISSUER, which must be an https URL, "
			    "or leave "
			    "both empty.",
			    *k);
	if (none)
		return 0;
	if (conf_str(conf, "OIDC_AUDIENCE")[0] == 0)
		return err_set(e, ERR_BAD_REQUEST,
		    "OIDC_AUDIENCE must be set where OIDC_ISSUER is: tokens for other services are refused "
		    "by it.");
	issuer = (struct issuer){ .conf = conf };
	long long spare = conf_int(conf, "API_WORKERS") / WORKERS_PER_WAIT;
	issuer.waits_max = spare < WAITS_MAX ? (int)spare : WAITS_MAX;
	(void)pthread_mutex_init(&issuer.lock, NULL);
	(void)pthread_rwlock_init(&issuer.set_lock, NULL);
	(void)pthread_cond_init(&issuer.wake, NULL);
	(void)pthread_cond_init(&issuer.fetched, NULL);
	if (pthread_create(&issuer.thread, NULL, keep_keys, NULL) == 0)
		return 0;
	issuer.conf = NULL;
	return err_set(e, ERR_UNAVAILABLE, "A thread could not be started.");
}

void oidc_stop(void)
{
	if (issuer.conf == NULL)
		return;
	(void)pthread_mutex_lock(&issuer.lock);
	issuer.stop = true;
	(void)pthread_cond_signal(&issuer.wake);
	(void)pthread_mutex_unlock(&issuer.lock);
	(void)pthread_join(issuer.thread, NULL);
	put_set(NULL);
	(void)pthread_mutex_destroy(&issuer.lock);
	(void)pthread_rwlock_destroy(&issuer.set_lock);
	(void)pthread_cond_destroy(&issuer.wake);
	(void)pthread_cond_destroy(&issuer.fetched);
	issuer.conf = NULL;
}

/* ---- a request's token */

static enum jwks_verdict check(const struct jwt *t)
{
	(void)pthread_mutex_lock(&issuer.lock);
	int64_t age = clock_ms() - issuer.loaded_ms,
		most = 1000 *
	    (conf_int(issuer.conf, "OIDC_KEYS_REFRESH_S") + conf_int(issuer.conf, "OIDC_KEYS_STALE_S"));
	bool usable = issuer.loaded_ms != 0 && age <= most;
	(void)pthread_mutex_unlock(&issuer.lock);
	if (!usable)
		return JWKS_NO_KEY;
	(void)pthread_rwlock_rdlock(&issuer.set_lock);
	enum jwks_verdict v = jwt_verify(t, issuer.set);
	(void)pthread_rwlock_unlock(&issuer.set_lock);
	return v;
}

/*
 * A key that is not there: is a newer set to be had? 1: one was fetched meanwhile, look again; 0: the set is fresh, so nobody
 * has that key; -1: it is being fetched, or the issuer is away.
 */
static int renew(struct err *e)
{
	int got = 0;
	(void)pthread_mutex_lock(&issuer.lock);
	if (issuer.failed || issuer.tried_ms == 0 || clock_ms() - issuer.tried_ms >= GAP_MS) {
		unsigned long before = issuer.fetches;
		int64_t until_ms = clock_ms() + WAIT_MS;
		issuer.wanted = true;
		(void)pthread_cond_signal(&issuer.wake);
		bool wait = !issuer.failed && issuer.waits < issuer.waits_max;
		issuer.waits += wait;
		while (wait && issuer.fetches == before &&
		    cond_wait_until(&issuer.fetched, &issuer.lock, until_ms))
			;
		issuer.waits -= wait;
		got = issuer.fetches != before && !issuer.failed ? 1 : -1;
	}
	(void)pthread_mutex_unlock(&issuer.lock);
	if (got >= 0)
		return got;
	if (e->code == ERR_NONE)
		e->retry_s = GAP_MS / 1000;
	return err_set(e, ERR_UNAVAILABLE,
	    "The identity provider's keys are not at hand right now; try again in a moment.");
}

static bool in_group(const json_t *groups, const char *group)
{
	if (json_is_string(groups))
		return strcmp(json_string_value(groups), group) == 0;
	for (size_t i = 0; i < json_array_size(groups); i++) {
		const char *one = json_string_value(json_array_get(groups, i));
		if (one != NULL && strcmp(one, group) == 0)
			return true;
	}
	return false;
}

/*
 * Whom the claims name. Somebody in the reserved org could make keys that rule the service, so its members are refused there
 * unless the settings say that the issuer may name them.
 */
static const struct principal *map(struct mem *m, const json_t *claims)
{
	const struct conf *c = issuer.conf;
	const char *org = js_str(claims, conf_str(c, "OIDC_ORG_CLAIM"));
	const char *user = js_str(claims, conf_str(c, "OIDC_USER_CLAIM"));
	const char *group = conf_str(c, "OIDC_ADMIN_GROUP");
	if (org == NULL || !org_slug_ok(org) || user == NULL || strlen(user) > USER_MAX_BYTES ||
	    !str_shows(user))
		return NULL;
	bool reserved = strcmp(org, "admin") == 0;
	if (reserved && !conf_bool(c, "OIDC_SUPER_ADMIN"))
		return NULL;
	struct principal *p = mem_alloc(m, sizeof *p);
	*p = (struct principal){
		.kind = CRED_OIDC, .cred_id = "oidc", .org = org, .user = user, .scopes = "*"
	};
	p->org_admin = group[0] != 0 && in_group(js_get(claims, conf_str(c, "OIDC_GROUPS_CLAIM")), group);
	p->super_admin = reserved && p->org_admin;
	return p;
}

static int org_exists(struct pg_pool *pool, const char *org, struct err *e)
{
	auto_pg struct pg *db = pg_take(pool, TAKE_MS, e);
	auto_res struct pg_res *r = db == NULL ? NULL : PG(db, &q_auth_org_exists, e, org);
	return r == NULL ? -1 : pg_rows(r);
}

int oidc_principal(
    struct mem *m, struct pg_pool *pool, const char *token, const struct principal **who, struct err *e)
{
	struct jwt t;
	*who = NULL;
	/* What could not be valid with any key asks for none. */
	if (issuer.conf == NULL || !jwt_parse(m, token, &t) ||
	    !jwt_fits(&t, conf_str(issuer.conf, "OIDC_ISSUER"), conf_str(issuer.conf, "OIDC_AUDIENCE"),
		clock_wall_ms() / 1000))
		return 0;
	enum jwks_verdict v = check(&t);
	if (v == JWKS_NO_KEY) {
		int got = renew(e);
		if (got <= 0)
			return got;
		v = check(&t);
	}
	const struct principal *p = v == JWKS_GOOD ? map(m, t.claims) : NULL;
	int known = p == NULL ? 0 : org_exists(pool, p->org, e);
	if (known < 0)
		return -1;
	*who = known > 0 ? p : NULL;
	return 0;
}
