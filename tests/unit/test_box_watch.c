/* Changes in a real box, told as they happen. SBX-47. */
#include "../t.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "../boxtest.h"
#include "base/clock.h"
#include "base/limits.h"

static struct boxtest box;

static int up(void **s)
{
	(void)s;
	boxtest_up(&box, NULL);
	return 0;
}

static int up_in_gvisor(void **s)
{
	(void)s;
	boxtest_up(&box, &(struct boxtest_conf){ .runsc = true });
	return 0;
}

static int down(void **s)
{
	(void)s;
	boxtest_down(&box);
	return 0;
}

static void sh(const char *script)
{
	auto_buf struct buf out = BUF(65536);
	if (boxtest_run(&box, script, PATIENCE_MS, &out).exit_code != 0)
		fail_msg("%s\n%s", script, buf_c(&out));
}

/* A watch in a thread of its own, which writes down what it is told: "create a/b; rename c <- a; ". */
struct watcher {
	pthread_t thread;
	pthread_mutex_t lock;
	const char *path;
	bool recursive, stop, stand_still;
	bool ready, over;
	int n, overflows, rc;
	struct err e;
	struct buf said;
};

static int on_change(void *arg, const struct channel_change *c)
{
	static const char *const words[] = { "", "watched", "create", "write", "remove", "rename", "chmod",
		"overflow" };
	struct watcher *w = arg;
	(void)pthread_mutex_lock(&w->lock);
	w->ready |= c->what == PROTO_WATCHED;
	w->overflows += c->what == PROTO_OVERFLOW;
	w->n++;
	if (c->what != PROTO_WATCHED)
		(void)buf_fmt(&w->said, "%s%s %s%s%s; ", words[c->what], c->dir ? "/" : "", c->path,
		    c->from[0] == 0 ? "" : " <- ", c->from);
	(void)pthread_mutex_unlock(&w->lock);
	for (bool still = true; still;) { /* a reader that is told to read no more for now */
		(void)pthread_mutex_lock(&w->lock);
		still = w->ready && w->stand_still && !w->stop;
		(void)pthread_mutex_unlock(&w->lock);
		if (still)
			(void)usleep(2000);
	}
	return 0;
}

static bool is_stopped(void *arg)
{
	struct watcher *w = arg;
	(void)pthread_mutex_lock(&w->lock);
	bool stop = w->stop;
	(void)pthread_mutex_unlock(&w->lock);
	return stop;
}

static void *watch(void *arg)
{
	struct watcher *w = arg;
	struct channel_wait wait = boxtest_wait(PATIENCE_MS);
	wait.cancelled = is_stopped;
	wait.arg = w;
	w->rc = channel_watch(box.c, w->path, w->recursive, &wait, on_change, w, &w->e);
	(void)pthread_mutex_lock(&w->lock);
	w->over = true;
	(void)pthread_mutex_unlock(&w->lock);
	return NULL;
}

static bool begun(void *arg)
{
	struct watcher *w = arg;
	(void)pthread_mutex_lock(&w->lock);
	bool is = w->ready || w->over;
	(void)pthread_mutex_unlock(&w->lock);
	return is;
}

static void begin(struct watcher *w, const char *path, bool recursive)
{
	*w = (struct watcher){ .path = path, .recursive = recursive, .said = BUF(16 << 20) };
	(void)pthread_mutex_init(&w->lock, NULL);
	assert_int_equal(pthread_create(&w->thread, NULL, watch, w), 0);
	boxtest_until(begun, w, PATIENCE_MS);
}

static void end(struct watcher *w)
{
	(void)pthread_mutex_lock(&w->lock);
	w->stop = true;
	(void)pthread_mutex_unlock(&w->lock);
	(void)pthread_join(w->thread, NULL);
	buf_free(&w->said);
	(void)pthread_mutex_destroy(&w->lock);
}

struct wanted {
	struct watcher *w;
	const char *text;
	int n; /* overflows, when text is NULL */
};

static bool was_said(void *arg)
{
	const struct wanted *want = arg;
	(void)pthread_mutex_lock(&want->w->lock);
	bool is = want->text == NULL ? want->w->overflows >= want->n
				     : strstr(buf_c(&want->w->said), want->text) != NULL;
	(void)pthread_mutex_unlock(&want->w->lock);
	return is;
}

static void hear(struct watcher *w, const char *text)
{
	struct wanted want = { w, text, 1 };
	int64_t until = clock_ms() + 60000;
	while (!was_said(&want)) {
		if (clock_ms() > until)
			fail_msg("not told: %s\ntold: %s", text, buf_c(&w->said));
		(void)usleep(2000);
	}
}

/* Everything that was said, in this order, and nothing else. */
static void said(struct watcher *w, const char *all)
{
	hear(w, strrchr(all, '|') + 1);
	char want[2000];
	size_t n = 0;
	for (const char *p = all; *p != 0; p++)
		if (*p != '|')
			want[n++] = *p;
	want[n] = 0;
	assert_string_equal(buf_c(&w->said), want);
}

