#include "../t.h"

#include "bench.h"

#include <dirent.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/mem.h"
#include "base/str.h"
#include "io/file.h"

/* The one report of this program. */
static struct {
	FILE *to;
	struct buf figures;
} report;

/* ---- clocks */

double bench_now_us(void)
{
	struct timespec t;
	(void)clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static double timeval_us(struct timeval t)
{
	return (double)t.tv_sec * 1e6 + (double)t.tv_usec;
}

struct seen { /* from /proc/PID/stat (proc(5): fields 4, 6, 16 and 17) */
	long parent, session;
	double reaped_us;
};

static bool read_stat(const char *pid, struct seen *seen)
{
	char path[64];
	auto_buf struct buf b = BUF(4096);
	struct err e = { 0 };
	(void)snprintf(path, sizeof path, "/proc/%s/stat", pid);
	if (file_read(path, &b, &e) != 0)
		return false;
	const char *at = strrchr(buf_c(&b), ')');
	long cutime, cstime;
	if (at == NULL ||
	    sscanf(at, ") %*c %ld %*d %ld %*d %*d %*u %*u %*u %*u %*u %*u %*u %ld %ld", &seen->parent,
		&seen->session, &cutime, &cstime) != 4)
		return false;
	seen->reaped_us = (double)(cutime + cstime) * 1e6 / (double)sysconf(_SC_CLK_TCK);
	return true;
}

static double process_us(pid_t pid)
{
	clockid_t clock;
	struct timespec t;
	if (clock_getcpuclockid(pid, &clock) != 0 || clock_gettime(clock, &t) != 0)
		return 0; /* it ended just now: its parent's reaped time has it */
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

double bench_cpu_us(const struct bench_meter *m)
{
	if (m->pid == 0) {
		struct rusage r;
		(void)getrusage(RUSAGE_CHILDREN, &r);
		return process_us(getpid()) + timeval_us(r.ru_utime) + timeval_us(r.ru_stime);
	}
	DIR *d = opendir("/proc");
	assert_non_null(d);
	double sum = 0;
	for (struct dirent *de; (de = readdir(d)) != NULL;) {
		struct seen seen;
		if (!str_only(de->d_name, "0123456789") || !read_stat(de->d_name, &seen))
			continue;
		pid_t pid = (pid_t)strtol(de->d_name, NULL, 10);
		/* A child may have made a session of its own: PostgreSQL's do. */
		if (seen.session == m->pid || seen.parent == m->pid)
			sum += process_us(pid) + seen.reaped_us;
	}
	(void)closedir(d);
	return sum;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

double bench_median(double *v, size_t n)
{
	if (n == 0)
		return 0;
	qsort(v, n, sizeof *v, by_value);
	return n % 2 == 1 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

/* ---- the report */

void bench_say(const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	(void)vfprintf(report.to, fmt, ap);
	va_end(ap);
	(void)fputc('\n', report.to);
	(void)fflush(report.to);
}

/* Three digits, in the unit that fits. */
static const char *shown(double us, char out[32])
{
	static const struct {
		double us;
		const char *unit;
	} units[] = { { 1e6, "s" }, { 1e3, "ms" }, { 1, "µs" }, { 0, "ns" } };
	size_t i = 0;
	while (us < units[i].us)
		i++;
	double v = units[i].us > 0 ? us / units[i].us : us * 1e3;
	(void)snprintf(out, 32, "%.*f %s", v >= 100 ? 0 : v >= 10 ? 1 : 2, v, units[i].unit);
	return out;
}

static void figure(const char *what, double got, const char *wanted, const char *unit, const char *verdict)
{
	(void)buf_fmt(&report.figures, "| %s | %.*f %s | %s | %s |\n", what,
	    got >= 100      ? 0
		: got >= 10 ? 1
			    : 2,
	    got, unit, wanted, verdict);
}

void bench_at_most(const char *what, double got, double wanted, const char *unit)
{
	char text[64];
	(void)snprintf(text, sizeof text, "≤ %g %s", wanted, unit);
	figure(what, got, text, unit, got <= wanted ? "reached" : "**missed**");
}

void bench_at_least(const char *what, double got, double wanted, const char *unit)
{
	char text[64];
	(void)snprintf(text, sizeof text, "≥ %g %s", wanted, unit);
	figure(what, got, text, unit, got >= wanted ? "reached" : "**missed**");
}

void bench_note(const char *what, double got, const char *unit)
{
	figure(what, got, "", unit, "");
}

/* ---- sides that take turns */

void bench_took(struct bench_side *s, double us)
{
	if (s->n_took == s->cap_took) {
		s->cap_took = s->cap_took == 0 ? 1024 : 2 * s->cap_took;
		s->took = xrealloc(s->took, s->cap_took * sizeof *s->took);
	}
	s->took[s->n_took++] = us;
}

static size_t n_meters(const struct bench_side *s)
{
	size_t n = 0;
	while (n < BENCH_METERS && s->meters[n].name != NULL)
		n++;
	return n;
}

struct rounds {
	double us[BENCH_ROUNDS_MAX], cpu_us[BENCH_METERS][BENCH_ROUNDS_MAX];
};

static void one_round(struct bench_side *s, struct rounds *r, int i)
{
	double before[BENCH_METERS];
	size_t n = n_meters(s);
	if (s->prepare != NULL)
		s->prepare(s);
	for (size_t m = 0; m < n; m++)
		before[m] = bench_cpu_us(&s->meters[m]);
	double begin = bench_now_us();
	long ops = s->round(s);
	double end = bench_now_us();
	assert_true(ops > 0);
	r->us[i] = (end - begin) / (double)ops;
	for (size_t m = 0; m < n; m++)
		r->cpu_us[m][i] = (bench_cpu_us(&s->meters[m]) - before[m]) / (double)ops;
}

static void medians(struct bench_side *s, struct rounds *r, size_t rounds)
{
	memcpy(s->round_us, r->us, rounds * sizeof *r->us);
	s->us = bench_median(r->us, rounds);
	s->least_us = r->us[0];
	s->most_us = r->us[rounds - 1];
	for (size_t m = 0; m < n_meters(s); m++)
		s->cpu_us[m] = bench_median(r->cpu_us[m], rounds);
	s->p50_us = bench_median(s->took, s->n_took);
	s->p99_us = s->n_took == 0 ? 0 : s->took[(size_t)(0.99 * (double)(s->n_took - 1))];
	free(s->took);
	s->took = NULL;
	s->n_took = s->cap_took = 0;
}

static void row(const struct bench_side *s, const struct bench_side *first)
{
	char a[32], b[32], c[32];
	auto_buf struct buf cpu = BUF(512), quick = BUF(128);
	for (size_t m = 0; m < n_meters(s); m++)
		(void)buf_fmt(&cpu, "%s%s %s", m == 0 ? "" : ", ", s->meters[m].name, shown(s->cpu_us[m], a));
	if (s->p50_us > 0)
		(void)buf_fmt(&quick, "%s / %s", shown(s->p50_us, a), shown(s->p99_us, b));
	bench_say("| %s | %s | %s … %s | %s | %s | %.2f |", s->name, shown(s->us, a), shown(s->least_us, b),
	    shown(s->most_us, c), buf_c(&quick), buf_c(&cpu), s->us / first->us);
}

void bench_compare(const char *what, const char *op, struct bench_side *sides, size_t n, int rounds)
{
	assert_true(n > 0 && n <= BENCH_SIDES && rounds > 0 && rounds <= BENCH_ROUNDS_MAX);
	struct rounds *r = xcalloc(n, sizeof *r);
	for (size_t i = 0; i < n; i++) {
		one_round(&sides[i], &r[i], 0); /* caches and connections; its numbers are overwritten */
		sides[i].n_took = 0;
	}
	for (int k = 0; k < rounds; k++)
		for (size_t i = 0; i < n; i++)
			one_round(&sides[i], &r[i], k);
	for (size_t i = 0; i < n; i++)
		medians(&sides[i], &r[i], (size_t)rounds);
	free(r);
	bench_say("\n#### %s\n", what);
	bench_say(
	    "| %d rounds in turn | a %s | best … worst | p50 / p99 | CPU a %s | ratio |", rounds, op, op);
	bench_say("| --- | --- | --- | --- | --- | --- |");
	for (size_t i = 0; i < n; i++)
		row(&sides[i], &sides[0]);
}

int bench_main(const char *name, int (*setup)(void **state), void (*measure)(void **state),
    int (*teardown)(void **state))
{
	char path[128];
	(void)mkdir("build", 0755);
	(void)mkdir("build/bench", 0755);
	(void)snprintf(path, sizeof path, "build/bench/%s.md", name);
	(void)setenv("STACK_BIN", "build/release", 0);
	(void)setenv("STACK_PG_CONF", "", 0); /* PostgreSQL as it comes, with fsync */
	report.to = fopen(path, "we");
	assert_non_null(report.to);
	report.figures = BUF(64 * 1024);
	bench_say("### %s", name);
	const struct CMUnitTest all[] = { { name, measure, NULL, NULL, NULL } };
	int failed = cmocka_run_group_tests(all, setup, teardown);
	if (report.figures.n > 0)
		bench_say("\n| figure | measured | wanted | |\n| --- | --- | --- | --- |\n%s",
		    buf_c(&report.figures));
	buf_free(&report.figures);
	(void)fclose(report.to);
	return failed;
}
