/*
 * Usage to an external billing service (BIL-4): batches, order, a target that is down, fails, or takes and does not answer, and two
 * hosts of which one reports. The service here writes down what reaches it.
 */
#include "../t.h"

#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "../billing.h"
#include "../moneytest.h"
#include "base/clock.h"
#include "base/id.h"
#include "base/js.h"
#include "io/http.h"
#include "money/keeper.h"

/* ---- the billing service */

enum mode { OK, DOWN, FAILS, SILENT }; /* SILENT takes a batch, writes it down, and closes without a word */
enum { ROWS_MAX = 2000, BATCHES_MAX = 200 };

static struct {
	pthread_mutex_t lock;
	enum mode mode;
	char ids[ROWS_MAX][ID_MAX]; /* of rows that were acknowledged */
	int n, batches, sizes[BATCHES_MAX];
	int seen, silent; /* requests; and batches that were taken without a word */
	bool authorised;
	char silent_first[ID_MAX];
} service = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* The lock is held. */
static void take_batch(const struct buf *b, size_t head)
{
	struct err e = { 0 };
	auto_json json_t *v = js_parse(b->p + head, b->n - head, &e);
	const json_t *rows = js_get(v, "usage");
	size_t n = json_array_size(rows);
	if (service.mode == SILENT) {
		service.silent++;
		(void)snprintf(
		    service.silent_first, ID_MAX, "%s", js_str_or(json_array_get(rows, 0), "id", ""));
		return;
	}
	for (size_t i = 0; i < n && service.n < ROWS_MAX; i++)
		(void)snprintf(
		    service.ids[service.n++], ID_MAX, "%s", js_str_or(json_array_get(rows, i), "id", ""));
	if (service.batches < BATCHES_MAX)
		service.sizes[service.batches++] = (int)n;
}

static void answer(const struct buf *request, size_t head, struct buf *out)
{
	(void)pthread_mutex_lock(&service.lock);
	service.seen++;
	service.authorised = billing_authorised(request);
	if (service.mode == FAILS)
		billing_say(out, "500 No", "");
	else if (service.mode != DOWN)
		take_batch(request, head);
	if (service.mode == OK)
		(void)buf_str(out, "HTTP/1.1 204 Fine\r\n\r\n");
	(void)pthread_mutex_unlock(&service.lock);
}

static void service_is(enum mode mode)
{
	(void)pthread_mutex_lock(&service.lock);
	service.mode = mode;
	service.n = service.batches = service.seen = service.silent = 0;
	(void)pthread_mutex_unlock(&service.lock);
}

static int counted(const int *what)
{
	(void)pthread_mutex_lock(&service.lock);
	int n = *what;
	(void)pthread_mutex_unlock(&service.lock);
	return n;
}

static void until(const int *what, int n)
{
	for (int64_t end = clock_ms() + MONEYTEST_PATIENCE_MS; counted(what) < n; (void)poll(NULL, 0, 20))
		if (clock_ms() >= end)
			fail_msg("%d of %d came", counted(what), n);
}

/* ---- what is to be reported */

static const char *slug;
static int calls; /* made so far */

static const char *id_of(char out[ID_MAX], int i)
{
	(void)snprintf(out, ID_MAX, "call-%06d", i);
	return out;
}

static void use(int n)
{
	for (int i = 0; i < n; i++) {
		char id[ID_MAX];
		struct gate_ask ask = {
			.org = slug, .request_id = id_of(id, ++calls), .worst_millicents = 1
		};
		(void)settle(reserve(&ask), 1);
	}
}

/* Exactly these calls were acknowledged, in their order and each once. */
static void acknowledged(int first, int last)
{
	char id[ID_MAX];
	(void)pthread_mutex_lock(&service.lock);
	assert_int_equal(service.n, last - first + 1);
	for (int i = 0; i < service.n; i++)
		assert_string_equal(service.ids[i], id_of(id, first + i));
	(void)pthread_mutex_unlock(&service.lock);
}

static struct keeper *keeper(void)
{
	struct err e = { 0 };
	struct keeper *k = keeper_start(&(struct gate_opts){ .db = mt.pool, .conf = mt.conf }, &e);
	if (k == NULL)
		fail_msg("%s", e.msg);
	return k;
}

static void nothing_is_left(void)
{
	static const struct pg_stmt left = { "left", "SELECT count(*) FROM usage_reports", 0 };
	for (int64_t end = clock_ms() + MONEYTEST_PATIENCE_MS;; (void)poll(NULL, 0, 20)) {
		struct err e = { 0 };
		auto_pg struct pg *db = take();
		auto_res struct pg_res *r = PG0(db, &left, &e);
		assert_non_null(r);
		if (pg_int(r, 0, 0) == 0)
			return;
		assert_true(clock_ms() < end);
	}
}

/* ---- tests */

static void rows_come_in_order_in_batches_of_fifty(void **s)
{
	(void)s;
	service_is(OK);
	int first = calls + 1;
	use(120);
	struct keeper *k = keeper();
	until(&service.n, 120);
	nothing_is_left();
	keeper_stop(k);
	acknowledged(first, calls);
	assert_int_equal(service.batches, 3);
	assert_int_equal(service.sizes[0], 50);
	assert_int_equal(service.sizes[1], 50);
	assert_int_equal(service.sizes[2], 20);
	assert_true(service.authorised);
	the_books_are_right();
}

