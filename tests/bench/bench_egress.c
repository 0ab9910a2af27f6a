/* What the boundary costs: CPU of the proxy for tunnels, refusals, plain requests and bytes, beside squid and tinyproxy. */
#include "../t.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../egresstest.h"
#include "../memory.h"
#include "base/clock.h"
#include "bench.h"
#include "io/egress_ctl.h"
#include "io/file.h"
#include "io/pg.h"

enum {
	AT_ONCE = 8,
	TURNS = 60,
	ROUNDS = 9,
	KEPT_TURNS = 200,
	BODY = 1024,
	IDLE = 1000,
	CHANGES = 50,
	OPENS = 101,
	MIB = 256
};

struct proxy_under_test {
	const char *host; /* how it is told the origin */
	int port;
	pid_t pid;
	int kept[AT_ONCE];
};

#define OTHER "sbx_00000000000000000000000077"

static struct egtest t;
static struct proxy_under_test ours = { .host = "a.origin.test" }, squid = { .host = "localhost" },
			       tiny = { .host = "localhost" };
static char dir[] = "/tmp/bench-egress.XXXXXX";

static const struct dns_row zone[] = {
	{ .name = "a.origin.test", .value = "127.0.0.1", .ttl_s = 60 },
	{ 0 },
};

/* ---- the peers: one name allowed, their logs on */

