#include "../t.h"

#include <pthread.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../../handlers/handlers.h"
#include "../pgtest.h"
#include "auth/principal.h"
#include "auth/seal.h"
#include "base/js.h"
#include "code/task.h"
#include "io/conf.h"
#include "io/file.h"
#include "session/event.h"

extern const struct op run_tokens_ops[], coding_ops[];

#define SECRET "hidden-t0ken-value"

static struct pgtest *server;
static struct pg_pool *pool;
static struct conf *conf;
static struct api api;
static struct mem *mem; /* of one test */
static char dir[64];

static const struct principal ann = { .kind = CRED_KEY, .org = "acme", .user = "ann", .scopes = "*" };
static const struct principal bob = { .kind = CRED_KEY, .org = "other", .user = "bob", .scopes = "*" };

/* ---- a request that prefers 202, its reply checked against the op's schema */

static const char *on_param(struct reply *r, const char *name)
{
	(void)r;
	return strcmp(name, "HTTP_PREFER") == 0 ? "wait=10, respond-async" : NULL;
}
static const struct reply_vt vt = { .param = on_param };
static struct reply reply;

static const json_t *call(const struct principal *who, const char *id, const char *input, struct err *e)
{
	const struct op *op = op_by_id((const struct op *const[]){ coding_ops, run_tokens_ops, NULL }, id);
	assert_non_null(op);
	reply = (struct reply){ .vt = &vt };
	struct ctx c = { .mem = mem,
		.db = pool,
		.conf = conf,
		.who = who,
		.app = &api,
		.reply = &reply,
		.request_id = "req_1" };
	err_clear(e);
	json_t *in = mem_json(mem, js_parse(input, strlen(input), e));
	if (principal_authorise(&c, op, e) != 0 || op_check(op->in, in, op->flags, e) != 0)
		return NULL;
	json_t *out = op->run(&c, in, e);
	if (out != NULL)
		assert_int_equal(op_check_out(op->out, out, e), 0);
	return out == NULL ? NULL : mem_json(mem, out);
}

static const json_t *must(const struct principal *who, const char *id, const char *input)
{
	struct err e = { 0 };
	const json_t *v = call(who, id, input, &e);
	if (v == NULL)
		fail_msg("%s %s: %s", id, input, e.msg);
	return v;
}

static const struct pg_stmt rows = { "rows",
	"SELECT (SELECT count(*) FROM runs) + (SELECT count(*) FROM sessions) + (SELECT count(*) FROM jobs) "
	"+ (SELECT count(*) FROM "
	"events)",
	0 };
static const struct pg_stmt queued = { "queued",
	"SELECT count(*) FROM jobs WHERE kind = 'coding' AND state = 'queued'", 0 };
static const struct pg_stmt runs = { "runs", "SELECT count(*) FROM runs", 0 };

static long long count(const struct pg_stmt *q)
{
	struct err e = { 0 };
	auto_pg struct pg *db = pg_take(pool, 60000, &e);
	auto_res struct pg_res *r = PG0(db, q, &e);
	assert_non_null(r);
	return pg_int(r, 0, 0);
}

/* Refused with this code, naming this field; nothing is written, nothing secret is said. */
static void refused(const char *input, enum err_code code, const char *param)
{
	struct err e = { 0 };
	assert_null(call(&ann, "start_coding_run", input, &e));
	if (e.code != code || strcmp(e.param, param) != 0)
		fail_msg("%s: %d %s: %s", input, e.code, e.param, e.msg);
	assert_int_equal(count(&rows), 0);
	assert_null(strstr(e.msg, SECRET));
}

