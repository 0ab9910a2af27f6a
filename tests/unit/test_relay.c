/* A command's events as lines (SBX-42): whole characters, no byte lost, offsets that add up. */
#include "../t.h"

#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/js.h"
#include "base/limits.h"
#include "base/ndjson.h"
#include "sandbox/relay.h"

/* ---- a channel that tells what a test has prepared */

static struct {
	struct channel_event ev[64];
	int n, at;
	int lost_at; /* the event at which the channel is lost; -1: never */
	int swept, condemned, resumed;
	uint64_t resumed_from[2];
	int oom;
	bool ending;
} ch;

int channel_next(struct channel_cmd *k, const struct channel_wait *w, struct channel_event *ev, struct err *e)
{
	(void)k, (void)w;
	if (ch.at == ch.lost_at) {
		err_set(e, ERR_UPSTREAM, "lost");
		e->reason = "lost";
		return -1;
	}
	assert_true(ch.at < ch.n);
	*ev = ch.ev[ch.at++];
	return 0;
}

void channel_cmd_close(struct channel_cmd *k)
{
	(void)k;
}

struct channel_cmd *channel_resume(
    struct channel *c, uint32_t cmd, const uint64_t from[2], bool live, struct err *e)
{
	(void)c, (void)cmd, (void)live, (void)e;
	ch.resumed++;
	ch.resumed_from[0] = from[0];
	ch.resumed_from[1] = from[1];
	return (struct channel_cmd *)&ch;
}

struct channel *held_channel(struct held *h)
{
	(void)h;
	return NULL;
}

void held_sweep(struct held *h, const char *cmd)
{
	(void)h, (void)cmd;
	ch.swept++;
}

void held_condemn(struct held *h, const char *why)
{
	(void)h, (void)why;
	ch.condemned++;
}

int held_oom(struct held *h, const char *cmd, bool ended)
{
	(void)h, (void)cmd, (void)ended;
	return ch.oom;
}

bool held_ending(struct held *h)
{
	(void)h;
	return ch.ending;
}

void held_why(struct held *h, struct buf *out)
{
	(void)h;
	(void)buf_str(out, "It died of a cold.");
}

/* ---- a client that keeps what it is told */

static struct buf told;
static bool client_left, process_ends;

static int r_write(struct reply *r, const void *p, size_t n)
{
	(void)r;
	return client_left ? -1 : buf_add(&told, p, n);
}

static int r_flush(struct reply *r)
{
	(void)r;
	return client_left ? -1 : 0;
}

static bool r_gone(struct reply *r)
{
	(void)r;
	return client_left;
}

static bool r_draining(struct reply *r)
{
	(void)r;
	return process_ends;
}

static const struct reply_vt vt = {
	.write = r_write, .flush = r_flush, .gone = r_gone, .draining = r_draining
};

/* ---- helpers */

static void event_out(int stream, uint64_t offset, const char *p, size_t n)
{
	ch.ev[ch.n++] = (struct channel_event){
		.type = CHANNEL_OUT, .stream = stream, .offset = offset, .p = p, .n = n
	};
}

static struct channel_exit *event_exit(int code)
{
	struct channel_event *ev = &ch.ev[ch.n++];
	*ev = (struct channel_event){ .type = CHANNEL_EXIT,
		.exit = { .how = PROTO_EXITED, .exit_code = code } };
	return &ev->exit;
}

static void run_with(struct relay_opts o, struct channel_cmd *k)
{
	auto_mem struct mem *m = mem_new();
	struct reply r = { .vt = &vt, .begun = true };
	struct ctx c = { .mem = m, .reply = &r };
	o.cmd = "cmd_x";
	relay_run(&c, &o, k);
}

static void run(struct relay_opts o)
{
	run_with(o, (struct channel_cmd *)&ch);
}

struct got {
	struct buf bytes[2];
	int lines;
	char last[16];
	json_t *end;
	bool base64;
};

