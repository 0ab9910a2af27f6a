/*
 * sandbox_files.c - files of a sandbox (SBX-47): read, write, upload. Small ones travel as JSON, large ones as bytes.
 */
#include "handlers/sandbox.h"

#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/js.h"
#include "base/limits.h"

enum { WRITE_BODY_BYTES = 2 * LIMIT_FILE_BYTES, MODE_BYTES = 5 };

static const char *const encs[] = { "utf8", "base64", NULL };
static const char *const kinds[] = { "file", "dir", "link", "other", NULL };

#define FILE_PATH                                                                                            \
	{                                                                                                    \
		.name = "path", .type = T_STR, .required = true, .min = 1, .max = LIMIT_PATH_BYTES,          \
		.doc = "Absolute, or from the sandbox's workdir.", .example = "\"notes/today.txt\""          \
	}
#define FILE_MODE                                                                                            \
	{                                                                                                    \
		.name = "mode", .type = T_STR, .min = 3, .max = MODE_BYTES,                                  \
		.doc = "Permissions in octal; those of the file before, else 0644, when not given.",         \
		.example = "\"0644\""                                                                        \
	}

static const struct param read_in[] = {
	SANDBOX_ID,
	FILE_PATH,
	{ .name = "offset", .type = T_INT, .max = INT64_MAX, .doc = "First byte; 0 when not given." },
	{ .name = "length",
	    .type = T_INT,
	    .max = LIMIT_FILE_BYTES,
	    .doc = "At most so many bytes; up to 16 MiB when not given." },
	{ 0 },
};
#define STAT_FIELDS                                                                                          \
	{ .name = "kind",                                                                                    \
		.type = T_ENUM,                                                                              \
		.required = true,                                                                            \
		.values = kinds,                                                                             \
		.doc = "What it is.",                                                                        \
		.example = "\"file\"" },                                                                     \
	    { .name = "size",                                                                                \
		    .type = T_INT,                                                                           \
		    .required = true,                                                                        \
		    .max = INT64_MAX,                                                                        \
		    .doc = "Bytes, all of it.",                                                              \
		    .example = "3" },                                                                        \
	    { .name = "mode",                                                                                \
		    .type = T_STR,                                                                           \
		    .required = true,                                                                        \
		    .max = MODE_BYTES,                                                                       \
		    .doc = "Permissions in octal.",                                                          \
		    .example = "\"0644\"" },                                                                 \
	{                                                                                                    \
		.name = "mtime", .type = T_TIME, .required = true, .doc = "When it was last changed.",       \
		.example = "\"2026-01-31T12:00:00.000Z\""                                                    \
	}
static const struct param entry_fields[] = {
	STAT_FIELDS,
	{ .name = "name",
	    .type = T_STR,
	    .required = true,
	    .max = 1024,
	    .doc = "In its directory.",
	    .example = "\"today.txt\"" },
	{ 0 },
};
static const struct param entry = { .type = T_OBJ, .fields = entry_fields, .doc = "An entry." };
static const struct param read_out[] = {
	STAT_FIELDS,
	{ .name = "content",
	    .type = T_STR,
	    .max = 2 * LIMIT_FILE_BYTES,
	    .doc = "Of a file: the bytes asked for.",
	    .example = "\"hi\\n\"" },
	{ .name = "enc",
	    .type = T_ENUM,
	    .values = encs,
	    .doc = "Of a file: base64 where they are not text.",
	    .example = "\"utf8\"" },
	{ .name = "entries",
	    .type = T_ARR,
	    .max = 20000,
	    .fields = &entry,
	    .doc = "Of a directory: what is in it, unsorted." },
	{ .name = "truncated",
	    .type = T_BOOL,
	    .doc = "Of a directory: there are more entries than are listed." },
	{ 0 },
};
static const struct param write_in[] = {
	SANDBOX_ID,
	FILE_PATH,
	{ .name = "content",
	    .type = T_STR,
	    .required = true,
	    .max = 2 * LIMIT_FILE_BYTES,
	    .doc = "The whole new content.",
	    .example = "\"hi\\n\"" },
	{ .name = "enc",
	    .type = T_ENUM,
	    .values = encs,
	    .doc = "How `content` is written; utf8 when not given." },
	FILE_MODE,
	{ 0 },
};
static const struct param upload_in[] = { SANDBOX_ID, FILE_PATH, FILE_MODE, { 0 } };
static const struct param write_out[] = {
	FILE_PATH,
	{ .name = "size",
	    .type = T_INT,
	    .required = true,
	    .max = INT64_MAX,
	    .doc = "Bytes written.",
	    .example = "3" },
	{ 0 },
};

static int take_bytes(void *arg, const char *p, size_t n)
{
	return buf_add(arg, p, n);
}

