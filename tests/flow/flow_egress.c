/* flow_egress.c - what leaves a sandbox, looked at from inside, with crun, runc and gVisor (EGR-1…5, 9, 10, 11, 15, SBX-33). Every
 * refusal has a control: the same attempt succeeds where it should. */
#include "../span.h"
#include "../t.h"

#include <arpa/inet.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/js.h"
#include "base/str.h"
#include "egr.h"
#include "io/proc.h"

static struct egr g;
static const char *oci;

/* The default runtime, then gVisor where it is offered. */
#define EACH_RUNTIME(r)                                                                                      \
	for (const char *runtimes_[] = { "", g.gvisor ? "gvisor" : NULL, NULL }, **r_ = runtimes_, *r = *r_; \
	     r != NULL; r = *++r_)

/* ---- attempts: the same text runs inside and on the host */

static const char probe[] =
    "python3 - <<'E'\n"
    "import os, socket as s, struct, sys\n"
    "def tcp(f, a, p):\n"
    "    c = s.socket(f, s.SOCK_STREAM); c.settimeout(5); c.connect((a, p)); return True\n"
    "def udp(f, a, p):\n"
    "    c = s.socket(f, s.SOCK_DGRAM); c.settimeout(5); c.connect((a, p)); c.send(b'x')\n"
    "    return c.recv(9) == b'x'\n"
    "def icmp(a):\n"
    "    try: c = s.socket(s.AF_INET, s.SOCK_DGRAM, s.IPPROTO_ICMP)\n"
    "    except OSError: c = s.socket(s.AF_INET, s.SOCK_RAW, s.IPPROTO_ICMP)\n"
    "    c.settimeout(5); m = struct.pack('!BBHHH', 8, 0, 0, 1, 1)\n"
    "    k = ~(0x0800 + 1 + 1) & 0xffff; m = struct.pack('!BBHHH', 8, 0, k, 1, 1)\n"
    "    c.sendto(m, (a, 0)); return len(c.recv(99)) > 0\n"
    "def unix(p):\n"
    "    c = s.socket(s.AF_UNIX); c.connect(p); return True\n"
    "def raw(): s.socket(s.AF_INET, s.SOCK_RAW, s.IPPROTO_RAW); return True\n"
    "def packet(): s.socket(s.AF_PACKET, s.SOCK_RAW, 3); return True\n"
    "for name, attempt in [\n%s]:\n"
    "    try: ok = attempt()\n"
    "    except OSError: ok = False\n"
    "    print(name, 'yes' if ok else 'no')\n"
    "E\n";

static void on_host(const char *command, struct buf *out)
{
	struct err e = { 0 };
	const char *const argv[] = { "/bin/sh", "-c", command, NULL };
	auto_proc struct proc_result r = { 0 };
	struct proc_opts o = {
		.argv = argv, .stdin_fd = -1, .stdout_fd = -1, .stderr_fd = -1, .timeout_ms = 60000
	};
	assert_int_equal(proc_run(&o, &r, &e), 0);
	assert_int_equal(buf_add(out, buf_c(&r.out), r.out.n), 0);
}

/* Sockets of the host that answer: TCP and UDP on one port of each address. */
struct service {
	pthread_t thread;
	int fds[4], stop[2];
	int port;
};

static void *serve(void *arg)
{
	const struct service *v = arg;
	for (;;) {
		struct pollfd p[5];
		for (int i = 0; i < 4; i++)
			p[i] = (struct pollfd){ .fd = v->fds[i], .events = POLLIN };
		p[4] = (struct pollfd){ .fd = v->stop[0], .events = POLLIN };
		(void)poll(p, 5, -1);
		if (p[4].revents != 0)
			return NULL;
		for (int i = 0; i < 4; i++) {
			struct sockaddr_storage from;
			socklen_t n = sizeof from;
			char c;
			if (p[i].revents == 0)
				continue;
			if (i % 2 == 0)
				(void)close(accept(v->fds[i], NULL, NULL));
			else if (recvfrom(v->fds[i], &c, 1, 0, (struct sockaddr *)&from, &n) == 1)
				(void)sendto(v->fds[i], &c, 1, 0, (struct sockaddr *)&from, n);
		}
	}
}

