/*
 * Where the time of a call goes that is not the model's: the same request over the api's own socket, through nginx, with TLS, with HTTP/2;
 * what a hand-over from process to process and a question to PostgreSQL cost on this machine.
 */
#include "../t.h"

#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../fcgiclient.h"
#include "bench.h"
#include "io/file.h"
#include "io/pg.h"
#include "peers.h"

enum { REQUESTS = 200, ROUNDS = 9 };

static struct stack stack;
static struct stack_org org;

/* What every server of the stack's nginx answers by itself, and one more server: the same include without TLS. */
static void open_plain(char url[48])
{
	struct err e = { 0 };
	char path[128], plain[300];
	static const char mine[] =
	    "location = /static { default_type application/json; return 200 '{\"status\":\"ok\"}'; }\n";
	auto_buf struct buf text = BUF(1 << 20), out = BUF(1 << 20);
	int port = stack_ports() + STACK_PORTS - 1;
	(void)snprintf(path, sizeof path, "%s/nginx/nginx.conf", stack.dir);
	assert_int_equal(file_read(path, &text, &e), 0);
	const char *first = strstr(buf_c(&text), "server {"),
		   *include = strstr(buf_c(&text), "include gatehouse1.conf;");
	assert_true(first != NULL && include != NULL && first < include);
	(void)snprintf(
	    plain, sizeof plain, "server { listen 127.0.0.1:%d; %sinclude gatehouse1.conf; }\n", port, mine);
	(void)buf_add(&out, text.p, (size_t)(first - text.p));
	(void)buf_str(&out, plain);
	(void)buf_add(&out, first, (size_t)(include - first));
	(void)buf_str(&out, mine);
	(void)buf_str(&out, include);
	assert_int_equal(file_write(path, out.p, out.n, 0644, &e), 0);
	stack_reload_nginx(&stack);
	(void)snprintf(url, 48, "http://127.0.0.1:%d", port);
}

/* ---- ways to the api */

struct way {
	const char *method, *path, *body;
	struct fetch *f;           /* through nginx */
	struct fcgiclient *socket; /* or without */
};

static long ask(struct bench_side *s)
{
	const struct way *w = s->arg;
	for (int i = 0; i < REQUESTS; i++) {
		double begin = bench_now_us();
		if (w->f != NULL)
			(void)fetch_do(w->f, w->method, w->path, w->body);
		else
			assert_int_equal(
			    fcgiclient_ask(w->socket, w->method, w->path, w->body, NULL) / 100, 2);
		bench_took(s, bench_now_us() - begin);
	}
	return REQUESTS;
}

enum { SOCKET, KEPT, PLAIN, TLS_1, TLS_2, STATIC, WAYS };

static void ways(
    const char *heading, const char *plain, const char *method, const char *path, const char *body)
{
	static const char *const names[WAYS] = { "over the api's socket",
		"over the api's socket, one kept connection", "through nginx, HTTP/1.1 without TLS",
		"through nginx, HTTP/1.1 with TLS", "through nginx, HTTP/2 with TLS",
		"nginx alone, HTTP/2 with TLS: a fixed answer to GET" };
	char socket[128];
	struct stack without = stack;
	struct way w[WAYS];
	struct bench_side sides[WAYS];
	(void)snprintf(without.url[0], sizeof without.url[0], "%s", plain);
	(void)snprintf(socket, sizeof socket, "%s/run/api1.sock", stack.dir);
	for (int i = 0; i < WAYS; i++) {
		w[i] = (struct way){ method, path, body, NULL, NULL };
		if (i == SOCKET || i == KEPT)
			w[i].socket = fcgiclient_new(socket, org.key, i == KEPT);
		else
			w[i].f = fetch_new(i == PLAIN ? &without : &stack, org.key);
		if (i == TLS_1)
			fetch_http_1(w[i].f);
		if (i == STATIC)
			w[i] = (struct way){ "GET", "/static", NULL, w[i].f, NULL };
		sides[i] = (struct bench_side){ .name = names[i], .round = ask, .arg = &w[i] };
		sides[i].meters[0] = (struct bench_meter){ "client", 0 };
		sides[i].meters[1] = (struct bench_meter){ "nginx", stack_pid(&stack, "nginx") };
		sides[i].meters[2] = (struct bench_meter){ "api", stack_pid(&stack, "api1") };
		sides[i].meters[3] = (struct bench_meter){ "PostgreSQL", stack_pid(&stack, "pg") };
	}
	bench_compare(heading, "request", sides, WAYS, ROUNDS);
	for (int i = 0; i < WAYS; i++) {
		if (w[i].f != NULL)
			fetch_free(w[i].f);
		else
			fcgiclient_free(w[i].socket);
	}
}

