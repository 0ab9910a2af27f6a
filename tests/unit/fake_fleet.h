/*
 * fake_fleet.h - for the tests of fleet and reaper, each a program of its own: a driver and a box that do what a test wants,
 * and rows in a private PostgreSQL.
 */
#pragma once

#include "../span.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../pgtest.h"
#include "base/clock.h"
#include "base/id.h"
#include "sandbox/fleet.h"

static struct pgtest *server;
static struct pg_pool *pool;

/* ---- a driver whose sandboxes are sleeping children of ours */

enum { FAKES = 8 };
static struct fake {
	char id[ID_MAX];
	pid_t pid;
	bool there; /* something is left on the "host" */
} fakes[FAKES];
static pthread_mutex_t fakes_lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_bool create_blocks; /* until it is cancelled */
static atomic_int create_fails, destroy_fails, destroyed;
static char swept[ID_MAX]; /* the command that was swept up after last, of so many */
static int sweeps;
static long long oom_kills;

static struct fake *fake(const char *id)
{
	for (int i = 0; i < FAKES; i++)
		if (fakes[i].there && strcmp(fakes[i].id, id) == 0)
			return &fakes[i];
	return NULL;
}

static void describe(const struct fake *k, struct driver_box *box)
{
	*box = (struct driver_box){ .pid = k->pid, .pidfd = (int)syscall(SYS_pidfd_open, k->pid, 0) };
	assert_true(box->pidfd >= 0);
}

static pid_t sleeper(void)
{
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid == 0)
		for (;;)
			(void)pause();
	return pid;
}

static struct fake *fake_add(const char *id)
{
	struct fake *k = fakes;
	while (k->there) {
		k++;
		assert_true(k < fakes + FAKES);
	}
	(void)snprintf(k->id, sizeof k->id, "%s", id);
	k->pid = sleeper();
	k->there = true;
	return k;
}

static void (*on_create)(void); /* while it blocks */

static int d_create(struct driver *d, const struct driver_spec *s, struct driver_box *box, struct err *e)
{
	(void)d;
	for (int64_t until = clock_ms() + 60000; create_blocks && clock_ms() < until;
	     (void)poll(NULL, 0, 5)) {
		if (on_create != NULL)
			on_create();
		if (s->cancelled(s->arg))
			return err_set(e, ERR_CONFLICT, "cancelled");
	}
	if (create_fails > 0)
		return (void)create_fails--, err_set(e, ERR_UNAVAILABLE, "The runtime said no.");
	(void)pthread_mutex_lock(&fakes_lock);
	describe(fake_add(s->id), box);
	(void)pthread_mutex_unlock(&fakes_lock);
	return 0;
}

static int d_settle(struct driver *d, const char *id, struct err *e)
{
	(void)d, (void)id, (void)e;
	return 0;
}

static void (*on_find)(void); /* after it was found, before its finder hears of it */

static int d_find(struct driver *d, const char *id, struct driver_box *box, struct err *e)
{
	(void)d;
	struct fake *k = fake(id);
	if (k == NULL || kill(k->pid, 0) != 0)
		return err_set(e, ERR_NOT_FOUND, "gone");
	describe(k, box);
	if (on_find != NULL)
		on_find();
	return 0;
}

static int d_destroy(struct driver *d, const char *id, int64_t deadline_ms, struct err *e)
{
	(void)d, (void)deadline_ms;
	if (destroy_fails > 0)
		return (void)destroy_fails--, err_set(e, ERR_TIMEOUT, "It does not go.");
	(void)pthread_mutex_lock(&fakes_lock);
	struct fake *k = fake(id);
	if (k != NULL) {
		(void)kill(k->pid, SIGKILL);
		(void)waitpid(k->pid, NULL, 0);
		k->there = false;
		destroyed++;
	}
	(void)pthread_mutex_unlock(&fakes_lock);
	return 0;
}

static int d_place(struct driver *d, const char *id, const char *cmd, pid_t pid, struct err *e)
{
	(void)d, (void)id, (void)cmd, (void)pid, (void)e;
	return 0;
}

static int d_kill(struct driver *d, const char *id, const char *cmd, int64_t deadline_ms, struct err *e)
{
	(void)d, (void)id, (void)deadline_ms, (void)e;
	(void)snprintf(swept, sizeof swept, "%s", cmd == NULL ? "" : cmd);
	sweeps++;
	return 0;
}

