/*
 * sandbox_files.c - files of a sandbox (SBX-47): read, write, upload. Small ones travel as JSON, large ones as bytes.
 */
#include "handlers/sandbox_file.h"

#include <ctype.h>
#include <string.h>

#include "base/js.h"
#include "base/str.h"

enum { WRITE_BODY_BYTES = 2 * LIMIT_FILE_BYTES };

static const char *const encs[] = { "utf8", "base64", NULL };
const char *const file_kinds[] = { "file", "dir", "link", "other", NULL };

static const struct param read_in[] = {
	SANDBOX_ID,
	FILE_PATH,
	IN(T_INT, "offset", "First byte; 0 when not given.", NULL, .max = INT64_MAX),
	IN(T_INT, "length", "At most so many bytes; up to 16 MiB when not given.", NULL,
	    .max = LIMIT_FILE_BYTES),
	{ 0 },
};
static const struct param entry_fields[] = {
	FILE_STAT,
	OUT(T_STR, "name", "In its directory.", "\"today.txt\"", .max = 1024),
	OUT(T_STR, "path", "From the directory that is listed.", "\"today.txt\"", .max = LIMIT_PATH_BYTES),
	FILE_LINK,
	{ 0 },
};
const struct param file_entry = { .type = T_OBJ, .fields = entry_fields, .doc = "An entry." };
static const struct param read_out[] = {
	FILE_STAT,
	OUT_MAYBE(
	    T_STR, "content", "Of a file: the bytes asked for.", "\"hi\\n\"", .max = 2 * LIMIT_FILE_BYTES),
	OUT_MAYBE(T_ENUM, "enc", "Of a file: base64 where they are not text.", "\"utf8\"", .values = encs),
	OUT_MAYBE(T_ARR, "entries", "Of a directory: what is in it, unsorted.", NULL, .max = FILE_ENTRIES_MAX,
	    .fields = &file_entry),
	OUT_MAYBE(T_BOOL, "truncated", "Of a directory: there are more entries than are listed.", NULL),
	{ 0 },
};
static const struct param write_in[] = {
	SANDBOX_ID,
	FILE_PATH,
	IN_REQUIRED(T_STR, "content", "The whole new content.", "\"hi\\n\"", .max = 2 * LIMIT_FILE_BYTES),
	IN(T_ENUM, "enc", "How `content` is written; utf8 when not given.", NULL, .values = encs),
	FILE_MODE,
	{ 0 },
};
static const struct param upload_in[] = { SANDBOX_ID, FILE_PATH, FILE_MODE, { 0 } };
static const struct param download_in[] = { SANDBOX_ID, FILE_PATH, { 0 } };
static const struct param folder_in[] = { SANDBOX_ID, FOLDER_PATH, { 0 } };
static const struct param unpacked_out[] = {
	FOLDER_PATH,
	OUT(T_INT, "entries", "How many files, directories and links it had.", "3", .max = INT64_MAX),
	{ 0 },
};
const struct param file_written_out[] = {
	FILE_PATH,
	OUT(T_INT, "size", "Bytes written.", "3", .max = INT64_MAX),
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
	auto_json json_t *got = box_list(&a, path, 1, FILE_ENTRIES_MAX, e);
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
int file_mode(const json_t *in, struct err *e)
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

json_t *file_written(const json_t *in, long long size)
{
	return js_pack("{s:s,s:I}", "path", js_str_or(in, "path", ""), "size", (json_int_t)size);
}

static json_t *write_file(struct ctx *c, json_t *in, struct err *e)
{
	struct box_addr a;
	int mode = file_mode(in, e);
	struct str content;
	if (mode == -2 || js_bytes(c->mem, in, "content", "enc", &content, e) != 0)
		return NULL;
	size_t size = content.n;
	if (size > LIMIT_FILE_BYTES) {
		err_field(e, ERR_TOO_LARGE, "content",
		    "`content` is larger than %d bytes; upload the file instead.", LIMIT_FILE_BYTES);
		return NULL;
	}
	if (sandbox_use(c, in, &a, e) != 0 ||
	    box_put(&a, js_str(in, "path"), mode, str_read, &content, e) != 0)
		return NULL;
	return file_written(in, (long long)size);
}

struct upload {
	struct ctx *c;
	long long size;
};

static ssize_t read_body(void *arg, void *p, size_t n)
{
	struct upload *u = arg;
	ssize_t got = reply_read_many(u->c, p, n);
	u->size += got > 0 ? got : 0;
	return got;
}

static json_t *upload(struct ctx *c, json_t *in, struct err *e)
{
	struct box_addr a;
	struct upload u = { .c = c };
	int mode = file_mode(in, e);
	if (mode == -2 || sandbox_use(c, in, &a, e) != 0 ||
	    box_put(&a, js_str(in, "path"), mode, read_body, &u, e) != 0)
		return NULL;
	return file_written(in, u.size);
}

/* ---- bytes out */

enum { RANGE_NONE, RANGE_PART, RANGE_OUTSIDE };

/* Digits, or nothing, which is -1. A number too large to be kept is behind the end of every file. */
static bool position(struct str s, long long *at)
{
	*at = -1;
	for (size_t i = 0; i < s.n; i++) {
		if (!isdigit((unsigned char)s.p[i]))
			return false;
		long long before = *at < 0 ? 0 : *at;
		*at = before > (INT64_MAX - 9) / 10 ? INT64_MAX : before * 10 + (s.p[i] - '0');
	}
	return true;
}

/* One range of RFC 9110 14.1.2; several, another unit, or a condition that we cannot judge are answered with the whole file, as they may
 * be. */
static int range_of(struct ctx *c, long long size, long long *from, long long *n)
{
	const char *text = reply_param(c, "HTTP_RANGE");
	struct str rest = str_of(text != NULL && str_starts(text, "bytes=") ? text + 6 : ""), first;
	long long low, high;
	*from = 0;
	*n = size;
	if (reply_param(c, "HTTP_IF_RANGE") != NULL || rest.n == 0 || memchr(rest.p, '-', rest.n) == NULL ||
	    !str_cut(&rest, '-', &first) || !position(first, &low) || !position(rest, &high))
		return RANGE_NONE;
	if ((low < 0 && high < 0) || (low >= 0 && high >= 0 && high < low))
		return RANGE_NONE;
	if (low < 0) { /* the last bytes */
		low = high < size ? size - high : 0;
		high = high == 0 ? -1 : size - 1;
	} else if (high < 0 || high >= size) {
		high = size - 1;
	}
	if (low >= size || high < low)
		return RANGE_OUTSIDE;
	*from = low;
	*n = high - low + 1;
	return RANGE_PART;
}

static int send_bytes(void *arg, const char *p, size_t n)
{
	return reply_write(arg, p, n);
}

static json_t *outside(struct ctx *c, long long size)
{
	struct err why = { 0 };
	err_field(
	    &why, ERR_BAD_REQUEST, "Range", "The file has %lld bytes; the range is behind its end.", size);
	auto_json json_t *v = op_envelope(&why, c->request_id);
	const char *text = js_dump(c->mem, v);
	reply_header(c, "Content-Range", mem_fmt(c->mem, "bytes */%lld", size));
	(void)reply_begin(c, 416, "application/json");
	(void)reply_write(c, text, strlen(text));
	return REPLIED;
}

static json_t *download(struct ctx *c, json_t *in, struct err *e)
{
	struct box_addr a;
	long long from, n;
	if (sandbox_use(c, in, &a, e) != 0)
		return NULL;
	const char *path = js_str(in, "path");
	auto_json json_t *got = box_list(&a, path, 1, 0, e);
	if (got == NULL)
		return NULL;
	if (strcmp(js_str_or(got, "kind", ""), "file") != 0) {
		err_field(
		    e, ERR_CONFLICT, "path", "`path` is not a file; a directory is downloaded as a tar.");
		return NULL;
	}
	long long size = js_int(got, "size", 0);
	int range = range_of(c, size, &from, &n);
	if (range == RANGE_OUTSIDE)
		return outside(c, size);
	if (range == RANGE_PART)
		reply_header(
		    c, "Content-Range", mem_fmt(c->mem, "bytes %lld-%lld/%lld", from, from + n - 1, size));
	reply_header(c, "Accept-Ranges", "bytes");
	reply_header(c, "Cache-Control", "no-store");
	/* A file that becomes shorter meanwhile is seen to be cut. */
	reply_header(c, "Content-Length", mem_fmt(c->mem, "%lld", n));
	(void)reply_begin(c, range == RANGE_PART ? 206 : 200, "application/octet-stream");
	if (n > 0 && strcmp(c->method, "HEAD") != 0)
		(void)box_get(&a, path, from, n, send_bytes, c, e);
	return REPLIED;
}

/* ---- folders */

static int send_tar(void *arg, const char *p, size_t n)
{
	struct ctx *c = arg;
	if (!c->reply->begun) {
		reply_header(c, "Cache-Control", "no-store");
		(void)reply_begin(c, 200, "application/x-tar");
	}
	return reply_write(c, p, n);
}

static json_t *download_folder(struct ctx *c, json_t *in, struct err *e)
{
	struct box_addr a;
	if (sandbox_use(c, in, &a, e) != 0)
		return NULL;
	(void)box_pack(&a, js_str(in, "path"), send_tar, c, e);
	return c->reply->begun ? REPLIED : NULL;
}

static ssize_t read_tar(void *arg, void *p, size_t n)
{
	return reply_read_many(arg, p, n);
}

static json_t *upload_folder(struct ctx *c, json_t *in, struct err *e)
{
	struct box_addr a;
	long long entries;
	if (sandbox_use(c, in, &a, e) != 0 ||
	    box_unpack(&a, js_str(in, "path"), read_tar, c, &entries, e) != 0)
		return NULL;
	return js_pack("{s:s,s:I}", "path", js_str(in, "path"), "entries", (json_int_t)entries);
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
	    .out = file_written_out,
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
	    .out = file_written_out,
	    .status = 200,
	    .flags = OP_RAW_IN | OP_LONG | OP_STORES,
	    .max_body_bytes = SIZE_MAX,
	    .run = upload,
	},
	{
	    .id = "download_sandbox_file",
	    .routes = { { "GET", "/v1/sandboxes/{id}/files/content" } },
	    .summary = "Download a file",
	    .doc = "Its bytes, of any size. One range of a `Range` header is answered with 206.",
	    .scope = "sandboxes",
	    .in = download_in,
	    .status = 200,
	    .flags = OP_STREAM | OP_RAW_OUT,
	    .run = download,
	},
	{
	    .id = "download_sandbox_folder",
	    .routes = { { "GET", "/v1/sandboxes/{id}/files/tar" } },
	    .summary = "Download a folder",
	    .doc = "What is in it as a tar, links as they are; pipes, sockets and devices are left out. An "
		   "archive that could not be finished lacks its end, which every tar program says.",
	    .scope = "sandboxes",
	    .in = folder_in,
	    .status = 200,
	    .flags = OP_STREAM | OP_RAW_OUT,
	    .run = download_folder,
	},
	{
	    .id = "upload_sandbox_folder",
	    .routes = { { "PUT", "/v1/sandboxes/{id}/files/tar" } },
	    .summary = "Upload a folder",
	    .doc = "The body is a tar (not compressed) that is unpacked into the folder `path`, which is "
		   "made if need be. Files in it replace those that are there. Paths and links that lead out "
		   "of the workspace, devices and pipes are refused by the entry's name, more than 200000 "
		   "entries, too; entries before that stay. Permissions come without setuid.",
	    .scope = "sandboxes",
	    .in = folder_in,
	    .out = unpacked_out,
	    .status = 200,
	    .flags = OP_RAW_IN | OP_LONG | OP_STORES,
	    .max_body_bytes = SIZE_MAX,
	    .run = upload_folder,
	},
	{ 0 },
};
