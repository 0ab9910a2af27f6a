/*
 * node.c - the internal door of a node (gatehouse-sandboxd): what app/sandbox/client.c and lease.c speak, nobody else.
 * Invariant: ids come from the API, which has looked them up by org; nothing here knows an org.
 */
#include "handlers/node.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/id.h"
#include "base/js.h"
#include "base/limits.h"
#include "sandbox/relay.h"

enum {
	FILE_MS = 600 * 1000, /* one file, however slow its other end is */
	START_MS = 20 * 1000,
	RUN_BODY_BYTES = 6 << 20, /* standard input and arguments, in base64 at worst */
	ARG_MAX_BYTES = 1 << 20,
};

#define P_ID                                                                                                 \
	{                                                                                                    \
		.name = "id", .type = T_STR, .required = true, .min = ID_TAIL, .max = ID_MAX,                \
		.doc = "The sandbox."                                                                        \
	}
#define P_PATH                                                                                               \
	{                                                                                                    \
		.name = "path", .type = T_STR, .required = true, .min = 1, .max = LIMIT_PATH_BYTES,          \
		.doc = "Inside the sandbox."                                                                 \
	}

static const char *const encs[] = { "utf8", "base64", NULL };
static const char *const streams[] = { "stdout", "stderr", NULL };
static const struct param arg = { .type = T_STR, .max = ARG_MAX_BYTES, .doc = "One argument." };
static const struct param value = { .type = T_STR, .max = ARG_MAX_BYTES, .doc = "Its value." };

static const struct param id_in[] = { P_ID, { 0 } };
static const struct param run_in[] = {
	P_ID,
	{ .name = "cmd",
	    .type = T_STR,
	    .required = true,
	    .min = ID_TAIL,
	    .max = ID_MAX,
	    .doc = "What the caller calls it." },
	{ .name = "argv",
	    .type = T_ARR,
	    .required = true,
	    .min = 1,
	    .max = 4000,
	    .fields = &arg,
	    .doc = "The command, exactly." },
	{ .name = "dir",
	    .type = T_STR,
	    .max = LIMIT_PATH_BYTES,
	    .doc = "Where it runs; the working directory." },
	{ .name = "env", .type = T_MAP, .max = 1000, .fields = &value, .doc = "Laid over the lease's." },
	{ .name = "stdin", .type = T_STR, .max = RUN_BODY_BYTES, .doc = "Its standard input." },
	{ .name = "stdinEnc", .type = T_ENUM, .values = encs, .doc = "How `stdin` is written." },
	{ .name = "stdinFile", .type = T_STR, .max = LIMIT_PATH_BYTES, .doc = "Or a file of the sandbox." },
	{ .name = "timeoutSec",
	    .type = T_INT,
	    .required = true,
	    .min = 1,
	    .max = LIMIT_RUN_S,
	    .doc = "After which it is killed." },
	{ .name = "stream", .type = T_BOOL, .doc = "Everything as it comes; else the tail at the end." },
	{ 0 },
};
static const struct param output_in[] = {
	P_ID,
	{ .name = "cmd", .type = T_STR, .required = true, .max = ID_MAX, .doc = "The command." },
	{ .name = "from",
	    .type = T_INT,
	    .max = INT64_MAX,
	    .doc = "First byte of stdout, or of the one `stream`." },
	{ .name = "fromStderr", .type = T_INT, .max = INT64_MAX, .doc = "First byte of stderr." },
	{ .name = "stream", .type = T_ENUM, .values = streams, .doc = "Only this one." },
	{ 0 },
};
static const struct param stop_in[] = {
	P_ID,
	{ .name = "cmd", .type = T_STR, .max = ID_MAX, .doc = "Only this command." },
	{ 0 },
};
static const struct param file_in[] = {
	P_ID,
	P_PATH,
	{ .name = "offset", .type = T_INT, .max = INT64_MAX, .doc = "First byte." },
	{ .name = "length", .type = T_INT, .max = INT64_MAX, .doc = "At most so many bytes." },
	{ 0 },
};
static const struct param put_in[] = {
	P_ID,
	P_PATH,
	{ .name = "mode", .type = T_INT, .max = 07777, .doc = "Permission bits; those of the file before." },
	{ 0 },
};
static const struct param stat_in[] = { P_ID, P_PATH, { 0 } };
static const struct param no_out[] = { { 0 } };

