/* A command's own terminal, through a real box (what the E2B SDK calls a pty; no. 33: none outlives its command). */
#include "../t.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "../boxtest.h"
#include "../liar.h"

static struct boxtest box;

static int up(void **s)
{
	(void)s;
	boxtest_up(&box, NULL);
	return 0;
}

static int down(void **s)
{
	(void)s;
	boxtest_down(&box);
	return 0;
}

static struct channel_cmd *start(const char *script)
{
	const char *const argv[] = { "sh", "-c", script, NULL };
	return boxtest_start(&box,
	    &(struct channel_spec){
		.argv = argv, .pty = true, .cols = 90, .rows = 30, .label = "l", .live = true });
}

static void give(uint32_t cmd, const char *text)
{
	struct err e = { 0 };
	uint64_t taken;
	struct channel_wait w = boxtest_wait(PATIENCE_MS);
	const struct channel_input in = { .cmd = cmd, .p = text, .n = strlen(text), .at = PROTO_APPEND };
	if (channel_input(box.c, &in, &w, &taken, &e) != 0)
		fail_msg("%s", e.msg);
	assert_int_equal(taken, strlen(text));
}

/* Read on until `want` has come. */
static void expect(struct channel_cmd *k, struct buf *seen, const char *want)
{
	while (strstr(buf_c(seen), want) == NULL) {
		struct err e = { 0 };
		struct channel_event ev;
		struct channel_wait w = boxtest_wait(PATIENCE_MS);
		if (channel_next(k, &w, &ev, &e) != 0 || ev.type != CHANNEL_OUT)
			fail_msg("no \"%s\" in \"%s\"", want, buf_c(seen));
		assert_int_equal(ev.stream, 1);
		assert_int_equal(buf_add(seen, ev.p, ev.n), 0);
	}
}

static int resize(uint32_t cmd, uint16_t cols, uint16_t rows, struct err *e)
{
	struct channel_wait w = boxtest_wait(PATIENCE_MS);
	return channel_resize(box.c, &(struct proto_resize){ cmd, cols, rows }, &w, e);
}

static void a_command_has_a_terminal_for_everything_and_controls_it(void **s)
{
	(void)s;
	auto_buf struct buf out = BUF(65536);
	int before = boxtest_open_fds(box.pid);
	struct channel_cmd *k = start(
	    "test -t 0 && test -t 1 && test -t 2 && stty size && echo to-err >&2 && "
	    ": >/dev/tty && ps -o tty= -p $$ && exit 7");
	struct channel_exit x = boxtest_finish(k, &out, NULL, false);
	assert_int_equal(x.exit_code, 7);
	assert_int_equal(x.bytes[1], 0);
	assert_non_null(strstr(buf_c(&out), "30 90\r\n"));
	assert_non_null(strstr(buf_c(&out), "to-err\r\n"));
	assert_non_null(strstr(buf_c(&out), "pts/"));
	boxtest_fds_become(box.pid, before);
}

static void what_is_typed_is_read_and_the_interrupt_key_interrupts(void **s)
{
	(void)s;
	auto_buf struct buf out = BUF(65536);
	struct channel_cmd *k = start("n=; trap 'echo interrupted; n=1' INT; read x; echo \"<$x>\"; while [ "
				      "-z $n ]; do sleep 0.02; done; read y; exit 4");
	uint32_t cmd = channel_cmd_id(k);
	give(cmd, "w\xc3\xb6x\x7frd\n"); /* an erased character goes, whole */
	expect(k, &out, "<w\xc3\xb6rd>\r\n");
	give(cmd, "\x03");
	expect(k, &out, "interrupted");
	give(cmd, "\x04"); /* the end of the input, at the beginning of a line */
	assert_int_equal(boxtest_finish(k, NULL, NULL, true).exit_code, 4);
}

static void a_new_size_is_told_at_once(void **s)
{
	(void)s;
	struct err e = { 0 };
	auto_buf struct buf out = BUF(65536);
	struct channel_cmd *k = start(
	    "trap 'stty size; exit' WINCH; echo ready; while :; do sleep 0.02; done");
	expect(k, &out, "ready");
	assert_int_equal(resize(channel_cmd_id(k), 132, 43, &e), 0);
	expect(k, &out, "43 132\r\n");
	assert_int_equal(boxtest_finish(k, NULL, NULL, true).exit_code, 0);
}