static void service_start(struct service *v, const char *address)
{
	struct sockaddr_in a4 = { .sin_family = AF_INET };
	struct sockaddr_in6 a6 = { .sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT };
	socklen_t n = sizeof a4;
	*v = (struct service){ .fds = { -1, -1, -1, -1 } };
	assert_int_equal(inet_pton(AF_INET, address, &a4.sin_addr), 1);
	for (int i = 0; i < 4; i++) {
		int type = i % 2 == 0 ? SOCK_STREAM : SOCK_DGRAM;
		v->fds[i] = socket(i < 2 ? AF_INET : AF_INET6, type | SOCK_CLOEXEC, 0);
		if (v->fds[i] < 0)
			continue; /* a host without IPv6 */
		int rc = i < 2 ? bind(v->fds[i], (struct sockaddr *)&a4, sizeof a4)
			       : bind(v->fds[i], (struct sockaddr *)&a6, sizeof a6);
		assert_int_equal(rc, 0);
		if (type == SOCK_STREAM)
			assert_int_equal(listen(v->fds[i], 50), 0);
		if (i == 0)
			assert_int_equal(getsockname(v->fds[0], (struct sockaddr *)&a4, &n), 0);
		a6.sin6_port = a4.sin_port;
	}
	v->port = ntohs(a4.sin_port);
	assert_int_equal(pipe(v->stop), 0);
	assert_int_equal(pthread_create(&v->thread, NULL, serve, v), 0);
}

static void service_stop(struct service *v)
{
	assert_int_equal(write(v->stop[1], "x", 1), 1);
	(void)pthread_join(v->thread, NULL);
	for (int i = 0; i < 4; i++)
		(void)close(v->fds[i]);
	(void)close(v->stop[0]);
	(void)close(v->stop[1]);
}

static int api_port(void)
{
	return atoi(strrchr(g.stack.url[0], ':') + 1);
}

/* EGR-10: UDP, ICMP, raw sockets, IPv6, other ports, the host's own addresses and services, its database */
/* fault 45 */
static void nothing_but_the_boundary_answers(void **s)
{
	(void)s;
	struct service v;
	char attempts[2000], command[6000];
	service_start(&v, g.host);
	(void)snprintf(attempts, sizeof attempts,
	    "('host', lambda: tcp(s.AF_INET, '%s', %d)),\n('udp', lambda: udp(s.AF_INET, '%s', %d)),\n"
	    "('loopback of the host', lambda: tcp(s.AF_INET, '127.0.0.1', %d)),\n"
	    "('origin', lambda: tcp(s.AF_INET, '127.0.0.1', %d)),\n"
	    "('tcp6', lambda: tcp(s.AF_INET6, '::1', %d)),\n('udp6', lambda: udp(s.AF_INET6, '::1', %d)),\n"
	    "('icmp', lambda: icmp('%s')),\n('raw', raw),\n('packet', packet),\n"
	    "('database', lambda: unix('%s/run/pg/.s.PGSQL.5432')),\n",
	    g.host, v.port, g.host, v.port, api_port(), g.port, v.port, v.port, g.host, g.stack.dir);
	(void)snprintf(command, sizeof command, probe, attempts);
	auto_buf struct buf here = BUF(4096);
	on_host(command, &here);
	assert_string_equal(buf_c(&here),
	    "host yes\nudp yes\nloopback of the host yes\norigin yes\ntcp6 yes\nudp6 yes\nicmp yes\nraw yes\n"
	    "packet yes\ndatabase yes\n");
	EACH_RUNTIME(r)
	{
		char id[40];
		auto_buf struct buf out = BUF(4096);
		/* Also where everything is allowed: then it is the boundary that lets it pass, and nothing else does. */
		egr_lease(&g, r, NULL, id);
		assert_int_equal(egr_policy(&g, g.acme.key, id, 0, "allow-all", NULL), 200);
		assert_int_equal(sbx_sh(&g.stack, g.acme.key, id, command, &out), 0);
		assert_string_equal(buf_c(&out),
		    "host no\nudp no\nloopback of the host no\norigin no\ntcp6 no\nudp6 no\nicmp no\nraw no\n"
		    "packet no\ndatabase no\n");
		sbx_end(&g.stack, g.acme.key, id);
	}
	service_stop(&v);
}