static void d_tidy(struct driver *d, const char *id)
{
	(void)d, (void)id;
}

static void d_words(struct driver *d, const char *id, struct buf *out)
{
	(void)d, (void)id;
	(void)buf_str(out, "famous last words");
}

static long long d_oom(struct driver *d, const char *id)
{
	(void)d, (void)id;
	return oom_kills;
}

static void d_each(struct driver *d, void (*fn)(void *arg, const char *id), void *arg)
{
	(void)d;
	(void)pthread_mutex_lock(&fakes_lock);
	for (int i = 0; i < FAKES; i++)
		if (fakes[i].there)
			fn(arg, fakes[i].id);
	(void)pthread_mutex_unlock(&fakes_lock);
}

static struct driver driver = { .name = "fake",
	.create = d_create,
	.settle = d_settle,
	.find = d_find,
	.destroy = d_destroy,
	.place = d_place,
	.kill = d_kill,
	.tidy = d_tidy,
	.words = d_words,
	.oom_kills = d_oom,
	.each = d_each };

/* ---- the channel's side: one that is there or not */

static enum { ANSWERS, SILENT, STRANGER } box_is;
static void (*on_open)(void); /* something that happens while the box is being waited for */
static atomic_int open_channels;
static atomic_bool channel_is_lost;

static struct channel_item commands[4]; /* what the box tells of */
static int n_commands, lists;           /* lists: how often it was asked */

struct channel *channel_open(const struct channel_opts *o, const struct channel_wait *w, struct err *e)
{
	(void)o, (void)w;
	if (on_open != NULL)
		on_open();
	if (box_is == SILENT)
		err_set(e, ERR_UNAVAILABLE, "The sandbox does not answer yet.");
	if (box_is == STRANGER)
		err_set(e, ERR_UPSTREAM, "Somebody else listens.");
	if (box_is != ANSWERS)
		return NULL;
	open_channels++;
	channel_is_lost = false;
	return malloc(1);
}

void channel_close(struct channel *c)
{
	open_channels--;
	free(c);
}

bool channel_lost(struct channel *c)
{
	(void)c;
	return channel_is_lost;
}

int channel_list(
    struct channel *c, uint32_t cmd, const struct channel_wait *w, struct channel_item **items, struct err *e)
{
	(void)c, (void)cmd, (void)w, (void)e;
	lists++;
	*items = xcalloc((size_t)n_commands + 1, sizeof **items);
	memcpy(*items, commands, (size_t)n_commands * sizeof **items);
	return n_commands;
}

int channel_lease(struct channel *c, int64_t left_ms, const struct channel_wait *w, struct err *e)
{
	(void)c, (void)left_ms, (void)w, (void)e;
	return 0;
}

int channel_stop(struct channel *c, const struct channel_wait *w, int *ended, struct err *e)
{
	(void)c, (void)w, (void)e;
	*ended = 2;
	return 0;
}

int channel_stop_one(struct channel *c, uint32_t cmd, const struct channel_wait *w, int *ended, struct err *e)
{
	(void)cmd;
	return channel_stop(c, w, ended, e);
}

pid_t channel_host_pid(pid_t init, pid_t inner)
{
	(void)init;
	return inner;
}

/* ---- rows */

static void sql(const char *text)
{
	pgtest_sql(server, text);
}

static void row(const char *id, int slot, int ttl_s)
{
	char text[600];
	(void)snprintf(text, sizeof text,
	    "INSERT INTO sandboxes (id, org, class, image, runtime, iso_kernel, iso_network, iso_tier, node, "
	    "workdir, limits, created_by, "
	    "slot, expires_at) VALUES ('%s', 'admin', 'exec', 'host', '', false, 'none', 2, 'n1', "
	    "'/mnt/data', "
	    "'{\"memoryMb\":64,\"cpuMilli\":1000,\"pids\":16,\"diskMb\":16}', 'u', %d, now() + interval '%d "
	    "s')",
	    id, slot, ttl_s);
	sql(text);
}

static const struct pg_stmt q_row = { "row",
	"SELECT status, coalesce(error, ''), slot IS NULL FROM sandboxes WHERE id = $1", 1 };

