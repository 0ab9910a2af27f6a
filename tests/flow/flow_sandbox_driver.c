/* flow_sandbox_driver.c - the oci driver by itself, on real runtimes: every state it can be found in, and hosts that lack something (DRV-1). */
#include "../t.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/id.h"
#include "base/mem.h"
#include "io/file.h"
#include "sandbox/boxdir.h"
#include "sandbox/driver/oci.h"
#include "sandbox/driver/oci_ids.h"
#include "sandbox/driver/process.h"

enum { START_MS = 60000, END_MS = 60000 };

static char top[] = "/tmp/ghod.XXXXXX", sockets[64], cgroup[64], box_binary[300];
static char id[ID_MAX];

static struct driver *driver(const char *node, bool no_userns, const char *prefer, const char *only)
{
	char dir[120];
	struct err e = { 0 };
	(void)snprintf(dir, sizeof dir, "%s/%s", top, node);
	(void)snprintf(cgroup, sizeof cgroup, "/gatehouse/test%d.%s", getpid(), node);
	struct driver *d = oci_new(
	    &(struct oci_opts){
		.dir = dir,
		.sockets = sockets,
		.cgroup = cgroup,
		.box_binary = box_binary,
		.prefer = prefer,
		.only = only,
		.uid_base = 3000000000,
		.uid_count = 64LL * 65536,
		.no_userns = no_userns,
		.slots = 3,
		.starts = 2,
	    },
	    &e);
	if (d == NULL)
		fail_msg("%s", e.msg);
	return d;
}

static bool offers(struct driver *d, const char *runtime)
{
	for (const char *const *o = d->offered(d); *o != NULL; o++)
		if (strcmp(*o, runtime) == 0)
			return true;
	return false;
}

static const char *const no_env[] = { "PATH=/usr/bin:/bin", NULL };

static void create(struct driver *d, const char *runtime, struct driver_box *box)
{
	struct err e = { 0 };
	id_make("sbx", id);
	const struct driver_spec s = { .id = id,
		.runtime = runtime,
		.class = "exec",
		.workdir = "/mnt/data",
		.env = no_env,
		.slot = 1,
		.limits = { 256, 1000, 64, 64 },
		.lease_ms = 120000 };
	if (d->create(d, &s, box, &e) != 0)
		fail_msg("%s", e.msg);
}

static struct channel *answer(const struct driver_box *box)
{
	int64_t deadline = clock_ms() + START_MS;
	struct channel *c = NULL;
	for (;;) {
		struct err e = { 0 };
		struct channel_wait w = { .deadline_ms = deadline };
		c = channel_open(&box->channel, &w, &e);
		if (c != NULL)
			return c;
		if (e.code != ERR_UNAVAILABLE || clock_ms() > deadline)
			fail_msg("%s", e.msg);
		(void)poll(NULL, 0, 5);
	}
}

static void run(struct channel *c, const char *command, struct buf *out)
{
	struct err e = { 0 };
	const char *const argv[] = { "sh", "-c", command, NULL };
	struct channel_wait w = { .deadline_ms = clock_ms() + START_MS };
	struct channel_cmd *k = channel_start(
	    c, &(struct channel_spec){ .argv = argv, .label = "t" }, &w, &e);
	if (k == NULL)
		fail_msg("%s", e.msg);
	for (;;) {
		struct channel_event ev;
		assert_int_equal(channel_next(k, &w, &ev, &e), 0);
		if (ev.type == CHANNEL_OUT)
			(void)buf_add(out, ev.p, ev.n);
		if (ev.type == CHANNEL_EXIT)
			break;
	}
	channel_cmd_close(k);
}

/* The end of a driver: nothing of its node stays on the host. */
static void leave(struct driver *d)
{
	struct err e = { 0 };
	assert_int_equal(d->leave(d, clock_ms() + END_MS, &e), 0);
	d->free(d);
}

static void count(void *arg, const char *name)
{
	(void)name;
	++*(int *)arg;
}

static void assert_nothing(struct driver *d)
{
	int n = 0;
	d->each(d, count, &n);
	assert_int_equal(n, 0);
	char path[BOXDIR_PATH_MAX];
	(void)snprintf(path, sizeof path, "%s/%s", sockets, id);
	assert_int_equal(access(path, F_OK), -1);
}