/* EGR-3: what the boundary itself does not reach, whoever asks it to */
static void the_boundary_reaches_no_address_of_ours(void **s)
{
	(void)s;
	char id[40], urls[4][80];
	(void)snprintf(urls[0], sizeof urls[0], "%s:%d", g.host, api_port());
	(void)snprintf(urls[1], sizeof urls[1], "127.0.0.1:%d", api_port());
	(void)snprintf(urls[2], sizeof urls[2], "[::1]:%d", api_port());
	(void)snprintf(urls[3], sizeof urls[3], "[::ffff:127.0.0.1]:%d", api_port());
	const char *const targets[] = { urls[0], urls[1], urls[2], urls[3], "169.254.169.254",
		"meta.example.test", "inside.example.test", "loop.example.test", "10.0.0.1", "192.168.1.1",
		NULL };
	egr_lease(&g, "", NULL, id);
	assert_int_equal(egr_policy(&g, g.acme.key, id, 0, "allow-all", NULL), 200);
	for (const char *const *t = targets; *t != NULL; t++) {
		char command[300];
		auto_buf struct buf out = BUF(1 << 16);
		(void)snprintf(command, sizeof command,
		    "curl -sS -m 60 --noproxy '' -w ' %%{http_code}' 'http://%s/'", *t);
		(void)sbx_sh(&g.stack, g.acme.key, id, command, &out);
		if (strstr(buf_c(&out), "\"address_denied\"") == NULL &&
		    strstr(buf_c(&out), "\"address_self\"") == NULL)
			fail_msg("%s: %s", *t, buf_c(&out));
	}
	/* The control: an address that the deployment opens, and only under a policy that allows it. */
	assert_int_equal(egr_policy(&g, g.acme.key, id, 0, "static", "a.origin.test:{P}"), 200);
	assert_true(egr_reaches(&g, id));
	sbx_end(&g.stack, g.acme.key, id);
}

static void another_sandbox_cannot_be_reached(void **s)
{
	(void)s;
	char one[40], two[40];
	const char *listen_ =
	    "python3 -c 'import socket,time; l=socket.socket(); l.bind((\"0.0.0.0\",8000)); l.listen(); "
	    "time.sleep(600)' >/dev/null 2>&1 & until (exec 3<>/dev/tcp/127.0.0.1/8000) 2>/dev/null; do "
	    "sleep 0.1; done; "
	    "echo mine";
	EACH_RUNTIME(r)
	{
		auto_buf struct buf out = BUF(4096), there = BUF(4096);
		char command[300];
		egr_lease(&g, r, NULL, one);
		egr_lease(&g, r, NULL, two);
		/* bash, as sh has no /dev/tcp */
		auto_web struct web w = { 0 };
		sbx_run(&g.stack, g.acme.key, one,
		    js_pack("{s:[sss],s:i}", "argv", "bash", "-c", listen_, "timeoutSec", 60), &w);
		assert_string_equal(js_str_or(w.json, "stdout", ""), "mine\n");
		(void)snprintf(command, sizeof command,
		    "python3 -c 'import socket; socket.create_connection((\"127.0.0.1\",8000),2)' "
		    "2>/dev/null || echo "
		    "no");
		(void)sbx_sh(&g.stack, g.acme.key, two, command, &there);
		assert_string_equal(buf_c(&there), "no\n");
		sbx_end(&g.stack, g.acme.key, one);
		sbx_end(&g.stack, g.acme.key, two);
	}
}

/* ---- policies */

/* EGR-5, EGR-15 */
static void what_is_allowed_works_and_what_is_not_says_why(void **s)
{
	(void)s;
	EACH_RUNTIME(r)
	{
		char id[40], path[120];
		auto_buf struct buf out = BUF(1 << 16), name = BUF(4096);
		egr_lease(&g, r, "a.origin.test:{P}", id);
		assert_true(egr_reaches(&g, id));
		int before = origin_accepted(g.origin), asked = dnsserver_asked(g.dns, "b.origin.test");
		egr_curl(&g, id, "b.origin.test", "/", &out);
		assert_true(str_starts(buf_c(&out), "403 "));
		assert_non_null(strstr(buf_c(&out), "\"not_on_allowlist\""));
		assert_non_null(strstr(buf_c(&out), "add it to allowedHosts"));
		assert_int_equal(origin_accepted(g.origin), before);
		assert_int_equal(dnsserver_asked(g.dns, "b.origin.test"), asked); /* EGR-3: no query */
		/* EGR-16: names of the list have an address that leads to the boundary, and nobody is asked for others. */
		(void)sbx_sh(&g.stack, g.acme.key, id,
		    "getent hosts a.origin.test | cut -d' ' -f1; getent hosts b.origin.test || echo none",
		    &name);
		assert_string_equal(buf_c(&name), "198.18.0.1\nnone\n");
		assert_int_equal(dnsserver_asked(g.dns, "b.origin.test"), asked);
		/* The rows are read by whoever's sandbox it is. */
		auto_web struct web w = { 0 }, foreign = { 0 };
		(void)snprintf(path, sizeof path, "/v1/sandboxes/%s/egress?verdict=deny", id);
		for (int64_t until = clock_ms() + 60000;; (void)poll(NULL, 0, 20)) {
			web_free(&w);
			web_json(&g.stack, "GET", path, g.acme.member, NULL, &w);
			if (json_array_size(js_get(w.json, "data")) > 0)
				break;
			assert_true(clock_ms() < until); /* they are written in batches */
		}
		json_t *row = json_array_get(js_get(w.json, "data"), 0);
		assert_string_equal(js_str_or(row, "host", ""), "b.origin.test");
		assert_string_equal(js_str_or(row, "reason", ""), "not_on_allowlist");
		web_json(&g.stack, "GET", path, g.other.key, NULL, &foreign);
		assert_int_equal(foreign.status, 404);
		sbx_end(&g.stack, g.acme.key, id);
	}
}

