#include "../t.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/secret.h"
#include "io/conf.h"
#include "io/conf_file.h"
#include "io/file.h"

static char file[64];

static int make_file(void **state)
{
	(void)state;
	(void)strcpy(file, "/tmp/gh-test-conf.XXXXXX");
	int fd = mkstemp(file);
	return fd < 0 ? -1 : close(fd);
}

static int drop_file(void **state)
{
	(void)state;
	return unlink(file);
}

static void put(const char *text)
{
	struct err e = { 0 };
	assert_int_equal(file_write(file, text, strlen(text), 0600, &e), 0);
}

static struct conf *load(const char *text, struct err *e)
{
	put(text);
	*e = (struct err){ 0 };
	return conf_load(file, e);
}

/* RUN-1 */
static void test_every_default_is_inside_its_own_bounds_and_every_key_is_documented(void **state)
{
	(void)state;
	struct err e;
	struct conf *c = load("", &e);
	assert_non_null(c);
	const struct conf_key *k;
	for (size_t i = 0; (k = conf_key_at(i)) != NULL; i++) {
		assert_string_equal(conf_str(c, k->name), k->def);
		assert_true(strlen(k->doc) > 20);
		assert_true(k->type != CONF_INT || k->def[0] != 0);
		assert_true((k->type == CONF_ENUM) == (k->values != NULL));
	}
	conf_free(c);
}

static void test_file_values_are_read_and_the_environment_wins_over_them(void **state)
{
	(void)state;
	struct err e;
	assert_int_equal(setenv("API_QUEUE", "9", 1), 0);
	assert_int_equal(setenv("LOG_LEVEL", "", 1), 0);
	struct conf *c = load(
	    "# c\nAPI_WORKERS=3\nAPI_QUEUE=8\nLOG_LEVEL=warn\nPUBLIC_URL='https://a.b'\nCA_FILE=\n", &e);
	(void)unsetenv("API_QUEUE");
	(void)unsetenv("LOG_LEVEL");
	assert_non_null(c);
	assert_int_equal(conf_int(c, "API_WORKERS"), 3);
	assert_int_equal(conf_int(c, "API_QUEUE"), 9);
	assert_string_equal(conf_str(c, "PUBLIC_URL"), "https://a.b");
	assert_string_equal(conf_str(c, "CA_FILE"), "");
	/* An empty value is the default, in the environment too. */
	assert_string_equal(conf_str(c, "LOG_LEVEL"), "info");
	conf_free(c);
}

static void test_a_wrong_value_is_refused_with_key_value_and_what_is_allowed(void **state)
{
	(void)state;
	static const char *const rows[][4] = {
		{ "API_WORKERS=0", "API_WORKERS", "\"0\"", "from 1 to 256" },
		{ "API_WORKERS=12x", "API_WORKERS", "\"12x\"", "a whole number" },
		{ "API_WORKERS=99999999999999999999", "API_WORKERS", "", "from 1 to 256" },
		{ "LOG_LEVEL=verbose", "LOG_LEVEL", "\"verbose\"", "one of debug, info, warn, error" },
		{ "FORGE_ROOT=relative", "FORGE_ROOT", "\"relative\"", "an absolute path" },
		{ "PUBLIC_URL=https://h/path", "PUBLIC_URL", "https://h/path", "without a path" },
		{ "PUBLIC_URL=https://u:p@h", "PUBLIC_URL", "", "without a path" },
		{ "FORGE_URL=ftp://h", "FORGE_URL", "ftp://h", "an origin" },
		{ "INSTANCE=a/b", "INSTANCE", "a/b", "lower-case" },
		{ "CODING_TOOLS={\"python\":\"x\"}", "CODING_TOOLS", "", "arrays of strings" },
		{ "NODE_ADDRESS=tcp:1", "NODE_ADDRESS", "tcp:1", "unix:" },
		{ "SANDBOX_OCI_RUNTIME=docker", "SANDBOX_OCI_RUNTIME", "docker", "crun" },
		{ "EGRESS_DNS=1.2.3.4:99999", "EGRESS_DNS", "1.2.3.4:99999", ":port (1 to 65535" },
		{ "EGRESS_DNS=1.1.1.1,ns.example", "EGRESS_DNS", "ns.example", "IP addresses" },
		{ "EGRESS_SELF=10.0.0.1:0", "EGRESS_SELF", "10.0.0.1:0", ":port (1 to 65535" },
		{ "NODE_NAME='a\nb'", "NODE_NAME", "", "letters" },
	};
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct err e;
		struct conf *c = load(rows[i][0], &e);
		if (c != NULL)
			fail_msg("%s was taken", rows[i][0]);
		for (int k = 1; k < 4; k++)
			if (strstr(e.msg, rows[i][k]) == NULL &&
			    !(i + 1 == sizeof rows / sizeof *rows && k == 3))
				fail_msg("\"%s\" does not say \"%s\"", e.msg, rows[i][k]);
		assert_non_null(strstr(e.msg, file));
	}
}

