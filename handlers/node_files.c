/* node_files.c - the internal door of a node: files of its sandboxes (SBX-47), what app/sandbox/client_files.c speaks. */
#include "handlers/node.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/js.h"
#include "base/limits.h"

enum {
	QUIET_MS = 60 * 1000, /* a file takes as long as it takes, but it moves */
	LOOK_MS = 20 * 1000,
	TREE_MS = 120 * 1000, /* very many files to remove */
	WATCH_MS = INT32_MAX, /* until it is given up, or the sandbox ends */
};

#define P_TEXT(name_, doc_) IN_REQUIRED(T_STR, (name_), (doc_), NULL, .min = 1, .max = LIMIT_PATH_BYTES)
#define P_PATH              P_TEXT("path", "Inside the sandbox.")
#define P_MODE              IN(T_INT, "mode", "Permission bits.", NULL, .max = 07777)

static const struct param get_in[] = {
	NODE_ID,
	P_PATH,
	IN(T_INT, "offset", "First byte.", NULL, .max = INT64_MAX),
	IN(T_INT, "length", "At most so many bytes.", NULL, .max = INT64_MAX),
	{ 0 },
};
static const struct param path_in[] = { NODE_ID, P_PATH, { 0 } };
static const struct param put_in[] = { NODE_ID, P_PATH, P_MODE, { 0 } };
static const struct param look_in[] = {
	NODE_ID,
	P_PATH,
	IN(T_INT, "depth", "Directories below each other.", NULL, .max = PROTO_DEPTH_MAX),
	IN(T_INT, "limit", "Entries at most.", NULL, .max = PROTO_ENTRIES_MAX),
	{ 0 },
};
static const struct param move_in[] = {
	NODE_ID,
	P_TEXT("from", "What moves."),
	P_TEXT("to", "What it will be."),
	IN(T_BOOL, "replace", "Also where something is.", NULL),
	{ 0 },
};
static const struct param remove_in[] = {
	NODE_ID,
	P_PATH,
	IN(T_BOOL, "tree", "With everything in it.", NULL),
	{ 0 },
};

static const struct param watch_in[] = {
	NODE_ID,
	P_PATH,
	IN(T_BOOL, "recursive", "The whole tree.", NULL),
	{ 0 },
};

/* ---- bytes */

struct download {
	struct ctx *c;
	long long offset, length; /* -1: to its end */
};

static int download_head(void *arg_, const struct channel_file *f)
{
	const struct download *d = arg_;
	long long left = (long long)f->size - d->offset;
	left = left < 0 ? 0 : left;
	if (d->length >= 0 && d->length < left)
		left = d->length;
	/* A file that shrinks meanwhile is then seen to be cut. */
	reply_header(d->c, "Content-Length", mem_fmt(d->c->mem, "%lld", left));
	return reply_begin(d->c, 200, "application/octet-stream");
}

static int download_data(void *arg_, const char *p, size_t n)
{
	const struct download *d = arg_;
	return reply_write(d->c, p, n);
}

static json_t *get_file(struct ctx *c, json_t *in, struct err *e)
{
	auto_held struct held *h = node_take(c, in, e);
	struct download d = { c, js_int(in, "offset", 0), js_int(in, "length", -1) };
	const struct channel_wait w = { .quiet_ms = QUIET_MS };
	if (h == NULL ||
	    channel_get(held_channel(h), js_str(in, "path"), (uint64_t)d.offset, d.length, &w, download_head,
		download_data, &d, e) != 0)
		return c->reply->begun ? REPLIED : NULL;
	(void)reply_flush(c);
	return REPLIED;
}

static ssize_t upload_read(void *arg_, void *p, size_t n)
{
	return reply_read_many(arg_, p, n);
}

static json_t *put_file(struct ctx *c, json_t *in, struct err *e)
{
	auto_held struct held *h = node_take(c, in, e);
	const struct channel_wait w = { .quiet_ms = QUIET_MS };
	uint64_t size = 0;
	if (h == NULL ||
	    channel_put(held_channel(h), js_str(in, "path"), (int)js_int(in, "mode", -1), &w, upload_read, c,
		&size, e) != 0)
		return NULL;
	return js_pack("{s:I}", "size", (json_int_t)size);
}

static int send_tar(void *arg_, const char *p, size_t n)
{
	struct ctx *c = arg_;
	if (!c->reply->begun && reply_begin(c, 200, "application/x-tar") != 0)
		return -1;
	return reply_write(c, p, n);
}

static json_t *get_tar(struct ctx *c, json_t *in, struct err *e)
{
	auto_held struct held *h = node_take(c, in, e);
	const struct channel_wait w = { .quiet_ms = QUIET_MS };
	if (h != NULL && channel_pack(held_channel(h), js_str(in, "path"), &w, send_tar, c, e) == 0)
		(void)reply_flush(c);
	return c->reply->begun ? REPLIED : NULL;
}