/* EGR-16: a client that knows no proxy comes to the boundary on ports 80 and 443, whatever address it takes, and nowhere else. */
static void who_knows_no_proxy_is_caught_and_judged(void **s)
{
	(void)s;
	EACH_RUNTIME(r)
	{
		char id[40];
		auto_buf struct buf http = BUF(1 << 16), tls = BUF(4096), rest = BUF(4096);
		egr_lease(&g, r, "a.origin.test:{P}", id);
		(void)sbx_sh(&g.stack, g.acme.key, id,
		    "curl -s -m 60 --noproxy '*' -w ' %{http_code}' http://192.0.2.1/; curl -s -m 60 "
		    "--noproxy "
		    "'*' -w ' "
		    "%{http_code}' --resolve b.origin.test:80:192.0.2.1 http://b.origin.test/",
		    &http);
		assert_non_null(strstr(buf_c(&http), "192.0.2.1:80: The host is not on this sandbox's list"));
		assert_non_null(
		    strstr(buf_c(&http), "b.origin.test:80: The host is not on this sandbox's list"));
		(void)sbx_sh(&g.stack, g.acme.key, id,
		    "curl -sk -m 60 --noproxy '*' --resolve b.origin.test:443:192.0.2.1 "
		    "https://b.origin.test/ || echo $?",
		    &tls);
		assert_string_equal(buf_c(&tls), "35\n"); /* the handshake is refused */
		(void)sbx_sh(&g.stack, g.acme.key, id,
		    "python3 - <<'E'\n"
		    "import socket as s\n"
		    "for p in 22, 81, 3128, 5432, 8080:\n"
		    "    c = s.socket(); c.settimeout(3)\n"
		    "    print(p, c.connect_ex(('192.0.2.1', p)) == 0)\n"
		    "u = s.socket(s.AF_INET, s.SOCK_DGRAM); u.settimeout(3); u.connect(('192.0.2.1', 123)); "
		    "u.send(b'x')\n"
		    "try: print('udp', u.recv(9))\n"
		    "except OSError: print('udp no')\n"
		    "E\n",
		    &rest);
		assert_string_equal(
		    buf_c(&rest), "22 False\n81 False\n3128 False\n5432 False\n8080 False\nudp no\n");
		sbx_end(&g.stack, g.acme.key, id);
	}
}

static void deny_all_refuses_everything_and_says_so(void **s)
{
	(void)s;
	EACH_RUNTIME(r)
	{
		char id[40];
		auto_buf struct buf out = BUF(1 << 16), socks = BUF(4096);
		egr_lease(&g, r, NULL, id);
		egr_curl(&g, id, "a.origin.test", "/", &out);
		assert_true(str_starts(buf_c(&out), "403 "));
		assert_non_null(strstr(buf_c(&out), "\"mode_deny_all\""));
		(void)sbx_sh(&g.stack, g.acme.key, id,
		    "curl -sS -m 60 --noproxy '' -x socks5h://127.0.0.1:3128 http://a.origin.test/ "
		    ">/dev/null "
		    "2>&1 || echo "
		    "refused",
		    &socks);
		assert_string_equal(buf_c(&socks), "refused\n");
		auto_buf struct buf bare = BUF(4096);
		(void)sbx_sh(&g.stack, g.acme.key, id,
		    "getent hosts a.origin.test || echo none; curl -s -m 60 --noproxy '*' http://192.0.2.1/ "
		    "|| echo $?",
		    &bare);
		assert_string_equal(buf_c(&bare), "none\n7\n"); /* nothing is caught where nothing may pass */
		sbx_end(&g.stack, g.acme.key, id);
	}
}

