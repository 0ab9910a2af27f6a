#include "box/proto.h"

#include <string.h>

static unsigned char *room(struct proto_out *o, size_t n)
{
	if (o->bad || n > o->cap - o->n) {
		o->bad = true;
		return NULL;
	}
	unsigned char *at = o->p + o->n;
	o->n += n;
	return at;
}

static void put_le(struct proto_out *o, uint64_t v, size_t bytes)
{
	unsigned char *at = room(o, bytes);
	for (size_t i = 0; at != NULL && i < bytes; i++)
		at[i] = (unsigned char)(v >> (8 * i));
}

void proto_put_u8(struct proto_out *o, uint8_t v)
{
	put_le(o, v, 1);
}

void proto_put_u32(struct proto_out *o, uint32_t v)
{
	put_le(o, v, 4);
}

void proto_put_u64(struct proto_out *o, uint64_t v)
{
	put_le(o, v, 8);
}

void proto_put_bytes(struct proto_out *o, const void *p, size_t n)
{
	unsigned char *at = room(o, n);
	if (at != NULL && n > 0)
		memcpy(at, p, n);
}

void proto_put_str(struct proto_out *o, const char *s)
{
	size_t n = s == NULL ? 0 : strlen(s);
	if (n > UINT32_MAX - 1) {
		o->bad = true;
		return;
	}
	proto_put_u32(o, (uint32_t)n);
	proto_put_bytes(o, s, n);
	proto_put_u8(o, 0);
}

static uint64_t get_le(struct proto_in *i, size_t bytes)
{
	const unsigned char *at = proto_get_bytes(i, bytes);
	uint64_t v = 0;
	for (size_t k = 0; at != NULL && k < bytes; k++)
		v |= (uint64_t)at[k] << (8 * k);
	return v;
}

const unsigned char *proto_get_bytes(struct proto_in *i, size_t n)
{
	if (i->bad || n > i->n) {
		i->bad = true;
		return NULL;
	}
	const unsigned char *at = i->p;
	i->p += n;
	i->n -= n;
	return at;
}

uint8_t proto_get_u8(struct proto_in *i)
{
	return (uint8_t)get_le(i, 1);
}

uint32_t proto_get_u32(struct proto_in *i)
{
	return (uint32_t)get_le(i, 4);
}

uint64_t proto_get_u64(struct proto_in *i)
{
	return get_le(i, 8);
}

const char *proto_get_str(struct proto_in *i)
{
	size_t n = proto_get_u32(i);
	const char *s = (const char *)proto_get_bytes(i, n);
	uint8_t end = proto_get_u8(i);
	if (i->bad || end != 0 || memchr(s, 0, n) != NULL) {
		i->bad = true;
		return "";
	}
	return s;
}

bool proto_in_end(const struct proto_in *i)
{
	return !i->bad && i->n == 0;
}

void proto_head_put(unsigned char to[PROTO_HEAD], uint8_t type, uint32_t id, uint32_t length)
{
	struct proto_out o = { .p = to, .cap = PROTO_HEAD };
	proto_put_u32(&o, length);
	proto_put_u32(&o, type); /* little-endian: the type byte and three zeros */
	proto_put_u32(&o, id);
}

bool proto_head_get(const unsigned char from[PROTO_HEAD], uint32_t max, struct proto_head *h)
{
	struct proto_in i = { .p = from, .n = PROTO_HEAD };
	h->length = proto_get_u32(&i);
	uint32_t type = proto_get_u32(&i);
	h->id = proto_get_u32(&i);
	h->type = (uint8_t)type;
	return type <= UINT8_MAX && h->length <= max;
}

/* A counted list of strings: u32 count, strings. */
static void put_list(struct proto_out *o, const char *const *list, uint32_t n)
{
	proto_put_u32(o, n);
	for (uint32_t k = 0; k < n; k++)
		proto_put_str(o, list[k]);
}