static void test_a_database_password_is_refused_and_not_shown(void **state)
{
	(void)state;
	static const char *const bad[] = { "host=x password=hunter2", "postgres://u:hunter2@h/db",
		"postgres://h/db?password=hunter2", "PASSWORD = hunter2" };
	static const char *const good[] = { "host=x dbname=y", "postgres://u@h:5432/db",
		"postgresql:///db?host=/run", "host=/tmp passfile=/etc/gh.pgpass" };
	for (size_t i = 0; i < 4; i++) {
		char line[200];
		struct err e;
		(void)snprintf(line, sizeof line, "DATABASE_URL='%s'\n", bad[i]);
		assert_null(load(line, &e));
		assert_null(strstr(e.msg, "hunter2"));
		assert_non_null(strstr(e.msg, "DATABASE_URL"));
		(void)snprintf(line, sizeof line, "DATABASE_URL='%s'\n", good[i]);
		struct conf *c = load(line, &e);
		assert_non_null(c);
		assert_string_equal(conf_str(c, "DATABASE_URL"), good[i]);
		conf_free(c);
	}
}

static void test_an_unknown_key_and_a_file_that_is_not_there_are_refused(void **state)
{
	(void)state;
	struct err e;
	assert_null(load("API_WORKERS=2\n\nAPI_WORKRES=3\n", &e));
	assert_non_null(strstr(e.msg, "\"API_WORKRES\" in line 3 is not a setting"));
	e = (struct err){ 0 };
	assert_null(conf_load("/no/such/file", &e));
	assert_non_null(strstr(e.msg, "/no/such/file"));
	assert_null(load("hello\n", &e));
	assert_non_null(strstr(e.msg, "Line 1 is not of the form KEY=value"));
}

static int gather(void *arg, const char *key, const char *value, int line, struct err *e)
{
	(void)e;
	return buf_fmt(arg, "%d %s=<%s>\n", line, key, value);
}

