#include "t.h"

#include "egresstest.h"
#include "fds.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "io/egress_ctl.h"
#include "io/file.h"
#include "io/http.h"
#include "io/pg.h"

enum { WAIT_MS = 60000, SQL_BYTES = 8192, ANSWER_BYTES = 4 << 20, ENV_MAX = 64, POLICY_BYTES = 4096 };

/* ---- the process */

static const char *binary(char out[512])
{
	ssize_t n = readlink("/proc/self/exe", out, 400);
	assert_true(n > 0);
	out[n] = '\0';
	*strrchr(out, '/') = '\0'; /* BUILD/tests/test_x */
	(void)snprintf(strrchr(out, '/'), 32, "/gatehouse-egress");
	return out;
}

static void write_conf(const struct egtest *t, const char *path)
{
	FILE *f = fopen(path, "w");
	assert_non_null(f);
	(void)fprintf(f,
	    "DATABASE_URL=%s\nEGRESS_SOCKET=%s\nEGRESS_DNS=127.0.0.1:%d\nEGRESS_ALLOW_INWARD_FOR=.origin."
	    "test:%d\n"
	    "DATABASE_TIMEOUT_MS=20000\nEGRESS_REQUESTS_PER_S=0\nSECRET_KEY_FILE=%s/key\n",
	    pgtest_conninfo(t->pg), t->socket, dnsserver_port(t->dns), origin_port(t->origin), t->dir);
	for (const char *const *s = t->extra; s != NULL && *s != NULL; s++) {
		const char *dir = strstr(*s, "{DIR}");
		(void)fprintf(f, "%.*s%s%s\n", dir == NULL ? (int)strlen(*s) : (int)(dir - *s), *s,
		    dir == NULL ? "" : t->dir, dir == NULL ? "" : dir + 5);
	}
	assert_int_equal(fclose(f), 0);
}

static void child(const struct egtest *t, const char *program, const char *conf, pid_t parent)
{
	char setting[160];
	int out = open(t->log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
	(void)snprintf(setting, sizeof setting, "GATEHOUSE_CONFIG=%s", conf);
	const char *asan = getenv("ASAN_OPTIONS");
	char options[256];
	(void)snprintf(options, sizeof options, "ASAN_OPTIONS=%s", asan == NULL ? "" : asan);
	char *env[] = { setting, options, NULL };
	char *argv[] = { (char *)(uintptr_t)program, NULL };
	(void)setsid();
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (out < 0 || dup2(out, 1) < 0 || dup2(out, 2) < 0 || getppid() != parent)
		_exit(125);
	(void)close_range(3, ~0U, CLOSE_RANGE_CLOEXEC);
	(void)execve(program, argv, env);
	_exit(127);
}

static void show_log(const struct egtest *t)
{
	auto_buf struct buf log = BUF(1 << 20);
	struct err e = { 0 };
	(void)file_read(t->log, &log, &e);
	print_error("%s\n", buf_c(&log));
}

void egt_up(struct egtest *t)
{
	char program[512], conf[96];
	struct err e = { 0 };
	(void)snprintf(conf, sizeof conf, "%s/conf", t->dir);
	write_conf(t, conf);
	(void)binary(program);
	pid_t parent = getpid();
	t->pid = fork();
	assert_true(t->pid >= 0);
	if (t->pid == 0)
		child(t, program, conf, parent);
	int64_t until = clock_ms() + WAIT_MS;
	while ((t->ctl = egress_ctl_dial(t->socket, WAIT_MS, &e)) < 0) {
		if (clock_ms() > until || waitpid(t->pid, NULL, WNOHANG) != 0) {
			show_log(t);
			fail_msg("gatehouse-egress did not start");
		}
		(void)usleep(5000);
		err_clear(&e);
	}
}

void egt_kill(struct egtest *t, int sig)
{
	int status = 0;
	assert_int_equal(kill(t->pid, sig), 0);
	assert_int_equal(waitpid(t->pid, &status, 0), t->pid);
	if (sig == SIGTERM && status != 0) {
		show_log(t);
		fail_msg("gatehouse-egress ended with status %x", status);
	}
	(void)close(t->ctl);
	t->ctl = -1;
}

int egt_listener(int *port)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr = { htonl(INADDR_LOOPBACK) } };
	socklen_t size = sizeof a;
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0); /* blocking: that is the proxy's to mend */
	assert_int_equal(bind(fd, (struct sockaddr *)&a, size), 0);
	assert_int_equal(listen(fd, 4096), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &size), 0);
	*port = ntohs(a.sin_port);
	return fd;
}

