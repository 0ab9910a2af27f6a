/* A box's beginning and end, and who may talk to it: SBX-25, SBX-63, SBX-65, SBX-66. */
#include "../span.h"
#include "../t.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../boxtest.h"
#include "base/clock.h"
#include "base/hash.h"

static void assert_refuses_to_start(const struct boxtest_conf *conf, const char *why)
{
	struct boxtest box;
	char log[512];
	boxtest_up(&box, conf);
	int status = boxtest_ended(&box, log, sizeof log);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 78);
	assert_string_equal(log, why);
}

/* SBX-25 */
static void it_will_not_run_as_root(void **s)
{
	(void)s;
	assert_refuses_to_start(&(struct boxtest_conf){ .as_root = true, .no_channel = true },
	    "gatehouse-box: will not run as uid 0 (SBX-25)\n");
}

/* SBX-25 */
static void it_will_not_run_in_a_wrong_image(void **s)
{
	(void)s;
	assert_refuses_to_start(
	    &(struct boxtest_conf){ .check_path = "/no/such", .check_text = "x", .no_channel = true },
	    "gatehouse-box: wrong image: it has no /no/such\n");
	assert_refuses_to_start(
	    &(struct boxtest_conf){
		.check_path = "/etc/passwd", .check_text = "gatehouse exec 1", .no_channel = true },
	    "gatehouse-box: wrong image: /etc/passwd does not say gatehouse exec 1\n");
	struct boxtest box;
	boxtest_up(&box, &(struct boxtest_conf){ .check_path = "/etc/passwd", .check_text = "root:" });
	boxtest_down(&box);
}

/* SBX-66 */
static void it_ends_with_its_lease_and_takes_everything_along(void **s)
{
	(void)s;
	struct boxtest box;
	char log[512];
	boxtest_up(&box, &(struct boxtest_conf){ .lease_ms = 700, .no_channel = true });
	assert_int_equal(boxtest_ended(&box, log, sizeof log), 0);
	assert_string_equal(log, "gatehouse-box: the lease has ended\n");
	boxtest_up(&box, NULL);
	struct channel_cmd *k = boxtest_sh(&box, "sleep 300", 0);
	struct channel_event ev;
	struct err e = { 0 };
	struct channel_wait w = boxtest_wait(PATIENCE_MS);
	struct span before = span_begin();
	assert_int_equal(channel_lease(box.c, 700, &w, &e), 0);
	assert_int_equal(channel_next(k, &w, &ev, &e), -1);
	assert_string_equal(e.reason, "lost"); /* unknown, not an exit */
	assert_true(span_ms(&before) < 2000);
	channel_cmd_close(k);
	assert_int_equal(boxtest_ended(&box, log, sizeof log), 0);
	assert_string_equal(log, "gatehouse-box: the lease has ended\n");
}

static void sleep_in(struct boxtest *box, int ms)
{
	char script[32];
	(void)snprintf(script, sizeof script, "sleep %d.%03d", ms / 1000, ms % 1000);
	assert_int_equal(boxtest_run(box, script, 0, NULL).exit_code, 0);
}

static void a_lease_can_be_moved(void **s)
{
	(void)s;
	struct boxtest box;
	char log[512];
	struct err e = { 0 };
	int lease_ms = span_room_ms(500);
	boxtest_up(&box, &(struct boxtest_conf){ .lease_ms = (uint64_t)lease_ms });
	struct channel_wait w = boxtest_wait(PATIENCE_MS + 2 * lease_ms);
	assert_int_equal(channel_lease(box.c, 600000, &w, &e), 0);
	sleep_in(&box, lease_ms + 400);
	assert_int_equal(channel_lease(box.c, 0, &w, &e), 0);
	assert_int_equal(boxtest_ended(&box, log, sizeof log), 0);
}

