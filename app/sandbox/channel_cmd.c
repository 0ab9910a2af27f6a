/* channel_cmd.c - commands over the channel (SBX-40…42, SBX-44). */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/str.h"
#include "sandbox/channel_impl.h"

struct channel_cmd {
	struct channel *c;
	struct entry *sub;
	uint32_t cmd;
	pid_t pid;
	struct piece *given; /* what the last event points into */
	size_t owed;         /* consumed and not yet credited */
	bool exited;
	struct channel_exit exit;
};

static uint32_t count(const char *const *list)
{
	uint32_t n = 0;
	while (list != NULL && list[n] != NULL && n <= PROTO_ARGS_MAX)
		n++;
	return n;
}

static size_t list_bytes(const char *const *list, uint32_t n)
{
	size_t bytes = 4;
	for (uint32_t i = 0; i < n; i++)
		bytes += strlen(list[i]) + 5;
	return bytes;
}

/* START's payload into p, which is freed by the caller. */
static int encode_start(const struct channel_spec *s, unsigned char **p, size_t *n, struct err *e)
{
	struct proto_start m = {
		.timeout_ms = s->timeout_ms < 0 ? 0 : (uint64_t)s->timeout_ms,
		.stdin_kind = s->stdin_p != NULL ? PROTO_STDIN_FED
		    : s->stdin_path != NULL      ? PROTO_STDIN_FILE
		    : s->pty                     ? PROTO_STDIN_PTY
		    : s->stdin_open              ? PROTO_STDIN_PIPE
						 : PROTO_STDIN_NULL,
		.cols = s->cols,
		.rows = s->rows,
		.hold = s->place != NULL,
		.label = s->label,
		.dir = s->dir,
		.stdin_path = s->stdin_p != NULL ? NULL : s->stdin_path,
		.n_argv = count(s->argv),
		.n_env = count(s->env),
		.argv = s->argv,
		.env = s->env,
	};
	if (m.n_argv == 0)
		return err_field(e, ERR_BAD_REQUEST, "argv", "argv needs at least the program's name.");
	if (m.n_argv > PROTO_ARGS_MAX || m.n_env > PROTO_ARGS_MAX)
		return err_field(
		    e, ERR_TOO_LARGE, "argv", "At most %d arguments and variables.", PROTO_ARGS_MAX);
	if (s->stdin_p != NULL && s->stdin_n > PROTO_STDIN_MAX)
		return err_field(e, ERR_TOO_LARGE, "stdin", "At most %d bytes; use a file.", PROTO_STDIN_MAX);
	struct proto_out o = { .cap = list_bytes(m.argv, m.n_argv) + list_bytes(m.env, m.n_env) + 64 +
		    (s->label == NULL ? 0 : strlen(s->label)) + (s->dir == NULL ? 0 : strlen(s->dir)) +
		    (s->stdin_path == NULL ? 0 : strlen(s->stdin_path)) };
	if (o.cap > PROTO_START_MAX)
		return err_field(
		    e, ERR_TOO_LARGE, "argv", "Arguments and variables are too long together; use a file.");
	o.p = *p = xcalloc(1, o.cap);
	proto_start_put(&o, &m);
	*n = o.n;
	return 0;
}

static int send_stdin(
    struct channel *c, uint32_t id, const struct channel_spec *s, const struct channel_wait *w, struct err *e)
{
	const char *p = s->stdin_p;
	for (size_t at = 0; p != NULL && at < s->stdin_n; at += PROTO_DATA_MAX) {
		size_t n = s->stdin_n - at < PROTO_DATA_MAX ? s->stdin_n - at : PROTO_DATA_MAX;
		if (channel_send(c, PROTO_STDIN, id, p + at, n, w, e) != 0)
			return -1;
	}
	return p == NULL ? 0 : channel_send(c, PROTO_STDIN, id, NULL, 0, w, e);
}

