/* A request on its way to an upstream of its own wire: looked at, and passed on. */
#include <string.h>

#include "base/js.h"
#include "model/wire_int.h"

static int look_model(const json_t *body, struct wire_ask *out, struct err *e)
{
	const json_t *model = js_get(body, "model");
	if (model != NULL && !json_is_string(model))
		return err_field(e, ERR_BAD_REQUEST, "model", "model must be a string.");
	out->model = json_string_value(model);
	if (out->model != NULL && out->model[0] == 0)
		out->model = NULL;
	return 0;
}

static int look_flag(const json_t *body, const char *key, bool *out, struct err *e)
{
	const json_t *v = js_get(body, key);
	if (v != NULL && !json_is_boolean(v))
		return err_field(e, ERR_BAD_REQUEST, key, "%s must be true or false.", key);
	*out = json_is_true(v);
	return 0;
}

/* NULL is no error of this: absent. */
static int look_count(const json_t *body, const char *key, long long most, long long *out, struct err *e)
{
	const json_t *v = js_get(body, key);
	if (v == NULL)
		return 0;
	if (!json_is_integer(v) || json_integer_value(v) < 1 || json_integer_value(v) > most)
		return err_field(
		    e, ERR_BAD_REQUEST, key, "%s must be a whole number from 1 to %lld.", key, most);
	*out = json_integer_value(v);
	return 0;
}

static int look_array(const json_t *body, const char *key, bool needed, struct err *e)
{
	const json_t *v = js_get(body, key);
	size_t i;
	json_t *item;
	if (v == NULL && !needed)
		return 0;
	if (!json_is_array(v) || (needed && json_array_size(v) == 0))
		return err_field(e, ERR_BAD_REQUEST, key, "%s must be a list%s.", key,
		    needed ? " of at least one object" : " of objects");
	json_array_foreach(v, i, item) {
		if (!json_is_object(item))
			return err_field(e, ERR_BAD_REQUEST, key, "%s[%zu] must be an object.", key, i);
	}
	return 0;
}

enum { TOKENS_MOST = 100000000, CHOICES_MOST = 128 };

static int look_chat(const json_t *body, struct wire_ask *out, struct err *e)
{
	const json_t *options = js_get(body, "stream_options");
	if (options != NULL && !json_is_object(options))
		return err_field(e, ERR_BAD_REQUEST, "stream_options", "stream_options must be an object.");
	out->usage_asked = js_bool(options, "include_usage", false);
	out->tools = json_array_size(js_get(body, "functions")) > 0;
	if (look_array(body, "messages", true, e) != 0 ||
	    look_count(body, "n", CHOICES_MOST, &out->n, e) != 0 ||
	    look_count(body, "max_tokens", TOKENS_MOST, &out->max_out, e) != 0)
		return -1;
	return look_count(body, "max_completion_tokens", TOKENS_MOST, &out->max_out, e);
}

static int look_responses(const json_t *body, struct wire_ask *out, struct err *e)
{
	const json_t *input = js_get(body, "input");
	/* A stored prompt or an earlier response can stand in for it, where the upstream knows them. */
	bool needed = js_get(body, "previous_response_id") == NULL && js_get(body, "prompt") == NULL &&
	    js_get(body, "conversation") == NULL;
	if (!json_is_string(input) && look_array(body, "input", needed, e) != 0)
		return -1;
	return look_count(body, "max_output_tokens", TOKENS_MOST, &out->max_out, e);
}

static int look_messages(const json_t *body, struct wire_ask *out, struct err *e)
{
	if (look_array(body, "messages", true, e) != 0 ||
	    look_count(body, "max_tokens", TOKENS_MOST, &out->max_out, e) != 0)
		return -1;
	return 0;
}

int wire_look(enum provider_wire w, const json_t *body, struct wire_ask *out, struct err *e)
{
	static int (*const looks[WIRES])(
	    const json_t *, struct wire_ask *, struct err *) = { look_chat, look_responses, look_messages };
	*out = (struct wire_ask){ .n = 1 };
	if (!json_is_object(body))
		return err_set(e, ERR_BAD_REQUEST, "The body must be a JSON object.");
	if (look_model(body, out, e) != 0 || look_flag(body, "stream", &out->stream, e) != 0 ||
	    look_array(body, "tools", false, e) != 0 || looks[w](body, out, e) != 0)
		return -1;
	out->tools = out->tools || json_array_size(js_get(body, "tools")) > 0;
	return 0;
}

/* Reasoning that another wire's model wrote, which this wire's cannot check and would refuse. */
static bool foreign(const json_t *part)
{
	const char *type = js_str_or(part, "type", "");
	return (strcmp(type, "thinking") == 0 && wire_marked(js_str(part, "signature"))) ||
	    (strcmp(type, "redacted_thinking") == 0 && wire_marked(js_str(part, "data"))) ||
	    (strcmp(type, "reasoning") == 0 && wire_marked(js_str(part, "encrypted_content")));
}

/* A copy without foreign parts, or NULL when there is none. */
static json_t *without_foreign(const json_t *list)
{
	size_t i, found = 0;
	json_t *item;
	json_array_foreach(list, i, item)
		found += foreign(item);
	if (found == 0)
		return NULL;
	json_t *copy = js_pack("[]");
	json_array_foreach(list, i, item)
		if (!foreign(item))
			js_push(copy, json_incref(item));
	return copy;
}

static void clean_messages(json_t *body)
{
	size_t i;
	json_t *turn, *messages = json_object_get(body, "messages"), *copy = NULL;
	json_array_foreach(messages, i, turn) {
		json_t *content = without_foreign(json_object_get(turn, "content"));
		if (content == NULL)
			continue;
		if (copy == NULL)
			copy = json_copy(messages);
		json_t *other = json_copy(turn);
		if (other == NULL || copy == NULL)
			abort();
		js_set(other, "content", content);
		if (json_array_set_new(copy, i, other) != 0)
			abort();
	}
	if (copy != NULL)
		js_set(body, "messages", copy);
}

json_t *wire_forward(enum provider_wire w, const json_t *body, const struct wire_target *t)
{
	json_t *out = json_copy((json_t *)(uintptr_t)body); /* shallow: members are shared and not changed */
	if (out == NULL)
		abort();
	js_set_str(out, "model", t->model);
	if (w == WIRE_CHAT && json_is_true(json_object_get(out, "stream"))) {
		json_t *was = json_object_get(out, "stream_options");
		json_t *options = json_is_object(was) ? json_copy(was) : js_pack("{}");
		js_set(options, "include_usage", json_true());
		js_set(out, "stream_options", options);
	} else if (w == WIRE_RESPONSES) {
		json_t *input = without_foreign(json_object_get(out, "input"));
		if (input != NULL)
			js_set(out, "input", input);
	} else if (w == WIRE_MESSAGES) {
		clean_messages(out);
	}
	return out;
}
