/* What a sandbox looks like from inside (SBX-64): each thing that must not be seen, one by one. */
#include "../t.h"

#include <stdio.h>
#include <string.h>

#include "sandbox/inspect.h"

static const char *const hidden[] = { "/etc/shadow", NULL };
static const struct inspect_host host = { .version = "Linux version 6.1 of the host",
	.boot_id = "b00t",
	.listener = "192.0.2.7/4000",
	.port = 4000,
	.hidden = hidden,
	.workdir = "/mnt/data" };

/* What a good one says; a test changes one line. */
static const char good[] = "version=Linux version 6.1 of the host\nboot=b00t\n"
			   "status=Uid: 1000 1000 1000 1000\nstatus=CapInh: 0000000000000000\n"
			   "status=CapPrm: 0000000000000000\nstatus=CapEff: 0000000000000000\n"
			   "status=CapBnd: 0000000000000000\nstatus=CapAmb: 0000000000000000\n"
			   "status=NoNewPrivs: 1\nstatus=Seccomp: 2\nif=lo\n"
			   "write=/mnt/data\nwrite=/tmp\nwrite=/state/home\nwrite=/dev/shm\n"
			   "closed=127.0.0.1/4000 Connection refused\n"
			   "closed=169.254.169.254/80 Network is unreachable\n"
			   "closed=192.0.2.7/4000 Network is unreachable\nend=\n";

/* `was` replaced by `is` in what a good one says. */
static void with(const char *was, const char *is, struct buf *out)
{
	const char *at = strstr(good, was);
	assert_non_null(at);
	assert_int_equal(buf_add(out, good, (size_t)(at - good)), 0);
	assert_int_equal(buf_str(out, is), 0);
	assert_int_equal(buf_str(out, at + strlen(was)), 0);
}

static void a_good_one_is_good(void **s)
{
	(void)s;
	for (int l = 0; l < INSPECT_LINES; l++) {
		struct err e = { 0 };
		auto_buf struct buf seen = BUF(1000);
		if (inspect_judge((enum inspect_line)l, &host, false, good, &seen, &e) != 0)
			fail_msg("%s: %s", inspect_names[l], e.msg);
		assert_true(seen.n > 0);
	}
}

static void each_thing_that_must_not_be_is_said(void **s)
{
	(void)s;
	static const struct {
		enum inspect_line line;
		bool own;
		const char *was, *is, *says;
	} rows[] = {
		{ INSPECT_KERNEL, true, "boot=", "boot=", "runs on the host's" },
		{ INSPECT_KERNEL, true, "boot=b00t", "boot=", "runs on the host's" },
		{ INSPECT_KERNEL, true, "version=Linux version 6.1 of the host", "version=", "does not say" },
		{ INSPECT_CAPABILITIES, false, "Uid: 1000", "Uid: 0 1000", "uid 0" },
		{ INSPECT_CAPABILITIES, false, "CapInh: 0000000000000000", "CapInh: 0000000000000400",
		    "CapInh" },
		{ INSPECT_CAPABILITIES, false, "CapPrm: 0000000000000000", "CapPrm: 0000000000000400",
		    "CapPrm" },
		{ INSPECT_CAPABILITIES, true, "CapEff: 0000000000000000", "CapEff: 0000003fffffffff",
		    "CapEff" },
		{ INSPECT_CAPABILITIES, false, "CapBnd: 0000000000000000", "CapBnd: 000001ffffffffff",
		    "CapBnd" },
		{ INSPECT_CAPABILITIES, false, "CapAmb: 0000000000000000", "CapAmb: 0000000000000001",
		    "CapAmb" },
		{ INSPECT_CAPABILITIES, false, "status=CapEff: 0000000000000000\n", "", "CapEff" },
		{ INSPECT_CAPABILITIES, false, "NoNewPrivs: 1", "NoNewPrivs: 0", "no-new-privileges" },
		{ INSPECT_CAPABILITIES, false, "Seccomp: 2", "Seccomp: 0", "seccomp" },
		{ INSPECT_NETWORK, false, "if=lo\n", "if=lo\nif=eth0\n", "interface eth0" },
		{ INSPECT_NETWORK, false, "if=lo\n", "if=lo\nroute=x 00000000 01010101\n", "route out" },
		{ INSPECT_NETWORK, false, "closed=169.254.169.254/80 Network is unreachable",
		    "open=169.254.169.254/80", "reaches 169.254.169.254/80" },
		{ INSPECT_NETWORK, false, "closed=192.0.2.7/4000 Network is unreachable",
		    "open=192.0.2.7/4000", "reaches 192.0.2.7/4000" },
		{ INSPECT_NETWORK, false, "closed=192.0.2.7/4000 Network is unreachable",
		    "closed=192.0.2.7/4000 No such file or directory", "could not be tried out" },
		{ INSPECT_NETWORK, false, "closed=192.0.2.7/4000 Network is unreachable\n", "",
		    "could not be tried out" },
		{ INSPECT_MOUNTS, false, "write=/tmp", "write=/tmp\nwrite=/usr", "write to /usr" },
		{ INSPECT_MOUNTS, false, "write=/tmp", "write=/tmp\nwrite=/", "write to /." },
		{ INSPECT_MOUNTS, false, "write=/tmp", "write=/tmp\nwrite=/tmpx", "write to /tmpx" },
		{ INSPECT_MOUNTS, false, "write=/tmp", "write=/tmp\nsees=/etc/shadow",
		    "sees the host's /etc/shadow" },
		{ INSPECT_MOUNTS, false, "write=/tmp\n", "", "cannot write" },
		{ INSPECT_MOUNTS, false, "write=/mnt/data\n", "", "cannot write" },
		{ INSPECT_MOUNTS, false, "end=\n", "", "did not come to its end" },
		{ INSPECT_NETWORK, false, "end=\n", "", "did not come to its end" },
	};
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		struct err e = { 0 };
		auto_buf struct buf said = BUF(8192), seen = BUF(1000);
		with(rows[i].was, rows[i].is, &said);
		if (inspect_judge(rows[i].line, &host, rows[i].own, buf_c(&said), &seen, &e) == 0)
			fail_msg("%s -> %s is good", rows[i].was, rows[i].is);
		if (strstr(e.msg, rows[i].says) == NULL)
			fail_msg("%s -> %s: %s", rows[i].was, rows[i].is, e.msg);
	}
}

