/*
 * What a model call costs through the gateway: authentication, reservation and settlement in PostgreSQL included, beside nginx's
 * proxy_pass and the npm package @portkey-ai/gateway (BENCH_PORTKEY is its start script; bench.sh sees to it), on one static nginx upstream.
 */
#include "../t.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <curl/curl.h>

#include "../egresstest.h"
#include "../flow/gw.h"
#include "base/clock.h"
#include "base/js.h"
#include "bench.h"
#include "fetch.h"
#include "io/file.h"

enum { CALLS = 150, STREAMS = 60, EVENTS = 102, ROUNDS = 7, AT_ONCE = 16, OPEN_STREAMS = 1000 };

static struct stack stack;
static struct stack_org org;
static struct fakemodel *fake; /* of the streams that stay open */
static char dir[] = "/tmp/bench-gateway.XXXXXX";
static int upstream_port, proxy_port, portkey_port;
static pid_t nginx_pid, portkey_pid;

static const char answer[] = "{\"id\":\"chatcmpl-1\",\"object\":\"chat.completion\",\"created\":1700000000,"
			     "\"model\":\"bench\",\"choices\":[{\"index\":0,"
			     "\"message\":{\"role\":\"assistant\",\"content\":\"Hello there, how can I help "
			     "you today?\"},\"finish_reason\":\"stop\"}],"
			     "\"usage\":{\"prompt_tokens\":21,\"completion_tokens\":10,\"total_tokens\":31}}";

static void write_file(const char *name, const char *text)
{
	char path[128];
	struct err e = { 0 };
	(void)snprintf(path, sizeof path, "%s/%s", dir, name);
	assert_int_equal(file_write(path, text, strlen(text), 0644, &e), 0);
}

static int free_port(void)
{
	int port;
	assert_int_equal(close(egt_listener(&port)), 0);
	return port;
}

static void events(struct buf *out)
{
	static const char chunk[] =
	    "data: {\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"created\":1700000000,"
	    "\"model\":\"bench\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\" word%d and some more "
	    "text to make "
	    "it two hundred and twenty\"},\"finish_reason\":%s}]}\n\n";
	for (int i = 0; i < EVENTS - 2; i++)
		(void)buf_fmt(out, chunk, i, "null");
	(void)buf_fmt(out, chunk, 100, "\"stop\"");
	(void)buf_str(out, "data: [DONE]\n\n");
}

static pid_t spawn(char *const argv[])
{
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		(void)setsid();
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		(void)!freopen("/dev/null", "w", stderr);
		(void)!freopen("/dev/null", "w", stdout);
		(void)execvp(argv[0], argv);
		_exit(127);
	}
	return pid;
}

static void wait_port(int port)
{
	for (int64_t until = clock_ms() + 20000;; (void)usleep(50000)) {
		assert_true(clock_ms() < until);
		auto_fd int fd = egt_try(port);
		if (fd >= 0)
			return;
	}
}

static void start_nginx(void)
{
	auto_buf struct buf conf = BUF(8192), stream = BUF(1 << 20);
	upstream_port = free_port();
	proxy_port = free_port();
	events(&stream);
	write_file("completions", answer);
	assert_int_equal(
	    buf_fmt(&conf,
		"daemon off; master_process off; pid %s/pid; error_log /dev/null; worker_rlimit_nofile "
		"8192;\n"
		"events { worker_connections 4096; }\nhttp { access_log off; keepalive_requests 1000000; "
		"client_body_temp_path %s/b;\n"
		"proxy_temp_path %s/p; fastcgi_temp_path %s/f; uwsgi_temp_path %s/u; scgi_temp_path %s/s; "
		"sendfile on; tcp_nodelay on;\n"
		"upstream u { server 127.0.0.1:%d; keepalive 64; }\n"
		"server { listen 127.0.0.1:%d backlog=1024; root %s/www; error_page 405 =200 $uri;\n"
		"location /v1/ { default_type application/json; } location /s/ { default_type "
		"text/event-stream; } }\n"
		"server { listen 127.0.0.1:%d; location / { proxy_pass http://u; proxy_http_version 1.1; "
		"proxy_buffering off;\n"
		"proxy_set_header Connection \"\"; } } }\n",
		dir, dir, dir, dir, dir, dir, upstream_port, upstream_port, dir, proxy_port),
	    0);
	write_file("nginx.conf", buf_c(&conf));
	struct err e = { 0 };
	char path[128];
	static const char *const folders[] = { "www/v1/chat", "www/s/v1/chat" };
	for (int i = 0; i < 2; i++) {
		(void)snprintf(path, sizeof path, "%s/%s", dir, folders[i]);
		assert_int_equal(file_mkdirs(path, 0755, &e), 0);
		(void)snprintf(path, sizeof path, "%s/completions", folders[i]);
		write_file(path, i == 0 ? answer : buf_c(&stream));
	}
	(void)snprintf(path, sizeof path, "%s/nginx.conf", dir);
	nginx_pid = spawn((char *[]){ (char[]){ "nginx" }, (char[]){ "-c" }, path, NULL });
	wait_port(upstream_port);
}

