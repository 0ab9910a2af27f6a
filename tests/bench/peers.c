#include "../t.h"

#include "peers.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../egresstest.h"
#include "base/clock.h"
#include "base/js.h"
#include "io/file.h"

static char dir[] = "/tmp/bench-peers.XXXXXX";
static struct {
	pid_t nginx, tls, portkey;
	int port[PEERS], paced_port;
} peers;
static const struct stack *stack;
static const struct stack_org *org;

static const struct {
	const char *name, *base; /* of the provider; of its paths at the upstream */
} asks[] = { { "whole", "" }, { "stream", "/s" }, { "paced", "/p" } };

static const char answer[] = "{\"id\":\"chatcmpl-1\",\"object\":\"chat.completion\",\"created\":1700000000,"
			     "\"model\":\"bench\",\"choices\":[{\"index\":0,"
			     "\"message\":{\"role\":\"assistant\",\"content\":\"Hello there, how can I help "
			     "you today?\"},\"finish_reason\":\"stop\"}],"
			     "\"usage\":{\"prompt_tokens\":21,\"completion_tokens\":10,\"total_tokens\":31}}";

/* ---- the processes */

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
	for (int i = 0; i < PEERS_EVENTS - 2; i++)
		(void)buf_fmt(out, chunk, i, "null");
	(void)buf_fmt(out, chunk, 100, "\"stop\"");
	(void)buf_str(out, "data: [DONE]\n\n");
}

/* The head of a session of its own, so that a meter and an end find its children, too. */
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

static pid_t start_nginx(const char *name, const struct buf *servers, const char *main, int port)
{
	char path[128], file[40];
	auto_buf struct buf conf = BUF(16384);
	(void)snprintf(file, sizeof file, "%s.conf", name);
	(void)snprintf(path, sizeof path, "%s/%s", dir, file);
	assert_int_equal(
	    buf_fmt(&conf,
		"daemon off; %s pid %s/%s.pid; error_log /dev/null; worker_rlimit_nofile 8192;\n"
		"events { worker_connections 4096; }\nhttp { access_log off;\n"
		"client_body_temp_path %s/%s-b; proxy_temp_path %s/%s-p; fastcgi_temp_path %s/%s-f;\n"
		"uwsgi_temp_path %s/%s-u; scgi_temp_path %s/%s-s;\n%s}\n",
		main, dir, name, dir, name, dir, name, dir, name, dir, name, dir, name, buf_c(servers)),
	    0);
	write_file(file, buf_c(&conf));
	pid_t pid = spawn((char *[]){ (char[]){ "nginx" }, (char[]){ "-c" }, path, NULL });
	wait_port(port);
	return pid;
}

#define UPSTREAMS                                                                                            \
	"upstream u { server 127.0.0.1:%d; keepalive 64; } upstream p { server 127.0.0.1:%d; keepalive 4; "  \
	"}\n"                                                                                                \
	"proxy_http_version 1.1; proxy_buffering off; proxy_set_header Connection \"\";\n"
#define PASS "location / { proxy_pass http://u; } location /p/ { proxy_pass http://p; }"

/* A server has to be named, also where there is none. */
static int named_port(void)
{
	return peers.paced_port != 0 ? peers.paced_port : 9;
}

/* The upstream and proxy_pass in one process. */
static void start_upstream(void)
{
	auto_buf struct buf conf = BUF(8192), stream = BUF(1 << 20);
	int up = peers.port[PEER_UPSTREAM] = free_port(), proxy = peers.port[PEER_PROXY] = free_port();
	struct err e = { 0 };
	static const char *const folders[] = { "www/v1/chat", "www/s/v1/chat" };
	events(&stream);
	for (int i = 0; i < 2; i++) {
		char path[128];
		(void)snprintf(path, sizeof path, "%s/%s", dir, folders[i]);
		assert_int_equal(file_mkdirs(path, 0755, &e), 0);
		(void)snprintf(path, sizeof path, "%s/completions", folders[i]);
		write_file(path, i == 0 ? answer : buf_c(&stream));
	}
	assert_int_equal(
	    buf_fmt(&conf,
		"keepalive_requests 1000000; sendfile on; tcp_nodelay on;\n" UPSTREAMS
		"server { listen 127.0.0.1:%d backlog=1024; root %s/www; error_page 405 =200 $uri;\n"
		"location /v1/ { default_type application/json; } location /s/ { default_type "
		"text/event-stream; } }\n"
		"server { listen 127.0.0.1:%d; " PASS " }\n",
		up, named_port(), up, dir, proxy),
	    0);
	peers.nginx = start_nginx("upstream", &conf, "master_process off;", up);
}

