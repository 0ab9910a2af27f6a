/* answer.h - what the writers of answers, buffered and streamed, share. */
#pragma once

#include "model/request.h"

/* A call as the client named its tool: name, space and custom of it. args of a custom tool that was offered as a function become the text of
 * its input; other arguments stay as they are. Everything is in the arena, or borrowed from p. */
struct wire_part wire_own_call(struct mem *m, const struct wire_names *names, const struct wire_part *p);
bool wire_is_custom(
    const struct wire_names *names, const char *flat); /* offered as a function, but custom to the client */

/* Items of responses, as they are when done. New references. */
json_t *wire_item_message(const char *id, const char *text, const char *refusal);
json_t *wire_item_call(const char *id, const struct wire_part *call);
json_t *wire_item_reasoning(const char *id, const char *text, const char *mark);
/* The response object around them; `status` and what goes with it from the finish (WIRE_UNFINISHED: in progress). Takes items. */
json_t *wire_response(
    const struct wire_self *self, enum wire_finish f, json_t *items, const struct wire_usage *u);
/* The stop reason of messages. */
const char *wire_stop_reason(enum wire_finish f, bool sequence);
/* The mark of a piece of reasoning, in the arena. */
const char *wire_mark_of(struct mem *m, const struct wire_part *p);
