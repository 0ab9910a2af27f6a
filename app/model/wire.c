#include "model/wire.h"

#include <string.h>

#include "base/js.h"
#include "base/mem.h"
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

/* An escape at p, "\\uXXXX", that spells no character: U+0000, or a surrogate that is no half of a pair. *n: its bytes, a pair's too. */
static bool spells_none(const char *p, const char *end, size_t *n)
{
	unsigned u, low;
	*n = 2;
	if (end - p < 6 || p[1] != 'u' || !scan_hex4(p + 2, &u))
		return false;
	*n = 6;
	if (u < 0xD800 || u > 0xDFFF)
		return u == 0;
	bool pair = u < 0xDC00 && end - p >= 12 && p[6] == '\\' && p[7] == 'u' && scan_hex4(p + 8, &low) &&
	    low >= 0xDC00 && low < 0xE000;
	*n = pair ? 12 : 6;
	return !pair;
}

json_t *wire_parse(const char *p, size_t n, struct err *e)
{
	if (n >= 3 && memcmp(p, "\xEF\xBB\xBF", 3) == 0) {
		p += 3;
		n -= 3;
	}
	const char *end = p + n, *back = n == 0 ? NULL : memchr(p, '\\', n);
	auto_free char *mended = NULL;
	for (size_t len; back != NULL; back = memchr(back, '\\', (size_t)(end - back))) {
		if (spells_none(back, end, &len)) {
			if (mended == NULL)
				mended = memcpy(xcalloc(1, n), p, n);
			memcpy(mended + (back - p), "\\ufffd", 6);
		}
		back += len < (size_t)(end - back) ? len : (size_t)(end - back);
	}
	return js_parse(mended != NULL ? mended : p, n, e);
}