/* SBX-66: without channel and command; with either it stays */
static void it_ends_when_nobody_wants_it(void **s)
{
	(void)s;
	struct boxtest box;
	char log[512];
	int idle_ms = span_room_ms(300);
	boxtest_up(&box, &(struct boxtest_conf){ .idle_ms = (uint64_t)idle_ms });
	sleep_in(&box, 2 * idle_ms);
	int64_t before = clock_ms();
	struct channel_cmd *k = boxtest_sh(&box, "sleep 1", 0);
	channel_cmd_close(k);
	channel_close(box.c);
	box.c = NULL;
	assert_int_equal(boxtest_ended(&box, log, sizeof log), 0);
	assert_string_equal(log, "gatehouse-box: nobody has wanted this sandbox for a while\n");
	assert_true(clock_ms() - before >= 1000 + idle_ms - 100); /* the command first */
}

static void it_ends_when_it_is_told_to(void **s)
{
	(void)s;
	struct boxtest box;
	char log[512];
	struct err e = { 0 };
	struct channel_wait w = boxtest_wait(PATIENCE_MS);
	boxtest_up(&box, NULL);
	(void)kill(box.pid, SIGTERM); /* not by this: anybody inside could send it */
	assert_int_equal(channel_ping(box.c, &w, &e), 0);
	assert_int_equal(channel_end(box.c, &w, &e), 0);
	assert_int_equal(boxtest_ended(&box, log, sizeof log), 0);
	assert_string_equal(log, "");
}

/* Where there is no pid namespace to end, its commands are ended one by one. */
static void as_a_plain_process_it_takes_its_commands_along(void **s)
{
	(void)s;
	struct boxtest box;
	char log[512];
	struct err e = { 0 };
	struct channel_wait w = boxtest_wait(PATIENCE_MS);
	boxtest_up(&box, &(struct boxtest_conf){ .plain = true });
	assert_int_equal(
	    boxtest_run(&box, "setsid sh -c '(sleep 60 &)'; exit 3", PATIENCE_MS, NULL).exit_code, 3);
	struct channel_cmd *k = boxtest_sh(&box, "setsid sh -c 'sleep 300 & echo $!' & wait", 0);
	struct channel_event ev;
	assert_int_equal(channel_next(k, &w, &ev, &e), 0);
	assert_int_equal(ev.type, CHANNEL_OUT);
	char text[32] = "";
	memcpy(text, ev.p, ev.n < 31 ? ev.n : 31);
	pid_t inner = (pid_t)strtol(text, NULL, 10);
	assert_true(inner > 1 && kill(inner, 0) == 0);
	assert_int_equal(channel_end(box.c, &w, &e), 0);
	channel_cmd_close(k);
	assert_int_equal(boxtest_ended(&box, log, sizeof log), 0);
	assert_int_equal(kill(inner, 0), -1);
}

/* ---- strangers */

static int dial_raw(const struct boxtest *t)
{
	struct sockaddr_un to = { .sun_family = AF_UNIX };
	(void)snprintf(to.sun_path, sizeof to.sun_path, "%s", t->socket);
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_true(fd >= 0);
	assert_int_equal(connect(fd, (const struct sockaddr *)&to, sizeof to), 0);
	return fd;
}

/* It hangs up without a word. */
static void assert_hung_up(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };
	char c;
	assert_int_equal(poll(&p, 1, PATIENCE_MS), 1);
	assert_true(recv(fd, &c, 1, 0) <= 0);
	(void)close(fd);
}

static size_t hello(unsigned char *to, const unsigned char *knock, uint32_t version)
{
	struct proto_out o = { .p = to + PROTO_HEAD, .cap = 64 };
	proto_put_u32(&o, PROTO_MAGIC);
	proto_put_u32(&o, version);
	proto_put_bytes(&o, knock, PROTO_NONCE / 2);
	proto_head_put(to, PROTO_HELLO, 0, (uint32_t)o.n);
	return PROTO_HEAD + o.n;
}