/* COD-1, STR-5 */
static void a_task_is_one_run_one_session_and_one_job(void **s)
{
	(void)s;
	const json_t *v = must(&ann, "start_coding_run",
	    "{\"tool\":\"python\",\"prompt\":\"print(1)\\nmore\",\"repo\":\"demo\"}");
	const char *session = js_str(v, "session");
	assert_int_equal(reply.status, 202);
	assert_non_null(strstr(reply.headers, mem_fmt(mem, "Location: /v1/agents/sessions/%s\r\n", session)));
	const json_t *run = must(&ann, "get_run", mem_fmt(mem, "{\"run\":\"%s\"}", js_str(v, "run")));
	assert_string_equal(js_str(run, "state"), "queued");
	assert_string_equal(js_str(run, "base"), "trunk"); /* the repository's default branch */
	assert_string_equal(js_str(run, "branch"), mem_fmt(mem, "agent/%s", id_tail(session)));
	assert_int_equal(js_int(run, "costMillicents", -1), 0);
	assert_int_equal(count(&queued), 1);
	struct err e = { 0 };
	auto_pg struct pg *db = pg_take(pool, 60000, &e);
	const json_t *lines = mem_json(mem, session_read(db, "acme", session, 0, 10, &e));
	assert_int_equal(json_array_size(lines), 1);
	assert_string_equal(js_str(json_array_get(lines, 0), "type"), "status");
	assert_string_equal(js_str(json_array_get(lines, 0), "phase"), "start");
	assert_string_equal(js_str(json_array_get(lines, 0), "run"), js_str(v, "run"));
	assert_string_equal(js_str(json_array_get(lines, 0), "session"), session);
	assert_string_equal(js_str(json_array_get(lines, 0), "message"), "print(1)");
}

static void the_example_of_the_documentation_works(void **s)
{
	(void)s;
	auto_json json_t *in = op_example(&coding_ops[0]);
	js_set_str(in, "base", "trunk");
	(void)must(&ann, "start_coding_run", js_dump(mem, in));
}

static void what_cannot_be_had_is_refused_and_nothing_is_written(void **s)
{
	(void)s;
	refused("{\"tool\":\"python\"}", ERR_BAD_REQUEST, "prompt");
	refused("{\"tool\":\"python\",\"prompt\":\"\"}", ERR_BAD_REQUEST, "prompt");
	refused("{\"tool\":\"bash\",\"prompt\":\"p\"}", ERR_BAD_REQUEST, "tool");
	refused("{\"tool\":\"python\",\"prompt\":\"p\",\"org\":\"other\"}", ERR_BAD_REQUEST, "org");
	refused("{\"tool\":\"python\",\"prompt\":\"p\",\"credential\":\"" SECRET "\"}", ERR_BAD_REQUEST,
	    "credential");
	refused("{\"tool\":\"python\",\"prompt\":\"p\",\"credential\":{\"token\":\"" SECRET "\"}}",
	    ERR_BAD_REQUEST, "credential");
	refused("{\"tool\":\"python\",\"prompt\":\"p\",\"branch\":\"main\"}", ERR_BAD_REQUEST, "branch");
	refused("{\"tool\":\"python\",\"prompt\":\"p\",\"target\":\"mac\"}", ERR_BAD_REQUEST, "target");
	refused("{\"tool\":\"python\",\"prompt\":\"p\",\"repo\":\"none\"}", ERR_NOT_FOUND, "");
	refused("{\"tool\":\"python\",\"prompt\":\"p\",\"repo\":\"theirs\"}", ERR_NOT_FOUND, ""); /* ID-4 */
	refused("{\"tool\":\"python\",\"prompt\":\"p\",\"repo\":\"demo\",\"project\":\"web\"}", ERR_NOT_FOUND,
	    "project");
	refused("{\"tool\":\"python\",\"prompt\":\"p\",\"session\":\"ses_0123456789abcdefghjkmnpqrs\"}",
	    ERR_NOT_FOUND, "");
}

/* COD-3 and what this deployment lacks: said before anything is written. */
static void an_agent_without_a_model_back_end_is_unavailable(void **s)
{
	(void)s;
	struct err e = { 0 };
	static const char *const bodies[] = { "{\"prompt\":\"p\"}", "{\"prompt\":\"p\",\"tool\":\"claude\"}",
		"{\"prompt\":\"p\",\"tool\":\"codex\",\"repo\":\"demo\"}" };
	for (size_t i = 0; i < sizeof bodies / sizeof bodies[0]; i++) {
		refused(bodies[i], ERR_UNAVAILABLE, "tool");
		assert_null(call(&ann, "start_coding_run", bodies[i], &e));
		assert_string_equal(e.reason, "no_model_backend");
	}
	refused("{\"prompt\":\"\",\"tool\":\"claude\"}", ERR_BAD_REQUEST,
	    "prompt"); /* what is wrong comes first */
}

