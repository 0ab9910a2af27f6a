/* sandbox_tree.c - what is where in a sandbox: looked at, made, moved, removed (SBX-47). */
#include "handlers/sandbox_file.h"

#include "base/js.h"
#include "base/str.h"

static const struct param stat_in[] = { SANDBOX_ID, FILE_PATH, { 0 } };
static const struct param stat_out[] = { FILE_PATH, FILE_STAT, FILE_LINK, { 0 } };

static const struct param list_in[] = {
	SANDBOX_ID,
	FOLDER_PATH,
	IN(T_INT, "depth", "How many directories below each other are listed; 1 when not given.", "2",
	    .min = 1, .max = FILE_DEPTH_MAX),
	IN(T_INT, "limit", "How many entries at most; 10000 when not given.", NULL, .min = 1,
	    .max = FILE_ENTRIES_MAX),
	{ 0 },
};
static const struct param list_out[] = {
	FOLDER_PATH,
	OUT(T_ARR, "entries",
	    "What is in it, unsorted, each directory before what is in it. Links are not followed.", "[]",
	    .max = FILE_ENTRIES_MAX, .fields = &file_entry),
	OUT(T_BOOL, "truncated",
	    "There are more entries than are listed: list the directories in it one by one.", "false"),
	{ 0 },
};

static const struct param mkdir_in[] = {
	SANDBOX_ID,
	FOLDER_PATH,
	IN(T_STR, "mode", "Permissions in octal; 0755 when not given.", NULL, .min = 3,
	    .max = FILE_MODE_BYTES),
	{ 0 },
};
static const struct param mkdir_out[] = {
	FOLDER_PATH,
	OUT(T_BOOL, "created", "False: it was there already.", "true"),
	{ 0 },
};

static const struct param move_in[] = {
	SANDBOX_ID,
	FILE_TEXT("from", "What is moved. A link itself, not what it leads to.", "\"notes/today.txt\""),
	FILE_TEXT("to", "Its new path, name included.", "\"notes/done.txt\""),
	IN(T_BOOL, "replace",
	    "When something is at `to`: a file takes a file's place, a directory that of an empty one. "
	    "Otherwise, and when not given, that is a 409.",
	    NULL),
	{ 0 },
};
static const struct param move_out[] = {
	FILE_TEXT("from", "Where it was.", "\"notes/today.txt\""),
	FILE_TEXT("to", "Where it is.", "\"notes/done.txt\""),
	{ 0 },
};

static const struct param remove_in[] = {
	SANDBOX_ID,
	FILE_PATH,
	IN(T_BOOL, "recursive", "A directory with everything in it; else one that is not empty is a 409.",
	    NULL),
	{ 0 },
};
static const struct param remove_out[] = {
	FILE_PATH,
	OUT(T_INT, "removed", "How many files, links and directories went.", "1", .max = INT64_MAX),
	{ 0 },
};

static json_t *stat_file(struct ctx *c, json_t *in, struct err *e)
{
	struct box_addr a;
	if (sandbox_use(c, in, &a, e) != 0)
		return NULL;
	json_t *got = box_stat(&a, js_str(in, "path"), e);
	if (got != NULL)
		js_set_str(got, "path", js_str(in, "path"));
	return got;
}

static json_t *list(struct ctx *c, json_t *in, struct err *e)
{
	struct box_addr a;
	const char *path = js_str(in, "path");
	if (sandbox_use(c, in, &a, e) != 0)
		return NULL;
	auto_json json_t *got = box_list(
	    &a, path, (int)js_int(in, "depth", 1), (int)js_int(in, "limit", FILE_ENTRIES_MAX), e);
	if (got == NULL)
		return NULL;
	if (!str_eq(str_of(js_str(got, "kind")), "dir")) {
		err_field(e, ERR_CONFLICT, "path", "`path` is not a directory.");
		return NULL;
	}
	return js_pack("{s:s,s:O,s:O}", "path", path, "entries", json_object_get(got, "entries"), "truncated",
	    json_object_get(got, "truncated"));
}

