#include "sandbox/relay.h"

#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/js.h"
#include "base/limits.h"
#include "base/str.h"

/* JSON makes at most six bytes of one, so a piece always fits a line. */
enum { PIECE_BYTES = 8192, CHARACTER_MAX = 4, DRAIN_LOOK_MS = 500 };

struct stream {
	const char *name;
	uint64_t at;               /* offset of carry, or of the next byte */
	char carry[CHARACTER_MAX]; /* a character that is not whole yet */
	size_t n;
};
struct relay {
	struct ctx *c;
	const struct relay_opts *o;
	struct stream s[2];
	bool gone; /* the client */
	struct buf line;
};

static void put(struct relay *r, json_t *v)
{
	auto_json json_t *mine = v;
	buf_reset(&r->line);
	if (js_dump_buf(&r->line, mine) != 0 || buf_chr(&r->line, '\n') != 0)
		return; /* a piece always fits */
	if (!r->gone && reply_write(r->c, r->line.p, r->line.n) != 0)
		r->gone = true;
}

static void flush(struct relay *r)
{
	if (!r->gone && reply_flush(r->c) != 0)
		r->gone = true;
}

static void put_data(struct relay *r, struct stream *s, const char *p, size_t n, bool text)
{
	if (n == 0)
		return;
	if (text) {
		put(r,
		    js_pack("{s:s,s:s%,s:s,s:I}", "type", s->name, "data", p, n, "enc", "utf8", "offset",
			(json_int_t)s->at));
	} else {
		char b64[B64_SIZE(PIECE_BYTES + CHARACTER_MAX)];
		(void)b64_encode(p, n, b64);
		put(r,
		    js_pack("{s:s,s:s,s:s,s:I}", "type", s->name, "data", b64, "enc", "base64", "offset",
			(json_int_t)s->at));
	}
	s->at += n;
}

/* One piece that begins at s->at. What may become a character with what follows stays behind; returns how much was used. */
static size_t put_piece(struct relay *r, struct stream *s, const char *p, size_t n)
{
	size_t valid = utf8_valid(p, n), tail = utf8_tail(p, n);
	/* A NUL is a character, but one that JSON readers (ours too) may refuse. */
	if (valid + tail >= n && memchr(p, 0, valid) == NULL) {
		put_data(r, s, p, valid, true);
		return valid;
	}
	put_data(r, s, p, n - tail, false);
	return n - tail;
}

static void put_carry(struct relay *r, struct stream *s)
{
	put_data(r, s, s->carry, s->n, false);
	s->n = 0;
}

static void put_out(struct relay *r, int stream, uint64_t offset, const char *p, size_t n)
{
	char piece[PIECE_BYTES + CHARACTER_MAX];
	struct stream *s = &r->s[stream - 1];
	if (r->o->only != 0 && r->o->only != stream)
		return;
	if (offset !=
	    s->at + s->n) { /* bytes in between are no longer held: what was begun is not completed */
		put_carry(r, s);
		s->at = offset;
	}
	while (n > 0) {
		size_t k = n < PIECE_BYTES ? n : PIECE_BYTES;
		memcpy(piece, s->carry, s->n);
		memcpy(piece + s->n, p, k);
		size_t have = s->n + k, used = put_piece(r, s, piece, have);
		s->n = have - used;
		memcpy(s->carry, piece + used, s->n);
		p += k;
		n -= k;
	}
	flush(r);
}

static void put_exit(struct relay *r, const struct channel_exit *x)
{
	bool oom = held_oom(r->o->held, r->o->cmd, true) == 1;
	const char *message = x->message[0] != '\0' ? x->message
	    : oom ? "The sandbox's memory limit was reached and a process was killed for it."
		  : NULL;
	put(r,
	    js_pack("{s:s,s:o,s:s?,s:b,s:b,s:b,s:I,s:I,s:I,s:s?}", "type", "exit", "exitCode",
		x->signal[0] != '\0' ? json_null() : json_integer(x->exit_code), "signal",
		x->signal[0] != '\0' ? x->signal : NULL, "timedOut", x->timed_out, "stopped", x->stopped,
		"oom", oom, "durationMs", (json_int_t)x->duration_ms, "stdoutBytes", (json_int_t)x->bytes[0],
		"stderrBytes", (json_int_t)x->bytes[1], "message", message));
	flush(r);
}