static void start_portkey(void)
{
	const char *script = getenv("BENCH_PORTKEY");
	char port[24], path[400];
	if (script == NULL || script[0] == 0)
		return;
	peers.port[PEER_PORTKEY] = free_port();
	(void)snprintf(port, sizeof port, "--port=%d", peers.port[PEER_PORTKEY]);
	(void)snprintf(path, sizeof path, "%s", script);
	peers.portkey = spawn((char *[]){ (char[]){ "node" }, path, port, (char[]){ "--headless" }, NULL });
	wait_port(peers.port[PEER_PORTKEY]);
}

void peers_start(int paced_port)
{
	assert_non_null(mkdtemp(dir));
	assert_int_equal(chmod(dir, 0755), 0);
	peers.paced_port = paced_port;
	start_upstream();
	start_portkey();
}

/* As the stack's nginx: two workers, TLS and HTTP/2, the same certificate, the same settings of sessions. */
void peers_start_tls(const struct stack *s)
{
	auto_buf struct buf conf = BUF(8192);
	int proxy = peers.port[PEER_PROXY_TLS] = free_port();
	stack = s;
	assert_int_equal(
	    buf_fmt(&conf,
		UPSTREAMS
		"upstream k { server 127.0.0.1:%d; keepalive 64; }\n"
		"ssl_certificate %s/tls/server.pem; ssl_certificate_key %s/tls/server.key; ssl_protocols "
		"TLSv1.2 TLSv1.3;\n"
		"ssl_session_cache shared:peers:2m; ssl_session_tickets off;\n"
		"server { listen 127.0.0.1:%d ssl http2; " PASS " }\n",
		peers.port[PEER_UPSTREAM], named_port(),
		peers.portkey != 0 ? peers.port[PEER_PORTKEY] : peers.port[PEER_UPSTREAM], s->dir, s->dir,
		proxy),
	    0);
	if (peers.portkey != 0) {
		peers.port[PEER_PORTKEY_TLS] = free_port();
		assert_int_equal(
		    buf_fmt(&conf,
			"server { listen 127.0.0.1:%d ssl http2; location / { proxy_pass http://k; "
			"} }\n",
			peers.port[PEER_PORTKEY_TLS]),
		    0);
	}
	peers.tls = start_nginx("tls", &conf, "worker_processes 2;", proxy);
}

static void end(pid_t pid)
{
	if (pid <= 0)
		return;
	(void)kill(-pid, SIGKILL); /* and its workers */
	(void)waitpid(pid, NULL, 0);
}

void peers_end(void)
{
	struct err e = { 0 };
	end(peers.nginx);
	end(peers.tls);
	end(peers.portkey);
	assert_int_equal(file_rmtree(dir, &e), 0);
}

int peers_upstream_port(void)
{
	return peers.port[PEER_UPSTREAM];
}

bool peers_have(enum peer p)
{
	return p == PEER_GATEHOUSE || peers.port[p] != 0;
}

void peers_providers(const struct stack *s, const struct stack_org *o)
{
	stack = s;
	org = o;
	for (size_t i = 0; i < sizeof asks / sizeof asks[0]; i++) {
		char url[100];
		if (i == ASK_PACED && peers.paced_port == 0)
			continue;
		auto_web struct web w = { 0 };
		(void)snprintf(url, sizeof url, "http://127.0.0.1:%d%s/v1",
		    i == ASK_PACED ? peers.paced_port : peers.port[PEER_UPSTREAM], asks[i].base);
		web_json(s, "POST", "/v1/models/providers", o->key,
		    js_pack("{s:s, s:s, s:s, s:[s], s:[{s:s, s:{s:i, s:i}}]}", "name", asks[i].name, "wire",
			"openai-chat", "baseUrl", url, "keys", "sk-1", "models", "name", "bench", "prices",
			"input", 100000, "output", 200000),
		    &w);
		assert_int_equal(w.status, 201);
	}
}

/* ---- clients */

static void *one_client(void *arg)
{
	void **a = arg;
	const struct target *t = a[0];
	struct fetch *f = a[1];
	for (int i = 0; i < t->calls; i++)
		(void)fetch_do(f, "POST", "/v1/chat/completions", t->body);
	return NULL;
}

