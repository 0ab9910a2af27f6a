/* channel_file.c - files over the channel, in constant memory (SBX-47). */
#include <stdio.h>
#include <string.h>

#include "sandbox/channel_impl.h"

enum { DATA_HEAD = 8 };

static int path_fits(const char *path, struct err *e)
{
	if (path[0] == 0 || strlen(path) >= LIMIT_PATH_BYTES)
		return err_field(
		    e, ERR_BAD_REQUEST, "path", "path must have 1 to %d bytes.", LIMIT_PATH_BYTES - 1);
	return 0;
}

/* A refusal that the box bases on the path names it, whichever request it answers. */
static int refused(const struct piece *p, struct err *e)
{
	(void)piece_error(p, e);
	if (e->code == ERR_BAD_REQUEST || e->code == ERR_FORBIDDEN || e->code == ERR_NOT_FOUND ||
	    e->code == ERR_CONFLICT)
		(void)snprintf(e->param, sizeof e->param, "path");
	return -1;
}

static int aborted(struct err *e)
{
	if (e->code != ERR_NONE)
		return -1;
	(void)err_set(e, ERR_TIMEOUT, "Cancelled while a file was on its way.");
	e->reason = "cancelled";
	return -1;
}

/* Begin a request: path first, then two numbers if it has them. With the lock held. */
static struct entry *begin(struct channel *c, uint8_t type, struct proto_out *o)
{
	struct entry *en = entry_new(c, type);
	channel_post(c, type, en->id, o->p, o->n);
	return en;
}

static struct piece *take(struct channel *c, struct entry *en, const struct channel_wait *w, struct err *e)
{
	(void)pthread_mutex_lock(&c->lock);
	struct piece *p = entry_take(c, en, w, e);
	(void)pthread_mutex_unlock(&c->lock);
	return p;
}

static void leave(struct channel *c, struct entry *en)
{
	(void)pthread_mutex_lock(&c->lock);
	entry_leave(c, en);
	(void)pthread_mutex_unlock(&c->lock);
}

typedef int entry_fn(void *arg, const struct channel_file *f);

/* Tell every description of a FILE or ENTRIES frame. */
static int tell(const struct piece *p, entry_fn *fn, void *arg)
{
	struct proto_in in = piece_in(p);
	while (fn != NULL && in.n > 0) {
		struct proto_file m;
		(void)proto_file_get(&in, &m); /* checked on arrival */
		struct channel_file f = {
			.kind = m.kind, .mode = m.mode, .size = m.size, .mtime_ms = m.mtime_ms, .name = m.name
		};
		if (fn(arg, &f) != 0)
			return -1;
	}
	return 0;
}

/* Until the last frame. 0 with *value of DONE. */
static int read_stat(struct channel *c, struct entry *en, const struct channel_wait *w, entry_fn *fn,
    void *arg, uint64_t *value, struct err *e)
{
	for (;;) {
		auto_piece struct piece *p = take(c, en, w, e);
		if (p == NULL)
			return -1;
		if (p->type == PROTO_ERROR)
			return refused(p, e);
		struct proto_in in = piece_in(p);
		if (p->type == PROTO_DONE) {
			*value = proto_get_u64(&in);
			return 0;
		}
		if (tell(p, fn, arg) != 0)
			return aborted(e);
	}
}

int channel_stat(struct channel *c, const char *path, bool entries, const struct channel_wait *w,
    int (*on_entry)(void *arg, const struct channel_file *f), void *arg, bool *cut, struct err *e)
{
	unsigned char p[LIMIT_PATH_BYTES + 32];
	struct proto_out o = { .p = p, .cap = sizeof p };
	uint64_t value = 0;
	if (path_fits(path, e) != 0)
		return -1;
	proto_put_str(&o, path);
	proto_put_u8(&o, entries);
	(void)pthread_mutex_lock(&c->lock);
	struct entry *en = begin(c, PROTO_STAT, &o);
	(void)pthread_mutex_unlock(&c->lock);
	int rc = read_stat(c, en, w, on_entry, arg, &value, e);
	leave(c, en);
	if (cut != NULL)
		*cut = value != 0;
	return rc;
}

static void repay(struct channel *c, struct entry *en, size_t *owed)
{
	if (*owed < PROTO_WINDOW / 2)
		return;
	(void)pthread_mutex_lock(&c->lock);
	en->credit += *owed;
	channel_post_u32(c, PROTO_CREDIT, en->id, (uint32_t)*owed);
	(void)pthread_mutex_unlock(&c->lock);
	*owed = 0;
}

struct sink {
	entry_fn *on_file;
	int (*on_data)(void *arg, const char *p, size_t n);
	void *arg;
};