static void forget(struct watcher *w)
{
	(void)pthread_mutex_lock(&w->lock);
	buf_reset(&w->said);
	(void)pthread_mutex_unlock(&w->lock);
}

static ssize_t give(void *arg, void *p, size_t n)
{
	int *left = arg;
	if (*left == 0)
		return 0;
	*left = 0;
	memset(p, 'x', n < 10 ? n : 10);
	return n < 10 ? (ssize_t)n : 10;
}

static void put(const char *path)
{
	struct channel_wait w = boxtest_wait(PATIENCE_MS);
	struct err e = { 0 };
	int left = 1;
	assert_int_equal(channel_put(box.c, path, -1, &w, give, &left, NULL, &e), 0);
}

static void every_change_is_told_in_its_order(void **s)
{
	(void)s;
	struct watcher w;
	sh("mkdir w; mkdir w/sub");
	begin(&w, "w", false);
	sh("echo x >w/a; chmod 600 w/a; mv w/a w/b; rm w/b; mkdir w/d; rmdir w/d");
	said(&w, "create a; write a; chmod a; rename b <- a; remove b; create/ d; |remove/ d; ");
	forget(&w);
	sh("echo x >out-here; mv out-here w/in; mv w/in gone; touch w/sub/unseen; mv w/sub sub; echo x "
	   ">w/last");
	hear(&w, "write last; ");
	assert_string_equal(buf_c(&w.said), "create in; remove in; remove/ sub; create last; write last; ");
	end(&w);
	sh("rm -r w gone sub");
}

/* A request writes into a file of its own first; what is told is the file that comes of it. */
static void a_file_that_a_request_writes_is_told_once(void **s)
{
	(void)s;
	struct watcher w, one;
	sh("mkdir w");
	begin(&w, "w", true);
	put("w/new");
	hear(&w, "create new; ");
	begin(&one, "w/new", false);
	put("w/new");
	hear(&w, "write new; ");
	put("w/other");
	said(&w, "create new; write new; |create other; ");
	sh("rm w/new");
	said(&one, "write ; |remove ; "); /* by its name, though it is another file by now */
	sh("echo x >w/new");
	hear(&one, "create ; write ; ");
	end(&one);
	end(&w);
	sh("rm -r w");
}

static void a_tree_is_watched_as_it_grows_and_moves(void **s)
{
	(void)s;
	struct watcher w;
	sh("mkdir -p w/a/b; mkdir other");
	begin(&w, "w", true);
	sh("echo x >w/a/b/f");
	said(&w, "create a/b/f; |write a/b/f; ");
	forget(&w);
	sh("mkdir -p w/c/d/e; echo x >w/c/d/e/f"); /* told whether it was there first or not */
	hear(&w, "create c/d/e/f; ");
	sh("mv w/c w/moved; echo x >w/moved/d/e/g");
	hear(&w, "rename/ moved <- c; ");
	hear(&w, "write moved/d/e/g; ");
	forget(&w);
	sh("mv w/moved other/moved; echo x >other/moved/d/e/h; mkdir -p other/t/u; mv other/t w/t; echo x "
	   ">w/t/u/i");
	hear(&w, "remove/ moved; ");
	hear(&w, "create/ t; ");
	hear(&w, "create/ t/u; ");
	hear(&w, "t/u/i; ");
	assert_null(strstr(buf_c(&w.said), "/h;"));
	end(&w);
	sh("rm -r w other");
}

/* A tree that a request removes is told of under its own names. */
static void a_tree_that_is_removed_is_told_under_its_own_names(void **s)
{
	(void)s;
	struct watcher w;
	struct channel_wait wait = boxtest_wait(PATIENCE_MS);
	struct err e = { 0 };
	uint64_t count;
	sh("mkdir -p w/t/a/b/c; touch w/t/a/b/c/f w/t/a/b/g");
	begin(&w, "w", true);
	assert_int_equal(channel_remove(box.c, "w/t", true, &wait, &count, &e), 0);
	hear(&w, "remove/ t; ");
	static const char *const told[] = { "remove t/a/b/c/f; ", "remove t/a/b/g; ", "remove/ t/a/b/c; ",
		"remove/ t/a/b; ", "remove/ t/a; " };
	for (size_t i = 0; i < sizeof told / sizeof told[0]; i++)
		hear(&w, told[i]);
	assert_null(strstr(buf_c(&w.said), "gatehouse"));
	end(&w);
	sh("rm -r w");
}

static void a_place_that_goes_ends_its_watch(void **s)
{
	(void)s;
	struct watcher w;
	sh("mkdir -p w/x");
	begin(&w, "w", true);
	sh("rm -r w");
	hear(&w, "remove/ ; ");
	(void)pthread_join(w.thread, NULL);
	assert_int_equal(w.rc, 0);
	buf_free(&w.said);
	sh("mkdir w");
	begin(&w, "w", false);
	sh("mv w w2");
	hear(&w, "remove/ ; ");
	end(&w);
	assert_int_equal(w.rc, 0);
	sh("rm -r w2");
}