/* Checks every string of the list and leaves `at` where the first begins. */
static uint32_t get_list(struct proto_in *i, uint32_t max, struct proto_in *at)
{
	uint32_t n = proto_get_u32(i);
	if (n > max)
		i->bad = true;
	*at = *i;
	for (uint32_t k = 0; k < n && !i->bad; k++)
		(void)proto_get_str(i);
	at->n -= i->n <= at->n ? i->n : at->n;
	return i->bad ? 0 : n;
}

static const char *get_short(struct proto_in *i, size_t max)
{
	const char *s = proto_get_str(i);
	if (strlen(s) >= max)
		i->bad = true;
	return s;
}

static void put_size(struct proto_out *o, uint16_t cols, uint16_t rows)
{
	proto_put_u32(o, (uint32_t)cols << 16 | rows);
}

static void get_size(struct proto_in *i, uint16_t *cols, uint16_t *rows)
{
	uint32_t v = proto_get_u32(i);
	*cols = (uint16_t)(v >> 16);
	*rows = (uint16_t)v;
}

void proto_start_put(struct proto_out *o, const struct proto_start *s)
{
	proto_put_u64(o, s->timeout_ms);
	proto_put_u8(o, s->stdin_kind);
	proto_put_u8(o, s->hold);
	proto_put_str(o, s->label);
	proto_put_str(o, s->dir);
	proto_put_str(o, s->stdin_path);
	put_list(o, s->argv, s->n_argv);
	put_list(o, s->env, s->n_env);
	if (s->stdin_kind == PROTO_STDIN_PTY)
		put_size(o, s->cols, s->rows);
}

bool proto_start_get(struct proto_in *i, struct proto_start *s)
{
	*s = (struct proto_start){ .timeout_ms = proto_get_u64(i) };
	s->stdin_kind = proto_get_u8(i);
	uint8_t hold = proto_get_u8(i);
	s->hold = hold == 1;
	s->label = get_short(i, PROTO_LABEL_MAX);
	s->dir = proto_get_str(i);
	s->stdin_path = proto_get_str(i);
	s->n_argv = get_list(i, PROTO_ARGS_MAX, &s->argv_in);
	s->n_env = get_list(i, PROTO_ARGS_MAX, &s->env_in);
	if (s->stdin_kind == PROTO_STDIN_PTY)
		get_size(i, &s->cols, &s->rows);
	return proto_in_end(i) && s->n_argv > 0 && s->stdin_kind <= PROTO_STDIN_PTY && hold <= 1;
}

void proto_sub_put(struct proto_out *o, const struct proto_sub *s)
{
	proto_put_u32(o, s->cmd);
	proto_put_u32(o, s->credit);
	proto_put_u8(o, s->streams);
	proto_put_u8(o, s->live);
	proto_put_u64(o, s->from[0]);
	proto_put_u64(o, s->from[1]);
}

bool proto_sub_get(struct proto_in *i, struct proto_sub *s)
{
	*s = (struct proto_sub){ .cmd = proto_get_u32(i) };
	s->credit = proto_get_u32(i);
	s->streams = proto_get_u8(i);
	uint8_t live = proto_get_u8(i);
	s->live = live == 1;
	s->from[0] = proto_get_u64(i);
	s->from[1] = proto_get_u64(i);
	return proto_in_end(i) && s->streams <= (PROTO_STDOUT | PROTO_STDERR) && live <= 1;
}

void proto_exit_put(struct proto_out *o, const struct proto_exit *x)
{
	proto_put_u8(o, x->how);
	proto_put_u8(o, x->flags);
	proto_put_u32(o, x->code);
	proto_put_u64(o, x->duration_ms);
	proto_put_u64(o, x->bytes[0]);
	proto_put_u64(o, x->bytes[1]);
	proto_put_str(o, x->message);
}

