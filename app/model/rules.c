#include "model/rules.h"

#include <string.h>

#include "base/js.h"

#define CARRY  WIRE_CARRY
#define LIKE   WIRE_LIKE
#define DROP   WIRE_DROP
#define REFUSE WIRE_REFUSE

/* clang-format off */
#define CHAT(place, key, responses, messages, how) { WIRE_CHAT, place, key, { CARRY, responses, messages }, how }
#define RESP(place, key, chat, messages, how)      { WIRE_RESPONSES, place, key, { chat, CARRY, messages }, how }
#define MESS(place, key, chat, responses, how)     { WIRE_MESSAGES, place, key, { chat, responses, CARRY }, how }

const struct wire_rule wire_rules[] = {
	CHAT("body", "model", CARRY, CARRY, "as the provider calls it"),
	CHAT("body", "messages", CARRY, CARRY, ""),
	CHAT("body", "stream", CARRY, CARRY, ""),
	CHAT("body", "stream_options", DROP, DROP, "usage is always told there; the client gets it when it asked"),
	CHAT("body", "tools", CARRY, CARRY, ""),
	CHAT("body", "tool_choice", CARRY, CARRY, "allowed_tools: the others are not offered"),
	CHAT("body", "parallel_tool_calls", CARRY, CARRY, "messages: disable_parallel_tool_use"),
	CHAT("body", "functions", REFUSE, REFUSE, "the form before tools"),
	CHAT("body", "function_call", REFUSE, REFUSE, "the form before tools"),
	CHAT("body", "max_completion_tokens", CARRY, CARRY, "messages: without it the model's limit, or 32000"),
	CHAT("body", "max_tokens", CARRY, CARRY, "where max_completion_tokens is not given"),
	CHAT("body", "temperature", CARRY, LIKE, "messages: at most 1"),
	CHAT("body", "top_p", CARRY, CARRY, ""),
	CHAT("body", "stop", REFUSE, CARRY, "responses has no stop sequences"),
	CHAT("body", "n", REFUSE, REFUSE, "more than one"),
	CHAT("body", "response_format", CARRY, LIKE, "messages: output_config.format; json_object is asked for in the system prompt"),
	CHAT("body", "reasoning_effort", CARRY, LIKE, "messages: output_config.effort; none and minimal are low, xhigh is max"),
	CHAT("body", "verbosity", CARRY, DROP, "a hint"),
	CHAT("body", "seed", DROP, DROP, "never more than best effort"),
	CHAT("body", "logprobs", REFUSE, REFUSE, ""),
	CHAT("body", "top_logprobs", REFUSE, REFUSE, ""),
	CHAT("body", "logit_bias", REFUSE, REFUSE, ""),
	CHAT("body", "frequency_penalty", REFUSE, REFUSE, "other than 0"),
	CHAT("body", "presence_penalty", REFUSE, REFUSE, "other than 0"),
	CHAT("body", "modalities", REFUSE, REFUSE, "other than text alone"),
	CHAT("body", "audio", REFUSE, REFUSE, ""),
	CHAT("body", "prediction", DROP, DROP, "makes an answer faster, not another one"),
	CHAT("body", "web_search_options", REFUSE, REFUSE, ""),
	CHAT("body", "moderation", REFUSE, REFUSE, ""),
	CHAT("body", "service_tier", CARRY, DROP, "the vendor's own tiers"),
	CHAT("body", "store", DROP, DROP, "nothing is stored there, and nothing here reads it back"),
	CHAT("body", "metadata", CARRY, DROP, "labels of the vendor's own console"),
	CHAT("body", "user", CARRY, LIKE, "messages: metadata.user_id"),
	CHAT("body", "safety_identifier", CARRY, LIKE, "messages: metadata.user_id, before user"),
	CHAT("body", "prompt_cache_key", CARRY, DROP, "caching only"),
	CHAT("body", "prompt_cache_retention", CARRY, DROP, "caching only"),
	CHAT("body", "prompt_cache_options", DROP, DROP, "caching only"),

	CHAT("message", "role", CARRY, CARRY, ""),
	CHAT("message", "content", CARRY, CARRY, ""),
	CHAT("message", "name", DROP, DROP, "a hint who speaks"),
	CHAT("message", "tool_calls", CARRY, CARRY, ""),
	CHAT("message", "tool_call_id", CARRY, CARRY, ""),
	CHAT("message", "function_call", REFUSE, REFUSE, "the form before tools"),
	CHAT("message", "refusal", CARRY, LIKE, "messages: text"),
	CHAT("message", "audio", REFUSE, REFUSE, ""),
	CHAT("message", "annotations", DROP, DROP, "citations of earlier answers"),
	CHAT("message", "reasoning_content", DROP, DROP, "the words of another model's reasoning, which it cannot check"),
	CHAT("message", "reasoning", DROP, DROP, "likewise"),
	CHAT("*role", "system", CARRY, LIKE, "at the start: instructions, system; later on messages has text in <system>"),
	CHAT("*role", "developer", CARRY, LIKE, "like system"),
	CHAT("*role", "user", CARRY, CARRY, ""),
	CHAT("*role", "assistant", CARRY, CARRY, ""),
	CHAT("*role", "tool", CARRY, CARRY, ""),
	CHAT("*role", "function", REFUSE, REFUSE, "the form before tools"),
	CHAT("*part", "text", CARRY, CARRY, "empty text is left out on messages"),
	CHAT("*part", "image_url", CARRY, LIKE, "messages: by reference or as data; detail is left out"),
	CHAT("*part", "file", CARRY, LIKE, "data; messages: PDF and plain text; a file_id is of one vendor and refused"),
	CHAT("*part", "refusal", CARRY, LIKE, "messages: text"),
	CHAT("*part", "input_audio", REFUSE, REFUSE, ""),
	CHAT("*tool", "function", CARRY, CARRY, "with strict; responses: false where it is not given"),
	CHAT("*tool", "custom", CARRY, LIKE, "messages: a function with one string, `input`; the client gets its custom call back"),
	CHAT("*response_format", "text", CARRY, CARRY, ""),
	CHAT("*response_format", "json_object", CARRY, LIKE, "messages: asked for in the system prompt"),
	CHAT("*response_format", "json_schema", CARRY, LIKE, "messages: output_config.format; name and strict are left out"),

	RESP("body", "model", CARRY, CARRY, "as the provider calls it"),
	RESP("body", "input", CARRY, CARRY, ""),
	RESP("body", "instructions", CARRY, CARRY, "system"),
	RESP("body", "stream", CARRY, CARRY, ""),
	RESP("body", "stream_options", DROP, DROP, "obfuscation is a matter of the vendor's wire"),
	RESP("body", "tools", CARRY, CARRY, ""),
	RESP("body", "tool_choice", CARRY, CARRY, "allowed_tools: the others are not offered"),
	RESP("body", "parallel_tool_calls", CARRY, CARRY, "messages: disable_parallel_tool_use"),
	RESP("body", "max_output_tokens", CARRY, CARRY, "messages: without it the model's limit, or 32000"),
	RESP("body", "max_tool_calls", REFUSE, REFUSE, ""),
	RESP("body", "temperature", CARRY, LIKE, "messages: at most 1"),
	RESP("body", "top_p", CARRY, CARRY, ""),
	RESP("body", "text", CARRY, LIKE, "format and verbosity, as from chat"),
	RESP("body", "reasoning", LIKE, LIKE, "effort; a summary is what the upstream shows by itself"),
	RESP("body", "include", DROP, DROP, "reasoning comes back in a form that can be sent again; of the rest nothing can occur"),
	RESP("body", "store", DROP, DROP, "nothing is stored, and nothing here reads it back"),
	RESP("body", "previous_response_id", REFUSE, REFUSE, "what it names is stored at one vendor"),
	RESP("body", "conversation", REFUSE, REFUSE, "likewise"),
	RESP("body", "prompt", REFUSE, REFUSE, "likewise"),
	RESP("body", "background", REFUSE, REFUSE, ""),
	RESP("body", "context_management", REFUSE, REFUSE, ""),
	RESP("body", "moderation", REFUSE, REFUSE, ""),
	RESP("body", "truncation", REFUSE, REFUSE, "other than disabled"),
	RESP("body", "top_logprobs", REFUSE, REFUSE, ""),
	RESP("body", "service_tier", CARRY, DROP, "the vendor's own tiers"),
	RESP("body", "metadata", CARRY, DROP, "labels of the vendor's own console"),
	RESP("body", "client_metadata", DROP, DROP, "what codex tells of itself"),
	RESP("body", "user", CARRY, LIKE, "messages: metadata.user_id"),
	RESP("body", "safety_identifier", CARRY, LIKE, "messages: metadata.user_id, before user"),
	RESP("body", "prompt_cache_key", CARRY, DROP, "caching only"),
	RESP("body", "prompt_cache_retention", CARRY, DROP, "caching only"),
	RESP("body", "prompt_cache_options", DROP, DROP, "caching only"),
	RESP("*item", "message", CARRY, CARRY, ""),
	RESP("*item", "function_call", CARRY, CARRY, "a namespace becomes part of the name and comes back as one"),
	RESP("*item", "function_call_output", CARRY, CARRY, "chat: text; images follow in a user message"),
	RESP("*item", "custom_tool_call", LIKE, LIKE, "a call of a function with one string, `input`"),
	RESP("*item", "custom_tool_call_output", LIKE, LIKE, "the result of that call"),
	RESP("*item", "reasoning", DROP, LIKE, "messages gets its own blocks back; another model's are left out"),
	RESP("*item", "web_search_call", DROP, DROP, "what was found is in the text that follows"),
	RESP("*item", "item_reference", REFUSE, REFUSE, "what it names is stored at one vendor"),
	RESP("*item", "local_shell_call", REFUSE, REFUSE, "a tool of one vendor's models"),
	RESP("*item", "local_shell_call_output", REFUSE, REFUSE, ""),
	RESP("*item", "computer_call", REFUSE, REFUSE, ""),
	RESP("*item", "computer_call_output", REFUSE, REFUSE, ""),
	RESP("*item", "file_search_call", REFUSE, REFUSE, ""),
	RESP("*item", "code_interpreter_call", REFUSE, REFUSE, ""),
	RESP("*item", "image_generation_call", REFUSE, REFUSE, ""),
	RESP("*item", "mcp_call", REFUSE, REFUSE, ""),
	RESP("*item", "compaction", REFUSE, REFUSE, "only its maker can read it"),
	RESP("*role", "system", CARRY, LIKE, "as from chat"),
	RESP("*role", "developer", LIKE, LIKE, "system"),
	RESP("*role", "user", CARRY, CARRY, ""),
	RESP("*role", "assistant", CARRY, CARRY, ""),
	RESP("*part", "input_text", CARRY, CARRY, ""),
	RESP("*part", "output_text", CARRY, CARRY, "without annotations"),
	RESP("*part", "refusal", CARRY, LIKE, "messages: text"),
	RESP("*part", "input_image", CARRY, LIKE, "by reference or as data; a file_id is refused"),
	RESP("*part", "input_file", LIKE, LIKE, "data; a file_url only to messages (PDF); a file_id is refused"),
	RESP("*part", "input_audio", REFUSE, REFUSE, ""),
	RESP("*tool", "function", CARRY, CARRY, "with strict"),
	RESP("*tool", "custom", LIKE, LIKE, "a function with one string, `input`; the client gets its custom call back"),
	RESP("*tool", "namespace", LIKE, LIKE, "its tools, as NAMESPACE__NAME; at most 64 bytes, else shortened with a hash; calls come back as they were named"),
	RESP("*tool", "web_search", DROP, DROP, "where other tools are offered and none is forced; else refused"),
	RESP("*tool", "web_search_preview", DROP, DROP, "likewise"),
	RESP("*tool", "local_shell", REFUSE, REFUSE, "tools of one vendor"),
	RESP("*tool", "shell", REFUSE, REFUSE, ""),
	RESP("*tool", "apply_patch", REFUSE, REFUSE, ""),
	RESP("*tool", "tool_search", REFUSE, REFUSE, ""),
	RESP("*tool", "file_search", REFUSE, REFUSE, ""),
	RESP("*tool", "code_interpreter", REFUSE, REFUSE, ""),
	RESP("*tool", "image_generation", REFUSE, REFUSE, ""),
	RESP("*tool", "computer_use_preview", REFUSE, REFUSE, ""),
	RESP("*tool", "mcp", REFUSE, REFUSE, ""),
	RESP("*format", "text", CARRY, CARRY, ""),
	RESP("*format", "json_object", CARRY, LIKE, "messages: asked for in the system prompt"),
	RESP("*format", "json_schema", CARRY, LIKE, "messages: output_config.format; name and strict are left out"),

	MESS("body", "model", CARRY, CARRY, "as the provider calls it"),
	MESS("body", "messages", CARRY, CARRY, ""),
	MESS("body", "system", CARRY, CARRY, "blocks are joined; a line of x-anthropic-billing-header is left out"),
	MESS("body", "max_tokens", CARRY, CARRY, "max_completion_tokens, max_output_tokens"),
	MESS("body", "stream", CARRY, CARRY, ""),
	MESS("body", "tools", CARRY, CARRY, ""),
	MESS("body", "tool_choice", CARRY, CARRY, "any is required; disable_parallel_tool_use is parallel_tool_calls"),
	MESS("body", "temperature", CARRY, CARRY, ""),
	MESS("body", "top_p", CARRY, CARRY, ""),
	MESS("body", "top_k", REFUSE, REFUSE, ""),
	MESS("body", "stop_sequences", CARRY, REFUSE, "responses has none; which one was met is not known"),
	MESS("body", "thinking", LIKE, LIKE, "enabled: an effort by its budget (up to 4096 low, up to 16384 medium, else high); adaptive and disabled: the model's own way"),
	MESS("body", "output_config", LIKE, LIKE, "format; effort is dropped: agents always send it, and models that do not reason refuse it"),
	MESS("body", "output_format", LIKE, LIKE, "the earlier place of output_config.format"),
	MESS("body", "metadata", LIKE, LIKE, "user_id is user; a hash of it where it is longer than 64 bytes"),
	MESS("body", "service_tier", DROP, DROP, "the vendor's own tiers"),
	MESS("body", "speed", DROP, DROP, "likewise"),
	MESS("body", "cache_control", DROP, DROP, "caching only"),
	MESS("body", "context_management", DROP, DROP, "saves tokens: all of the conversation is sent instead"),
	MESS("body", "diagnostics", DROP, DROP, "what it asks for is of one vendor"),
	MESS("body", "container", REFUSE, REFUSE, ""),
	MESS("body", "mcp_servers", REFUSE, REFUSE, ""),
	MESS("body", "inference_geo", REFUSE, REFUSE, "where data may go is nothing to be dropped"),
	MESS("body", "user_profile_id", DROP, DROP, "of one vendor's console"),
	MESS("body", "workspace_id", DROP, DROP, "likewise"),
	MESS("message", "role", CARRY, CARRY, ""),
	MESS("message", "content", CARRY, CARRY, ""),
	MESS("*role", "user", CARRY, CARRY, ""),
	MESS("*role", "assistant", CARRY, CARRY, ""),
	MESS("*role", "system", CARRY, CARRY, ""),
	MESS("*block", "text", CARRY, CARRY, "without citations and cache_control"),
	MESS("*block", "image", CARRY, CARRY, "by reference or as data; a file_id is refused"),
	MESS("*block", "document", LIKE, LIKE, "PDF data as a file; plain text as text; a URL only to responses; a file_id is refused"),
	MESS("*block", "search_result", LIKE, LIKE, "text"),
	MESS("*block", "tool_use", CARRY, CARRY, ""),
	MESS("*block", "tool_result", LIKE, LIKE, "is_error is said in the text; chat: text, and images follow in a user message"),
	MESS("*block", "thinking", DROP, LIKE, "responses gets its own items back; another model's are left out"),
	MESS("*block", "redacted_thinking", DROP, LIKE, "likewise"),
	MESS("*block", "server_tool_use", REFUSE, REFUSE, "what the vendor's own tools did"),
	MESS("*block", "web_search_tool_result", REFUSE, REFUSE, ""),
	MESS("*block", "web_fetch_tool_result", REFUSE, REFUSE, ""),
	MESS("*block", "code_execution_tool_result", REFUSE, REFUSE, ""),
	MESS("*block", "tool_reference", REFUSE, REFUSE, "tools that are loaded by search"),
	MESS("*block", "container_upload", REFUSE, REFUSE, ""),
	MESS("*tool", "custom", CARRY, CARRY, "with strict; names over 64 bytes are shortened with a hash and come back as they were; loading and caching hints are dropped"),
	MESS("*tool", "bash", LIKE, LIKE, "a function: command, restart"),
	MESS("*tool", "text_editor", LIKE, LIKE, "a function: command, path and what the commands take"),
	MESS("*tool", "web_search", DROP, DROP, "where other tools are offered and none is forced; else refused"),
	MESS("*tool", "web_fetch", REFUSE, REFUSE, "tools of one vendor"),
	MESS("*tool", "code_execution", REFUSE, REFUSE, ""),
	MESS("*tool", "computer", REFUSE, REFUSE, ""),
	MESS("*tool", "memory", REFUSE, REFUSE, ""),
	MESS("*tool", "tool_search_tool", REFUSE, REFUSE, ""),
	{ 0 },
};
/* clang-format on */

