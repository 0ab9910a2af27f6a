/* `gatehouse call`: fields from arguments, and streams for people (OP-3). */
#include "../t.h"

#include <stdio.h>
#include <string.h>

#include "base/js.h"
#include "op/cli.h"

static const char *const modes[] = { "none", "open", NULL };
static const struct param limits[] = {
	{ .name = "cpus", .type = T_INT, .min = 1, .max = 8, .doc = "Processors." },
	{ 0 },
};
static const struct param file[] = {
	{ .name = "path", .type = T_STR, .required = true, .doc = "Where." },
	{ .name = "content", .type = T_STR, .doc = "What." },
	{ .name = "delete", .type = T_BOOL, .doc = "Away with it." },
	{ 0 },
};
static const struct param in[] = {
	{ .name = "name",
	    .type = T_STR,
	    .required = true,
	    .doc = "A name that is explained at some length so that it wraps "
		   "over the end of a line of the help text, as it should." },
	{ .name = "n", .type = T_INT, .doc = "A number." },
	{ .name = "ratio", .type = T_NUM },
	{ .name = "on", .type = T_BOOL },
	{ .name = "mode", .type = T_ENUM, .values = modes, .doc = "M." },
	{ .name = "argv", .type = T_ARR, .fields = &(const struct param){ .type = T_STR } },
	{ .name = "limits", .type = T_OBJ, .fields = limits },
	{ .name = "files", .type = T_ARR, .fields = &(const struct param){ .type = T_OBJ, .fields = file } },
	{ .name = "env", .type = T_MAP },
	{ 0 },
};
static const struct op op = {
	.id = "toy", .routes = { { "POST", "/v1/toy" } }, .summary = "Play", .doc = "Plays.", .in = in
};

static int fake_file(const char *path, struct buf *out, struct err *e)
{
	if (strcmp(path, "text") == 0)
		return buf_str(out, "from\na file");
	if (strcmp(path, "bytes") == 0)
		return buf_add(out, "\0\xff", 2);
	return err_set(e, ERR_BAD_REQUEST, "%s is not there.", path);
}

#define ARGS(...) ((char *const[]){ __VA_ARGS__, NULL })

static void becomes(char *const *args, const char *json)
{
	struct err e = { 0 };
	auto_json json_t *v = cli_input(&op, args, fake_file, &e);
	if (v == NULL)
		fail_msg("%s", e.msg);
	auto_free char *text = json_dumps(v, JSON_COMPACT);
	assert_string_equal(text, json);
}

static void refused(char *const *args, const char *words)
{
	struct err e = { 0 };
	auto_json json_t *v = cli_input(&op, args, fake_file, &e);
	assert_null(v);
	assert_int_equal(e.code, ERR_BAD_REQUEST);
	if (strstr(e.msg, words) == NULL)
		fail_msg("\"%s\" does not say \"%s\"", e.msg, words);
}

static char name_7[] = "name=7", n_7[] = "n=7", on[] = "on=true", ratio[] = "ratio=0.5", mode[] = "mode=open",
	    eq[] = "name=a=b";
static char argv_a[] = "argv=ls", argv_b[] = "argv=-l", argv_json[] = "argv:=[\"ls\",\"-l\"]";
static char cpus[] = "limits.cpus=2", limits_json[] = "limits:={\"cpus\":2}";
static char f0p[] = "files[0].path=a", f0d[] = "files[0].delete=true", f1p[] = "files[1].path=b",
	    f1c[] = "files[1].content=@text", f3[] = "files[3].path=x";
static char env_a[] = "env.A_B=1", env_c[] = "env.C.D=2";
static char no_eq[] = "name", missing[] = "name=@nowhere", bytes[] = "name=@bytes", bad_json[] = "argv:=[",
	    empty[] = "=x", bad_index[] = "files[x].path=a", n_text[] = "n=seven", unknown[] = "nope=1",
	    plain_limits[] = "limits=2";

