/*
 * e2b_files.c - files at the door of the E2B SDK: whole ones over /files, everything else as calls of filesystem.Filesystem (SBX-47,
 * ECO-3). Paths are judged where those of the native ops are: in the box.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/coding.h"
#include "base/js.h"
#include "base/limits.h"
#include "base/str.h"
#include "handlers/e2b_files.h"
#include "op/connect.h"
#include "op/multipart.h"

enum { PARTS_MAX = 1000, ENTRIES_MAX = 10000, DRAIN_BYTES = 64 * 1024, DRAIN_MS = 30000, DEPTH_MAX = 16 };

/* dir/path without "." and empty segments. What ".." means is for the box to say, who knows what is a link. */
static const char *plain(struct mem *m, const char *dir, const char *path)
{
	auto_buf struct buf out = BUF(2 * LIMIT_PATH_BYTES);
	struct str rest = str_of(path), seg;
	(void)buf_str(&out, dir);
	while (str_cut(&rest, '/', &seg))
		if (seg.n > 0 && !str_eq(seg, "."))
			(void)buf_fmt(&out, "/%.*s", (int)seg.n, seg.p);
	return mem_str(m, out.n == 0 ? "/" : buf_c(&out));
}

/* A path of the SDK as an absolute one: there, too, they are relative to where commands start. */
static const char *absolute(struct ctx *c, const struct box_addr *a, const char *path, struct err *e)
{
	if (path == NULL || path[0] == '\0') {
		err_field(e, ERR_BAD_REQUEST, "path", "`path` is missing.");
		return NULL;
	}
	if (path[0] == '~') {
		err_field(e, ERR_BAD_REQUEST, "path", "\"~\" is not expanded here; write the path out.");
		return NULL;
	}
	return plain(c->mem, path[0] == '/' ? "" : a->workdir, path);
}

static const char *base_name(const char *path)
{
	const char *slash = strrchr(path, '/');
	return slash == NULL || slash[1] == '\0' ? path : slash + 1;
}

/* ---- /files */

static json_t *written(const char *path)
{
	return js_pack("{s:s,s:s,s:s}", "name", base_name(path), "type", "file", "path", path);
}

static ssize_t read_body(void *arg, void *p, size_t n)
{
	return reply_read(arg, p, n);
}

static ssize_t read_part(void *arg, void *p, size_t n)
{
	return multipart_read(arg, p, n);
}

static int put_part(struct ctx *c, const struct box_addr *a, struct multipart *m, const char *name,
    json_t *out, struct err *e)
{
	const char *path = absolute(c, a, name, e);
	if (path == NULL || box_put(a, path, -1, read_part, m, e) != 0)
		return -1;
	js_push(out, written(path));
	return 0;
}

static json_t *put_parts(struct ctx *c, const struct box_addr *a, const char *path, struct err *e)
{
	struct multipart_part part;
	auto_json json_t *out = json_array();
	struct multipart *m = multipart_open(c->mem, reply_param(c, "CONTENT_TYPE"), read_body, c, e);
	int more = m == NULL ? -1 : multipart_next(m, &part, e);
	for (; more > 0; more = multipart_next(m, &part, e)) {
		if (part.name == NULL || strcmp(part.name, "file") != 0)
			continue;
		if (json_array_size(out) >= (path != NULL ? 1 : PARTS_MAX)) {
			err_set(e, ERR_BAD_REQUEST,
			    "One `path` is for one file; at most %d come in a request.", PARTS_MAX);
			return NULL;
		}
		if (put_part(c, a, m, path != NULL ? path : part.filename, out, e) != 0)
			return NULL;
	}
	if (more == 0 && json_array_size(out) == 0)
		err_set(e, ERR_BAD_REQUEST, "There is no part \"file\" in the body.");
	return e->code == ERR_NONE ? steal(out) : NULL;
}

