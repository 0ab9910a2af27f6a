#include "t.h"

#include "memory.h"

#include <stdio.h>
#include <string.h>

#include "base/str.h"
#include "io/file.h"

long memory_private_kib(pid_t pid)
{
	char path[64];
	auto_buf struct buf b = BUF(8192);
	struct err e = { 0 };
	(void)snprintf(path, sizeof path, "/proc/%d/smaps_rollup", (int)pid);
	assert_int_equal(file_read(path, &b, &e), 0);
	long sum = 0;
	for (const char *at = buf_c(&b); (at = strstr(at, "Private_")) != NULL; at++)
		if (!str_starts(at, "Private_Hugetlb"))
			sum += strtol(at + strcspn(at, ":") + 1, NULL, 10);
	return sum;
}
