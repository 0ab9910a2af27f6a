/* look.c - what a path is, and what is below it: told as it is found, in constant memory (SBX-47). */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "box/path.h"
#include "box/walk.h"
#include "box/xfer.h"

enum { PIECE_BYTES = 32 * 1024, NODE_BYTES = 3 * LIMIT_PATH_BYTES, LOOKS = 64 };

struct looking {
	struct xfer x;
	struct path_at at;
	struct walk walk;
	int depth;
	uint32_t left;
	size_t bytes; /* of PROTO_LOOK_BYTES, left */
};

static void close_looking(struct xfer *x)
{
	struct looking *l = (struct looking *)x;
	walk_end(&l->walk);
	path_done(&l->at);
}

/* What stands where a link leads: judged like every path, so that nothing is told of what is outside. */
static uint8_t target_kind(struct box *b, const struct looking *l)
{
	struct path_at to;
	char path[2 * LIMIT_PATH_BYTES];
	struct stat st;
	uint8_t kind = 0;
	(void)snprintf(path, sizeof path, "%s/%s", l->at.path, l->walk.path);
	if (path_find(b, path, 0, &to) == 0 && fstatat(to.dir, to.name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
	    !S_ISLNK(st.st_mode))
		kind = kind_of(st.st_mode);
	path_done(&to);
	return kind;
}

/* Tell of `name` in dir, whose path is that of the walk. False: it is gone. */
static bool tell(struct box *b, const struct looking *l, int dir, const char *name, const struct stat *st,
    struct proto_out *o)
{
	char target[LIMIT_PATH_BYTES] = "";
	struct proto_node n = { .kind = kind_of(st->st_mode),
		.mode = st->st_mode & 07777,
		.size = st->st_size < 0 ? 0 : (uint64_t)st->st_size,
		.mtime_ms = mtime_of(st),
		.path = l->walk.path,
		.target = target };
	if (n.kind == PROTO_KIND_LINK) {
		ssize_t got = readlinkat(dir, name, target, sizeof target - 1);
		if (got < 0)
			return false;
		target[got] = 0;
		n.target_kind = target_kind(b, l);
	}
	proto_node_put(o, &n);
	return true;
}

/* One step: tell of an entry, and go down into it if it is a directory. 0, or an errno. */
static int step(struct box *b, struct looking *l, struct proto_out *o)
{
	struct stat st;
	const char *name = walk_next(&l->walk, &st);
	if (name == NULL)
		return l->walk.err;
	if (!tell(b, l, walk_dir(&l->walk), name, &st, o))
		return 0;
	l->left--;
	if (l->walk.n_levels >= l->depth)
		return 0;
	int err = walk_into(&l->walk, &st);
	return err == EACCES ? 0 : err; /* not ours to read: it was told of, its contents are not */
}

static bool pump_looking(struct box *b, struct xfer *x)
{
	struct looking *l = (struct looking *)x;
	static unsigned char p[PIECE_BYTES];
	struct proto_out o = { .p = p, .cap = sizeof p };
	int err = 0;
	if (b->client->out_n - b->client->out_at > OUT_SOFT)
		return false;
	if (l->bytes < sizeof p)
		l->left = 0;
	/* A look at a file may be slow, and everybody waits for it. */
	for (int i = 0;
	     i < LOOKS && err == 0 && l->walk.n_levels > 0 && l->left > 0 && o.n + NODE_BYTES < sizeof p; i++)
		err = step(b, l, &o);
	if (o.n > 0)
		say(b, PROTO_NODES, x->id, p, o.n);
	l->bytes -= o.n;
	if (err != 0) {
		xfer_fail(b, x, err, NULL);
	} else if (l->walk.n_levels == 0 || l->left == 0) {
		x->moved = walk_has_more(&l->walk);
		xfer_done(b, x);
	}
	return true;
}

static const struct xfer_kind looking = { .pump = pump_looking, .close = close_looking };

/* The place itself; a directory is opened if what is in it is wanted. 0, or an errno. */
static int begin(struct box *b, struct looking *l, const char *path)
{
	unsigned char p[NODE_BYTES];
	struct proto_out o = { .p = p, .cap = sizeof p };
	struct stat st;
	int err = path_find(b, path, l->depth == 0 ? PATH_KEEP : 0, &l->at);
	if (err != 0)
		return err;
	if (fstatat(l->at.dir, l->at.name, &st, AT_SYMLINK_NOFOLLOW) != 0)
		return errno;
	if (!tell(b, l, l->at.dir, l->at.name, &st, &o))
		return ENOENT;
	say(b, PROTO_NODES, l->x.id, p, o.n);
	return l->depth == 0 || !S_ISDIR(st.st_mode) ? 0 : walk_begin(&l->walk, &l->at);
}

void file_look(struct box *b, uint32_t id, const struct proto_look *want)
{
	struct looking *l = xfer_add(b, id, &looking, sizeof *l);
	if (l == NULL)
		return;
	l->at.dir = -1;
	l->depth = want->depth;
	l->left = want->nodes;
	l->bytes = PROTO_LOOK_BYTES - NODE_BYTES;
	int err = begin(b, l, want->path);
	if (err != 0)
		xfer_fail(b, &l->x, err, NULL);
	else if (l->walk.n_levels == 0)
		xfer_done(b, &l->x);
}