/* Another kernel says another boot, or, where it has none to tell, another version. */
static void a_kernel_of_its_own_is_one(void **s)
{
	(void)s;
	static const char *const others[][2] = {
		{ "boot=b00t", "boot=another" },
		{ "version=Linux version 6.1 of the host\nboot=b00t", "version=Linux version 4.4.0\nboot=" },
	};
	for (size_t i = 0; i < 2; i++) {
		struct err e = { 0 };
		auto_buf struct buf said = BUF(8192), seen = BUF(1000);
		with(others[i][0], others[i][1], &said);
		if (inspect_judge(INSPECT_KERNEL, &host, true, buf_c(&said), &seen, &e) != 0)
			fail_msg("%s", e.msg);
	}
}

static void the_script_asks_for_everything_that_is_judged(void **s)
{
	(void)s;
	auto_buf struct buf out = BUF(65536);
	static const char *const parts[] = { "/proc/version", "boot_id", "/proc/self/status", "/proc/net/dev",
		"/proc/net/route", "/proc/mounts", "dial 192.0.2.7/4000", "dial 169.254.169.254/80",
		"dial 127.0.0.1/4000", "'/etc/shadow'", "try '/mnt/data'" };
	inspect_script(&host, &out);
	for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
		assert_non_null(strstr(buf_c(&out), parts[i]));
}

static void a_volume_outlives_its_lease_and_nothing_else(void **s)
{
	(void)s;
	static const char left[] = "left=/work\nleft=/tmp\nleft=/state\nend=\n";
	static const struct {
		const char *left, *found, *says;
	} rows[] = {
		{ left, "kept=/work t0k\nend=\n", NULL },
		{ left, "end=\n", "is not there" },
		{ left, "kept=/work other\nend=\n", "is not there" },
		{ left, "kept=/work t0k\nkept=/tmp t0k\nend=\n", "wrote to /tmp" },
		{ left, "kept=/work t0k\n", "its end" },
		{ "left=/work\nend=\n", "kept=/work t0k\nend=\n", "in 1 places" },
	};
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		struct err e = { 0 };
		auto_buf struct buf seen = BUF(1000);
		int rc = inspect_outlived("t0k", rows[i].left, rows[i].found, &seen, &e);
		assert_int_equal(rc, rows[i].says == NULL ? 0 : -1);
		assert_true(rows[i].says == NULL || strstr(e.msg, rows[i].says) != NULL);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_volume_outlives_its_lease_and_nothing_else),
		cmocka_unit_test(a_good_one_is_good),
		cmocka_unit_test(each_thing_that_must_not_be_is_said),
		cmocka_unit_test(a_kernel_of_its_own_is_one),
		cmocka_unit_test(the_script_asks_for_everything_that_is_judged),
	};
	return cmocka_run_group_tests_name("inspect", tests, NULL, NULL);
}
