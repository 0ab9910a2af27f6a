/*
 * sandboxd.c - gatehouse-sandboxd: builds, runs in and removes the sandboxes of this host, behind nginx's internal server.
 * The only process with privileges. Its sandboxes outlive it; `gatehouse-sandboxd leave` is how a host gives them up. It stays up when it can build nothing, and says why to whoever asks for a sandbox.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "handlers/node.h"
#include "io/conf.h"
#include "io/fcgi.h"
#include "io/file.h"
#include "io/pg.h"
#include "sandbox/boundary.h"
#include "sandbox/boxdir.h"
#include "sandbox/driver/oci.h"
#include "sandbox/driver/oci_ids.h"
#include "sandbox/driver/process.h"
#include "sandbox/lease_check.h"

enum { NAME_SIZE = 128, PATH_SIZE = 256, WORKERS = 8, STREAMS = 2000, SLOTS_LEAST = 64 };
/* What may take long has a thread of its own; this is what may arrive at once, as when a crowd leases or ends. */
enum { QUEUE = 1024 };

struct host {
	struct sandboxd app; /* first: what the handlers get */
	struct conf *conf;
	struct driver *driver;
	char name[NAME_SIZE], dir[PATH_SIZE], cgroup[PATH_SIZE], sockets[BOXDIR_BASE_MAX + 1];
	char refusal[ERR_MSG_MAX];
	struct volumes volumes;
	int slots, lock;
};

static int capacity(const struct host *h)
{
	long long n = conf_int(h->conf, "NODE_CAPACITY");
	return n < h->slots ? (int)n : h->slots;
}

static void on_hup(void *app)
{
	struct host *h = app;
	struct err e = { 0 };
	if (conf_reload(h->conf, &e) != 0) {
		log_error("configuration not reloaded, the old values stay", "why", e.msg);
		return;
	}
	conf_log(h->conf, "gatehouse-sandboxd");
	if (capacity(h) < conf_int(h->conf, "NODE_CAPACITY"))
		log_warn("NODE_CAPACITY beyond what was set aside at the start needs a restart");
	node_capacity(h->app.node, capacity(h));
	fleet_times(h->app.fleet, (int)conf_int(h->conf, "SANDBOX_START_TIMEOUT_S"),
	    (int)conf_int(h->conf, "SANDBOX_IDLE_S"));
	log_info("configuration reloaded");
}

/* One process per node: two would reap each other's work. */
static int names(struct host *h, struct err *e)
{
	char path[PATH_SIZE + 8];
	const char *name = conf_str(h->conf, "NODE_NAME");
	(void)snprintf(h->name, sizeof h->name, "%s", name);
	if (name[0] == '\0' && gethostname(h->name, sizeof h->name - 1) != 0)
		return err_set(e, ERR_UNAVAILABLE, "The host has no name: set NODE_NAME.");
	int n = snprintf(h->dir, sizeof h->dir, "%s/%s", conf_str(h->conf, "SANDBOX_DIR"), h->name);
	(void)snprintf(
	    h->cgroup, sizeof h->cgroup, "/gatehouse/%s.%s", conf_str(h->conf, "INSTANCE"), h->name);
	if (n >= (int)sizeof h->dir || file_mkdirs(h->dir, 0711, e) != 0)
		return err_set(e, ERR_UNAVAILABLE, "SANDBOX_DIR is too long.");
	(void)snprintf(path, sizeof path, "%s/lock", h->dir);
	h->lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (h->lock < 0 || flock(h->lock, LOCK_EX | LOCK_NB) != 0)
		return err_set(e, ERR_CONFLICT,
		    "Another sandboxd of node \"%s\" runs on this host (or SANDBOX_DIR is unusable: %s).",
		    h->name, strerror(errno));
	return 0;
}

static int starts(const struct conf *c)
{
	long long n = conf_int(c, "SANDBOX_STARTS");
	return n > 0 ? (int)n : (int)sysconf(_SC_NPROCESSORS_ONLN);
}

