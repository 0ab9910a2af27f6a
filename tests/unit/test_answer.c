/* A plain answer of chat.completions is read without a tree, and as its tree would be. */
#include "../t.h"

#include <string.h>

#include "base/mem.h"
#include "model/wire_int.h"

enum { TEXT_BYTES = 1 << 16 };

/* What nearly every answer is. */
static const char *const plain[] = {
	"{\"choices\":[{\"message\":{}}]}",
	"{\"choices\":[{\"message\":{\"content\":\"a\"}}]}",
	" { \"choices\" : [ { \"message\" : { \"content\" : \"a\" } } ] } ",
	"{\"id\":\"i\",\"object\":\"chat.completion\",\"created\":1700000000,\"model\":\"m\",\"system_"
	"fingerprint\":null,"
	"\"choices\":[{\"index\":0,\"logprobs\":null,\"message\":{\"role\":\"assistant\",\"content\":\"a "
	"\\\"b\\\"\\n\\\\c\","
	"\"refusal\":null,\"annotations\":[]},\"finish_reason\":\"length\"}],\"usage\":{\"prompt_tokens\":21,"
	"\"completion_tokens\":10,\"total_tokens\":31,\"prompt_tokens_details\":{\"cached_tokens\":7,\"audio_"
	"tokens\":0},"
	"\"completion_tokens_details\":{\"reasoning_tokens\":3}},\"service_tier\":\"default\"}",
	"{\"id\":\"\xC3\xA9\",\"choices\":[{\"message\":{\"content\":\"\",\"refusal\":\"no\",\"tool_calls\":["
	"],"
	"\"function_call\":null,\"reasoning\":null},\"finish_reason\":\"content_filter\"}],\"usage\":null,"
	"\"error\":null}",
	"{\"choices\":[{\"message\":{\"content\":null},\"finish_reason\":null}],\"usage\":{\"prompt_tokens\":"
	"-1,"
	"\"completion_tokens\":2000000000,\"x\":\"y\",\"z\":1}}",
};
/* Each of these a tree refuses, or reads as something else than its beginning looks. */
static const char *const uneven[] = {
	"{\"choices\":[{\"message\":{\"content\":\"a\",\"content\":\"b\"}}]}",
	"{\"choices\":[{\"message\":{\"content\":\"a\",\"x\":1,\"x\":2}}]}",
	"{\"choices\":[{\"message\":{\"content\":\"a\"},\"x\":{\"y\":1,\"y\":2}}]}",
	"{\"choices\":[{\"message\":{\"content\":\"a\"}}],\"usage\":{\"a\":{\"b\":1,\"b\":1}}}",
	"{\"choices\":[{\"message\":{\"content\":\"a\"}}],\"choices\":[]}",
	"{\"choices\":[{\"message\":{\"\\u0063ontent\":\"a\"}}]}",
	"{\"choices\":[{\"message\":{\"content\":\"\\u0000\\ud800\"}}]}",
	"{\"choices\":[{\"message\":{\"content\":\"\xFF\"}}]}",
	"{\"choices\":[{\"message\":{\"content\":\"a\"}}],\"x\":1e999}",
	"{\"choices\":[{\"message\":{\"content\":\"a\"}}],\"x\":123456789012345678901234567890}",
	"{\"choices\":[{\"message\":{\"content\":\"a\"}}],\"usage\":{\"prompt_tokens\":1234567890123456789}}",
	"{\"choices\":[{\"message\":{\"content\":\"a\"}}],\"usage\":{\"prompt_tokens\":1.5,\"completion_"
	"tokens\":1}}",
	"{\"choices\":[{\"message\":{\"content\":\"a\"}}],\"usage\":5}",
	"{\"choices\":[{\"message\":{\"content\":\"a\"}}],\"error\":\"slow\"}",
	"{\"choices\":[{\"message\":{\"content\":\"a\"}}],\"status\":\"failed\"}",
	"{\"choices\":[{\"message\":{\"content\":\"a\"}}],\"type\":\"error\"}",
	"{\"choices\":[{\"message\":{\"content\":\"a\"}}],\"object\":\"error\"}",
	"{\"choices\":[{\"message\":{\"content\":\"a\",\"reasoning\":\"hm\"}}]}",
	"{\"choices\":[{\"message\":{\"content\":\"a\",\"reasoning_content\":\"hm\"}}]}",
	"{\"choices\":[{\"message\":{\"content\":[{\"text\":\"a\"}]}}]}",
	"{\"choices\":[{\"message\":{\"content\":5}}],\"id\":5}",
	"{\"choices\":[{\"message\":{\"tool_calls\":[{\"id\":\"1\",\"function\":{\"name\":\"f\","
	"\"arguments\":\"{\"}}]}}]}",
	"{\"choices\":[{\"message\":{\"function_call\":{\"name\":\"f\",\"arguments\":\"{}\"}}}]}",
	"{\"choices\":[{\"message\":{\"content\":\"a\"}},{\"message\":{\"content\":\"b\"}}]}",
	"{\"choices\":[{\"message\":null}]}",
	"{\"choices\":{}}",
	"{\"choices\":[{\"message\":{\"content\":\"a\"}}],\"a\\/b\":1,\"a/b\":2}",
	"{\"choices\":[{\"message\":{\"content\":\"a\"}}]} x",
	"{\"choices\":[{\"message\":{\"content\":\"a\"}}],}",
};

