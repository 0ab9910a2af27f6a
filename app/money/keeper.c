#include "money/keeper.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/cond.h"
#include "money/keeper_int.h"

bool keeper_rest(struct keeper *k, int ms)
{
	int64_t until_ms = clock_ms() + ms;
	(void)pthread_mutex_lock(&k->lock);
	while (!atomic_load(&k->ending) && cond_wait_until(&k->end, &k->lock, until_ms))
		;
	(void)pthread_mutex_unlock(&k->lock);
	return !atomic_load(&k->ending);
}

struct keeper *keeper_start(const struct gate_opts *o, struct err *e)
{
	struct keeper *k = xcalloc(1, sizeof *k);
	k->o = *o;
	k->reports = conf_str(o->conf, "BILLING_REPORT_URL")[0] != 0;
	id_make("kpr", k->id);
	if (conf_secret(o->conf, "BILLING_REPORT_KEY_FILE", &k->key, e) != 0) {
		free(k);
		return NULL;
	}
	(void)pthread_mutex_init(&k->lock, NULL);
	(void)pthread_cond_init(&k->end, NULL);
	if (pthread_create(&k->reaper, NULL, reaper_thread, k) != 0 ||
	    (k->reports && pthread_create(&k->reporter, NULL, reporter_thread, k) != 0))
		abort();
	return k;
}

void keeper_stop(struct keeper *k)
{
	if (k == NULL)
		return;
	(void)pthread_mutex_lock(&k->lock);
	atomic_store(&k->ending, true);
	(void)pthread_cond_broadcast(&k->end);
	(void)pthread_mutex_unlock(&k->lock);
	(void)pthread_join(k->reaper, NULL);
	if (k->reports)
		(void)pthread_join(k->reporter, NULL);
	(void)pthread_mutex_destroy(&k->lock);
	(void)pthread_cond_destroy(&k->end);
	secret_free(k->key);
	free(k);
}