static void values_get_the_types_of_the_schema(void **s)
{
	(void)s;
	becomes(ARGS(name_7, n_7, on, ratio, mode),
	    "{\"name\":\"7\",\"n\":7,\"on\":true,\"ratio\":0.5,\"mode\":\"open\"}");
	becomes(ARGS(eq), "{\"name\":\"a=b\"}");
	becomes((char *const[]){ NULL }, "{}");
}

static void a_list_grows_by_being_named_again(void **s)
{
	(void)s;
	becomes(ARGS(argv_a, argv_b), "{\"argv\":[\"ls\",\"-l\"]}");
	becomes(ARGS(argv_json), "{\"argv\":[\"ls\",\"-l\"]}");
}

static void nested_fields_have_dotted_names(void **s)
{
	(void)s;
	becomes(ARGS(cpus), "{\"limits\":{\"cpus\":2}}");
	becomes(ARGS(limits_json), "{\"limits\":{\"cpus\":2}}");
	becomes(ARGS(f0p, f0d, f1p, f1c),
	    "{\"files\":[{\"path\":\"a\",\"delete\":true},{\"path\":\"b\",\"content\":\"from\\na file\"}]}");
	becomes(ARGS(env_a, env_c), "{\"env\":{\"A_B\":\"1\",\"C.D\":\"2\"}}");
}

static void what_cannot_be_read_is_refused_with_its_argument(void **s)
{
	(void)s;
	refused(ARGS(no_eq), "name=value");
	refused(ARGS(empty), "name=value");
	refused(ARGS(missing), "nowhere is not there");
	refused(ARGS(bytes), "base64");
	refused(ARGS(bad_json), "must be JSON");
	refused(ARGS(f3), "without gaps");
	refused(ARGS(bad_index), "number in brackets");
	refused(ARGS(n_7, n_7), "given twice");
	refused(ARGS(plain_limits, cpus), "as a value and as an object");
}

/* What the arguments cannot say is said by the same check that the server makes. */
static void the_input_check_judges_the_rest(void **s)
{
	(void)s;
	struct err e = { 0 };
	auto_json json_t *v = cli_input(&op, ARGS(n_text, unknown, plain_limits), fake_file, &e);
	assert_int_equal(op_check(in, v, 0, &e), -1);
	assert_int_equal(e.n_details, 4);
	assert_string_equal(e.param, "n");
}

static void options_take_values_either_way(void **s)
{
	(void)s;
	const char *org = NULL, *rest[1];
	bool admin = false;
	const struct cli_option all[] = { { "org", &org, NULL }, { "admin", NULL, &admin }, { 0 } };
	char o1[] = "--org", v1[] = "acme", o2[] = "--org=b", f[] = "--admin", r[] = "slug", bad[] = "--nope",
	     fv[] = "--admin=1";
	struct err e = { 0 };
	assert_int_equal(cli_options((char *[]){ o1, v1, r, f, NULL }, all, rest, 1, &e), 0);
	assert_string_equal(org, "acme");
	assert_string_equal(rest[0], "slug");
	assert_true(admin);
	assert_int_equal(cli_options((char *[]){ o2, NULL }, all, NULL, 0, &e), 0);
	assert_string_equal(org, "b");
	char *const wrong[][2] = { { bad, NULL }, { fv, NULL }, { o1, NULL }, { r, NULL } };
	for (size_t i = 0; i < 4; i++) {
		err_clear(&e);
		assert_int_equal(cli_options((char *[]){ wrong[i][0], NULL }, all, NULL, 0, &e), -1);
	}
	err_clear(&e);
	assert_int_equal(cli_options((char *[]){ NULL }, all, rest, 1, &e), -1);
}

