/*
 * The sixteen scenarios of the public failover suite (MOD-4, MOD-6, MOD-8), each as that suite states fault and conduct, in a
 * twentieth of its time (a first token, which a busy machine may be late to read, in a tenth; gw_ms), and fourteen faults more that gateways
 * are known to pass on. Each prints its row.
 */
#include "../span.h"
#include "../t.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/js.h"
#include "base/mem.h"
#include "gw.h"

static struct stack st;
static struct stack_org org;
static struct fakemodel *fake;

enum { SCALE = 20 };

/* Printed for people: what came of a scenario. */
static void row(const char *id, const char *verdict, const char *model, const struct gw_answer *a)
{
	print_message("  %-4s %-6s status %ld, %d of primary, answered by %-12s in %5.2f s%s%s\n", id,
	    verdict, a->status, fakemodel_attempts(fake, model), a->by[0] == 0 ? "nobody" : a->by,
	    (double)a->ms / 1000, a->error[0] == 0 ? "" : ": ", a->code[0] == 0 ? a->error : a->code);
}

/* A provider of the scenario's own, whose model falls back to spare/ok. */
static void primary(const char *id, const char *model, bool fallback)
{
	char rows[100];
	(void)snprintf(rows, sizeof rows, "%s@%s%s", model, id, fallback ? ">spare/ok" : "");
	gw_provider(&st, fake, org.key, id, "openai-chat", 1, rows);
}

static void ask(const char *id, const char *model, struct gw_answer *a)
{
	char address[120];
	(void)snprintf(address, sizeof address, "%s/%s@%s", id, model, id);
	gw_chat(&st, org.key, address, true, js_pack("{s:{s:b}}", "stream_options", "include_usage", 1), a);
}

static const char *named(const char *model, const char *id, char out[80])
{
	(void)snprintf(out, 80, "%s@%s", model, id);
	return out;
}

static void one(const char *id, const char *model, struct gw_answer *a, char name[80])
{
	primary(id, model, true);
	ask(id, model, a);
	(void)named(model, id, name);
}

static void s01_a_429_with_retry_after_is_tried_again_when_it_says(void **s)
{
	(void)s;
	auto_gw struct gw_answer a;
	char m[80];
	one("s01", "429-after", &a, m);
	row("S01", "pass", m, &a);
	assert_true(gw_whole(&a));
	assert_int_equal(fakemodel_attempts(fake, m), 2);
	assert_true(fakemodel_when_ms(fake, m, 1) - fakemodel_when_ms(fake, m, 0) >= 1800);
	assert_true(a.took_ms < 20000);
	assert_string_equal(a.by, "s01/429-after@s01");
	assert_int_equal(a.attempts, 2);
}

static void s02_a_lasting_429_is_not_hammered(void **s)
{
	(void)s;
	auto_gw struct gw_answer a;
	char m[80];
	one("s02", "429", &a, m);
	row("S02", "pass", m, &a);
	assert_true(gw_whole(&a));
	assert_string_equal(a.by, "spare/ok");
	int n = fakemodel_attempts(fake, m), early = 0;
	for (int i = 0; i < n; i++)
		early += fakemodel_when_ms(fake, m, i) - fakemodel_when_ms(fake, m, 0) <= 3000;
	assert_true(n >= 1 && n <= 6 && early <= 4);
}

static void s03_a_500_is_tried_again_at_the_same_provider(void **s)
{
	(void)s;
	auto_gw struct gw_answer a;
	char m[80];
	one("s03", "500-once", &a, m);
	row("S03", "pass", m, &a);
	assert_true(gw_whole(&a));
	assert_int_equal(fakemodel_attempts(fake, m), 2);
	assert_string_equal(a.by, "s03/500-once@s03");
}

static void s04_a_lasting_503_fails_over_within_its_budget(void **s)
{
	(void)s;
	auto_gw struct gw_answer a, alone;
	char m[80];
	one("s04", "503", &a, m);
	row("S04", "pass", m, &a);
	assert_true(gw_whole(&a));
	int n = fakemodel_attempts(fake, m);
	assert_true(n <= 6);
	assert_string_equal(a.by, "spare/ok");
	/* Whose rest is over is tried once, and the fallback is not kept waiting for its next one. */
	for (int i = 0; i < PATIENCE_MS / 100 && fakemodel_attempts(fake, m) == n; i++) {
		(void)poll(NULL, 0, 100);
		gw_free(&a);
		ask("s04", "503", &a);
		assert_string_equal(a.by, "spare/ok");
	}
	assert_int_equal(fakemodel_attempts(fake, m), n + 1);
	/* With nowhere to go the error comes out. */
	primary("s04b", "503", false);
	ask("s04b", "503", &alone);
	assert_int_equal(alone.status, 503);
	assert_string_equal(alone.code, "overloaded");
	assert_true(alone.retry_after_s >= 1);
	gw_free(&alone);
}

