#include "../t.h"

#include <string.h>

#include "forge/cgi.h"
#include "forge/push.h"

static int head(const char *s, size_t n, struct cgi_head *h)
{
	struct err e = { 0 };
	int rc = cgi_head_parse(s, n, h, &e);
	assert_int_equal(rc < 0, e.code != ERR_NONE);
	return rc;
}

/* FRG-1 */
static void a_reply_head_is_read_whichever_way_it_is_cut(void **s)
{
	(void)s;
	static const char text[] = "Status: 404 Not Found\r\nExpires: Fri, 01 Jan 1980 00:00:00 GMT\r\n"
				   "content-type:  text/plain\r\n\r\nbody\r\n\r\n";
	const size_t whole = strlen(text) - strlen("body\r\n\r\n");
	struct cgi_head h;
	for (size_t n = 0; n <= sizeof text - 1; n++) {
		int rc = head(text, n, &h);
		assert_int_equal(rc, n < whole ? 0 : (int)whole);
	}
	assert_int_equal(h.status, 404);
	assert_string_equal(h.content_type, "text/plain");
	assert_int_equal(head("A: b\n\nx", 7, &h), 6);
	assert_int_equal(h.status, 200);
	assert_string_equal(h.content_type, "");
}

static void a_reply_head_that_is_none_is_refused(void **s)
{
	(void)s;
	struct cgi_head h;
	const char *const bad[] = { "no colon\n", "Status: 20\n", "Status: 2000\n", "Status: abc\n",
		"Status: 99\n", "Content-Type: a\rb\n", "PACK\n" };
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
		assert_int_equal(head(bad[i], strlen(bad[i]), &h), -1);
	assert_int_equal(head("A: \0b\n", 6, &h), -1);
	static char endless[CGI_HEAD_MAX];
	memset(endless, 'a', sizeof endless);
	assert_int_equal(head(endless, sizeof endless - 1, &h), 0);
	assert_int_equal(head(endless, sizeof endless, &h), -1);
	char long_type[200] = "Content-Type: ";
	memset(long_type + 14, 'x', 100);
	long_type[114] = '\n';
	assert_int_equal(head(long_type, 115, &h), -1);
}

static enum push_start start(const char *s)
{
	size_t used;
	return push_start(s, strlen(s), &used);
}

#define ID "1111111111111111111111111111111111111111"

/* FRG-3: what names nothing is told from what names something, whichever way it is framed. */
/* As git 2.39 says it for such bodies. */
static void a_clients_fault_is_told_from_gits_own(void **s)
{
	(void)s;
	static const char *const theirs[] = { "fatal: protocol error: bad line length character: garb\n",
		"fatal: git upload-pack: protocol error, expected to get object ID, not 'hello'\n",
		"fatal: the remote end hung up unexpectedly\n", "fatal: invalid command 'ls-refz'\n",
		"error: inflate: data stream error\nfatal: zlib error inflating request, result -3\n",
		"fatal: request ended in the middle of the gzip stream\n",
		"fatal: unknown capability 'want x'\n", "fatal: git upload-pack: not our ref 1111\n" };
	static const char *const ours[] = { "", "fatal: bad object refs/heads/main\n",
		"fatal: unable to create temporary file: No space left on device\n",
		"fatal: not a git repository: '/x'\n", "error: unable to read sha1 file\n" };
	for (size_t i = 0; i < sizeof theirs / sizeof *theirs; i++)
		assert_non_null(cgi_client_fault(theirs[i]));
	for (size_t i = 0; i < sizeof ours / sizeof *ours; i++)
		assert_null(cgi_client_fault(ours[i]));
}

