/* channel_file.c - files over the channel, in constant memory (SBX-47). */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "sandbox/channel_impl.h"

enum { DATA_HEAD = 8 };

int path_fits(const char *field, const char *path, struct err *e)
{
	if (path[0] == 0 || strlen(path) >= LIMIT_PATH_BYTES)
		return err_field(
		    e, ERR_BAD_REQUEST, field, "%s must have 1 to %d bytes.", field, LIMIT_PATH_BYTES - 1);
	return 0;
}

int file_refused(const struct piece *p, struct err *e)
{
	(void)piece_error(p, e);
	if (e->code == ERR_BAD_REQUEST || e->code == ERR_FORBIDDEN || e->code == ERR_NOT_FOUND ||
	    e->code == ERR_CONFLICT)
		(void)snprintf(e->param, sizeof e->param, "path");
	return -1;
}

int file_aborted(struct err *e)
{
	if (e->code != ERR_NONE)
		return -1;
	(void)err_set(e, ERR_TIMEOUT, "Cancelled while a file was on its way.");
	e->reason = "cancelled";
	return -1;
}

/* The wait for the next piece of a file. */
static struct channel_wait next_wait(const struct channel_wait *w)
{
	struct channel_wait next = *w;
	if (w->quiet_ms > 0)
		next.deadline_ms = clock_ms() + w->quiet_ms;
	return next;
}

struct piece *file_take(struct channel *c, struct entry *en, const struct channel_wait *w, struct err *e)
{
	const struct channel_wait next = next_wait(w);
	(void)pthread_mutex_lock(&c->lock);
	struct piece *p = entry_take(c, en, &next, e);
	(void)pthread_mutex_unlock(&c->lock);
	return p;
}

void file_leave(struct channel *c, struct entry *en)
{
	(void)pthread_mutex_lock(&c->lock);
	entry_leave(c, en);
	(void)pthread_mutex_unlock(&c->lock);
}

int file_ask(struct channel *c, uint8_t type, const struct proto_out *o, const struct channel_wait *w,
    uint64_t *value, struct err *e)
{
	if (channel_speaks(c, 2, e) != 0) /* MKDIR and its like */
		return -1;
	(void)pthread_mutex_lock(&c->lock);
	struct entry *en = entry_new(c, type);
	channel_post(c, type, en->id, o->p, o->n);
	auto_piece struct piece *p = entry_take(c, en, w, e);
	entry_leave(c, en);
	(void)pthread_mutex_unlock(&c->lock);
	if (p == NULL)
		return -1;
	if (p->type == PROTO_ERROR)
		return file_refused(p, e);
	struct proto_in in = piece_in(p);
	*value = proto_get_u64(&in);
	return 0;
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
	int (*on_file)(void *arg, const struct channel_file *f);
	int (*on_data)(void *arg, const char *p, size_t n);
	void *arg;
};

static int tell(const struct piece *p, const struct sink *to)
{
	struct proto_in in = piece_in(p);
	struct proto_file m;
	(void)proto_file_get(&in, &m); /* checked on arrival */
	const struct channel_file f = { .mode = m.mode, .size = m.size, .mtime_ms = m.mtime_ms };
	return to->on_file == NULL ? 0 : to->on_file(to->arg, &f);
}

static int read_data(
    struct channel *c, struct entry *en, const struct channel_wait *w, const struct sink *to, struct err *e)
{
	size_t owed = 0;
	for (;;) {
		auto_piece struct piece *p = file_take(c, en, w, e);
		if (p == NULL)
			return -1;
		if (p->type == PROTO_ERROR)
			return file_refused(p, e);
		if (p->type == PROTO_DONE)
			return 0;
		if (p->type == PROTO_FILE) {
			if (tell(p, to) != 0)
				return file_aborted(e);
			continue;
		}
		if (to->on_data(to->arg, (const char *)p->p + DATA_HEAD, p->n - DATA_HEAD) != 0)
			return file_aborted(e);
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
	if (path_fits("path", path, e) != 0)
		return -1;
	if (offset > INT64_MAX)
		return err_field(e, ERR_BAD_REQUEST, "offset", "offset is too large.");
	proto_put_str(&o, path);
	proto_put_u64(&o, offset);
	proto_put_u64(&o, length < 0 ? INT64_MAX : (uint64_t)length);
	proto_put_u32(&o, PROTO_WINDOW);
	(void)pthread_mutex_lock(&c->lock);
	struct entry *en = entry_new(c, PROTO_READ);
	channel_post(c, PROTO_READ, en->id, o.p, o.n);
	en->credit = PROTO_WINDOW;
	en->at[0] = offset;
	(void)pthread_mutex_unlock(&c->lock);
	const struct sink to = { on_file, on_data, arg };
	int rc = read_data(c, en, w, &to, e);
	file_leave(c, en);
	return rc;
}

/* Room for some bytes: how many, 0 when the request is over already (its answer waits), or -1. */
static ssize_t put_room(struct channel *c, struct entry *en, const struct channel_wait *w, struct err *e)
{
	ssize_t room = -1;
	const struct channel_wait next = next_wait(w);
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
		if (channel_doze(c, &en->changed, &next, e) != 0)
			break;
	}
	(void)pthread_mutex_unlock(&c->lock);
	return room;
}