const char *wire_verb_name(enum wire_verb v)
{
	static const char *const names[] = { "carried", "approximated", "dropped", "refused" };
	return names[v];
}

static const struct wire_rule *row(enum provider_wire from, const char *place, bool type, const char *key)
{
	for (const struct wire_rule *r = wire_rules; r->place != NULL; r++)
		if (r->from == from && (r->place[0] == '*') == type && strcmp(r->place + type, place) == 0 &&
		    strcmp(r->key, key) == 0)
			return r;
	return NULL;
}

enum wire_verb wire_rule_of(
    enum provider_wire from, enum provider_wire to, const char *place, const char *key)
{
	const struct wire_rule *r = row(from, place, false, key);
	return r == NULL ? WIRE_REFUSE : r->verb[to];
}

static bool says_nothing(const char *key, const json_t *v)
{
	if (json_is_null(v) || json_is_false(v) || (json_is_number(v) && json_number_value(v) == 0))
		return true;
	if ((json_is_array(v) && json_array_size(v) == 0) || (json_is_object(v) && json_object_size(v) == 0))
		return true;
	if (strcmp(key, "n") == 0)
		return json_is_integer(v) && json_integer_value(v) == 1;
	if (strcmp(key, "truncation") == 0)
		return strcmp(json_is_string(v) ? json_string_value(v) : "", "disabled") == 0;
	if (strcmp(key, "modalities") == 0)
		return json_array_size(v) == 1 && json_is_string(json_array_get(v, 0)) &&
		    strcmp(json_string_value(json_array_get(v, 0)), "text") == 0;
	return false;
}