/* A tunnel that echoes until it is closed, and says when: its last line is the time of its end. */
static const char tunnel[] = "python3 -u - <<'E'\n"
			     "import socket, time\n"
			     "c = socket.create_connection(('127.0.0.1', 3128)); c.settimeout(60)\n"
			     "t = 'a.origin.test:%d'\n"
			     "c.sendall(f'CONNECT {t} HTTP/1.1\\r\\nHost: {t}\\r\\n\\r\\n'.encode())\n"
			     "h = b''\n"
			     "while not h.endswith(b'\\r\\n\\r\\n'): h += c.recv(1)\n"
			     "assert b' 200 ' in h, h\n"
			     "try:\n"
			     "    while True:\n"
			     "        c.sendall(b'ping'); d = c.recv(4)\n"
			     "        if not d: break\n"
			     "        open('/mnt/data/up', 'w').close(); time.sleep(0.005)\n"
			     "except OSError: pass\n"
			     "print(int(time.time() * 1000))\n"
			     "E\n";

struct running {
	pthread_t thread;
	char id[40];
	char command[1500];
	long long ended_ms;
};

static void *run_tunnel(void *arg)
{
	struct running *t = arg;
	auto_buf struct buf out = BUF(4096);
	(void)sbx_sh(&g.stack, g.acme.key, t->id, t->command, &out);
	t->ended_ms = strtoll(buf_c(&out), NULL, 10);
	return NULL;
}

/* EGR-9: from any API host, at once, for what stands and for what comes */
static void a_policy_changes_under_what_is_open(void **s)
{
	(void)s;
	EACH_RUNTIME(r)
	{
		struct running t;
		auto_buf struct buf out = BUF(1 << 16);
		egr_lease(&g, r, "a.origin.test:{P}", t.id);
		(void)snprintf(t.command, sizeof t.command, tunnel, g.port);
		assert_int_equal(pthread_create(&t.thread, NULL, run_tunnel, &t), 0);
		assert_int_equal(sbx_sh(&g.stack, g.acme.key, t.id,
				     "until [ -e /mnt/data/up ]; do sleep 0.02; done", NULL),
		    0);
		/* A list that still has it leaves it alone. */
		assert_int_equal(
		    egr_policy(&g, g.acme.member, t.id, 1, "static", "b.origin.test:{P} a.origin.test:{P}"),
		    200);
		assert_int_equal(sbx_sh(&g.stack, g.acme.key, t.id,
				     "rm /mnt/data/up; until [ -e /mnt/data/up ]; do sleep 0.02; done", NULL),
		    0);
		struct span asked = span_begin();
		int64_t asked_ms = clock_wall_ms();
		assert_int_equal(egr_policy(&g, g.acme.member, t.id, 1, "deny-all", NULL), 200);
		int64_t answered_ms = clock_wall_ms();
		egr_curl(&g, t.id, "a.origin.test", "/", &out);
		assert_true(str_starts(buf_c(&out), "403 "));
		(void)pthread_join(t.thread, NULL);
		print_message("%s: policy in force after %lld ms, tunnel closed after %lld ms\n", r,
		    (long long)(answered_ms - asked_ms), t.ended_ms - asked_ms);
		assert_true(t.ended_ms > 0 &&
		    span_of(&asked, t.ended_ms - asked_ms) <
			2000); /* under sanitizers and load; the aim is 100 */
		assert_int_equal(egr_policy(&g, g.acme.key, t.id, 0, "static", "a.origin.test:{P}"), 200);
		assert_true(egr_reaches(&g, t.id));
		sbx_end(&g.stack, g.acme.key, t.id);
	}
}

static void a_policy_is_its_orgs_own(void **s)
{
	(void)s;
	char id[40], path[80];
	auto_web struct web w = { 0 };
	egr_lease(&g, "", "a.origin.test:{P}", id);
	assert_int_equal(egr_policy(&g, g.other.key, id, 0, "deny-all", NULL), 404);
	assert_true(egr_reaches(&g, id));
	(void)snprintf(path, sizeof path, "/v1/sandboxes/%s/network", id);
	web_json(&g.stack, "PUT", path, g.acme.key, js_pack("{s:[s]}", "allowedHosts", "*.origin.test"), &w);
	assert_int_equal(w.status, 400);
	assert_string_equal(web_error(&w, "param"), "allowedHosts[0]");
	assert_true(egr_reaches(&g, id));
	sbx_end(&g.stack, g.acme.key, id);
	assert_int_equal(egr_policy(&g, g.acme.key, id, 0, "deny-all", NULL), 409);
}

