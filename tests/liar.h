/*
 * liar.h - a box that lies: it says hello properly and then whatever a test wants, from a thread of its own. Failures end the
 * test (assertions).
 */
#pragma once

#include <pthread.h>

#include "sandbox/channel.h"

struct liar {
	char dir[64], path[96];
	struct channel_opts opts;
	struct channel *c;
	int listen_fd, fd;
	uint32_t version; /* the one that it speaks */
	pthread_t thread;
	void (*part)(struct liar *l); /* what it does after the hello */
	unsigned char msg[1 << 20];
};

/* silence_ms: of the channel; 0: the default. */
struct liar *liar_up(void (*part)(struct liar *l), int silence_ms);
struct liar *liar_up_version(void (*part)(struct liar *l), int silence_ms, uint32_t version);
void liar_down(struct liar *l);
/* The next frame from the channel, its payload in msg. */
struct proto_head liar_hear(struct liar *l);
void liar_tell(struct liar *l, uint8_t type, uint32_t id, const void *p, size_t n);
/* Five seconds from now. */
struct channel_wait liar_wait(void);
