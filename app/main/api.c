/* api.c - gatehouse-api: every public op, the git wire and the pages, behind nginx's public and internal servers. */
#include <malloc.h>
#include <stdio.h>

#include "auth/limit.h"
#include "auth/oidc.h"
#include "auth/once.h"
#include "auth/principal.h"
#include "auth/reseal.h"
#include "base/log.h"
#include "base/mem.h"
#include "code/soft.h"
#include "handlers/handlers.h"
#include "io/conf.h"
#include "io/fcgi.h"
#include "io/http.h"
#include "io/pg.h"
#include "model/catalog.h"
#include "model/observe.h"
#include "money/balance.h"
#include "money/gate.h"
#include "op/metrics.h"
#include "session/watch.h"

/* At the end, for calls whose settling was put off: below the unit's TimeoutStopSec together with the requests. What PostgreSQL is away
 * for longer is charged by what it knows of a call, which is nothing where the answer came at once. */
enum { SETTLE_MS = 30000, SPANS_MS = 3000 };
/* A block so large goes back to the system when it is freed. Of what is free at the end of an arena, of which there are eight a
 * processor, this much stays: the spans of a batch are freed at once, and a page that is given back for them faults again with the next calls. */
enum { LARGE_BYTES = 256 << 10, SPARE_BYTES = 1 << 20 };

static void on_request(void *app, const struct op *op, int status, int64_t duration_us)
{
	metrics_count(((struct api *)app)->metrics, op, status, duration_us);
}

static void on_drain(void *app)
{
	watch_drain(((struct api *)app)->hub);
}

static void on_hup(void *app)
{
	struct api *api = app;
	struct conf *conf = api->conf;
	struct err e = { 0 }, bad = { 0 };
	if (reseal_reload(api->db, api->seal, &bad) != 0)
		log_error("the key file is not read again, the old keys stay", "why", bad.msg);
	if (conf_reload(conf, &e) != 0) {
		log_error("configuration not reloaded, the old values stay", "why", e.msg);
		return;
	}
	conf_log(conf, "gatehouse-api");
	log_info("configuration reloaded");
}

static int authorise(struct ctx *c, const struct op *op, struct err *e)
{
	return limit_request(c, op, e) != 0 ? -1 : principal_authorise(c, op, e);
}

static json_t *call(struct ctx *c, const struct op *op, json_t *in, struct err *e)
{
	return once_call(c, ((struct api *)c->app)->seal, op, in, e);
}

static int serve(struct api *api, struct pg_pool *db, struct err *e)
{
	const struct conf *conf = api->conf;
	const char *group = conf_str(conf, "SOCKET_GROUP");
	struct fcgi *core = fcgi_start(
	    &(struct fcgi_opts){
		.socket_path = getenv("LISTEN_FDS") != NULL ? NULL : conf_str(conf, "API_SOCKET"),
		.socket_group = group[0] != 0 ? group : NULL,
		.workers = (int)conf_int(conf, "API_WORKERS"),
		.queue = (int)conf_int(conf, "API_QUEUE"),
		.max_streams = (int)conf_int(conf, "API_MAX_STREAMS"),
		.tables = handlers_all,
		.conf = conf,
		.db = db,
		.app = api,
		.identify = principal_identify,
		.authorise = authorise,
		.call = call,
		.org_of = principal_org,
		.on_request = on_request,
		.on_drain = on_drain,
	    },
	    e);
	if (core == NULL)
		return -1;
	atomic_store(&api->core, core);
	log_info("ready");
	fcgi_wait(core, on_hup);
	fcgi_stop(core);
	return 0;
}

static int run(struct conf *conf, struct err *e)
{
	struct seal_key *seal = seal_load(conf_str(conf, "SECRET_KEY_FILE"), e);
	if (seal == NULL)
		return -1;
	auto_json json_t *document = op_openapi(handlers_all);
	auto_free char *openapi = json_dumps(document, JSON_COMPACT);
	if (openapi == NULL)
		abort();
	const char *database = conf_str(conf, "DATABASE_URL");
	struct pg_pool *db = pg_pool_new(
	    database, (int)conf_int(conf, "DATABASE_POOL"), (int)conf_int(conf, "DATABASE_TIMEOUT_MS"));
	struct api api = {
		.conf = conf,
		.db = db,
		.hub = watch_start(database, db),
		.seal = seal,
		.catalog = catalog_start(database, db, seal, conf),
		.metrics = metrics_new(handlers_all),
		.gate = gate_new(
		    &(struct gate_opts){ .db = db, .conf = conf, .on_soft = soft_tell, .arg = db }),
		.openapi = openapi,
	};
	int rc = oidc_start(conf, e);
	if (rc == 0)
		rc = balance_setup(conf, e);
	if (rc == 0)
		rc = (api.observe = observe_start(conf, db, e)) == NULL ? -1 : serve(&api, db, e);
	oidc_stop();
	watch_stop(api.hub);
	catalog_stop(api.catalog);
	gate_free(api.gate, SETTLE_MS);
	observe_stop(api.observe, SPANS_MS);
	pg_pool_free(db);
	metrics_free(api.metrics);
	seal_free(seal);
	return rc;
}

int main(void)
{
	struct err e = { 0 };
	fcgi_block_signals();
	http_setup();
	/* The C library learns from each large block that is freed to keep larger ones, in every thread's arena: after a few answers of
	   10 MB a process held 800. A set threshold is not learned away. */
	(void)mallopt(M_MMAP_THRESHOLD, LARGE_BYTES);
	(void)mallopt(M_TRIM_THRESHOLD, SPARE_BYTES);
	struct conf *conf = conf_load(NULL, &e);
	int rc = -1;
	if (conf != NULL) {
		conf_log(conf, "gatehouse-api");
		rc = run(conf, &e);
		conf_free(conf);
	}
	if (rc != 0)
		(void)fprintf(stderr, "gatehouse-api: %s\n", e.msg);
	return rc == 0 ? 0 : err_exit(e.code);
}