/* The rules of systemd.exec(5), EnvironmentFile=. */
static void test_the_file_has_systemds_syntax(void **state)
{
	(void)state;
	static const char *const rows[][2] = {
		{ "A=b", "1 A=<b>\n" },
		{ "A=b\n", "1 A=<b>\n" },
		{ "  A = b c \t\n", "1 A=<b c>\n" },
		{ "# x=y\n; z=w\n\nA=1\n", "4 A=<1>\n" },
		{ "A=b#c ; d\n", "1 A=<b#c ; d>\n" },
		{ "A='a b '\\''\n", "1 A=<a b ''>\n" },
		{ "A='a  b '\n", "1 A=<a  b >\n" },
		{ "A=\"x \\\"y\\\" \\$z \\n\"\n", "1 A=<x \"y\" $z \\n>\n" },
		{ "A='x \\n'\n", "1 A=<x \\n>\n" },
		{ "A='a'\"b\"c\n", "1 A=<abc>\n" },
		{ "A=a\\\nb\nC=d\n", "1 A=<ab>\n3 C=<d>\n" },
		{ "A=\"a\\\nb\"\n", "1 A=<ab>\n" },
		{ "A=\"a\nb\"\nB=1\n", "1 A=<a\nb>\n3 B=<1>\n" },
		{ "A=a\\ b\\\\\n", "1 A=<a b\\>\n" },
		{ "# a \\\nB=1\nC=2\n", "3 C=<2>\n" },
		{ "A=\nB=1\r\n", "1 A=<>\n2 B=<1>\n" },
		{ "A=a\"b\n", "1 A=<a\"b>\n" },
		{ "A=\"open\n", NULL },
		{ "A", NULL },
		{ "", "" },
	};
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		auto_buf struct buf got = BUF(1000);
		struct err e = { 0 };
		int rc = conf_file_parse(rows[i][0], strlen(rows[i][0]), gather, &got, &e);
		assert_int_equal(rc, rows[i][1] == NULL ? -1 : 0);
		assert_true(rc == 0 || e.msg[0] != 0);
		if (rc == 0)
			assert_string_equal(buf_c(&got), rows[i][1]);
	}
}

static void test_a_reload_changes_what_may_change_and_keeps_everything_on_an_error(void **state)
{
	(void)state;
	struct err e;
	struct conf *c = load("LOG_LEVEL=warn\nAPI_WORKERS=3\nSANDBOX_IDLE_S=10\n", &e);
	const char *was = conf_str(c, "LOG_LEVEL");
	put("LOG_LEVEL=error\nAPI_WORKERS=4\nSANDBOX_IDLE_S=wrong\n");
	assert_int_equal(conf_reload(c, &e), -1);
	assert_non_null(strstr(e.msg, "SANDBOX_IDLE_S"));
	assert_string_equal(conf_str(c, "LOG_LEVEL"), "warn");
	put("LOG_LEVEL=error\nAPI_WORKERS=4\n");
	e = (struct err){ 0 };
	int saved = dup(STDERR_FILENO);
	assert_non_null(freopen("/dev/null", "w", stderr)); /* it says that API_WORKERS needs a restart */
	assert_int_equal(conf_reload(c, &e), 0);
	assert_true(dup2(saved, STDERR_FILENO) >= 0);
	(void)close(saved);
	assert_string_equal(conf_str(c, "LOG_LEVEL"), "error");
	assert_int_equal(conf_int(c, "SANDBOX_IDLE_S"), 300);
	assert_int_equal(conf_int(c, "API_WORKERS"), 3);
	assert_string_equal(was, "warn"); /* still readable by who asked before */
	conf_free(c);
}

struct reader {
	const struct conf *c;
	_Atomic bool stop;
	bool wrong;
};

static void *read_on(void *arg)
{
	struct reader *r = arg;
	while (!r->stop) {
		const char *s = conf_str(r->c, "PUBLIC_URL");
		r->wrong = r->wrong || (strcmp(s, "https://a") != 0 && strcmp(s, "https://bb") != 0);
	}
	return NULL;
}

static void test_readers_see_the_old_or_the_new_value_during_a_reload(void **state)
{
	(void)state;
	struct err e;
	struct conf *c = load("PUBLIC_URL=https://a\n", &e);
	struct reader r = { .c = c };
	pthread_t t;
	assert_int_equal(pthread_create(&t, NULL, read_on, &r), 0);
	for (int i = 0; i < 50; i++) {
		put(i % 2 == 0 ? "PUBLIC_URL=https://bb\n" : "PUBLIC_URL=https://a\n");
		assert_int_equal(conf_reload(c, &e), 0);
	}
	r.stop = true;
	assert_int_equal(pthread_join(t, NULL), 0);
	assert_false(r.wrong);
	conf_free(c);
}

