/*
 * input.c - standard input that is written to while its command runs (SBX-46).
 *
 * A write waits here until the pipe has taken all of it, in the order in which they came; who asked may give up and hears how
 * much was taken. So a command that does not read holds PROTO_DATA_MAX a write and nobody up, and not one byte is taken twice.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "box/box.h"

struct feed {
	struct feed *next;
	uint32_t id;
	struct cmd *cmd;
	bool close;
	size_t n, at;
	unsigned char p[];
};

static struct feed *first_of(const struct box *b, const struct cmd *c)
{
	for (struct feed *f = b->feeds; f != NULL; f = f->next)
		if (f->cmd == c)
			return f;
	return NULL;
}

static void drop(struct box *b, struct feed *f)
{
	struct feed **at = &b->feeds;
	while (*at != f)
		at = &(*at)->next;
	*at = f->next;
	b->n_feeds--;
	free(f);
}

bool input_waits(const struct box *b, const struct cmd *c)
{
	return first_of(b, c) != NULL;
}

static const char *why_not(enum proto_in_state state)
{
	switch (state) {
	case PROTO_IN_NONE:
		return "The command was not started with an open standard input.";
	case PROTO_IN_BROKEN:
		return "The command no longer reads its standard input.";
	default:
		return "The command's standard input is closed.";
	}
}

void input_end(struct box *b, struct cmd *c, enum proto_in_state state)
{
	if (c->stdin_fd < 0)
		return;
	(void)close(c->stdin_fd);
	c->stdin_fd = -1;
	c->in_state = state;
	for (struct feed *f = first_of(b, c); f != NULL; f = first_of(b, c)) {
		say_error(b, f->id, PROTO_CONFLICT, "%s", why_not(state));
		drop(b, f);
	}
}

/* Write what the pipe takes. False: it is full, or the command's input has come to its end. */
static bool feed_some(struct box *b, struct cmd *c, struct feed *f)
{
	while (f->at < f->n) {
		ssize_t n = write(c->stdin_fd, f->p + f->at, f->n - f->at);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			return false;
		if (n <= 0) {
			input_end(b, c, PROTO_IN_BROKEN);
			return false;
		}
		f->at += (size_t)n;
		c->in_taken += (size_t)n;
	}
	bool last = f->close;
	say_done(b, f->id, f->n);
	drop(b, f);
	if (last)
		input_end(b, c, PROTO_IN_CLOSED);
	return !last;
}

void input_ready(struct box *b, struct cmd *c)
{
	struct feed *f = first_of(b, c);
	if (f == NULL) /* an event without room being asked for: its last reader is gone */
		input_end(b, c, PROTO_IN_BROKEN);
	while (f != NULL && c->stdin_fd >= 0 && feed_some(b, c, f))
		f = first_of(b, c);
}

/* Where the next byte will stand: what waits counts as given. */
static uint64_t next_offset(const struct box *b, const struct cmd *c)
{
	uint64_t at = c->in_taken;
	for (const struct feed *f = b->feeds; f != NULL; f = f->next)
		if (f->cmd == c)
			at += f->n - f->at;
	return at;
}

static struct feed *add(struct box *b, uint32_t id, struct cmd *c, const unsigned char *p, size_t n)
{
	struct feed *f = b->n_feeds >= FEEDS_MAX ? NULL : malloc(sizeof *f + n);
	if (f == NULL)
		return NULL;
	*f = (struct feed){ .id = id, .cmd = c, .n = n };
	memcpy(f->p, p, n);
	struct feed **at = &b->feeds;
	while (*at != NULL)
		at = &(*at)->next;
	*at = f;
	b->n_feeds++;
	return f;
}

void input_write(struct box *b, uint32_t id, const struct proto_input *s, const unsigned char *p, size_t n)
{
	struct cmd *c = cmd_find(b, s->cmd);
	if (c == NULL) {
		say_error(b, id, PROTO_MISSING, "There is no such command.");
		return;
	}
	if (c->stdin_fd < 0) {
		say_error(b, id, PROTO_CONFLICT, "%s", why_not(c->in_state));
		return;
	}
	if (c->pty && s->close) {
		say_error(b, id, PROTO_CONFLICT, "A terminal's input has no end of its own: send it Ctrl-D.");
		return;
	}
	uint64_t at = next_offset(b, c);
	if (s->at != PROTO_APPEND && s->at != at) {
		say_error(b, id, PROTO_CONFLICT, "The command's standard input stands at offset %llu.",
		    (unsigned long long)at);
		return;
	}
	struct feed *f = add(b, id, c, p, n);
	if (f == NULL) {
		say_error(b, id, PROTO_NO_ROOM, "Too many writes are waiting for commands that do not read.");
		return;
	}
	f->close = s->close;
	if (first_of(b, c) == f)
		(void)feed_some(b, c, f);
}

bool input_cancel(struct box *b, uint32_t id)
{
	struct feed *f = b->feeds;
	while (f != NULL && f->id != id)
		f = f->next;
	if (f == NULL)
		return false;
	say_done(b, id, f->at);
	drop(b, f);
	return true;
}

void input_hangup(struct box *b)
{
	while (b->feeds != NULL)
		drop(b, b->feeds);
}
