#include "t.h"

#include "watching.h"

#include <string.h>

#include "base/clock.h"
#include "base/cond.h"
#include "base/js.h"
#include "session/event.h"
#include "session/feed.h"
#include "session/place.h"
#include "span.h"

static struct client *client_of(struct reply *r)
{
	return (struct client *)r;
}

static int on_head(struct reply *r, int status, const char *headers)
{
	(void)headers;
	(void)r;
	return status == 200 ? 0 : -1;
}

static void count_line(struct client *k)
{
	const char *end = k->text.p + k->text.n - 1, *start = end;
	while (start > k->text.p && start[-1] != '\n')
		start--;
	if (strstr(start, "\"type\":\"ping\"") != NULL) {
		k->pings++;
		k->text.n = (size_t)(start - k->text.p);
		k->text.p[k->text.n] = 0;
	} else {
		k->lines++;
	}
}

static int on_write(struct reply *r, const void *p, size_t n)
{
	struct client *k = client_of(r);
	(void)pthread_mutex_lock(&k->lock);
	while (k->blocked)
		(void)pthread_cond_wait(&k->changed, &k->lock);
	int rc = k->gone || (k->leave_at > 0 && k->lines >= k->leave_at) ? -1 : buf_add(&k->text, p, n);
	if (rc == 0 && n > 0 && ((const char *)p)[n - 1] == '\n')
		count_line(k);
	(void)pthread_cond_broadcast(&k->changed);
	(void)pthread_mutex_unlock(&k->lock);
	return rc;
}

static int on_flush(struct reply *r)
{
	(void)r;
	return 0;
}

static bool on_gone(struct reply *r)
{
	struct client *k = client_of(r);
	(void)pthread_mutex_lock(&k->lock);
	bool gone = k->gone;
	(void)pthread_mutex_unlock(&k->lock);
	return gone;
}

static const char *on_param(struct reply *r, const char *name)
{
	(void)r;
	(void)name;
	return NULL;
}

static const struct reply_vt vt = {
	.head = on_head, .write = on_write, .flush = on_flush, .gone = on_gone, .param = on_param
};

static void *client_run(void *arg)
{
	struct client *k = arg;
	struct err e = { 0 };
	struct places places;
	assert_int_equal(places_parse(k->places, "after", &places, &e), 0);
	if (k->session != NULL)
		(void)watch_session(k->hub, &k->c, "admin", k->session, k->after);
	else
		(void)watch_tree(k->hub, &k->c, "admin", k->root, &places, &e);
	(void)pthread_mutex_lock(&k->lock);
	k->ended = true;
	(void)pthread_cond_broadcast(&k->changed);
	(void)pthread_mutex_unlock(&k->lock);
	return NULL;
}

void client_start(struct client *k, struct watch_hub *h, struct pg_pool *db)
{
	k->reply.vt = &vt;
	k->hub = h;
	k->text = BUF(64 << 20);
	k->c = (struct ctx){
		.mem = mem_new(), .db = db, .reply = &k->reply, .request_id = "req_1", .method = "GET"
	};
	(void)pthread_mutex_init(&k->lock, NULL);
	(void)pthread_cond_init(&k->changed, NULL);
	assert_int_equal(pthread_create(&k->thread, NULL, client_run, k), 0);
}

void client_wait(struct client *k, int n)
{
	int64_t deadline = clock_ms() + PATIENCE_MS;
	bool in_time = true;
	(void)pthread_mutex_lock(&k->lock);
	while (in_time && !k->ended && (n < 0 || k->lines < n))
		in_time = cond_wait_until(&k->changed, &k->lock, deadline);
	bool fine = n < 0 ? k->ended : k->lines >= n;
	(void)pthread_mutex_unlock(&k->lock);
	assert_true(fine);
}

void client_set(struct client *k, bool *flag, bool value)
{
	(void)pthread_mutex_lock(&k->lock);
	*flag = value;
	(void)pthread_cond_broadcast(&k->changed);
	(void)pthread_mutex_unlock(&k->lock);
}

void client_join(struct client *k)
{
	client_wait(k, -1);
	(void)pthread_join(k->thread, NULL);
	mem_free(k->c.mem);
}

void client_wait_pings(struct client *k, int n)
{
	int64_t deadline = clock_ms() + PATIENCE_MS;
	bool in_time = true;
	(void)pthread_mutex_lock(&k->lock);
	while (k->pings < n && in_time)
		in_time = cond_wait_until(&k->changed, &k->lock, deadline);
	bool fine = k->pings >= n;
	(void)pthread_mutex_unlock(&k->lock);
	assert_true(fine);
}

bool client_has(struct client *k, const char *text)
{
	(void)pthread_mutex_lock(&k->lock);
	bool has = strstr(buf_c(&k->text), text) != NULL;
	(void)pthread_mutex_unlock(&k->lock);
	return has;
}

static int count_text(const struct client *k, const char *text)
{
	int n = 0;
	for (const char *at = buf_c(&k->text); (at = strstr(at, text)) != NULL; at++)
		n++;
	return n;
}

void client_wait_text(struct client *k, const char *text, int n)
{
	int64_t deadline = clock_ms() + PATIENCE_MS;
	bool in_time = true, has;
	(void)pthread_mutex_lock(&k->lock);
	while (!(has = count_text(k, text) >= n) && in_time)
		in_time = cond_wait_until(&k->changed, &k->lock, deadline);
	(void)pthread_mutex_unlock(&k->lock);
	assert_true(has);
}

json_t *client_lines(const struct client *k)
{
	json_t *all = js_pack("[]");
	for (const char *p = buf_c(&k->text), *nl; (nl = strchr(p, '\n')) != NULL; p = nl + 1) {
		struct err e = { 0 };
		json_t *v = js_parse(p, (size_t)(nl - p), &e);
		assert_non_null(v);
		js_push(all, v);
	}
	return all;
}

void client_free(struct client *k)
{
	buf_free(&k->text);
	(void)pthread_cond_destroy(&k->changed);
	(void)pthread_mutex_destroy(&k->lock);
}

/* ---- the other side */

static struct pg *take(struct pg_pool *pool)
{
	struct err e = { 0 };
	struct pg *db = pg_take(pool, PATIENCE_MS, &e);
	assert_non_null(db);
	return db;
}

void session_made(struct pg_pool *pool, const char *org, const char *parent, char id[ID_MAX])
{
	struct err e = { 0 };
	auto_pg struct pg *db = take(pool);
	assert_int_equal(session_open(db, org, "coding", "t", "ann", parent, id, &e), 0);
}

void session_says(struct pg_pool *pool, const char *org, const char *id, int from, int to)
{
	auto_pg struct pg *db = take(pool);
	for (int i = from; i <= to; i++) {
		struct err e = { 0 };
		auto_json json_t *v = js_pack("{s:i}", "i", i);
		assert_int_equal(session_append(db, org, id, "log", v, NULL, &e), 0);
	}
}

void session_ends(struct pg_pool *pool, const char *org, const char *id)
{
	struct err e = { 0 };
	auto_pg struct pg *db = take(pool);
	auto_json json_t *v = js_pack("{s:b}", "ok", 1);
	assert_int_equal(session_close(db, org, id, "done", v, NULL, &e), 0);
}
