/* What is carried, approximated, dropped and refused between the wires, row by row: MOD-1. */
#include "../t.h"

#include <stdlib.h>
#include <string.h>

#include "../streams.h"
#include "base/js.h"
#include "io/file.h"
#include "model/request.h"

enum { TEXT_BYTES = 4 << 20, ROWS_MAX = 400 };

static const char *const names[WIRES] = { "chat", "responses", "messages" };
static const struct wire_target target = { .model = "up" };

/* The least request of each wire. */
static json_t *base_of(enum provider_wire w)
{
	static const char *const bodies[WIRES] = {
		"{\"model\":\"p/m\",\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}",
		"{\"model\":\"p/m\",\"input\":\"hi\"}",
		"{\"model\":\"p/m\",\"max_tokens\":50,\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}",
	};
	struct err e = { 0 };
	return js_parse(bodies[w], strlen(bodies[w]), &e);
}

static enum provider_wire wire_of(const char *name)
{
	enum provider_wire w = WIRE_CHAT;
	while (strcmp(names[w], name) != 0)
		assert_true(++w <= WIRE_MESSAGES);
	return w;
}

static json_t *body_with(enum provider_wire w, json_t *set)
{
	json_t *body = base_of(w);
	assert_int_equal(json_object_update(body, set), 0);
	return body;
}

static json_t *rows(void)
{
	auto_buf struct buf b = BUF(TEXT_BYTES);
	struct err e = { 0 };
	assert_int_equal(file_read("tests/cases/model/rules.json", &b, &e), 0);
	json_t *v = js_parse(b.p, b.n, &e);
	assert_non_null(v);
	return v;
}

static const json_t *translated(
    struct mem *m, enum provider_wire from, enum provider_wire to, json_t *set, struct err *e)
{
	const struct wire_names *n;
	auto_json json_t *body = body_with(from, set);
	struct wire_ask ask;
	assert_int_equal(wire_look(from, body, &ask, e), 0);
	const json_t *out = wire_translate(m, from, to, body, &target, &n, e);
	/* What comes out is a request of the other wire. */
	assert_true(out == NULL || wire_look(to, out, &ask, e) == 0);
	return json_deep_copy(out);
}

static const struct wire_rule *rule_of(enum provider_wire w, const char *place, const char *key)
{
	for (const struct wire_rule *r = wire_rules; r->place != NULL; r++)
		if (r->from == w && strcmp(r->place, place) == 0 && strcmp(r->key, key) == 0)
			return r;
	fail_msg("there is no row %s %s %s", names[w], place, key);
	abort();
}

/* The members that differ, which is what a reviewer looks at in the golden file. */
static void differs(struct buf *out, const json_t *a, const json_t *b)
{
	const char *key;
	json_t *v;
	auto_mem struct mem *m = mem_new();
	json_object_foreach((json_t *)(uintptr_t)a, key, v) {
		if (!json_equal(v, json_object_get(b, key)))
			(void)buf_fmt(out, "    %s = %s\n", key, js_dump(m, v));
	}
	json_object_foreach((json_t *)(uintptr_t)b, key, v) {
		if (json_object_get(a, key) == NULL)
			(void)buf_fmt(out, "    %s is gone\n", key);
	}
}

