/*
 * A streamed answer (MOD-6, MOD-7): events are read as they come, passed on as the bytes they were or in the client's own wire, and
 * never collected. Two things hold bytes back: until content can be passed on nothing is sent, so that another attempt may still
 * answer; and text that may turn out to be raw tool markup waits for the rest of it (MOD-12), so that it commits nothing yet. What
 * came in one piece leaves in one.
 */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/js.h"
#include "model/call_int.h"
#include "model/scan.h"

enum {
	EVENT_BYTES = 16 << 20, /* of one event of an upstream */
	OUT_BYTES = 64 << 20,   /* what one piece of an upstream can become at most */
	CHOICES = 4,            /* completions that are looked at for markup each by itself */
	LINGER_MS =
	    50, /* for the end of the body behind the last event, so that its connection may be kept */
};

struct call_stream {
	struct sse sse;
	struct wire_in *in;
	struct wire_out *out; /* NULL: the same wire */
	struct markup markup[CHOICES];
	size_t blanks[CHOICES]; /* all that its text is so far; SIZE_MAX: there is more */
	struct buf wait;        /* for the client, in order */
	size_t safe;            /* of it: what may be sent */
	long long next;         /* the number of the event behind it, of responses */
	bool given;             /* safe holds content, or the end: from here on nobody else may answer */
	int64_t first_ms;       /* until then: the attempt's own limit */
	bool over;              /* nothing more of the upstream is looked at */
	bool marked, faulted, unclear, gone;
	enum wire_fault fault;
	char said[400];
	struct wire_self self;
};

void stream_open(struct attempt *a)
{
	struct call *k = a->k;
	enum provider_wire theirs = a->t->provider->wire;
	struct call_stream *s = mem_alloc(k->c->mem, sizeof *s);
	s->sse = sse_new(EVENT_BYTES);
	s->in = wire_in_new(theirs, k->ask.usage_asked);
	s->wait = BUF(OUT_BYTES);
	s->first_ms = a->until_ms;
	s->self = (struct wire_self){ .tail = id_tail(k->rec.id),
		.model = a->t->address,
		.created_s = clock_wall_ms() / 1000,
		.usage_asked = k->ask.usage_asked,
		.names = a->names };
	if (theirs != k->wire)
		s->out = wire_out_new(k->wire, &s->self);
	a->stream = s;
}

void stream_rest(struct attempt *a)
{
	struct call_stream *s = a->stream;
	if (s == NULL)
		return;
	if (s->wait.n == 0)
		buf_free(&s->wait);
	sse_rest(&s->sse);
	wire_in_silent(s->in);
}

void stream_close(struct attempt *a)
{
	struct call_stream *s = a->stream;
	if (s == NULL)
		return;
	wire_in_free(s->in);
	wire_out_free(s->out);
	sse_free(&s->sse);
	buf_free(&s->wait);
	a->stream = NULL;
}

/* ---- what is looked at in each event */

/* Does any text of it wait for the rest of a marker, or is it nothing yet but the blanks that models write before one? */
static bool held(const struct call_stream *s)
{
	for (int i = 0; i < CHOICES; i++)
		if (markup_held(&s->markup[i]) > 0 || (s->blanks[i] > 0 && s->blanks[i] <= MARKUP_HELD_MAX))
			return true;
	return false;
}

static void count_blanks(size_t *blanks, const struct str *text)
{
	static const char blank[] = " \t\r\n";
	for (size_t i = 0; i < text->n && *blanks != SIZE_MAX; i++)
		*blanks = memchr(blank, text->p[i], sizeof blank - 1) != NULL ? *blanks + 1 : SIZE_MAX;
}

/* Other content commits the answer whatever its text is. */
static bool commits(enum wire_piece_kind kind)
{
	return kind == WIRE_P_REASONING || kind == WIRE_P_REFUSAL || kind == WIRE_P_CALL ||
	    kind == WIRE_P_ARGS;
}