/* COD-14 */
static void without_a_node_nothing_is_written(void **s)
{
	(void)s;
	struct err e = { 0 };
	static const char task[] = "{\"tool\":\"python\",\"prompt\":\"p\"}";
	pgtest_sql(server, "UPDATE nodes SET refusal = 'no runtime works here', runtimes = '{}'");
	assert_null(call(&ann, "start_coding_run", task, &e));
	assert_int_equal(e.code, ERR_UNAVAILABLE);
	assert_non_null(strstr(e.msg, "no runtime works here"));
	pgtest_sql(server, "DELETE FROM nodes");
	assert_null(call(&ann, "start_coding_run", task, &e));
	assert_int_equal(e.code, ERR_UNAVAILABLE);
	assert_int_equal(count(&rows), 0);
}

/* SEC-6, COD-8 */
static void billing(const char *mode)
{
	struct err e = { 0 };
	assert_int_equal(setenv("BILLING_MODE", mode, 1), 0);
	if (conf_reload(conf, &e) != 0)
		fail_msg("%s", e.msg);
}

/* COD-5, BIL-1 */
static void without_a_balance_nothing_is_written(void **s)
{
	(void)s;
	static const char task[] = "{\"tool\":\"python\",\"prompt\":\"print(1)\"}";
	billing("closed");
	refused(task, ERR_PAYMENT, "");
	pgtest_sql(server, "SELECT money_credit('acme', '', 'usd', true, 1, 'test money', 'x')");
	refused(task, ERR_PAYMENT, "");
	pgtest_sql(server, "SELECT money_credit('acme', '', 'usd', false, 1, 'money', 'x')");
	(void)must(&ann, "start_coding_run", task);
	billing("open");
}

static void a_run_costs_what_its_model_calls_cost(void **s)
{
	(void)s;
	const json_t *v = must(&ann, "start_coding_run", "{\"tool\":\"python\",\"prompt\":\"print(1)\"}");
	const char *run = js_str(v, "run");
	for (int i = 0; i < 3; i++) /* the last one is another run's, and the first of the test books */
		pgtest_sql(server,
		    mem_fmt(mem,
			"SELECT money_settle('acme', 'call-%d', '', 'usd', %s, NULL, '%s', 'p', 'm', "
			"'{1,0,0,0,0}', "
			"%d, false, false, false)",
			i, i == 0 ? "true" : "false", i == 2 ? "run_other" : run, 70 + i));
	const json_t *row = must(&ann, "get_run", mem_fmt(mem, "{\"run\":\"%s\"}", run));
	assert_int_equal(js_int(row, "costMillicents", -1), 71);
	const json_t *list = must(&ann, "list_runs", "{}");
	assert_int_equal(js_int(json_array_get(js_get(list, "data"), 0), "costMillicents", -1), 71);
}

static void a_credential_is_stored_sealed(void **s)
{
	(void)s;
	const json_t *v = must(&ann, "start_coding_run",
	    "{\"tool\":\"python\",\"prompt\":\"p\",\"cloneUrl\":\"https://example.org/"
	    "r.git\",\"credential\":{\"token\":\"" SECRET "\"}}");
	struct err e = { 0 };
	static const struct pg_stmt q = { "sealed",
		"SELECT sealed_credential, credential_user, runs::text FROM runs", 0 };
	auto_pg struct pg *db = pg_take(pool, 60000, &e);
	auto_res struct pg_res *r = PG0(db, &q, &e);
	assert_null(strstr(pg_str(r, 0, 2), SECRET));
	assert_string_equal(pg_str(r, 0, 1), "x-access-token");
	auto_secret struct secret *open = seal_open(api.seal, js_str(v, "run"), pg_str(r, 0, 0), &e);
	assert_true(secret_equal(open, SECRET, strlen(SECRET)));
	assert_null(seal_open(api.seal, "run_another", pg_str(r, 0, 0), &e));
}