static void destroy(struct driver *d, struct driver_box *box)
{
	struct err e = { 0 };
	if (d->destroy(d, id, clock_ms() + END_MS, &e) != 0)
		fail_msg("%s", e.msg);
	struct pollfd p = { .fd = box->pidfd, .events = POLLIN };
	assert_int_equal(poll(&p, 1, 0), 1); /* its first process is gone when destroy() says so */
	(void)close(box->pidfd);
	assert_int_equal(d->destroy(d, id, clock_ms() + END_MS, &e), 0);
	assert_nothing(d);
}

/* ---- each with every binary that can stand behind the default: the test's state names it */

static bool absent(struct driver *d, const char *binary)
{
	static const char *const places[] = { "/usr/sbin", "/usr/bin", "/usr/local/bin", "/usr/local/sbin" };
	char path[64];
	if (offers(d, ""))
		return false;
	for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
		(void)snprintf(path, sizeof path, "%s/%s", places[i], binary);
		if (access(path, X_OK) == 0)
			fail_msg("%s is installed and does not work: %s", binary, d->refusal(d));
	}
	leave(d);
	return true;
}

/* What stands below the mount of cgroup v2, where a runtime that does not see it may have written; -1 when that is not to be seen. */
static void *look_below(void *arg)
{
	char path[160];
	(void)snprintf(path, sizeof path, "/sys/fs/cgroup/unified%s", cgroup);
	*(int *)arg = -1;
	if (unshare(CLONE_NEWNS) == 0 && mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
	    umount2("/sys/fs/cgroup/unified", MNT_DETACH) == 0)
		*(int *)arg = access(path, F_OK) == 0;
	return NULL;
}

static void assert_nothing_below(void)
{
	pthread_t t;
	int found;
	if (access("/sys/fs/cgroup/unified", F_OK) != 0)
		return;
	assert_int_equal(pthread_create(&t, NULL, look_below, &found), 0);
	assert_int_equal(pthread_join(t, NULL), 0);
	assert_int_equal(found, 0);
}

static void what_is_built_is_found_again_and_removed(void **s)
{
	const char *binary = *s;
	struct driver *d = driver("n1", false, binary, strcmp(binary, "runsc") == 0 ? "gvisor" : "runc");
	if (absent(d, binary))
		skip();
	struct driver_box box, again;
	struct err e = { 0 };
	int n = 0;
	create(d, "", &box);
	struct channel *c = answer(&box);
	assert_int_equal(d->settle(d, id, &e), 0);
	channel_close(c);
	d->each(d, count, &n);
	assert_true(n >= 1);
	/* As by another process: from what is on the host. */
	assert_int_equal(d->find(d, id, &again, &e), 0);
	assert_int_equal(again.pid, box.pid);
	c = answer(&again);
	auto_buf struct buf out = BUF(1000);
	run(c, "id -u; echo $PPID > /dev/null; cat /proc/sys/kernel/hostname", &out);
	assert_string_equal(buf_c(&out), "1000\nsandbox\n");
	channel_close(c);
	(void)close(again.pidfd);
	destroy(d, &box);
	assert_int_equal(d->find(d, id, &again, &e), -1);
	assert_int_equal(e.code, ERR_NOT_FOUND);
	leave(d);
	assert_nothing_below();
}

/* SBX-30: where the host has no user namespaces, an id of the range on the host, never its 1000. */
/* fault 50 */
static void without_user_namespaces_it_runs_as_an_id_of_the_range(void **s)
{
	struct driver *d = driver("n2", true, *s, "runc");
	if (absent(d, *s))
		skip();
	struct driver_box box;
	auto_buf struct buf out = BUF(1000);
	char path[64];
	struct stat st;
	create(d, "", &box);
	struct channel *c = answer(&box);
	run(c,
	    "id -un; echo x > f && cat f; cd /state/home && echo y > g && echo home; touch /etc/x "
	    "2>/dev/null || echo no",
	    &out);
	assert_string_equal(buf_c(&out), "agent\nx\nhome\nno\n");
	channel_close(c);
	(void)snprintf(path, sizeof path, "/proc/%d", box.pid);
	auto_buf struct buf status = BUF(8192);
	struct err e = { 0 };
	(void)snprintf(path, sizeof path, "/proc/%d/status", box.pid);
	assert_int_equal(file_read(path, &status, &e), 0);
	unsigned uid = 0;
	assert_int_equal(sscanf(strstr(buf_c(&status), "\nUid:") + 5, "%u", &uid), 1);
	assert_true(uid >= 3000000000U && uid % 65536 == 3000000000U % 65536 + 1000);
	assert_int_equal(stat(box.socket, &st), 0);
	assert_int_equal(st.st_uid, uid);
	destroy(d, &box);
	leave(d);
}