static void look(struct attempt *a, const struct wire_piece *p)
{
	struct call_stream *s = a->stream;
	if (p->kind == WIRE_P_FAULT) {
		s->faulted = true;
		s->fault = p->fault;
		(void)snprintf(
		    s->said, sizeof s->said, "%.*s", (int)(p->text.n < 399 ? p->text.n : 399), p->text.p);
	}
	for (int i = 0; i < CHOICES && commits(p->kind); i++)
		s->blanks[i] = SIZE_MAX;
	if (p->kind != WIRE_P_TEXT || !a->k->ask.tools)
		return;
	int at = p->choice >= 0 && p->choice < CHOICES ? p->choice : CHOICES - 1;
	struct markup *m = &s->markup[at];
	count_blanks(&s->blanks[at], &p->text);
	if (markup_feed(m, p->text.p, p->text.n)) {
		s->marked = true;
		a->k->rec.markup = markup_family(m);
	}
}

/* Does it tell usage that cannot be? Then *instead is what the call is charged for by now, and the client is told that. */
static bool tells_odd(struct attempt *a, const struct wire_read *r, struct wire_usage *instead)
{
	const struct wire_seen *seen = wire_in_seen(a->stream->in);
	bool told = false;
	for (size_t i = 0; i < r->n; i++)
		told = told || r->pieces[i].kind == WIRE_P_USAGE;
	if (!told || call_used(a->k, a, &seen->usage, seen->written, seen->finished))
		return false;
	*instead = call_charged(a->k);
	return true;
}

static int pass_piece(
    struct call_stream *s, const struct wire_piece *p, const struct wire_usage *instead, struct err *e)
{
	if (p->kind == WIRE_P_FAULT || p->kind == WIRE_P_END)
		return 0;
	if (p->kind != WIRE_P_USAGE || instead == NULL)
		return wire_out_piece(s->out, p, &s->wait, e);
	const struct wire_piece usage = { .kind = WIRE_P_USAGE, .usage = *instead };
	return wire_out_piece(s->out, &usage, &s->wait, e);
}

/* The event's bytes for the client, into wait. -1: they cannot be told. */
static int pass(struct attempt *a, const struct sse_event *ev, const struct wire_read *r)
{
	struct call_stream *s = a->stream;
	struct wire_usage charged, *instead = tells_odd(a, r, &charged) ? &charged : NULL;
	if (s->out == NULL) {
		if (r->pass == WIRE_PASS && instead == NULL)
			return buf_add(&s->wait, ev->raw.p, ev->raw.n);
		return r->pass == WIRE_PASS_NOT ? 0 : wire_in_fixed(s->in, ev, instead, &s->wait);
	}
	for (size_t i = 0; i < r->n; i++)
		if (pass_piece(s, &r->pieces[i], instead, a->k->e) != 0)
			return -1;
	return 0;
}

/* A whole object that nobody can read: a call without a name, or another part of the answer. */
static bool is_object(struct str data)
{
	struct scan s = scan_of(data);
	return scan_peek(&s) == '{' && scan_whole(data);
}

/* MOD-8: an event that is no JSON object. One that stands between others is noise of something in between, and left out; where calls
 * are under way, or when it is not the only one, the answer cannot be trusted. Without an object something of the answer would be
 * missing. */
static bool noise(struct attempt *a, struct str data)
{
	return a->k->rec.skipped++ == 0 && wire_in_seen(a->stream->in)->calls == 0 && !is_object(data);
}

/* All of what waits may go. A role, an empty delta or the head of an answer is nothing that a client could miss. */
static void safe(struct call_stream *s)
{
	const struct wire_seen *seen = wire_in_seen(s->in);
	s->safe = s->wait.n;
	s->next = s->out != NULL ? wire_out_next(s->out) : seen->next;
	s->given = s->given || seen->content || seen->finished;
}