/* SBX-63: without the nonce nobody is heard, and the channel is not disturbed */
static void a_stranger_is_refused(void **s)
{
	(void)s;
	struct boxtest box;
	unsigned char msg[128], wrong[PROTO_NONCE] = { 1 };
	struct err e = { 0 };
	struct channel_wait w = boxtest_wait(PATIENCE_MS);
	boxtest_up(&box, NULL);
	int fd = dial_raw(&box);
	size_t n = hello(msg, wrong, PROTO_VERSION);
	assert_int_equal(send(fd, msg, n, 0), n);
	assert_hung_up(fd);
	fd = dial_raw(&box);
	proto_head_put(msg, PROTO_START, 1, 2000); /* too long for one who has not said hello */
	assert_int_equal(send(fd, msg, PROTO_HEAD, 0), PROTO_HEAD);
	assert_hung_up(fd);
	fd = dial_raw(&box);
	struct span before = span_begin();
	assert_hung_up(fd); /* silence is not waited for long */
	assert_true(span_ms(&before) < 4500);
	int many[8];
	for (int i = 0; i < 8; i++)
		many[i] = dial_raw(&box);
	assert_int_equal(channel_ping(box.c, &w, &e), 0);
	channel_close(box.c);
	boxtest_redial(&box); /* in spite of those that wait */
	for (int i = 0; i < 8; i++)
		(void)close(many[i]);
	boxtest_down(&box);
}

static void the_latest_client_replaces_the_one_before(void **s)
{
	(void)s;
	struct boxtest box;
	struct err e = { 0 };
	struct channel_wait w = boxtest_wait(PATIENCE_MS);
	boxtest_up(&box, NULL);
	struct channel *first = box.c;
	boxtest_redial(&box);
	assert_int_equal(channel_ping(box.c, &w, &e), 0);
	assert_int_equal(channel_ping(first, &w, &e), -1);
	assert_string_equal(e.reason, "lost");
	assert_true(channel_lost(first));
	channel_close(first);
	boxtest_down(&box);
}

/* A client that goes at once after asking: what it asked for is not told to the next one, and what it held does not run. */
static void answers_do_not_reach_the_next_client(void **s)
{
	(void)s;
	struct boxtest box;
	struct err e = { 0 };
	struct channel_wait w = boxtest_wait(PATIENCE_MS);
	boxtest_up(&box, NULL);
	for (uint32_t i = 0; i < 60; i++) {
		unsigned char msg[600];
		channel_close(box.c);
		int fd = dial_raw(&box);
		size_t n = hello(msg, box.opts.nonce, PROTO_VERSION);
		struct proto_start start = { .hold = i % 2 == 0,
			.n_argv = 3,
			.argv = (const char *const[]){
			    "sh", "-c", i % 2 == 0 ? "touch ran; sleep 60" : "sleep 60" } };
		struct proto_out o = { .p = msg + n + PROTO_HEAD, .cap = 400 };
		proto_start_put(&o, &start);
		proto_head_put(msg + n, PROTO_START, 10000 * (i + 1), (uint32_t)o.n);
		n += PROTO_HEAD + o.n;
		proto_head_put(msg + n, PROTO_STOP, 10000 * (i + 1) + 1, 4);
		memset(msg + n + PROTO_HEAD, 0, 4);
		n += PROTO_HEAD + 4;
		assert_int_equal(send(fd, msg, n, MSG_NOSIGNAL), n);
		(void)close(fd);
		boxtest_redial(&box);
		w = boxtest_wait(PATIENCE_MS);
		assert_int_equal(channel_ping(box.c, &w, &e), 0);
	}
	int ended;
	assert_int_equal(channel_stop(box.c, &w, &ended, &e), 0);
	assert_int_equal(channel_stop(box.c, &w, &ended, &e), 0);
	assert_int_equal(ended, 0);
	assert_int_equal(boxtest_run(&box, "test ! -e ran", PATIENCE_MS, NULL).exit_code, 0);
	boxtest_down(&box);
}