static void one(const json_t *c, const struct wire_rule *r, enum provider_wire to, struct buf *out)
{
	struct err e = { 0 }, none = { 0 };
	auto_mem struct mem *m = mem_new();
	const char *param = json_string_value(json_array_get(c, 5));
	const json_t *with = mem_json(
	    m, (json_t *)(uintptr_t)translated(m, r->from, to, json_array_get(c, 3), &e));
	const json_t *without = mem_json(
	    m, (json_t *)(uintptr_t)translated(m, r->from, to, json_array_get(c, 4), &none));
	assert_non_null(without);
	(void)buf_fmt(out, "  -> %s: %s\n", names[to], wire_verb_name(r->verb[to]));
	if (r->verb[to] == WIRE_REFUSE) {
		assert_null(with);
		assert_int_equal(e.code, ERR_BAD_REQUEST);
		assert_string_equal(e.param, param != NULL ? param : r->key);
		(void)buf_fmt(out, "    %s\n", e.msg);
		return;
	}
	if (with == NULL)
		fail_msg("%s %s %s to %s: %s", names[r->from], r->place, r->key, names[to], e.msg);
	/* The model is the provider's whatever was asked, and what says what is so anyway changes nothing. */
	bool same = strcmp(r->key, "model") == 0 || strcmp(r->key, "text") == 0;
	if (r->verb[to] == WIRE_DROP || (same && json_equal(with, without)))
		assert_true(json_equal(with, without));
	else
		assert_false(json_equal(with, without));
	differs(out, with, without);
}

static void every_row_does_what_it_says(void **state)
{
	(void)state;
	auto_json json_t *all = rows();
	auto_buf struct buf out = BUF(TEXT_BYTES);
	size_t i;
	json_t *c;
	json_array_foreach(all, i, c) {
		enum provider_wire w = wire_of(json_string_value(json_array_get(c, 0)));
		const struct wire_rule *r = rule_of(
		    w, json_string_value(json_array_get(c, 1)), json_string_value(json_array_get(c, 2)));
		(void)buf_fmt(&out, "%s %s %s\n", names[w], r->place, r->key);
		for (enum provider_wire to = WIRE_CHAT; to <= WIRE_MESSAGES; to++)
			if (to != w)
				one(c, r, to, &out);
	}
	golden_is("tests/golden/wire-rules.txt", &out);
}

static void every_row_has_a_test(void **state)
{
	(void)state;
	auto_json json_t *all = rows();
	for (const struct wire_rule *r = wire_rules; r->place != NULL; r++) {
		size_t i, found = 0;
		json_t *c;
		json_array_foreach(all, i, c)
			found += strcmp(json_string_value(json_array_get(c, 0)), names[r->from]) == 0 &&
			    strcmp(json_string_value(json_array_get(c, 1)), r->place) == 0 &&
			    strcmp(json_string_value(json_array_get(c, 2)), r->key) == 0;
		if (found == 0)
			fail_msg("no case in rules.json for %s %s %s", names[r->from], r->place, r->key);
		for (const struct wire_rule *other = wire_rules; other < r; other++)
			assert_false(other->from == r->from && strcmp(other->place, r->place) == 0 &&
			    strcmp(other->key, r->key) == 0);
	}
}

static const char *place_name(const struct wire_rule *r)
{
	static const struct {
		const char *place, *name;
	} all[] = { { "body", "the request" }, { "message", "a message" }, { "*role", "a role" },
		{ "*part", "a part" }, { "*tool", "a tool" }, { "*item", "an input item" },
		{ "*block", "a block" }, { "*response_format", "response_format" },
		{ "*format", "text.format" } };
	for (size_t i = 0; i < sizeof all / sizeof *all; i++)
		if (strcmp(all[i].place, r->place) == 0)
			return all[i].name;
	return r->place;
}

static const char head[] =
    "# What is carried between the three wires\n\n"
    "Made of the table in `rules.c` by `make golden`; every row is tested in both directions "
    "(`tests/cases/model/rules.json`, with what\n"
    "comes out in `tests/golden/wire-rules.txt`). On the client's own wire nothing is translated: unknown "
    "fields pass.\n\n"
    "A field that is in no row is refused with a 400 that names it, unless it says what is so anyway (null, "
    "false, 0, empty). *Refused*\n"
    "is that 400; *dropped* says why nothing is lost that was asked for; *approximated* says how. A member "
    "of a part, item, block or tool\n"
    "that is not one of its own (lists in the readers) is refused likewise; hints on caching, loading and "
    "citing among them are dropped.\n\n"
    "Answers: text, refusals, calls, finish reasons and usage are carried in every direction. Reasoning: its "
    "readable text is carried\n"
    "(`reasoning_content`, a summary, `thinking`); what only its maker can read travels marked (`gh1.`) "
    "through the clients of responses and\n"
    "messages, is given back to its maker's wire and to no other. Citations, log probabilities, results of "
    "vendors' own tools and the echo of\n"
    "the request in a response are dropped. Arguments that are no JSON object are passed on as text; "
    "messages has no text there: an\n"
    "`upstream_error` instead, unless the limit of tokens cut them off. A refusal is `refusal` on messages; "
    "a paused turn is `stop`.\n\n";

