/* proxy.c - the life of the proxy, the addresses that are its own, and its metrics. */
#include "egress/proxy.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/log.h"

enum {
	POOL = 4,            /* connections to PostgreSQL: one a thread, and one to spare */
	FDS_SET_ASIDE = 192, /* listeners come on top, see room() */
	REFRESH_MS = 10 * 1000,
	STOP_MS = 2000, /* for the last rows of the audit */
};

/* ---- our own addresses */

/*
 * Loopback is left out: it is refused by its class, unless the deployment lists a host for it, and then on the ports of our
 * own services still (site.own_ports).
 */
static void own_addresses(struct proxy *p)
{
	struct ifaddrs *all = NULL;
	size_t n = 0, given = p->o.site.n_self;
	if (getifaddrs(&all) != 0)
		return; /* the ones known stay */
	for (const struct ifaddrs *i = all; i != NULL; i = i->ifa_next)
		n++;
	struct egress_self *self = xcalloc(n + given + 1, sizeof *self);
	if (given > 0)
		memcpy(self, p->o.site.self, given * sizeof *self);
	n = given;
	for (const struct ifaddrs *i = all; i != NULL; i = i->ifa_next)
		if (i->ifa_addr != NULL && (i->ifa_flags & IFF_LOOPBACK) == 0 &&
		    addr_from_sockaddr(i->ifa_addr, &self[n].ip))
			n++;
	freeifaddrs(all);
	free(p->site.self);
	p->site.self = self;
	p->site.n_self = n;
}

static void on_refresh(struct timer *t)
{
	struct proxy *p = OWNER(t, struct proxy, refresh);
	own_addresses(p);
	resolver_refresh(p->resolver);
	loop_timer(p->loop, t, REFRESH_MS);
}

/* ---- what the store tells */

static void on_policy(void *arg, const struct store_policy *got)
{
	struct proxy *p = arg;
	struct guest *g = guest_find(p, got->sandbox);
	if (got->found == STORE_FOUND) {
		if (g != NULL)
			guest_policy(g, got);
		else if (got->first) {
			g = guest_new(p, got);
			/* A change between the reading and now was told while nobody listened for it. */
			store_reload(p->store, got->sandbox);
		}
		if (g != NULL && g->version > g->applied) {
			g->applied = g->version;
			store_applied(p->store, got->org, got->sandbox, g->version);
		}
		policy_unref(got->policy);
		brokered_unref(got->brokered);
	} else if (got->found == STORE_ABSENT && g != NULL && !got->first) {
		/* Its row has ended: sandboxd closes it in a moment, and until then nothing passes. */
		struct store_policy none = *got;
		none.version = g->version + 1;
		none.policy = policy_unavailable();
		memcpy(none.org, g->org, sizeof none.org);
		memcpy(none.session, g->session, sizeof none.session);
		guest_policy(g, &none);
		policy_unref(none.policy);
	}
	if (got->first)
		control_policy(p->control, got, g);
}

static void on_changed(void *arg, const char *sandbox)
{
	struct proxy *p = arg;
	if (guest_find(p, sandbox) != NULL)
		store_reload(p->store, sandbox);
}

static void on_credentials(void *arg, const char *org)
{
	struct proxy *p = arg;
	struct guest *g;
	for (int b = 0; b < GUEST_BUCKETS; b++)
		LIST_FOREACH(g, &p->guests[b], in_bucket)
	if (strcmp(g->org, org) == 0)
		store_reload(p->store, g->sandbox);
}

static void on_again(void *arg)
{
	struct proxy *p = arg;
	struct guest *g;
	for (int b = 0; b < GUEST_BUCKETS; b++)
		LIST_FOREACH(g, &p->guests[b], in_bucket)
	store_reload(p->store, g->sandbox);
}

/* ---- metrics */

void proxy_metrics(struct proxy *p, struct buf *out)
{
	struct resolve_stats dns;
	struct audit_stats audit;
	resolve_stats(p->resolver, &dns);
	audit_stats(p->audit, &audit);
	(void)buf_fmt(out,
	    "# TYPE gatehouse_egress_sandboxes gauge\ngatehouse_egress_sandboxes %d\n"
	    "# TYPE gatehouse_egress_connections gauge\ngatehouse_egress_connections %d\n"
	    "# TYPE gatehouse_egress_connections_room gauge\ngatehouse_egress_connections_room %d\n"
	    "# TYPE gatehouse_egress_accepted_total counter\ngatehouse_egress_accepted_total %lld\n",
	    p->n_guests, p->n_conns, p->room, p->count.accepted);
	(void)buf_fmt(out,
	    "# TYPE gatehouse_egress_dns_total counter\n"
	    "gatehouse_egress_dns_total{result=\"asked\"} %lld\ngatehouse_egress_dns_total{result=\"kept\"} "
	    "%lld\n"
	    "gatehouse_egress_dns_total{result=\"failed\"} %lld\n",
	    dns.asked, dns.kept, dns.failed);
	(void)buf_fmt(out,
	    "# TYPE gatehouse_egress_audit_queued gauge\ngatehouse_egress_audit_queued %d\n"
	    "# TYPE gatehouse_egress_audit_refused gauge\ngatehouse_egress_audit_refused %d\n"
	    "# TYPE gatehouse_egress_audit_rows_total counter\n"
	    "gatehouse_egress_audit_rows_total{result=\"written\"} %lld\n"
	    "gatehouse_egress_audit_rows_total{result=\"dropped\"} %lld\n",
	    audit.queued, audit.refused, audit.written, audit.dropped);
	(void)buf_str(out, "# TYPE gatehouse_egress_decisions_total counter\n");
	for (int r = 0; r < REASONS_; r++)
		if (p->count.decisions[r] > 0)
			(void)buf_fmt(out,
			    "gatehouse_egress_decisions_total{verdict=\"%s\",reason=\"%s\"} %lld\n",
			    reason_verdict_name(reason_verdict((enum egress_reason)r)),
			    reason_name((enum egress_reason)r), p->count.decisions[r]);
	(void)buf_str(out, "# TYPE gatehouse_egress_closed_total counter\n");
	for (int r = 0; r < REASONS_; r++)
		if (p->count.closed[r] > 0)
			(void)buf_fmt(out, "gatehouse_egress_closed_total{reason=\"%s\"} %lld\n",
			    reason_name((enum egress_reason)r), p->count.closed[r]);
	(void)buf_fmt(out,
	    "# TYPE gatehouse_egress_bytes_total counter\n"
	    "gatehouse_egress_bytes_total{direction=\"out\"} %llu\n"
	    "gatehouse_egress_bytes_total{direction=\"in\"} %llu\n",
	    (unsigned long long)p->count.out, (unsigned long long)p->count.in);
}