/* Its client died before it could say GO: the command never ran, and the next client hears that there is none. REL-1 */
static void a_command_that_was_never_let_go_does_not_exist(void **s)
{
	(void)s;
	struct boxtest box;
	struct err e = { 0 };
	struct channel_wait w = boxtest_wait(PATIENCE_MS);
	boxtest_up(&box, NULL);
	channel_close(box.c);
	unsigned char msg[600];
	int fd = dial_raw(&box);
	size_t n = hello(msg, box.opts.nonce, PROTO_VERSION);
	struct proto_start start = {
		.hold = true, .n_argv = 3, .argv = (const char *const[]){ "sh", "-c", "touch ran" }
	};
	struct proto_out o = { .p = msg + n + PROTO_HEAD, .cap = 400 };
	proto_start_put(&o, &start);
	proto_head_put(msg + n, PROTO_START, 10000, (uint32_t)o.n);
	n += PROTO_HEAD + o.n;
	assert_int_equal(send(fd, msg, n, MSG_NOSIGNAL), n);
	(void)close(fd);
	boxtest_redial(&box);
	struct channel_item *items = NULL;
	assert_int_equal(channel_list(box.c, 0, &w, &items, &e), 0);
	free(items);
	assert_int_equal(boxtest_run(&box, "test ! -e ran", PATIENCE_MS, NULL).exit_code, 0);
	boxtest_down(&box);
}

/* Read one whole frame. */
static struct proto_head read_frame(int fd, unsigned char p[PROTO_REPLY_MAX])
{
	struct proto_head h;
	unsigned char head[PROTO_HEAD];
	assert_int_equal(recv(fd, head, sizeof head, MSG_WAITALL), sizeof head);
	assert_true(proto_head_get(head, PROTO_REPLY_MAX, &h));
	if (h.length > 0)
		assert_int_equal(recv(fd, p, h.length, MSG_WAITALL), h.length);
	return h;
}

/* A sandboxd that was rolled back hears what it knows, and one from the future is told what is spoken here. */
static void a_client_of_another_version_is_answered_in_the_common_one(void **s)
{
	(void)s;
	static const uint32_t asked[] = { 1, 2, 3, 1000 }, want[] = { 1, 2, 2, 2 };
	static unsigned char reply[PROTO_REPLY_MAX];
	struct boxtest box;
	boxtest_up(&box, NULL);
	(void)boxtest_run(&box, "exit 6", PATIENCE_MS, NULL);
	channel_close(box.c);
	for (size_t i = 0; i < sizeof asked / sizeof asked[0]; i++) {
		unsigned char msg[200];
		int fd = dial_raw(&box);
		size_t n = hello(msg, box.opts.nonce, asked[i]);
		assert_int_equal(send(fd, msg, n, MSG_NOSIGNAL), n);
		assert_int_equal(read_frame(fd, reply).type, PROTO_HELLO_OK);
		struct proto_in in = { .p = reply, .n = 64 };
		assert_int_equal(proto_get_u32(&in), want[i]);
		proto_head_put(msg, PROTO_LIST, 1000 + (uint32_t)i, 4);
		memset(msg + PROTO_HEAD, 0, 4);
		assert_int_equal(send(fd, msg, PROTO_HEAD + 4, MSG_NOSIGNAL), PROTO_HEAD + 4);
		struct proto_head h = read_frame(fd, reply);
		assert_int_equal(h.type, PROTO_LISTED);
		in = (struct proto_in){ .p = reply, .n = h.length };
		struct proto_item item;
		assert_int_equal(proto_get_u32(&in), 1);
		assert_true(proto_item_get(&in, &item, want[i]) && proto_in_end(&in));
		assert_int_equal(item.exit.code, 6);
		(void)close(fd);
	}
	boxtest_redial(&box);
	boxtest_down(&box);
}