/* Put the lines together again and check each against its offset. */
static struct got read_lines(uint64_t from)
{
	struct got g = { .bytes = { BUF(8 << 20), BUF(8 << 20) } };
	struct ndjson nd = ndjson_new(8 << 20);
	struct str line;
	assert_int_equal(ndjson_feed(&nd, buf_c(&told), told.n), 0);
	while (ndjson_next(&nd, &line)) {
		struct err e = { 0 };
		assert_true(line.n < LIMIT_LINE_BYTES);
		auto_json json_t *j = js_parse(line.p, line.n, &e);
		assert_non_null(j);
		const char *type = js_str(j, "type"), *data = js_str_or(j, "data", "");
		int i = strcmp(type, "stderr") == 0;
		g.lines++;
		(void)snprintf(g.last, sizeof g.last, "%s", type);
		if (strcmp(type, "exit") == 0 || strcmp(type, "lost") == 0 || strcmp(type, "reconnect") == 0)
			g.end = json_incref(j);
		if (i == 0 && strcmp(type, "stdout") != 0)
			continue;
		assert_int_equal(js_int(j, "offset", -1), (long long)(from + g.bytes[i].n));
		unsigned char raw[3 * LIMIT_LINE_BYTES / 4];
		if (strcmp(js_str(j, "enc"), "base64") == 0) {
			ssize_t n = b64_decode(data, strlen(data), raw);
			assert_true(n > 0);
			(void)buf_add(&g.bytes[i], raw, (size_t)n);
			g.base64 = true;
		} else {
			(void)buf_str(&g.bytes[i], data);
		}
	}
	ndjson_free(&nd);
	return g;
}

static void got_free(struct got *g)
{
	buf_free(&g->bytes[0]);
	buf_free(&g->bytes[1]);
	json_decref(g->end);
}

static int fresh(void **s)
{
	(void)s;
	memset(&ch, 0, sizeof ch);
	ch.lost_at = -1;
	told = BUF(16 << 20);
	client_left = process_ends = false;
	return 0;
}

static int done(void **s)
{
	(void)s;
	buf_free(&told);
	return 0;
}

/* ---- tests */

static void a_character_cut_anywhere_arrives_whole(void **s)
{
	(void)s;
	static const char text[] = "a\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80z";
	const size_t n = sizeof text - 1;
	for (size_t cut = 0; cut <= n; cut++)
		for (size_t cut2 = cut; cut2 <= n; cut2++) {
			(void)done(NULL), (void)fresh(NULL);
			event_out(1, 0, text, cut);
			event_out(1, cut, text + cut, cut2 - cut);
			event_out(1, cut2, text + cut2, n - cut2);
			(void)event_exit(0);
			run((struct relay_opts){ 0 });
			struct got g = read_lines(0);
			assert_false(g.base64);
			assert_string_equal(buf_c(&g.bytes[0]), text);
			assert_string_equal(g.last, "exit");
			got_free(&g);
		}
}

static void bytes_that_are_no_text_are_base64_and_complete(void **s)
{
	(void)s;
	char bytes[512];
	for (size_t i = 0; i < sizeof bytes; i++)
		bytes[i] = (char)i;
	event_out(2, 0, bytes, 100);
	event_out(2, 100, bytes + 100, 156);
	event_out(2, 256, bytes + 256, 256);
	(void)event_exit(0);
	run((struct relay_opts){ 0 });
	struct got g = read_lines(0);
	assert_true(g.base64);
	assert_int_equal(g.bytes[1].n, sizeof bytes);
	assert_memory_equal(g.bytes[1].p, bytes, sizeof bytes);
	got_free(&g);
}

static void a_character_that_never_ends_is_told_at_the_exit(void **s)
{
	(void)s;
	event_out(1, 0, "ab\xe2\x82", 4);
	(void)event_exit(0);
	run((struct relay_opts){ 0 });
	struct got g = read_lines(0);
	assert_int_equal(g.bytes[0].n, 4);
	assert_memory_equal(g.bytes[0].p, "ab\xe2\x82", 4);
	assert_string_equal(g.last, "exit"); /* after all output */
	got_free(&g);
}

