/*
 * bench.h - the one harness of all benches. A bench is one program, tests/bench/bench_NAME.c: it sets up what it measures, lets
 * the sides take turns, and says which figures came out. Nothing here is judged: a bench fails only when it could not measure.
 *
 * Sides take turns (A B A B …) after one unmeasured round each, so that a noisy neighbour hits all of them. Told are medians over
 * the rounds: time an operation, and CPU time an operation of the processes that a side names. The report is Markdown.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum { BENCH_METERS = 4, BENCH_SIDES = 6, BENCH_ROUNDS_MAX = 64 };

/* Whose CPU time is counted: the processes of the session that pid leads, its children, and whom these have reaped (a part of
 * tests/stack, and whatever a bench starts with setsid); pid 0 is the bench itself with what it has reaped. */
struct bench_meter {
	const char *name;
	pid_t pid;
};
struct bench_side {
	const char *name;
	void (*prepare)(struct bench_side *s); /* before each round, not measured; may be NULL */
	/* One round: some operations, at least a tenth of a second of them; how many. */
	long (*round)(struct bench_side *s);
	void *arg;
	struct bench_meter meters[BENCH_METERS]; /* ended by one without a name, or full */
	/* Set by bench_compare. */
	double us, least_us, most_us; /* an operation: the median round, the best and the worst */
	double cpu_us[BENCH_METERS];  /* medians, as the meters stand */
	double p50_us, p99_us;        /* of what bench_took was told, all rounds together; 0 when nothing */
	double *took;
	size_t n_took, cap_took;
	double round_us[BENCH_ROUNDS_MAX]; /* an operation, in the order of the rounds */
};

/* Run as the only thing in main: setup, measure and teardown as a cmocka test, so that assertions work and teardown happens. The
 * report goes to build/bench/NAME.md. The result is main's. Sets STACK_BIN, so that stack_up takes the release build. */
int bench_main(const char *name, int (*setup)(void **state), void (*measure)(void **state),
    int (*teardown)(void **state));
/* `what` is the table's heading, `op` one operation ("request", "MiB"). The first side is ours; ratios are told against it. */
void bench_compare(const char *what, const char *op, struct bench_side *sides, size_t n, int rounds);
/* How long one operation of a round took, for p50 and p99. One thread at a time. */
void bench_took(struct bench_side *s, double us);
/* A figure that was wanted: at most (or at least) `wanted`. Unit: "us", "ms", "s", "KiB", "x" … as it shall be shown. */
void bench_at_most(const char *what, double got, double wanted, const char *unit);
void bench_at_least(const char *what, double got, double wanted, const char *unit);
/* A figure that nobody set a goal for. */
void bench_note(const char *what, double got, const char *unit);
/* A line of the report. */
void bench_say(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

double bench_now_us(void); /* CLOCK_MONOTONIC */
double bench_cpu_us(const struct bench_meter *m);
double bench_median(double *v, size_t n); /* sorts v */