static json_t *put_tar(struct ctx *c, json_t *in, struct err *e)
{
	auto_held struct held *h = node_take(c, in, e);
	const struct channel_wait w = { .quiet_ms = QUIET_MS };
	uint64_t entries = 0;
	if (h == NULL ||
	    channel_unpack(held_channel(h), js_str(in, "path"), &w, upload_read, c, &entries, e) != 0)
		return NULL;
	return js_pack("{s:I}", "entries", (json_int_t)entries);
}

/* ---- what is where */

static const char *kind_name(int kind)
{
	static const char *const kinds[] = { [PROTO_KIND_FILE] = "file",
		[PROTO_KIND_DIR] = "dir",
		[PROTO_KIND_LINK] = "link",
		[PROTO_KIND_OTHER] = "other" };
	return kinds[kind]; /* checked by the channel */
}

static json_t *describe(const struct channel_node *n)
{
	char mode[8], mtime[CLOCK_TEXT];
	(void)snprintf(mode, sizeof mode, "%04o", n->mode & 07777);
	clock_rfc3339(n->mtime_ms, mtime);
	json_t *o = js_pack("{s:s,s:I,s:s,s:s}", "kind", kind_name(n->kind), "size", (json_int_t)n->size,
	    "mode", mode, "mtime", mtime);
	if (n->kind != PROTO_KIND_LINK)
		return o;
	js_set(o, "target", js_text(n->target, strlen(n->target)));
	if (n->target_kind != 0)
		js_set_str(o, "targetKind", kind_name(n->target_kind));
	return o;
}

static int add_node(void *arg_, const struct channel_node *n)
{
	json_t *got = arg_, *o = describe(n);
	if (n->path[0] == '\0') {
		(void)json_object_update(got, o);
		json_decref(o);
		return 0;
	}
	const char *slash = strrchr(n->path, '/'), *name = slash == NULL ? n->path : slash + 1;
	js_set(o, "path", js_text(n->path, strlen(n->path)));
	js_set(o, "name", js_text(name, strlen(name)));
	js_push(json_object_get(got, "entries"), o);
	return 0;
}

static json_t *look(struct ctx *c, json_t *in, struct err *e)
{
	auto_held struct held *h = node_take(c, in, e);
	const struct channel_look l = { .path = js_str(in, "path"),
		.depth = (int)js_int(in, "depth", 0),
		.nodes = (int)js_int(in, "limit", PROTO_ENTRIES_MAX) };
	const struct channel_wait w = { .deadline_ms = clock_ms() + LOOK_MS };
	auto_json json_t *got = js_pack("{s:[]}", "entries");
	bool cut = false;
	if (h == NULL || channel_look(held_channel(h), &l, &w, add_node, got, &cut, e) != 0)
		return NULL;
	js_set(got, "truncated", json_boolean(cut));
	return steal(got);
}

static json_t *make_dir(struct ctx *c, json_t *in, struct err *e)
{
	auto_held struct held *h = node_take(c, in, e);
	const struct channel_wait w = { .deadline_ms = clock_ms() + LOOK_MS };
	bool made = false;
	if (h == NULL ||
	    channel_mkdir(held_channel(h), js_str(in, "path"), (int)js_int(in, "mode", -1), &w, &made, e) !=
		0)
		return NULL;
	return js_pack("{s:b}", "made", made);
}

static json_t *move_file(struct ctx *c, json_t *in, struct err *e)
{
	auto_held struct held *h = node_take(c, in, e);
	const struct channel_wait w = { .deadline_ms = clock_ms() + LOOK_MS };
	if (h == NULL ||
	    channel_move(held_channel(h), js_str(in, "from"), js_str(in, "to"), js_bool(in, "replace", false),
		&w, e) != 0)
		return NULL;
	return json_object();
}

static json_t *remove_file(struct ctx *c, json_t *in, struct err *e)
{
	auto_held struct held *h = node_take(c, in, e);
	const struct channel_wait w = { .deadline_ms = clock_ms() + TREE_MS };
	uint64_t count = 0;
	if (h == NULL ||
	    channel_remove(held_channel(h), js_str(in, "path"), js_bool(in, "tree", false), &w, &count, e) !=
		0)
		return NULL;
	return js_pack("{s:I}", "count", (json_int_t)count);
}

/* ---- changes */

struct telling {
	struct ctx *c;
	int64_t last_ms;
};