static const char *target(enum provider_wire to)
{
	static const char *const names[WIRES] = { "chat.completions", "responses", "messages" };
	return names[to];
}

/* Names of a client's own go into messages; not at length, and nothing that is no name. */
static const char *shown(struct mem *m, const char *name)
{
	size_t n = strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-");
	return n == 0 ? "(no name)" : mem_strn(m, name, n < 64 ? n : 64);
}

int wire_rule_check(const struct wire_rd *d, const char *place, const json_t *o, const char *path)
{
	const char *key;
	json_t *v;
	json_object_foreach((json_t *)(uintptr_t)o, key, v) {
		const struct wire_rule *r = row(d->from, place, false, key);
		if ((r != NULL && r->verb[d->to] != WIRE_REFUSE) || says_nothing(key, v))
			continue;
		const char *dot = path[0] == 0 ? "" : ".";
		const char *param = mem_fmt(d->m, "%s%s%s", path, dot, shown(d->m, key));
		return err_field(d->e, ERR_BAD_REQUEST, param,
		    r == NULL ? "%s is not known here, and the model that is asked speaks %s: leave it out, "
				"or ask a model "
				"of your own wire."
			      : "%s cannot be carried to the model that is asked, which speaks %s.",
		    param, target(d->to));
	}
	return 0;
}