static json_t *put_bytes(struct ctx *c, const struct box_addr *a, const char *path, struct err *e)
{
	const char *to = absolute(c, a, path, e);
	if (to == NULL || box_put(a, to, -1, read_body, c, e) != 0)
		return NULL;
	return js_pack("[o]", written(to));
}

static int no_signature(const json_t *in, struct err *e)
{
	return js_get(in, "signature") == NULL
	    ? 0
	    : err_set(e, ERR_UNAUTHORIZED,
		  "A signed URL does not say which sandbox it is for; send the header X-Access-Token.");
}

/* Most clients send a body to its end before they read an answer; who does not find anybody reading is told nothing. */
static void drain(struct ctx *c)
{
	char *waste = mem_alloc(c->mem, DRAIN_BYTES);
	int64_t until_ms = clock_ms() + DRAIN_MS;
	while (clock_ms() < until_ms && reply_read(c, waste, DRAIN_BYTES) > 0)
		;
}

static json_t *put_it(struct ctx *c, json_t *in, struct err *e)
{
	struct box_addr a;
	const char *type = reply_param(c, "CONTENT_TYPE");
	if (coding_of(str_of(reply_param(c, "HTTP_CONTENT_ENCODING"))) != CODING_PLAIN) {
		err_set(e, ERR_MEDIA, "A compressed body is not offered here; leave `gzip` out.");
		return NULL;
	}
	if (no_signature(in, e) != 0 || e2b_user(js_str(in, "username"), e) != 0 || e2b_use(c, &a, e) != 0)
		return NULL;
	if (type != NULL && strcmp(type, "application/octet-stream") == 0)
		return put_bytes(c, &a, js_str(in, "path"), e);
	return put_parts(c, &a, js_str(in, "path"), e);
}

static json_t *put(struct ctx *c, json_t *in, struct err *e)
{
	json_t *got = put_it(c, in, e);
	if (got == NULL)
		drain(c);
	return got;
}

static int send_bytes(void *arg, const char *p, size_t n)
{
	return reply_write(arg, p, n);
}

static json_t *fetch(struct ctx *c, json_t *in, struct err *e)
{
	struct box_addr a;
	if (no_signature(in, e) != 0 || e2b_user(js_str(in, "username"), e) != 0 || e2b_use(c, &a, e) != 0)
		return NULL;
	const char *path = absolute(c, &a, js_str(in, "path"), e);
	auto_json json_t *got = path == NULL ? NULL : box_list(&a, path, 1, 0, e);
	if (got == NULL)
		return NULL;
	if (strcmp(js_str_or(got, "kind", ""), "file") != 0) {
		err_set(e, ERR_BAD_REQUEST, "\"%.200s\" is not a file.", path);
		return NULL;
	}
	long long size = js_int(got, "size", 0);
	reply_header(c, "Content-Length", mem_fmt(c->mem, "%lld", size));
	reply_header(c, "Cache-Control", "no-store");
	(void)reply_begin(c, 200, "application/octet-stream");
	if (size > 0)
		(void)box_get(&a, path, 0, size, send_bytes, c, e);
	return REPLIED;
}

/* ---- filesystem.Filesystem */

static const char *permissions(struct mem *m, const char *kind, unsigned mode)
{
	char text[11] = "-rwxrwxrwx";
	text[0] = strcmp(kind, "dir") == 0 ? 'd' : strcmp(kind, "link") == 0 ? 'L' : '-';
	for (int i = 0; i < 9; i++)
		if ((mode & (0400u >> i)) == 0)
			text[i + 1] = '-';
	return mem_str(m, text);
}