static int tell_change(void *arg_, const struct channel_change *n)
{
	static const char *const types[] = { [PROTO_WATCHED] = "start",
		[PROTO_CREATED] = "create",
		[PROTO_WRITTEN] = "write",
		[PROTO_REMOVED] = "remove",
		[PROTO_RENAMED] = "rename",
		[PROTO_CHMOD] = "chmod",
		[PROTO_OVERFLOW] = "overflow" };
	struct telling *t = arg_;
	json_t *line = js_pack("{s:s}", "type", types[n->what]); /* checked by the channel */
	if (n->what != PROTO_WATCHED && n->what != PROTO_OVERFLOW) {
		js_set(line, "path", js_text(n->path, strlen(n->path)));
		js_set(line, "dir", json_boolean(n->dir));
	}
	if (n->what == PROTO_RENAMED)
		js_set(line, "from", js_text(n->from, strlen(n->from)));
	t->last_ms = clock_ms();
	if (!t->c->reply->begun && reply_stream(t->c) != 0) {
		json_decref(line);
		return -1;
	}
	return reply_line(t->c, line);
}

static bool watch_over(void *arg_)
{
	struct telling *t = arg_;
	if (t->c->reply->begun && clock_ms() - t->last_ms >= LIMIT_PING_S * 1000) {
		t->last_ms = clock_ms();
		(void)reply_ping(t->c);
	}
	return reply_gone(t->c) || reply_draining(t->c);
}

static json_t *watch(struct ctx *c, json_t *in, struct err *e)
{
	auto_held struct held *h = node_take(c, in, e);
	struct telling t = { c, clock_ms() };
	const struct channel_wait w = { .quiet_ms = WATCH_MS, .cancelled = watch_over, .arg = &t };
	if (h == NULL)
		return NULL;
	int rc = channel_watch(
	    held_channel(h), js_str(in, "path"), js_bool(in, "recursive", false), &w, tell_change, &t, e);
	if (!c->reply->begun)
		return NULL;
	if (rc == 0)
		(void)reply_line(c, js_pack("{s:s}", "type", "end"));
	return REPLIED;
}

#define INTERNAL .scope = "node", .status = 200
const struct op node_files_ops[] = {
	{ .id = "node_get_file",
	    .routes = { { "GET", "/v1/node/sandboxes/{id}/files" } },
	    .summary = "A file's bytes",
	    INTERNAL,
	    .in = get_in,
	    .flags = OP_INTERNAL | OP_PUBLIC | OP_STREAM | OP_RAW_OUT,
	    .run = get_file },
	{ .id = "node_put_file",
	    .routes = { { "PUT", "/v1/node/sandboxes/{id}/files" } },
	    .summary = "Replace a file",
	    INTERNAL,
	    .in = put_in,
	    .max_body_bytes = SIZE_MAX,
	    .flags = OP_INTERNAL | OP_PUBLIC | OP_STREAM | OP_RAW_IN,
	    .run = put_file },
	{ .id = "node_get_tar",
	    .routes = { { "GET", "/v1/node/sandboxes/{id}/tar" } },
	    .summary = "A folder as a tar",
	    INTERNAL,
	    .in = path_in,
	    .flags = OP_INTERNAL | OP_PUBLIC | OP_STREAM | OP_RAW_OUT,
	    .run = get_tar },
	{ .id = "node_put_tar",
	    .routes = { { "PUT", "/v1/node/sandboxes/{id}/tar" } },
	    .summary = "Unpack a tar",
	    INTERNAL,
	    .in = path_in,
	    .max_body_bytes = SIZE_MAX,
	    .flags = OP_INTERNAL | OP_PUBLIC | OP_STREAM | OP_RAW_IN,
	    .run = put_tar },
	{ .id = "node_look",
	    .routes = { { "GET", "/v1/node/sandboxes/{id}/look" } },
	    .summary = "What is at a path, and below it",
	    INTERNAL,
	    .in = look_in,
	    .flags = OP_INTERNAL | OP_PUBLIC | OP_STREAM,
	    .run = look },
	{ .id = "node_make_dir",
	    .routes = { { "POST", "/v1/node/sandboxes/{id}/mkdir" } },
	    .summary = "Make a directory",
	    INTERNAL,
	    .in = put_in,
	    .flags = OP_INTERNAL | OP_PUBLIC | OP_STREAM,
	    .run = make_dir },
	{ .id = "node_move_file",
	    .routes = { { "POST", "/v1/node/sandboxes/{id}/move" } },
	    .summary = "Move a file or directory",
	    INTERNAL,
	    .in = move_in,
	    .flags = OP_INTERNAL | OP_PUBLIC | OP_STREAM,
	    .run = move_file },
	{ .id = "node_remove_file",
	    .routes = { { "POST", "/v1/node/sandboxes/{id}/remove" } },
	    .summary = "Remove a file or directory",
	    INTERNAL,
	    .in = remove_in,
	    .flags = OP_INTERNAL | OP_PUBLIC | OP_STREAM,
	    .run = remove_file },
	{ .id = "node_watch",
	    .routes = { { "GET", "/v1/node/sandboxes/{id}/watch" } },
	    .summary = "Tell changes as they happen",
	    INTERNAL,
	    .in = watch_in,
	    .flags = OP_INTERNAL | OP_PUBLIC | OP_STREAM,
	    .run = watch },
	{ 0 },
};