static void put(const char *path)
{
	auto_fd int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
}

/* Whatever a crash may leave: destroying works from everywhere and twice. */
/* fault 38 */
static void every_half_built_state_is_removed(void **s)
{
	(void)s;
	struct driver *d = driver("n1", false, "", "");
	struct err e = { 0 };
	char bundle[200], file[300], sock[BOXDIR_PATH_MAX];
	struct driver_box box;
	for (int state = 0; state < 4; state++) {
		id_make("sbx", id);
		(void)snprintf(bundle, sizeof bundle, "%s/n1/b/%s", top, id);
		assert_int_equal(mkdir(bundle, 0700), 0);
		if (state >= 1) { /* a record that was not finished */
			(void)snprintf(file, sizeof file, "%s/record", bundle);
			put(file);
		}
		if (state >= 2)
			assert_int_equal(boxdir_make(sockets, id, 1, sock, &e), 0);
		if (state >= 3) { /* a pid that is somebody else's by now: ours */
			(void)snprintf(file, sizeof file, "%s/pid", bundle);
			char text[16];
			(void)snprintf(text, sizeof text, "%d", getpid());
			assert_int_equal(file_write(file, text, strlen(text), 0600, &e), 0);
		}
		assert_int_equal(d->find(d, id, &box, &e), -1);
		err_clear(&e);
		assert_int_equal(d->destroy(d, id, clock_ms() + END_MS, &e), 0);
		assert_nothing(d);
	}
	leave(d);
}

static void an_id_is_built_once(void **s)
{
	struct driver *d = driver("n1", false, *s, "runc");
	struct driver_box box, second;
	struct err e = { 0 };
	if (absent(d, *s))
		skip();
	create(d, "", &box);
	const struct driver_spec again = { .id = id,
		.runtime = "",
		.class = "exec",
		.workdir = "/mnt/data",
		.env = no_env,
		.limits = { 256, 1000, 64, 64 },
		.lease_ms = 1000 };
	assert_int_equal(d->create(d, &again, &second, &e), -1);
	assert_int_equal(e.code, ERR_CONFLICT);
	channel_close(answer(&box)); /* and the first one was not hurt */
	destroy(d, &box);
	leave(d);
}

static bool at_once(void *arg)
{
	(void)arg;
	return true;
}

/* A start is not waited for: its runtime is ended with what it has made. (gVisor takes long enough to be caught at it.) */
static void a_start_that_is_given_up_leaves_nothing(void **s)
{
	struct driver *d = driver("n1", false, *s, "gvisor");
	struct driver_box box;
	struct err e = { 0 };
	if (absent(d, *s))
		skip();
	id_make("sbx", id);
	const struct driver_spec spec = { .id = id,
		.runtime = "",
		.class = "exec",
		.workdir = "/mnt/data",
		.env = no_env,
		.limits = { 256, 1000, 64, 64 },
		.lease_ms = 60000,
		.cancelled = at_once };
	assert_int_equal(d->create(d, &spec, &box, &e), -1);
	assert_int_equal(e.code, ERR_CONFLICT);
	assert_nothing(d);
	leave(d);
}

/* ---- starts take turns */

struct starting {
	struct driver *d;
	char id[ID_MAX];
	atomic_bool inside, go_on;
	int slot, start_ms, rc;
	struct err e;
};

static void hold(void *arg)
{
	struct starting *s = arg;
	s->inside = true;
	while (!s->go_on)
		(void)poll(NULL, 0, 2);
}

static void *start_one(void *arg)
{
	struct starting *s = arg;
	struct driver_box box = { .pidfd = -1 };
	struct listeners l = { .transparent = false };
	const struct driver_spec spec = { .id = s->id,
		.runtime = "",
		.class = "exec",
		.workdir = "/mnt/data",
		.env = no_env,
		.slot = s->slot,
		.limits = { 256, 1000, 64, 64 },
		.lease_ms = 60000,
		.start_ms = s->start_ms,
		.listeners = &l,
		.listening = hold,
		.listening_arg = s };
	listeners_none(&l);
	s->rc = s->d->create(s->d, &spec, &box, &s->e);
	listeners_close(&l);
	if (box.pidfd >= 0)
		(void)close(box.pidfd);
	return NULL;
}

