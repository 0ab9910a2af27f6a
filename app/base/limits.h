/* limits.h - every bound that more than one module must agree on. Units are in the names. */
#pragma once

enum {
	LIMIT_BODY_BYTES = 1 << 20,    /* HTTP-2: default for a JSON body */
	LIMIT_JSON_DEPTH = 32,         /* Jansson recurses; checked before parsing */
	LIMIT_EVENT_BYTES = 60 * 1024, /* payload, so that the whole line fits LIMIT_LINE_BYTES (STR-1) */
	LIMIT_LINE_BYTES = 64 * 1024,
	LIMIT_PING_S = 15,       /* STR-4 */
	LIMIT_LIST_DEFAULT = 50, /* HTTP-6 */
	LIMIT_LIST_MAX = 200,
	LIMIT_PROMPT_BYTES = 1 << 20,        /* COD-3 */
	LIMIT_PROMPT_ARG_BYTES = 100 * 1024, /* longer prompts do not travel in argv */
	LIMIT_OUTPUT_BYTES = 1 << 20,        /* SBX-42: kept tail per stream */
	LIMIT_COMMAND_S = 1800,              /* SBX-40: ceiling of one command asked for over the API */
	LIMIT_COMMAND_DEFAULT_S = 300,
	LIMIT_RUN_S = 7200, /* COD-1 */
	LIMIT_RUN_DEFAULT_S = 1500,
	LIMIT_REPO_NAME = 100,
	LIMIT_REF_NAME = 200,
	LIMIT_ORG_SLUG = 40,
	LIMIT_PATH_BYTES = 4096,
	LIMIT_FILE_BYTES = 16 << 20, /* a file read or written as one JSON value */
};
