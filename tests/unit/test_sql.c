/*
 * Every statement of sql/query (SEC-4): it is one that PostgreSQL takes with exactly its parameters, it is never put together
 * from text, and it carries the org, or stands below with the reason why it does not.
 */
#include "../t.h"

#include <ctype.h>
#include <dirent.h>
#include <regex.h>
#include <stdio.h>
#include <string.h>

#include "../pgtest.h"
#include "base/buf.h"
#include "base/str.h"
#include "io/file.h"
#include "io/pg.h"

static const struct {
	const char *name, *reason;
} without_org[] = {
	{ "auth_find", "a credential's look-up: which org it is comes out of it" },
	{ "auth_org_create", "makes the org" },
	{ "auth_org_exists", "asks for the org itself" },
	{ "job_claim_ready", "a runner works for every org; the job names its own" },
	{ "job_claim_lapsed", "as job_claim_ready" },
	{ "balance_clear", "the setting is the deployment's" },
	{ "migrate_lock", "the schema belongs to no org" },
	{ "migrate_table", "as migrate_lock" },
	{ "migrate_exists", "as migrate_lock" },
	{ "migrate_applied", "as migrate_lock" },
	{ "migrate_record", "as migrate_lock" },
	{ "node_register", "nodes are the deployment's" },
	{ "node_beat", "as node_register" },
	{ "node_away", "as node_register" },
	{ "node_offers", "as node_register" },
	{ "node_doors", "as node_register" },
	{ "node_pick", "as node_register; it counts all sandboxes of a node" },
	{ "sandbox_n_pending", "a node's own: it is told the id by the API, which looked it up by org" },
	{ "sandbox_n_running", "as sandbox_n_pending" },
	{ "sandbox_n_close", "as sandbox_n_pending" },
	{ "sandbox_n_live", "as sandbox_n_pending; all that live on it" },
	{ "volume_lock", "as once_lock" },
	{ "volume_unused", "the operator's: volumes of every org" },
	{ "volume_n_due", "as sandbox_n_pending; all that are on it" },
	{ "volume_n_stamp", "as volume_n_due" },
	{ "volume_n_all", "as volume_n_due" },
	{ "limit_take", "about the org itself, by its slug; what it inserts is keyed by it" },
	{ "limit_runs", "as limit_take" },
	{ "limit_set", "as limit_take" },
	{ "once_lock", "no row, but a lock; its name is made of the org and the key" },
	{ "egress_audit_prune", "age alone decides which audit rows go, of every org alike" },
	{ "egress_policy", "the proxy is told a sandbox by sandboxd; which org it is comes out of it" },
	{ "job_clock", "a clock, and no row" },
	{ "doctor_credit", "an operator looks at what every org has" },
	{ "doctor_calls", "as doctor_credit" },
	{ "doctor_books", "as doctor_credit" },
	{ "doctor_keys", "as doctor_credit" },
	{ "doctor_clock", "as job_clock" },
	{ "seal_run_page", "the sealing key is the deployment's: values of every org" },
	{ "seal_run_uses", "as seal_run_page" },
	{ "seal_broker_page", "as seal_run_page" },
	{ "seal_broker_uses", "as seal_run_page" },
	{ "span_prune", "age alone decides which spans go, of every org alike" },
	{ "span_prune_traces", "as span_prune" },
	{ "seal_model_page", "as seal_run_page" },
	{ "seal_model_uses", "as seal_run_page" },
	{ "seal_once_uses", "as seal_run_page" },
	{ "money_admit", "a function of the ledger, whose first argument is the org" },
	{ "money_close", "as money_admit" },
	{ "money_release", "as money_admit" },
	{ "money_credit", "as money_admit" },
	{ "money_read", "as money_admit" },
	{ "money_budget_put", "as money_admit" },
	{ "money_org", "asks for the org itself" },
	{ "money_beat", "a process of the API serves every org" },
	{ "money_gates", "as money_beat" },
	{ "money_reap", "as money_beat" },
	{ "ledger_check", "the books of every org have to be right" },
	{ "ledger_count", "as ledger_check" },
	{ "report_hold", "one reporter for the usage of every org" },
	{ "report_leave", "as report_hold" },
	{ "report_look", "as report_hold" },
	{ "report_next", "as report_hold; each row has its org" },
	{ "report_done", "as report_hold" },
};
enum { N_WITHOUT = sizeof without_org / sizeof without_org[0], STATEMENTS_MAX = 400 };