static void one(struct attempt *a, const struct sse_event *ev)
{
	struct call_stream *s = a->stream;
	struct wire_read r;
	struct err *e = a->k->e; /* what it says is told to nobody: clear again at once */
	if (!ev->has_data)       /* a comment is for the connection it came on */
		return;
	if (wire_in_event(s->in, ev, &r, e) != 0) {
		err_clear(e);
		s->unclear = s->unclear || !noise(a, ev->data);
		return;
	}
	for (size_t i = 0; i < r.n; i++)
		look(a, &r.pieces[i]);
	if (s->marked || s->faulted)
		return;
	if (pass(a, ev, &r) != 0) {
		err_clear(e);
		s->unclear = true;
	} else if (!a->k->ask.tools || !held(s)) {
		safe(s);
	}
}

/* ---- sending */

static void begin(struct attempt *a)
{
	struct call *k = a->k;
	if (call_reply_begin(k, 200, "text/event-stream; charset=utf-8") != 0)
		a->stream->gone = true;
}

static void send_safe(struct attempt *a)
{
	struct call_stream *s = a->stream;
	struct ctx *c = a->k->c;
	if (s->safe == 0 || s->gone)
		return;
	if (!c->reply->begun)
		begin(a);
	if (s->gone || reply_write(c, s->wait.p, s->safe) != 0 || reply_flush(c) != 0)
		s->gone = true;
	buf_drop(&s->wait, s->safe);
	s->safe = 0;
	if (s->gone)
		a->k->rec.client_left = true;
}

/* How long the next piece may take. Until the first content it is the attempt's own limit, and where that is held back never more. */
static void move_end(struct attempt *a)
{
	const struct wire_seen *seen = wire_in_seen(a->stream->in);
	const struct call_limits *l = &a->k->limits;
	int64_t ms = seen->ended ? LINGER_MS
	    : seen->finished     ? l->tail_ms
				 : l->stall_ms,
		at = clock_ms() + ms;
	int64_t most = a->stream->given || seen->finished ? a->k->end_ms : a->stream->first_ms;
	if (seen->content || seen->finished)
		a->until_ms = at < most ? at : most;
}

/* Terminal events that the upstream's end, or its want of one, leaves to us. False: this is no end of an answer. */
static bool conclude(struct attempt *a)
{
	struct call_stream *s = a->stream;
	const struct wire_seen *seen = wire_in_seen(s->in);
	struct err e = { 0 };
	if (s->over || !seen->finished)
		return s->over;
	for (int i = 0; i < CHOICES; i++)
		if (a->k->ask.tools && markup_end(&s->markup[i])) {
			s->marked = true;
			a->k->rec.markup = markup_family(&s->markup[i]);
			return false;
		}
	struct wire_piece usage = { .kind = WIRE_P_USAGE, .usage = call_estimate(a->k, seen->written) };
	bool part = seen->usage.known && seen->usage.part;
	if (part) {
		(void)call_used(a->k, a, &seen->usage, seen->written, true);
		usage.usage = call_charged(a->k);
	}
	if (s->out != NULL && (part || !seen->usage.known) &&
	    wire_out_piece(s->out, &usage, &s->wait, &e) != 0)
		return false;
	int rc = s->out != NULL ? wire_out_end(s->out, &s->wait, &e)
	    : seen->ended       ? 0
				: wire_in_rest(s->in, &s->wait);
	if (rc != 0)
		return false;
	s->over = true;
	safe(s);
	return true;
}

static bool bad(const struct call_stream *s)
{
	return s->marked || s->faulted || s->unclear;
}

