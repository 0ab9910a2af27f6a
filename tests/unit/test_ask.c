#include "../t.h"

#include <string.h>

#include "base/js.h"
#include "base/limits.h"
#include "code/ask.h"

#define SESSION "ses_0123456789abcdefghjkmnpqrs"
#define SECRET  "the-secret-value"

/* Judge a body; every message and parameter is searched for the secret. */
static int judge(const char *body, struct err *e)
{
	struct err bad = { 0 };
	auto_json json_t *in = js_parse(body, strlen(body), &bad);
	assert_non_null(in);
	struct ask a;
	ask_read(in, &a);
	int rc = ask_check(&a, in, "git.internal, other.host", e);
	assert_null(strstr(e->msg, SECRET));
	for (int i = 0; i < e->n_details; i++)
		assert_null(strstr(e->details[i].msg, SECRET));
	return rc;
}

static void assert_good(const char *body)
{
	struct err e = { 0 };
	if (judge(body, &e) != 0)
		fail_msg("%s: %s", body, e.msg);
}
static void assert_bad(const char *body, const char *param)
{
	struct err e = { 0 };
	assert_int_equal(judge(body, &e), -1);
	assert_int_equal(e.code, ERR_BAD_REQUEST);
	if (strcmp(e.param, param) != 0)
		fail_msg("%s: expected %s, got %s: %s", body, param, e.param, e.msg);
}

/* COD-1, COD-2 */
static void a_repository_is_optional(void **s)
{
	(void)s;
	assert_good("{\"prompt\":\"p\",\"tool\":\"python\"}");
	assert_good("{\"prompt\":\"p\",\"repo\":\"hello\",\"base\":\"main\"}");
	assert_good("{\"prompt\":\"p\",\"repo\":\"hello\",\"project\":\"web\"}");
	assert_good("{\"prompt\":\"p\",\"cloneUrl\":\"https://example.org/a/b.git\"}");
	assert_good("{\"prompt\":\"p\",\"cloneUrl\":\"http://[::1]:8080/a/b.git\"}");
	assert_bad("{\"prompt\":\"p\",\"repo\":\"r\",\"cloneUrl\":\"https://example.org/a\"}", "cloneUrl");
	assert_bad("{\"prompt\":\"p\",\"project\":\"web\"}", "project");
	assert_bad("{\"prompt\":\"p\",\"base\":\"main\"}", "base");
}

/* COD-2 */
static void a_credential_needs_a_repository_elsewhere(void **s)
{
	(void)s;
	assert_good(
	    "{\"prompt\":\"p\",\"cloneUrl\":\"https://h/r\",\"credential\":{\"token\":\"" SECRET "\"}}");
	assert_bad("{\"prompt\":\"p\",\"credential\":{\"token\":\"" SECRET "\"}}", "credential");
	assert_bad(
	    "{\"prompt\":\"p\",\"repo\":\"r\",\"credential\":{\"token\":\"" SECRET "\"}}", "credential");
	assert_bad("{\"prompt\":\"p\",\"cloneUrl\":\"https://h/r\",\"credential\":{\"token\":\"\"}}",
	    "credential.token");
	assert_bad("{\"prompt\":\"p\",\"cloneUrl\":\"https://h/r\",\"credential\":{\"token\":\"" SECRET
		   "\\r\\nX: y\"}}",
	    "credential.token");
	assert_bad("{\"prompt\":\"p\",\"cloneUrl\":\"https://h/r\",\"credential\":{\"username\":\"a:" SECRET
		   "\",\"token\":\"t\"}}",
	    "credential.username");
}

static void a_credential_travels_in_clear_only_to_hosts_that_are_allowed(void **s)
{
	(void)s;
	assert_bad("{\"prompt\":\"p\",\"cloneUrl\":\"http://h/r\",\"credential\":{\"token\":\"" SECRET "\"}}",
	    "cloneUrl");
	assert_bad("{\"prompt\":\"p\",\"cloneUrl\":\"HTTP://internal/r\",\"credential\":{\"token\":\"" SECRET
		   "\"}}",
	    "cloneUrl");
	assert_good(
	    "{\"prompt\":\"p\",\"cloneUrl\":\"http://git.internal:80/r\",\"credential\":{\"token\":\"" SECRET
	    "\"}}");
	struct ask_host h;
	assert_true(ask_host_of("http://B:8080/r", &h));
	assert_true(ask_host_listed("a, b c", &h));
	assert_true(ask_host_listed("a b:8080", &h));
	assert_false(ask_host_listed("b:80 ab bb", &h));
	assert_false(ask_host_listed("", &h));
	assert_true(ask_host_of("https://[::1]/r", &h));
	assert_int_equal(h.port, 443);
	assert_true(ask_host_listed("[::1]:443", &h));
	assert_true(ask_host_listed("[::1]", &h));
}