void egt_give(struct egtest *t)
{
	struct err e = { 0 };
	if (egress_ctl_open(t->ctl, EGT_SANDBOX, "proxy", t->listener, &e) != 0)
		fail_msg("%s", e.msg);
}

static void write_key(const struct egtest *t)
{
	char path[96];
	struct err e = { 0 };
	(void)snprintf(path, sizeof path, "%s/key", t->dir);
	assert_int_equal(file_write(path, "0123456789abcdef0123456789abcdef", 32, 0600, &e), 0);
}

void egt_prepare(struct egtest *t, const struct dns_row *rows, const char *const *extra)
{
	*t = (struct egtest){
		.pg = pgtest_start(), .dns = dnsserver_start(rows), .origin = origin_start(), .extra = extra
	};
	http_setup(); /* SIGPIPE */
	(void)snprintf(t->dir, sizeof t->dir, "/tmp/egt.XXXXXX");
	assert_non_null(mkdtemp(t->dir));
	(void)snprintf(t->socket, sizeof t->socket, "%s/ctl", t->dir);
	(void)snprintf(t->log, sizeof t->log, "%s/log", t->dir);
	egt_sql(t, "INSERT INTO orgs (slug) VALUES ('acme')");
	egt_sql(
	    t, "INSERT INTO nodes (name, instance, address, capacity) VALUES ('n', 'i', 'unix:/x', 1000)");
	egt_sql(t,
	    "INSERT INTO sessions (id, org, kind, title, root, created_by) VALUES ('%s', 'acme', 'run', 't', "
	    "'%s', 'u')",
	    EGT_SESSION, EGT_SESSION);
	write_key(t);
	t->listener = egt_listener(&t->port);
}

void egt_begin(struct egtest *t)
{
	egt_up(t);
	egt_sql(t,
	    "INSERT INTO sandboxes (id, org, class, status, image, runtime, iso_kernel, iso_network, "
	    "iso_tier, node, workdir, "
	    "session, created_by, expires_at) VALUES ('%s', 'acme', 'exec', 'running', 'i', '', false, "
	    "'proxy', 1, 'n', '/w', '%s', "
	    "'u', now() + interval '1 hour')",
	    EGT_SANDBOX, EGT_SESSION);
	egt_give(t);
}

void egt_start(struct egtest *t, const struct dns_row *rows, const char *const *extra)
{
	egt_prepare(t, rows, extra);
	egt_begin(t);
}

void egt_end(struct egtest *t)
{
	struct err e = { 0 };
	if (t->dir[0] == '\0') /* the setup did not get far */
		return;
	if (t->pid > 0 && t->ctl >= 0)
		egt_kill(t, SIGTERM);
	(void)close(t->listener);
	origin_end(t->origin);
	dnsserver_end(t->dns);
	pgtest_end(t->pg);
	assert_int_equal(file_rmtree(t->dir, &e), 0);
}

int egt_sandbox(struct egtest *t, const char *id, const char *policy, int *port)
{
	struct err e = { 0 };
	int fd = egt_listener(port);
	egt_sql(t,
	    "INSERT INTO sandboxes (id, org, class, status, image, runtime, iso_kernel, iso_network, "
	    "iso_tier, node, workdir, "
	    "created_by, expires_at, network) VALUES ('%s', 'acme', 'exec', 'running', 'i', '', false, "
	    "'proxy', 1, 'n', '/w', "
	    "'u', now() + interval '1 hour', '%s')",
	    id, policy);
	if (egress_ctl_open(t->ctl, id, "proxy", fd, &e) != 0)
		fail_msg("%s", e.msg);
	return fd;
}

/* ---- the database */

void egt_sql(struct egtest *t, const char *fmt, ...)
{
	char sql[SQL_BYTES];
	va_list ap;
	va_start(ap, fmt);
	assert_in_range(vsnprintf(sql, sizeof sql, fmt, ap), 1, sizeof sql - 1);
	va_end(ap);
	pgtest_sql(t->pg, sql);
}

void egt_until(struct egtest *t, const char *sql, const char *value)
{
	const struct pg_stmt q = { "", sql, 0 };
	struct pg_pool *pool = pg_pool_new(pgtest_conninfo(t->pg), 1, WAIT_MS);
	char last[512] = "";
	for (int64_t until = clock_ms() + WAIT_MS; clock_ms() < until; (void)usleep(5000)) {
		struct err e = { 0 };
		auto_pg struct pg *db = pg_take(pool, WAIT_MS, &e);
		auto_res struct pg_res *r = db == NULL ? NULL : PG0(db, &q, &e);
		(void)snprintf(last, sizeof last, "%s",
		    r == NULL             ? e.msg
			: pg_rows(r) == 0 ? "(no row)"
					  : pg_str(r, 0, 0));
		if (strcmp(last, value) == 0)
			break;
	}
	pg_pool_free(pool);
	assert_string_equal(last, value);
}