static struct fleet *fleet(struct ctx *c)
{
	return ((struct sandboxd *)c->app)->fleet;
}

/* Ids name directories and groups of this host. */
static const char *sandbox_id(const json_t *in, struct err *e)
{
	const char *id = js_str_or(in, "id", "");
	if (id_is("sbx", id))
		return id;
	err_set(e, ERR_NOT_FOUND, "There is no such sandbox on this node.");
	return NULL;
}

static struct held *take(struct ctx *c, const json_t *in, struct err *e)
{
	const char *id = sandbox_id(in, e);
	return id == NULL ? NULL : fleet_take(fleet(c), id, e);
}

static json_t *build(struct ctx *c, json_t *in, struct err *e)
{
	const char *id = sandbox_id(in, e);
	if (id == NULL || fleet_build(fleet(c), id, e) != 0)
		return NULL;
	return js_pack("{s:s}", "id", id);
}

static json_t *end(struct ctx *c, json_t *in, struct err *e)
{
	const char *id = sandbox_id(in, e);
	if (id == NULL || fleet_end(fleet(c), id, e) != 0)
		return NULL;
	return js_pack("{}");
}

/* ---- commands */

static const char *const *strings(struct mem *m, const json_t *array)
{
	const char **list = mem_alloc(m, (json_array_size(array) + 1) * sizeof *list);
	size_t i;
	json_t *v;
	json_array_foreach(array, i, v)
		list[i] = json_string_value(v);
	return list;
}

static const char *const *assignments(struct mem *m, json_t *env)
{
	const char **list = mem_alloc(m, (json_object_size(env) + 1) * sizeof *list);
	const char *name;
	json_t *v;
	size_t n = 0;
	json_object_foreach(env, name, v)
		list[n++] = mem_fmt(m, "%s=%s", name, json_string_value(v));
	return list;
}

static int standard_input(struct mem *m, const json_t *in, struct channel_spec *s, struct err *e)
{
	const char *text = js_str(in, "stdin");
	if (text == NULL)
		return 0;
	size_t n = strlen(text);
	if (strcmp(js_str_or(in, "stdinEnc", "utf8"), "base64") == 0) {
		unsigned char *bytes = mem_alloc(m, n + 1);
		ssize_t got = b64_decode(text, n, bytes);
		if (got < 0)
			return err_field(e, ERR_BAD_REQUEST, "stdin", "`stdin` is not base64.");
		s->stdin_p = bytes;
		n = (size_t)got;
	} else {
		s->stdin_p = text;
	}
	s->stdin_n = n;
	if (n > PROTO_STDIN_MAX)
		return err_field(e, ERR_TOO_LARGE, "stdin",
		    "`stdin` is longer than %d bytes; write a file instead.", PROTO_STDIN_MAX);
	return 0;
}

struct placing {
	struct held *held;
	const char *cmd;
};

static int place(void *arg_, uint32_t number, pid_t pid, struct err *e)
{
	const struct placing *p = arg_;
	(void)number;
	return held_place(p->held, p->cmd, pid, e);
}

