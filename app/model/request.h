/* request.h - the internal form of a request, between the readers and the writers of the three wires. */
#pragma once

#include "model/rules.h"

enum wire_role { WIRE_SYSTEM, WIRE_USER, WIRE_ASSISTANT };

/* One after another with the same role are one turn; a writer that needs them as one joins them. Results of tools are the user's. */
struct wire_turn {
	enum wire_role role;
	struct wire_part *parts;
	size_t n;
};

struct wire_tool {
	const char *name, *space; /* space: its namespace, or NULL */
	const char *flat;         /* as it is called on the other side */
	const char *description;  /* or NULL */
	const json_t *schema;     /* of its arguments; NULL: none is given */
	const json_t *grammar;    /* custom: the format of its input, or NULL */
	int strict;               /* -1: not given */
	bool custom;
};

enum wire_choice { WIRE_CHOICE_UNSET, WIRE_CHOICE_AUTO, WIRE_CHOICE_NONE, WIRE_CHOICE_ANY, WIRE_CHOICE_ONE };
enum wire_format { WIRE_FORMAT_TEXT, WIRE_FORMAT_JSON, WIRE_FORMAT_SCHEMA };

/* Strings and values are borrowed from the body or in the arena. */
struct wire_request {
	const json_t *body;
	bool stream;
	struct wire_turn *turns;
	size_t n_turns;
	struct wire_tool *tools;
	size_t n_tools;
	enum wire_choice choice;
	const char *choice_name, *choice_space;
	int parallel; /* -1: not given */
	long long max_out;
	const json_t *temperature, *top_p;
	const json_t *stop; /* a list of strings, or NULL */
	enum wire_format format;
	const json_t *schema, *schema_strict;
	const char *schema_name, *schema_description;
	const char *effort, *verbosity; /* or NULL */
	const char *user;
	/* chat and responses: members that are the same there, as they came */
	const json_t *service_tier, *metadata, *cache_key, *cache_retention, *safety;
};

struct wire_names {
	const struct wire_request *r;
};

typedef int wire_read_fn(struct wire_rd *d);
wire_read_fn wire_read_chat, wire_read_responses, wire_read_messages;
/* A new reference. -1 from the readers' rules never comes here: what cannot be written was refused. */
typedef json_t *wire_write_fn(struct mem *m, const struct wire_request *r, const struct wire_target *t);
wire_write_fn wire_write_chat, wire_write_responses, wire_write_messages;

/* ---- what the readers share */
struct wire_turn *wire_turn_add(
    struct wire_rd *d, enum wire_role role, size_t parts); /* room for that many */
struct wire_part *wire_part_add(struct wire_turn *t, enum wire_part_kind kind);
/* "at.key[i]" in the arena. */
char *wire_path(struct wire_rd *d, const char *at, const char *key, size_t i);
int wire_bad(struct wire_rd *d, const char *param, const char *what); /* ERR_BAD_REQUEST: "PARAM WHAT." */
/* A member that must be a string; NULL with an error when it is not there. */
const char *wire_need(struct wire_rd *d, const json_t *o, const char *key, const char *path);
/* "data:TYPE;base64,DATA" taken apart into type and data; any other text is a reference. */
void wire_media_url(struct mem *m, const char *url, struct wire_part *p);
const char *wire_data_url(struct mem *m, const struct wire_part *p);
/* Every string of the part's text parts. */
const char *wire_parts_text(struct mem *m, const struct wire_part *parts, size_t n, const char *between);
/* Names of all tools on the other side, and whether a web search can be left out. */
int wire_tools_done(struct wire_rd *d, size_t searches, const char *search_path);
/* Take an allowed_tools choice: the others go. */
int wire_tools_allow(struct wire_rd *d, const json_t *list, const char *path);
const struct wire_tool *wire_tool_find(const struct wire_request *r, const char *name, const char *space);
/* What a call of that tool is named on the other side, in the conversation too. */
const char *wire_flat(struct mem *m, const char *name, const char *space);
/* The schema of a function with one string `input`, and the description of a custom tool with its grammar. New reference. */
json_t *wire_input_schema(void);
json_t *wire_custom_about(struct mem *m, const struct wire_tool *t);
/* The text of a result for a wire that has no mark of failure. */
const char *wire_result_text(struct mem *m, const struct wire_part *p);
void wire_set_some(json_t *o, const char *key, const json_t *v); /* nothing for NULL */
/* Whether a document can go to the target: what is no PDF or text to messages, and no URL to chat. */
int wire_document_ok(struct wire_rd *d, struct wire_part *p, const char *path);
/* Whether a call of an earlier turn can: its arguments must be an object on messages. */
int wire_call_ok(struct wire_rd *d, const struct wire_part *p, const char *path);
int wire_choice_word(struct wire_rd *d, const char *word); /* auto, none, required */
/* A format of chat or responses, checked by its rule: its type, and the object that has name, schema, strict. */
int wire_format_set(struct wire_rd *d, const char *type, const json_t *inner, const char *path);
void wire_read_common(struct wire_request *r);    /* what chat and responses spell the same */
const char *wire_choice_name(enum wire_choice c); /* auto, none, required */
void wire_write_same(
    json_t *out, const struct wire_request *r); /* the members of wire_read_common that stay as they are */