static void start_portkey(void)
{
	const char *script = getenv("BENCH_PORTKEY");
	char port[24], path[400];
	if (script == NULL || script[0] == 0)
		return;
	portkey_port = free_port();
	(void)snprintf(port, sizeof port, "--port=%d", portkey_port);
	(void)snprintf(path, sizeof path, "%s", script);
	portkey_pid = spawn((char *[]){ (char[]){ "node" }, path, port, (char[]){ "--headless" }, NULL });
	wait_port(portkey_port);
}

static void provider(const char *name, const char *base)
{
	char url[100];
	auto_web struct web w = { 0 };
	(void)snprintf(url, sizeof url, "http://127.0.0.1:%d%s/v1", upstream_port, base);
	web_json(&stack, "POST", "/v1/models/providers", org.key,
	    js_pack("{s:s, s:s, s:s, s:[s], s:[{s:s, s:{s:i, s:i}}]}", "name", name, "wire", "openai-chat",
		"baseUrl", url, "keys", "sk-1", "models", "name", "bench", "prices", "input", 100000,
		"output", 200000),
	    &w);
	assert_int_equal(w.status, 201);
}

static int setup(void **state)
{
	char conf[400];
	(void)state;
	assert_non_null(mkdtemp(dir));
	assert_int_equal(chmod(dir, 0755), 0);
	fake = fakemodel_start();
	fakemodel_times(fake, (struct fakemodel_times){ .stall_ms = 600000 });
	start_nginx();
	start_portkey();
	(void)snprintf(conf, sizeof conf,
	    "LOG_LEVEL=info\nBILLING_MODE=closed\nAPI_MAX_STREAMS=4000\nMODEL_STALL_MS=600000\nMODEL_INWARD_"
	    "HOSTS=127.0.0.1:%d 127.0.0.1:%d",
	    upstream_port, fakemodel_port(fake));
	stack_up(&stack, 1, 1, 1, conf);
	stack_org(&stack, &org);
	const char *const credit[] = { "org", "credit", org.slug, "100000usd", "--key", "first", NULL };
	stack_cli(&stack, credit, NULL);
	provider("whole", "");
	provider("stream", "/s");
	gw_provider(&stack, fake, org.key, "silent", "openai-chat", 1, "stall");
	return 0;
}

static void end(pid_t pid)
{
	if (pid <= 0)
		return;
	(void)kill(pid, SIGKILL);
	(void)waitpid(pid, NULL, 0);
}

static int teardown(void **state)
{
	struct err e = { 0 };
	(void)state;
	stack_down(&stack);
	fakemodel_end(fake);
	end(nginx_pid);
	end(portkey_pid);
	return file_rmtree(dir, &e);
}

struct target {
	struct stack at; /* only its address is used */
	const char *key, *path;
	char body[400];
	struct fetch *f[AT_ONCE];
	int n, calls;
};

static void *one_client(void *arg)
{
	void **a = arg;
	const struct target *t = a[0];
	struct fetch *f = a[1];
	for (int i = 0; i < t->calls; i++)
		(void)fetch_do(f, "POST", t->path, t->body);
	return NULL;
}