static const char *adopting(const char *id)
{
	auto_json json_t *v = js_pack("{s:s,s:s,s:s,s:s,s:s}", "tool", "python", "prompt", "p", "session", id,
	    "repo", "demo", "branch", mem_fmt(mem, "agent/%s", id_tail(id)));
	return js_dump(mem, v);
}

/* COD-1: `session` adopts one that is open, the org's, and free. */
static void an_open_session_can_be_adopted_once(void **s)
{
	(void)s;
	struct err e = { 0 };
	char mine[ID_MAX], closed[ID_MAX], theirs[ID_MAX];
	auto_pg struct pg *db = pg_take(pool, 60000, &e);
	assert_int_equal(session_open(db, "acme", "coding", "t", "ann", NULL, mine, &e), 0);
	assert_int_equal(session_open(db, "acme", "coding", "t", "ann", NULL, closed, &e), 0);
	assert_int_equal(session_open(db, "other", "coding", "t", "bob", NULL, theirs, &e), 0);
	auto_json json_t *end = js_pack("{s:b}", "ok", 1);
	assert_int_equal(session_close(db, "acme", closed, "done", end, NULL, &e), 0);
	assert_null(call(&ann, "start_coding_run", adopting(theirs), &e));
	assert_int_equal(e.code, ERR_NOT_FOUND);
	assert_null(call(&ann, "start_coding_run", adopting(closed), &e));
	assert_int_equal(e.code, ERR_CONFLICT);
	const json_t *v = must(&ann, "start_coding_run", adopting(mine));
	assert_string_equal(js_str(v, "session"), mine);
	assert_null(call(&ann, "start_coding_run", adopting(mine), &e));
	assert_int_equal(e.code, ERR_CONFLICT);
	assert_int_equal(count(&runs), 1);
}

/* COD-12, HTTP-6, ID-4 */
static void runs_are_listed_in_pages_to_their_org(void **s)
{
	(void)s;
	const char *ids[3], *newest = "";
	for (int i = 0; i < 3; i++) { /* of one millisecond, ids are in no order */
		ids[i] = js_str(
		    must(&ann, "start_coding_run", "{\"tool\":\"node\",\"prompt\":\"1\"}"), "run");
		newest = strcmp(ids[i], newest) > 0 ? ids[i] : newest;
	}
	const json_t *page = must(&ann, "list_runs", "{\"limit\":2}");
	assert_int_equal(json_array_size(js_get(page, "data")), 2);
	assert_string_equal(js_str(json_array_get(js_get(page, "data"), 0), "id"), newest);
	page = must(&ann, "list_runs", mem_fmt(mem, "{\"limit\":2,\"cursor\":\"%s\"}", js_str(page, "next")));
	assert_int_equal(json_array_size(js_get(page, "data")), 1);
	assert_true(json_is_null(json_object_get(page, "next")));
	assert_int_equal(json_array_size(js_get(must(&bob, "list_runs", "{}"), "data")), 0);
	struct err e = { 0 }, none = { 0 };
	assert_null(call(&bob, "get_run", mem_fmt(mem, "{\"run\":\"%s\"}", ids[0]), &e));
	assert_null(call(&bob, "get_run", "{\"run\":\"run_none\"}", &none));
	assert_string_equal(e.msg, none.msg);
	assert_null(call(&bob, "stop_bot_run", mem_fmt(mem, "{\"run\":\"%s\"}", ids[0]), &e));
	assert_int_equal(e.code, ERR_NOT_FOUND);
	const json_t *run = must(&ann, "stop_bot_run", mem_fmt(mem, "{\"run\":\"%s\"}", ids[0]));
	assert_string_equal(js_str(run, "stopRequestedBy"), "ann");
}

static long long number(const char *sql)
{
	static int n;
	struct err e = { 0 };
	auto_pg struct pg *db = pg_take(pool, 60000, &e);
	/* A statement is prepared by its name, and known by its address. */
	struct pg_stmt *q = mem_alloc(mem, sizeof *q);
	*q = (struct pg_stmt){ mem_fmt(mem, "t_%d", n++), sql, 0 };
	auto_res struct pg_res *r = PG0(db, q, &e);
	assert_non_null(r);
	return pg_int(r, 0, 0);
}

