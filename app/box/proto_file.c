/* proto_file.c - payloads of file requests. */
#include <string.h>

#include "base/limits.h"
#include "box/proto.h"

static const char *get_path(struct proto_in *i)
{
	const char *s = proto_get_str(i);
	if (strlen(s) >= LIMIT_PATH_BYTES)
		i->bad = true;
	return s;
}

void proto_look_put(struct proto_out *o, const struct proto_look *l)
{
	proto_put_str(o, l->path);
	proto_put_u8(o, l->depth);
	proto_put_u32(o, l->nodes);
}

bool proto_look_get(struct proto_in *i, struct proto_look *l)
{
	*l = (struct proto_look){ .path = proto_get_str(i) };
	l->depth = proto_get_u8(i);
	l->nodes = proto_get_u32(i);
	return proto_in_end(i) && l->depth <= PROTO_DEPTH_MAX && l->nodes <= PROTO_ENTRIES_MAX;
}

void proto_node_put(struct proto_out *o, const struct proto_node *n)
{
	proto_put_u8(o, n->kind);
	proto_put_u8(o, n->target_kind);
	proto_put_u32(o, n->mode);
	proto_put_u64(o, n->size);
	proto_put_u64(o, (uint64_t)n->mtime_ms);
	proto_put_str(o, n->path);
	proto_put_str(o, n->target);
}

/* Relative, and every component a name. */
static bool is_below(const char *path)
{
	for (const char *p = path; *p != 0;) {
		size_t n = strcspn(p, "/");
		if (n == 0 || (n == 1 && p[0] == '.') || (n == 2 && p[0] == '.' && p[1] == '.'))
			return false;
		p += n;
		if (*p == '/' && *++p == 0)
			return false;
	}
	return true;
}

bool proto_node_get(struct proto_in *i, struct proto_node *n)
{
	*n = (struct proto_node){ .kind = proto_get_u8(i) };
	n->target_kind = proto_get_u8(i);
	n->mode = proto_get_u32(i);
	n->size = proto_get_u64(i);
	n->mtime_ms = (int64_t)proto_get_u64(i);
	n->path = get_path(i);
	n->target = get_path(i);
	return !i->bad && n->kind >= PROTO_KIND_FILE && n->kind <= PROTO_KIND_OTHER &&
	    n->target_kind <= PROTO_KIND_OTHER && n->mode <= 07777 && n->size <= INT64_MAX &&
	    is_below(n->path);
}

void proto_change_put(struct proto_out *o, const struct proto_change *c)
{
	proto_put_u8(o, c->what);
	proto_put_u8(o, c->dir);
	proto_put_str(o, c->path);
	proto_put_str(o, c->from);
}

bool proto_change_get(struct proto_in *i, struct proto_change *c)
{
	*c = (struct proto_change){ .what = proto_get_u8(i) };
	uint8_t dir = proto_get_u8(i);
	c->dir = dir == 1;
	c->path = get_path(i);
	c->from = get_path(i);
	return !i->bad && c->what >= PROTO_WATCHED && c->what <= PROTO_OVERFLOW && dir <= 1 &&
	    is_below(c->path) && is_below(c->from) && (c->from[0] != 0) == (c->what == PROTO_RENAMED);
}
