/* What both sides of a sandbox's channel say: encoded and decoded alike, and nothing malformed accepted. */
#include "../t.h"

#include <string.h>

#include "base/mem.h"
#include "box/proto.h"

enum { BYTES = 4096 };

static const char *const argv[] = { "sh", "-c", "", "\xff\xfe" };
static const char *const env[] = { "A=1", "EMPTY=" };
static const struct proto_start start = { .timeout_ms = 1234567890123,
	.stdin_kind = PROTO_STDIN_FILE,
	.hold = true,
	.label = "cmd_1",
	.dir = "/work",
	.stdin_path = "in",
	.n_argv = 4,
	.argv = argv,
	.n_env = 2,
	.env = env };

static void a_start_comes_back_as_it_went(void **s)
{
	(void)s;
	unsigned char p[BYTES];
	struct proto_out o = { .p = p, .cap = sizeof p };
	proto_start_put(&o, &start);
	assert_false(o.bad);
	struct proto_in in = { .p = p, .n = o.n };
	struct proto_start got;
	assert_true(proto_start_get(&in, &got));
	assert_int_equal(got.timeout_ms, start.timeout_ms);
	assert_int_equal(got.stdin_kind, PROTO_STDIN_FILE);
	assert_true(got.hold);
	assert_string_equal(got.label, "cmd_1");
	assert_string_equal(got.dir, "/work");
	assert_string_equal(got.stdin_path, "in");
	assert_int_equal(got.n_argv, 4);
	for (int i = 0; i < 4; i++)
		assert_string_equal(proto_get_str(&got.argv_in), argv[i]);
	assert_int_equal(got.n_env, 2);
	for (int i = 0; i < 2; i++)
		assert_string_equal(proto_get_str(&got.env_in), env[i]);
	assert_true(proto_in_end(&got.argv_in) && proto_in_end(&got.env_in));
}

static void a_configuration_comes_back_as_it_went(void **s)
{
	(void)s;
	unsigned char p[BYTES];
	struct proto_out o = { .p = p, .cap = sizeof p };
	struct proto_config c = { .socket_path = "/run/box",
		.class = "exec",
		.workdir = "/work",
		.lease_ms = 9,
		.n_roots = 1,
		.roots = (const char *const[]){ "/work" },
		.n_env = 2,
		.env = env };
	memset(c.nonce, 7, sizeof c.nonce);
	proto_config_put(&o, &c);
	struct proto_in in = { .p = p, .n = o.n };
	struct proto_config got;
	assert_true(proto_config_get(&in, &got));
	assert_memory_equal(got.nonce, c.nonce, PROTO_NONCE);
	assert_string_equal(got.class, "exec");
	assert_string_equal(got.check_path, "");
	assert_string_equal(proto_get_str(&got.roots_in), "/work");
	assert_int_equal(got.lease_ms, 9);
}

typedef bool get_fn(struct proto_in *in);

static bool get_start(struct proto_in *in)
{
	struct proto_start m;
	return proto_start_get(in, &m);
}

static bool get_sub(struct proto_in *in)
{
	struct proto_sub m;
	return proto_sub_get(in, &m);
}

static bool get_item(struct proto_in *in)
{
	struct proto_item m;
	return proto_item_get(in, &m, 1) && proto_in_end(in);
}

static bool get_item_2(struct proto_in *in)
{
	struct proto_item m;
	return proto_item_get(in, &m, 2) && proto_in_end(in);
}

static bool get_signal(struct proto_in *in)
{
	struct proto_signal m;
	return proto_signal_get(in, &m);
}

static bool get_resize(struct proto_in *in)
{
	struct proto_resize m;
	return proto_resize_get(in, &m);
}

static bool get_file(struct proto_in *in)
{
	struct proto_file m;
	return proto_file_get(in, &m) && proto_in_end(in);
}

static bool get_config(struct proto_in *in)
{
	struct proto_config m;
	return proto_config_get(in, &m);
}