bool proto_exit_get(struct proto_in *i, struct proto_exit *x)
{
	*x = (struct proto_exit){ .how = proto_get_u8(i) };
	x->flags = proto_get_u8(i);
	x->code = proto_get_u32(i);
	x->duration_ms = proto_get_u64(i);
	x->bytes[0] = proto_get_u64(i);
	x->bytes[1] = proto_get_u64(i);
	x->message = get_short(i, PROTO_MESSAGE_MAX);
	return !i->bad && x->how <= PROTO_NOT_EXECUTABLE && x->code <= 255 && x->flags <= 7 &&
	    x->duration_ms <= INT64_MAX;
}

void proto_input_put(struct proto_out *o, const struct proto_input *s)
{
	proto_put_u32(o, s->cmd);
	proto_put_u8(o, s->close);
	proto_put_u64(o, s->at);
}

bool proto_input_get(struct proto_in *i, struct proto_input *s)
{
	*s = (struct proto_input){ .cmd = proto_get_u32(i) };
	uint8_t close = proto_get_u8(i);
	s->close = close == 1;
	s->at = proto_get_u64(i);
	return !i->bad && close <= 1 && i->n <= PROTO_DATA_MAX;
}

void proto_signal_put(struct proto_out *o, const struct proto_signal *s)
{
	proto_put_u32(o, s->cmd);
	proto_put_u8(o, s->signal);
	proto_put_u8(o, s->to);
}

bool proto_signal_get(struct proto_in *i, struct proto_signal *s)
{
	*s = (struct proto_signal){ .cmd = proto_get_u32(i) };
	s->signal = proto_get_u8(i);
	s->to = proto_get_u8(i);
	return proto_in_end(i) && s->signal >= 1 && s->signal <= 64 && s->to >= PROTO_TO_PROCESS &&
	    s->to <= PROTO_TO_TREE;
}

void proto_resize_put(struct proto_out *o, const struct proto_resize *s)
{
	proto_put_u32(o, s->cmd);
	put_size(o, s->cols, s->rows);
}

bool proto_resize_get(struct proto_in *i, struct proto_resize *s)
{
	*s = (struct proto_resize){ .cmd = proto_get_u32(i) };
	get_size(i, &s->cols, &s->rows);
	return proto_in_end(i);
}

static void put_detail(struct proto_out *o, const struct proto_item *t)
{
	const char *arg = t->args;
	proto_put_u8(o, t->in_state);
	proto_put_u64(o, t->in_bytes);
	proto_put_u8(o, (uint8_t)(t->cut | t->pty << 1));
	proto_put_str(o, t->dir);
	proto_put_u32(o, t->n_args);
	for (uint32_t i = 0; i < t->n_args; i++, arg += strlen(arg) + 1)
		proto_put_str(o, arg);
}

static bool get_detail(struct proto_in *i, struct proto_item *t)
{
	t->in_state = proto_get_u8(i);
	t->in_bytes = proto_get_u64(i);
	uint8_t flags = proto_get_u8(i);
	t->cut = (flags & 1) != 0;
	t->pty = (flags & 2) != 0;
	t->dir = get_short(i, PROTO_TOLD_MAX + 1);
	t->n_args = get_list(i, PROTO_TOLD_MAX, &t->args_in);
	return !i->bad && t->in_state <= PROTO_IN_BROKEN && t->in_bytes <= INT64_MAX && flags <= 3 &&
	    t->args_in.n <= PROTO_TOLD_MAX + 5 * (size_t)t->n_args;
}

void proto_item_put(struct proto_out *o, const struct proto_item *t, uint32_t version)
{
	proto_put_u32(o, t->cmd);
	proto_put_u32(o, t->pid);
	proto_put_u64(o, t->age_ms);
	proto_put_u64(o, t->oldest[0]);
	proto_put_u64(o, t->oldest[1]);
	proto_put_str(o, t->label);
	proto_exit_put(o, &t->exit);
	if (version >= 2)
		put_detail(o, t);
}

