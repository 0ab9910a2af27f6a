/* The listening socket: made at a path, or taken from systemd. */
#include "../t.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "io/fcgi_int.h"
#include "io/file.h"

static char dir[] = "/tmp/test-fcgi-socket.XXXXXX";

static int start(void **s)
{
	(void)s;
	return mkdtemp(dir) == NULL ? -1 : 0;
}

static int stop(void **s)
{
	(void)s;
	struct err e = { 0 };
	return file_rmtree(dir, &e);
}

static void a_socket_path_that_cannot_be_is_told(void **s)
{
	(void)s;
	char long_path[200];
	memset(long_path, 'x', sizeof long_path - 1);
	long_path[0] = '/';
	long_path[sizeof long_path - 1] = 0;
	struct err e = { 0 };
	assert_int_equal(fcgi_socket(long_path, NULL, &e), -1);
	assert_non_null(strstr(e.msg, "too long"));
	err_clear(&e);
	assert_int_equal(fcgi_socket("/nonexistent/x.sock", NULL, &e), -1);
	assert_non_null(strstr(e.msg, "No such file"));
	err_clear(&e);
	char path[100];
	(void)snprintf(path, sizeof path, "%s/group.sock", dir);
	assert_int_equal(fcgi_socket(path, "no-such-group", &e), -1);
	assert_non_null(strstr(e.msg, "no group"));
	assert_int_equal(access(path, F_OK), -1);
}

static void a_socket_is_taken_from_systemd(void **s)
{
	(void)s;
	char path[100], pid[20];
	struct err e = { 0 };
	(void)snprintf(path, sizeof path, "%s/sd.sock", dir);
	(void)snprintf(pid, sizeof pid, "%d", (int)getpid());
	assert_int_equal(fcgi_socket(NULL, NULL, &e), -1);
	assert_non_null(strstr(e.msg, "systemd passed no socket"));
	err_clear(&e);
	int listener = fcgi_socket(path, NULL, &e), third = fcntl(3, F_DUPFD_CLOEXEC, 10);
	assert_true(listener >= 0);
	assert_int_equal(dup2(listener, 3), 3);
	(void)setenv("LISTEN_PID", pid, 1);
	(void)setenv("LISTEN_FDS", "1", 1);
	assert_int_equal(fcgi_socket(NULL, NULL, &e), 3);
	assert_int_equal(fcntl(3, F_GETFD), FD_CLOEXEC);
	assert_true((fcntl(3, F_GETFL) & O_NONBLOCK) != 0);
	(void)close(3);
	assert_int_equal(fcgi_socket(NULL, NULL, &e), -1);
	assert_non_null(strstr(e.msg, "listening unix stream socket"));
	(void)unsetenv("LISTEN_PID");
	(void)unsetenv("LISTEN_FDS");
	if (third >= 0) {
		assert_int_equal(dup2(third, 3), 3);
		(void)close(third);
	}
	if (listener != 3)
		(void)close(listener);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_socket_is_taken_from_systemd),
		cmocka_unit_test(a_socket_path_that_cannot_be_is_told),
	};
	return cmocka_run_group_tests_name("fcgi_socket", tests, start, stop);
}
