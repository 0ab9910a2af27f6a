/* sandbox_file.h - rows that the ops on files of a sandbox share (SBX-47). */
#pragma once

#include "base/limits.h"
#include "handlers/sandbox.h"

enum { FILE_MODE_BYTES = 5, FILE_ENTRIES_MAX = 10000, FILE_DEPTH_MAX = 16 };

/* file_kinds: "file", "dir", "link", "other" */
extern const char *const file_kinds[];

#define FILE_TEXT(name_, doc_, example_)                                                                     \
	{                                                                                                    \
		.name = (name_), .type = T_STR, .required = true, .min = 1, .max = LIMIT_PATH_BYTES,         \
		.doc = (doc_), .example = (example_)                                                         \
	}
#define FILE_PATH   FILE_TEXT("path", "Absolute, or from the sandbox's workdir.", "\"notes/today.txt\"")
#define FOLDER_PATH FILE_TEXT("path", "Absolute, or from the sandbox's workdir.", "\"notes\"")
#define FILE_MODE                                                                                            \
	{                                                                                                    \
		.name = "mode", .type = T_STR, .min = 3, .max = FILE_MODE_BYTES,                             \
		.doc = "Permissions in octal; those of the file before, else 0644, when not given.",         \
		.example = "\"0644\""                                                                        \
	}
#define FILE_STAT                                                                                            \
	OUT_(T_ENUM, "kind", "What it is.", "\"file\"", .values = file_kinds),                               \
	    OUT_(T_INT, "size", "Bytes, all of it.", "3", .max = INT64_MAX),                                 \
	    OUT_(T_STR, "mode", "Permissions in octal.", "\"0644\"", .max = FILE_MODE_BYTES),                \
	    OUT_(T_TIME, "mtime", "When it was last changed.", "\"2026-01-31T12:00:00.000Z\"")
#define FILE_LINK                                                                                            \
	{ .name = "target", .type = T_STR, .max = LIMIT_PATH_BYTES, .doc = "Of a link: what it says." },     \
	{                                                                                                    \
		.name = "targetKind", .type = T_ENUM, .values = file_kinds,                                  \
		.doc = "Of a link: what it leads to; absent when that is nothing, or outside."               \
	}
#define OUT_(type_, name_, doc_, example_, ...)                                                              \
	{                                                                                                    \
		.name = (name_), .type = (type_), .required = true, .doc = (doc_), .example = (example_),    \
		__VA_ARGS__                                                                                  \
	}

/* "644", "0644", "1755": -1 when absent, -2 with e when it is none. */
int file_mode(const json_t *in, struct err *e);
extern const struct param file_entry; /* of a listing */
extern const struct param file_written_out[];
json_t *file_written(const json_t *in, long long size);