/* SBX-33, SBX-31: what a lease says, outside and inside */
static void the_tier_is_true_inside_and_outside(void **s)
{
	(void)s;
	char id[40], path[80];
	egr_lease(&g, "", "a.origin.test:{P}", id);
	(void)snprintf(path, sizeof path, "/v1/sandboxes/%s", id);
	static const struct {
		const char *mode, *reach, *tier;
	} steps[] = { { "static", "proxy", "2\n" }, { "allow-all", "proxy", "1\n" },
		{ "deny-all", "none", "2\n" } };
	for (size_t i = 0; i < 3; i++) {
		auto_web struct web w = { 0 };
		auto_buf struct buf out = BUF(100);
		char tier[12];
		assert_int_equal(egr_policy(&g, g.acme.key, id, 0, steps[i].mode, NULL), 200);
		web_json(&g.stack, "GET", path, g.acme.key, NULL, &w);
		const json_t *iso = js_get(w.json, "isolation");
		assert_string_equal(js_str_or(iso, "network", ""), steps[i].reach);
		(void)snprintf(tier, sizeof tier, "%lld\n", js_int(iso, "tier", -1));
		assert_string_equal(tier, steps[i].tier);
		(void)sbx_sh(&g.stack, g.acme.key, id, "echo $SANDBOX_TIER", &out);
		assert_string_equal(buf_c(&out), steps[i].tier);
	}
	sbx_end(&g.stack, g.acme.key, id);
}

/* EGR-10: the boundary's variables are its own, in both spellings, and no lease may ask for others */
static void the_proxy_variables_are_the_sandboxs_own(void **s)
{
	(void)s;
	char id[40];
	auto_buf struct buf out = BUF(4096);
	auto_web struct web w = { 0 };
	web_json(&g.stack, "POST", "/v1/sandboxes", g.acme.key,
	    js_pack("{s:{s:s}}", "env", "HTTP_PROXY", "http://evil.example:1"), &w);
	assert_int_equal(w.status, 400);
	assert_string_equal(web_error(&w, "param"), "env.HTTP_PROXY");
	sbx_lease(&g.stack, g.acme.key, js_pack("{s:{s:s}}", "env", "OTHER", "x"), id);
	(void)sbx_sh(&g.stack, g.acme.key, id, "env | grep -iE '^(https?|all|no)_proxy=|OTHER' | sort", &out);
	assert_string_equal(buf_c(&out),
	    "ALL_PROXY=http://127.0.0.1:3128\nHTTPS_PROXY=http://127.0.0.1:3128\nHTTP_PROXY=http://"
	    "127.0.0.1:3128\n"
	    "NO_PROXY=localhost,127.0.0.1,::1\nOTHER=x\nall_proxy=http://127.0.0.1:3128\n"
	    "http_proxy=http://127.0.0.1:3128\nhttps_proxy=http://"
	    "127.0.0.1:3128\nno_proxy=localhost,127.0.0.1,::1\n");
	sbx_end(&g.stack, g.acme.key, id);
}

static int up(void **s)
{
	(void)s;
	egr_up(&g, 2, 1, oci, NULL);
	return 0;
}

static int down(void **s)
{
	(void)s;
	egr_down(&g);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nothing_but_the_boundary_answers),
		cmocka_unit_test(the_boundary_reaches_no_address_of_ours),
		cmocka_unit_test(another_sandbox_cannot_be_reached),
		cmocka_unit_test(what_is_allowed_works_and_what_is_not_says_why),
		cmocka_unit_test(who_knows_no_proxy_is_caught_and_judged),
		cmocka_unit_test(deny_all_refuses_everything_and_says_so),
		cmocka_unit_test(a_policy_changes_under_what_is_open),
		cmocka_unit_test(a_policy_is_its_orgs_own),
		cmocka_unit_test(the_tier_is_true_inside_and_outside),
		cmocka_unit_test(the_proxy_variables_are_the_sandboxs_own),
	};
	oci = "crun";
	int failed = cmocka_run_group_tests_name("egress with crun and gVisor", tests, up, down);
	oci = "runc";
	return failed + cmocka_run_group_tests_name("egress with runc and gVisor", tests, up, down);
}