static void lines_stay_short_whatever_json_makes_of_them(void **s)
{
	(void)s;
	enum { MANY = 60000 };
	auto_free char *control = xcalloc(1, MANY);
	memset(control, 1, MANY); /* six bytes each in JSON */
	event_out(1, 0, control, MANY);
	(void)event_exit(0);
	run((struct relay_opts){ 0 });
	struct got g = read_lines(0);
	assert_int_equal(g.bytes[0].n, MANY);
	got_free(&g);
}

static void what_is_no_longer_held_shows_as_a_jump(void **s)
{
	(void)s;
	event_out(1, 0, "ab\xe2", 3);
	event_out(1, 100, "cd", 2);
	(void)event_exit(0);
	run((struct relay_opts){ 0 });
	assert_non_null(strstr(buf_c(&told), "\"offset\":100"));
	assert_non_null(
	    strstr(buf_c(&told), "\"4g==\"")); /* the lone byte is told, and not joined to what follows */
}

static void a_resumed_stream_begins_at_its_offset(void **s)
{
	(void)s;
	event_out(1, 1000, "hello", 5);
	(void)event_exit(0);
	run((struct relay_opts){ .from = { 1000, 0 } });
	struct got g = read_lines(1000);
	assert_string_equal(buf_c(&g.bytes[0]), "hello");
	got_free(&g);
}

static void only_the_stream_that_is_wanted_is_told(void **s)
{
	(void)s;
	event_out(1, 0, "out", 3);
	event_out(2, 0, "err", 3);
	(void)event_exit(0);
	run((struct relay_opts){ .only = PROTO_STDERR });
	struct got g = read_lines(0);
	assert_int_equal(g.bytes[0].n, 0);
	assert_string_equal(buf_c(&g.bytes[1]), "err");
	got_free(&g);
}

static void an_exit_tells_how(void **s)
{
	(void)s;
	struct channel_exit *x = event_exit(-1);
	(void)snprintf(x->signal, sizeof x->signal, "SIGKILL");
	x->timed_out = true;
	x->bytes[0] = 5;
	ch.oom = 1;
	run((struct relay_opts){ 0 });
	struct got g = read_lines(0);
	assert_null(js_get(g.end, "exitCode"));
	assert_string_equal(js_str(g.end, "signal"), "SIGKILL");
	assert_true(js_bool(g.end, "timedOut", false));
	assert_true(js_bool(g.end, "oom", false));
	assert_int_equal(js_int(g.end, "stdoutBytes", 0), 5);
	assert_int_equal(ch.swept, 1); /* SBX-41: what the box could not see goes with its group */
	got_free(&g);
}

static void a_command_that_just_ended_leaves_its_background_alone(void **s)
{
	(void)s;
	(void)event_exit(0);
	run((struct relay_opts){ 0 });
	assert_int_equal(ch.swept, 0);
	assert_int_equal(ch.condemned, 0);
}

static void what_cannot_be_killed_costs_the_sandbox(void **s)
{
	(void)s;
	event_exit(-1)->escaped = true;
	run((struct relay_opts){ 0 });
	assert_int_equal(ch.condemned, 1);
}

/* SBX-40: never an exit that nobody saw */
static void a_lost_channel_is_no_exit(void **s)
{
	(void)s;
	event_out(1, 0, "half\xe2", 5);
	ch.lost_at = 1;
	run((struct relay_opts){ 0 });
	struct got g = read_lines(0);
	assert_string_equal(g.last, "lost");
	assert_string_equal(js_str(g.end, "message"), "It died of a cold.");
	assert_int_equal(g.bytes[0].n, 5);
	got_free(&g);
}

