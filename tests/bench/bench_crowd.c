/* A hundred sandboxes at once: what each holds, what the next lease costs, and a hundred leases that are asked for at the same time. */
#include "../t.h"

#include "bench.h"
#include "fetch.h"

#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../flow/sbx.h"
#include "../memory.h"
#include "base/js.h"
#include "io/file.h"

enum { CROWD = 100, NEXT = 9, NEXT_ROUNDS = 5, BURST_ROUNDS = 2, SETTLE_MS = 2000 };

static struct stack stack;
static struct stack_org org;

static int setup(void **state)
{
	(void)state;
	stack_up(&stack, 1, 0, 1, "SANDBOX_OCI_RUNTIME=runc\nNODE_CAPACITY=128\nSANDBOX_IDLE_S=0");
	stack_org(&stack, &org);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	stack_down(&stack);
	return 0;
}

/* ---- many at the same time, a connection each */

struct one {
	pthread_t thread;
	struct fetch *f;
	char id[40];
	double ready_us;
};
static struct one crowd[CROWD];

static void *lease_one(void *arg)
{
	struct one *o = arg;
	double begin = bench_now_us();
	auto_json json_t *got = fetch_json(
	    o->f, "POST", "/v1/sandboxes", js_pack("{s:s,s:i}", "class", "exec", "ttlSec", 3600));
	o->ready_us = bench_now_us() - begin;
	(void)snprintf(o->id, sizeof o->id, "%s", js_str_or(got, "id", ""));
	return NULL;
}

static void *end_one(void *arg)
{
	struct one *o = arg;
	char path[80];
	(void)snprintf(path, sizeof path, "/v1/sandboxes/%.39s", o->id);
	(void)fetch_do(o->f, "DELETE", path, NULL);
	return NULL;
}

static void all(void *(*fn)(void *))
{
	for (int i = 0; i < CROWD; i++)
		assert_int_equal(pthread_create(&crowd[i].thread, NULL, fn, &crowd[i]), 0);
	for (int i = 0; i < CROWD; i++)
		(void)pthread_join(crowd[i].thread, NULL);
}

/* ---- a burst, with and without turns */

static void restart(const char *starts)
{
	char path[96];
	(void)snprintf(path, sizeof path, "%s/gatehouse.conf", stack.dir);
	FILE *f = fopen(path, "ae");
	assert_non_null(f);
	(void)fprintf(f, "SANDBOX_STARTS=%s\n", starts);
	(void)fclose(f);
	stack_stop(&stack, "node1");
	stack_start(&stack, "node1");
	stack_ready(&stack);
	(void)poll(NULL, 0, SETTLE_MS);
}

static void prepare(struct bench_side *s)
{
	if (crowd[0].id[0] != '\0')
		all(end_one);
	restart(s->arg);
}

static long burst(struct bench_side *s)
{
	all(lease_one); /* a lease that fails ends the bench */
	for (int i = 0; i < CROWD; i++)
		bench_took(s, crowd[i].ready_us);
	return CROWD;
}

static void burst_bench(void)
{
	char as_processors[] = "0", at_once[] = "100";
	struct bench_side sides[] = {
		{ .name = "as many starts at a time as processors (SANDBOX_STARTS=0)",
		    .prepare = prepare,
		    .round = burst,
		    .arg = as_processors },
		{ .name = "all at once (SANDBOX_STARTS=100)",
		    .prepare = prepare,
		    .round = burst,
		    .arg = at_once },
	};
	bench_compare("A burst of 100 leases; p50 and p99 are from the request to the sandbox being ready",
	    "lease", sides, 2, BURST_ROUNDS);
	bench_note("Of a burst of 100 leases, p99", sides[0].p99_us / 1e6, "s");
	bench_note("… p50", sides[0].p50_us / 1e6, "s");
	bench_note("… all at once: p50", sides[1].p50_us / 1e6, "s");
	bench_note("… that fail", 0, "leases");
	all(end_one);
	restart("0");
}

/* ---- a crowd that stays */

/* What the kernel has charged to all sandboxes of the node (control groups v2 or v1), and what is sandboxd's own. */
static double held_kib(void)
{
	static const struct {
		const char *root, *file;
	} at[] = { { "/sys/fs/cgroup", "memory.current" },
		{ "/sys/fs/cgroup/memory", "memory.usage_in_bytes" } };
	char instance[64], path[200];
	stack_instance(&stack, instance);
	for (size_t i = 0; i < sizeof at / sizeof at[0]; i++) {
		auto_buf struct buf text = BUF(64);
		struct err e = { 0 };
		(void)snprintf(
		    path, sizeof path, "%s/gatehouse/%s.node1/%s", at[i].root, instance, at[i].file);
		if (file_read(path, &text, &e) == 0)
			return strtod(buf_c(&text), NULL) / 1024 +
			    (double)memory_private_kib(stack_pid(&stack, "node1"));
	}
	fail_msg("no control group tells its memory");
	return 0;
}

static long next_leases(struct bench_side *s)
{
	struct one o = { .f = s->arg };
	for (int i = 0; i < NEXT; i++) {
		(void)lease_one(&o);
		bench_took(s, o.ready_us);
		(void)end_one(&o);
	}
	return NEXT;
}

static double next_p50(const char *what, struct fetch *f)
{
	struct bench_side side = { .name = what, .round = next_leases, .arg = f };
	bench_compare("A lease and its end, one after the other", "lease", &side, 1, NEXT_ROUNDS);
	return side.p50_us;
}

static void measure(void **state)
{
	(void)state;
	for (int i = 0; i < CROWD; i++)
		crowd[i].f = fetch_new(&stack, org.key);
	struct fetch *f = fetch_new(&stack, org.key);
	burst_bench();
	double alone = next_p50("with none there", f);
	(void)poll(NULL, 0, SETTLE_MS);
	double before = held_kib();
	all(lease_one);
	(void)poll(NULL, 0, SETTLE_MS);
	bench_note("Memory of each of 100 live sandboxes: control group and share of sandboxd",
	    (held_kib() - before) / CROWD, "KiB");
	double beside = next_p50("with 100 there", f);
	bench_note("The 101st lease, p50", beside / 1000, "ms");
	bench_note("… of the first", beside / alone, "×");
	all(end_one);
	for (int i = 0; i < CROWD; i++)
		fetch_free(crowd[i].f);
	fetch_free(f);
	sbx_no_leaks(&stack);
}

int main(void)
{
	return bench_main("crowd", setup, measure, teardown);
}