static void a_push_that_names_nothing_is_seen(void **s)
{
	(void)s;
	assert_int_equal(start(""), PUSH_MORE);
	assert_int_equal(start("000"), PUSH_MORE);
	assert_int_equal(start("0000"), PUSH_NOTHING);
	assert_int_equal(start("0000PACK"), PUSH_NOTHING);
	static const char with_lf[] = "0035shallow " ID "\n";
	assert_int_equal(start(with_lf), PUSH_MORE);
	assert_int_equal(start("0033shallow " ID "0000"), PUSH_COMMANDS); /* a length that lies */
	assert_int_equal(start("0034shallow " ID "0000"), PUSH_NOTHING);
	assert_int_equal(start("0034shallow " ID "0034shallow " ID "0000PACK"), PUSH_NOTHING);
	assert_int_equal(start("0034shallow " ID), PUSH_MORE);
	assert_int_equal(start("0034shal"), PUSH_MORE);
	assert_int_equal(start("0034shallow " ID "0067" ID), PUSH_COMMANDS);
	assert_int_equal(start("0067" ID " " ID " refs/heads/x"), PUSH_COMMANDS);
	assert_int_equal(start("00681"), PUSH_COMMANDS);
	assert_int_equal(start("0001"), PUSH_COMMANDS);
	assert_int_equal(start("0004"), PUSH_MORE);
	assert_int_equal(start("PACK"), PUSH_COMMANDS);
	assert_int_equal(start("zzzz"), PUSH_COMMANDS);
	size_t used = 0;
	assert_int_equal(push_start("0000PACK", 8, &used), PUSH_NOTHING);
	assert_int_equal(used, 4);
}

/* FRG-4 */
static void a_path_is_refused_with_the_rule_it_breaks(void **s)
{
	(void)s;
	const struct {
		const char *path, *says;
	} rows[] = { { "a", NULL }, { "a/b/c.txt", NULL }, { "...", NULL }, { ".github/x", NULL },
		{ ".gitignore", NULL }, { "a b/\xc3\xa4\xe2\x82\xac", NULL }, { "-x", NULL },
		{ ":(top)x", NULL }, { "git", NULL }, { ".git2", NULL }, { "", "empty" },
		{ "/a", "relative" }, { "a/", "relative" }, { "a//b", "relative" }, { ".", "'..'" },
		{ "a/./b", "'..'" }, { "../a", "'..'" }, { "a/..", "'..'" }, { "a\\b", "backslash" },
		{ "..\\a", "backslash" }, { "a\nb", "control" }, { "a\tb", "control" }, { "\x7f", "control" },
		{ ".git", ".git" }, { ".git/config", ".git" }, { "a/.GIT/hooks/x", ".git" },
		{ ".git ", ".git" }, { ".git.", ".git" }, { ".git . .", ".git" },
		{ ".git::$INDEX_ALLOCATION/x", ".git" }, { "GIT~1", ".git" }, { ".g\xe2\x80\x8cit", ".git" },
		{ "\xef\xbb\xbf.git", ".git" }, { ".git\xe2\x81\xaf", ".git" } };
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct err e = { 0 };
		int rc = push_path_check(rows[i].path, &e);
		if ((rc == 0) != (rows[i].says == NULL) || (rc != 0 && strstr(e.msg, rows[i].says) == NULL))
			fail_msg("\"%s\": %d %s", rows[i].path, rc, e.msg);
	}
}

static void a_path_is_bounded_in_length_and_depth(void **s)
{
	(void)s;
	struct err e = { 0 };
	static char p[8192];
	memset(p, 'a', 255);
	assert_int_equal(push_path_check(p, &e), 0);
	p[255] = 'a';
	assert_int_equal(push_path_check(p, &e), -1);
	memset(p, 0, sizeof p);
	for (size_t i = 0; i < 63; i++)
		memcpy(p + 2 * i, "a/", 2);
	p[126] = 'a';
	err_clear(&e);
	assert_int_equal(push_path_check(p, &e), 0);
	memcpy(p + 127, "/a", 2);
	assert_int_equal(push_path_check(p, &e), -1);
	assert_non_null(strstr(e.msg, "64 parts"));
	for (size_t i = 0; i < 4097; i++)
		p[i] = i % 200 == 199 ? '/' : 'a';
	err_clear(&e);
	assert_int_equal(push_path_check(p, &e), -1);
	assert_non_null(strstr(e.msg, "4096"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_reply_head_is_read_whichever_way_it_is_cut),
		cmocka_unit_test(a_reply_head_that_is_none_is_refused),
		cmocka_unit_test(a_clients_fault_is_told_from_gits_own),
		cmocka_unit_test(a_push_that_names_nothing_is_seen),
		cmocka_unit_test(a_path_is_refused_with_the_rule_it_breaks),
		cmocka_unit_test(a_path_is_bounded_in_length_and_depth),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