/* RUN-1: the annotated example names every key, loads as it is, and loads with every line uncommented. */
/* SEC-6 */
static void test_a_key_is_the_first_line_of_a_file_that_only_its_owner_can_read(void **state)
{
	(void)state;
	static const struct {
		const char *text, *key; /* text NULL: there is no such file; key NULL: it is refused */
		mode_t mode;
	} rows[] = { { "the-key\nmore\n", "the-key", 0600 }, { "the-key", "the-key", 0400 },
		{ "the-key\r\n", "the-key", 0600 }, { "the-key\n", NULL, 0640 }, { "the-key\n", NULL, 0604 },
		{ "", NULL, 0600 }, { "\nthe-key\n", NULL, 0600 }, { NULL, NULL, 0 } };
	char path[80], text[160];
	struct err e = { 0 };
	struct secret *key = NULL;
	(void)snprintf(path, sizeof path, "%s.key", file);
	(void)snprintf(text, sizeof text, "TRACE_OTLP_KEY_FILE=%s\n", path);
	struct conf *c = load("", &e);
	assert_int_equal(conf_secret(c, "TRACE_OTLP_KEY_FILE", &key, &e), 0);
	assert_null(key);
	conf_free(c);
	c = load(text, &e);
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		(void)unlink(path);
		e = (struct err){ 0 };
		if (rows[i].text != NULL)
			assert_int_equal(
			    file_write(path, rows[i].text, strlen(rows[i].text), rows[i].mode, &e), 0);
		assert_int_equal(
		    conf_secret(c, "TRACE_OTLP_KEY_FILE", &key, &e), rows[i].key != NULL ? 0 : -1);
		assert_int_equal(e.code, rows[i].key != NULL ? ERR_NONE : ERR_BAD_REQUEST);
		assert_true(rows[i].key != NULL || strstr(e.msg, "TRACE_OTLP_KEY_FILE") != NULL);
		assert_null(strstr(e.msg, "the-key"));
		if (rows[i].key != NULL)
			assert_string_equal(secret_use(key), rows[i].key);
		else
			assert_null(key);
		secret_free(key);
	}
	(void)unlink(path);
	conf_free(c);
}

static void test_the_shipped_example_is_the_generated_one_and_is_valid(void **state)
{
	(void)state;
	struct err e = { 0 };
	char *text = NULL;
	size_t n = 0;
	FILE *f = open_memstream(&text, &n);
	conf_example(f);
	(void)fclose(f);
	static const char shipped[] = "systemd/gatehouse.conf";
	if (getenv("GATEHOUSE_GOLDEN") != NULL)
		assert_int_equal(file_write(shipped, text, n, 0644, &e), 0);
	auto_buf struct buf have = BUF(1 << 20);
	assert_int_equal(file_read(shipped, &have, &e), 0);
	assert_string_equal(buf_c(&have), text);
	for (char *line = text; line != NULL; line = strchr(line, '\n')) {
		line += *line == '\n';
		if (line[0] == '#' && line[1] >= 'A' && line[1] <= 'Z' && strchr(line, '=') != NULL)
			line[0] = ' ';
	}
	struct conf *c = load(text, &e);
	if (c == NULL)
		fail_msg("%s", e.msg);
	conf_free(c);
	free(text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_every_default_is_inside_its_own_bounds_and_every_key_is_documented),
		cmocka_unit_test(test_file_values_are_read_and_the_environment_wins_over_them),
		cmocka_unit_test(test_a_wrong_value_is_refused_with_key_value_and_what_is_allowed),
		cmocka_unit_test(test_a_database_password_is_refused_and_not_shown),
		cmocka_unit_test(test_an_unknown_key_and_a_file_that_is_not_there_are_refused),
		cmocka_unit_test(test_the_file_has_systemds_syntax),
		cmocka_unit_test(test_a_reload_changes_what_may_change_and_keeps_everything_on_an_error),
		cmocka_unit_test(test_readers_see_the_old_or_the_new_value_during_a_reload),
		cmocka_unit_test(test_a_key_is_the_first_line_of_a_file_that_only_its_owner_can_read),
		cmocka_unit_test(test_the_shipped_example_is_the_generated_one_and_is_valid),
	};
	return cmocka_run_group_tests(tests, make_file, drop_file);
}