/* fault 37. Two at a time here: the third waits for its turn, no longer than a start may take, and says so. */
static void who_waits_too_long_for_a_turn_to_start_is_told(void **s)
{
	struct driver *d = driver("n1", false, *s, "runc");
	struct starting two[2] = { { .d = d, .start_ms = START_MS },
		{ .d = d, .slot = 1, .start_ms = START_MS } },
			late = { .d = d, .slot = 2, .start_ms = 300, .go_on = true };
	pthread_t t[2];
	if (absent(d, *s))
		skip();
	for (int i = 0; i < 2; i++) {
		id_make("sbx", two[i].id);
		assert_int_equal(pthread_create(&t[i], NULL, start_one, &two[i]), 0);
	}
	while (!two[0].inside || !two[1].inside)
		(void)poll(NULL, 0, 2);
	id_make("sbx", late.id);
	(void)start_one(&late);
	assert_int_equal(late.rc, -1);
	assert_int_equal(late.e.code, ERR_UNAVAILABLE);
	assert_non_null(strstr(late.e.msg, "turn"));
	two[0].go_on = two[1].go_on = true;
	for (int i = 0; i < 2; i++) {
		(void)pthread_join(t[i], NULL);
		assert_int_equal(two[i].rc, 0);
		assert_int_equal(d->destroy(d, two[i].id, clock_ms() + END_MS, &two[i].e), 0);
	}
	assert_nothing(d);
	leave(d);
}

static void a_box_that_is_none_fails_with_its_last_words(void **s)
{
	char good[sizeof box_binary];
	(void)snprintf(good, sizeof good, "%s", box_binary);
	(void)snprintf(box_binary, sizeof box_binary, "/bin/false");
	struct driver *d = driver("n3", false, *s, "runc");
	(void)snprintf(box_binary, sizeof box_binary, "%s", good);
	struct driver_box box;
	struct err e = { 0 };
	if (absent(d, *s))
		skip();
	id_make("sbx", id);
	const struct driver_spec spec = { .id = id,
		.runtime = "",
		.class = "exec",
		.workdir = "/mnt/data",
		.env = no_env,
		.limits = { 256, 1000, 64, 64 },
		.lease_ms = 1000 };
	auto_buf struct buf words = BUF(1000);
	if (d->create(d, &spec, &box, &e) == 0) {
		struct pollfd p = { .fd = box.pidfd, .events = POLLIN };
		assert_int_equal(poll(&p, 1, END_MS), 1);
		d->words(d, id, &words);
		assert_string_equal(buf_c(&words), "no output");
		(void)close(box.pidfd);
	}
	assert_int_equal(d->destroy(d, id, clock_ms() + END_MS, &e), 0);
	assert_nothing(d);
	leave(d);
}

/* DRV-0: here a box that never stops trying things out in children of its own, each gone at once. */
static void an_unisolated_box_is_not_taken_for_a_child_of_its_own(void **s)
{
	(void)s;
	static const char restless[] = "#!/bin/sh\nwhile :; do (:) & (:) & (:) & (:) & wait; done\n";
	char dir[120], program[120];
	struct err e = { 0 };
	struct driver_box box;
	(void)snprintf(dir, sizeof dir, "%s/p1", top);
	(void)snprintf(program, sizeof program, "%s/restless", top);
	assert_int_equal(file_write(program, restless, sizeof restless - 1, 0755, &e), 0);
	struct driver *d = process_new(&(struct process_opts){ .dir = dir,
					   .sockets = sockets,
					   .box_binary = program,
					   .uid_base = 3600000000,
					   .uid_count = 4LL * 65536,
					   .slots = 3 },
	    &e);
	if (d == NULL)
		fail_msg("%s", e.msg);
	for (int i = 0; i < 30; i++) {
		id_make("sbx", id);
		const struct driver_spec spec = {
			.id = id, .runtime = "", .class = "exec", .env = no_env, .slot = 1, .lease_ms = 60000
		};
		if (d->create(d, &spec, &box, &e) != 0)
			fail_msg("%s", e.msg);
		assert_int_equal(getsid(box.pid), box.pid);
		struct pollfd p = { .fd = box.pidfd, .events = POLLIN };
		assert_int_equal(poll(&p, 1, 0), 0);
		destroy(d, &box);
	}
	d->free(d);
}