static json_t *make_dir(struct ctx *c, json_t *in, struct err *e)
{
	struct box_addr a;
	bool made;
	int mode = file_mode(in, e);
	if (mode == -2 || sandbox_use(c, in, &a, e) != 0 ||
	    box_mkdir(&a, js_str(in, "path"), mode, &made, e) != 0)
		return NULL;
	return js_pack("{s:s,s:b}", "path", js_str(in, "path"), "created", made);
}

static json_t *move(struct ctx *c, json_t *in, struct err *e)
{
	struct box_addr a;
	const char *from = js_str(in, "from"), *to = js_str(in, "to");
	if (sandbox_use(c, in, &a, e) != 0 || box_move(&a, from, to, js_bool(in, "replace", false), e) != 0)
		return NULL;
	return js_pack("{s:s,s:s}", "from", from, "to", to);
}

static json_t *remove_file(struct ctx *c, json_t *in, struct err *e)
{
	struct box_addr a;
	long long count;
	if (sandbox_use(c, in, &a, e) != 0 ||
	    box_remove(&a, js_str(in, "path"), js_bool(in, "recursive", false), &count, e) != 0)
		return NULL;
	return js_pack("{s:s,s:I}", "path", js_str(in, "path"), "removed", (json_int_t)count);
}

const struct op sandbox_tree_ops[] = {
	{
	    .id = "stat_sandbox_file",
	    .routes = { { "POST", "/v1/sandboxes/stat" }, { "GET", "/v1/sandboxes/{id}/files/stat" } },
	    .summary = "What is at a path",
	    .doc = "Type, size, permissions and time of a file, a directory, or a link itself.",
	    .scope = "sandboxes",
	    .in = stat_in,
	    .out = stat_out,
	    .status = 200,
	    .flags = OP_TOOL | OP_LONG,
	    .run = stat_file,
	},
	{
	    .id = "list_sandbox_files",
	    .routes = { { "POST", "/v1/sandboxes/list" }, { "GET", "/v1/sandboxes/{id}/files/list" } },
	    .summary = "List a directory, or a tree",
	    .doc = "What is in a directory, and with `depth` in those below it.",
	    .scope = "sandboxes",
	    .in = list_in,
	    .out = list_out,
	    .status = 200,
	    .flags = OP_TOOL | OP_LONG,
	    .run = list,
	},
	{
	    .id = "make_sandbox_dir",
	    .routes = { { "POST", "/v1/sandboxes/mkdir" }, { "POST", "/v1/sandboxes/{id}/files/mkdir" } },
	    .summary = "Make a directory",
	    .doc = "With those above it. One that is there already stays as it is.",
	    .scope = "sandboxes",
	    .in = mkdir_in,
	    .out = mkdir_out,
	    .status = 200,
	    .flags = OP_TOOL | OP_LONG | OP_STORES,
	    .run = make_dir,
	},
	{
	    .id = "move_sandbox_file",
	    .routes = { { "POST", "/v1/sandboxes/move" }, { "POST", "/v1/sandboxes/{id}/files/move" } },
	    .summary = "Move or rename a file or a directory",
	    .doc = "In one step; the directories above `to` are made. Between two disks of a sandbox "
		   "(`/work` and `/mnt/data`) nothing is moved: that is a 409.",
	    .scope = "sandboxes",
	    .in = move_in,
	    .out = move_out,
	    .status = 200,
	    .flags = OP_TOOL | OP_LONG | OP_STORES,
	    .run = move,
	},
	{
	    .id = "remove_sandbox_file",
	    .routes = { { "POST", "/v1/sandboxes/remove" }, { "DELETE", "/v1/sandboxes/{id}/files" } },
	    .summary = "Remove a file or a directory",
	    .doc = "A link itself, never what it leads to.",
	    .scope = "sandboxes",
	    .in = remove_in,
	    .out = remove_out,
	    .status = 200,
	    .flags = OP_TOOL | OP_LONG,
	    .run = remove_file,
	},
	{ 0 },
};
