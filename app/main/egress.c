/*
 * egress.c - gatehouse-egress: what sandboxes reach the outside through. Unprivileged; the sandboxes' listeners are handed to it
 * by sandboxd.
 */
#include <netdb.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "egress/egress.h"
#include "io/conf.h"
#include "io/http.h"
#include "io/pg.h"

enum { LIST_MAX = 64, TEXT_MAX = 1024, POSTGRES_PORT = 5432 };

/* What the options point to. */
struct lists {
	struct egress_self self[LIST_MAX];
	uint16_t ports[LIST_MAX];
};

static int self_list(const char *text, struct lists *l, size_t *n, struct err *e)
{
	struct str rest = str_of(text), item;
	while (str_cut(&rest, ',', &item)) {
		item = str_trim(item);
		if (item.n == 0)
			continue;
		if (*n == LIST_MAX)
			return err_set(
			    e, ERR_BAD_REQUEST, "EGRESS_SELF has more than %d addresses.", LIST_MAX);
		if (!host_socket(item, &l->self[*n].ip, &l->self[*n].port))
			return err_set(e, ERR_BAD_REQUEST,
			    "EGRESS_SELF: %.*s is not an address, alone or with :port.", (int)item.n, item.p);
		(*n)++;
	}
	return 0;
}

static int ports(const char *text, struct lists *l, int *n, struct err *e)
{
	struct str rest = str_of(text), item;
	while (str_cut(&rest, ' ', &item)) {
		if (item.n == 0)
			continue;
		if (*n == LIST_MAX || !host_port(item, &l->ports[*n]))
			return err_set(
			    e, ERR_BAD_REQUEST, "EGRESS_TLS_PORTS: %.*s is not a port.", (int)item.n, item.p);
		(*n)++;
	}
	return 0;
}

/* ---- our own services on this host, and where the database is (EGR-3) */

static void own_port(struct egress_site *site, uint16_t port)
{
	if (site->n_own_ports < SITE_OWN_PORTS)
		site->own_ports[site->n_own_ports++] = port;
}

/* nginx's: that of the origin under which clients reach it. */
static void own_origin(struct egress_site *site, const char *url)
{
	struct str host, number;
	bool has_port = false;
	const char *at = strstr(url, "://");
	uint16_t port = str_starts(url, "https:") ? 443 : 80;
	if (at == NULL || !host_split(str_of(at + 3), &host, &number, &has_port))
		return;
	if (!has_port || host_port(number, &port))
		own_port(site, port);
}

struct owning {
	struct lists *l;
	struct egress_site *site;
};

/* A name is looked up once, as ours are expected to stay where they are; EGRESS_SELF lists what moves. */
static void own_server(void *arg, const char *host, uint16_t port)
{
	const struct owning *o = arg;
	const struct addrinfo hints = { .ai_socktype = SOCK_STREAM };
	struct addrinfo *all = NULL;
	own_port(o->site, port);
	if (host[0] == '\0' || host[0] == '/' || host[0] == '@')
		return;
	if (getaddrinfo(host, NULL, &hints, &all) != 0) {
		log_warn("DATABASE_URL's host has no address now: list it in EGRESS_SELF", "host", host);
		return;
	}
	for (const struct addrinfo *i = all; i != NULL && o->site->n_self < LIST_MAX; i = i->ai_next)
		if (addr_from_sockaddr(i->ai_addr, &o->l->self[o->site->n_self].ip))
			o->l->self[o->site->n_self++].port = port;
	freeaddrinfo(all);
}

static void own_services(const struct conf *c, struct lists *l, struct egress_site *site)
{
	struct owning o = { .l = l, .site = site };
	own_origin(site, conf_str(c, "PUBLIC_URL"));
	own_origin(site, conf_str(c, "FORGE_URL"));
	own_port(site, POSTGRES_PORT); /* also where it is asked by its unix socket */
	pg_servers(conf_str(c, "DATABASE_URL"), own_server, &o);
}