static void help_lists_nested_fields_and_routes(void **s)
{
	(void)s;
	auto_buf struct buf out = BUF(10000);
	cli_help(&op, &out);
	assert_non_null(strstr(out.p, "gatehouse call toy [field=value ...]\n"));
	assert_non_null(strstr(out.p, "  name  (text, required)\n"));
	assert_non_null(strstr(out.p, "  limits.cpus  (whole number 1 to 8)\n      Processors.\n"));
	assert_non_null(strstr(out.p, "  files[0].path  (text, required)\n"));
	assert_non_null(strstr(out.p, "  mode  (none | open)\n"));
	assert_non_null(strstr(out.p, "  POST /v1/toy\n"));
	for (char *line = strtok(out.p, "\n"); line != NULL; line = strtok(NULL, "\n"))
		assert_true(strlen(line) <= 100);
}

static void shows(struct cli_render *r, const char *line, const char *text)
{
	auto_buf struct buf out = BUF(10000);
	auto_json json_t *v = json_loads(line, 0, NULL);
	assert_non_null(v);
	cli_line(r, v, &out);
	assert_string_equal(buf_c(&out), text);
}

static void a_run_is_readable_lines(void **s)
{
	(void)s;
	struct cli_render r = { 0 };
	shows(&r,
	    "{\"type\":\"step\",\"seq\":1,\"time\":\"2030-01-31T12:00:00.000Z\",\"step\":\"leased\","
	    "\"message\":\"Ready.\","
	    "\"status\":\"running\"}",
	    "    0.0s  leased     Ready.\n");
	shows(&r,
	    "{\"type\":\"log\",\"seq\":2,\"time\":\"2030-01-31T12:00:01.500Z\",\"message\":\"a\\nb\\n\"}",
	    "          | a\n          | b\n");
	shows(&r, "{\"type\":\"ping\"}", "");
	shows(&r,
	    "{\"type\":\"step\",\"seq\":3,\"time\":\"2030-01-31T12:01:01.500Z\",\"step\":\"tool\","
	    "\"message\":\"No.\","
	    "\"status\":\"failed\"}",
	    "   61.5s  tool       No. (failed)\n");
	assert_false(r.ended);
	assert_int_equal(r.last_seq, 3);
	shows(&r,
	    "{\"type\":\"result\",\"seq\":4,\"time\":\"2030-01-31T12:01:02.000Z\",\"ok\":true,\"changed\":"
	    "true,"
	    "\"branch\":\"agent/"
	    "x\",\"commit\":\"abc\",\"url\":\"\",\"diffstat\":{\"files\":1,\"insertions\":2,\"deletions\":3,"
	    "\"paths\":[{\"path\":\"a.py\",\"insertions\":2,\"deletions\":3}]}}",
	    "   62.0s  result     1 files, +2 -3\n                     a.py +2 -3\n          branch     "
	    "agent/x\n          commit     "
	    "abc\n");
	assert_true(r.ended && r.exit == 0);
}

static void a_running_step_updates_on_a_terminal(void **s)
{
	(void)s;
	struct cli_render r = { .columns = 40 };
	shows(&r,
	    "{\"type\":\"step\",\"step\":\"tool\",\"message\":\"A long\\nmessage that does not "
	    "fit.\",\"status\":\"running\"}",
	    "          tool       A long message tha");
	shows(&r, "{\"type\":\"ping\"}", "");
	shows(&r, "{\"type\":\"step\",\"step\":\"tool\",\"message\":\"Done.\",\"status\":\"ok\"}",
	    "\r\033[K          tool       Done.\n");
	shows(&r, "{\"type\":\"error\",\"message\":\"It broke.\"}", "          error      It broke.\n");
	assert_true(r.ended && r.exit == 1);
}

