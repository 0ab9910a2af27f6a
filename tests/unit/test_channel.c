/*
 * The channel against boxes that lie (SBX-63): a double that says hello properly and then whatever a test wants. Nothing may
 * crash, hang, or be believed; the channel is lost with a reason, and callers learn that the outcome is unknown (SBX-40).
 */
#include "../span.h"
#include "../t.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../liar.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/mem.h"
#include "sandbox/channel.h"

static void nothing(struct liar *l)
{
	(void)l;
}

/* ---- lies about one request; `lie` is what is said instead of an answer */

struct lie {
	const char *name, *why;
	uint8_t type;
	int id; /* relative to the request's */
	const char *payload;
	size_t n;
};
static const struct lie *lie;

static void ping_with_a_lie(struct liar *l)
{
	struct proto_head h = liar_hear(l);
	liar_tell(l, lie->type, h.id + (uint32_t)lie->id, lie->payload, lie->n);
}

#define SAID(text) text, sizeof(text) - 1

static void a_wrong_answer_loses_the_channel(void **s)
{
	(void)s;
	static const struct lie lies[] = {
		{ "short", "a frame that makes no sense", PROTO_DONE, 0, SAID("\1\0\0\0") },
		{ "long", "a frame that makes no sense", PROTO_DONE, 0, SAID("\1\0\0\0\0\0\0\0\0") },
		{ "negative", "a frame that makes no sense", PROTO_DONE, 0,
		    SAID("\377\377\377\377\377\377\377\377") },
		{ "another's", "it answered what nobody asked", PROTO_DONE, 1, SAID("\0\0\0\0\0\0\0\0") },
		{ "past", "it answered what nobody asked", PROTO_DONE, -42, SAID("\0\0\0\0\0\0\0\0") },
		{ "started", "a frame that nobody asked for", PROTO_STARTED, 0, SAID("\5\0\0\0") },
		{ "output", "a frame that nobody asked for", PROTO_OUT, 0, SAID("\1\0\0\0\0\0\0\0\0x") },
		{ "request", "a frame that makes no sense", PROTO_START, 0, SAID("x") },
		{ "type", "a frame that makes no sense", 255, 0, SAID("") },
		{ "unending text", "a frame that makes no sense", PROTO_ERROR, 0,
		    SAID("\1\377\377\377\377abc") },
		{ "text with NUL", "a frame that makes no sense", PROTO_ERROR, 0, SAID("\1\3\0\0\0a\0c\0") },
	};
	for (size_t i = 0; i < sizeof lies / sizeof lies[0]; i++) {
		lie = &lies[i];
		struct liar *l = liar_up(ping_with_a_lie, 0);
		struct err e = { 0 };
		struct channel_wait w = liar_wait();
		assert_int_equal(channel_ping(l->c, &w, &e), -1);
		assert_int_equal(e.code, ERR_UPSTREAM);
		assert_string_equal(e.reason, "lost");
		assert_non_null(strstr(e.msg, lie->why));
		assert_true(channel_lost(l->c));
		err_clear(&e);
		assert_int_equal(channel_ping(l->c, &w, &e), -1); /* at once, and for good */
		assert_string_equal(e.reason, "lost");
		liar_down(l);
	}
}

static void garbage(struct liar *l)
{
	char noise[256];
	memset(noise, 0xee, sizeof noise);
	(void)liar_hear(l);
	(void)send(l->fd, noise, sizeof noise, MSG_NOSIGNAL);
}

static void hang_up(struct liar *l)
{
	(void)liar_hear(l);
	(void)shutdown(l->fd, SHUT_RDWR);
}

static void half_a_frame(struct liar *l)
{
	struct proto_head h = liar_hear(l);
	unsigned char head[PROTO_HEAD];
	proto_head_put(head, PROTO_DONE, h.id, 8);
	(void)send(l->fd, head, sizeof head, MSG_NOSIGNAL);
}

static void garbage_and_hang_ups_are_the_same(void **s)
{
	(void)s;
	for (int i = 0; i < 2; i++) {
		struct liar *l = liar_up(i == 0 ? garbage : hang_up, 0);
		struct err e = { 0 };
		struct channel_wait w = liar_wait();
		assert_int_equal(channel_ping(l->c, &w, &e), -1);
		assert_string_equal(e.reason, "lost");
		liar_down(l);
	}
}