static void same_usage(const struct wire_usage *a, const struct wire_usage *b)
{
	assert_int_equal(a->known, b->known);
	assert_int_equal(a->odd, b->odd);
	assert_int_equal(a->part, b->part);
	assert_int_equal(a->input, b->input);
	assert_int_equal(a->cached, b->cached);
	assert_int_equal(a->cache_write, b->cache_write);
	assert_int_equal(a->output, b->output);
	assert_int_equal(a->reasoning, b->reasoning);
}

/* Behind a byte order mark it is read as a tree. */
static void same_as_a_tree(const char *text, size_t n)
{
	auto_mem struct mem *m = mem_new();
	struct err e = { 0 }, f = { 0 };
	struct wire_answer a, b;
	auto_buf struct buf marked = BUF(TEXT_BYTES);
	(void)buf_str(&marked, "\xEF\xBB\xBF");
	(void)buf_add(&marked, text, n);
	int rc = wire_answer_read(m, WIRE_CHAT, text, n, &a, &e);
	if (rc != wire_answer_read(m, WIRE_CHAT, marked.p, marked.n, &b, &f))
		fail_msg("%s / %s: %.*s", e.msg, f.msg, (int)n, text);
	assert_int_equal(e.code, f.code);
	if (rc != 0)
		return;
	assert_string_equal(a.id == NULL ? "-" : a.id, b.id == NULL ? "-" : b.id);
	assert_string_equal(a.model == NULL ? "-" : a.model, b.model == NULL ? "-" : b.model);
	assert_int_equal(a.finish, b.finish);
	assert_int_equal(a.fault, b.fault);
	assert_int_equal(a.n, b.n);
	assert_int_equal(a.unparsed_call, b.unparsed_call);
	same_usage(&a.usage, &b.usage);
	assert_int_equal(a.n_parts, b.n_parts);
	for (size_t i = 0; i < a.n_parts; i++) {
		assert_int_equal(a.parts[i].kind, b.parts[i].kind);
		assert_string_equal(a.parts[i].text, b.parts[i].text);
	}
}

static void a_plain_answer_is_read_in_place_as_its_tree_would_be(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof plain / sizeof *plain; i++) {
		auto_mem struct mem *m = mem_new();
		struct wire_answer a;
		size_t n = strlen(plain[i]);
		if (!wire_answer_plain(m, (struct str){ plain[i], n }, &a))
			fail_msg("left to the tree: %s", plain[i]);
		for (size_t cut = 1; cut <= n; cut++)
			same_as_a_tree(plain[i], cut);
	}
	for (size_t i = 0; i < sizeof uneven / sizeof *uneven; i++) {
		auto_mem struct mem *m = mem_new();
		struct wire_answer a;
		if (wire_answer_plain(m, str_of(uneven[i]), &a))
			fail_msg("not left to the tree: %s", uneven[i]);
		same_as_a_tree(uneven[i], strlen(uneven[i]));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_plain_answer_is_read_in_place_as_its_tree_would_be),
	};
	return cmocka_run_group_tests_name("answer", tests, NULL, NULL);
}