static int options(const struct conf *c, struct lists *l, struct egress_opts *o, struct err *e)
{
	*o = (struct egress_opts){
		.socket = conf_str(c, "EGRESS_SOCKET"),
		.conninfo = conf_str(c, "DATABASE_URL"),
		.statement_ms = (int)conf_int(c, "DATABASE_TIMEOUT_MS"),
		.dns = conf_str(c, "EGRESS_DNS"),
		.audit_days = (int)conf_int(c, "EGRESS_AUDIT_DAYS"),
		.resolver = conf_str(c, "EGRESS_RESOLVER"),
		.resolver_ca_file = conf_str(c, "CA_FILE"),
		.resolver_ms = (int)conf_int(c, "EGRESS_RESOLVER_MS"),
		.ca_file = conf_str(c, "EGRESS_CA_FILE"),
		.head_ms = 1000 * conf_int(c, "EGRESS_HEAD_S"),
		.hello_ms = 1000 * conf_int(c, "EGRESS_HELLO_S"),
		.dns_ms = conf_int(c, "EGRESS_DNS_MS"),
		.connect_ms = 1000 * conf_int(c, "EGRESS_CONNECT_S"),
		.idle_ms = 1000 * conf_int(c, "EGRESS_IDLE_S"),
		.drain_ms = 1000 * conf_int(c, "EGRESS_DRAIN_S"),
		.total_ms = 1000 * conf_int(c, "EGRESS_TOTAL_S"),
		.connections = (int)conf_int(c, "EGRESS_CONNECTIONS"),
		.requests_s = (int)conf_int(c, "EGRESS_REQUESTS_PER_S"),
		.bytes_s = 1024 * conf_int(c, "EGRESS_KIB_PER_S"),
		.lease_bytes = 1024 * 1024 * conf_int(c, "EGRESS_LEASE_MIB"),
		.site = { .self = l->self,
		    .observe = conf_bool(c, "EGRESS_OBSERVE"),
		    .nat64 = conf_bool(c, "EGRESS_NAT64"),
		    .smtp = conf_bool(c, "EGRESS_SMTP"),
		    .sni_absent = conf_bool(c, "EGRESS_ABSENT_SNI"),
		    .ech = conf_bool(c, "EGRESS_ECH") },
		.tls_ports = l->ports,
	};
	if (policy_patterns(conf_str(c, "EGRESS_ALLOW_INWARD_FOR"), &o->site.inward, &o->site.n_inward, e) !=
	    0)
		return -1;
	if (self_list(conf_str(c, "EGRESS_SELF"), l, &o->site.n_self, e) != 0)
		return -1;
	own_services(c, l, &o->site);
	return ports(conf_str(c, "EGRESS_TLS_PORTS"), l, &o->n_tls_ports, e);
}

static int run(const struct conf *c, struct err *e)
{
	struct lists l = { 0 };
	struct egress_opts o = { 0 };
	struct seal_key *seal = seal_load(conf_str(c, "SECRET_KEY_FILE"), e);
	struct proxy *p = NULL;
	if (seal != NULL && options(c, &l, &o, e) == 0) {
		o.seal = seal;
		p = proxy_start(&o, e);
	}
	if (p != NULL) {
		log_info("ready");
		proxy_run(p);
		log_info("ending");
		proxy_free(p);
	}
	policy_patterns_free(o.site.inward, o.site.n_inward);
	seal_free(seal);
	return p == NULL ? -1 : 0;
}

int main(void)
{
	struct err e = { 0 };
	sigset_t signals;
	(void)sigemptyset(&signals);
	(void)sigaddset(&signals, SIGTERM);
	(void)sigaddset(&signals, SIGINT);
	(void)sigprocmask(SIG_BLOCK, &signals, NULL); /* before there are threads */
	http_setup();                                 /* no SIGPIPE from here on */
	(void)signal(SIGHUP, SIG_IGN);
	struct conf *conf = conf_load(NULL, &e);
	int rc = -1;
	if (conf != NULL) {
		conf_log(conf, "gatehouse-egress");
		rc = run(conf, &e);
		conf_free(conf);
	}
	if (rc != 0)
		(void)fprintf(stderr, "gatehouse-egress: %s\n", e.msg);
	return rc == 0 ? 0 : err_exit(e.code);
}