static void a_command_s_output_is_itself_and_its_status_ours(void **s)
{
	(void)s;
	struct cli_render r = { 0 };
	shows(&r, "{\"type\":\"start\",\"id\":\"cmd_1\"}", "");
	shows(&r, "{\"type\":\"stdout\",\"data\":\"h\\u00e9\\n\",\"enc\":\"utf8\",\"offset\":0}",
	    "h\xC3\xA9\n");
	shows(&r, "{\"type\":\"stderr\",\"data\":\"YQ==\",\"enc\":\"base64\",\"offset\":0}", "a");
	shows(&r, "{\"type\":\"exit\",\"exitCode\":3,\"signal\":\"\"}", "\n[exit 3]\n");
	assert_true(r.ended && r.exit == 3);
	shows(&r, "{\"type\":\"exit\",\"exitCode\":-1,\"signal\":\"SIGKILL\"}", "[ended by SIGKILL]\n");
	assert_int_equal(r.exit, 1);
}

static void nothing_from_outside_steers_the_terminal(void **s)
{
	(void)s;
	auto_buf struct buf out = BUF(100);
	cli_clean("a\033[2J\x7f\xC2\x9B"
		  "b\t\n\xff\xC3\xA9",
	    14, &out);
	assert_string_equal(buf_c(&out),
	    "a\xEF\xBF\xBD[2J\xEF\xBF\xBD\xEF\xBF\xBD"
	    "b\t\n\xEF\xBF\xBD\xC3\xA9");
	struct cli_render r = { 0 };
	shows(&r, "{\"type\":\"step\",\"step\":\"x\\u001b\",\"message\":\"\\u001b]0;t\\u0007\"}",
	    "          x\xEF\xBF\xBD         \xEF\xBF\xBD]0;t\xEF\xBF\xBD\n");
}

static void piped_output_is_the_stream_as_it_came(void **s)
{
	(void)s;
	char *text = NULL;
	size_t n = 0;
	FILE *to = open_memstream(&text, &n);
	static const struct op stream = { .id = "s", .flags = OP_STREAM };
	struct cli_sink sink = cli_sink_new(&stream, to, false, false);
	static const char a[] = "{\"seq\": 1, \"type\":\"step\"}\n{\"se",
			  b[] = "q\":2,\"type\":\"result\"}\n{\"x\":1}";
	assert_int_equal(cli_sink_data(&sink, a, sizeof a - 1), 0);
	assert_int_equal(sink.view.last_seq, 1);
	assert_int_equal(cli_sink_data(&sink, b, sizeof b - 1), 0);
	cli_sink_end(&sink);
	assert_true(sink.view.ended);
	static const char nul[] = "{\"seq\":3,\"type\":\"log\",\"message\":\"a\\u0000b\"}\n";
	struct cli_sink people = cli_sink_new(&stream, to, true, false);
	assert_int_equal(cli_sink_data(&people, nul, sizeof nul - 1), 0);
	assert_int_equal(cli_sink_data(&people, "no json\033\n", 9), 0);
	cli_sink_end(&people);
	assert_int_equal(people.view.last_seq, 3);
	assert_int_equal(fclose(to), 0);
	assert_string_equal(text,
	    "{\"seq\": 1, \"type\":\"step\"}\n{\"seq\":2,\"type\":\"result\"}\n{\"x\":1}\n"
	    "          | a\xEF\xBF\xBD"
	    "b\nno json\xEF\xBF\xBD\n");
	free(text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(values_get_the_types_of_the_schema),
		cmocka_unit_test(a_list_grows_by_being_named_again),
		cmocka_unit_test(nested_fields_have_dotted_names),
		cmocka_unit_test(what_cannot_be_read_is_refused_with_its_argument),
		cmocka_unit_test(the_input_check_judges_the_rest),
		cmocka_unit_test(options_take_values_either_way),
		cmocka_unit_test(help_lists_nested_fields_and_routes),
		cmocka_unit_test(a_run_is_readable_lines),
		cmocka_unit_test(a_running_step_updates_on_a_terminal),
		cmocka_unit_test(a_command_s_output_is_itself_and_its_status_ours),
		cmocka_unit_test(nothing_from_outside_steers_the_terminal),
		cmocka_unit_test(piped_output_is_the_stream_as_it_came),
	};
	return cmocka_run_group_tests_name("cli", tests, NULL, NULL);
}