static size_t put(int what, unsigned char p[BYTES])
{
	struct proto_out o = { .p = p, .cap = BYTES };
	if (what == 0)
		proto_start_put(&o, &start);
	else if (what == 1)
		proto_sub_put(&o, &(struct proto_sub){ .cmd = 1, .streams = 3, .from = { 4, 5 } });
	else if (what == 2 || what == 5)
		proto_item_put(&o,
		    &(struct proto_item){ .cmd = 1,
			.label = "x",
			.exit = { .how = PROTO_EXITED, .message = "m" },
			.dir = "/d",
			.n_args = 2,
			.args = "a\0bc" },
		    what == 2 ? 1 : 2);
	else if (what == 6)
		proto_signal_put(&o, &(struct proto_signal){ .cmd = 1, .signal = 15, .to = PROTO_TO_GROUP });
	else if (what == 7)
		proto_resize_put(&o, &(struct proto_resize){ .cmd = 1, .cols = 80, .rows = 24 });
	else if (what == 8) {
		struct proto_start in_terminal = start;
		in_terminal.stdin_kind = PROTO_STDIN_PTY;
		in_terminal.cols = 80;
		proto_start_put(&o, &in_terminal);
	} else if (what == 3)
		proto_file_put(&o, &(struct proto_file){ .kind = PROTO_KIND_FILE, .name = "name" });
	else
		proto_config_put(
		    &o, &(struct proto_config){ .socket_path = "/s", .workdir = "/w", .lease_ms = 1 });
	assert_false(o.bad);
	return o.n;
}

/* Cut anywhere, or with a byte too many, nothing is accepted; with any byte changed, nothing is read beyond the end (ASan). */
static void no_part_of_a_payload_is_accepted(void **s)
{
	(void)s;
	static get_fn *const get[] = { get_start, get_sub, get_item, get_file, get_config, get_item_2,
		get_signal, get_resize, get_start };
	for (int what = 0; what < 9; what++) {
		unsigned char p[BYTES];
		size_t n = put(what, p);
		for (size_t cut = 0; cut <= n + 1; cut++) {
			auto_free unsigned char *copy = xcalloc(1, cut + 1);
			memcpy(copy, p, cut < n ? cut : n);
			struct proto_in in = { .p = copy, .n = cut };
			assert_int_equal(get[what](&in), cut == n);
		}
		for (size_t at = 0; at < n; at++)
			for (int v = 0; v < 256; v += 51) {
				auto_free unsigned char *copy = xcalloc(1, n);
				memcpy(copy, p, n);
				copy[at] = (unsigned char)v;
				struct proto_in in = { .p = copy, .n = n };
				(void)get[what](&in);
			}
	}
}

static void a_head_is_bounded_and_its_reserved_bytes_are_zero(void **s)
{
	(void)s;
	unsigned char p[PROTO_HEAD];
	struct proto_head h;
	proto_head_put(p, PROTO_OUT, 77, 1000);
	assert_true(proto_head_get(p, 1000, &h));
	assert_int_equal(h.type, PROTO_OUT);
	assert_int_equal(h.id, 77);
	assert_int_equal(h.length, 1000);
	assert_false(proto_head_get(p, 999, &h));
	p[5] = 1;
	assert_false(proto_head_get(p, 1000, &h));
}

static void a_writer_without_room_says_so_and_writes_nothing(void **s)
{
	(void)s;
	unsigned char p[16];
	memset(p, 0xaa, sizeof p);
	struct proto_out o = { .p = p, .cap = 10 };
	proto_put_u64(&o, 1);
	proto_put_str(&o, "x");
	assert_true(o.bad);
	proto_put_u8(&o, 1);
	assert_true(o.bad);
	for (int i = 10; i < 16; i++)
		assert_int_equal(p[i], 0xaa);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_start_comes_back_as_it_went),
		cmocka_unit_test(a_configuration_comes_back_as_it_went),
		cmocka_unit_test(no_part_of_a_payload_is_accepted),
		cmocka_unit_test(a_head_is_bounded_and_its_reserved_bytes_are_zero),
		cmocka_unit_test(a_writer_without_room_says_so_and_writes_nothing),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