static json_t *run(struct ctx *c, json_t *in, struct err *e)
{
	auto_held struct held *h = take(c, in, e);
	if (h == NULL)
		return NULL;
	const char *cmd = js_str_or(in, "cmd", "");
	if (!id_is("cmd", cmd)) { /* it names a control group */
		err_field(e, ERR_BAD_REQUEST, "cmd", "`cmd` is not the id of a command.");
		return NULL;
	}
	bool stream = js_bool(in, "stream", false);
	struct placing p = { h, cmd };
	struct channel_spec s = {
		.argv = strings(c->mem, js_get(in, "argv")),
		.env = assignments(c->mem, js_get(in, "env")),
		.dir = js_str(in, "dir"),
		.label = cmd,
		.stdin_path = js_str(in, "stdinFile"),
		.timeout_ms = js_int(in, "timeoutSec", 1) * 1000,
		.live = stream,
		.place = place,
		.arg = &p,
	};
	struct channel_wait w = { .deadline_ms = clock_ms() + START_MS };
	struct relay_opts o = {
		.held = h, .cmd = cmd, .tail = !stream, .to_its_end = true, .oom_before = held_oom_kills(h)
	};
	if (standard_input(c->mem, in, &s, e) != 0)
		return NULL;
	struct channel_cmd *k = channel_start(held_channel(h), &s, &w, e);
	if (k == NULL)
		return NULL;
	o.number = channel_cmd_id(k);
	pid_t pid = channel_cmd_pid(k);
	if (!stream) {
		channel_cmd_close(k);
		k = channel_follow(held_channel(h), o.number, e);
	}
	if (reply_begin(c, 200, "application/x-ndjson") == 0)
		(void)reply_line(c, js_pack("{s:s,s:s,s:i}", "type", "start", "id", cmd, "pid", (int)pid));
	relay_run(c, &o, k);
	return REPLIED;
}

static json_t *output(struct ctx *c, json_t *in, struct err *e)
{
	auto_held struct held *h = take(c, in, e);
	const char *stream = js_str_or(in, "stream", "");
	uint64_t from = (uint64_t)js_int(in, "from", 0), from_err = (uint64_t)js_int(in, "fromStderr", 0);
	if (h == NULL)
		return NULL;
	struct relay_opts o = {
		.held = h, .cmd = js_str(in, "cmd"), .from = { from, from_err }, .oom_before = -1
	};
	if (strcmp(stream, "stderr") == 0)
		o = (struct relay_opts){
			.held = h, .cmd = o.cmd, .from = { 0, from }, .only = PROTO_STDERR, .oom_before = -1
		};
	else if (stream[0] != '\0')
		o.only = PROTO_STDOUT;
	if (held_find(h, o.cmd, &o.number, e) != 0)
		return NULL;
	struct channel_cmd *k = channel_resume(held_channel(h), o.number, o.from, false, e);
	if (k == NULL)
		return NULL;
	(void)reply_begin(c, 200, "application/x-ndjson");
	relay_run(c, &o, k);
	return REPLIED;
}

static json_t *stop(struct ctx *c, json_t *in, struct err *e)
{
	auto_held struct held *h = take(c, in, e);
	int stopped = 0;
	if (h == NULL || held_stop(h, js_str(in, "cmd"), &stopped, e) != 0)
		return NULL;
	return js_pack("{s:i}", "stopped", stopped);
}

/* ---- files */

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
	auto_held struct held *h = take(c, in, e);
	struct download d = { c, js_int(in, "offset", 0), js_int(in, "length", -1) };
	struct channel_wait w = { .deadline_ms = clock_ms() + FILE_MS };
	if (h == NULL ||
	    channel_get(held_channel(h), js_str(in, "path"), (uint64_t)d.offset, d.length, &w, download_head,
		download_data, &d, e) != 0)
		return c->reply->begun ? REPLIED : NULL;
	(void)reply_flush(c);
	return REPLIED;
}

static ssize_t upload_read(void *arg_, void *p, size_t n)
{
	return reply_read(arg_, p, n);
}

static json_t *put_file(struct ctx *c, json_t *in, struct err *e)
{
	auto_held struct held *h = take(c, in, e);
	struct channel_wait w = { .deadline_ms = clock_ms() + FILE_MS };
	uint64_t size = 0;
	if (h == NULL ||
	    channel_put(held_channel(h), js_str(in, "path"), (int)js_int(in, "mode", -1), &w, upload_read, c,
		&size, e) != 0)
		return NULL;
	return js_pack("{s:I}", "size", (json_int_t)size);
}

static const char *const kinds[] = { [PROTO_KIND_FILE] = "file",
	[PROTO_KIND_DIR] = "dir",
	[PROTO_KIND_LINK] = "link",
	[PROTO_KIND_OTHER] = "other" };

