/* serve.c - requests of the client, one row and one function each. What was said when is in proto.h. */
#include <stdlib.h>

#include "base/clock.h"
#include "box/box.h"

typedef bool serve_fn(struct box *b, uint32_t id, struct proto_in *in);

static bool serve_ping(struct box *b, uint32_t id, struct proto_in *in)
{
	say_done(b, id, 0);
	return proto_in_end(in);
}

static bool serve_start(struct box *b, uint32_t id, struct proto_in *in)
{
	struct proto_start s;
	struct proto_in all = *in;
	if (!proto_start_get(in, &s))
		return false;
	cmd_start(b, id, all.p, all.n, &s);
	return true;
}

static bool serve_go(struct box *b, uint32_t id, struct proto_in *in)
{
	struct cmd *c = cmd_find(b, id);
	if (c != NULL)
		cmd_go(b, c);
	return proto_in_end(in);
}

static bool serve_stdin(struct box *b, uint32_t id, struct proto_in *in)
{
	/* A command that was refused or stopped while its input was on the way has said so. */
	struct cmd *c = cmd_find(b, id);
	if (c != NULL && c->state == CMD_FEEDING)
		cmd_feed(b, c, in->p, in->n);
	return true;
}

static bool serve_sub(struct box *b, uint32_t id, struct proto_in *in)
{
	struct proto_sub s;
	if (!proto_sub_get(in, &s))
		return false;
	sub_open(b, id, &s);
	return true;
}

static bool serve_stop(struct box *b, uint32_t id, struct proto_in *in)
{
	uint32_t cmd = proto_get_u32(in);
	if (!proto_in_end(in))
		return false;
	stop_request(b, id, cmd);
	return true;
}

static void describe(const struct cmd *c, int64_t now, struct proto_item *t)
{
	*t = (struct proto_item){ .cmd = c->id,
		.pid = (uint32_t)c->pid,
		.label = c->label,
		.age_ms = c->forked_ms == 0 ? 0 : (uint64_t)(now - c->forked_ms),
		.oldest = { c->out[0].start, c->out[1].start },
		.in_state = (uint8_t)c->in_state,
		.in_bytes = c->in_taken,
		.pty = c->pty,
		.cut = c->told_cut,
		.dir = c->dir,
		.n_args = c->n_args,
		.args = c->args };
	cmd_fill_exit(c, &t->exit);
}

enum {
	ITEM_BYTES = 8 * PROTO_TOLD_MAX
}; /* more than any item takes: arguments may be a byte and its framing */

/* Commands from *c on into one frame, as many as surely fit; how many. */
static uint32_t list_some(struct box *b, struct cmd **c, uint32_t cmd, struct proto_out *o)
{
	uint32_t n = 0;
	int64_t now = clock_ms();
	for (; *c != NULL && o->cap - o->n >= ITEM_BYTES; *c = (*c)->next) {
		struct proto_item t;
		if ((*c)->dropped || (cmd != 0 && (*c)->id != cmd))
			continue;
		describe(*c, now, &t);
		proto_item_put(o, &t, b->client->version);
		n++;
	}
	return n;
}

static bool serve_list(struct box *b, uint32_t id, struct proto_in *in)
{
	static unsigned char p[PROTO_DATA_MAX];
	uint32_t cmd = proto_get_u32(in), sum = 0;
	if (!proto_in_end(in))
		return false;
	struct cmd *c = b->cmds;
	do {
		struct proto_out o = { .p = p + 4, .cap = sizeof p - 4 }, count = { .p = p, .cap = 4 };
		uint32_t n = list_some(b, &c, cmd, &o);
		sum += n;
		if (cmd != 0 && sum == 0)
			break;
		proto_put_u32(&count, n);
		say(b, PROTO_LISTED, id, p, 4 + o.n);
	} while (c != NULL);
	if (cmd != 0 && sum == 0)
		say_error(b, id, PROTO_MISSING, "There is no such command.");
	else
		say_done(b, id, sum);
	return true;
}

static bool serve_input(struct box *b, uint32_t id, struct proto_in *in)
{
	struct proto_input s;
	if (!proto_input_get(in, &s))
		return false;
	input_write(b, id, &s, in->p, in->n);
	return true;
}

static bool serve_resize(struct box *b, uint32_t id, struct proto_in *in)
{
	struct proto_resize s;
	if (!proto_resize_get(in, &s))
		return false;
	pty_resize(b, id, &s);
	return true;
}

static bool serve_signal(struct box *b, uint32_t id, struct proto_in *in)
{
	struct proto_signal s;
	if (!proto_signal_get(in, &s))
		return false;
	signal_request(b, id, &s);
	return true;
}

static bool serve_look(struct box *b, uint32_t id, struct proto_in *in)
{
	struct proto_look l;
	if (!proto_look_get(in, &l))
		return false;
	file_look(b, id, &l);
	return true;
}

static bool serve_mkdir(struct box *b, uint32_t id, struct proto_in *in)
{
	const char *path = proto_get_str(in);
	uint32_t mode = proto_get_u32(in);
	if (!proto_in_end(in))
		return false;
	file_mkdir(b, id, path, mode);
	return true;
}

static bool serve_move(struct box *b, uint32_t id, struct proto_in *in)
{
	const char *from = proto_get_str(in), *to = proto_get_str(in);
	uint8_t replace = proto_get_u8(in);
	if (!proto_in_end(in) || replace > 1)
		return false;
	file_move(b, id, from, to, replace == 1);
	return true;
}