static bool at_once(void *arg)
{
	return ++*(int *)arg > 2;
}

static void silence_ends_at_the_deadline_or_when_cancelled(void **s)
{
	(void)s;
	struct liar *l = liar_up(half_a_frame, 0);
	struct err e = { 0 };
	int asked = 0;
	struct span before = span_begin();
	struct channel_wait w = { .deadline_ms = clock_ms() + 300 };
	assert_int_equal(channel_ping(l->c, &w, &e), -1);
	assert_int_equal(e.code, ERR_TIMEOUT);
	assert_null(e.reason);
	assert_true(clock_ms() >= w.deadline_ms && span_ms(&before) < 2300);
	w = (struct channel_wait){ .deadline_ms = clock_ms() + 60000, .cancelled = at_once, .arg = &asked };
	before = span_begin();
	err_clear(&e);
	assert_int_equal(channel_ping(l->c, &w, &e), -1);
	assert_string_equal(e.reason, "cancelled");
	assert_true(span_ms(&before) < 3000);
	assert_false(channel_lost(l->c));
	liar_down(l);
}

static void answer_once_then_be_silent(struct liar *l)
{
	struct proto_head h = liar_hear(l);
	liar_tell(l, PROTO_DONE, h.id, "\0\0\0\0\0\0\0\0", 8);
	(void)liar_hear(l);
	h = liar_hear(l);
	assert_int_equal(h.type, PROTO_PING); /* asked whether it is there */
}

/* A stopped box: whoever waits learns it, long before his own deadline; but silence that nobody minds is no fault. */
static void a_box_that_answers_nothing_is_lost(void **s)
{
	(void)s;
	int silence_ms = span_room_ms(1000);
	struct liar *l = liar_up(answer_once_then_be_silent, silence_ms);
	struct err e = { 0 };
	struct channel_wait w = { .deadline_ms = clock_ms() + 5 * PATIENCE_MS };
	struct channel_event ev;
	(void)usleep((useconds_t)(silence_ms + 500) * 1000);
	assert_int_equal(channel_ping(l->c, &w, &e), 0);
	struct channel_cmd *k = channel_follow(l->c, 7, &e);
	assert_non_null(k);
	assert_int_equal(channel_next(k, &w, &ev, &e), -1);
	assert_string_equal(e.reason, "lost");
	assert_non_null(strstr(e.msg, "it does not answer"));
	channel_cmd_close(k);
	liar_down(l);
}

/* ---- lies about a command */

static void (*say_of_command)(struct liar *l, uint32_t sub);

static void start_then(struct liar *l)
{
	struct proto_head start = liar_hear(l);
	assert_int_equal(start.type, PROTO_START);
	assert_int_equal(start.id, 42); /* goes on after what the hello said */
	struct proto_head sub = liar_hear(l);
	assert_int_equal(sub.type, PROTO_SUB);
	liar_tell(l, PROTO_STARTED, start.id, "\7\0\0\0", 4);
	say_of_command(l, sub.id);
}

static void say_out(struct liar *l, uint32_t id, uint8_t stream, uint64_t at, size_t n)
{
	struct proto_out o = { .p = l->msg, .cap = sizeof l->msg };
	proto_put_u8(&o, stream);
	proto_put_u64(&o, at);
	memset(o.p + o.n, 'x', n);
	liar_tell(l, PROTO_OUT, id, l->msg, o.n + n);
}

static void say_exit(struct liar *l, uint32_t id, const struct proto_exit *x)
{
	struct proto_out o = { .p = l->msg, .cap = sizeof l->msg };
	proto_exit_put(&o, x);
	liar_tell(l, PROTO_EXIT, id, l->msg, o.n);
}

/* Read it to its end: how many bytes came, and what the end was. */
static uint64_t follow(struct liar *l, struct channel_exit *x, struct err *e)
{
	const char *const argv[] = { "x", NULL };
	struct channel_wait w = liar_wait();
	struct channel_event ev;
	uint64_t n = 0;
	struct channel_cmd *k = channel_start(l->c, &(struct channel_spec){ .argv = argv }, &w, e);
	if (k == NULL)
		return 0;
	assert_int_equal(channel_cmd_pid(k), 7);
	assert_int_equal(channel_cmd_id(k), 42);
	while (channel_next(k, &w, &ev, e) == 0 && ev.type == CHANNEL_OUT)
		n += ev.n;
	if (e->code == ERR_NONE) {
		assert_int_equal(ev.type, CHANNEL_EXIT);
		*x = ev.exit;
	}
	channel_cmd_close(k);
	return n;
}