static struct entry *subscribe(
    struct channel *c, uint32_t cmd, uint8_t streams, const uint64_t from[2], bool live)
{
	unsigned char p[64];
	struct proto_out o = { .p = p, .cap = sizeof p };
	struct proto_sub s = { .cmd = cmd,
		.credit = PROTO_WINDOW,
		.streams = streams,
		.live = live,
		.from = { from[0], from[1] } };
	struct entry *en = entry_new(c, PROTO_SUB);
	en->streams = streams;
	en->credit = PROTO_WINDOW;
	en->at[0] = from[0];
	en->at[1] = from[1];
	proto_sub_put(&o, &s);
	channel_post(c, PROTO_SUB, en->id, p, o.n);
	return en;
}

static struct channel_cmd *handle(struct channel *c, uint32_t cmd, struct entry *sub)
{
	struct channel_cmd *k = xcalloc(1, sizeof *k);
	k->c = c;
	k->cmd = cmd;
	k->sub = sub;
	return k;
}

/* Not waited for: the caller has an error to tell already. */
static void stop_unheard(struct channel *c, uint32_t cmd)
{
	struct entry *en = entry_new(c, PROTO_STOP);
	channel_post_u32(c, PROTO_STOP, en->id, cmd);
	entry_leave(c, en);
}

static int start_refused(const struct piece *got, struct err *e)
{
	(void)piece_error(got, e);
	if (str_starts(e->msg, "dir: "))
		(void)snprintf(e->param, sizeof e->param, "dir");
	return -1;
}

/* START and what follows it; with the lock held. The pid, or -1. */
static pid_t start_locked(struct channel *c, const struct channel_spec *s, const unsigned char *p, size_t n,
    uint32_t *cmd, struct entry **sub, const struct channel_wait *w, struct err *e)
{
	struct entry *en = entry_new(c, PROTO_START);
	auto_piece struct piece *got = NULL;
	*cmd = en->id;
	*sub = NULL;
	if (channel_send(c, PROTO_START, en->id, p, n, w, e) == 0 && send_stdin(c, en->id, s, w, e) == 0) {
		*sub = subscribe(
		    c, en->id, PROTO_STDOUT | PROTO_STDERR, (const uint64_t[2]){ 0, 0 }, s->live);
		got = entry_take(c, en, w, e);
	}
	bool unknown = got == NULL && !c->lost;
	if (unknown)
		stop_unheard(c, *cmd);
	entry_leave(c, en);
	if (got == NULL)
		return -1;
	if (got->type == PROTO_ERROR)
		return start_refused(got, e);
	struct proto_in in = piece_in(got);
	return (pid_t)proto_get_u32(&in);
}

struct channel_cmd *channel_start(
    struct channel *c, const struct channel_spec *s, const struct channel_wait *w, struct err *e)
{
	auto_free unsigned char *p = NULL;
	size_t n = 0;
	uint32_t cmd;
	struct entry *sub;
	if (((s->stdin_open || s->pty) && channel_speaks(c, 2, e) != 0) || encode_start(s, &p, &n, e) != 0)
		return NULL;
	(void)pthread_mutex_lock(&c->lock);
	pid_t pid = start_locked(c, s, p, n, &cmd, &sub, w, e);
	(void)pthread_mutex_unlock(&c->lock);
	int rc = pid < 0 ? -1 : s->place == NULL ? 0 : s->place(s->arg, cmd, pid, e);
	(void)pthread_mutex_lock(&c->lock);
	struct channel_cmd *k = NULL;
	if (rc == 0) {
		if (s->place != NULL)
			channel_post(c, PROTO_GO, cmd, NULL, 0);
		k = handle(c, cmd, sub);
		k->pid = pid;
	} else {
		if (pid >= 0)
			stop_unheard(c, cmd);
		if (sub != NULL)
			entry_leave(c, sub);
	}
	(void)pthread_mutex_unlock(&c->lock);
	return k;
}

static struct channel_cmd *attach(
    struct channel *c, uint32_t cmd, uint8_t streams, const uint64_t from[2], bool live, struct err *e)
{
	struct channel_cmd *k = NULL;
	(void)pthread_mutex_lock(&c->lock);
	if (c->lost)
		(void)channel_lost_err(c, e);
	else
		k = handle(c, cmd, subscribe(c, cmd, streams, from, live));
	(void)pthread_mutex_unlock(&c->lock);
	return k;
}