static int add_entry(void *arg_, const struct channel_file *f)
{
	json_t *got = arg_;
	char mode[8], mtime[CLOCK_TEXT];
	(void)snprintf(mode, sizeof mode, "%04o", f->mode & 07777);
	clock_rfc3339(f->mtime_ms, mtime);
	const char *kind = f->kind >= PROTO_KIND_FILE && f->kind <= PROTO_KIND_OTHER ? kinds[f->kind]
										     : "other";
	json_t *o = js_pack(
	    "{s:s,s:I,s:s,s:s}", "kind", kind, "size", (json_int_t)f->size, "mode", mode, "mtime", mtime);
	if (f->name[0] == '\0' && json_object_size(got) == 0) {
		(void)json_object_update(got, o);
		js_set(got, "entries", json_array());
		json_decref(o);
		return 0;
	}
	js_set(o, "name", js_text(f->name, strlen(f->name)));
	js_push(json_object_get(got, "entries"), o);
	return 0;
}

static json_t *stat_file(struct ctx *c, json_t *in, struct err *e)
{
	auto_held struct held *h = take(c, in, e);
	auto_json json_t *got = json_object();
	struct channel_wait w = { .deadline_ms = clock_ms() + START_MS };
	bool cut = false;
	if (h == NULL ||
	    channel_stat(held_channel(h), js_str(in, "path"), true, &w, add_entry, got, &cut, e) != 0)
		return NULL;
	js_set(got, "truncated", json_boolean(cut));
	return steal(got);
}

static json_t *ready(struct ctx *c, json_t *in, struct err *e)
{
	(void)in;
	return node_ready(((struct sandboxd *)c->app)->node, e) == 0 ? js_pack("{s:s}", "status", "ok")
								     : NULL;
}

#define INTERNAL .scope = "node", .status = 200
static const struct op node_ops[] = {
	{ .id = "node_ready",
	    .routes = { { "GET", "/v1/node/ready" } },
	    .summary = "Is this node registered",
	    INTERNAL,
	    .flags = OP_INTERNAL | OP_PUBLIC,
	    .run = ready },
	{ .id = "node_build",
	    .routes = { { "POST", "/v1/node/sandboxes" } },
	    .summary = "Build a pending sandbox",
	    INTERNAL,
	    .in = id_in,
	    .flags = OP_INTERNAL | OP_PUBLIC | OP_STREAM,
	    .run = build },
	{ .id = "node_end",
	    .routes = { { "DELETE", "/v1/node/sandboxes/{id}" } },
	    .summary = "Remove a sandbox",
	    INTERNAL,
	    .in = id_in,
	    .out = no_out,
	    .flags = OP_INTERNAL | OP_PUBLIC | OP_STREAM,
	    .run = end },
	{ .id = "node_run",
	    .routes = { { "POST", "/v1/node/sandboxes/{id}/run" } },
	    .summary = "Run a command",
	    INTERNAL,
	    .in = run_in,
	    .max_body_bytes = RUN_BODY_BYTES,
	    .flags = OP_INTERNAL | OP_PUBLIC | OP_STREAM,
	    .run = run },
	{ .id = "node_output",
	    .routes = { { "GET", "/v1/node/sandboxes/{id}/commands/{cmd}/output" } },
	    .summary = "Read a command's output again",
	    INTERNAL,
	    .in = output_in,
	    .flags = OP_INTERNAL | OP_PUBLIC | OP_STREAM,
	    .run = output },
	{ .id = "node_stop",
	    .routes = { { "POST", "/v1/node/sandboxes/{id}/stop" } },
	    .summary = "Stop commands",
	    INTERNAL,
	    .in = stop_in,
	    .flags = OP_INTERNAL | OP_PUBLIC | OP_STREAM,
	    .run = stop },
	{ .id = "node_get_file",
	    .routes = { { "GET", "/v1/node/sandboxes/{id}/files" } },
	    .summary = "A file's bytes",
	    INTERNAL,
	    .in = file_in,
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
	{ .id = "node_stat",
	    .routes = { { "GET", "/v1/node/sandboxes/{id}/stat" } },
	    .summary = "A file or directory",
	    INTERNAL,
	    .in = stat_in,
	    .flags = OP_INTERNAL | OP_PUBLIC | OP_STREAM,
	    .run = stat_file },
	{ 0 },
};
const struct op *const handlers_node[] = { node_ops, NULL };