/* Of a description {kind, size, mode, mtime}. */
static json_t *entry(struct ctx *c, const char *path, const json_t *f)
{
	const char *kind = js_str_or(f, "kind", ""), *target = js_str(f, "target");
	unsigned mode = 0;
	(void)sscanf(js_str_or(f, "mode", "0"), "%o", &mode);
	json_t *o = js_pack("{s:s,s:s,s:s,s:s,s:I,s:s,s:s,s:s,s:s}", "name", base_name(path), "type",
	    strcmp(kind, "dir") == 0        ? "FILE_TYPE_DIRECTORY"
		: strcmp(kind, "link") == 0 ? "FILE_TYPE_SYMLINK"
					    : "FILE_TYPE_FILE",
	    "path", path, "size", mem_fmt(c->mem, "%lld", js_int(f, "size", 0)), "mode", (json_int_t)mode,
	    "permissions", permissions(c->mem, kind, mode), "owner", "agent", "group", "agent",
	    "modifiedTime", js_str_or(f, "mtime", ""));
	if (target != NULL)
		js_set_str(o, "symlinkTarget", target);
	return o;
}

const char *e2b_call_path(
    struct ctx *c, const json_t *in, const char *field, struct box_addr *a, struct err *e)
{
	if (e2b_basic_user(c, e) != 0 || e2b_use(c, a, e) != 0)
		return NULL;
	return absolute(c, a, js_str(in, field), e);
}

static json_t *stat_path(struct ctx *c, json_t *in, struct err *e)
{
	struct box_addr a;
	const char *path = e2b_call_path(c, in, "path", &a, e);
	auto_json json_t *got = path == NULL ? NULL : box_stat(&a, path, e);
	return got == NULL ? NULL : js_pack("{s:o}", "entry", entry(c, path, got));
}

static int by_path(const void *a, const void *b)
{
	return strcmp(js_str_or(*(json_t *const *)a, "path", ""), js_str_or(*(json_t *const *)b, "path", ""));
}

/* The same, in the order of their names. Takes the reference. */
static json_t *sorted(json_t *rows)
{
	size_t n = json_array_size(rows);
	auto_free json_t **list = xcalloc(n + 1, sizeof(json_t *));
	for (size_t i = 0; i < n; i++)
		list[i] = json_array_get(rows, i);
	qsort(list, n, sizeof(json_t *), by_path);
	json_t *out = json_array();
	for (size_t i = 0; i < n; i++)
		js_push(out, json_incref(list[i]));
	json_decref(rows);
	return out;
}

static json_t *list_dir(struct ctx *c, json_t *in, struct err *e)
{
	struct box_addr a;
	long long depth = js_int(in, "depth", 1);
	size_t i;
	const json_t *v;
	const char *path = e2b_call_path(c, in, "path", &a, e);
	auto_json json_t *got = path == NULL ? NULL
					     : box_list(&a, path, depth < 1 ? 1 : (int)depth, ENTRIES_MAX, e);
	if (got == NULL)
		return NULL;
	if (strcmp(js_str_or(got, "kind", ""), "dir") != 0) {
		err_set(e, ERR_BAD_REQUEST, "\"%.200s\" is not a directory.", path);
		return NULL;
	}
	if (js_bool(got, "truncated", false)) {
		err_set(e, ERR_TOO_LARGE, "There are more than %d entries; ask for less depth.", ENTRIES_MAX);
		return NULL;
	}
	json_t *out = json_array();
	json_array_foreach(js_get(got, "entries"), i, v)
		js_push(out, entry(c, plain(c->mem, path, js_str_or(v, "path", "")), v));
	return js_pack("{s:o}", "entries", sorted(out));
}

/* What is there now, as every change is answered. */
static json_t *changed(struct ctx *c, const struct box_addr *a, const char *path, struct err *e)
{
	auto_json json_t *got = box_stat(a, path, e);
	return got == NULL ? NULL : js_pack("{s:o}", "entry", entry(c, path, got));
}

static json_t *make_dir(struct ctx *c, json_t *in, struct err *e)
{
	struct box_addr a;
	bool made = false;
	const char *path = e2b_call_path(c, in, "path", &a, e);
	if (path == NULL || box_mkdir(&a, path, -1, &made, e) != 0)
		return NULL;
	if (made)
		return changed(c, &a, path, e);
	(void)err_set(e, ERR_CONFLICT, "The directory \"%.200s\" is there already.", path);
	e->reason = "already_exists";
	return NULL;
}