static void truth(struct liar *l, uint32_t id)
{
	say_out(l, id, 1, 10, 5);
	say_out(l, id, 2, 0, 3);
	say_out(l, id, 1, 20, 5); /* a gap is honest */
	say_exit(l, id,
	    &(struct proto_exit){ .how = PROTO_SIGNALED,
		.code = 9,
		.flags = PROTO_STOPPED,
		.bytes = { 25, 3 },
		.message = "a\tb\033[2J" });
}

static void backwards(struct liar *l, uint32_t id)
{
	say_out(l, id, 1, 10, 5);
	say_out(l, id, 1, 14, 5);
}

static void beyond(struct liar *l, uint32_t id)
{
	say_out(l, id, 1, INT64_MAX - 2, 5);
}

static void empty(struct liar *l, uint32_t id)
{
	say_out(l, id, 1, 0, 0);
}

static void third_stream(struct liar *l, uint32_t id)
{
	say_out(l, id, 3, 0, 1);
}

static void less_than_it_said(struct liar *l, uint32_t id)
{
	say_out(l, id, 1, 0, 5);
	say_exit(l, id, &(struct proto_exit){ .how = PROTO_EXITED, .bytes = { 4, 0 } });
}

static void running_exit(struct liar *l, uint32_t id)
{
	say_exit(l, id, &(struct proto_exit){ .how = PROTO_RUNNING });
}

static void done_without_exit(struct liar *l, uint32_t id)
{
	liar_tell(l, PROTO_DONE, id, "\0\0\0\0\0\0\0\0", 8);
}

static void twice(struct liar *l, uint32_t id)
{
	liar_tell(l, PROTO_STARTED, 42, "\7\0\0\0", 4);
	say_exit(l, id, &(struct proto_exit){ .how = PROTO_EXITED });
}

static void cut_off(struct liar *l, uint32_t id)
{
	say_out(l, id, 1, 0, 5);
	(void)shutdown(l->fd, SHUT_RDWR);
}

/* Output without end, whatever credit says. */
static void flood(struct liar *l, uint32_t id)
{
	for (uint64_t at = 0; at < 64 << 20; at += PROTO_DATA_MAX)
		say_out(l, id, 1, at, PROTO_DATA_MAX);
}

static void what_is_said_of_a_command_is_checked(void **s)
{
	(void)s;
	struct channel_exit x;
	struct err e = { 0 };
	say_of_command = truth;
	struct liar *l = liar_up(start_then, 0);
	assert_int_equal(follow(l, &x, &e), 13);
	assert_int_equal(e.code, ERR_NONE);
	assert_string_equal(x.signal, "SIGKILL");
	assert_int_equal(x.exit_code, -1);
	assert_true(x.stopped);
	assert_string_equal(x.message, "a?b?[2J"); /* nothing for a terminal */
	liar_down(l);
	static void (*const lies[])(struct liar * l, uint32_t sub) = { backwards, beyond, empty, third_stream,
		less_than_it_said, running_exit, done_without_exit, twice, cut_off };
	for (size_t i = 0; i < sizeof lies / sizeof lies[0]; i++) {
		say_of_command = lies[i];
		l = liar_up(start_then, 0);
		err_clear(&e);
		assert_true(follow(l, &x, &e) <= 5);
		assert_string_equal(e.reason, "lost"); /* fault 15: never a made-up exit */
		liar_down(l);
	}
}

static void output_beyond_its_credit_is_not_buffered(void **s)
{
	(void)s;
	const char *const argv[] = { "x", NULL };
	struct err e = { 0 };
	struct channel_wait w = liar_wait();
	struct channel_event ev;
	uint64_t n = 0;
	say_of_command = flood;
	struct liar *l = liar_up(start_then, 0);
	struct channel_cmd *k = channel_start(l->c, &(struct channel_spec){ .argv = argv }, &w, &e);
	assert_non_null(k);
	while (!channel_lost(l->c))
		(void)usleep(1000); /* nobody reads: only the credit bounds it */
	while (channel_next(k, &w, &ev, &e) == 0)
		n += ev.n;
	assert_true(n <= PROTO_WINDOW);
	assert_non_null(strstr(e.msg, "more than it was allowed to"));
	channel_cmd_close(k);
	liar_down(l);
}

