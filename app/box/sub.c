/* sub.c - readers of a command's output: offsets, credit, and how long one may hold a command back. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "box/box.h"

enum { OUT_HEAD = 9 }; /* u8 stream, u64 offset */

struct sub *sub_find(struct box *b, uint32_t id)
{
	for (struct sub *s = b->subs; s != NULL; s = s->next)
		if (s->id == id)
			return s;
	return NULL;
}

void sub_open(struct box *b, uint32_t id, const struct proto_sub *want)
{
	struct cmd *c = cmd_find(b, want->cmd);
	if (c == NULL) {
		say_error(b, id, PROTO_MISSING, "There is no such command, or its output is no longer held.");
		return;
	}
	struct sub *s = b->n_subs >= SUBS_MAX ? NULL : calloc(1, sizeof *s);
	if (s == NULL) {
		say_error(b, id, PROTO_NO_ROOM, "Too many readers.");
		return;
	}
	*s = (struct sub){ .id = id,
		.cmd = c,
		.streams = want->streams,
		.live = want->live,
		.credit = want->credit,
		.at = { want->from[0], want->from[1] } };
	struct sub **at = &b->subs;
	while (*at != NULL)
		at = &(*at)->next;
	*at = s;
	b->n_subs++;
}

void sub_close(struct box *b, struct sub *s)
{
	struct sub **at = &b->subs;
	while (*at != s)
		at = &(*at)->next;
	*at = s->next;
	b->n_subs--;
	free(s);
}

void sub_drop(struct box *b, struct cmd *c)
{
	for (struct sub *s = b->subs, *next; s != NULL; s = next) {
		next = s->next;
		if (s->cmd != c)
			continue;
		say_error(b, s->id, PROTO_MISSING, "The command's output is no longer held.");
		sub_close(b, s);
	}
}

static bool wants(const struct sub *s, int stream)
{
	return (s->streams & (1 << stream)) != 0;
}

/* Offsets in the future (a reader that was told more by a lost connection never happens) wait there. */
static uint64_t behind(const struct sub *s, int stream)
{
	uint64_t end = s->cmd->out[stream].end;
	return wants(s, stream) && s->at[stream] < end ? end - s->at[stream] : 0;
}

uint64_t sub_floor(struct box *b, const struct cmd *c, int stream)
{
	uint64_t floor = UINT64_MAX;
	for (const struct sub *s = b->subs; s != NULL; s = s->next)
		if (s->cmd == c && s->live && !s->lossy && wants(s, stream) && s->at[stream] < floor)
			floor = s->at[stream];
	return floor;
}

/* One piece of one stream. True when it was queued. */
static bool send_piece(struct box *b, struct sub *s, int stream)
{
	const struct ring *r = &s->cmd->out[stream];
	if (behind(s, stream) == 0 || s->credit == 0)
		return false;
	if (s->at[stream] < r->start)
		s->at[stream] = r->start;
	size_t n = s->credit < PROTO_DATA_MAX ? (size_t)s->credit : PROTO_DATA_MAX;
	if (behind(s, stream) == 0)
		return false;
	const unsigned char *p = ring_at(r, s->at[stream], &n);
	unsigned char *to = say_room(b, PROTO_OUT, s->id, OUT_HEAD + n);
	if (to == NULL)
		return false;
	struct proto_out o = { .p = to, .cap = OUT_HEAD + n };
	proto_put_u8(&o, (uint8_t)(stream + 1));
	proto_put_u64(&o, s->at[stream]);
	proto_put_bytes(&o, p, n);
	s->at[stream] += n;
	s->credit -= n;
	s->blocked_ms = 0;
	if (s->lossy && behind(s, 0) == 0 && behind(s, 1) == 0)
		s->lossy = false;
	return true;
}

static bool send_exit(struct box *b, struct sub *s)
{
	if (s->cmd->state != CMD_ENDED || behind(s, 0) > 0 || behind(s, 1) > 0)
		return false;
	unsigned char p[PROTO_MESSAGE_MAX + 64];
	struct proto_out o = { .p = p, .cap = sizeof p };
	struct proto_exit x;
	cmd_fill_exit(s->cmd, &x);
	proto_exit_put(&o, &x);
	say(b, PROTO_EXIT, s->id, p, o.n);
	sub_close(b, s);
	return true;
}

bool sub_pump(struct box *b)
{
	bool moved = false;
	for (struct sub *s = b->subs, *next; s != NULL; s = next) {
		next = s->next;
		bool sent = send_piece(b, s, 0);
		sent |= send_piece(b, s, 1);
		moved |= sent || send_exit(b, s);
	}
	return moved;
}

/* Does this reader keep a stream from being read? */
static bool is_blocking(const struct sub *s)
{
	if (!s->live || s->lossy || s->cmd->state == CMD_ENDED)
		return false;
	for (int i = 0; i < 2; i++)
		if (wants(s, i) && s->cmd->fd[i] >= 0 && !ring_has_room(&s->cmd->out[i], s->at[i]))
			return true;
	return false;
}

void sub_tick(struct box *b, int64_t now)
{
	for (struct sub *s = b->subs; s != NULL; s = s->next) {
		if (!is_blocking(s))
			s->blocked_ms = 0;
		else if (s->blocked_ms == 0)
			s->blocked_ms = now;
		else if (now - s->blocked_ms >= STALL_MS)
			s->lossy = true;
	}
}

int64_t sub_next_ms(struct box *b)
{
	int64_t at = INT64_MAX;
	for (const struct sub *s = b->subs; s != NULL; s = s->next)
		if (s->blocked_ms != 0 && s->blocked_ms + STALL_MS < at && !s->lossy)
			at = s->blocked_ms + STALL_MS;
	return at;
}
