#include <string.h>

#include "base/js.h"
#include "model/wire_int.h"

enum { TOKENS_MAX = 1000000000 }; /* of one call: what is more is a fault of the upstream */

static void most(long long *to, long long n)
{
	if (n > TOKENS_MAX)
		n = TOKENS_MAX;
	if (n > *to)
		*to = n;
}

enum { NO_COUNT = -1 }; /* a number that counts nothing */

/* The three wires' spellings do not collide. */
void wire_count(struct wire_counts *c, struct str key, long long n)
{
	long long *to = NULL;
	if (str_eq(key, "prompt_tokens") || str_eq(key, "input_tokens"))
		to = &c->in;
	else if (str_eq(key, "completion_tokens") || str_eq(key, "output_tokens"))
		to = &c->out;
	else if (str_eq(key, "cache_read_input_tokens"))
		to = &c->read;
	else if (str_eq(key, "cache_creation_input_tokens") || str_eq(key, "cache_write_tokens"))
		to = &c->written;
	else if (str_eq(key, "cached_tokens") || str_eq(key, "prompt_cache_hit_tokens"))
		to = &c->cached;
	else if (str_eq(key, "reasoning_tokens") || str_eq(key, "thinking_tokens"))
		to = &c->reasoning;
	if (to == NULL)
		return;
	c->known = c->known || to == &c->in || to == &c->out;
	c->output = c->output || (to == &c->out && n >= 0);
	c->odd = c->odd || n < 0;
	most(to, n);
}

static void counts(struct scan *s, struct wire_counts *c, int depth)
{
	struct str key;
	long long n;
	if (!scan_object(s))
		return;
	while (scan_key(s, &key)) {
		char first = scan_peek(s);
		if (depth == 0 && first == '{') /* …_details */
			counts(s, c, 1);
		else if (scan_int(s, &n))
			wire_count(c, key, n);
		else if (!s->bad && (first == '-' || (first >= '0' && first <= '9')))
			wire_count(c, key, NO_COUNT);
	}
}

void wire_counts_scan(struct scan *s, struct wire_counts *c)
{
	counts(s, c, 0);
}

void wire_counts_json(const json_t *usage, struct wire_counts *c)
{
	const char *key, *inner;
	json_t *v, *w;
	json_object_foreach((json_t *)(uintptr_t)usage, key, v) {
		if (json_is_number(v))
			wire_count(c, str_of(key), json_is_integer(v) ? json_integer_value(v) : NO_COUNT);
		json_object_foreach(v, inner, w)
			if (json_is_number(w))
				wire_count(
				    c, str_of(inner), json_is_integer(w) ? json_integer_value(w) : NO_COUNT);
	}
}

struct wire_usage wire_counts_usage(enum provider_wire w, const struct wire_counts *c)
{
	struct wire_usage u = { .known = c->known,
		.odd = c->odd,
		.part = !c->output,
		.input = c->in,
		.cached = c->cached > c->read ? c->cached : c->read,
		.cache_write = c->written,
		.output = c->out,
		.reasoning = c->reasoning };
	if (w == WIRE_MESSAGES)
		u.input = c->in + c->read + c->written;
	/* Parts are never more than the whole, whatever was told. */
	if (u.cached > u.input)
		u.cached = u.input;
	if (u.cache_write > u.input - u.cached)
		u.cache_write = u.input - u.cached;
	if (u.reasoning > u.output)
		u.reasoning = u.output;
	return u;
}

json_t *wire_usage_json(enum provider_wire w, const struct wire_usage *u)
{
	json_int_t in = u->input, out = u->output, cached = u->cached, write = u->cache_write;
	switch (w) {
	case WIRE_CHAT:
		return js_pack("{sI sI sI s{sI sI} s{sI}}", "prompt_tokens", in, "completion_tokens", out,
		    "total_tokens", in + out, "prompt_tokens_details", "cached_tokens", cached,
		    "cache_write_tokens", write, "completion_tokens_details", "reasoning_tokens",
		    (json_int_t)u->reasoning);
	case WIRE_RESPONSES:
		return js_pack("{sI s{sI sI} sI s{sI} sI}", "input_tokens", in, "input_tokens_details",
		    "cached_tokens", cached, "cache_write_tokens", write, "output_tokens", out,
		    "output_tokens_details", "reasoning_tokens", (json_int_t)u->reasoning, "total_tokens",
		    in + out);
	case WIRE_MESSAGES:
		break;
	}
	return js_pack("{sI sI sI sI}", "input_tokens", in - cached - write, "cache_creation_input_tokens",
	    write, "cache_read_input_tokens", cached, "output_tokens", out);
}