static json_t *read_file(struct ctx *c, json_t *in, struct err *e)
{
	struct box_addr a;
	const char *path = js_str(in, "path"), *enc;
	if (sandbox_use(c, in, &a, e) != 0)
		return NULL;
	auto_json json_t *got = box_stat(&a, path, e);
	if (got == NULL)
		return NULL;
	bool file = strcmp(js_str_or(got, "kind", ""), "file") == 0;
	long long offset = js_int(in, "offset", 0), length = js_int(in, "length", LIMIT_FILE_BYTES);
	if (!file) {
		if (js_get(in, "offset") != NULL || js_get(in, "length") != NULL) {
			err_field(e, ERR_BAD_REQUEST, "path",
			    "`path` is not a file; leave `offset` and `length` out.");
			return NULL;
		}
		return steal(got);
	}
	if (js_get(in, "length") == NULL && js_int(got, "size", 0) - offset > length) {
		err_field(e, ERR_TOO_LARGE, "length",
		    "The file is larger than %d bytes; read it in parts with `offset` and `length`.",
		    LIMIT_FILE_BYTES);
		return NULL;
	}
	auto_buf struct buf bytes = BUF(LIMIT_FILE_BYTES);
	if (length > 0 && box_get(&a, path, offset, length, take_bytes, &bytes, e) != 0)
		return NULL;
	(void)json_object_del(got, "entries");
	(void)json_object_del(got, "truncated");
	js_set(got, "content", sandbox_bytes(bytes.p, bytes.n, &enc));
	js_set_str(got, "enc", enc);
	return steal(got);
}

/* "644", "0644", "1755": -1 when absent, -2 with e when it is none. */
static int mode_of(const json_t *in, struct err *e)
{
	const char *text = js_str(in, "mode");
	int mode = 0;
	if (text == NULL)
		return -1;
	for (const char *p = text; *p != '\0'; p++) {
		if (*p < '0' || *p > '7' || mode > 0777) {
			err_field(e, ERR_BAD_REQUEST, "mode",
			    "`mode` is three or four octal digits, such as \"0644\".");
			return -2;
		}
		mode = mode * 8 + (*p - '0');
	}
	return mode;
}

struct text {
	const char *p;
	size_t n;
};

static ssize_t read_text(void *arg, void *p, size_t n)
{
	struct text *t = arg;
	n = n < t->n ? n : t->n;
	memcpy(p, t->p, n);
	t->p += n;
	t->n -= n;
	return (ssize_t)n;
}

static json_t *written(const json_t *in, long long size)
{
	return js_pack("{s:s,s:I}", "path", js_str_or(in, "path", ""), "size", (json_int_t)size);
}

static json_t *write_file(struct ctx *c, json_t *in, struct err *e)
{
	struct box_addr a;
	int mode = mode_of(in, e);
	const char *content = js_str_or(in, "content", "");
	struct text t = { content, strlen(content) };
	if (mode == -2)
		return NULL;
	if (strcmp(js_str_or(in, "enc", "utf8"), "base64") == 0) {
		unsigned char *bytes = mem_alloc(c->mem, t.n + 1);
		ssize_t n = b64_decode(t.p, t.n, bytes);
		if (n < 0) {
			err_field(e, ERR_BAD_REQUEST, "content", "`content` is not base64.");
			return NULL;
		}
		t = (struct text){ (const char *)bytes, (size_t)n };
	}
	size_t size = t.n;
	if (size > LIMIT_FILE_BYTES) {
		err_field(e, ERR_TOO_LARGE, "content",
		    "`content` is larger than %d bytes; upload the file instead.", LIMIT_FILE_BYTES);
		return NULL;
	}
	if (sandbox_use(c, in, &a, e) != 0 || box_put(&a, js_str(in, "path"), mode, read_text, &t, e) != 0)
		return NULL;
	return written(in, (long long)size);
}

struct upload {
	struct ctx *c;
	long long size;
};

static ssize_t read_body(void *arg, void *p, size_t n)
{
	struct upload *u = arg;
	ssize_t got = reply_read(u->c, p, n);
	u->size += got > 0 ? got : 0;
	return got;
}

static json_t *upload(struct ctx *c, json_t *in, struct err *e)
{
	struct box_addr a;
	struct upload u = { .c = c };
	int mode = mode_of(in, e);
	if (mode == -2 || sandbox_use(c, in, &a, e) != 0 ||
	    box_put(&a, js_str(in, "path"), mode, read_body, &u, e) != 0)
		return NULL;
	return written(in, u.size);
}

const struct op sandbox_files_ops[] = {
	{
	    .id = "read_sandbox_file",
	    .routes = { { "POST", "/v1/sandboxes/read" }, { "GET", "/v1/sandboxes/{id}/files" } },
	    .summary = "Read a file or list a directory",
	    .doc = "A file's bytes, or a directory's entries. Paths outside the writable directories are "
		   "refused.",
	    .scope = "sandboxes",
	    .in = read_in,
	    .out = read_out,
	    .status = 200,
	    .flags = OP_TOOL | OP_LONG,
	    .run = read_file,
	},
	{
	    .id = "write_sandbox_file",
	    .routes = { { "POST", "/v1/sandboxes/write" } },
	    .summary = "Write a file",
	    .doc = "Makes the directories above it and replaces it in one step: a reader sees the old or the "
		   "new content.",
	    .scope = "sandboxes",
	    .in = write_in,
	    .out = write_out,
	    .status = 200,
	    .flags = OP_TOOL | OP_LONG | OP_STORES,
	    .max_body_bytes = WRITE_BODY_BYTES,
	    .run = write_file,
	},
	{
	    .id = "upload_sandbox_file",
	    .routes = { { "PUT", "/v1/sandboxes/{id}/files" } },
	    .summary = "Upload a file",
	    .doc = "Like write_sandbox_file, but the body is the content, of any size.",
	    .scope = "sandboxes",
	    .in = upload_in,
	    .out = write_out,
	    .status = 200,
	    .flags = OP_RAW_IN | OP_LONG | OP_STORES,
	    .max_body_bytes = SIZE_MAX,
	    .run = upload,
	},
	{ 0 },
};
