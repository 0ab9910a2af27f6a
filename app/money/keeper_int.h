/* keeper_int.h - inside app/money: the two threads of a keeper. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "base/id.h"
#include "base/secret.h"
#include "money/keeper.h"

struct keeper {
	struct gate_opts o;
	char id[ID_MAX];
	struct secret *key; /* NULL: none is sent */
	atomic_bool ending;
	pthread_mutex_t lock; /* for end alone */
	pthread_cond_t end;
	pthread_t reaper, reporter;
	bool reports;
};

/* Sleep; false when the keeper is ending. */
bool keeper_rest(struct keeper *k, int ms);
void *reaper_thread(void *arg);
void *reporter_thread(void *arg);