void wire_usage_put(enum provider_wire w, json_t *v, const struct wire_usage *u)
{
	json_t *const in[] = { v, json_object_get(v, "message"), json_object_get(v, "response") };
	for (size_t i = 0; i < sizeof in / sizeof *in; i++)
		if (json_is_object(json_object_get(in[i], "usage")))
			js_set(in[i], "usage", wire_usage_json(w, u));
}

long long wire_estimate_tokens(size_t bytes)
{
	return (long long)((bytes + 3) / 4);
}

/* Base64 is no text: an image or document costs what its wire says, which is about this. */
enum { MEDIA_TOKENS = 1500, MEDIA_LEAST = 2048 };

static bool media(const char *s, size_t n)
{
	return n >= MEDIA_LEAST && (strncmp(s, "data:", 5) == 0 || memchr(s, ' ', MEDIA_LEAST) == NULL) &&
	    memchr(s, '\n', MEDIA_LEAST) == NULL;
}

static size_t text_bytes(const json_t *v, int depth)
{
	size_t sum = 0, i;
	const char *key;
	json_t *x;
	if (json_is_string(v)) {
		size_t n = json_string_length(v);
		return media(json_string_value(v), n) ? 4 * MEDIA_TOKENS : n;
	}
	if (depth > 40) /* deeper than any body that was parsed */
		return 0;
	json_array_foreach(v, i, x)
		sum += text_bytes(x, depth + 1);
	/* A key is a token or so, and four bytes of quotes and commas are another. */
	json_object_foreach((json_t *)(uintptr_t)v, key, x)
		sum += strlen(key) + 4 + text_bytes(x, depth + 1);
	return json_is_number(v) || json_is_boolean(v) ? 4 : sum;
}

long long wire_estimate_request(const json_t *body)
{
	return wire_estimate_tokens(text_bytes(body, 0));
}

/* ---- what cannot be */

enum {
	ADDED_TOKENS = WIRE_INPUT_LEAST, /* what vendors put around a conversation and its tools */
	PART_TOKENS = 100000,            /* of an image or a document, whose pages lie elsewhere */
};

/* Input that is not in the body: a stored conversation, or what a tool of the vendor's finds and reads again in each of its steps. */
static bool reads_elsewhere(const json_t *body)
{
	static const char *const keys[] = { "previous_response_id", "conversation", "prompt", "container",
		"mcp_servers", "web_search_options" };
	size_t i;
	json_t *tool;
	for (i = 0; i < sizeof keys / sizeof keys[0]; i++)
		if (js_get(body, keys[i]) != NULL)
			return true;
	json_array_foreach(js_get(body, "tools"), i, tool) {
		const char *type = js_str_or(tool, "type", "function");
		if (strcmp(type, "function") != 0 && strcmp(type, "custom") != 0)
			return true;
	}
	return false;
}

static long long parts_elsewhere(const json_t *v, int depth)
{
	static const char *const kinds[] = { "image", "document", "file", "audio", "video" };
	const char *key, *type = js_str_or(v, "type", "");
	long long sum = 0;
	size_t i;
	json_t *x;
	if (depth > 40)
		return 0;
	for (i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
		if (strstr(type, kinds[i]) != NULL) {
			sum = 1;
			break;
		}
	json_array_foreach(v, i, x)
		sum += parts_elsewhere(x, depth + 1);
	json_object_foreach((json_t *)(uintptr_t)v, key, x)
		sum += parts_elsewhere(x, depth + 1);
	return sum;
}

/* A token is a byte at least. */
long long wire_input_most(const json_t *body)
{
	if (reads_elsewhere(body))
		return WIRE_INPUT_ANY;
	long long most = (long long)json_dumpb(body, NULL, 0, JSON_COMPACT) + ADDED_TOKENS +
	    PART_TOKENS * parts_elsewhere(body, 0);
	return most < WIRE_INPUT_ANY ? most : WIRE_INPUT_ANY;
}