static const json_t *stop(const json_t *started)
{
	return must(&ann, "stop_bot_run", mem_fmt(mem, "{\"run\":\"%s\"}", js_str(started, "run")));
}

/* COD-11: nobody has begun, so nobody is waited for. */
static void a_run_that_is_still_queued_is_stopped_at_once(void **s)
{
	(void)s;
	const json_t *started = must(&ann, "start_coding_run",
	    "{\"tool\":\"python\",\"prompt\":\"x\",\"cloneUrl\":\"https://git.example/"
	    "r.git\",\"credential\":{\"token\":"
	    "\"" SECRET "\"}}");
	const json_t *run = stop(started);
	assert_string_equal(js_str(run, "state"), "stopped");
	assert_string_equal(js_str(run, "stopRequestedBy"), "ann");
	assert_non_null(js_get(run, "endedAt"));
	struct err e = { 0 };
	{
		auto_pg struct pg *db = pg_take(pool, 60000, &e);
		auto_json json_t *events = session_read(db, "acme", js_str(started, "session"), 0, 10, &e);
		assert_int_equal(json_array_size(events), 2);
		const json_t *last = json_array_get(events, 1);
		assert_string_equal(js_str(last, "type"), "error");
		assert_string_equal(js_str(last, "code"), "stopped");
		assert_string_equal(js_str(last, "message"), "The run was stopped by ann before it began.");
		struct job j;
		assert_int_equal(job_claim(db, mem, "w", TASK_JOB_KIND, 30, &j, &e), 0);
	}
	assert_int_equal(number("SELECT count(*) FROM runs WHERE sealed_credential IS NOT NULL"), 0);
	assert_int_equal(number("SELECT count(*) FROM jobs WHERE state = 'failed'"), 1);
	assert_true(json_equal(stop(started), run)); /* again: nothing changes */
}

static void *claim(void *arg)
{
	struct err e = { 0 };
	auto_mem struct mem *m = mem_new();
	auto_pg struct pg *db = pg_take(pool, 60000, &e);
	struct job j;
	*(int *)arg = job_claim(db, m, "w", TASK_JOB_KIND, 30, &j, &e);
	return NULL;
}

/* Whoever comes first has it: the runner, who is told to stop, or we, and then no runner ever gets it. */
static void a_stop_and_a_claim_at_the_same_time_agree(void **s)
{
	(void)s;
	for (int i = 0; i < 40; i++) {
		pthread_t t;
		int claimed = -1;
		const json_t *started = must(
		    &ann, "start_coding_run", "{\"tool\":\"python\",\"prompt\":\"x\"}");
		assert_int_equal(pthread_create(&t, NULL, claim, &claimed), 0);
		const json_t *run = stop(started);
		(void)pthread_join(t, NULL);
		bool ended = strcmp(js_str(run, "state"), "stopped") == 0;
		assert_int_equal(claimed, ended ? 0 : 1);
		assert_non_null(js_get(run, "stopRequestedAt"));
	}
	assert_int_equal(number("SELECT count(*) FROM runs r JOIN sessions s ON s.id = r.session "
				"WHERE (r.state = 'stopped') <> (s.state = 'stopped')"),
	    0);
}

static int setup(void **s)
{
	(void)s;
	struct err e = { 0 };
	static const char secret[] = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";
	assert_int_equal(file_tmpdir("/tmp", dir, sizeof dir, &e), 0);
	auto_mem struct mem *m = mem_new();
	const char *key = mem_fmt(m, "%s/key", dir), *file = mem_fmt(m, "%s/conf", dir);
	assert_int_equal(file_write(key, secret, sizeof secret - 1, 0600, &e), 0);
	assert_int_equal(file_write(file, "LOG_LEVEL=error\nBILLING_MODE=open\n", 34, 0600, &e), 0);
	server = pgtest_start();
	pgtest_sql(server,
	    "INSERT INTO orgs (slug) VALUES ('acme'), ('other'); INSERT INTO repos (org, name, "
	    "default_branch) VALUES "
	    "('acme', 'demo', 'trunk'), ('other', 'theirs', 'main')");
	pool = pg_pool_new(pgtest_conninfo(server), 4, 60000);
	conf = conf_load(file, &e);
	api.seal = seal_load(key, &e);
	return conf == NULL || api.seal == NULL ? -1 : 0;
}