static void a_target_that_is_down_and_comes_back_gets_everything_once(void **s)
{
	(void)s;
	int first = calls + 1;
	service_is(DOWN);
	struct keeper *k = keeper();
	use(30);
	until(&service.seen, REPORT_TRIES + 1); /* one round of tries, and the next */
	use(30);
	service_is(FAILS);
	until(&service.seen, 2);
	use(10);
	service_is(OK);
	until(&service.n, 70);
	nothing_is_left();
	keeper_stop(k);
	acknowledged(first, calls);
}

/* It may have it, and we do not know: it comes again with its id. */
static void what_was_taken_without_a_word_comes_again(void **s)
{
	(void)s;
	int first = calls + 1;
	char id[ID_MAX];
	service_is(SILENT);
	use(3);
	struct keeper *k = keeper();
	until(&service.silent, 1);
	assert_string_equal(service.silent_first, id_of(id, first));
	service_is(OK);
	until(&service.n, 3);
	nothing_is_left();
	keeper_stop(k);
	acknowledged(first, calls);
}

/* Its number came first, and its commit comes later: nothing overtakes it. */
static void a_transaction_under_way_is_not_overtaken(void **s)
{
	(void)s;
	int first = calls + 1;
	char id[ID_MAX];
	struct err e = { 0 };
	static const struct pg_stmt slow = { "slow",
		"SELECT money_settle('other', $1, '', 'usd', false, NULL, NULL, 'p', 'm', '{1,0,0,0,0}', 1, "
		"false, false, true)",
		1 };
	service_is(OK);
	sql("INSERT INTO orgs (slug) VALUES ('other') ON CONFLICT DO NOTHING");
	auto_pg struct pg *db = take();
	assert_int_equal(pg_begin(db, &e), 0);
	auto_res struct pg_res *r = PG(db, &slow, &e, id_of(id, ++calls));
	assert_non_null(r);
	use(2);
	struct keeper *k = keeper();
	(void)poll(NULL, 0, 1800); /* longer than it takes otherwise */
	assert_int_equal(counted(&service.n), 0);
	assert_int_equal(pg_commit(db, &e), 0);
	until(&service.n, 3);
	nothing_is_left();
	keeper_stop(k);
	acknowledged(first, calls);
}

/* Their transactions' numbers are of another cluster, far ahead of this one's. */
static void what_came_with_a_backup_is_reported(void **s)
{
	(void)s;
	service_is(OK);
	use(2);
	sql("UPDATE usage_reports SET xid = '900000000000'");
	struct keeper *k = keeper();
	until(&service.n, 2);
	nothing_is_left();
	keeper_stop(k);
	acknowledged(calls - 1, calls);
}

static void of_two_hosts_one_reports_and_the_other_takes_over(void **s)
{
	(void)s;
	int first = calls + 1;
	service_is(OK);
	struct keeper *a = keeper(), *b = keeper();
	use(60);
	until(&service.n, 60);
	nothing_is_left();
	keeper_stop(a);
	use(20);
	until(&service.n, 80);
	nothing_is_left();
	keeper_stop(b);
	acknowledged(first, calls);
	/* One that died holds the place until it has stood still for long enough. */
	sql("UPDATE usage_reporter SET holder = 'kpr_dead'");
	int64_t begin = clock_ms();
	use(1);
	struct keeper *c = keeper();
	until(&service.n, 81);
	assert_true(clock_ms() - begin >= 5000);
	nothing_is_left();
	keeper_stop(c);
	acknowledged(first, calls);
}

static void a_key_that_others_can_read_is_refused(void **s)
{
	(void)s;
	struct err e = { 0 };
	const char *file = conf_str(mt.conf, "BILLING_REPORT_KEY_FILE");
	assert_int_equal(chmod(file, 0644), 0);
	assert_null(keeper_start(&(struct gate_opts){ .db = mt.pool, .conf = mt.conf }, &e));
	assert_non_null(strstr(e.msg, "BILLING_REPORT_KEY_FILE"));
	assert_null(strstr(e.msg, "the-key"));
	assert_int_equal(chmod(file, 0600), 0);
}

static struct billing *billing;

static int setup(void **s)
{
	http_setup();
	billing = billing_start(false, answer);
	assert_int_equal(setenv("BILLING_REPORT_URL", billing_url(billing, "/usage"), 1), 0);
	assert_int_equal(setenv("BILLING_REPORT_KEY_FILE", billing_key_file(billing), 1), 0);
	if (moneytest_setup(s) != 0)
		return -1;
	auto_mem struct mem *m = mem_new();
	slug = strdup(org(m, 100000));
	return slug == NULL ? -1 : 0;
}

static int teardown(void **s)
{
	free((void *)(uintptr_t)slug);
	billing_end(billing);
	return moneytest_teardown(s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(rows_come_in_order_in_batches_of_fifty),
		cmocka_unit_test(a_target_that_is_down_and_comes_back_gets_everything_once),
		cmocka_unit_test(what_was_taken_without_a_word_comes_again),
		cmocka_unit_test(a_transaction_under_way_is_not_overtaken),
		cmocka_unit_test(what_came_with_a_backup_is_reported),
		cmocka_unit_test(of_two_hosts_one_reports_and_the_other_takes_over),
		cmocka_unit_test(a_key_that_others_can_read_is_refused),
	};
	return cmocka_run_group_tests_name("report", tests, setup, teardown);
}