static void a_clone_url_is_plain_http_and_holds_no_secret(void **s)
{
	(void)s;
	static const char *const bad[] = { "ssh://git@h/r", "file:///etc", "ext::sh -c id", "--upload-pack=x",
		"/srv/r.git", "https://", "https://h", "https://h/", "https:///r",
		("https://user:" SECRET "@h/r"), ("https://" SECRET "@h/r"), ("https://h/r?token=" SECRET),
		"https://h/r#x", "https://h/a b", "https://h/a\\nb", "https://h:99999999/r", "https://h:x/r",
		"https://-h/r", "https://[::1/r", "https://h/\\u00e9" };
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		auto_buf struct buf b = BUF(500);
		(void)buf_fmt(&b, "{\"prompt\":\"p\",\"cloneUrl\":\"%s\"}", bad[i]);
		assert_bad(b.p, "cloneUrl");
	}
}

/* COD-4 */
static void the_branch_is_a_function_of_the_session(void **s)
{
	(void)s;
	char branch[ASK_BRANCH_MAX];
	ask_branch(SESSION, branch);
	assert_string_equal(branch, "agent/0123456789abcdefghjkmnpqrs");
	assert_good("{\"prompt\":\"p\",\"repo\":\"r\",\"session\":\"" SESSION
		    "\",\"branch\":\"agent/0123456789abcdefghjkmnpqrs\"}");
	assert_bad(
	    "{\"prompt\":\"p\",\"repo\":\"r\",\"session\":\"" SESSION "\",\"branch\":\"main\"}", "branch");
	assert_bad(
	    "{\"prompt\":\"p\",\"repo\":\"r\",\"branch\":\"agent/0123456789abcdefghjkmnpqrs\"}", "branch");
	assert_bad("{\"prompt\":\"p\",\"repo\":\"r\",\"session\":\"ses_x\"}", "session");
}

static void what_is_not_wired_is_refused(void **s)
{
	(void)s;
	assert_bad("{\"prompt\":\"p\",\"target\":\"mac-mini\"}", "target"); /* COD-13 */
	assert_bad("{\"prompt\":\"p\",\"desktop\":true}", "desktop");
	assert_good("{\"prompt\":\"p\",\"desktop\":false}");
	assert_bad("{\"prompt\":\"\"}", "prompt");
	assert_bad("{\"prompt\":\"p\",\"timeoutSec\":7201}", "timeoutSec");
	assert_good("{\"prompt\":\"p\",\"timeoutSec\":7200}");
	assert_bad("{\"prompt\":\"p\",\"repo\":\"../etc\"}", "repo");
	assert_bad("{\"prompt\":\"p\",\"repo\":\"r\",\"base\":\"--upload-pack=x\"}", "base");
}

static void every_violation_is_listed(void **s)
{
	(void)s;
	struct err e = { 0 };
	assert_int_equal(judge("{\"prompt\":\"\",\"repo\":\"a "
			       "b\",\"cloneUrl\":\"ftp://x/y\",\"credential\":{\"token\":\"" SECRET
			       "\"},\"base\":\"-x\",\"target\":\"t\",\"desktop\":true}",
			     &e),
	    -1);
	assert_int_equal(e.n_details, ERR_DETAILS_MAX);
	assert_string_equal(e.details[0].param, "prompt");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_repository_is_optional),
		cmocka_unit_test(a_credential_needs_a_repository_elsewhere),
		cmocka_unit_test(a_credential_travels_in_clear_only_to_hosts_that_are_allowed),
		cmocka_unit_test(a_clone_url_is_plain_http_and_holds_no_secret),
		cmocka_unit_test(the_branch_is_a_function_of_the_session),
		cmocka_unit_test(what_is_not_wired_is_refused),
		cmocka_unit_test(every_violation_is_listed),
	};
	return cmocka_run_group_tests_name("ask", tests, NULL, NULL);
}
