/* sandbox_file.h - rows that the ops on files of a sandbox share (SBX-47). */
#pragma once

#include "base/limits.h"
#include "handlers/sandbox.h"

enum { FILE_MODE_BYTES = 5, FILE_ENTRIES_MAX = 10000, FILE_DEPTH_MAX = 16 };

/* file_kinds: "file", "dir", "link", "other" */
extern const char *const file_kinds[];

#define FILE_TEXT(name_, doc_, example_)                                                                     \
	IN_REQUIRED(T_STR, (name_), (doc_), (example_), .min = 1, .max = LIMIT_PATH_BYTES)
#define FILE_PATH   FILE_TEXT("path", "Absolute, or from the sandbox's workdir.", "\"notes/today.txt\"")
#define FOLDER_PATH FILE_TEXT("path", "Absolute, or from the sandbox's workdir.", "\"notes\"")
#define FILE_MODE                                                                                            \
	IN(T_STR, "mode", "Permissions in octal; those of the file before, else 0644, when not given.",      \
	    "\"0644\"", .min = 3, .max = FILE_MODE_BYTES)
#define FILE_STAT                                                                                            \
	OUT(T_ENUM, "kind", "What it is.", "\"file\"", .values = file_kinds),                                \
	    OUT(T_INT, "size", "Bytes, all of it.", "3", .max = INT64_MAX),                                  \
	    OUT(T_STR, "mode", "Permissions in octal.", "\"0644\"", .max = FILE_MODE_BYTES),                 \
	    OUT(T_TIME, "mtime", "When it was last changed.", "\"2026-01-31T12:00:00.000Z\"")
#define FILE_LINK                                                                                            \
	OUT_MAYBE(T_STR, "target", "Of a link: what it says.", NULL, .max = LIMIT_PATH_BYTES),               \
	    OUT_MAYBE(T_ENUM, "targetKind",                                                                  \
		"Of a link: what it leads to; absent when that is nothing, or outside.", NULL,               \
		.values = file_kinds)

/* "644", "0644", "1755": -1 when absent, -2 with e when it is none. */
int file_mode(const json_t *in, struct err *e);
extern const struct param file_entry; /* of a listing */
extern const struct param file_written_out[];
json_t *file_written(const json_t *in, long long size);