static struct driver *bare_driver(struct host *h, struct err *e)
{
	const struct conf *c = h->conf;
	if (!lease_unisolated(c)) {
		err_set(e, ERR_UNAVAILABLE,
		    "SANDBOX_DRIVER=process isolates nothing; it needs SANDBOX_ALLOW_UNISOLATED=1 beside "
		    "it.");
		return NULL;
	}
	log_warn(
	    "sandboxes of this node are NOT ISOLATED: whoever may lease one may run anything on this host",
	    "SANDBOX_DRIVER", "process", "tier", "0");
	return process_new(
	    &(struct process_opts){
		.dir = h->dir,
		.sockets = h->sockets,
		.box_binary = conf_str(c, "BOX_BINARY"),
		.uid_base = conf_int(c, "SANDBOX_UID_BASE"),
		.uid_count = conf_int(c, "SANDBOX_UID_COUNT"),
		.slots = h->slots,
	    },
	    e);
}

static void open_volumes(struct host *h)
{
	char dir[VOLUME_PATH_MAX];
	(void)snprintf(dir, sizeof dir, "%.300s/%s.%s", conf_str(h->conf, "VOLUME_DIR"),
	    conf_str(h->conf, "INSTANCE"), h->name);
	volumes_open(&h->volumes, dir, conf_int(h->conf, "VOLUME_SPARE_MB") << 20);
	if (h->volumes.why_not[0] != '\0')
		log_warn("no volumes on this node, so no projects", "why", h->volumes.why_not);
}

static struct driver *driver(struct host *h, struct err *e)
{
	const struct conf *c = h->conf;
	char tmp[BOXDIR_PATH_MAX];
	const char *names[BOXDIR_NAMES];
	int n = boxdir_names(conf_str(c, "SANDBOX_SOCKET_DIR"), tmp, names);
	if (boxdir_base(names, n, h->sockets, e) != 0)
		return NULL;
	if (strcmp(conf_str(c, "SANDBOX_DRIVER"), "process") == 0)
		return bare_driver(h, e);
	open_volumes(h);
	return oci_new(
	    &(struct oci_opts){
		.dir = h->dir,
		.sockets = h->sockets,
		.cgroup = h->cgroup,
		.box_binary = conf_str(c, "BOX_BINARY"),
		.prefer = conf_str(c, "SANDBOX_OCI_RUNTIME"),
		.only = conf_str(c, "SANDBOX_RUNTIMES"),
		.uid_base = conf_int(c, "SANDBOX_UID_BASE"),
		.uid_count = conf_int(c, "SANDBOX_UID_COUNT"),
		.slots = h->slots,
		.starts = starts(c),
		.volumes = &h->volumes,
	    },
	    e);
}

static const char *const nothing[] = { NULL };

/* COD-14: what this host can do is found out by doing it; why nothing can be leased is kept for every caller. */
static const char *const *prepare(struct host *h)
{
	struct err e = { 0 };
	long long n = conf_int(h->conf, "NODE_CAPACITY");
	const char *class = conf_str(h->conf, "SANDBOX_RUNTIME_CLASS");
	h->slots = n > SLOTS_LEAST ? (int)n : SLOTS_LEAST;
	h->driver = driver(h, &e);
	const char *const *offered = h->driver == NULL ? nothing : h->driver->offered(h->driver);
	if (class[0] != '\0' && boundary_find(class) == NULL)
		(void)snprintf(h->refusal, sizeof h->refusal,
		    "SANDBOX_RUNTIME_CLASS names no known runtime (\"%.40s\").", class);
	else if (offered[0] == NULL)
		(void)snprintf(h->refusal, sizeof h->refusal, "%s",
		    h->driver == NULL ? e.msg : h->driver->refusal(h->driver));
	if (h->refusal[0] != '\0')
		log_error("nothing is leased on this node", "why", h->refusal);
	else if (h->driver->refusal(h->driver)[0] != '\0')
		log_info("runtimes not offered", "why", h->driver->refusal(h->driver));
	return offered;
}