static void assert_row(const char *id, const char *status, const char *error_has)
{
	struct err e = { 0 };
	auto_pg struct pg *db = pg_take(pool, 60000, &e);
	assert_non_null(db);
	auto_res struct pg_res *r = PG(db, &q_row, &e, id);
	assert_non_null(r);
	assert_int_equal(pg_rows(r), 1);
	assert_string_equal(pg_str(r, 0, 0), status);
	if (strstr(pg_str(r, 0, 1), error_has) == NULL)
		fail_msg("\"%s\" is not in \"%s\"", error_has, pg_str(r, 0, 1));
	bool over = strcmp(status, "ended") == 0 || strcmp(status, "error") == 0;
	assert_int_equal(pg_bool(r, 0, 2), over); /* the slot is free exactly when it is over */
}

static int left(void)
{
	int n = 0;
	(void)pthread_mutex_lock(&fakes_lock);
	for (int i = 0; i < FAKES; i++)
		n += fakes[i].there;
	(void)pthread_mutex_unlock(&fakes_lock);
	return n;
}

static int start_s; /* 1 of an ordinary machine */

static struct fleet *fleet_up(void)
{
	start_s = 1 + span_room_ms(100) / 1000;
	return fleet_new(&(struct fleet_opts){
	    .db = pool, .driver = &driver, .node = "n1", .refusal = "", .start_s = start_s, .idle_s = 60 });
}

static struct fleet *f; /* of the test under way */
static char id[ID_MAX];

static int fresh(void **s)
{
	(void)s;
	box_is = ANSWERS;
	on_open = NULL;
	create_blocks = false;
	create_fails = destroy_fails = destroyed = 0;
	sweeps = n_commands = lists = 0;
	oom_kills = 0;
	id_make("sbx", id);
	f = fleet_up();
	assert_int_equal(fleet_round(f), 0);
	return 0;
}

static int done(void **s)
{
	(void)s;
	struct err e = { 0 };
	fleet_free(f);
	assert_int_equal(open_channels, 0);
	for (int i = 0; i < FAKES; i++)
		if (fakes[i].there)
			(void)d_destroy(&driver, fakes[i].id, 0, &e);
	sql("DELETE FROM sandboxes");
	return 0;
}

static int build(struct err *e)
{
	*e = (struct err){ 0 };
	return fleet_build(f, id, e);
}

static struct err told; /* to who wanted it too early */

/* As on_open or on_find: once. */
static void want_it(void)
{
	on_open = on_find = NULL;
	err_clear(&told);
	assert_null(fleet_take(f, id, &told));
}

static void assert_told_to_come_again(void)
{
	assert_int_equal(told.code, ERR_UNAVAILABLE);
	assert_string_equal(told.reason, "node_starting");
}

static void assert_usable(void)
{
	struct err e = { 0 };
	struct held *h = fleet_take(f, id, &e);
	assert_non_null(h);
	fleet_give(h);
}

static void kill_it(void)
{
	struct fake *k = fake(id);
	if (k != NULL)
		(void)kill(k->pid, SIGKILL);
}

static void end_row(void)
{
	char text[200];
	(void)snprintf(text, sizeof text,
	    "UPDATE sandboxes SET status = 'ended', ended_at = now(), slot = NULL WHERE id = '%s'", id);
	sql(text);
}

static bool row_over(void)
{
	struct err e = { 0 };
	auto_pg struct pg *db = pg_take(pool, 60000, &e);
	assert_non_null(db);
	auto_res struct pg_res *r = PG(db, &q_row, &e, id);
	return r != NULL && pg_bool(r, 0, 2);
}

static void wait_row_over(void)
{
	int64_t deadline = clock_ms() + 60000;
	while (!row_over() && clock_ms() < deadline)
		(void)poll(NULL, 0, 5);
}

static int up(void **s)
{
	(void)s;
	server = pgtest_start();
	pool = pg_pool_new(pgtest_conninfo(server), 12, 5000);
	sql("INSERT INTO nodes (name, instance, address, capacity) VALUES ('n1', 'main', 'unix:/x', 16)");
	return 0;
}

static int down(void **s)
{
	(void)s;
	pg_pool_free(pool);
	pgtest_end(server);
	return 0;
}

#define T(fn) cmocka_unit_test_setup_teardown(fn, fresh, done)
