#include "io/http_pool.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

enum { POOL_MAX = 128, IDLE_MS = 30000 };

/* The module's one piece of state: handles that nobody uses, the newest last. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct idle {
	struct http_handle h;
	int64_t since_ms;
} idle[POOL_MAX];
static int n_idle;

static void discard(const struct http_handle *h)
{
	curl_easy_cleanup(h->easy);
	(void)curl_multi_cleanup(h->multi);
}

/* Scheme, host, port, and what else makes a connection another one. Empty: too long to be kept. */
static void origin_of(const struct http_req *q, char *out, size_t size)
{
	const char *at = strstr(q->url, "://");
	size_t n = at == NULL ? 0 : (size_t)(at - q->url) + 3;
	n += strcspn(q->url + n, "/?#");
	int len = snprintf(out, size, "%.*s %s %s", (int)n, q->url, q->ca_file != NULL ? q->ca_file : "",
	    q->unix_socket != NULL ? q->unix_socket : "");
	if (len < 0 || (size_t)len >= size)
		out[0] = 0;
}

static bool taken(struct http_handle *h)
{
	bool found = false;
	(void)pthread_mutex_lock(&lock);
	for (int i = n_idle - 1; i >= 0 && !found; i--) {
		if (strcmp(idle[i].h.origin, h->origin) != 0)
			continue;
		*h = idle[i].h;
		memmove(&idle[i], &idle[i + 1], (size_t)(n_idle - i - 1) * sizeof idle[0]);
		n_idle--;
		found = true;
	}
	(void)pthread_mutex_unlock(&lock);
	return found;
}

struct http_handle http_handle_take(const struct http_req *q)
{
	struct http_handle h = { 0 };
	if (q->keep)
		origin_of(q, h.origin, sizeof h.origin);
	h.keep = h.origin[0] != 0;
	if (h.keep && taken(&h))
		return h;
	h.multi = curl_multi_init();
	h.easy = curl_easy_init();
	if (h.multi == NULL || h.easy == NULL)
		abort();
	if (h.keep)
		(void)curl_multi_setopt(h.multi, CURLMOPT_MAXCONNECTS, 1L);
	return h;
}

void http_handle_give(struct http_handle *h, bool whole)
{
	if (!h->keep || !whole) {
		discard(h);
		return;
	}
	curl_easy_reset(h->easy); /* the connection stays with the multi handle */
	int64_t now = clock_ms();
	struct http_handle old[POOL_MAX + 1];
	int n_old = 0;
	(void)pthread_mutex_lock(&lock);
	while (n_idle > 0 && (n_idle == POOL_MAX || now - idle[0].since_ms > IDLE_MS)) {
		old[n_old++] = idle[0].h;
		memmove(&idle[0], &idle[1], (size_t)--n_idle * sizeof idle[0]);
	}
	idle[n_idle++] = (struct idle){ *h, now };
	(void)pthread_mutex_unlock(&lock);
	for (int i = 0; i < n_old; i++)
		discard(&old[i]);
}
