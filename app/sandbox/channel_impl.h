/*
 * channel_impl.h - inside the channel (channel*.c only). Every request has an entry: its own queue of frames that were
 * checked on arrival, until its last frame came and its caller is done. All of it is guarded by channel.lock.
 */
#pragma once

#include <pthread.h>

#include "base/buf.h"
#include "base/limits.h"
#include "sandbox/channel.h"

struct piece { /* one frame's payload, waiting for its caller */
	struct piece *next;
	uint8_t type;
	size_t n;
	unsigned char p[];
};

struct entry {
	struct entry *next;
	uint32_t id;
	uint8_t kind;    /* the request's type */
	uint8_t version; /* of the protocol */
	bool over;       /* its last frame came (and is in the queue, or was) */
	bool abandoned;  /* nobody waits: freed with its last frame */
	bool described;  /* FILE or LISTED came */
	bool cancelled;  /* we asked for its end: DONE may come early */
	uint8_t streams; /* SUB: which may come */
	uint8_t heard;   /* SUB: which did */
	uint64_t
	    credit; /* bytes that the box may still send; for WRITE and UNPACK, that we may; for LOOK, of nodes */
	uint64_t granted; /* WRITE: sent and not yet credited again; INPUT: sent */
	uint64_t at[2];   /* lowest offset that may come next */
	uint32_t nodes;   /* LOOK: how many may still come; LIST: how many came */
	pthread_cond_t changed;
	struct piece *head, **tail;
};

struct channel {
	pthread_mutex_t lock;
	pthread_cond_t drained; /* out got shorter */
	pthread_t thread;
	int fd, wake_fd;
	bool lost, closing;
	const char *why; /* static text, once lost */
	uint32_t next_id, version;
	int silence_ms;
	int64_t heard_ms; /* when the last bytes came */
	bool asked;       /* and we have pinged since */
	struct entry *entries;
	struct buf out; /* bytes the socket did not take at once */
	size_t out_at;
	unsigned char *in;
	size_t in_n;
};

/* ---- channel.c; all with the lock held unless said */
struct entry *entry_new(struct channel *c, uint8_t kind);
void entry_free(struct channel *c, struct entry *en); /* unlink and free */
/* Its caller is done with it: cancel it if it is not over (kinds that can be), free it now or with its last frame. */
void entry_leave(struct channel *c, struct entry *en);
/* Take the next frame, waiting for it: NULL with e when the channel is lost, or the wait is over (ERR_TIMEOUT). Caller frees. */
struct piece *entry_take(struct channel *c, struct entry *en, const struct channel_wait *w, struct err *e);
/* Queue a frame, waiting while too much is queued. */
int channel_send(struct channel *c, uint8_t type, uint32_t id, const void *p, size_t n,
    const struct channel_wait *w, struct err *e);
/* The same without waiting: for short frames. A lost channel is found out by whoever waits next. */
void channel_post(struct channel *c, uint8_t type, uint32_t id, const void *p, size_t n);
void channel_post_u32(struct channel *c, uint8_t type, uint32_t id, uint32_t v);
/* Wait on a condition until it is signalled, at most 200 ms: 0, or -1 with e when w is over. */
int channel_doze(struct channel *c, pthread_cond_t *cond, const struct channel_wait *w, struct err *e);
void channel_lose(struct channel *c, const char *why);
int channel_lost_err(const struct channel *c, struct err *e);
/* A frame that a caller got from entry_take as an ERROR. Returns -1. */
int piece_error(const struct piece *p, struct err *e);
/* A request whose only answer is DONE; the value, or -1. Takes the lock itself. */
int channel_ask(struct channel *c, uint8_t type, const void *p, size_t n, const struct channel_wait *w,
    uint64_t *value, struct err *e);
/* 0 when the box speaks this version of the protocol at least; else ERR_CONFLICT: it was started before an upgrade. */
int channel_speaks(const struct channel *c, uint32_t version, struct err *e);
/* Text from a box that is shown to people: printable ASCII. */
void channel_text(char *to, size_t size, const char *from);

/* ---- channel_file.c, for channel_tree.c; without the lock */
int path_fits(const char *field, const char *path, struct err *e);
/* The refusal of a request about files: what the box bases on the path names it. Returns -1. */
int file_refused(const struct piece *p, struct err *e);
/* A call-back has ended it. Returns -1. */
int file_aborted(struct err *e);
struct piece *file_take(struct channel *c, struct entry *en, const struct channel_wait *w, struct err *e);
void file_leave(struct channel *c, struct entry *en);
/* A request whose only answer is DONE. */
int file_ask(struct channel *c, uint8_t type, const struct proto_out *o, const struct channel_wait *w,
    uint64_t *value, struct err *e);

/* ---- channel_check.c: judge a frame on arrival. NULL when it is fine (*last: no other will come), else what is wrong. */
const char *channel_check(struct entry *en, uint8_t type, const unsigned char *p, size_t n, bool *last);

/* ---- channel_open.c: a connected socket to the box, hellos exchanged; -1 with e. */
struct channel_greeting {
	uint32_t last_id, version; /* the highest id that the box has seen; what both speak */
};
int channel_dial(
    const struct channel_opts *o, const struct channel_wait *w, struct channel_greeting *g, struct err *e);

static inline void auto_piecep(struct piece **p)
{
	free(*p);
}
#define auto_piece AUTO(auto_piecep)

static inline struct proto_in piece_in(const struct piece *p)
{
	return (struct proto_in){ .p = p->p, .n = p->n };
}