static bool serve_remove(struct box *b, uint32_t id, struct proto_in *in)
{
	const char *path = proto_get_str(in);
	uint8_t tree = proto_get_u8(in);
	if (!proto_in_end(in) || tree > 1)
		return false;
	file_remove(b, id, path, tree == 1);
	return true;
}

static bool serve_pack(struct box *b, uint32_t id, struct proto_in *in)
{
	const char *path = proto_get_str(in);
	uint32_t credit = proto_get_u32(in);
	if (!proto_in_end(in))
		return false;
	file_pack(b, id, path, credit);
	return true;
}

static bool serve_unpack(struct box *b, uint32_t id, struct proto_in *in)
{
	const char *path = proto_get_str(in);
	if (!proto_in_end(in))
		return false;
	file_unpack(b, id, path);
	return true;
}

static bool serve_watch(struct box *b, uint32_t id, struct proto_in *in)
{
	const char *path = proto_get_str(in);
	uint8_t recursive = proto_get_u8(in);
	uint32_t credit = proto_get_u32(in);
	if (!proto_in_end(in) || recursive > 1)
		return false;
	file_watch(b, id, path, recursive == 1, credit);
	return true;
}

static bool serve_read(struct box *b, uint32_t id, struct proto_in *in)
{
	const char *path = proto_get_str(in);
	uint64_t offset = proto_get_u64(in), length = proto_get_u64(in);
	uint32_t credit = proto_get_u32(in);
	if (!proto_in_end(in))
		return false;
	file_read(b, id, path, offset, length, credit);
	return true;
}

static bool serve_write(struct box *b, uint32_t id, struct proto_in *in)
{
	const char *path = proto_get_str(in);
	uint32_t mode = proto_get_u32(in);
	if (!proto_in_end(in))
		return false;
	file_write(b, id, path, mode);
	return true;
}

/* What follows names a request that may have ended while the frame was on the way: then it means nothing. */
static bool serve_data(struct box *b, uint32_t id, struct proto_in *in)
{
	struct xfer *x = xfer_find(b, id);
	if (x != NULL)
		xfer_data(b, x, in->p, in->n);
	return true;
}

static bool serve_credit(struct box *b, uint32_t id, struct proto_in *in)
{
	uint32_t n = proto_get_u32(in);
	if (!proto_in_end(in))
		return false;
	struct sub *s = sub_find(b, id);
	struct xfer *x = s == NULL ? xfer_find(b, id) : NULL;
	if (s != NULL)
		s->credit += n;
	else if (x != NULL)
		xfer_credit(x, n);
	return true;
}

static bool serve_cancel(struct box *b, uint32_t id, struct proto_in *in)
{
	struct sub *s = sub_find(b, id);
	struct xfer *x = s == NULL ? xfer_find(b, id) : NULL;
	if (s != NULL)
		sub_close(b, s);
	else if (x != NULL)
		xfer_close(b, x);
	if (s != NULL || x != NULL)
		say_done(b, id, 0);
	else
		(void)input_cancel(b, id);
	return proto_in_end(in);
}

static bool serve_lease(struct box *b, uint32_t id, struct proto_in *in)
{
	uint64_t ms = proto_get_u64(in);
	if (!proto_in_end(in) || ms > INT64_MAX / 2)
		return false;
	b->end_ms = clock_ms() + (int64_t)ms;
	say_done(b, id, 0);
	return true;
}

static bool serve_end(struct box *b, uint32_t id, struct proto_in *in)
{
	(void)id;
	b->ending = true;
	return proto_in_end(in);
}

/* fresh: begins something, so its id must be higher than any before. */
static const struct {
	serve_fn *fn;
	bool fresh;
} table[] = {
	[PROTO_PING] = { serve_ping, true },
	[PROTO_START] = { serve_start, true },
	[PROTO_GO] = { serve_go, false },
	[PROTO_STDIN] = { serve_stdin, false },
	[PROTO_SUB] = { serve_sub, true },
	[PROTO_STOP] = { serve_stop, true },
	[PROTO_LIST] = { serve_list, true },
	[PROTO_READ] = { serve_read, true },
	[PROTO_WRITE] = { serve_write, true },
	[PROTO_DATA] = { serve_data, false },
	[PROTO_CREDIT] = { serve_credit, false },
	[PROTO_CANCEL] = { serve_cancel, false },
	[PROTO_LEASE] = { serve_lease, true },
	[PROTO_END] = { serve_end, true },
	[PROTO_INPUT] = { serve_input, true },
	[PROTO_SIGNAL] = { serve_signal, true },
	[PROTO_RESIZE] = { serve_resize, true },
	[PROTO_LOOK] = { serve_look, true },
	[PROTO_MKDIR] = { serve_mkdir, true },
	[PROTO_MOVE] = { serve_move, true },
	[PROTO_REMOVE] = { serve_remove, true },
	[PROTO_WATCH] = { serve_watch, true },
	[PROTO_PACK] = { serve_pack, true },
	[PROTO_UNPACK] = { serve_unpack, true },
};

bool serve(struct box *b, const struct proto_head *h, const unsigned char *p)
{
	if (h->type >= sizeof table / sizeof table[0] || table[h->type].fn == NULL)
		return false;
	if (table[h->type].fresh) {
		if (h->id <= b->last_id)
			return false;
		b->last_id = h->id;
	}
	struct proto_in in = { .p = p, .n = h->length };
	return table[h->type].fn(b, h->id, &in);
}

void serve_hangup(struct box *b)
{
	while (b->subs != NULL)
		sub_close(b, b->subs);
	while (b->xfers != NULL)
		xfer_close(b, b->xfers);
	stop_hangup(b);
	input_hangup(b);
	cmd_hangup(b);
}
