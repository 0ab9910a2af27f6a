#include "model/wire.h"

#include <string.h>

#include "base/js.h"
#include "model/wire_int.h"

static const struct finish_word {
	enum provider_wire w;
	const char *word;
	enum wire_finish f;
} finish_words[] = {
	{ WIRE_CHAT, "stop", WIRE_STOP },
	{ WIRE_CHAT, "length", WIRE_LENGTH },
	{ WIRE_CHAT, "tool_calls", WIRE_CALLS },
	{ WIRE_CHAT, "function_call", WIRE_CALLS },
	{ WIRE_CHAT, "content_filter", WIRE_REFUSED },
	{ WIRE_RESPONSES, "completed", WIRE_STOP },
	{ WIRE_RESPONSES, "max_output_tokens", WIRE_LENGTH },
	{ WIRE_RESPONSES, "max_prompt_tokens", WIRE_LENGTH },
	{ WIRE_RESPONSES, "content_filter", WIRE_REFUSED },
	{ WIRE_MESSAGES, "end_turn", WIRE_STOP },
	{ WIRE_MESSAGES, "stop_sequence", WIRE_STOP },
	{ WIRE_MESSAGES, "max_tokens", WIRE_LENGTH },
	{ WIRE_MESSAGES, "model_context_window_exceeded", WIRE_LENGTH },
	{ WIRE_MESSAGES, "tool_use", WIRE_CALLS },
	{ WIRE_MESSAGES, "refusal", WIRE_REFUSED },
	{ WIRE_MESSAGES, "pause_turn", WIRE_PAUSED },
};

enum wire_finish wire_finish_of(enum provider_wire w, struct str word)
{
	for (size_t i = 0; i < sizeof finish_words / sizeof *finish_words; i++)
		if (finish_words[i].w == w && str_eq(word, finish_words[i].word))
			return finish_words[i].f;
	/* A word of the upstream's own: it has ended, and nothing says that anything is missing. */
	return word.n == 0 ? WIRE_UNFINISHED : WIRE_STOP;
}

const char *wire_finish_name(enum wire_finish f)
{
	switch (f) {
	case WIRE_UNFINISHED:
		break;
	case WIRE_STOP:
	case WIRE_PAUSED:
		return "stop";
	case WIRE_LENGTH:
		return "length";
	case WIRE_CALLS:
		return "tool_calls";
	case WIRE_REFUSED:
		return "content_filter";
	}
	return "";
}