struct statement {
	char name[64], module[32];
	struct buf text;
};
static struct statement all[STATEMENTS_MAX];
static int n_all;

/* The same reading as sql/embed.awk. */
static void read_module(const char *file)
{
	char path[300];
	struct err e = { 0 };
	auto_buf struct buf text = BUF(1 << 20);
	(void)snprintf(path, sizeof path, "sql/query/%s", file);
	assert_int_equal(file_read(path, &text, &e), 0);
	struct str rest = { text.p, text.n }, line;
	struct statement *s = NULL;
	while (str_cut(&rest, '\n', &line)) {
		static const char mark[] = "-- name: ";
		if (line.n > strlen(mark) && memcmp(line.p, mark, strlen(mark)) == 0) {
			assert_true(n_all < STATEMENTS_MAX);
			s = &all[n_all++];
			s->text = BUF(1 << 16);
			(void)snprintf(s->name, sizeof s->name, "%.*s", (int)(line.n - strlen(mark)),
			    line.p + strlen(mark));
			(void)snprintf(s->module, sizeof s->module, "%.*s", (int)strcspn(file, "."), file);
		} else if (s != NULL && (line.n < 2 || memcmp(line.p, "--", 2) != 0)) {
			assert_int_equal(buf_fmt(&s->text, "%.*s\n", (int)line.n, line.p), 0);
		}
	}
}

static bool matches(const char *text, const char *pattern)
{
	regex_t re;
	assert_int_equal(regcomp(&re, pattern, REG_EXTENDED | REG_NOSUB | REG_ICASE), 0);
	bool is = regexec(&re, text, 0, NULL, 0) == 0;
	regfree(&re);
	return is;
}

/* A row is found by its org, or written with it. */
static bool carries_org(const char *sql)
{
	static const char *const ways[] = {
		"(^|[^a-z_])org = \\$[0-9]+",                  /* WHERE org = $1 */
		"INSERT INTO [a-z_]+ \\(([a-z_]+, *)*org[,)]", /* with the org as a column */
		"\\.org = mine\\.org",                         /* joined with pairs of org and id */
	};
	for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
		if (matches(sql, ways[i]))
			return true;
	return false;
}

static const char *reason_of(const char *name)
{
	for (size_t i = 0; i < N_WITHOUT; i++)
		if (strcmp(without_org[i].name, name) == 0)
			return without_org[i].reason;
	return NULL;
}

static void every_statement_carries_the_org_or_has_a_reason(void **state)
{
	(void)state;
	int wrong = 0;
	assert_true(n_all > 50);
	for (int i = 0; i < n_all; i++) {
		const char *reason = reason_of(all[i].name);
		if (carries_org(buf_c(&all[i].text)) != (reason != NULL))
			continue;
		wrong++;
		print_error("%s.sql, %s: %s\n", all[i].module, all[i].name,
		    reason != NULL
			? "carries the org, and still has an excuse"
			: "does not carry the org; if there is a reason, it belongs into this test's list");
	}
	assert_int_equal(wrong, 0);
	for (size_t r = 0; r < N_WITHOUT; r++) {
		bool is = false;
		for (int i = 0; i < n_all; i++)
			is = is || strcmp(all[i].name, without_org[r].name) == 0;
		if (!is)
			fail_msg("%s: there is no such statement any more", without_org[r].name);
	}
}

/* $1 to $n without a gap, no place for text to be put into, one statement. */
static void every_statement_has_parameters_and_nothing_else(void **state)
{
	(void)state;
	for (int i = 0; i < n_all; i++) {
		const char *sql = buf_c(&all[i].text);
		bool used[64] = { false };
		int most = 0;
		for (const char *p = sql; (p = strchr(p, '$')) != NULL; p++) {
			long n = strtol(p + 1, NULL, 10);
			if (n < 1 || n >= 64)
				fail_msg("%s: a $ that is no parameter", all[i].name);
			used[n] = true;
			most = n > most ? (int)n : most;
		}
		for (int n = 1; n <= most; n++)
			if (!used[n])
				fail_msg("%s: $%d is missing", all[i].name, n);
		if (strchr(sql, ';') != NULL || strchr(sql, '%') != NULL ||
		    matches(sql, "EXECUTE|format *\\("))
			fail_msg("%s: this is no plain statement", all[i].name);
	}
}