static void only_the_workspace_can_be_watched(void **s)
{
	(void)s;
	static const struct {
		const char *path;
		enum err_code code;
	} rows[] = { { "/etc", ERR_FORBIDDEN }, { "..", ERR_FORBIDDEN }, { "none", ERR_NOT_FOUND },
		{ "out", ERR_FORBIDDEN } };
	struct watcher w;
	sh("ln -s /etc out; mkdir w; ln -s ../../out w/out; mkdir w/d");
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		begin(&w, rows[i].path, true);
		end(&w);
		assert_int_equal(w.rc, -1);
		assert_int_equal(w.e.code, rows[i].code);
		assert_string_equal(w.e.param, "path");
	}
	begin(&w, "w", true); /* links in it are not gone into */
	sh("echo x >../out/unseen; echo x >w/d/seen; mv w/d ../out/d; echo x >../out/d/unseen; echo x "
	   ">w/last");
	hear(&w, "write last; ");
	assert_null(strstr(buf_c(&w.said), "unseen"));
	assert_non_null(strstr(buf_c(&w.said), "remove/ d; "));
	end(&w);
	sh("rm -r w out ../out/unseen ../out/d");
}

/* A reader that stands still costs nothing but what is told as lost; then it goes on. */
static void a_reader_that_stands_still_is_told_of_an_overflow(void **s)
{
	(void)s;
	struct watcher w;
	struct wanted lost = { &w, NULL, 1 };
	sh("mkdir w");
	begin(&w, "w", true);
	(void)pthread_mutex_lock(&w.lock);
	w.stand_still = true;
	(void)pthread_mutex_unlock(&w.lock);
	sh("cd w; x=$(printf '%0100d' 0); i=0; while [ $i -lt 2 ]; do seq -f $x%g 4000 | xargs touch; rm -f "
	   "*; "
	   "i=$((i+1)); done; mkdir late");
	(void)pthread_mutex_lock(&w.lock);
	w.stand_still = false;
	(void)pthread_mutex_unlock(&w.lock);
	boxtest_until(was_said, &lost, PATIENCE_MS);
	assert_true(w.n < 40000);
	sh("echo x >w/late/after"); /* also a directory whose making was not told */
	hear(&w, "late/after; ");
	end(&w);
	sh("rm -r w");
}

static void writes_in_a_row_are_few_events(void **s)
{
	(void)s;
	struct watcher w;
	sh("mkdir w");
	begin(&w, "w", true);
	sh("i=0; while [ $i -lt 5000 ]; do echo x; i=$((i+1)); done >w/f; echo x >w/last");
	hear(&w, "write last; ");
	assert_in_range(w.n, 4, 1000);
	end(&w);
	sh("rm -r w");
}

/* However many watch, requests that end have a place. */
static void watches_leave_room_for_other_requests(void **s)
{
	(void)s;
	enum { MOST = 16 };
	struct watcher w[MOST], more;
	sh("mkdir w");
	for (int i = 0; i < MOST; i++)
		begin(&w[i], "w", true);
	begin(&more, "w", true);
	end(&more);
	assert_int_equal(more.rc, -1);
	assert_int_equal(more.e.code, ERR_UNAVAILABLE);
	put("w/f");
	for (int i = 0; i < MOST; i++)
		hear(&w[i], "create f; ");
	for (int i = 0; i < MOST; i++)
		end(&w[i]);
	begin(&more, "w", true); /* there is a place again */
	assert_true(more.ready);
	end(&more);
	sh("rm -r w");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_change_is_told_in_its_order),
		cmocka_unit_test(a_file_that_a_request_writes_is_told_once),
		cmocka_unit_test(a_tree_is_watched_as_it_grows_and_moves),
		cmocka_unit_test(a_tree_that_is_removed_is_told_under_its_own_names),
		cmocka_unit_test(a_place_that_goes_ends_its_watch),
		cmocka_unit_test(only_the_workspace_can_be_watched),
		cmocka_unit_test(a_reader_that_stands_still_is_told_of_an_overflow),
		cmocka_unit_test(writes_in_a_row_are_few_events),
		cmocka_unit_test(watches_leave_room_for_other_requests),
	};
	const struct CMUnitTest gvisor[] = {
		cmocka_unit_test(every_change_is_told_in_its_order),
		cmocka_unit_test(a_file_that_a_request_writes_is_told_once),
		cmocka_unit_test(a_tree_is_watched_as_it_grows_and_moves),
		cmocka_unit_test(a_tree_that_is_removed_is_told_under_its_own_names),
		cmocka_unit_test(a_place_that_goes_ends_its_watch),
		cmocka_unit_test(only_the_workspace_can_be_watched),
	};
	int failed = cmocka_run_group_tests_name("on Linux", tests, up, down);
	if (boxtest_runsc() != NULL)
		failed += cmocka_run_group_tests_name("in gVisor", gvisor, up_in_gvisor, down);
	return failed;
}