static json_t *move(struct ctx *c, json_t *in, struct err *e)
{
	struct box_addr a;
	const char *from = e2b_call_path(c, in, "source", &a, e);
	const char *to = from == NULL ? NULL : absolute(c, &a, js_str(in, "destination"), e);
	if (to == NULL || box_move(&a, from, to, true, e) != 0)
		return NULL;
	return changed(c, &a, to, e);
}

/* What is not there is removed. */
static json_t *remove_path(struct ctx *c, json_t *in, struct err *e)
{
	struct box_addr a;
	const char *path = e2b_call_path(c, in, "path", &a, e);
	if (path == NULL || (box_remove(&a, path, true, NULL, e) != 0 && e->code != ERR_NOT_FOUND))
		return NULL;
	err_clear(e);
	return json_object();
}

/* ---- the rows */

static const struct param files_in[] = {
	IN(T_STR, "path", "Absolute, or from the working directory.", NULL, .max = LIMIT_PATH_BYTES),
	IN(T_STR, "username", "The one user there is.", NULL, .max = 200),
	IN(T_STR, "signature", "Refused.", NULL, .max = 200),
	{ 0 },
};
static const struct param path_in[] = {
	IN(T_STR, "path", "Absolute, or from the working directory.", NULL, .max = LIMIT_PATH_BYTES),
	IN(T_INT, "depth", "How far down.", NULL, .max = DEPTH_MAX),
	{ 0 },
};
static const struct param move_in[] = {
	IN(T_STR, "source", "What is moved.", NULL, .max = LIMIT_PATH_BYTES),
	IN(T_STR, "destination", "Where it is then.", NULL, .max = LIMIT_PATH_BYTES),
	{ 0 },
};

#define UNARY .scope = "sandboxes", .status = 200, .flags = E2B_INSIDE, .refuse = e2b_refuse_unary
const struct op e2b_files_ops[] = {
	{ .id = "e2b_get_file",
	    .routes = { { "GET", "/files" } },
	    .summary = "A file's bytes",
	    .scope = "sandboxes",
	    .in = files_in,
	    .status = 200,
	    .flags = E2B_INSIDE | OP_STREAM | OP_RAW_OUT,
	    .run = fetch,
	    .refuse = e2b_refuse },
	{ .id = "e2b_put_file",
	    .routes = { { "POST", "/files" } },
	    .summary = "Write files",
	    .scope = "sandboxes",
	    .in = files_in,
	    .status = 200,
	    .flags = E2B_INSIDE | OP_RAW_IN | OP_STORES,
	    .max_body_bytes = SIZE_MAX,
	    .run = put,
	    .refuse = e2b_refuse },
	{ .id = "e2b_stat",
	    .routes = { { "POST", "/filesystem.Filesystem/Stat" } },
	    .summary = "A file or directory",
	    UNARY,
	    .in = path_in,
	    .run = stat_path },
	{ .id = "e2b_list_dir",
	    .routes = { { "POST", "/filesystem.Filesystem/ListDir" } },
	    .summary = "What is in a directory",
	    UNARY,
	    .in = path_in,
	    .run = list_dir },
	{ .id = "e2b_make_dir",
	    .routes = { { "POST", "/filesystem.Filesystem/MakeDir" } },
	    .summary = "Make a directory",
	    UNARY,
	    .in = path_in,
	    .run = make_dir },
	{ .id = "e2b_move",
	    .routes = { { "POST", "/filesystem.Filesystem/Move" } },
	    .summary = "Move a file or directory",
	    UNARY,
	    .in = move_in,
	    .run = move },
	{ .id = "e2b_remove",
	    .routes = { { "POST", "/filesystem.Filesystem/Remove" } },
	    .summary = "Remove a file or directory",
	    UNARY,
	    .in = path_in,
	    .run = remove_path },
	{ 0 },
};
