#include "money/keeper.h"

#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "base/str.h"
#include "io/file.h"
#include "money/keeper_int.h"

enum { KEY_BYTES = 4096 };

int keeper_key(const struct conf *conf, const char *setting, struct secret **key, struct err *e)
{
	const char *path = conf_str(conf, setting);
	struct err why = { 0 };
	struct stat st;
	if (path[0] == 0)
		return 0;
	auto_buf struct buf text = BUF(KEY_BYTES);
	if (stat(path, &st) != 0 || file_read(path, &text, &why) != 0)
		return err_set(e, ERR_BAD_REQUEST, "%s (%.200s) cannot be read.", setting, path);
	size_t n = strcspn(buf_c(&text), "\r\n");
	if ((st.st_mode & 077) != 0 || n == 0) {
		secret_wipe(text.p, text.n);
		return err_set(e, ERR_BAD_REQUEST,
		    "%s (%.200s) must hold the key in its first line, readable by its owner only.", setting,
		    path);
	}
	*key = secret_new(buf_c(&text), n);
	secret_wipe(text.p, text.n);
	return 0;
}

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
	if (keeper_key(o->conf, "BILLING_REPORT_KEY_FILE", &k->key, e) != 0) {
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