static int read_data(
    struct channel *c, struct entry *en, const struct channel_wait *w, const struct sink *to, struct err *e)
{
	size_t owed = 0;
	for (;;) {
		auto_piece struct piece *p = take(c, en, w, e);
		if (p == NULL)
			return -1;
		if (p->type == PROTO_ERROR)
			return refused(p, e);
		if (p->type == PROTO_DONE)
			return 0;
		if (p->type == PROTO_FILE) {
			if (tell(p, to->on_file, to->arg) != 0)
				return aborted(e);
			continue;
		}
		if (to->on_data(to->arg, (const char *)p->p + DATA_HEAD, p->n - DATA_HEAD) != 0)
			return aborted(e);
		owed += p->n - DATA_HEAD;
		repay(c, en, &owed);
	}
}

int channel_get(struct channel *c, const char *path, uint64_t offset, int64_t length,
    const struct channel_wait *w, int (*on_file)(void *arg, const struct channel_file *f),
    int (*on_data)(void *arg, const char *p, size_t n), void *arg, struct err *e)
{
	unsigned char p[LIMIT_PATH_BYTES + 64];
	struct proto_out o = { .p = p, .cap = sizeof p };
	if (path_fits(path, e) != 0)
		return -1;
	if (offset > INT64_MAX)
		return err_field(e, ERR_BAD_REQUEST, "offset", "offset is too large.");
	proto_put_str(&o, path);
	proto_put_u64(&o, offset);
	proto_put_u64(&o, length < 0 ? INT64_MAX : (uint64_t)length);
	proto_put_u32(&o, PROTO_WINDOW);
	(void)pthread_mutex_lock(&c->lock);
	struct entry *en = begin(c, PROTO_READ, &o);
	en->credit = PROTO_WINDOW;
	en->at[0] = offset;
	(void)pthread_mutex_unlock(&c->lock);
	const struct sink to = { on_file, on_data, arg };
	int rc = read_data(c, en, w, &to, e);
	leave(c, en);
	return rc;
}

/* Room for some bytes: how many, 0 when the request is over already (its answer waits), or -1. */
static ssize_t put_room(struct channel *c, struct entry *en, const struct channel_wait *w, struct err *e)
{
	ssize_t room = -1;
	(void)pthread_mutex_lock(&c->lock);
	for (;;) {
		if (c->lost) {
			(void)channel_lost_err(c, e);
			break;
		}
		if (en->over || en->credit > 0) {
			room = en->over                   ? 0
			    : en->credit < PROTO_DATA_MAX ? (ssize_t)en->credit
							  : PROTO_DATA_MAX;
			break;
		}
		if (channel_doze(c, &en->changed, w, e) != 0)
			break;
	}
	(void)pthread_mutex_unlock(&c->lock);
	return room;
}

static int put_piece(
    struct channel *c, struct entry *en, const void *p, size_t n, const struct channel_wait *w, struct err *e)
{
	(void)pthread_mutex_lock(&c->lock);
	en->credit -= n;
	en->granted += n;
	int rc = channel_send(c, PROTO_DATA, en->id, p, n, w, e);
	(void)pthread_mutex_unlock(&c->lock);
	return rc;
}

static int put_all(struct channel *c, struct entry *en, const struct channel_wait *w,
    ssize_t (*read)(void *arg, void *p, size_t n), void *arg, struct err *e)
{
	auto_free char *piece = xcalloc(1, PROTO_DATA_MAX);
	for (;;) {
		ssize_t room = put_room(c, en, w, e);
		if (room <= 0)
			return (int)room;
		ssize_t n = read(arg, piece, (size_t)room);
		if (n < 0 || n > room)
			return aborted(e);
		if (put_piece(c, en, piece, (size_t)n, w, e) != 0)
			return -1;
		if (n == 0)
			return 0;
	}
}

int channel_put(struct channel *c, const char *path, int mode, const struct channel_wait *w,
    ssize_t (*read)(void *arg, void *p, size_t n), void *arg, uint64_t *size, struct err *e)
{
	unsigned char p[LIMIT_PATH_BYTES + 32];
	struct proto_out o = { .p = p, .cap = sizeof p };
	if (path_fits(path, e) != 0)
		return -1;
	proto_put_str(&o, path);
	proto_put_u32(&o, mode < 0 ? UINT32_MAX : (uint32_t)mode & 0777);
	(void)pthread_mutex_lock(&c->lock);
	struct entry *en = begin(c, PROTO_WRITE, &o);
	en->credit = PROTO_WINDOW;
	(void)pthread_mutex_unlock(&c->lock);
	auto_piece struct piece *last = NULL;
	if (put_all(c, en, w, read, arg, e) == 0)
		last = take(c, en, w, e);
	leave(c, en);
	if (last == NULL)
		return -1;
	if (last->type == PROTO_ERROR)
		return refused(last, e);
	struct proto_in in = piece_in(last);
	uint64_t n = proto_get_u64(&in);
	if (size != NULL)
		*size = n;
	return 0;
}