static long calls(struct bench_side *s)
{
	const struct target *t = s->arg;
	if (t->n == 1) {
		for (int i = 0; i < t->calls; i++) {
			double begin = bench_now_us();
			(void)fetch_do(t->f[0], "POST", t->path, t->body);
			bench_took(s, bench_now_us() - begin);
		}
		return t->calls;
	}
	pthread_t threads[AT_ONCE];
	void *args[AT_ONCE][2];
	for (int i = 0; i < t->n; i++) {
		args[i][0] = s->arg;
		args[i][1] = t->f[i];
		assert_int_equal(pthread_create(&threads[i], NULL, one_client, args[i]), 0);
	}
	for (int i = 0; i < t->n; i++)
		assert_int_equal(pthread_join(threads[i], NULL), 0);
	return (long)t->calls * t->n;
}

static void target(struct target *t, int port, const char *model, bool stream, int n, int count)
{
	*t = (struct target){
		.key = port == 0 ? org.key : "sk-1", .n = n, .calls = count, .path = "/v1/chat/completions"
	};
	t->at = stack;
	if (port != 0)
		(void)snprintf(
		    t->at.url[0], sizeof t->at.url[0], "http://127.0.0.1:%d%s", port, stream ? "/s" : "");
	(void)snprintf(t->body, sizeof t->body,
	    "{\"model\":\"%s\",\"stream\":%s,\"max_tokens\":100,\"messages\":[{\"role\":\"user\",\"content\":"
	    "\"Say hello to me, and ask how "
	    "you can help. Be short, be friendly, and use no more than ten words.\"}]}",
	    model, stream ? "true" : "false");
	char host[100];
	(void)snprintf(host, sizeof host, "x-portkey-custom-host: http://127.0.0.1:%d/v1", upstream_port);
	for (int i = 0; i < n; i++) {
		t->f[i] = fetch_new(&t->at, t->key);
		if (port == 0 || port != portkey_port)
			continue;
		fetch_header(t->f[i], "x-portkey-provider: openai");
		fetch_header(t->f[i], host);
	}
}

static void end_target(struct target *t)
{
	for (int i = 0; i < t->n; i++)
		fetch_free(t->f[i]);
}

struct round_of {
	const char *heading, *what;
	bool stream;
	int n, calls;
	double cpu_wanted;
};

static void compare(const struct round_of *r)
{
	struct target t[4];
	size_t n = 3;
	target(&t[0], 0, r->stream ? "stream/bench" : "whole/bench", r->stream, r->n, r->calls);
	target(&t[1], proxy_port, "bench", r->stream, r->n, r->calls);
	target(&t[2], upstream_port, "bench", r->stream, r->n, r->calls);
	struct bench_side sides[4] = {
		{ .name = "gatehouse (TLS, key, ledger)", .round = calls, .arg = &t[0] },
		{ .name = "nginx proxy_pass", .round = calls, .arg = &t[1] },
		{ .name = "the upstream itself", .round = calls, .arg = &t[2] },
		{ .name = "@portkey-ai/gateway", .round = calls, .arg = &t[3] },
	};
	sides[0].meters[0] = (struct bench_meter){ "api", stack_pid(&stack, "api1") };
	sides[0].meters[1] = (struct bench_meter){ "nginx", stack_pid(&stack, "nginx") };
	sides[0].meters[2] = (struct bench_meter){ "PostgreSQL", stack_pid(&stack, "pg") };
	sides[1].meters[0] = (struct bench_meter){ "nginx with the upstream", nginx_pid };
	sides[2].meters[0] = (struct bench_meter){ "the upstream", nginx_pid };
	/* A stream that is a file of nginx it answers with 500; so there it has no row. */
	if (portkey_pid != 0 && !r->stream) {
		target(&t[3], portkey_port, "bench", r->stream, r->n, r->calls);
		sides[3].meters[0] = (struct bench_meter){ "portkey", portkey_pid };
		n = 4;
	}
	bench_compare(r->heading, r->stream ? "stream" : "call", sides, n, ROUNDS);
	if (r->cpu_wanted > 0)
		bench_at_most(r->what, sides[0].cpu_us[0], r->cpu_wanted, "µs");
	if (r->n == 1 && !r->stream)
		bench_at_most(
		    "p50 added to the upstream's own", (sides[0].p50_us - sides[2].p50_us) / 1000, 0.4, "ms");
	for (size_t i = 0; i < n; i++)
		end_target(&t[i]);
}