static void table_of(enum provider_wire w, struct buf *out)
{
	enum provider_wire a = w == WIRE_CHAT ? WIRE_RESPONSES : WIRE_CHAT;
	enum provider_wire b = w == WIRE_MESSAGES ? WIRE_RESPONSES : WIRE_MESSAGES;
	(void)buf_fmt(out, "## From %s\n\n| in | what | to %s | to %s | |\n| --- | --- | --- | --- | --- |\n",
	    names[w], names[a], names[b]);
	for (const struct wire_rule *r = wire_rules; r->place != NULL; r++)
		if (r->from == w)
			(void)buf_fmt(out, "| %s | `%s` | %s | %s | %s |\n", place_name(r), r->key,
			    wire_verb_name(r->verb[a]), wire_verb_name(r->verb[b]), r->how);
	(void)buf_chr(out, '\n');
}

static void the_document_says_what_the_table_says(void **state)
{
	(void)state;
	auto_buf struct buf out = BUF(TEXT_BYTES);
	(void)buf_str(&out, head);
	for (enum provider_wire w = WIRE_CHAT; w <= WIRE_MESSAGES; w++)
		table_of(w, &out);
	golden_is("app/model/TRANSLATION.md", &out);
}

static void unknown_fields_are_refused_by_name_or_passed_on(void **state)
{
	(void)state;
	for (enum provider_wire from = WIRE_CHAT; from <= WIRE_MESSAGES; from++)
		for (enum provider_wire to = WIRE_CHAT; to <= WIRE_MESSAGES; to++) {
			auto_mem struct mem *m = mem_new();
			auto_json json_t *body = base_of(from);
			const struct wire_names *n;
			struct err e = { 0 };
			js_set_str(body, "brand_new", "x");
			if (from == to) {
				auto_json json_t *out = wire_forward(from, body, &target);
				assert_string_equal(js_str(out, "brand_new"), "x");
				continue;
			}
			assert_null(wire_translate(m, from, to, body, &target, &n, &e));
			assert_string_equal(e.param, "brand_new");
			e = (struct err){ 0 };
			js_set(body, "brand_new", NULL); /* says nothing */
			const char *list = from == WIRE_RESPONSES ? "input" : "messages";
			js_set(body, list,
			    js_pack("[{s:s,s:[{s:s,s:s,s:i}]}]", "role", "user", "content", "type",
				from == WIRE_RESPONSES ? "input_text" : "text", "text", "hi", "newer", 1));
			assert_null(wire_translate(m, from, to, body, &target, &n, &e));
			assert_string_equal(e.param,
			    from == WIRE_RESPONSES ? "input[0].content[0].newer"
						   : "messages[0].content[0].newer");
			json_object_del(
			    json_array_get(
				json_object_get(json_array_get(json_object_get(body, list), 0), "content"),
				0),
			    "newer");
			struct err fine = { 0 };
			assert_non_null(wire_translate(m, from, to, body, &target, &n, &fine));
		}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_row_does_what_it_says),
		cmocka_unit_test(every_row_has_a_test),
		cmocka_unit_test(the_document_says_what_the_table_says),
		cmocka_unit_test(unknown_fields_are_refused_by_name_or_passed_on),
	};
	return cmocka_run_group_tests_name("wire_rules", tests, NULL, NULL);
}
