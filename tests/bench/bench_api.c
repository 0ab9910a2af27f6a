/* What a request costs: CPU time of the api, of nginx and of PostgreSQL, for requests that read one row. */
#include "../t.h"

#include "bench.h"
#include "fetch.h"

enum { REQUESTS = 300, ROUNDS = 7 };

static struct stack stack;
static struct stack_org org;

static int setup(void **state)
{
	(void)state;
	stack_up(&stack, 1, 1, 1, "LOG_LEVEL=info");
	stack_org(&stack, &org);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	stack_down(&stack);
	return 0;
}

struct target {
	struct fetch *f;
	const char *path;
};

static long get(struct bench_side *s)
{
	const struct target *t = s->arg;
	for (int i = 0; i < REQUESTS; i++) {
		double begin = bench_now_us();
		(void)fetch_do(t->f, "GET", t->path, NULL);
		bench_took(s, bench_now_us() - begin);
	}
	return REQUESTS;
}

/* One run, ended: what GET /v1/bots then lists. */
static void one_run(struct fetch *f)
{
	(void)fetch_do(f, "POST", "/v1/git/repos", "{\"name\":\"bench\"}");
	(void)fetch_do(f, "POST", "/v1/git/repos/bench/push",
	    "{\"branch\":\"main\",\"message\":\"one\",\"files\":[{\"path\":\"a\",\"content\":\"a\\n\"}]}");
	(void)fetch_do(f, "POST", "/v1/coding-tasks",
	    "{\"tool\":\"python\",\"repo\":\"bench\",\"prompt\":\"print(1)\"}");
}

static void requests(void **state)
{
	(void)state;
	struct fetch *f = fetch_new(&stack, org.key);
	one_run(f);
	struct target bots = { f, "/v1/bots" }, keys = { f, "/v1/keys" }, health = { f, "/health" },
		      openapi = { f, "/v1/openapi.json" };
	struct bench_side sides[] = {
		{ .name = "GET /v1/bots, one row", .round = get, .arg = &bots },
		{ .name = "GET /v1/keys, two rows", .round = get, .arg = &keys },
		{ .name = "GET /v1/openapi.json", .round = get, .arg = &openapi },
		{ .name = "GET /health (nothing behind it)", .round = get, .arg = &health },
	};
	size_t n = sizeof sides / sizeof *sides;
	for (size_t i = 0; i < n; i++) {
		sides[i].meters[0] = (struct bench_meter){ "api", stack_pid(&stack, "api1") };
		sides[i].meters[1] = (struct bench_meter){ "nginx", stack_pid(&stack, "nginx") };
		sides[i].meters[2] = (struct bench_meter){ "PostgreSQL", stack_pid(&stack, "pg") };
	}
	bench_compare("A request through nginx, one client with one connection", "request", sides, n, ROUNDS);
	bench_at_most("CPU of the api process for GET /v1/bots with one row", sides[0].cpu_us[0], 250, "µs");
	bench_note("… for GET /v1/keys", sides[1].cpu_us[0], "µs");
	bench_note("… for GET /v1/openapi.json", sides[2].cpu_us[0], "µs");
	fetch_free(f);
}

int main(void)
{
	return bench_main("api", setup, requests, teardown);
}