int stream_data(struct attempt *a, const char *p, size_t n)
{
	struct call_stream *s = a->stream;
	struct sse_event ev;
	struct err e = { 0 };
	if (s->over)
		return 0; /* the end of the body */
	if (sse_feed(&s->sse, p, n, &e) != 0)
		s->unclear = true;
	const struct wire_seen *seen = wire_in_seen(s->in);
	while (!bad(s) && !seen->ended && sse_next(&s->sse, &ev)) /* what follows the end is of no answer */
		one(a, &ev);
	if (seen->ended && !bad(s))
		(void)conclude(a);
	if (a->note->first_us == 0 && (seen->content || seen->finished))
		a->note->first_us = clock_us();
	if (bad(s) && !a->k->c->reply->begun)
		return -1; /* nothing of it was sent: somebody else may answer */
	if (s->given)
		send_safe(a);
	(void)call_used(a->k, a, &seen->usage, seen->written, seen->finished);
	call_note(a->k);
	move_end(a);
	return s->gone || bad(s) ? -1 : 0;
}

/* ---- the end */

static void remember(struct attempt *a)
{
	const struct wire_seen *seen = wire_in_seen(a->stream->in);
	struct call_record *r = &a->k->rec;
	(void)snprintf(r->response_id, sizeof r->response_id, "%s", seen->id);
	(void)snprintf(r->response_model, sizeof r->response_model, "%s", seen->model);
	r->finish = seen->finish;
	(void)call_used(a->k, a, &seen->usage, seen->written, seen->finished);
}

/* Why there is no answer: the same judgement before the first byte and behind it. */
static enum verdict fault(struct attempt *a, int rc, const struct err *e)
{
	struct call_stream *s = a->stream;
	if (s->marked)
		return attempt_fails(a, CALL_AGAIN, "markup", WIRE_UPSTREAM,
		    "The model's answer holds a raw tool call that its provider did not read; try again.");
	if (s->faulted)
		return attempt_told(a, s->fault, s->said);
	if (s->unclear)
		return attempt_key_fails(a, CALL_AGAIN, "no_answer", WIRE_UPSTREAM,
		    "The model's provider answered with something that is no answer; try again.", KEY_FAULT);
	if (rc != 0 && e->code == ERR_TIMEOUT)
		return attempt_key_fails(a, CALL_NEXT, a->note->first_us == 0 ? "slow" : "stalled",
		    WIRE_TIMEOUT, "The model's provider did not go on in time; try again.", KEY_FAULT);
	return attempt_key_fails(a, CALL_AGAIN, "cut", WIRE_UPSTREAM,
	    "The model's provider broke off its answer; try again.", KEY_FAULT);
}

static void tell_fault(struct attempt *a)
{
	struct call *k = a->k;
	struct call_stream *s = a->stream;
	send_safe(a); /* what was read last, and is nothing of the fault */
	buf_reset(&s->wait);
	if (s->out != NULL) {
		wire_out_unsent(s->out, s->next);
		wire_out_fault(s->out, k->fail.kind, k->fail.message, k->c->request_id, &s->wait);
	} else {
		const struct wire_seen *seen = wire_in_seen(s->in);
		const struct wire_head head = { .id = seen->id,
			.model = seen->model,
			.created_s = seen->created_s > 0 ? seen->created_s : s->self.created_s,
			.next = s->next };
		wire_stream_fault(k->wire, k->fail.kind, k->fail.message, k->c->request_id, &head, &s->wait);
	}
	s->safe = s->wait.n;
	send_safe(a);
}

enum verdict stream_end(struct attempt *a, int rc, const struct err *e)
{
	struct call_stream *s = a->stream;
	struct sse_event ev;
	struct call *k = a->k;
	if (!bad(s) && !wire_in_seen(s->in)->ended && !s->gone && !k->rec.client_left && rc == 0 &&
	    sse_end(&s->sse, &ev))
		one(a, &ev);
	remember(a);
	if (s->gone || (k->rec.client_left && !s->over))
		return CALL_LEFT;
	if (!bad(s) && conclude(a)) {
		if (a->note->first_us == 0)
			a->note->first_us = clock_us();
		send_safe(a);
		return CALL_DONE;
	}
	enum verdict v = fault(a, rc, e);
	if (!k->c->reply->begun)
		return v;
	tell_fault(a);
	return CALL_BROKEN;
}
