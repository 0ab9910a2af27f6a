/* cli_doctor_inside.c - nodes, and their sandboxes from inside (SBX-64). */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/str.h"
#include "cli_doctor.h"
#include "io/file.h"
#include "sandbox/inspect.h"
#include "sandbox/lease.h"
#include "sandbox/node.h"
#include "sql/sandbox.h"

enum {
	TAKE_MS = 5000,
	LEASE_S = 120,
	RUN_S = 60,
	SCRIPT_MAX = 32768,
	DIAL_MS = 2000,
	NAME_MAX = 160,
	HIDDEN_MAX = 8
};

/* ---- the host's side of the comparison */

struct side {
	struct inspect_host host;
	char version[512], boot_id[64], listener[64];
	const char *hidden[HIDDEN_MAX + 1];
	int fd; /* the listener */
};

static void read_line(const char *path, char *out, size_t size)
{
	struct err ignored = { 0 };
	auto_buf struct buf text = BUF(4096);
	if (file_read(path, &text, &ignored) == 0)
		(void)snprintf(out, size, "%.*s", (int)strcspn(buf_c(&text), "\n"), buf_c(&text));
}

/* Can we reach it ourselves? The control, without which an unreachable host proves nothing. */
static bool reaches(const struct sockaddr_in *to)
{
	auto_fd int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	struct pollfd p = { .fd = fd, .events = POLLOUT };
	int why = 0;
	socklen_t n = sizeof why;
	if (fd < 0 || (connect(fd, (const struct sockaddr *)to, sizeof *to) != 0 && errno != EINPROGRESS))
		return false;
	return poll(&p, 1, DIAL_MS) == 1 && getsockopt(fd, SOL_SOCKET, SO_ERROR, &why, &n) == 0 && why == 0;
}

/* The first address of this host besides loopback at which our listener answers. */
static void find_address(struct side *s)
{
	struct ifaddrs *all = NULL;
	if (getifaddrs(&all) != 0)
		return;
	for (const struct ifaddrs *i = all; i != NULL && s->host.listener == NULL; i = i->ifa_next) {
		struct sockaddr_in at;
		char text[INET_ADDRSTRLEN];
		if (i->ifa_addr == NULL || i->ifa_addr->sa_family != AF_INET ||
		    (i->ifa_flags & IFF_LOOPBACK) != 0)
			continue;
		memcpy(&at, i->ifa_addr, sizeof at);
		at.sin_port = htons((uint16_t)s->host.port);
		if (!reaches(&at) || inet_ntop(AF_INET, &at.sin_addr, text, sizeof text) == NULL)
			continue;
		(void)snprintf(s->listener, sizeof s->listener, "%s/%d", text, s->host.port);
		s->host.listener = s->listener;
	}
	freeifaddrs(all);
}

static int side_open(struct side *s, struct doctor *d, struct err *e)
{
	static const char *const keys[] = { "SECRET_KEY_FILE", "FORGE_ROOT", "RUNNER_DIR", "SANDBOX_DIR" };
	struct sockaddr_in at = { .sin_family = AF_INET };
	socklen_t n = sizeof at;
	*s = (struct side){ .fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0) };
	if (s->fd < 0 || bind(s->fd, (const struct sockaddr *)&at, sizeof at) != 0 ||
	    listen(s->fd, 64) != 0 || getsockname(s->fd, (struct sockaddr *)&at, &n) != 0)
		return err_set(e, ERR_UNAVAILABLE, "No listener to try sandboxes with: %s.", strerror(errno));
	s->host.port = ntohs(at.sin_port);
	find_address(s);
	read_line("/proc/version", s->version, sizeof s->version);
	read_line("/proc/sys/kernel/random/boot_id", s->boot_id, sizeof s->boot_id);
	int k = 0;
	s->hidden[k++] = "/etc/shadow";
	for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
		s->hidden[k++] = conf_str(d->conf, keys[i]);
	s->host.version = s->version;
	s->host.boot_id = s->boot_id;
	s->host.hidden = s->hidden;
	return 0;
}

/* ---- one sandbox */

static void line_name(char out[NAME_MAX], const char *node, const char *runtime, const char *line)
{
	(void)snprintf(
	    out, NAME_MAX, "sandbox.%.60s.%.20s.%s", node, runtime[0] == 0 ? "default" : runtime, line);
}

static int run_script(const struct side *s, const struct box_addr *at, struct buf *said, struct err *e)
{
	auto_buf struct buf script = BUF(SCRIPT_MAX);
	struct inspect_host host = s->host;
	struct box_exit x = { 0 };
	host.workdir = at->workdir;
	inspect_script(&host, &script);
	auto_json json_t *argv = js_pack("[s,s,s]", "bash", "-c", buf_c(&script));
	const struct box_cmd cmd = { .argv = argv, .timeout_s = RUN_S };
	int rc = box_run(at, &cmd, &x, e);
	if (rc == 0)
		rc = buf_add(said, buf_c(&x.out), x.out.n);
	box_exit_free(&x);
	return rc;
}

static void judge(struct doctor *d, const struct side *s, const struct box_addr *at, const char *runtime,
    bool own, const char *said)
{
	static const char *const remedies[INSPECT_LINES] = {
		"this node does not give the boundary that it names: look at its runtime's installation",
		"nothing may be leased here until it is mended: look at the node's runtime, and at "
		"SANDBOX_DRIVER",
		"nothing may be leased here until it is mended: look at the node's runtime, and at "
		"SANDBOX_DRIVER",
		"nothing may be leased here until it is mended: look at the node's runtime, and at "
		"SANDBOX_DRIVER",
	};
	struct inspect_host host = s->host;
	host.workdir = at->workdir;
	for (int l = 0; l < INSPECT_LINES; l++) {
		char name[NAME_MAX];
		struct err e = { 0 };
		auto_buf struct buf seen = BUF(1024);
		line_name(name, at->node, runtime, inspect_names[l]);
		int rc = inspect_judge((enum inspect_line)l, &host, own, said, &seen, &e);
		doctor_say(
		    d, rc == 0 ? DOCTOR_OK : DOCTOR_FAIL, name, rc == 0 ? buf_c(&seen) : e.msg, remedies[l]);
	}
}

