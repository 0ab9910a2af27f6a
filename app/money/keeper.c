#include "money/keeper.h"

#include <time.h>

#include "money/keeper_int.h"

bool keeper_rest(struct keeper *k, int ms)
{
	struct timespec until;
	(void)clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += ms / 1000;
	until.tv_nsec += (long)(ms % 1000) * 1000000;
	if (until.tv_nsec >= 1000000000) {
		until.tv_sec++;
		until.tv_nsec -= 1000000000;
	}
	(void)pthread_mutex_lock(&k->lock);
	while (!atomic_load(&k->ending) && pthread_cond_timedwait(&k->end, &k->lock, &until) == 0)
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
	pthread_condattr_t mono;
	(void)pthread_mutex_init(&k->lock, NULL);
	(void)pthread_condattr_init(&mono);
	(void)pthread_condattr_setclock(&mono, CLOCK_MONOTONIC);
	(void)pthread_cond_init(&k->end, &mono);
	(void)pthread_condattr_destroy(&mono);
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
