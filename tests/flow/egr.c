#include "../t.h"

#include "egr.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/js.h"
#include "base/str.h"

enum { AWAIT_MS = 60000 };

static const struct dns_row rows[] = {
	{ .name = "a.origin.test", .value = "127.0.0.1" },
	{ .name = "b.origin.test", .value = "127.0.0.1" },
	{ .name = "inside.example.test", .value = "10.1.2.3" },
	{ .name = "loop.example.test", .value = "127.0.0.1" },
	{ .name = "meta.example.test", .value = "169.254.169.254" },
	{ 0 },
};

static void own_address(char out[48])
{
	struct ifaddrs *all = NULL;
	(void)snprintf(out, 48, "127.0.0.1");
	assert_int_equal(getifaddrs(&all), 0);
	for (const struct ifaddrs *a = all; a != NULL; a = a->ifa_next)
		if (a->ifa_addr != NULL && a->ifa_addr->sa_family == AF_INET &&
		    !(a->ifa_flags & IFF_LOOPBACK)) {
			struct sockaddr_in in;
			memcpy(&in, a->ifa_addr, sizeof in);
			assert_non_null(inet_ntop(AF_INET, &in.sin_addr, out, 48));
			break;
		}
	freeifaddrs(all);
}

void egr_up(struct egr *g, int apis, int nodes, const char *oci, const char *conf)
{
	auto_buf struct buf text = BUF(4096);
	*g = (struct egr){ .dns = dnsserver_start(rows), .origin = origin_start() };
	g->port = origin_port(g->origin);
	own_address(g->host);
	(void)buf_fmt(&text,
	    "EGRESS_DNS=127.0.0.1:%d\nEGRESS_ALLOW_INWARD_FOR=.origin.test:%d\nEGRESS_ALLOW_ALL=yes\n"
	    "SANDBOX_OCI_RUNTIME=%s\n%s",
	    dnsserver_port(g->dns), g->port, oci, conf == NULL ? "" : conf);
	stack_up(&g->stack, apis, 0, nodes, buf_c(&text));
	stack_org(&g->stack, &g->acme);
	stack_org(&g->stack, &g->other);
	g->gvisor = sbx_offered(&g->stack, g->acme.key, "gvisor");
}

void egr_down(struct egr *g)
{
	stack_down(&g->stack);
	dnsserver_end(g->dns);
	origin_end(g->origin);
}

/* ["a","b"] of "a b", {P} replaced. */
static json_t *host_list(const struct egr *g, const char *hosts)
{
	json_t *list = json_array();
	struct str rest = str_of(hosts), one;
	while (str_cut(&rest, ' ', &one)) {
		char text[300];
		bool port = one.n > 3 && memcmp(one.p + one.n - 3, "{P}", 3) == 0;
		if (port)
			(void)snprintf(text, sizeof text, "%.*s%d", (int)one.n - 3, one.p, g->port);
		else
			(void)snprintf(text, sizeof text, "%.*s", (int)one.n, one.p);
		js_push(list, json_string(text));
	}
	return list;
}

void egr_lease(struct egr *g, const char *runtime, const char *hosts, char id[40])
{
	json_t *fields = json_object();
	if (runtime[0] != '\0')
		js_set_str(fields, "runtime", runtime);
	if (hosts != NULL)
		js_set(fields, "network", js_pack("{s:o}", "allowedHosts", host_list(g, hosts)));
	sbx_lease(&g->stack, g->acme.key, fields, id);
}

long egr_policy(struct egr *g, const char *key, const char *id, int api, const char *mode, const char *hosts)
{
	char path[80];
	auto_web struct web w = { 0 };
	auto_json json_t *body = js_pack("{s:s}", "mode", mode);
	auto_buf struct buf text = BUF(1 << 16);
	if (hosts != NULL)
		js_set(body, "allowedHosts", host_list(g, hosts));
	assert_int_equal(js_dump_buf(&text, body), 0);
	(void)snprintf(path, sizeof path, "/v1/sandboxes/%s/network", id);
	web_do(&g->stack,
	    &(struct web_req){ .method = "PUT", .path = path, .key = key, .body = buf_c(&text), .api = api },
	    &w);
	if (w.status == 200) {
		assert_string_equal(js_str_or(w.json, "mode", ""), mode);
		/* EGR-16: what was leased with deny-all is not caught. */
		assert_int_equal(js_get(w.json, "note") != NULL, strcmp(mode, "deny-all") != 0);
	}
	return w.status;
}

void egr_curl(struct egr *g, const char *id, const char *host, const char *path, struct buf *out)
{
	char command[600];
	(void)snprintf(command, sizeof command,
	    "curl -sS -m 60 -o /tmp/body -w '%%{http_code} ' http://%s:%d%s 2>&1; cat /tmp/body 2>/dev/null; "
	    "rm -f /tmp/body",
	    host, g->port, path);
	(void)sbx_sh(&g->stack, g->acme.key, id, command, out);
}

bool egr_reaches(struct egr *g, const char *id)
{
	auto_buf struct buf out = BUF(1 << 16);
	int before = origin_accepted(g->origin);
	egr_curl(g, id, "a.origin.test", "/", &out);
	return str_starts(buf_c(&out), "200 ") && origin_accepted(g->origin) > before;
}

void egr_await(struct egr *g, const char *id)
{
	int64_t until = clock_ms() + AWAIT_MS;
	while (!egr_reaches(g, id)) {
		assert_true(clock_ms() < until);
		(void)poll(NULL, 0, 50);
	}
}