static void write_file(const char *name, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void write_file(const char *name, const char *fmt, ...)
{
	char path[128];
	va_list ap;
	(void)snprintf(path, sizeof path, "%s/%s", dir, name);
	FILE *f = fopen(path, "w");
	assert_non_null(f);
	va_start(ap, fmt);
	(void)vfprintf(f, fmt, ap);
	va_end(ap);
	assert_int_equal(fclose(f), 0);
}

static int free_port(void)
{
	int port;
	assert_int_equal(close(egt_listener(&port)), 0);
	return port;
}

static void spawn(struct proxy_under_test *p, char *const argv[])
{
	p->pid = fork();
	assert_true(p->pid >= 0);
	if (p->pid == 0) {
		(void)setsid();
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		(void)!freopen("/dev/null", "w", stderr);
		(void)execv(argv[0], argv);
		_exit(127);
	}
	for (int64_t until = clock_ms() + 20000;; (void)usleep(50000)) {
		const char probe[] =
		    "GET http://denied.test/ HTTP/1.1\r\nHost: denied.test\r\nConnection: close\r\n\r\n";
		auto_buf struct buf said = BUF(1 << 20);
		assert_true(clock_ms() < until);
		auto_fd int fd = egt_try(p->port);
		if (fd < 0)
			continue;
		egt_say(fd, "%s", probe);
		if (egt_hear(fd, &said, NULL) && said.n > 0)
			return;
	}
}

static void start_squid(void)
{
	char conf[96];
	squid.port = free_port();
	write_file("squid.conf",
	    "http_port 127.0.0.1:%d\nacl good dstdomain localhost\nhttp_access allow good\nhttp_access deny "
	    "all\n"
	    "cache deny all\ncache_mem 8 MB\naccess_log stdio:%s/squid.access\ncache_log "
	    "/dev/null\npid_filename none\n"
	    "coredump_dir %s\nshutdown_lifetime 1 seconds\nmax_filedescriptors 8192\npinger_enable off\n",
	    squid.port, dir, dir);
	(void)snprintf(conf, sizeof conf, "%s/squid.conf", dir);
	spawn(&squid,
	    (char *[]){ (char[]){ "/usr/sbin/squid" }, (char[]){ "-N" }, (char[]){ "-f" }, conf, NULL });
}

static void start_tinyproxy(void)
{
	char conf[96];
	tiny.port = free_port();
	write_file("filter", "^localhost$\n");
	write_file("tiny.conf",
	    "Port %d\nListen 127.0.0.1\nTimeout 600\nMaxClients 2000\nLogFile \"%s/tiny.log\"\nLogLevel "
	    "Connect\n"
	    "Filter \"%s/filter\"\nFilterExtended On\nFilterDefaultDeny Yes\nUser nobody\n",
	    tiny.port, dir, dir);
	(void)snprintf(conf, sizeof conf, "%s/tiny.conf", dir);
	spawn(&tiny,
	    (char *[]){ (char[]){ "/usr/bin/tinyproxy" }, (char[]){ "-d" }, (char[]){ "-c" }, conf, NULL });
}

static int setup(void **state)
{
	static const char *const extra[] = { "EGRESS_CONNECTIONS=0", "EGRESS_KIB_PER_S=0", NULL };
	(void)state;
	assert_non_null(mkdtemp(dir));
	assert_int_equal(chmod(dir, 0777), 0);
	egt_start(&t, zone, extra);
	egt_policy(&t, "{\"mode\":\"static\",\"allowedHosts\":[\"a.origin.test:{P}\"]}");
	ours.port = t.port;
	ours.pid = t.pid;
	start_squid();
	start_tinyproxy();
	return 0;
}

static int teardown(void **state)
{
	struct err e = { 0 };
	(void)state;
	for (struct proxy_under_test *const *p = (struct proxy_under_test *[]){ &squid, &tiny, NULL };
	     *p != NULL; p++)
		if ((*p)->pid > 0) {
			(void)kill((*p)->pid, SIGKILL);
			(void)waitpid((*p)->pid, NULL, 0);
		}
	egt_end(&t);
	(void)file_rmtree(dir, &e);
	return 0;
}

/* ---- what is done: AT_ONCE clients in step */

static void hear(int fd, const char *until)
{
	char in[8192];
	size_t n = 0;
	for (ssize_t k; n < sizeof in && (k = recv(fd, in + n, sizeof in - n, 0)) > 0;) {
		n += (size_t)k;
		if (memmem(in, n, until, strlen(until)) != NULL)
			return;
	}
	fail_msg("expected %s, got %.*s", until, (int)n, in);
}

static void reset(int fd)
{
	const struct linger now = { .l_onoff = 1 };
	(void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
	(void)close(fd);
}

static void ask_tunnel(int fd, const char *host, int port)
{
	char text[256];
	int n = snprintf(
	    text, sizeof text, "CONNECT %s:%d HTTP/1.1\r\nHost: %s:%d\r\n\r\n", host, port, host, port);
	(void)send(fd, text, (size_t)n, MSG_NOSIGNAL);
}

/* Set up, one byte there and back, closed by a reset. */
static long tunnels(struct bench_side *s)
{
	const struct proxy_under_test *p = s->arg;
	for (int turn = 0; turn < TURNS; turn++) {
		int fd[AT_ONCE];
		for (int i = 0; i < AT_ONCE; i++) {
			fd[i] = egt_connect(p->port);
			ask_tunnel(fd[i], p->host, origin_port(t.origin));
		}
		for (int i = 0; i < AT_ONCE; i++) {
			hear(fd[i], "\r\n\r\n");
			(void)send(fd[i], "x", 1, MSG_NOSIGNAL);
		}
		for (int i = 0; i < AT_ONCE; i++) {
			hear(fd[i], "x");
			reset(fd[i]);
		}
	}
	return (long)TURNS * AT_ONCE;
}

static long refusals(struct bench_side *s)
{
	const struct proxy_under_test *p = s->arg;
	for (int turn = 0; turn < TURNS; turn++) {
		int fd[AT_ONCE];
		for (int i = 0; i < AT_ONCE; i++) {
			fd[i] = egt_connect(p->port);
			ask_tunnel(fd[i], "denied.test", 443);
		}
		for (int i = 0; i < AT_ONCE; i++) {
			hear(fd[i], "\r\n\r\n");
			(void)close(fd[i]);
		}
	}
	return (long)TURNS * AT_ONCE;
}

static long requests(struct bench_side *s)
{
	struct proxy_under_test *p = s->arg;
	char text[512];
	int port = origin_port(t.origin);
	int n = snprintf(text, sizeof text, "GET http://%s:%d/big?n=%d HTTP/1.1\r\nHost: %s:%d\r\n\r\n",
	    p->host, port, BODY, p->host, port);
	for (int i = 0; i < AT_ONCE; i++)
		p->kept[i] = egt_connect(p->port);
	for (int turn = 0; turn < KEPT_TURNS; turn++) {
		for (int i = 0; i < AT_ONCE; i++)
			(void)send(p->kept[i], text, (size_t)n, MSG_NOSIGNAL);
		for (int i = 0; i < AT_ONCE; i++) {
			char in[4096];
			size_t got = 0, want = sizeof in;
			while (got < want) {
				ssize_t k = recv(p->kept[i], in + got, sizeof in - got, 0);
				assert_true(k > 0);
				got += (size_t)k;
				const char *end = memmem(in, got, "\r\n\r\n", 4);
				if (end != NULL)
					want = (size_t)(end - in) + 4 + BODY;
			}
		}
	}
	for (int i = 0; i < AT_ONCE; i++)
		(void)close(p->kept[i]);
	return (long)KEPT_TURNS * AT_ONCE;
}

static long stream(struct bench_side *s)
{
	static char in[1 << 18];
	const struct proxy_under_test *p = s->arg;
	auto_fd int fd = egt_connect(p->port);
	ask_tunnel(fd, p->host, origin_port(t.origin));
	hear(fd, "\r\n\r\n");
	egt_say(fd, "GET /big?n=%ld HTTP/1.1\r\nHost: x\r\n\r\n", (long)MIB << 20);
	for (long left = (long)MIB << 20; left > 0;) {
		ssize_t k = recv(fd, in, sizeof in, 0);
		assert_true(k > 0);
		left -= k;
	}
	return MIB;
}

static double idle_kib(const struct proxy_under_test *p)
{
	static int fd[IDLE];
	long before = memory_private_kib(p->pid);
	for (int i = 0; i < IDLE; i++) {
		fd[i] = egt_connect(p->port);
		ask_tunnel(fd[i], p->host, origin_port(t.origin));
		hear(fd[i], "\r\n\r\n");
		(void)send(fd[i], "x", 1, MSG_NOSIGNAL);
		hear(fd[i], "x");
	}
	long after = memory_private_kib(p->pid);
	for (int i = 0; i < IDLE; i++)
		reset(fd[i]);
	return (double)(after - before) / IDLE;
}

/* What handing a listener over adds to a lease, its policy read included. */
static double open_ms(void)
{
	double took[OPENS];
	int port, fd = egt_sandbox(&t, OTHER, "{}", &port);
	for (int i = 0; i < OPENS; i++) {
		struct err e = { 0 };
		assert_int_equal(egress_ctl_close(t.ctl, OTHER, &e), 0);
		double begin = bench_now_us();
		assert_int_equal(egress_ctl_open(t.ctl, OTHER, "proxy", fd, &e), 0);
		took[i] = (bench_now_us() - begin) / 1000;
	}
	(void)close(fd);
	return bench_median(took, OPENS);
}

/* EGR-9: from the statement that changes a policy to the reset of a tunnel that it no longer allows; the slowest of some. */
static double change_ms(void)
{
	const struct pg_stmt change = { "", "UPDATE sandboxes SET network = $1 WHERE id = '" EGT_SANDBOX "'",
		1 };
	struct pg_pool *pool = pg_pool_new(pgtest_conninfo(t.pg), 1, 10000);
	double worst = 0;
	for (int i = 0; i < CHANGES; i++) {
		struct err e = { 0 };
		char c, policy[128];
		auto_fd int fd = egt_tunnel(&t, "a.origin.test", origin_port(t.origin));
		auto_pg struct pg *db = pg_take(pool, 10000, &e);
		assert_non_null(db);
		double begin = bench_now_us();
		auto_res struct pg_res *r = PG(db, &change, &e, "{}");
		assert_non_null(r);
		assert_int_equal(recv(fd, &c, 1, 0), -1);
		double took = (bench_now_us() - begin) / 1000;
		worst = took > worst ? took : worst;
		(void)snprintf(policy, sizeof policy, "{\"allowedHosts\":[\"a.origin.test:%d\"]}",
		    origin_port(t.origin));
		egt_policy(&t, policy);
	}
	pg_pool_free(pool);
	return worst;
}

static struct bench_side side(
    const char *name, struct proxy_under_test *p, long (*round)(struct bench_side *s))
{
	return (
	    struct bench_side){ .name = name, .round = round, .arg = p, .meters = { { "proxy", p->pid } } };
}

static void measure(void **state)
{
	(void)state;
	static const struct {
		const char *what, *op;
		long (*round)(struct bench_side *s);
		double wanted_us;
	} rows[] = {
		{ "A tunnel: set up, one byte there and back, reset; 8 at a time", "tunnel", tunnels, 200 },
		{ "A refusal; 8 at a time", "refusal", refusals, 80 },
		{ "A plain request with 1 KiB back, 8 kept connections", "request", requests, 120 },
		{ "Bytes through a tunnel", "MiB", stream, 1e6 / 1024 },
	};
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		struct bench_side sides[] = { side("gatehouse-egress", &ours, rows[i].round),
			side("squid", &squid, rows[i].round), side("tinyproxy", &tiny, rows[i].round) };
		/* tinyproxy keeps no connection: a round of requests would measure its closing. */
		bench_compare(rows[i].what, rows[i].op, sides, rows[i].round == requests ? 2 : 3, ROUNDS);
		bench_at_most("CPU of the proxy", sides[0].cpu_us[0], rows[i].wanted_us, "µs");
	}
	bench_at_most("Opening a boundary, median", open_ms(), 1, "ms");
	bench_at_most("A policy change until a tunnel is cut, the slowest of 50", change_ms(), 100, "ms");
	bench_at_most("Private memory of an idle tunnel", idle_kib(&ours), 4, "KiB");
	bench_note("… of squid", idle_kib(&squid), "KiB");
	bench_note("… of tinyproxy", idle_kib(&tiny), "KiB");
}

int main(void)
{
	return bench_main("egress", setup, measure, teardown);
}