int wire_rule_type(
    const struct wire_rd *d, const char *place, const char *type, const char *path, enum wire_verb *verb)
{
	const struct wire_rule *r = type == NULL ? NULL : row(d->from, place, true, type);
	*verb = r == NULL ? WIRE_REFUSE : r->verb[d->to];
	if (*verb != WIRE_REFUSE)
		return 0;
	return err_field(d->e, ERR_BAD_REQUEST, path,
	    "%s: the type \"%s\" cannot be carried to the model that is asked, which speaks %s.", path,
	    type == NULL ? "" : shown(d->m, type), target(d->to));
}

static bool word_of(const char *words, const char *word)
{
	size_t n = strlen(word);
	for (const char *p = words; n > 0 && (p = strstr(p, word)) != NULL; p += n)
		if ((p == words || p[-1] == ' ') && (p[n] == ' ' || p[n] == 0))
			return true;
	return false;
}

int wire_known(const struct wire_rd *d, const struct wire_known *table, const char *type, const json_t *o,
    const char *path)
{
	const char *key;
	json_t *v;
	while (table->type != NULL && strcmp(table->type, type) != 0)
		table++;
	if (table->type == NULL)
		return 0;
	json_object_foreach((json_t *)(uintptr_t)o, key, v) {
		if (strcmp(key, "type") == 0 || word_of(table->members, key) || says_nothing(key, v))
			continue;
		const char *param = mem_fmt(d->m, "%s.%s", path, shown(d->m, key));
		return err_field(d->e, ERR_BAD_REQUEST, param,
		    "%s is not known here, and the model that is asked speaks %s: leave it out, or ask a "
		    "model of your own wire.",
		    param, target(d->to));
	}
	return 0;
}