/* Random frames from one who knows the nonce: refused, one by one, and the box lives on. */
static void nonsense_hangs_up_and_harms_nothing(void **s)
{
	(void)s;
	struct boxtest box;
	struct err e = { 0 };
	boxtest_up(&box, NULL);
	srandom(20261129);
	for (int i = 0; i < 400; i++) {
		unsigned char msg[600];
		int fd = dial_raw(&box);
		size_t n = hello(msg, box.opts.nonce, i == 0 ? PROTO_VERSION + 1 : PROTO_VERSION);
		uint32_t length = (uint32_t)random() % 300;
		proto_head_put(msg + n, (uint8_t)(random() % 48), (uint32_t)random() % 8, length);
		n += PROTO_HEAD;
		for (uint32_t k = 0; k < length; k++)
			msg[n++] = random() % 3 == 0 ? (unsigned char)random() : 0;
		assert_int_equal(send(fd, msg, n, MSG_NOSIGNAL), n);
		(void)shutdown(fd, SHUT_WR);
		while (recv(fd, msg, sizeof msg, 0) > 0)
			;
		(void)close(fd);
	}
	channel_close(box.c);
	boxtest_redial(&box);
	struct channel_wait w = boxtest_wait(PATIENCE_MS);
	assert_int_equal(channel_ping(box.c, &w, &e), 0);
	assert_int_equal(boxtest_run(&box, "exit 6", PATIENCE_MS, NULL).exit_code, 6);
	boxtest_down(&box);
}

/* ---- what the channel looks at before it dials */

static enum err_code open_code(const struct boxtest *box)
{
	struct err e = { 0 };
	struct channel_wait w = boxtest_wait(PATIENCE_MS);
	assert_null(channel_open(&box->opts, &w, &e));
	return e.code;
}

/* SBX-63: a socket, not a link, of somebody trusted, and the box itself behind it */
static void a_socket_that_is_not_the_boxs_is_not_dialled(void **s)
{
	(void)s;
	struct boxtest box;
	char moved[128];
	boxtest_up(&box, NULL);
	(void)snprintf(moved, sizeof moved, "%s/run/moved", box.dir);
	assert_int_equal(rename(box.socket, moved), 0);
	assert_int_equal(open_code(&box), ERR_UNAVAILABLE); /* nothing there (yet) */
	assert_int_equal(symlink(moved, box.socket), 0);
	assert_int_equal(open_code(&box), ERR_UPSTREAM); /* a link */
	assert_int_equal(unlink(box.socket), 0);
	assert_int_equal(mkfifo(box.socket, 0600), 0);
	assert_int_equal(open_code(&box), ERR_UPSTREAM); /* no socket */
	assert_int_equal(unlink(box.socket), 0);
	assert_int_equal(rename(moved, box.socket), 0);
	assert_int_equal(chown(box.socket, 4242, 4242), 0);
	assert_int_equal(open_code(&box), ERR_UPSTREAM); /* somebody else's */
	assert_int_equal(chown(box.socket, box.uid, box.uid), 0);
	box.opts.box_pid++;
	assert_int_equal(open_code(&box), ERR_UPSTREAM); /* another process listens there */
	box.opts.box_pid--;
	box.opts.nonce[PROTO_NONCE - 1] ^= 1;
	assert_int_equal(open_code(&box), ERR_UPSTREAM); /* it lets us in, but its answer is not the box's */
	box.opts.nonce[0] ^= 1;
	assert_int_equal(open_code(&box), ERR_UPSTREAM);
	box.opts.nonce[0] ^= 1;
	box.opts.nonce[PROTO_NONCE - 1] ^= 1;
	channel_close(box.c);
	boxtest_redial(&box);
	boxtest_down(&box);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(it_will_not_run_as_root),
		cmocka_unit_test(it_will_not_run_in_a_wrong_image),
		cmocka_unit_test(it_ends_with_its_lease_and_takes_everything_along),
		cmocka_unit_test(a_lease_can_be_moved),
		cmocka_unit_test(it_ends_when_nobody_wants_it),
		cmocka_unit_test(it_ends_when_it_is_told_to),
		cmocka_unit_test(as_a_plain_process_it_takes_its_commands_along),
		cmocka_unit_test(a_stranger_is_refused),
		cmocka_unit_test(the_latest_client_replaces_the_one_before),
		cmocka_unit_test(answers_do_not_reach_the_next_client),
		cmocka_unit_test(a_command_that_was_never_let_go_does_not_exist),
		cmocka_unit_test(a_client_of_another_version_is_answered_in_the_common_one),
		cmocka_unit_test(nonsense_hangs_up_and_harms_nothing),
		cmocka_unit_test(a_socket_that_is_not_the_boxs_is_not_dialled),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