static void what_has_no_terminal_has_no_size_and_a_terminal_has_no_end(void **s)
{
	(void)s;
	struct err e = { 0 };
	uint64_t taken;
	struct channel_wait w = boxtest_wait(PATIENCE_MS);
	struct channel_cmd *plain = boxtest_sh(&box, "sleep 300", 0), *k = start("sleep 300");
	assert_int_equal(resize(channel_cmd_id(plain), 80, 24, &e), -1);
	assert_int_equal(e.code, ERR_CONFLICT);
	err_clear(&e);
	assert_int_equal(resize(4000000, 80, 24, &e), -1);
	assert_int_equal(e.code, ERR_NOT_FOUND);
	err_clear(&e);
	const struct channel_input end = {
		.cmd = channel_cmd_id(k), .p = "x", .n = 1, .close = true, .at = PROTO_APPEND
	};
	assert_int_equal(channel_input(box.c, &end, &w, &taken, &e), -1);
	assert_int_equal(e.code, ERR_CONFLICT);
	err_clear(&e);
	struct channel_item *items = NULL;
	assert_int_equal(channel_list(box.c, channel_cmd_id(k), &w, &items, &e), 1);
	assert_true(items[0].pty);
	free(items);
	assert_int_equal(channel_list(box.c, channel_cmd_id(plain), &w, &items, &e), 1);
	assert_false(items[0].pty);
	free(items);
	int ended;
	assert_int_equal(channel_stop(box.c, &w, &ended, &e), 0);
	assert_int_equal(ended, 2);
	channel_cmd_close(plain);
	assert_string_equal(boxtest_finish(k, NULL, NULL, true).signal, "SIGKILL");
	err_clear(&e);
	assert_int_equal(resize(3, 80, 24, &e), -1); /* whatever it was: it has ended */
}

static bool marked(void *path)
{
	return access(path, F_OK) == 0;
}

static void who_outlives_the_command_is_hung_up_on(void **s)
{
	(void)s;
	char path[200];
	(void)snprintf(path, sizeof path, "%s/hung", box.work);
	int before = boxtest_open_fds(box.pid);
	struct channel_cmd *k = start(
	    "(trap '' HUP; : >deaf; while echo x; do sleep 0.02; done 2>/dev/null; : >hung) & "
	    "until [ -e deaf ]; do sleep 0.02; done; exit 3");
	assert_int_equal(boxtest_finish(k, NULL, NULL, true).exit_code, 3);
	boxtest_until(marked, path, PATIENCE_MS);
	boxtest_fds_become(box.pid, before);
}

static void a_tree_with_a_terminal_dies_whole(void **s)
{
	(void)s;
	struct err e = { 0 };
	int ended, zombies;
	struct channel_wait w = boxtest_wait(PATIENCE_MS);
	auto_buf struct buf out = BUF(65536);
	struct channel_cmd *k = start("setsid sleep 300 & nohup sleep 300 & sleep 300 & echo up; cat");
	expect(k, &out, "up");
	assert_int_equal(channel_stop_one(box.c, channel_cmd_id(k), &w, &ended, &e), 0);
	assert_string_equal(boxtest_finish(k, NULL, NULL, true).signal, "SIGKILL");
	assert_int_equal(boxtest_processes(&box, &zombies), 0);
}

static void says_nothing(struct liar *l)
{
	(void)l;
}

static void a_box_from_before_an_upgrade_refuses_a_terminal(void **s)
{
	(void)s;
	struct liar *l = liar_up_version(says_nothing, 0, 1);
	struct err e = { 0 };
	struct channel_wait w = liar_wait();
	const char *const argv[] = { "true", NULL };
	assert_null(channel_start(l->c, &(struct channel_spec){ .argv = argv, .pty = true }, &w, &e));
	assert_int_equal(e.code, ERR_CONFLICT);
	err_clear(&e);
	assert_int_equal(channel_resize(l->c, &(struct proto_resize){ 1, 80, 24 }, &w, &e), -1);
	assert_int_equal(e.code, ERR_CONFLICT);
	liar_down(l);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_command_has_a_terminal_for_everything_and_controls_it),
		cmocka_unit_test(what_is_typed_is_read_and_the_interrupt_key_interrupts),
		cmocka_unit_test(a_new_size_is_told_at_once),
		cmocka_unit_test(what_has_no_terminal_has_no_size_and_a_terminal_has_no_end),
		cmocka_unit_test(who_outlives_the_command_is_hung_up_on),
		cmocka_unit_test(a_tree_with_a_terminal_dies_whole),
		cmocka_unit_test(a_box_from_before_an_upgrade_refuses_a_terminal),
	};
	return cmocka_run_group_tests_name("box_pty", tests, up, down);
}