/* The box died between a command's start and the first look at it: what it ran in must not cost sandboxd its life. */
static void a_channel_lost_before_the_first_look_is_told_like_any(void **s)
{
	(void)s;
	run_with((struct relay_opts){ .tail = true }, NULL);
	struct got g = read_lines(0);
	assert_string_equal(g.last, "lost");
	assert_string_equal(js_str(g.end, "message"), "It died of a cold.");
	got_free(&g);
}

/* The box may tell of a command's death before it dies itself; whoever ended the sandbox gets the same answer either way. */
static void what_the_end_of_the_sandbox_kills_is_no_exit(void **s)
{
	(void)s;
	static const struct {
		bool ending, stopped, timed_out;
		const char *signal, *last;
	} rows[] = {
		{ true, false, false, "SIGKILL", "lost" },
		{ false, false, false, "SIGKILL", "exit" },
		{ true, true, false, "SIGKILL", "exit" },
		{ true, false, true, "SIGKILL", "exit" },
		{ true, false, false, "SIGTERM", "exit" },
		{ true, false, false, "", "exit" },
	};
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		(void)done(NULL), (void)fresh(NULL);
		struct channel_exit *x = event_exit(-1);
		(void)snprintf(x->signal, sizeof x->signal, "%s", rows[i].signal);
		x->stopped = rows[i].stopped;
		x->timed_out = rows[i].timed_out;
		ch.ending = rows[i].ending;
		run((struct relay_opts){ .tail = false });
		struct got g = read_lines(0);
		assert_string_equal(g.last, rows[i].last);
		got_free(&g);
	}
}

static void the_tail_is_fetched_after_the_end(void **s)
{
	(void)s;
	event_exit(0)->bytes[0] = 5000000;
	event_out(1, 5000000 - LIMIT_OUTPUT_BYTES, "tail", 4);
	(void)event_exit(0);
	run((struct relay_opts){ .tail = true });
	assert_int_equal(ch.resumed, 1);
	assert_int_equal(ch.resumed_from[0], 5000000 - LIMIT_OUTPUT_BYTES);
	assert_int_equal(ch.resumed_from[1], 0);
	assert_non_null(strstr(buf_c(&told), "tail"));
	assert_non_null(strstr(buf_c(&told), "\"exit\""));
}

static void a_reader_that_left_is_not_followed(void **s)
{
	(void)s;
	client_left = true;
	event_out(1, 0, "x", 1);
	(void)event_exit(0);
	run((struct relay_opts){ 0 });
	assert_int_equal(ch.at, 1);
}

/* RUN-6 */
static void a_process_that_ends_says_where_to_go_on(void **s)
{
	(void)s;
	process_ends = true;
	event_out(1, 0, "abc", 3);
	(void)event_exit(0);
	run((struct relay_opts){ 0 });
	struct got g = read_lines(0);
	assert_string_equal(g.last, "reconnect");
	assert_int_equal(js_int(g.end, "stdout", -1), 3);
	assert_int_equal(js_int(g.end, "stderr", -1), 0);
	got_free(&g);
}

#define T(fn) cmocka_unit_test_setup_teardown(fn, fresh, done)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(a_character_cut_anywhere_arrives_whole),
		T(bytes_that_are_no_text_are_base64_and_complete),
		T(a_character_that_never_ends_is_told_at_the_exit),
		T(lines_stay_short_whatever_json_makes_of_them),
		T(what_is_no_longer_held_shows_as_a_jump),
		T(a_resumed_stream_begins_at_its_offset),
		T(only_the_stream_that_is_wanted_is_told),
		T(an_exit_tells_how),
		T(a_command_that_just_ended_leaves_its_background_alone),
		T(what_cannot_be_killed_costs_the_sandbox),
		T(a_lost_channel_is_no_exit),
		T(a_channel_lost_before_the_first_look_is_told_like_any),
		T(what_the_end_of_the_sandbox_kills_is_no_exit),
		T(the_tail_is_fetched_after_the_end),
		T(a_reader_that_left_is_not_followed),
		T(a_process_that_ends_says_where_to_go_on),
	};
	return cmocka_run_group_tests_name("relay", tests, NULL, NULL);
}