static void s05_a_reset_before_any_byte_is_tried_again(void **s)
{
	(void)s;
	auto_gw struct gw_answer a;
	char m[80];
	one("s05", "reset-once", &a, m);
	row("S05", "pass", m, &a);
	assert_true(gw_whole(&a));
	assert_true(fakemodel_attempts(fake, m) <= 2);
	assert_int_equal(
	    a.attempts, fakemodel_attempts(fake, m)); /* also what a kept connection brought about */
}

static void s06_a_silent_provider_is_left_and_not_asked_again(void **s)
{
	(void)s;
	auto_gw struct gw_answer a;
	char m[80];
	one("s06", "silent", &a, m);
	row("S06", "pass", m, &a);
	assert_true(gw_whole(&a));
	assert_int_equal(fakemodel_attempts(fake, m), 1);
	assert_true(a.took_ms < gw_ms(100000 / SCALE));
}

static void s07_a_first_token_that_is_late_fails_over(void **s)
{
	(void)s;
	auto_gw struct gw_answer a;
	char m[80];
	one("s07", "slow", &a, m);
	row("S07", "pass", m, &a);
	assert_true(gw_whole(&a));
	assert_true(a.took_ms < gw_ms(2 * 15000 / SCALE + 250));
	assert_string_equal(a.by, "spare/ok");
}

/* The beginning was passed on, so it ends in an error: never as a success, and nobody else goes on with it. */
static void cut(const char *id, const char *label, const char *model)
{
	auto_gw struct gw_answer a;
	char m[80];
	one(id, model, &a, m);
	row(label, "safe", m, &a);
	assert_int_equal(a.status, 200);
	assert_false(a.done);
	assert_string_not_equal(a.error, "");
	assert_int_equal(strncmp(a.text, "w0 w1 w2", 8), 0);
	assert_int_equal(fakemodel_attempts(fake, m), 1);
	assert_true(a.took_ms < gw_ms(45000 / SCALE + 1000));
}

static void healthy(const char *id)
{
	auto_gw struct gw_answer a;
	gw_chat(&st, org.key, "spare/ok", true, NULL, &a);
	if (!gw_whole(&a))
		fail_msg("after %s: %ld %s", id, a.status, a.raw);
}

static void s08_a_stream_that_is_cut_ends_in_an_error(void **s)
{
	(void)s;
	cut("s08", "S08", "cut");
	cut("s08r", "S08r", "cut-reset");
}

static void s09_a_stream_that_stalls_ends_in_an_error_in_time(void **s)
{
	(void)s;
	cut("s09", "S09", "stall");
	healthy("S09");
}

static void s10_an_event_that_is_no_json_is_left_out(void **s)
{
	(void)s;
	auto_gw struct gw_answer a;
	char m[80];
	one("s10", "malformed", &a, m);
	row("S10", "pass", m, &a);
	assert_true(gw_whole(&a));
	healthy("S10");
}

static void s11_a_missing_done_is_not_waited_for(void **s)
{
	(void)s;
	auto_gw struct gw_answer a;
	char m[80];
	one("s11", "no-done", &a, m);
	row("S11", "pass", m, &a);
	assert_true(gw_whole(&a));
	assert_true(a.usage);
	assert_true(a.took_ms < gw_ms(8000 / SCALE + 300));
}

static void s12_a_context_that_is_too_long_goes_to_another_model_once(void **s)
{
	(void)s;
	auto_gw struct gw_answer a, alone;
	char m[80];
	one("s12", "context", &a, m);
	row("S12", "pass", m, &a);
	assert_true(gw_whole(&a));
	assert_int_equal(fakemodel_attempts(fake, m), 1);
	primary("s12b", "context", false);
	ask("s12b", "context", &alone);
	assert_int_equal(alone.status, 400);
	assert_string_equal(alone.code, "context_length_exceeded");
	gw_free(&alone);
}

static void s13_a_content_filter_is_not_routed_around(void **s)
{
	(void)s;
	auto_gw struct gw_answer a;
	char m[80];
	int before = fakemodel_attempts(fake, "ok");
	one("s13", "filter", &a, m);
	row("S13", "pass", m, &a);
	assert_int_equal(a.status, 400);
	assert_string_equal(a.code, "content_policy_violation");
	assert_non_null(strstr(a.message, "safety system"));
	assert_int_equal(fakemodel_attempts(fake, m), 1);
	assert_int_equal(fakemodel_attempts(fake, "ok"), before);
}