/* A box that reads nothing: what we send is bounded in time. */
static void a_box_that_does_not_read_ends_in_a_deadline(void **s)
{
	(void)s;
	struct liar *l = liar_up(nothing, 0);
	auto_free char *in = xcalloc(1, PROTO_STDIN_MAX);
	const char *const argv[] = { "x", NULL };
	struct err e = { 0 };
	struct channel_wait w = { .deadline_ms = clock_ms() + 300 };
	struct span before = span_begin();
	struct channel_spec spec = { .argv = argv, .stdin_p = in, .stdin_n = PROTO_STDIN_MAX };
	assert_null(channel_start(l->c, &spec, &w, &e));
	assert_int_equal(e.code, ERR_TIMEOUT);
	assert_true(span_ms(&before) < 2000);
	liar_down(l);
}

/* ---- lies about files */

static void (*say_of_file)(struct liar *l, uint32_t id);

static void file_then(struct liar *l)
{
	struct proto_head h = liar_hear(l);
	say_of_file(l, h.id);
}

static void say_file(struct liar *l, uint8_t type, uint32_t id, uint8_t kind, const char *name)
{
	struct proto_out o = { .p = l->msg, .cap = sizeof l->msg };
	struct proto_file f = { .kind = kind, .mode = 0644, .size = 5, .name = name };
	proto_file_put(&o, &f);
	liar_tell(l, type, id, l->msg, o.n);
}

static void say_node(struct liar *l, uint32_t id, uint8_t kind, const char *path)
{
	struct proto_out o = { .p = l->msg, .cap = sizeof l->msg };
	struct proto_node n = { .kind = kind, .mode = 0644, .size = 5, .path = path, .target = "" };
	proto_node_put(&o, &n);
	liar_tell(l, PROTO_NODES, id, l->msg, o.n);
}

static void say_data(struct liar *l, uint32_t id, uint64_t at, size_t n)
{
	struct proto_out o = { .p = l->msg, .cap = sizeof l->msg };
	proto_put_u64(&o, at);
	memset(o.p + o.n, 'x', n);
	liar_tell(l, PROTO_DATA, id, l->msg, o.n + n);
}

static void data_first(struct liar *l, uint32_t id)
{
	say_data(l, id, 0, 1);
}

static void data_elsewhere(struct liar *l, uint32_t id)
{
	say_file(l, PROTO_FILE, id, PROTO_KIND_FILE, "");
	say_data(l, id, 1, 1);
}

static void data_flood(struct liar *l, uint32_t id)
{
	say_file(l, PROTO_FILE, id, PROTO_KIND_FILE, "");
	for (uint64_t at = 0; at < 1 << 20; at += PROTO_DATA_MAX)
		say_data(l, id, at, PROTO_DATA_MAX);
}

static void named_file(struct liar *l, uint32_t id)
{
	say_file(l, PROTO_FILE, id, PROTO_KIND_FILE, "x");
}

static void odd_kind(struct liar *l, uint32_t id)
{
	say_file(l, PROTO_FILE, id, PROTO_KIND_OTHER, "");
}

static void odd_node(struct liar *l, uint32_t id)
{
	say_node(l, id, PROTO_KIND_OTHER + 1, "");
}

static void node_before_the_place(struct liar *l, uint32_t id)
{
	say_node(l, id, PROTO_KIND_FILE, "a");
}

static void two_places(struct liar *l, uint32_t id)
{
	say_node(l, id, PROTO_KIND_DIR, "");
	say_node(l, id, PROTO_KIND_DIR, "");
}

static void node_dotdot(struct liar *l, uint32_t id)
{
	say_node(l, id, PROTO_KIND_DIR, "");
	say_node(l, id, PROTO_KIND_FILE, "a/../../b");
}

static void node_absolute(struct liar *l, uint32_t id)
{
	say_node(l, id, PROTO_KIND_DIR, "");
	say_node(l, id, PROTO_KIND_FILE, "/etc");
}

static void nodes_without_end(struct liar *l, uint32_t id)
{
	say_node(l, id, PROTO_KIND_DIR, "");
	for (int i = 0; i <= PROTO_ENTRIES_MAX; i++)
		say_node(l, id, PROTO_KIND_FILE, "a");
}