/* A runtime is offered because it was run: one that is preferred and does not work is not replaced by another. */
static void a_preference_that_does_not_work_offers_no_default(void **s)
{
	(void)s;
	struct driver *d = driver("n1", false, "no-such-runtime", "");
	assert_false(offers(d, ""));
	leave(d);
	d = driver("n1", false, "", "kata-clh");
	assert_null(d->offered(d)[0]);
	assert_true(strlen(d->refusal(d)) > 0);
	leave(d);
}

/* Two daemons of one host never give out the same ids, and the range has an end. */
static void ranges_of_ids_are_apart(void **s)
{
	(void)s;
	struct driver *all[16];
	struct err e = { 0 };
	int n = 0;
	for (; n < 16; n++) {
		char dir[120];
		(void)snprintf(dir, sizeof dir, "%s/r%d", top, n);
		all[n] = oci_new(&(struct oci_opts){ .dir = dir,
				     .sockets = sockets,
				     .cgroup = cgroup,
				     .box_binary = box_binary,
				     .prefer = "",
				     .only = "none-of-them",
				     .uid_base = 3500000000,
				     .uid_count = 12LL * 65536,
				     .slots = 3,
				     .starts = 1 },
		    &e);
		if (all[n] == NULL)
			break;
	}
	assert_int_equal(n, 3); /* 12 ranges, four each */
	assert_int_equal(e.code, ERR_UNAVAILABLE);
	assert_non_null(strstr(e.msg, "SANDBOX_UID_BASE"));
	for (int i = 0; i < n; i++)
		all[i]->free(all[i]);
}

static int up(void **s)
{
	(void)s;
	const char *bin = getenv("STACK_BIN");
	char cwd[200];
	if (mkdtemp(top) == NULL || chmod(top, 0711) != 0 || getcwd(cwd, sizeof cwd) == NULL)
		return -1;
	(void)snprintf(
	    box_binary, sizeof box_binary, "%s/%s/gatehouse-box", cwd, bin == NULL ? "build/asan" : bin);
	(void)snprintf(sockets, sizeof sockets, "%s/s", top);
	return mkdir(sockets, 0711);
}

static int down(void **s)
{
	(void)s;
	struct err e = { 0 };
	return file_rmtree(top, &e);
}

#define T(test, binary)                                                                                      \
	{                                                                                                    \
#test " (" binary ")", test, NULL, NULL, (char[])                                            \
		{                                                                                            \
			binary                                                                               \
		}                                                                                            \
	}

int main(int argc, char **argv)
{
	int map_rc;
	/* gVisor asks the program that starts it for the maps of ids, under another name: see oci_ids.h. */
	if (oci_ids_main(argc, argv, &map_rc))
		return map_rc;
	const struct CMUnitTest tests[] = {
		T(what_is_built_is_found_again_and_removed, "runc"),
		T(what_is_built_is_found_again_and_removed, "crun"),
		T(what_is_built_is_found_again_and_removed, "runsc"),
		T(without_user_namespaces_it_runs_as_an_id_of_the_range, "runc"),
		T(without_user_namespaces_it_runs_as_an_id_of_the_range, "crun"),
		T(an_id_is_built_once, "runc"),
		T(an_id_is_built_once, "crun"),
		T(a_start_that_is_given_up_leaves_nothing, "runsc"),
		T(who_waits_too_long_for_a_turn_to_start_is_told, "runc"),
		T(a_box_that_is_none_fails_with_its_last_words, "runc"),
		T(a_box_that_is_none_fails_with_its_last_words, "crun"),
		cmocka_unit_test(every_half_built_state_is_removed),
		cmocka_unit_test(a_preference_that_does_not_work_offers_no_default),
		cmocka_unit_test(ranges_of_ids_are_apart),
		cmocka_unit_test(an_unisolated_box_is_not_taken_for_a_child_of_its_own),
	};
	return cmocka_run_group_tests_name("sandbox_driver", tests, up, down);
}