bool proto_item_get(struct proto_in *i, struct proto_item *t, uint32_t version)
{
	*t = (struct proto_item){ .cmd = proto_get_u32(i), .dir = "" };
	t->pid = proto_get_u32(i);
	t->age_ms = proto_get_u64(i);
	t->oldest[0] = proto_get_u64(i);
	t->oldest[1] = proto_get_u64(i);
	t->label = get_short(i, PROTO_LABEL_MAX);
	return proto_exit_get(i, &t->exit) && t->pid <= INT32_MAX && t->age_ms <= INT64_MAX &&
	    t->oldest[0] <= t->exit.bytes[0] && t->oldest[1] <= t->exit.bytes[1] &&
	    (version < 2 || get_detail(i, t));
}

void proto_file_put(struct proto_out *o, const struct proto_file *f)
{
	proto_put_u8(o, f->kind);
	proto_put_u32(o, f->mode);
	proto_put_u64(o, f->size);
	proto_put_u64(o, (uint64_t)f->mtime_ms);
	proto_put_str(o, f->name);
}

bool proto_file_get(struct proto_in *i, struct proto_file *f)
{
	*f = (struct proto_file){ .kind = proto_get_u8(i) };
	f->mode = proto_get_u32(i);
	f->size = proto_get_u64(i);
	f->mtime_ms = (int64_t)proto_get_u64(i);
	f->name = get_short(i, 256);
	return !i->bad && f->kind >= PROTO_KIND_FILE && f->kind <= PROTO_KIND_OTHER && f->mode <= 07777;
}

enum err_code proto_fault_code(uint8_t fault)
{
	switch (fault) {
	case PROTO_BAD:
		return ERR_BAD_REQUEST;
	case PROTO_MISSING:
		return ERR_NOT_FOUND;
	case PROTO_OUTSIDE:
		return ERR_FORBIDDEN;
	case PROTO_CONFLICT:
		return ERR_CONFLICT;
	case PROTO_TOO_LARGE:
		return ERR_TOO_LARGE;
	case PROTO_NO_ROOM:
		return ERR_UNAVAILABLE;
	case PROTO_FULL:
		return ERR_STORAGE;
	default:
		return ERR_UPSTREAM;
	}
}

void proto_config_put(struct proto_out *o, const struct proto_config *c)
{
	proto_put_u32(o, PROTO_MAGIC);
	proto_put_u32(o, PROTO_CONFIG_VERSION);
	proto_put_bytes(o, c->nonce, PROTO_NONCE);
	proto_put_str(o, c->socket_path);
	proto_put_str(o, c->class);
	proto_put_str(o, c->workdir);
	proto_put_str(o, c->check_path);
	proto_put_str(o, c->check_text);
	proto_put_u64(o, c->lease_ms);
	proto_put_u64(o, c->idle_ms);
	put_list(o, c->roots, c->n_roots);
	put_list(o, c->ro_roots, c->n_ro_roots);
	put_list(o, c->env, c->n_env);
}

bool proto_config_get(struct proto_in *i, struct proto_config *c)
{
	*c = (struct proto_config){ .n_roots = 0 };
	uint32_t magic = proto_get_u32(i), version = proto_get_u32(i);
	if (magic != PROTO_MAGIC || version != PROTO_CONFIG_VERSION)
		return false;
	const unsigned char *nonce = proto_get_bytes(i, PROTO_NONCE);
	if (nonce == NULL)
		return false;
	memcpy(c->nonce, nonce, PROTO_NONCE);
	c->socket_path = proto_get_str(i);
	c->class = proto_get_str(i);
	c->workdir = proto_get_str(i);
	c->check_path = proto_get_str(i);
	c->check_text = proto_get_str(i);
	c->lease_ms = proto_get_u64(i);
	c->idle_ms = proto_get_u64(i);
	c->n_roots = get_list(i, PROTO_ROOTS_MAX, &c->roots_in);
	c->n_ro_roots = get_list(i, PROTO_ROOTS_MAX, &c->ro_roots_in);
	c->n_env = get_list(i, PROTO_ARGS_MAX, &c->env_in);
	return proto_in_end(i) && c->socket_path[0] != 0 && c->workdir[0] == '/' && c->lease_ms > 0;
}