static long calls(struct bench_side *s)
{
	const struct target *t = s->arg;
	if (t->n == 1) {
		for (int i = 0; i < t->calls; i++) {
			double begin = bench_now_us();
			(void)fetch_do(t->f[0], "POST", "/v1/chat/completions", t->body);
			bench_took(s, bench_now_us() - begin);
		}
		return t->calls;
	}
	pthread_t threads[PEERS_AT_ONCE];
	void *args[PEERS_AT_ONCE][2];
	for (int i = 0; i < t->n; i++) {
		args[i][0] = s->arg;
		args[i][1] = t->f[i];
		assert_int_equal(pthread_create(&threads[i], NULL, one_client, args[i]), 0);
	}
	for (int i = 0; i < t->n; i++)
		assert_int_equal(pthread_join(threads[i], NULL), 0);
	return (long)t->calls * t->n;
}

static void address(struct target *t, enum peer p, enum ask ask)
{
	bool tls = p == PEER_PROXY_TLS || p == PEER_PORTKEY_TLS,
	     portkey = p == PEER_PORTKEY || p == PEER_PORTKEY_TLS;
	t->at = *stack;
	if (p == PEER_GATEHOUSE)
		return;
	/* Where to ask it, portkey is told in a header. */
	(void)snprintf(t->at.url[0], sizeof t->at.url[0], "%s://127.0.0.1:%d%s", tls ? "https" : "http",
	    p == PEER_UPSTREAM && ask == ASK_PACED ? peers.paced_port : peers.port[p],
	    portkey ? "" : asks[ask].base);
}

void target_open(struct target *t, enum peer p, enum ask ask, int n, int count)
{
	char host[100];
	*t = (struct target){ .n = n, .calls = count };
	address(t, p, ask);
	(void)snprintf(t->body, sizeof t->body,
	    "{\"model\":\"%s%sbench\",\"stream\":%s,\"max_tokens\":100,\"messages\":[{\"role\":\"user\","
	    "\"content\":\"Say hello to me, and ask how "
	    "you can help. Be short, be friendly, and use no more than ten words.\"}]}",
	    p == PEER_GATEHOUSE ? asks[ask].name : "", p == PEER_GATEHOUSE ? "/" : "",
	    ask == ASK_WHOLE ? "false" : "true");
	(void)snprintf(host, sizeof host, "x-portkey-custom-host: http://127.0.0.1:%d%s/v1",
	    ask == ASK_PACED ? peers.paced_port : peers.port[PEER_UPSTREAM], asks[ask].base);
	for (int i = 0; i < n; i++) {
		t->f[i] = fetch_new(&t->at, p == PEER_GATEHOUSE ? org->key : "sk-1");
		fetch_http_1(t->f[i]); /* as the vendors' own packages ask, whichever side */
		if (p != PEER_PORTKEY && p != PEER_PORTKEY_TLS)
			continue;
		fetch_header(t->f[i], "x-portkey-provider: openai");
		fetch_header(t->f[i], host);
	}
}

void target_close(struct target *t)
{
	for (int i = 0; i < t->n; i++)
		fetch_free(t->f[i]);
}

void target_side(struct bench_side *s, enum peer p, struct target *t)
{
	static const char *const names[PEERS] = { "gatehouse (TLS, key, ledger)", "nginx proxy_pass",
		"the upstream itself", "@portkey-ai/gateway", "nginx proxy_pass with TLS",
		"@portkey-ai/gateway behind nginx with TLS" };
	*s = (struct bench_side){ .name = names[p], .round = calls, .arg = t };
	struct bench_meter *m = s->meters;
	if (p == PEER_GATEHOUSE) {
		*m++ = (struct bench_meter){ "api", stack_pid(stack, "api1") };
		*m++ = (struct bench_meter){ "nginx", stack_pid(stack, "nginx") };
		*m++ = (struct bench_meter){ "PostgreSQL", stack_pid(stack, "pg") };
	}
	if (p == PEER_PORTKEY || p == PEER_PORTKEY_TLS)
		*m++ = (struct bench_meter){ "portkey", peers.portkey };
	if (p == PEER_PROXY_TLS || p == PEER_PORTKEY_TLS)
		*m++ = (struct bench_meter){ "nginx", peers.tls };
	if (p == PEER_PROXY)
		*m++ = (struct bench_meter){ "nginx with the upstream", peers.nginx };
	if (p == PEER_UPSTREAM)
		*m++ = (struct bench_meter){ "the upstream", peers.nginx };
}