static int teardown(void **s)
{
	(void)s;
	struct err e = { 0 };
	seal_free(api.seal);
	conf_free(conf);
	pg_pool_free(pool);
	pgtest_end(server);
	return file_rmtree(dir, &e);
}

static int begin(void **s)
{
	(void)s;
	mem = mem_new();
	pgtest_sql(server,
	    "DELETE FROM events; DELETE FROM runs; DELETE FROM jobs; DELETE FROM sessions; DELETE FROM "
	    "nodes; INSERT INTO "
	    "nodes (name, instance, address, runtimes, capacity) VALUES ('n1', 'gatehouse', 'unix:/x', "
	    "'{\"\"}', 9)");
	return 0;
}

static int end(void **s)
{
	(void)s;
	mem_free(mem);
	return 0;
}

static bool lets_in(const char *token, const char *id, const struct op *table)
{
	struct err e = { 0 };
	const struct principal *who = NULL;
	auto_pg struct pg *db = pg_take(pool, 60000, &e);
	assert_int_equal(principal_of(mem, db, token, &who, &e), 0);
	if (who == NULL)
		return false;
	struct ctx c = { .mem = mem, .who = who };
	assert_string_equal(who->org, "acme");
	assert_string_equal(who->user, "ann");
	assert_non_null(who->session);
	assert_true(strncmp(who->run, "run_", 4) == 0);
	return principal_authorise(&c, op_by_id((const struct op *const[]){ table, NULL }, id), &e) == 0;
}

static void a_runs_token_is_for_its_model_calls_and_ends_with_it(void **s) /* MOD-9 */
{
	(void)s;
	static const struct op models[] = { { .id = "chat", .scope = "models" },
		{ .id = "provide", .scope = "models", .flags = OP_ADMIN }, { 0 } };
	static const struct principal cal = { .kind = CRED_KEY, .org = "acme", .user = "cal", .scopes = "*" };
	struct err e = { 0 };
	const json_t *run = must(&ann, "start_coding_run", "{\"tool\":\"python\",\"prompt\":\"1\"}");
	const char *of_it = mem_fmt(mem, "{\"run\":\"%s\"}", js_str(run, "run"));
	assert_null(call(&bob, "create_run_token", of_it, &e));
	assert_int_equal(e.code, ERR_NOT_FOUND);
	assert_null(call(&cal, "create_run_token", of_it, &e));
	assert_int_equal(e.code, ERR_FORBIDDEN);
	const char *token = js_str(must(&ann, "create_run_token", of_it), "token");
	assert_int_equal(strncmp(token, "gr_", 3), 0);
	assert_true(lets_in(token, "chat", models));
	assert_false(lets_in(token, "provide", models));
	assert_false(lets_in(token, "list_runs", coding_ops));
	assert_false(lets_in(token, "create_run_token", run_tokens_ops));
	(void)stop(run); /* nobody has begun, so it ends at once */
	assert_false(lets_in(token, "chat", models));
	assert_null(call(&ann, "create_run_token", of_it, &e));
	assert_int_equal(e.code, ERR_CONFLICT);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, begin, end)
	const struct CMUnitTest tests[] = {
		T(a_task_is_one_run_one_session_and_one_job),
		T(the_example_of_the_documentation_works),
		T(what_cannot_be_had_is_refused_and_nothing_is_written),
		T(an_agent_without_a_model_back_end_is_unavailable),
		T(without_a_node_nothing_is_written),
		T(without_a_balance_nothing_is_written),
		T(a_run_costs_what_its_model_calls_cost),
		T(a_credential_is_stored_sealed),
		T(an_open_session_can_be_adopted_once),
		T(runs_are_listed_in_pages_to_their_org),
		T(a_run_that_is_still_queued_is_stopped_at_once),
		T(a_stop_and_a_claim_at_the_same_time_agree),
		T(a_runs_token_is_for_its_model_calls_and_ends_with_it),
	};
	return cmocka_run_group_tests_name("coding", tests, setup, teardown);
}
