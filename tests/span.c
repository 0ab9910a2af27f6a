#include "span.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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

/* Where the kernel does not tell: as many times longer as there are tasks for each processor. */
static int64_t by_load(int64_t ms)
{
	double load[1] = { 0 };
	(void)getloadavg(load, 1);
	return (int64_t)((double)ms / (1 + load[0] / (double)sysconf(_SC_NPROCESSORS_ONLN)));
}

struct span span_begin(void)
{
	return (struct span){ clock_ms(), waited_ms() };
}

int64_t span_ms(const struct span *s)
{
	int64_t ms = clock_ms() - s->began_ms, now = waited_ms();
	if (s->waited_ms < 0 || now < 0)
		return by_load(ms);
	int64_t waited = now - s->waited_ms;
	return waited < ms ? ms - waited : 0;
}