static int serve(struct host *h, struct pg_pool *db, struct err *e)
{
	const char *group = conf_str(h->conf, "SOCKET_GROUP");
	struct fcgi *core = fcgi_start(
	    &(struct fcgi_opts){
		.socket_path = getenv("LISTEN_FDS") != NULL ? NULL : conf_str(h->conf, "SANDBOXD_SOCKET"),
		.socket_group = group[0] != 0 ? group : NULL,
		.workers = WORKERS,
		.queue = QUEUE,
		.max_streams = STREAMS,
		.tables = handlers_node,
		.conf = h->conf,
		.db = db,
		.app = h,
	    },
	    e);
	if (core == NULL)
		return -1;
	log_info("ready", "node", h->name);
	struct fcgi_stats s;
	fcgi_wait(core, on_hup);
	fcgi_stats(core, &s);
	if (s.streams > 0) {
		/* A start that takes its time, or a file: their threads still use everything. What they leave half done the next
		 * process sorts out, as after any other end. */
		log_warn("ended with requests under way");
		_exit(0);
	}
	fcgi_stop(core);
	return 0;
}

static int work(struct host *h, struct pg_pool *db, const char *const *offered, struct err *e)
{
	const struct conf *c = h->conf;
	h->app.node = node_start(&(struct node_opts){
	    .db = db,
	    .fleet = h->app.fleet,
	    .name = h->name,
	    .instance = conf_str(c, "INSTANCE"),
	    .address = conf_str(c, "NODE_ADDRESS"),
	    .runtimes = h->refusal[0] != '\0' ? nothing : offered,
	    .capacity = capacity(h),
	    .isolated = !lease_unisolated(c),
	    .refusal = h->refusal,
	    .volumes = h->volumes.dir[0] == '\0' ? "its sandboxes mount nothing" : h->volumes.why_not,
	});
	int rc = serve(h, db, e);
	node_stop(h->app.node);
	return rc;
}

static int run(struct host *h, bool leave, struct err *e)
{
	const struct conf *c = h->conf;
	if (names(h, e) != 0)
		return -1;
	const char *const *offered = prepare(h);
	struct pg_pool *db = pg_pool_new(conf_str(c, "DATABASE_URL"), (int)conf_int(c, "DATABASE_POOL"),
	    (int)conf_int(c, "DATABASE_TIMEOUT_MS"));
	struct gate *gate = gate_start(conf_str(c, "EGRESS_SOCKET"));
	h->app.fleet = fleet_new(&(struct fleet_opts){
	    .db = db,
	    .driver = h->driver,
	    .gate = gate,
	    .transparent = conf_bool(c, "EGRESS_TRANSPARENT"),
	    .node = h->name,
	    .refusal = h->refusal,
	    .volumes = h->volumes.dir[0] == '\0' ? NULL : &h->volumes,
	    .mount_roots = conf_str(c, "SANDBOX_MOUNT_ROOTS"),
	    .start_s = (int)conf_int(c, "SANDBOX_START_TIMEOUT_S"),
	    .idle_s = (int)conf_int(c, "SANDBOX_IDLE_S"),
	});
	int rc = leave ? fleet_leave(h->app.fleet, e) : work(h, db, offered, e);
	fleet_free(h->app.fleet);
	gate_stop(gate);
	pg_pool_free(db);
	if (h->driver != NULL)
		h->driver->free(h->driver);
	return rc;
}

int main(int argc, char **argv)
{
	struct err e = { 0 };
	struct host h = { .lock = -1 };
	int map_rc;
	if (oci_ids_main(argc, argv, &map_rc))
		return map_rc;
	bool leave = argc == 2 && strcmp(argv[1], "leave") == 0;
	if (argc > 1 && !leave) {
		(void)fprintf(stderr,
		    "usage: gatehouse-sandboxd          serve this node's sandboxes\n"
		    "       gatehouse-sandboxd leave    end them all and remove what the node keeps on the "
		    "host\n");
		return err_exit(ERR_BAD_REQUEST);
	}
	/* Sandboxes' ids pass through directories made here, whatever mask we are started with; what is secret says so itself. */
	(void)umask(022);
	fcgi_block_signals();
	h.conf = conf_load(NULL, &e);
	int rc = -1;
	if (h.conf != NULL) {
		conf_log(h.conf, "gatehouse-sandboxd");
		rc = run(&h, leave, &e);
		conf_free(h.conf);
	}
	if (h.lock >= 0)
		(void)close(h.lock);
	if (rc != 0)
		(void)fprintf(stderr, "gatehouse-sandboxd: %s\n", e.msg);
	return rc == 0 ? 0 : err_exit(e.code);
}