/* ---- life */

/* Two descriptors a connection; what else is open was set aside, so that accepting never meets the limit. */
static int room(void)
{
	struct rlimit r;
	if (getrlimit(RLIMIT_NOFILE, &r) != 0)
		return 256;
	rlim_t soft = r.rlim_cur;
	r.rlim_cur = r.rlim_max;
	if (setrlimit(RLIMIT_NOFILE, &r) == 0)
		soft = r.rlim_cur;
	if (soft == RLIM_INFINITY || soft > 1 << 20)
		soft = 1 << 20;
	return soft > FDS_SET_ASIDE + 2 ? (int)(soft - FDS_SET_ASIDE) / 2 : 1;
}

static int start(struct proxy *p, struct err *e)
{
	const struct egress_opts *o = &p->o;
	p->loop = loop_new(e);
	if (p->loop == NULL)
		return -1;
	p->tls = tls_client_new(o->ca_file);
	if (p->tls == NULL)
		return err_set(e, ERR_BAD_REQUEST, "The certificates of EGRESS_CA_FILE cannot be read.");
	p->resolver = resolver_new(p->loop, o->dns, (int)o->dns_ms, e);
	if (p->resolver == NULL)
		return -1;
	p->ask = ask_start(p->loop, o->resolver, o->resolver_ca_file, o->resolver_ms);
	p->db = pg_pool_new(o->conninfo, POOL, o->statement_ms);
	p->audit = audit_start(p->db, o->audit_days);
	p->store = store_start(&(struct store_opts){ .db = p->db,
	    .conninfo = o->conninfo,
	    .seal = o->seal,
	    .loop = p->loop,
	    .on_policy = on_policy,
	    .on_changed = on_changed,
	    .on_credentials = on_credentials,
	    .on_again = on_again,
	    .arg = p });
	p->control = control_new(p, e);
	if (p->control == NULL)
		return -1;
	p->refresh.on = on_refresh;
	on_refresh(&p->refresh);
	return 0;
}

struct proxy *proxy_start(const struct egress_opts *o, struct err *e)
{
	struct proxy *p = xcalloc(1, sizeof *p);
	p->o = *o;
	p->site = o->site;
	p->site.self = NULL;
	p->site.n_self = 0;
	p->room = room();
	p->copy = xcalloc(1, COPY_BYTES);
	if (start(p, e) == 0)
		return p;
	proxy_free(p);
	return NULL;
}

struct ending {
	struct watch watch;
	struct proxy *proxy;
};

static void on_signal(struct watch *w, uint32_t events)
{
	(void)events;
	loop_stop(OWNER(w, struct ending, watch)->proxy->loop);
}

void proxy_run(struct proxy *p)
{
	struct ending end = { .watch = { .on = on_signal }, .proxy = p };
	sigset_t set;
	(void)sigemptyset(&set);
	(void)sigaddset(&set, SIGTERM);
	(void)sigaddset(&set, SIGINT);
	end.watch.fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	if (end.watch.fd < 0 || loop_watch(p->loop, &end.watch, EPOLLIN) != 0) {
		log_error("signals cannot be watched");
		return;
	}
	loop_run(p->loop);
	loop_close(p->loop, &end.watch);
}

void proxy_free(struct proxy *p)
{
	if (p == NULL)
		return;
	control_free(p->control);
	for (int b = 0; b < GUEST_BUCKETS; b++)
		while (!LIST_EMPTY(&p->guests[b]))
			guest_free(LIST_FIRST(&p->guests[b]), REASON_PROXY_ENDED);
	if (p->store != NULL)
		store_stop(p->store);
	if (p->audit != NULL)
		audit_stop(p->audit, STOP_MS);
	if (p->loop != NULL)
		loop_untimer(p->loop, &p->refresh);
	ask_stop(p->ask);
	resolver_free(p->resolver);
	tls_client_free(p->tls);
	loop_free(p->loop);
	pg_pool_free(p->db);
	free(p->site.self);
	free(p->copy);
	free(p);
}