static void s14_no_refused_prefill_hides_what_happened(void **s)
{
	(void)s;
	auto_gw struct gw_answer a;
	gw_provider(&st, fake, org.key, "s14", "openai-chat", 1, "cut@s14>s14/no-prefill no-prefill");
	ask("s14", "cut", &a);
	row("S14", "safe", "cut@s14", &a);
	assert_false(a.done);
	assert_string_not_equal(a.error, "");
	assert_null(strstr(a.raw, "prefill"));
	assert_int_equal(fakemodel_attempts(fake, "no-prefill"), 0);
}

/* Twenty requests over an outage, which here is three seconds; a fifth of a second between two. */
static void s15_an_outage_is_served_by_the_fallback_and_its_end_is_found(void **s)
{
	(void)s;
	char m[80];
	int served = 0, back_at = -1, down = 0;
	primary("s15", "flap", true);
	(void)named("flap", "s15", m);
	fakemodel_again(fake);
	struct span outage_ms = span_begin();
	int64_t began = outage_ms.began_ms, back_ms = 0, counts_ms = 0;
	for (int i = 0; clock_ms() - began < 5 * PATIENCE_MS && back_at < 0; i++) {
		auto_gw struct gw_answer a;
		(void)poll(NULL, 0, 200);
		bool outage = clock_ms() - began < 3000;
		ask("s15", "flap", &a);
		if (!gw_whole(&a))
			fail_msg("request %d: %ld %s", i, a.status, a.raw);
		assert_true(a.took_ms < 30000 / SCALE + 1500);
		served++;
		down += outage;
		if (strcmp(a.by, "s15/flap@s15") == 0) {
			back_at = i;
			back_ms = clock_ms() - began - 3000;
			counts_ms = span_of(&outage_ms, back_ms);
		}
	}
	print_message("  S15  pass   %d served, %d of them in the outage with %d attempts at the primary; "
		      "back after %.2f s\n",
	    served, down, fakemodel_attempts(fake, m), (double)back_ms / 1000);
	assert_true(back_at >= 0);
	assert_true(counts_ms < 5000);
	assert_true(fakemodel_attempts(fake, m) <= 15);
}

static void s16_the_answer_names_who_gave_it_and_only_that_is_charged(void **s)
{
	(void)s;
	auto_gw struct gw_answer a;
	char m[80];
	one("s16", "503", &a, m);
	row("S16", "pass", m, &a);
	assert_true(gw_whole(&a));
	assert_string_equal(a.model, "ok");
	assert_string_equal(a.by, "spare/ok");
	assert_true(a.usage);
	assert_int_equal(a.in, FAKEMODEL_PROMPT_TOKENS);
	assert_int_equal(a.out, FAKEMODEL_WORDS);
	assert_true(fakemodel_attempts(fake, m) <= 6);
}

static int setup(void **s)
{
	(void)s;
	fake = gw_up(&st, 2, 1, NULL);
	stack_org(&st, &org);
	gw_provider(&st, fake, org.key, "spare", "openai-chat", 1, "ok");
	return 0;
}

static int teardown(void **s)
{
	(void)s;
	gw_down(&st, fake);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(s01_a_429_with_retry_after_is_tried_again_when_it_says),
		cmocka_unit_test(s02_a_lasting_429_is_not_hammered),
		cmocka_unit_test(s03_a_500_is_tried_again_at_the_same_provider),
		cmocka_unit_test(s04_a_lasting_503_fails_over_within_its_budget),
		cmocka_unit_test(s05_a_reset_before_any_byte_is_tried_again),
		cmocka_unit_test(s06_a_silent_provider_is_left_and_not_asked_again),
		cmocka_unit_test(s07_a_first_token_that_is_late_fails_over),
		cmocka_unit_test(s08_a_stream_that_is_cut_ends_in_an_error),
		cmocka_unit_test(s09_a_stream_that_stalls_ends_in_an_error_in_time),
		cmocka_unit_test(s10_an_event_that_is_no_json_is_left_out),
		cmocka_unit_test(s11_a_missing_done_is_not_waited_for),
		cmocka_unit_test(s12_a_context_that_is_too_long_goes_to_another_model_once),
		cmocka_unit_test(s13_a_content_filter_is_not_routed_around),
		cmocka_unit_test(s14_no_refused_prefill_hides_what_happened),
		cmocka_unit_test(s15_an_outage_is_served_by_the_fallback_and_its_end_is_found),
		cmocka_unit_test(s16_the_answer_names_who_gave_it_and_only_that_is_charged),
	};
	return cmocka_run_group_tests(tests, setup, teardown);
}