void egt_policy(struct egtest *t, const char *policy)
{
	auto_buf struct buf text = BUF(POLICY_BYTES);
	for (const char *p = policy; *p != '\0'; p++)
		if (strncmp(p, "{P}", 3) == 0) {
			(void)buf_fmt(&text, "%d", origin_port(t->origin));
			p += 2;
		} else {
			(void)buf_chr(&text, *p);
		}
	egt_sql(t, "UPDATE sandboxes SET network = '%s' WHERE id = '%s'", buf_c(&text), EGT_SANDBOX);
	egt_until(
	    t, "SELECT network_applied = network_version FROM sandboxes WHERE id = '" EGT_SANDBOX "'", "t");
}

/* ---- clients */

int egt_try(int port)
{
	const struct sockaddr_in a = { .sin_family = AF_INET,
		.sin_port = htons((uint16_t)port),
		.sin_addr = { htonl(INADDR_LOOPBACK) } };
	const struct timeval wait = { .tv_sec = WAIT_MS / 1000 };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_true(fd >= 0);
	(void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait);
	(void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof wait);
	if (connect(fd, (const struct sockaddr *)&a, sizeof a) == 0)
		return fd;
	(void)close(fd);
	return -1;
}

int egt_connect(int port)
{
	int fd = egt_try(port);
	assert_true(fd >= 0);
	return fd;
}

void egt_say(int fd, const char *fmt, ...)
{
	auto_buf struct buf text = BUF(ANSWER_BYTES);
	va_list ap;
	char line[8192];
	va_start(ap, fmt);
	int n = vsnprintf(line, sizeof line, fmt, ap);
	va_end(ap);
	assert_in_range(n, 0, sizeof line - 1);
	(void)buf_add(&text, line, (size_t)n);
	(void)send(fd, text.p, text.n, MSG_NOSIGNAL);
}

bool egt_hear(int fd, struct buf *out, const char *until)
{
	while (until == NULL || out->n == 0 || memmem(out->p, out->n, until, strlen(until)) == NULL) {
		char *to = buf_room(out, 16384);
		assert_non_null(to);
		ssize_t n = recv(fd, to, 16384, 0);
		if (n < 0 && errno == EAGAIN)
			return false;
		if (n <= 0)
			return true;
		buf_grew(out, (size_t)n);
	}
	return true;
}

void egt_ask(struct egtest *t, struct buf *answer, const char *fmt, ...)
{
	char line[8192];
	va_list ap;
	auto_fd int fd = egt_connect(t->port);
	va_start(ap, fmt);
	int n = vsnprintf(line, sizeof line, fmt, ap);
	va_end(ap);
	assert_in_range(n, 0, sizeof line - 1);
	(void)send(fd, line, (size_t)n, MSG_NOSIGNAL);
	assert_true(egt_hear(fd, answer, NULL));
}

int egt_tunnel(struct egtest *t, const char *host, int port)
{
	auto_buf struct buf answer = BUF(ANSWER_BYTES);
	int fd = egt_connect(t->port);
	egt_say(fd, "CONNECT %s:%d HTTP/1.1\r\nHost: %s:%d\r\n\r\n", host, port, host, port);
	assert_true(egt_hear(fd, &answer, "\r\n\r\n"));
	if (strncmp(buf_c(&answer), "HTTP/1.1 200 ", 13) != 0)
		fail_msg("no tunnel: %s", buf_c(&answer));
	return fd;
}

int egt_fds(const struct egtest *t)
{
	return fds_open(t->pid, NULL);
}

long egt_rss_kib(const struct egtest *t)
{
	char path[64], line[256];
	long kib = -1;
	(void)snprintf(path, sizeof path, "/proc/%d/status", t->pid);
	FILE *f = fopen(path, "r");
	assert_non_null(f);
	while (fgets(line, sizeof line, f) != NULL)
		if (sscanf(line, "VmRSS: %ld", &kib) == 1)
			break;
	(void)fclose(f);
	return kib;
}

long egt_cpu_ms(const struct egtest *t)
{
	clockid_t clock;
	struct timespec at;
	assert_int_equal(clock_getcpuclockid(t->pid, &clock), 0);
	assert_int_equal(clock_gettime(clock, &at), 0);
	return at.tv_sec * 1000 + at.tv_nsec / 1000000;
}