/* ---- what they are made of */

static long hand_over(struct bench_side *s)
{
	const int *fd = s->arg;
	for (int i = 0; i < REQUESTS; i++) {
		char c = 'x';
		double begin = bench_now_us();
		assert_int_equal(write(*fd, &c, 1), 1);
		assert_int_equal(read(*fd, &c, 1), 1);
		bench_took(s, bench_now_us() - begin);
	}
	return REQUESTS;
}

/* The least that PostgreSQL can be asked, on a connection that is there. */
static long question(struct bench_side *s)
{
	static const struct pg_stmt one = { "w_one", "SELECT 1", 0 };
	struct err e = { 0 };
	auto_pg struct pg *db = pg_take(s->arg, 10000, &e);
	assert_non_null(db);
	for (int i = 0; i < REQUESTS; i++) {
		double begin = bench_now_us();
		auto_res struct pg_res *r = PG0(db, &one, &e);
		assert_non_null(r);
		bench_took(s, bench_now_us() - begin);
	}
	return REQUESTS;
}

static pid_t echo(int fd[2])
{
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fd), 0);
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		char c;
		(void)close(fd[0]);
		while (read(fd[1], &c, 1) == 1 && write(fd[1], &c, 1) == 1)
			;
		_exit(0);
	}
	(void)close(fd[1]);
	return pid;
}

static void parts(void)
{
	int fd[2];
	pid_t pid = echo(fd);
	struct pg_pool *pool = stack_pool(&stack, 1);
	struct bench_side sides[] = {
		{ .name = "a byte to another process and back", .round = hand_over, .arg = fd },
		{ .name = "SELECT 1", .round = question, .arg = pool },
	};
	bench_compare("What a call is made of", "exchange", sides, 2, ROUNDS);
	bench_note("a byte to another process and back, p50", sides[0].p50_us, "µs");
	bench_note("SELECT 1 over PostgreSQL's socket, p50", sides[1].p50_us, "µs");
	(void)close(fd[0]);
	(void)waitpid(pid, NULL, 0);
	pg_pool_free(pool);
}

static void measure(void **state)
{
	char plain[48];
	(void)state;
	struct target t;
	open_plain(plain);
	ways("GET /health", plain, "GET", "/health", NULL);
	target_open(&t, PEER_GATEHOUSE, ASK_WHOLE, 1, 1);
	ways("A buffered call of a model, whose upstream is a file of nginx", plain, "POST",
	    "/v1/chat/completions", t.body);
	target_close(&t);
	parts();
}

static int setup(void **state)
{
	char conf[200];
	(void)state;
	peers_start(0);
	(void)snprintf(conf, sizeof conf,
	    "LOG_LEVEL=info\nBILLING_MODE=closed\nMODEL_INWARD_HOSTS=127.0.0.1:%d", peers_upstream_port());
	stack_up(&stack, 1, 0, 1, conf);
	stack_org(&stack, &org);
	const char *const credit[] = { "org", "credit", org.slug, "100000usd", "--key", "first", NULL };
	stack_cli(&stack, credit, NULL);
	peers_providers(&stack, &org);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	stack_down(&stack);
	peers_end();
	return 0;
}

int main(void)
{
	return bench_main("way", setup, measure, teardown);
}
