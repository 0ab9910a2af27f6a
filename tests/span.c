#include "span.h"

#include <pthread.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/str.h"
#include "io/file.h"

/* Microseconds in which some task waited for it (Documentation/accounting/psi.rst); -1: this kernel does not tell. The sum is the
 * mean of the processors, so that a wait for one of n may count as an n-th only. */
static int64_t pressure_us(const char *of)
{
	char path[40];
	auto_buf struct buf text = BUF(4096);
	struct err none = { 0 };
	(void)snprintf(path, sizeof path, "/proc/pressure/%s", of);
	const char *total = file_read(path, &text, &none) == 0 ? strstr(buf_c(&text), "total=") : NULL;
	return total == NULL ? -1
			     : strtoll(total + strlen("total="), NULL, 10) * sysconf(_SC_NPROCESSORS_ONLN);
}

/* What the host of this virtual machine gave to others; the eighth figure of the first line, in ticks. */
static int64_t stolen_us(void)
{
	auto_buf struct buf text = BUF(1 << 20);
	struct err none = { 0 };
	long long v[8] = { 0 };
	if (file_read("/proc/stat", &text, &none) == 0)
		(void)sscanf(buf_c(&text), "cpu %lld %lld %lld %lld %lld %lld %lld %lld", &v[0], &v[1], &v[2],
		    &v[3], &v[4], &v[5], &v[6], &v[7]);
	return v[7] * 1000000 / sysconf(_SC_CLK_TCK);
}

static int64_t waited_ms(void)
{
	static const char *const of[] = { "cpu", "io", "memory" };
	int64_t us = stolen_us();
	for (int i = 0; i < 3; i++) {
		int64_t one = pressure_us(of[i]);
		if (one < 0)
			return -1;
		us += one;
	}
	return us / 1000;
}

/* The tasks for each processor. */
static double load(void)
{
	double of_a_minute[1] = { 0 };
	(void)getloadavg(of_a_minute, 1);
	return of_a_minute[0] / (double)sysconf(_SC_NPROCESSORS_ONLN);
}

enum { PAGES = 256, PAGE = 4096, TRIES = 5, PACE_MAX = 20 };
/* What one probe() takes on an ordinary machine: 1.5 ms for the process, and 0.6 us a page. */
#define ORDINARY_US (1500 + PAGES * 0.6)

static int64_t cpu_us(const struct rusage *r)
{
	return (r->ru_utime.tv_sec + r->ru_stime.tv_sec) * INT64_C(1000000) + r->ru_utime.tv_usec +
	    r->ru_stime.tv_usec;
}

/* The time of processors that a process and new pages take, whoever waits for them; -1: this process may not make any. */
static int64_t probe(void)
{
	struct rusage before, after, child;
	pid_t pid;
	char *const argv[] = { (char[]){ "true" }, NULL }, *const env[] = { NULL };
	(void)getrusage(RUSAGE_THREAD, &before);
	char *p = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED)
		return -1;
	(void)madvise(p, PAGES * PAGE, MADV_NOHUGEPAGE);
	for (int i = 0; i < PAGES; i++)
		*(volatile char *)(p + (ptrdiff_t)i * PAGE) = 1;
	(void)munmap(p, PAGES * PAGE);
	/* posix_spawn: a fork() would copy the tables of this program, which a sanitizer makes large. */
	if (posix_spawn(&pid, "/bin/true", NULL, NULL, argv, env) != 0 || wait4(pid, NULL, 0, &child) != pid)
		return -1;
	(void)getrusage(RUSAGE_THREAD, &after);
	return cpu_us(&after) - cpu_us(&before) + cpu_us(&child);
}

static double measured;

static void measure(void)
{
	int64_t best = -1;
	for (int i = 0; i < TRIES; i++) {
		int64_t us = probe();
		if (us >= 0 && (best < 0 || us < best))
			best = us;
	}
	double now = (double)best / ORDINARY_US;
	measured = now < 1 ? 1 : now > PACE_MAX ? PACE_MAX : now;
}

double span_pace(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	(void)pthread_once(&once, measure);
	return measured;
}

int64_t span_left(int64_t took_ms, int64_t waited_ms, double pace)
{
	return waited_ms < took_ms ? (int64_t)((double)(took_ms - waited_ms) / pace) : 0;
}

int span_room_ms(int ms)
{
	double busy = load();
	return (int)(ms * (span_pace() + (busy < PACE_MAX ? busy : PACE_MAX)));
}

struct span span_begin(void)
{
	return (struct span){ clock_ms(), waited_ms() };
}

int64_t span_of(const struct span *s, int64_t told_ms)
{
	int64_t now = waited_ms();
	if (s->waited_ms < 0 ||
	    now < 0) /* the kernel does not tell: as many times longer as there are tasks */
		return span_left(told_ms, 0, span_pace() * (1 + load()));
	/* Where all of it was waiting there is nothing to divide, and no reason to measure. */
	return now - s->waited_ms < told_ms ? span_left(told_ms, now - s->waited_ms, span_pace()) : 0;
}

int64_t span_ms(const struct span *s)
{
	return span_of(s, clock_ms() - s->began_ms);
}
