/* channel_tree.c - what is where in a sandbox, over the channel: looked at, made, moved, removed (SBX-47). */
#include <assert.h>
#include <stdio.h>

#include "sandbox/channel_impl.h"

typedef int node_fn(void *arg, const struct channel_node *n);

static int tell(const struct piece *p, node_fn *fn, void *arg)
{
	struct proto_in in = piece_in(p);
	while (in.n > 0) {
		struct proto_node m;
		(void)proto_node_get(&in, &m); /* checked on arrival */
		const struct channel_node n = { .kind = m.kind,
			.target_kind = m.target_kind,
			.mode = m.mode,
			.size = m.size,
			.mtime_ms = m.mtime_ms,
			.path = m.path,
			.target = m.target };
		if (fn(arg, &n) != 0)
			return -1;
	}
	return 0;
}

/* Until the last frame. 0 with *value of DONE. */
static int read_nodes(struct channel *c, struct entry *en, const struct channel_wait *w, node_fn *fn,
    void *arg, uint64_t *value, struct err *e)
{
	for (;;) {
		auto_piece struct piece *p = file_take(c, en, w, e);
		if (p == NULL)
			return -1;
		if (p->type == PROTO_ERROR)
			return file_refused(p, e);
		struct proto_in in = piece_in(p);
		if (p->type == PROTO_DONE) {
			*value = proto_get_u64(&in);
			return 0;
		}
		if (tell(p, fn, arg) != 0)
			return file_aborted(e);
	}
}

int channel_look(struct channel *c, const struct channel_look *l, const struct channel_wait *w,
    node_fn *on_node, void *arg, bool *cut, struct err *e)
{
	unsigned char p[LIMIT_PATH_BYTES + 32];
	struct proto_out o = { .p = p, .cap = sizeof p };
	uint64_t value = 0;
	assert(
	    l->depth >= 0 && l->depth <= PROTO_DEPTH_MAX && l->nodes >= 0 && l->nodes <= PROTO_ENTRIES_MAX);
	if (channel_speaks(c, 2, e) != 0 || path_fits("path", l->path, e) != 0)
		return -1;
	proto_look_put(&o,
	    &(struct proto_look){ .path = l->path, .depth = (uint8_t)l->depth, .nodes = (uint32_t)l->nodes });
	(void)pthread_mutex_lock(&c->lock);
	struct entry *en = entry_new(c, PROTO_LOOK);
	en->nodes = (uint32_t)l->nodes;
	en->credit = PROTO_LOOK_BYTES;
	channel_post(c, PROTO_LOOK, en->id, o.p, o.n);
	(void)pthread_mutex_unlock(&c->lock);
	int rc = read_nodes(c, en, w, on_node, arg, &value, e);
	file_leave(c, en);
	if (cut != NULL)
		*cut = value != 0;
	return rc;
}

int channel_mkdir(
    struct channel *c, const char *path, int mode, const struct channel_wait *w, bool *made, struct err *e)
{
	unsigned char p[LIMIT_PATH_BYTES + 32];
	struct proto_out o = { .p = p, .cap = sizeof p };
	uint64_t value = 0;
	if (path_fits("path", path, e) != 0)
		return -1;
	proto_put_str(&o, path);
	proto_put_u32(&o, mode < 0 ? UINT32_MAX : (uint32_t)mode & 0777);
	int rc = file_ask(c, PROTO_MKDIR, &o, w, &value, e);
	*made = value != 0;
	return rc;
}

int channel_move(struct channel *c, const char *from, const char *to, bool replace,
    const struct channel_wait *w, struct err *e)
{
	unsigned char p[2 * LIMIT_PATH_BYTES + 32];
	struct proto_out o = { .p = p, .cap = sizeof p };
	uint64_t value;
	if (path_fits("from", from, e) != 0 || path_fits("to", to, e) != 0)
		return -1;
	proto_put_str(&o, from);
	proto_put_str(&o, to);
	proto_put_u8(&o, replace);
	int rc = file_ask(c, PROTO_MOVE, &o, w, &value, e);
	if (rc != 0 && e->param[0] != 0) /* of what has two paths */
		(void)snprintf(e->param, sizeof e->param, "%s", e->code == ERR_NOT_FOUND ? "from" : "to");
	return rc;
}

int channel_remove(struct channel *c, const char *path, bool tree, const struct channel_wait *w,
    uint64_t *count, struct err *e)
{
	unsigned char p[LIMIT_PATH_BYTES + 32];
	struct proto_out o = { .p = p, .cap = sizeof p };
	if (path_fits("path", path, e) != 0)
		return -1;
	proto_put_str(&o, path);
	proto_put_u8(&o, tree);
	return file_ask(c, PROTO_REMOVE, &o, w, count, e);
}

/* ---- watching */

enum { WATCH_WINDOW = 128 * 1024 };

typedef int change_fn(void *arg, const struct channel_change *n);

static int tell_changes(const struct piece *p, change_fn *fn, void *arg)
{
	struct proto_in in = piece_in(p);
	while (in.n > 0) {
		struct proto_change m;
		(void)proto_change_get(&in, &m); /* checked on arrival */
		const struct channel_change n = {
			.what = (enum proto_what)m.what, .dir = m.dir, .path = m.path, .from = m.from
		};
		if (fn(arg, &n) != 0)
			return -1;
	}
	return 0;
}

static void repay(struct channel *c, struct entry *en, size_t n)
{
	(void)pthread_mutex_lock(&c->lock);
	en->credit += n;
	channel_post_u32(c, PROTO_CREDIT, en->id, (uint32_t)n);
	(void)pthread_mutex_unlock(&c->lock);
}

static int read_changes(struct channel *c, struct entry *en, const struct channel_wait *w, change_fn *fn,
    void *arg, struct err *e)
{
	for (;;) {
		auto_piece struct piece *p = file_take(c, en, w, e);
		if (p == NULL)
			return -1;
		if (p->type == PROTO_ERROR)
			return file_refused(p, e);
		if (p->type == PROTO_DONE)
			return 0;
		if (tell_changes(p, fn, arg) != 0)
			return file_aborted(e);
		repay(c, en, p->n);
	}
}

int channel_watch(struct channel *c, const char *path, bool recursive, const struct channel_wait *w,
    change_fn *on_change, void *arg, struct err *e)
{
	unsigned char p[LIMIT_PATH_BYTES + 32];
	struct proto_out o = { .p = p, .cap = sizeof p };
	if (path_fits("path", path, e) != 0)
		return -1;
	proto_put_str(&o, path);
	proto_put_u8(&o, recursive);
	proto_put_u32(&o, WATCH_WINDOW);
	(void)pthread_mutex_lock(&c->lock);
	struct entry *en = entry_new(c, PROTO_WATCH);
	en->credit = WATCH_WINDOW;
	channel_post(c, PROTO_WATCH, en->id, o.p, o.n);
	(void)pthread_mutex_unlock(&c->lock);
	int rc = read_changes(c, en, w, on_change, arg, e);
	file_leave(c, en);
	return rc;
}
