/* Ten thousand idle watchers of one session on one api process: what they cost, how soon an event is everywhere, who waits for whom. */
#include "../t.h"

#include "bench.h"
#include "crowd.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "../memory.h"
#include "../watching.h"
#include "base/clock.h"
#include "base/js.h"
#include "session/event.h"

enum {
	WATCHERS = 10000,
	EVENTS = 9,
	FEW = 50,
	LARGE = 60,
	LARGE_BYTES = 48 * 1024,
	ROUNDS = 5,
	WAIT_MS = 30000,
	SETTLE_MS = 3000
};

static struct stack stack;
static struct stack_org org;
static struct pg_pool *db;

static int setup(void **state)
{
	char info[200];
	(void)state;
	(void)setenv("NGINX_WORKERS", "3", 1); /* two descriptors a watcher, and 20 000 a process */
	stack_up(&stack, 1, 1, 1, "API_MAX_STREAMS=12000");
	stack_org(&stack, &org);
	(void)snprintf(info, sizeof info, "host=%s/run/pg user=gatehouse dbname=gatehouse", stack.dir);
	db = pg_pool_new(info, 2, 10000);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	stack_down(&stack);
	pg_pool_free(db);
	return 0;
}

/* ---- a crowd that sits there */

struct scene {
	struct crowd *crowd;
	char session[ID_MAX];
	int said;
};

static long one_event(struct bench_side *s)
{
	struct scene *sc = s->arg;
	sc->said++;
	double begin = bench_now_us();
	session_says(db, org.slug, sc->session, sc->said, sc->said);
	int n = crowd_read(sc->crowd, sc->said, WAIT_MS);
	bench_took(s, bench_now_us() - begin);
	assert_int_equal(n, WATCHERS);
	return WATCHERS;
}

static void many(void)
{
	struct scene sc = { 0 };
	pid_t api = stack_pid(&stack, "api1");
	session_made(db, org.slug, NULL, sc.session);
	struct bench_meter cpu = { "api", api };
	long before = memory_private_kib(api);
	double begin = bench_now_us();
	sc.crowd = crowd_new(&stack, org.key, sc.session, WATCHERS, 0);
	bench_say(
	    "\n%d watchers connected in %.1f s, each over TLS.", WATCHERS, (bench_now_us() - begin) / 1e6);
	(void)crowd_read(sc.crowd, 1, SETTLE_MS); /* they idle: the first pings are over */
	long kib = memory_private_kib(api) - before;
	double idle = bench_cpu_us(&cpu);
	(void)crowd_read(sc.crowd, 1, SETTLE_MS);
	idle = (bench_cpu_us(&cpu) - idle) / (SETTLE_MS / 1000.0);
	struct bench_side side = { .name = "an event to 10 000 watchers",
		.round = one_event,
		.arg = &sc,
		.meters = { { "api", api }, { "nginx", stack_pid(&stack, "nginx") }, { "clients", 0 } } };
	bench_compare("An event to all watchers of a session", "watcher", &side, 1, EVENTS);
	bench_at_most(
	    "Memory of the api process for each of 10 000 idle watchers", (double)kib / WATCHERS, 25, "KiB");
	bench_note("… after events", (double)(memory_private_kib(api) - before) / WATCHERS, "KiB");
	bench_at_most("An event is with all 10 000, median", side.p50_us / 1e6, 1, "s");
	bench_at_most("… at worst", side.p99_us / 1e6, 1, "s");
	bench_note("CPU of the api process for 10 000 idle watchers, of a processor", idle / 1e4, "%");
	crowd_free(sc.crowd);
}

/* ---- one who does not read */

static long large_events(struct bench_side *s)
{
	struct scene *sc = s->arg;
	struct err e = { 0 };
	auto_pg struct pg *c = pg_take(db, 1000, &e);
	static char text[LARGE_BYTES + 1];
	memset(text, 'x', LARGE_BYTES);
	for (int i = 0; i < LARGE; i++) {
		auto_json json_t *v = js_pack("{s:s}", "message", text);
		assert_int_equal(session_append(c, org.slug, sc->session, "log", v, NULL, &e), 0);
	}
	sc->said += LARGE;
	int have = crowd_read(sc->crowd, sc->said, WAIT_MS);
	if (have != FEW)
		fail_msg("%s: %d of %d have all %d events", s->name, have, FEW, sc->said);
	return LARGE;
}

static void one_is_slow(void)
{
	struct scene alone = { 0 }, beside = { 0 };
	session_made(db, org.slug, NULL, alone.session);
	session_made(db, org.slug, NULL, beside.session);
	alone.crowd = crowd_new(&stack, org.key, alone.session, FEW, 0);
	beside.crowd = crowd_new(&stack, org.key, beside.session, FEW + 1, 1);
	struct bench_side sides[] = {
		{ .name = "50 watchers", .round = large_events, .arg = &alone },
		{ .name = "50 watchers, and one that does not read", .round = large_events, .arg = &beside },
	};
	bench_compare("48 KiB events to 50 watchers", "event", sides, 2, ROUNDS);
	bench_at_most("One slow reader delays the others by", sides[1].us / sides[0].us, 1.25, "×");
	crowd_free(alone.crowd);
	crowd_free(beside.crowd);
}

static void watch(void **state)
{
	(void)state;
	many();
	one_is_slow();
}

int main(void)
{
	return bench_main("watch", setup, watch, teardown);
}