static void put_lost(struct relay *r, const struct err *e)
{
	auto_buf struct buf why = BUF(ERR_MSG_MAX);
	if (err_is(e, "lost"))
		held_why(r->o->held, &why);
	put(r, js_pack("{s:s,s:s}", "type", "lost", "message", why.n > 0 ? buf_c(&why) : e->msg));
	flush(r);
}

static void put_idle(struct relay *r, int64_t *last_ms)
{
	if (clock_ms() - *last_ms < LIMIT_PING_S * 1000)
		return;
	*last_ms = clock_ms();
	put(r, js_pack("{s:s}", "type", "ping"));
	flush(r);
}

static bool client_gone(void *arg)
{
	struct relay *r = arg;
	return !r->gone && reply_gone(r->c);
}

/* Read to the exit: 1 with *x, 0 when somebody else is to go on (gone, draining), -1 with e. */
static int follow(struct relay *r, struct channel_cmd *k, struct channel_exit *x, struct err *e)
{
	int64_t last_ms = clock_ms();
	for (;;) {
		struct channel_wait w = {
			.deadline_ms = clock_ms() + DRAIN_LOOK_MS, .cancelled = client_gone, .arg = r
		};
		struct channel_event ev;
		if (channel_next(k, &w, &ev, e) != 0)
			return -1;
		if (ev.type == CHANNEL_EXIT) {
			*x = ev.exit;
			return 1;
		}
		if (ev.type == CHANNEL_OUT) {
			put_out(r, ev.stream, ev.offset, ev.p, ev.n);
			last_ms = clock_ms();
		} else {
			r->gone = r->gone || reply_gone(r->c);
			put_idle(r, &last_ms);
		}
		if (reply_draining(r->c)) {
			put(r,
			    js_pack("{s:s,s:I,s:I}", "type", "reconnect", "stdout", (json_int_t)r->s[0].at,
				"stderr", (json_int_t)r->s[1].at));
			flush(r);
			return 0;
		}
		if (r->gone) /* fleet_mind() sees its end */
			return 0;
	}
}

/* After the end: the tail of what both streams hold. */
static int put_tail(struct relay *r, const struct channel_exit *x, struct err *e)
{
	uint64_t from[2];
	struct channel_exit again;
	for (int i = 0; i < 2; i++)
		from[i] = x->bytes[i] > LIMIT_OUTPUT_BYTES ? x->bytes[i] - LIMIT_OUTPUT_BYTES : 0;
	struct channel_cmd *k = channel_resume(held_channel(r->o->held), r->o->number, from, false, e);
	int rc = k == NULL ? -1 : follow(r, k, &again, e);
	channel_cmd_close(k);
	return rc;
}

static void clean_up(struct relay *r, const struct channel_exit *x)
{
	if (x->timed_out || x->stopped)
		held_sweep(r->o->held, r->o->cmd);
	if (x->escaped)
		held_condemn(
		    r->o->held, "A command of the sandbox could not be stopped, so the sandbox was ended.");
}

static int unheard(struct err *e)
{
	(void)err_set(e, ERR_UPSTREAM, "The channel to the sandbox was lost.");
	e->reason = "lost";
	return -1;
}

/* The end of a sandbox kills its commands, and sometimes the box after them: not how a command ended by itself. */
static bool went_with_its_sandbox(struct relay *r, const struct channel_exit *x)
{
	return strcmp(x->signal, "SIGKILL") == 0 && !x->timed_out && !x->stopped && held_ending(r->o->held);
}

void relay_run(struct ctx *c, const struct relay_opts *o, struct channel_cmd *k)
{
	struct err e = { 0 };
	struct channel_exit x;
	struct relay r = { .c = c,
		.o = o,
		.line = BUF(LIMIT_LINE_BYTES),
		.s = { { .name = "stdout", .at = o->from[0] }, { .name = "stderr", .at = o->from[1] } } };
	int rc = k == NULL ? unheard(&e) : follow(&r, k, &x, &e);
	channel_cmd_close(k);
	if (rc == 1 && went_with_its_sandbox(&r, &x))
		rc = unheard(&e);
	if (rc == 1)
		clean_up(&r, &x);
	if (rc == 1 && o->tail && !r.gone)
		rc = put_tail(&r, &x, &e);
	for (int i = 0; i < 2; i++)
		put_carry(&r, &r.s[i]);
	if (rc == 1)
		put_exit(&r, &x);
	else if (rc < 0)
		put_lost(&r, &e);
	buf_free(&r.line);
}