static int find(struct doctor *d, const char *id, struct box_addr *at, struct err *e)
{
	auto_pg struct pg *db = pg_take(d->db, TAKE_MS, e);
	return db == NULL ? -1 : box_find(db, "admin", id, at, e);
}

static void inspect(struct doctor *d, const struct side *s, const char *node, const char *runtime)
{
	char name[NAME_MAX];
	struct err e = { 0 }, later = { 0 };
	struct ctx c = { .mem = d->mem, .db = d->db, .conf = d->conf, .deadline_ms = clock_ms() + 300000 };
	bool created;
	line_name(name, node, runtime, "lease");
	int64_t begin = clock_ms();
	auto_json json_t *got = lease_take(&c,
	    &(struct lease_want){ .org = "admin",
		.user = "doctor",
		.node = node,
		.runtime = runtime[0] == 0 ? NULL : runtime,
		.ttl_s = LEASE_S },
	    &created, &e);
	/* A name that is not given by name, or a default that the preference replaces: nobody gets it. */
	if (got == NULL && e.code == ERR_BAD_REQUEST) {
		doctor_say(d, DOCTOR_SKIP, name, e.msg, NULL);
		return;
	}
	if (got == NULL) {
		doctor_say(d, DOCTOR_FAIL, name, e.msg, "see the log of gatehouse-sandboxd on that node");
		return;
	}
	const char *id = js_str_or(got, "id", ""), *is = js_str_or(got, "runtime", "");
	if (strcmp(is, runtime) != 0)
		doctor_say(d, DOCTOR_SKIP, name,
		    mem_fmt(d->mem, "who asks for none is given %s", is[0] == 0 ? "the host's default" : is),
		    NULL);
	else {
		struct box_addr at;
		auto_buf struct buf said = BUF(1 << 20);
		doctor_say(d, DOCTOR_OK, name,
		    mem_fmt(d->mem, "a sandbox was there after %lld ms", (long long)(clock_ms() - begin)),
		    NULL);
		if (find(d, id, &at, &e) != 0 || run_script(s, &at, &said, &e) != 0)
			doctor_say(
			    d, DOCTOR_FAIL, name, e.msg, "see the log of gatehouse-sandboxd on that node");
		else
			judge(d, s, &at, runtime, js_bool(js_get(got, "isolation"), "kernel", false),
			    buf_c(&said));
	}
	if (lease_end(&c, "admin", id, &later) != 0)
		doctor_say(d, DOCTOR_FAIL, name, later.msg,
		    "the sandbox that was tried could not be ended; its node ends it");
}

/* ---- the nodes */

/* Row i of node_offers; false when nothing can be leased there. */
static bool node_line(struct doctor *d, const struct pg_res *r, int i)
{
	const char *name = mem_fmt(d->mem, "node.%s", pg_str(r, i, 0));
	if (!pg_bool(r, i, 1))
		doctor_say(d, DOCTOR_FAIL, name, "it has not been heard of for a while",
		    "start its gatehouse-sandboxd, or remove its row when the host is gone for good");
	else if (pg_str(r, i, 2)[0] != 0)
		doctor_say(
		    d, DOCTOR_FAIL, name, pg_str(r, i, 2), "see the log of gatehouse-sandboxd on that node");
	else if (!pg_bool(r, i, 5))
		doctor_say(d, DOCTOR_FAIL, name,
		    "its sandboxes are not isolated at all (SANDBOX_DRIVER=process)",
		    "take SANDBOX_DRIVER and SANDBOX_ALLOW_UNISOLATED out; only a developer's machine may go "
		    "without");
	else
		doctor_say(d, DOCTOR_OK, name, "it offers sandboxes", NULL);
	return pg_bool(r, i, 1) && !pg_null(r, i, 4);
}

void doctor_sandboxes(struct doctor *d)
{
	struct err e = { 0 };
	struct side s;
	auto_pg struct pg *db = pg_take(d->db, TAKE_MS, &e);
	auto_res struct pg_res *r = db == NULL ? NULL
					       : PG(db, &q_node_offers, &e, pg_num(d->mem, NODE_SILENT_S));
	int rc = r == NULL ? -1 : side_open(&s, d, &e);
	auto_fd int listener = rc == 0 ? s.fd : -1;
	if (rc != 0 || pg_rows(r) == 0) {
		doctor_say(d, DOCTOR_FAIL, "sandboxes", rc != 0 ? e.msg : "no node is registered",
		    "start gatehouse-sandboxd on a host");
		return;
	}
	pg_put(steal(db));
	const char *last = "";
	for (int i = 0; i < pg_rows(r); i++) {
		const char *node = pg_str(r, i, 0);
		bool usable = strcmp(node, last) == 0 || node_line(d, r, i);
		last = node;
		int failed = d->failed;
		if (!usable || !pg_bool(r, i, 1) || pg_null(r, i, 4))
			continue;
		inspect(d, &s, node, pg_str(r, i, 4));
		/* Once for a node, by what is given to who asks for nothing; and where the sandbox itself is whole. */
		if (pg_str(r, i, 4)[0] == '\0' && failed == d->failed)
			doctor_volume(d, node, pg_str(r, i, 6));
	}
}
