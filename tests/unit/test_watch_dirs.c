/* Which watch stands for which directory, while directories come, move and go. SBX-47. */
#include "../t.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/limits.h"
#include "box/watch_dirs.h"

static const char *path_of(const struct watch_dirs *d, int wd)
{
	const struct watch_dir *w = watch_dirs_find(d, wd);
	return w == NULL ? NULL : w->path;
}

static void add(struct watch_dirs *d, int wd, const char *path)
{
	assert_int_equal(watch_dirs_add(d, wd, path, false), 0);
}

static void a_directory_is_found_by_its_watch(void **s)
{
	(void)s;
	struct watch_dirs d = { .n = 0 };
	static const int order[] = { 5, 1, 9, 3, 7 };
	char path[16];
	for (size_t i = 0; i < 5; i++) {
		(void)snprintf(path, sizeof path, "d%d", order[i]);
		add(&d, order[i], path);
	}
	for (int wd = 0; wd <= 10; wd++) {
		(void)snprintf(path, sizeof path, "d%d", wd);
		if (wd % 2 == 1)
			assert_string_equal(path_of(&d, wd), path);
		else
			assert_null(path_of(&d, wd));
	}
	add(&d, 5, "again"); /* the kernel gives one directory one number */
	assert_int_equal(d.n, 5);
	assert_string_equal(path_of(&d, 5), "again");
	watch_dirs_drop(&d, 5);
	watch_dirs_drop(&d, 5);
	assert_null(path_of(&d, 5));
	assert_int_equal(d.n, 4);
	watch_dirs_free(&d);
}

static void what_moves_takes_along_what_is_below(void **s)
{
	(void)s;
	struct watch_dirs d = { .n = 0 };
	static const char *const paths[] = { "", "a", "a/b", "a/b/c", "ab", "x" };
	for (int i = 0; i < 6; i++)
		add(&d, i + 1, paths[i]);
	assert_int_equal(watch_dirs_rename(&d, "a", "x/new"), 0);
	static const char *const now[] = { "", "x/new", "x/new/b", "x/new/b/c", "ab", "x" };
	for (int i = 0; i < 6; i++)
		assert_string_equal(path_of(&d, i + 1), now[i]);
	watch_dirs_aside(&d, "x/new/b");
	assert_true(watch_dirs_find(&d, 3)->aside && !watch_dirs_find(&d, 4)->aside);
	char deep[LIMIT_PATH_BYTES];
	memset(deep, 'd', sizeof deep - 1);
	deep[sizeof deep - 1] = 0;
	assert_int_equal(watch_dirs_rename(&d, "x/new", deep), ENOMEM); /* and nothing is lost */
	assert_int_equal(d.n, 6);
	int went = 0, wd;
	while ((wd = watch_dirs_take(&d, "ab")) >= 0) {
		assert_int_equal(wd, 5);
		went++;
	}
	assert_int_equal(went, 1);
	while (watch_dirs_take(&d, "x") >= 0)
		went++;
	assert_true(went >= 2);
	assert_string_equal(path_of(&d, 1), "");
	watch_dirs_free(&d);
}

/* Each is read once, however others come and go meanwhile. */
static void each_waits_to_be_read_once(void **s)
{
	(void)s;
	struct watch_dirs d = { .n = 0 };
	bool read[40] = { false };
	char path[16];
	for (int wd = 2; wd < 20; wd += 2) {
		(void)snprintf(path, sizeof path, "d%d", wd);
		add(&d, wd, path);
	}
	watch_dirs_read(&d, 4); /* this one need not */
	const struct watch_dir *w;
	for (int more = 3; (w = watch_dirs_waiting(&d)) != NULL; more += 4) {
		assert_false(read[w->wd]);
		read[w->wd] = true;
		watch_dirs_drop(&d, w->wd - 2);
		if (more < 40)
			add(&d, more, "more");
	}
	assert_false(watch_dirs_wait(&d));
	for (int wd = 2; wd < 20; wd += 2)
		assert_true(read[wd] == (wd != 4));
	size_t n = d.n, again = 0;
	watch_dirs_again(&d);
	while (watch_dirs_waiting(&d) != NULL)
		again++;
	assert_int_equal(again, n);
	watch_dirs_free(&d);
}

static void there_is_an_end_to_how_many(void **s)
{
	(void)s;
	struct watch_dirs d = { .n = 0 };
	for (int wd = 1; wd <= WATCH_DIRS_MAX; wd++)
		add(&d, wd, "d");
	assert_int_equal(watch_dirs_add(&d, WATCH_DIRS_MAX + 1, "d", false), ENOSPC);
	add(&d, WATCH_DIRS_MAX, "known");
	assert_int_equal(d.n, WATCH_DIRS_MAX);
	watch_dirs_free(&d);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_directory_is_found_by_its_watch),
		cmocka_unit_test(what_moves_takes_along_what_is_below),
		cmocka_unit_test(each_waits_to_be_read_once),
		cmocka_unit_test(there_is_an_end_to_how_many),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