struct channel_cmd *channel_resume(
    struct channel *c, uint32_t cmd, const uint64_t from[2], bool live, struct err *e)
{
	return attach(c, cmd, PROTO_STDOUT | PROTO_STDERR, from, live, e);
}

struct channel_cmd *channel_follow(struct channel *c, uint32_t cmd, struct err *e)
{
	return attach(c, cmd, 0, (const uint64_t[2]){ 0, 0 }, false, e);
}

void channel_cmd_close(struct channel_cmd *k)
{
	if (k == NULL)
		return;
	(void)pthread_mutex_lock(&k->c->lock);
	entry_leave(k->c, k->sub);
	(void)pthread_mutex_unlock(&k->c->lock);
	free(k->given);
	free(k);
}

uint32_t channel_cmd_id(const struct channel_cmd *k)
{
	return k->cmd;
}

pid_t channel_cmd_pid(const struct channel_cmd *k)
{
	return k->pid;
}

static void read_exit(const struct proto_exit *m, struct channel_exit *x)
{
	*x = (struct channel_exit){ .how = (enum proto_how)m->how,
		.exit_code = (int)m->code,
		.timed_out = (m->flags & PROTO_TIMED_OUT) != 0,
		.stopped = (m->flags & PROTO_STOPPED) != 0,
		.escaped = (m->flags & PROTO_ESCAPED) != 0,
		.duration_ms = (int64_t)m->duration_ms,
		.bytes = { m->bytes[0], m->bytes[1] } };
	channel_text(x->message, sizeof x->message, m->message);
	if (m->how != PROTO_SIGNALED)
		return;
	x->exit_code = -1;
	const char *name = m->code < 64 ? sigabbrev_np((int)m->code) : NULL;
	if (name != NULL)
		(void)snprintf(x->signal, sizeof x->signal, "SIG%s", name);
	else
		(void)snprintf(x->signal, sizeof x->signal, "SIG%u", m->code);
}

/* Credit for what was consumed goes back in large pieces. */
static void repay(struct channel_cmd *k)
{
	if (k->given == NULL)
		return;
	k->owed += k->given->n - 9;
	free(k->given);
	k->given = NULL;
	if (k->owed < PROTO_WINDOW / 2 || k->sub->over)
		return;
	k->sub->credit += k->owed;
	channel_post_u32(k->c, PROTO_CREDIT, k->sub->id, (uint32_t)k->owed);
	k->owed = 0;
}

static int open_piece(struct channel_cmd *k, struct piece *p, struct channel_event *ev, struct err *e)
{
	struct proto_in in = piece_in(p);
	struct proto_exit x;
	switch (p->type) {
	case PROTO_OUT:
		k->given = p;
		ev->type = CHANNEL_OUT;
		ev->stream = proto_get_u8(&in);
		ev->offset = proto_get_u64(&in);
		ev->p = (const char *)in.p;
		ev->n = in.n;
		return 0;
	case PROTO_EXIT:
		(void)proto_exit_get(&in, &x); /* checked on arrival */
		read_exit(&x, &k->exit);
		k->exited = true;
		ev->type = CHANNEL_EXIT;
		ev->exit = k->exit;
		free(p);
		return 0;
	default:
		(void)piece_error(p, e);
		free(p);
		return -1;
	}
}

int channel_next(struct channel_cmd *k, const struct channel_wait *w, struct channel_event *ev, struct err *e)
{
	struct err waited = { 0 };
	*ev = (struct channel_event){ .type = CHANNEL_NOTHING };
	if (k->exited) {
		ev->type = CHANNEL_EXIT;
		ev->exit = k->exit;
		return 0;
	}
	(void)pthread_mutex_lock(&k->c->lock);
	repay(k);
	struct piece *p = NULL;
	if (k->sub->head != NULL || !k->sub->over)
		p = entry_take(k->c, k->sub, w, &waited);
	else
		(void)err_set(&waited, ERR_NOT_FOUND, "The command's output is no longer held.");
	(void)pthread_mutex_unlock(&k->c->lock);
	if (p != NULL)
		return open_piece(k, p, ev, e);
	if (waited.code == ERR_TIMEOUT)
		return 0;
	*e = waited;
	return -1;
}

