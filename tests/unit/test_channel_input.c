/* The channel against boxes that lie about input and about what they list (SBX-46, SBX-63). */
#include "../t.h"

#include <string.h>
#include <sys/socket.h>

#include "../liar.h"
#include "base/clock.h"
#include "sandbox/channel.h"

/* Three bytes were given; more were not taken. */
static void took_too_much(struct liar *l)
{
	struct proto_head h = liar_hear(l);
	assert_int_equal(h.type, PROTO_INPUT);
	liar_tell(l, PROTO_DONE, h.id, "\4\0\0\0\0\0\0\0", 8);
}

static void gives_credit(struct liar *l)
{
	struct proto_head h = liar_hear(l);
	liar_tell(l, PROTO_CREDIT, h.id, "\1\0\0\0", 4);
}

static void took_what_it_says(struct liar *l)
{
	struct proto_head h = liar_hear(l);
	liar_tell(l, PROTO_DONE, h.id, "\2\0\0\0\0\0\0\0", 8);
}

/* Neither answered nor, when it is taken back, told of. */
static void takes_and_is_silent(struct liar *l)
{
	(void)liar_hear(l);
	(void)liar_hear(l);
	(void)shutdown(l->fd, SHUT_RDWR);
}

static void what_is_said_of_input_is_checked(void **s)
{
	(void)s;
	static void (*const lies[])(struct liar * l) = { took_too_much, gives_credit, takes_and_is_silent };
	const struct channel_input in = { .cmd = 1, .p = "abc", .n = 3, .at = PROTO_APPEND };
	uint64_t taken;
	for (size_t i = 0; i < sizeof lies / sizeof lies[0]; i++) {
		struct liar *l = liar_up(lies[i], 0);
		struct err e = { 0 };
		struct channel_wait w = liar_wait();
		assert_int_equal(channel_input(l->c, &in, &w, &taken, &e), -1);
		assert_int_equal(e.code, ERR_UPSTREAM);
		assert_string_equal(e.reason, "lost");
		liar_down(l);
	}
	struct liar *l = liar_up(took_what_it_says, 0);
	struct err e = { 0 };
	struct channel_wait w = liar_wait();
	assert_int_equal(channel_input(l->c, &in, &w, &taken, &e), 0);
	assert_int_equal(taken, 2);
	liar_down(l);
}

static bool as_long;

/* As many commands as there can be, and then one more; or arguments that are longer than is told. */
static void tells_too_much(struct liar *l)
{
	static const char args[PROTO_TOLD_MAX];
	struct proto_head h = liar_hear(l);
	for (int i = 0; i <= 2 * PROTO_COMMANDS_MAX; i++) {
		struct proto_out o = { .p = l->msg, .cap = sizeof l->msg };
		proto_put_u32(&o, 1);
		proto_item_put(&o,
		    &(struct proto_item){ .cmd = 1,
			.n_args = as_long ? PROTO_TOLD_MAX : 1,
			.args = args,
			.dir = "",
			.label = "l" },
		    PROTO_VERSION);
		if (as_long)
			proto_item_put(&o, &(struct proto_item){ .cmd = 2 }, PROTO_VERSION);
		liar_tell(l, PROTO_LISTED, h.id, l->msg, o.n);
	}
	liar_tell(l, PROTO_DONE, h.id, "\0\0\0\0\0\0\0\0", 8);
}

static void what_is_said_of_all_commands_is_bounded(void **s)
{
	(void)s;
	for (int i = 0; i < 2; i++) {
		as_long = i == 1;
		struct liar *l = liar_up(tells_too_much, 0);
		struct err e = { 0 };
		struct channel_wait w = liar_wait();
		struct channel_item *items;
		assert_int_equal(channel_list(l->c, 0, &w, &items, &e), -1);
		assert_null(items);
		assert_string_equal(e.reason, "lost");
		liar_down(l);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_said_of_input_is_checked),
		cmocka_unit_test(what_is_said_of_all_commands_is_bounded),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