static void very_long_nodes(struct liar *l, uint32_t id)
{
	char path[LIMIT_PATH_BYTES];
	memset(path, 'x', sizeof path - 1);
	path[sizeof path - 1] = 0;
	say_node(l, id, PROTO_KIND_DIR, "");
	for (int i = 0; i <= PROTO_LOOK_BYTES / LIMIT_PATH_BYTES; i++)
		say_node(l, id, PROTO_KIND_FILE, path);
}

static void credit_for_nothing(struct liar *l, uint32_t id)
{
	liar_tell(l, PROTO_CREDIT, id, "\1\0\0\0", 4);
}

static int take_slowly(void *arg, const char *p, size_t n)
{
	(void)arg;
	(void)p;
	(void)n;
	(void)usleep(20000);
	return 0;
}

static int no_node(void *arg, const struct channel_node *n)
{
	(void)arg;
	(void)n;
	return 0;
}

static ssize_t no_data_yet(void *arg, void *p, size_t n)
{
	(void)p;
	(void)n;
	while (!channel_lost(arg))
		(void)usleep(1000);
	return 0;
}

static void what_is_said_of_files_is_checked(void **s)
{
	(void)s;
	static void (*const reads[])(
	    struct liar * l, uint32_t id) = { data_first, data_elsewhere, data_flood, named_file, odd_kind };
	static void (*const looks[])(struct liar * l, uint32_t id) = { data_first, odd_kind, odd_node,
		node_before_the_place, two_places, node_dotdot, node_absolute, nodes_without_end,
		very_long_nodes };
	enum { READS = sizeof reads / sizeof reads[0], LOOKS = sizeof looks / sizeof looks[0] };
	const struct channel_look look = { .path = "f", .depth = 1, .nodes = PROTO_ENTRIES_MAX };
	for (size_t i = 0; i <= READS + LOOKS; i++) {
		say_of_file = i < READS ? reads[i]
		    : i < READS + LOOKS ? looks[i - READS]
					: credit_for_nothing;
		struct liar *l = liar_up(file_then, 0);
		struct err e = { 0 };
		struct channel_wait w = liar_wait();
		if (i < READS)
			assert_int_equal(channel_get(l->c, "f", 0, -1, &w, NULL, take_slowly, NULL, &e), -1);
		else if (i < READS + LOOKS)
			assert_int_equal(channel_look(l->c, &look, &w, no_node, NULL, NULL, &e), -1);
		else
			assert_int_equal(channel_put(l->c, "f", -1, &w, no_data_yet, l->c, NULL, &e), -1);
		assert_string_equal(e.reason, "lost");
		liar_down(l);
	}
}

/* Random frames about a command that runs: never a crash, never a hang. */
static void noise(struct liar *l, uint32_t id)
{
	unsigned char p[128];
	for (int i = 0; i < 50; i++) {
		size_t n = (size_t)random() % sizeof p;
		for (size_t k = 0; k < n; k++)
			p[k] = random() % 2 == 0 ? 0 : (unsigned char)random();
		liar_tell(
		    l, (uint8_t)(64 + random() % 10), random() % 8 == 0 ? (uint32_t)random() : id, p, n);
	}
	(void)shutdown(l->fd, SHUT_RDWR);
}

static void noise_loses_the_channel_and_nothing_else(void **s)
{
	(void)s;
	srandom(20261129);
	say_of_command = noise;
	for (int i = 0; i < 100; i++) {
		struct channel_exit x;
		struct err e = { 0 };
		struct liar *l = liar_up(start_then, 0);
		(void)follow(l, &x, &e);
		liar_down(l);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_wrong_answer_loses_the_channel),
		cmocka_unit_test(garbage_and_hang_ups_are_the_same),
		cmocka_unit_test(silence_ends_at_the_deadline_or_when_cancelled),
		cmocka_unit_test(a_box_that_answers_nothing_is_lost),
		cmocka_unit_test(what_is_said_of_a_command_is_checked),
		cmocka_unit_test(output_beyond_its_credit_is_not_buffered),
		cmocka_unit_test(a_box_that_does_not_read_ends_in_a_deadline),
		cmocka_unit_test(what_is_said_of_files_is_checked),
		cmocka_unit_test(noise_loses_the_channel_and_nothing_else),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