/* ---- streams that are open: what each holds in the api while its model says nothing */

static size_t count(char *p, size_t size, size_t n, void *arg)
{
	(void)p;
	*(size_t *)arg += size * n;
	return size * n;
}

/* Until all have had the beginning of their stream; how many have. */
static int begun(CURLM *multi, const size_t *got, int n, int wait_ms)
{
	int running = 1, have = 0;
	for (int64_t end_ms = clock_ms() + wait_ms; running > 0 && have < n && clock_ms() < end_ms;) {
		assert_int_equal(curl_multi_perform(multi, &running), CURLM_OK);
		assert_int_equal(curl_multi_poll(multi, NULL, 0, 50, NULL), CURLM_OK);
		have = 0;
		for (int i = 0; i < n; i++)
			have += got[i] > 0;
	}
	return have;
}

static void open_streams(void)
{
	char url[100], key[200];
	static size_t got[OPEN_STREAMS];
	static CURL *easy[OPEN_STREAMS];
	CURLM *multi = curl_multi_init();
	(void)snprintf(url, sizeof url, "%s/v1/chat/completions", stack.url[0]);
	(void)snprintf(key, sizeof key, "Authorization: Bearer %s", org.key);
	struct curl_slist *head = curl_slist_append(
	    curl_slist_append(NULL, key), "Content-Type: application/json");
	pid_t api = stack_pid(&stack, "api1");
	long before = bench_private_kib(api);
	for (int i = 0; i < OPEN_STREAMS; i++) {
		CURL *c = easy[i] = curl_easy_init();
		(void)curl_easy_setopt(c, CURLOPT_URL, url);
		(void)curl_easy_setopt(c, CURLOPT_CAINFO, stack.ca);
		(void)curl_easy_setopt(c, CURLOPT_HTTPHEADER, head);
		(void)curl_easy_setopt(c, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
		(void)curl_easy_setopt(c, CURLOPT_POSTFIELDS,
		    "{\"model\":\"silent/"
		    "stall\",\"stream\":true,\"max_tokens\":100,\"messages\":[{\"role\":\"user\",\"content\":"
		    "\"hello\"}]}");
		(void)curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, count);
		(void)curl_easy_setopt(c, CURLOPT_WRITEDATA, &got[i]);
		assert_int_equal(curl_multi_add_handle(multi, c), CURLM_OK);
		if (i % 50 == 49) /* a few at a time: it is not the rush that is measured */
			(void)begun(multi, got, i + 1, 20000);
	}
	int have = begun(multi, got, OPEN_STREAMS, 60000);
	(void)usleep(500000);
	long with = bench_private_kib(api);
	bench_say("%d streams open at once, each silent after 20 events: %ld KiB of the api before, %ld KiB "
		  "with them.",
	    have, before, with);
	assert_int_equal(have, OPEN_STREAMS);
	bench_at_most("memory of the api for an open stream", (double)(with - before) / have, 40, "KiB");
	for (int i = 0; i < OPEN_STREAMS; i++) {
		(void)curl_multi_remove_handle(multi, easy[i]);
		curl_easy_cleanup(easy[i]);
	}
	(void)curl_multi_cleanup(multi);
	curl_slist_free_all(head);
}

static void measure(void **state)
{
	(void)state;
	compare(&(struct round_of){ "A buffered call, one client with one connection",
	    "CPU of the api process for a buffered call", false, 1, CALLS, 150 });
	compare(&(struct round_of){ "A buffered call, 16 clients",
	    "CPU of the api process for a buffered call, 16 clients", false, AT_ONCE, CALLS / 5, 150 });
	compare(&(struct round_of){ "A stream of 102 events, one client",
	    "CPU of the api process for a stream of 102 events", true, 1, STREAMS, 300 });
	bench_note("private memory of the api after all these calls",
	    (double)bench_private_kib(stack_pid(&stack, "api1")), "KiB");
	open_streams();
}

int main(void)
{
	return bench_main("gateway", setup, measure, teardown);
}