static int stop(struct channel *c, uint32_t cmd, const struct channel_wait *w, int *ended, struct err *e)
{
	unsigned char p[4];
	struct proto_out o = { .p = p, .cap = sizeof p };
	uint64_t n = 0;
	proto_put_u32(&o, cmd);
	if (channel_ask(c, PROTO_STOP, p, sizeof p, w, &n, e) != 0)
		return -1;
	*ended = n > 2 * PROTO_COMMANDS_MAX ? 2 * PROTO_COMMANDS_MAX : (int)n;
	return 0;
}

int channel_stop_one(struct channel *c, uint32_t cmd, const struct channel_wait *w, int *ended, struct err *e)
{
	return stop(c, cmd == 0 ? UINT32_MAX : cmd, w, ended, e);
}

int channel_stop(struct channel *c, const struct channel_wait *w, int *ended, struct err *e)
{
	return stop(c, 0, w, ended, e);
}

static void read_detail(const struct proto_item *m, struct channel_item *t)
{
	struct proto_in in = m->args_in;
	size_t n = 0;
	t->in_state = (enum proto_in_state)m->in_state;
	t->in_bytes = m->in_bytes;
	t->pty = m->pty;
	t->cut = m->cut;
	(void)snprintf(t->dir, sizeof t->dir, "%s", m->dir);
	for (; t->n_args < m->n_args; t->n_args++) {
		const char *arg = proto_get_str(&in);
		size_t k = strlen(arg) + 1;
		if (k > sizeof t->args - n) /* a box that tells more than it may */
			break;
		memcpy(t->args + n, arg, k);
		n += k;
	}
}

/* The items of one frame, behind the `have` that are there already; how many there are now. */
static int read_items(const struct piece *p, uint32_t version, struct channel_item **items, int have)
{
	struct proto_in in = piece_in(p);
	uint32_t n = proto_get_u32(&in);
	*items = xrealloc(*items, ((size_t)have + n + 1) * sizeof **items);
	memset(*items + have, 0, ((size_t)n + 1) * sizeof **items);
	for (uint32_t i = 0; i < n; i++) {
		struct proto_item m;
		struct channel_item *t = &(*items)[have + (int)i];
		(void)proto_item_get(&in, &m, version); /* checked on arrival */
		t->cmd = m.cmd;
		t->pid = (pid_t)m.pid;
		t->running = m.exit.how == PROTO_RUNNING;
		t->age_ms = (int64_t)m.age_ms;
		t->oldest[0] = m.oldest[0];
		t->oldest[1] = m.oldest[1];
		channel_text(t->label, sizeof t->label, m.label);
		read_exit(&m.exit, &t->exit);
		if (version >= 2)
			read_detail(&m, t);
	}
	return have + (int)n;
}

/* LISTED frames until the last frame; the count, or -1. With the lock held. */
static int take_listed(struct channel *c, struct entry *en, const struct channel_wait *w,
    struct channel_item **items, struct err *e)
{
	int n = 0;
	for (;;) {
		auto_piece struct piece *p = entry_take(c, en, w, e);
		if (p == NULL)
			return -1;
		if (p->type == PROTO_DONE)
			return n;
		if (p->type == PROTO_ERROR)
			return piece_error(p, e);
		n = read_items(p, en->version, items, n);
	}
}

int channel_list(
    struct channel *c, uint32_t cmd, const struct channel_wait *w, struct channel_item **items, struct err *e)
{
	*items = NULL;
	(void)pthread_mutex_lock(&c->lock);
	struct entry *en = entry_new(c, PROTO_LIST);
	channel_post_u32(c, PROTO_LIST, en->id, cmd);
	int n = take_listed(c, en, w, items, e);
	entry_leave(c, en);
	(void)pthread_mutex_unlock(&c->lock);
	if (n < 0) {
		free(*items);
		*items = NULL;
	}
	return n;
}