static void postgresql_takes_every_statement(void **state)
{
	struct pgtest *server = *state;
	for (int i = 0; i < n_all; i++) {
		/* This one makes what the others of its module need. */
		if (strcmp(all[i].name, "migrate_table") == 0)
			pgtest_sql(server, buf_c(&all[i].text));
	}
	for (int i = 0; i < n_all; i++) {
		auto_buf struct buf sql = BUF(1 << 17);
		if (strcmp(all[i].name, "migrate_table") ==
		    0) /* what cannot be prepared: a utility statement */
			continue;
		(void)buf_fmt(&sql, "PREPARE q_%s AS %s", all[i].name, buf_c(&all[i].text));
		pgtest_sql(server, buf_c(&sql));
	}
}

/* In the sources: a statement is a row of these files, and nothing else reaches PostgreSQL. */
static void look_at(const char *path)
{
	struct err e = { 0 };
	auto_buf struct buf text = BUF(1 << 20);
	assert_int_equal(file_read(path, &text, &e), 0);
	struct str rest = { text.p, text.n }, line;
	bool own = strncmp(path, "app/io/pg", 9) == 0 || strncmp(path, "app/io/migrate", 14) == 0;
	while (str_cut(&rest, '\n', &line)) {
		char l[512];
		(void)snprintf(l, sizeof l, "%.*s", (int)(line.n < 511 ? line.n : 511), line.p);
		if (own)
			continue;
		if (matches(l, "pg_script *\\(|struct pg_stmt [a-z_]+(\\[\\])? *=|PQ[a-z]+ *\\("))
			fail_msg("%s: %s", path, l);
		if (matches(l, "(^|[^a-z_0-9])PG0?\\([a-z_>.-]+, *\"") ||
		    matches(l, "\"(SELECT|INSERT INTO|UPDATE|DELETE FROM) "))
			fail_msg("%s: %s", path, l);
	}
}

static void look_under(const char *dir)
{
	DIR *d = opendir(dir);
	assert_non_null(d);
	for (struct dirent *de; (de = readdir(d)) != NULL;) {
		char path[600];
		(void)snprintf(path, sizeof path, "%s/%s", dir, de->d_name);
		if (de->d_name[0] == '.')
			continue;
		if (de->d_type == DT_DIR)
			look_under(path);
		else if (str_ends(path, ".c"))
			look_at(path);
	}
	(void)closedir(d);
}

static void nothing_else_reaches_postgresql(void **state)
{
	(void)state;
	look_under("app");
	look_under("handlers");
}

/* The judge itself. */
static void the_judge_sees_what_it_should(void **state)
{
	(void)state;
	assert_true(carries_org("SELECT 1 FROM t WHERE org = $2 AND id = $1"));
	assert_true(carries_org("INSERT INTO t (id, org, x) VALUES ($1, $2, $3)"));
	assert_true(carries_org("INSERT INTO t (org) VALUES ($1)"));
	assert_false(carries_org("SELECT org FROM t WHERE id = $1"));
	assert_false(carries_org("SELECT 1 FROM t WHERE suborg = $1"));
	assert_false(carries_org("INSERT INTO t (id, organ) VALUES ($1, $2)"));
	assert_false(carries_org("SELECT 1 FROM t WHERE org = 'acme'"));
	assert_false(carries_org("SELECT 1 FROM t JOIN u ON t.org = u.org"));
}

static int setup(void **state)
{
	DIR *d = opendir("sql/query");
	assert_non_null(d);
	for (struct dirent *de; (de = readdir(d)) != NULL;)
		if (str_ends(de->d_name, ".sql"))
			read_module(de->d_name);
	(void)closedir(d);
	*state = pgtest_start();
	return 0;
}

static int teardown(void **state)
{
	for (int i = 0; i < n_all; i++)
		buf_free(&all[i].text);
	pgtest_end(*state);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_judge_sees_what_it_should),
		cmocka_unit_test(every_statement_carries_the_org_or_has_a_reason),
		cmocka_unit_test(every_statement_has_parameters_and_nothing_else),
		cmocka_unit_test(postgresql_takes_every_statement),
		cmocka_unit_test(nothing_else_reaches_postgresql),
	};
	return cmocka_run_group_tests_name("sql", tests, setup, teardown);
}
