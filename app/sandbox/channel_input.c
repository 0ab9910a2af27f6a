/* channel_input.c - standard input and signals of running commands (SBX-46). */
#include "base/clock.h"
#include "sandbox/channel_impl.h"

enum { CANCEL_MS = 5000, INPUT_HEAD = 13 };

/* One piece of at most PROTO_DATA_MAX bytes, waited for; with the lock held. 0: *taken of it, perhaps not all. */
static int give(struct channel *c, const struct channel_input *in, const struct channel_wait *w,
    uint64_t *taken, struct err *e)
{
	auto_free unsigned char *p = xcalloc(1, INPUT_HEAD + PROTO_DATA_MAX);
	struct proto_out o = { .p = p, .cap = INPUT_HEAD + PROTO_DATA_MAX };
	proto_input_put(&o, &(struct proto_input){ .cmd = in->cmd, .close = in->close, .at = in->at });
	proto_put_bytes(&o, in->p, in->n);
	struct entry *en = entry_new(c, PROTO_INPUT);
	auto_piece struct piece *got = NULL;
	struct err late = { 0 };
	en->granted = in->n;
	channel_post(c, PROTO_INPUT, en->id, p, o.n);
	got = entry_take(c, en, w, &late);
	if (got == NULL && late.code == ERR_TIMEOUT) {
		/* What it has got is told when the rest is taken back. */
		const struct channel_wait last = { .deadline_ms = clock_ms() + CANCEL_MS };
		channel_post(c, PROTO_CANCEL, en->id, NULL, 0);
		en->cancelled = true;
		err_clear(&late);
		got = entry_take(c, en, &last, &late);
	}
	entry_leave(c, en);
	if (got == NULL) {
		*e = late;
		e->reason = "lost";
		return -1;
	}
	if (got->type == PROTO_ERROR)
		return piece_error(got, e);
	struct proto_in answer = piece_in(got);
	*taken = proto_get_u64(&answer);
	return 0;
}

int channel_input(struct channel *c, const struct channel_input *in, const struct channel_wait *w,
    uint64_t *taken, struct err *e)
{
	struct channel_input piece = *in;
	const unsigned char *p = in->p;
	size_t left = in->n;
	int rc = channel_speaks(c, 2, e);
	*taken = 0;
	for (bool more = rc == 0; more;) {
		uint64_t n = 0;
		piece.p = p;
		piece.n = left < PROTO_DATA_MAX ? left : PROTO_DATA_MAX;
		piece.close = in->close && piece.n == left;
		(void)pthread_mutex_lock(&c->lock);
		rc = give(c, &piece, w, &n, e);
		(void)pthread_mutex_unlock(&c->lock);
		*taken += n;
		p += piece.n;
		left -= piece.n;
		if (piece.at != PROTO_APPEND)
			piece.at += n;
		more = rc == 0 && n == piece.n && left > 0;
	}
	return rc;
}

int channel_signal(struct channel *c, uint32_t cmd, int sig, enum proto_to to, const struct channel_wait *w,
    int *processes, struct err *e)
{
	unsigned char p[8];
	struct proto_out o = { .p = p, .cap = sizeof p };
	uint64_t n = 0;
	proto_signal_put(&o, &(struct proto_signal){ .cmd = cmd, .signal = (uint8_t)sig, .to = (uint8_t)to });
	if (channel_speaks(c, 2, e) != 0 || channel_ask(c, PROTO_SIGNAL, p, o.n, w, &n, e) != 0)
		return -1;
	*processes = n > INT32_MAX ? INT32_MAX : (int)n;
	return 0;
}

int channel_resize(
    struct channel *c, const struct proto_resize *s, const struct channel_wait *w, struct err *e)
{
	unsigned char p[8];
	struct proto_out o = { .p = p, .cap = sizeof p };
	proto_resize_put(&o, s);
	return channel_speaks(c, 2, e) != 0 ? -1 : channel_ask(c, PROTO_RESIZE, p, o.n, w, NULL, e);
}