static int put_piece(
    struct channel *c, struct entry *en, const void *p, size_t n, const struct channel_wait *w, struct err *e)
{
	const struct channel_wait next = next_wait(w);
	(void)pthread_mutex_lock(&c->lock);
	en->credit -= n;
	en->granted += n;
	int rc = channel_send(c, PROTO_DATA, en->id, p, n, &next, e);
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
			return file_aborted(e);
		if (put_piece(c, en, piece, (size_t)n, w, e) != 0)
			return -1;
		if (n == 0)
			return 0;
	}
}

/* A request that takes bytes: its payload is `o`. */
static int put(struct channel *c, uint8_t type, const struct proto_out *o, const struct channel_wait *w,
    ssize_t (*read)(void *arg, void *p, size_t n), void *arg, uint64_t *value, struct err *e)
{
	(void)pthread_mutex_lock(&c->lock);
	struct entry *en = entry_new(c, type);
	channel_post(c, type, en->id, o->p, o->n);
	en->credit = PROTO_WINDOW;
	(void)pthread_mutex_unlock(&c->lock);
	auto_piece struct piece *last = NULL;
	if (put_all(c, en, w, read, arg, e) == 0)
		last = file_take(c, en, w, e);
	file_leave(c, en);
	if (last == NULL)
		return -1;
	if (last->type == PROTO_ERROR)
		return file_refused(last, e);
	struct proto_in in = piece_in(last);
	uint64_t n = proto_get_u64(&in);
	if (value != NULL)
		*value = n;
	return 0;
}

int channel_put(struct channel *c, const char *path, int mode, const struct channel_wait *w,
    ssize_t (*read)(void *arg, void *p, size_t n), void *arg, uint64_t *size, struct err *e)
{
	unsigned char p[LIMIT_PATH_BYTES + 32];
	struct proto_out o = { .p = p, .cap = sizeof p };
	if (path_fits("path", path, e) != 0)
		return -1;
	proto_put_str(&o, path);
	proto_put_u32(&o, mode < 0 ? UINT32_MAX : (uint32_t)mode & 0777);
	return put(c, PROTO_WRITE, &o, w, read, arg, size, e);
}

/* ---- folders, as tar streams */

int channel_pack(struct channel *c, const char *path, const struct channel_wait *w,
    int (*on_data)(void *arg, const char *p, size_t n), void *arg, struct err *e)
{
	unsigned char p[LIMIT_PATH_BYTES + 32];
	struct proto_out o = { .p = p, .cap = sizeof p };
	if (path_fits("path", path, e) != 0)
		return -1;
	proto_put_str(&o, path);
	proto_put_u32(&o, PROTO_WINDOW);
	(void)pthread_mutex_lock(&c->lock);
	struct entry *en = entry_new(c, PROTO_PACK);
	channel_post(c, PROTO_PACK, en->id, o.p, o.n);
	en->credit = PROTO_WINDOW;
	en->described = true; /* by its bytes */
	(void)pthread_mutex_unlock(&c->lock);
	int rc = read_data(c, en, w, &(const struct sink){ .on_data = on_data, .arg = arg }, e);
	file_leave(c, en);
	return rc;
}

int channel_unpack(struct channel *c, const char *path, const struct channel_wait *w,
    ssize_t (*read)(void *arg, void *p, size_t n), void *arg, uint64_t *entries, struct err *e)
{
	unsigned char p[LIMIT_PATH_BYTES + 32];
	struct proto_out o = { .p = p, .cap = sizeof p };
	if (path_fits("path", path, e) != 0)
		return -1;
	proto_put_str(&o, path);
	return put(c, PROTO_UNPACK, &o, w, read, arg, entries, e);
}
