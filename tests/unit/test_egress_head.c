/* EGR-6: request heads. The rows are in tests/cases/egress/requests.csv. */
#include "../t.h"

#include <string.h>

#include "../chance.h"
#include "../csv.h"
#include "base/buf.h"
#include "egress/decide.h"
#include "egress/head.h"

#define ALLOWED "allowed.example"
#define PORT    "8080"

static struct egress_policy *policy(void)
{
	auto_json json_t *stored = json_pack("{s:[s,s]}", "allowedHosts", ALLOWED, ALLOWED ":" PORT);
	struct err e = { 0 };
	struct egress_policy *p = policy_parse(stored, &e);
	assert_non_null(p);
	return p;
}

/* What a proxy of these functions answers to a client that sends p[0..n) and then nothing: "200_then_403", and what the origin sees. */
struct played {
	char statuses[64];
	enum egress_reason reason; /* of the last answer */
	struct buf seen;
};

static void status(struct played *t, enum egress_reason why)
{
	size_t n = strlen(t->statuses);
	(void)snprintf(
	    t->statuses + n, sizeof t->statuses - n, "%s%d", n > 0 ? "_then_" : "", reason_status(why));
	t->reason = why;
}

/* The body that came with the head; false: malformed. */
static bool body(const struct head *h, const char *p, size_t n, size_t *used)
{
	struct head_chunks c = { 0 };
	*used = h->body == BODY_LENGTH ? (h->length < n ? (size_t)h->length : n) : 0;
	return h->body != BODY_CHUNKED || head_chunks(&c, p, n, used) != HEAD_BAD;
}

/* One request; how many bytes it was, 0: the connection is closed. */
static size_t one(struct played *t, const struct egress_policy *p, const char *text, size_t n, bool fin)
{
	static const struct egress_site site;
	struct head h = { 0 };
	struct egress_decision d;
	size_t used;
	enum head_step step = head_read(&h, text, n, false);
	if (step == HEAD_MORE) {
		if (!fin)
			status(t, REASON_HEAD_TIMEOUT);
		else
			t->reason = REASON_EOF;
		return 0;
	}
	if (step == HEAD_BAD) {
		status(t, h.reason);
		return 0;
	}
	decide_name(&site, p, h.form, &h.host, h.port, &d);
	if (d.step == DECIDE_REFUSE) {
		status(t, d.reason);
		return 0;
	}
	if (!body(&h, text + h.n, n - h.n, &used)) {
		status(t, REASON_CHUNK_BAD);
		return 0;
	}
	status(t, REASON_OK);
	if (h.form == FORM_CONNECT) {
		(void)buf_add(&t->seen, text + h.n, n - h.n);
		return 0;
	}
	char out[HEAD_MAX + HEAD_ADDED_MAX];
	size_t m = head_forward(&h, NULL, true, out, sizeof out);
	assert_true(m > 0);
	(void)buf_add(&t->seen, out, m);
	(void)buf_add(&t->seen, text + h.n, used);
	return h.keep ? h.n + used : 0;
}

static struct played play(const char *text, size_t n, bool fin)
{
	struct played t = { .seen = BUF(1 << 20) };
	struct egress_policy *p = policy();
	for (size_t at = 0, used = 1; at < n && used > 0; at += used)
		used = one(&t, p, text + at, n - at, fin);
	policy_unref(p);
	return t;
}

static void put_template(struct buf *b, const char *t)
{
	char big[32 * 1024];
	memset(big, 'x', sizeof big);
	for (; *t != 0; t++) {
		if (str_starts(t, "{A}") || str_starts(t, "{D}") || str_starts(t, "{P}")) {
			(void)buf_str(b, t[1] == 'A' ? ALLOWED : t[1] == 'D' ? "denied.example" : PORT);
			t += 2;
		} else if (str_starts(t, "{AU}")) {
			(void)buf_str(b, "ALLOWED.Example");
			t += 3;
		} else if (str_starts(t, "{LONG}")) {
			(void)buf_add(b, big, sizeof big);
			t += 5;
		} else {
			(void)buf_chr(b, *t);
		}
	}
}

/* "400_or_403" allows "400". Words for closing allow an answer before it, or none. */
static bool allows(const char *expect, const struct played *t)
{
	static const char *const words[][2] = { { "200_host_rewritten", "200" },
		{ "200_without_upgrade", "200" }, { "200_cl5", "200" } };
	for (const char *at = expect; *at != 0;) {
		const char *end = strstr(at, "_or_");
		struct str word = { at, end == NULL ? strlen(at) : (size_t)(end - at) };
		if (str_eq(word, t->statuses) || (str_eq(word, "close") && t->statuses[0] == 0))
			return true;
		for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
			if (str_eq(word, words[i][0]) && strcmp(words[i][1], t->statuses) == 0)
				return true;
		at += word.n + (end == NULL ? 0 : 4);
	}
	return false;
}

static bool contains(const struct buf *b, const char *what)
{
	return b->n >= strlen(what) && memmem(b->p, b->n, what, strlen(what)) != NULL;
}

/* The last word on what reached the origin. */
static void seen_as_said(const char *id, const char *may_see, const struct played *t)
{
	auto_buf struct buf want = BUF(1000);
	put_template(&want, may_see);
	bool passed = strncmp(t->statuses, "200", 3) == 0;
	if (!passed && t->seen.n > 0)
		fail_msg("%s: the origin saw %zu bytes", id, t->seen.n);
	if (strcmp(may_see, "no Proxy-Authorization") == 0) {
		assert_false(contains(&t->seen, "Proxy-Authorization"));
		assert_false(contains(&t->seen, "c2VjcmV0"));
	} else if (passed && strcmp(may_see, "nothing") != 0 && strcmp(may_see, "tunnel") != 0) {
		if (!contains(&t->seen, buf_c(&want)))
			fail_msg("%s: the origin did not see %s", id, buf_c(&want));
	}
	if (contains(&t->seen, "denied.example") || contains(&t->seen, "Upgrade"))
		fail_msg("%s: the origin saw what it must not", id);
}

static void every_row_of_requests_is_answered_as_it_says(void **s)
{
	(void)s;
	struct csv c = csv_open("tests/cases/egress/requests.csv");
	int n = 0;
	for (; csv_next(&c); n++) {
		auto_buf struct buf text = BUF(200 * 1024);
		auto_free char *raw = xstrdup(csv_get(&c, "raw_escaped"));
		char *cut = strchr(raw, '<'); /* "<stall>" or "<fin>" */
		bool fin = cut != NULL && strcmp(cut, "<fin>") == 0;
		if (cut != NULL)
			*cut = 0;
		/* No row has a NUL before it is unescaped, and placeholders hold no escapes. */
		size_t len = csv_unescape(raw);
		for (size_t at = 0; at < len; at += strlen(raw + at) + 1) {
			put_template(&text, raw + at);
			if (at + strlen(raw + at) < len)
				(void)buf_chr(&text, 0);
		}
		struct played t = play(buf_c(&text), text.n, fin);
		const char *id = csv_get(&c, "id"), *expect = csv_get(&c, "expect"),
			   *reason = csv_get(&c, "reason");
		if (!allows(expect, &t))
			fail_msg("%s: %s (%s) and not %s", id, t.statuses, reason_name(t.reason), expect);
		bool choice = strncmp(t.statuses, "200", 3) == 0;
		if (!choice && strcmp(reason_name(t.reason), reason) != 0)
			fail_msg("%s: %s and not %s", id, reason_name(t.reason), reason);
		seen_as_said(id, csv_get(&c, "upstream_may_see"), &t);
		buf_free(&t.seen);
	}
	csv_close(&c);
	assert_int_equal(n, 68);
}

static enum egress_reason reason_of(const char *text, bool transparent)
{
	struct head h = { 0 };
	enum head_step step = head_read(&h, text, strlen(text), transparent);
	return step == HEAD_DONE ? REASON_OK : step == HEAD_MORE ? REASON_NONE : h.reason;
}

/* Kinds that no row has. */
static void what_can_be_read_in_two_ways_is_refused(void **s)
{
	(void)s;
	static const struct {
		const char *text;
		enum egress_reason why;
	} all[] = {
		{ "GET http://a.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n", REASON_OK },
		{ "GET http://a.example HTTP/1.1\r\nHost: a.example\r\n\r\n", REASON_OK },
		{ "GET HTTP://a.example?x HTTP/1.1\r\nHost:\r\n\r\n", REASON_OK },
		{ "GET http://a.example/ HTTP/1.0\r\n\r\n", REASON_OK },
		{ "CONNECT a.example:443 HTTP/1.0\r\n\r\n", REASON_OK },
		{ "CONNECT a.example:443 HTTP/1.1\r\nHost: a.example\r\n\r\n", REASON_OK },
		{ "CONNECT [2606:4700::1111]:443 HTTP/1.1\r\nHost: [2606:4700:0::1111]:443\r\n\r\n",
		    REASON_OK },
		{ "POST http://a.example/ HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n", REASON_OK },
		{ "GET http://a.example/ HTTP/1.1\r\nHost: a\r\nX:\r\nY: \t z \t\r\n\r\n", REASON_OK },
		{ "GET http://a.example/ HTTP/1.1\r\nHost: a\r\nX: \xc3\xbc\r\n\r\n", REASON_OK },
		{ "GET http://a.example/ HTTP/1.1\r\nHost: a", REASON_NONE },
		{ "\r\nGET http://a.example/ HTTP/1.1\r\nHost: a\r\n\r\n", REASON_OK },
		{ "\r\n\r\nGET http://a.example/ HTTP/1.1\r\nHost: a\r\n\r\n", REASON_BAD_REQUEST_LINE },
		{ "connect a.example:443 HTTP/1.1\r\nHost: a.example\r\n\r\n", REASON_BAD_TARGET },
		{ "CONNECT a.example:443 HTTP/1.1\r\nHost: b.example:443\r\n\r\n", REASON_HOST_MISMATCH },
		{ "CONNECT a.example:443 HTTP/1.1\r\nHost: a.example:80\r\n\r\n", REASON_HOST_MISMATCH },
		{ "CONNECT a.example:443 HTTP/1.1\r\nHost: a example\r\n\r\n", REASON_BAD_HOST },
		{ "CONNECT a.example:443 HTTP/1.1\r\nHost: a.example\r\nContent-Length: 0\r\n\r\n",
		    REASON_CONNECT_BODY },
		{ "CONNECT a.example:443 HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n",
		    REASON_CONNECT_BODY },
		{ "POST http://a.example/ HTTP/1.1\r\nHost: a\r\nContent-Length: +5\r\n\r\n", REASON_CL_BAD },
		{ "POST http://a.example/ HTTP/1.1\r\nHost: a\r\nContent-Length: 05\r\n\r\n", REASON_CL_BAD },
		{ "POST http://a.example/ HTTP/1.1\r\nHost: a\r\nContent-Length: 5 5\r\n\r\n",
		    REASON_CL_BAD },
		{ "POST http://a.example/ HTTP/1.1\r\nHost: a\r\nContent-Length:\r\n\r\n", REASON_CL_BAD },
		{ "POST http://a.example/ HTTP/1.1\r\nHost: a\r\ncontent-length: 5\r\nCONTENT-LENGTH: "
		  "5\r\n\r\n",
		    REASON_CL_DUPLICATE },
		{ "POST http://a.example/ HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
		    REASON_TE_BAD },
		{ "POST http://a.example/ HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: identity\r\n\r\n",
		    REASON_TE_BAD },
		{ "POST http://a.example/ HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked;x\r\n\r\n",
		    REASON_TE_BAD },
		{ "POST http://a.example/ HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: "
		  "CHUNKED\r\nTransfer-Encoding: chunked\r\n\r\n",
		    REASON_TE_BAD },
		{ "POST http://a.example/ HTTP/1.1\r\nHost: a\r\ntransfer-encoding: "
		  "Chunked\r\ncontent-length: 1\r\n\r\n",
		    REASON_TE_AND_CL },
		{ "POST http://a.example/ HTTP/1.1\r\nHost: a\r\nExpect: 200-ok\r\n\r\n",
		    REASON_EXPECTATION },
		{ "GET http://a.example/ HTTP/1.1\r\n X: y\r\nHost: a\r\n\r\n", REASON_OBS_FOLD },
		{ "GET http://a.example/ HTTP/1.1\r\nHost: a\r\n: y\r\n\r\n", REASON_BAD_HEADER },
		{ "GET http://a.example/ HTTP/1.1\r\nHost: a\r\nX\r\n\r\n", REASON_BAD_HEADER },
		{ "GET http://a.example/ HTTP/1.1\r\nHost: a\r\nX Y: z\r\n\r\n", REASON_BAD_HEADER },
		{ "GET http://a.example/ HTTP/1.1\r\nHost: a\r\nX: \x7f\r\n\r\n", REASON_BAD_CHAR },
		{ "GET http://a.example/\xc3\xbc HTTP/1.1\r\nHost: a\r\n\r\n", REASON_BAD_CHAR },
		{ "GET http://a.example/\t HTTP/1.1\r\nHost: a\r\n\r\n", REASON_BAD_CHAR },
		{ "GET http://a.example/ HTTP/1.1 \r\nHost: a\r\n\r\n", REASON_BAD_REQUEST_LINE },
		{ "GET\thttp://a.example/\tHTTP/1.1\r\nHost: a\r\n\r\n", REASON_BAD_REQUEST_LINE },
		{ "GET http://a.example/ http/1.1\r\nHost: a\r\n\r\n", REASON_BAD_VERSION },
		{ "GET http://a.example:/ HTTP/1.1\r\nHost: a\r\n\r\n", REASON_BAD_PORT },
		{ "GET http://a.example:00080/ HTTP/1.1\r\nHost: a\r\n\r\n", REASON_BAD_PORT },
		{ "GET http://a.example\\@b.example/ HTTP/1.1\r\nHost: a\r\n\r\n", REASON_BAD_HOST },
		{ "GET http:a.example/ HTTP/1.1\r\nHost: a\r\n\r\n", REASON_BAD_TARGET },
		{ "GET http:/a.example/ HTTP/1.1\r\nHost: a\r\n\r\n", REASON_BAD_TARGET },
		{ "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n", REASON_BAD_TARGET },
		{ "TRACK http://a.example/ HTTP/1.1\r\nHost: a\r\n\r\n", REASON_METHOD_NOT_ALLOWED },
		{ "\x05\x01\x00", REASON_NOT_HTTP },
		{ "{\"a\":1}\r\n", REASON_NOT_HTTP },
	};
	for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
		if (reason_of(all[i].text, false) != all[i].why)
			fail_msg("%s: %s", all[i].text, reason_name(reason_of(all[i].text, false)));
}

/* EGR-16 */
static void a_transparent_listener_takes_the_host_from_its_field(void **s)
{
	(void)s;
	struct head h = { 0 };
	static const char text[] = "GET /x?y HTTP/1.1\r\nHost: A.Example:8080\r\n\r\n";
	assert_int_equal(head_read(&h, text, sizeof text - 1, true), HEAD_DONE);
	assert_string_equal(h.host.name, "a.example");
	assert_int_equal(h.port, 8080);
	assert_int_equal(h.form, FORM_TRANSPARENT);
	assert_true(str_eq(h.path, "/x?y"));
	assert_int_equal(reason_of("GET / HTTP/1.0\r\n\r\n", true), REASON_HOST_MISSING);
	assert_int_equal(reason_of("GET / HTTP/1.1\r\nHost: a b\r\n\r\n", true), REASON_BAD_HOST);
	assert_int_equal(reason_of("GET http://a/ HTTP/1.1\r\nHost: a\r\n\r\n", true), REASON_BAD_TARGET);
	assert_int_equal(reason_of("CONNECT a:443 HTTP/1.1\r\nHost: a\r\n\r\n", true), REASON_BAD_TARGET);
	assert_int_equal(reason_of("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n", true), REASON_OK);
}

static void what_is_sent_on_is_written_anew(void **s)
{
	(void)s;
	static const char text[] =
	    "POST http://A.Example:81?q HTTP/1.1\r\nHost: evil\r\nConnection: X-Drop, close, "
	    "Content-Length\r\n"
	    "X-Drop: 1\r\nx-keep:  2 \r\nProxy-Authorization: Basic eA==\r\nProxy-: x\r\nProxy-Connection: "
	    "keep-alive\r\n"
	    "X-Forwarded-For: 1.2.3.4\r\nTE: trailers\r\nUpgrade: h2c\r\nHTTP2-Settings: "
	    "x\r\nContent-Length: 3\r\n"
	    "Authorization: mine\r\nExpect: 100-continue\r\n\r\nabc";
	struct head h = { 0 };
	char out[2048];
	assert_int_equal(head_read(&h, text, sizeof text - 1, false), HEAD_DONE);
	assert_int_equal(h.n, sizeof text - 4);
	assert_false(h.keep);
	const struct head_set set[] = { { "authorization", "Bearer ours" }, { "x-more", "2" }, { 0 } };
	size_t n = head_forward(&h, set, true, out, sizeof out - 1);
	out[n] = 0;
	assert_string_equal(out,
	    "POST /?q HTTP/1.1\r\nHost: a.example:81\r\nx-keep: 2\r\nContent-Length: 3\r\nExpect: "
	    "100-continue\r\n"
	    "authorization: Bearer ours\r\nx-more: 2\r\nConnection: keep-alive\r\n\r\n");
	/* And it is itself a request that is understood in the same way. */
	struct head again = { 0 };
	assert_int_equal(head_read(&again, out, n, true), HEAD_DONE);
	assert_true(host_equal(&again.host, &h.host) && again.port == h.port && again.length == 3);
	assert_int_equal(head_forward(&h, NULL, true, out, 100), 0); /* does not fit */
}

static void an_empty_path_is_the_root_or_the_whole_server(void **s)
{
	(void)s;
	static const struct {
		const char *line, *sent;
	} all[] = { { "GET http://a", "GET / HTTP/1.1\r\n" },
		{ "OPTIONS http://a", "OPTIONS * HTTP/1.1\r\n" },
		{ "OPTIONS http://a/", "OPTIONS / HTTP/1.1\r\n" },
		{ "OPTIONS http://a?q", "OPTIONS /?q HTTP/1.1\r\n" } };
	for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
		char text[200], out[400];
		struct head h = { 0 }, again = { 0 };
		int n = snprintf(text, sizeof text, "%s HTTP/1.1\r\nHost: a\r\n\r\n", all[i].line);
		assert_int_equal(head_read(&h, text, (size_t)n, false), HEAD_DONE);
		size_t m = head_forward(&h, NULL, true, out, sizeof out);
		assert_memory_equal(out, all[i].sent, strlen(all[i].sent));
		assert_int_equal(head_read(&again, out, m, true), HEAD_DONE);
	}
}

static void a_connection_is_kept_when_both_sides_say_so(void **s)
{
	(void)s;
	static const struct {
		const char *fields;
		int minor;
		bool keep;
	} all[] = { { "", 1, true }, { "Connection: close\r\n", 1, false },
		{ "Proxy-Connection: close\r\n", 1, false }, { "Connection: x, CLOSE\r\n", 1, false },
		{ "", 0, false }, { "Connection: keep-alive\r\n", 0, true },
		{ "Proxy-Connection: Keep-Alive\r\n", 0, true },
		{ "Connection: keep-alive, close\r\n", 0, false } };
	for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
		char text[200];
		struct head h = { 0 };
		int n = snprintf(text, sizeof text, "GET http://a/ HTTP/1.%d\r\nHost: a\r\n%s\r\n",
		    all[i].minor, all[i].fields);
		assert_int_equal(head_read(&h, text, (size_t)n, false), HEAD_DONE);
		assert_int_equal(h.keep, all[i].keep);
	}
}

static void as_many_fields_as_are_read_are_sent_on(void **s)
{
	(void)s;
	auto_buf struct buf text = BUF(HEAD_MAX), sent = BUF(HEAD_MAX);
	static char out[HEAD_MAX];
	struct head h = { 0 }, over = { 0 };
	assert_int_equal(buf_str(&text, "GET http://a/ HTTP/1.0\r\n"), 0);
	for (int i = 0; i < HEAD_FIELDS_MAX; i++)
		assert_int_equal(buf_str(&text, "x: y\r\n") | buf_str(&sent, "x: y\r\n"), 0);
	assert_int_equal(buf_str(&text, "\r\n"), 0);
	assert_int_equal(head_read(&h, text.p, text.n, false), HEAD_DONE);
	out[head_forward(&h, NULL, false, out, sizeof out - 1)] = 0;
	assert_non_null(strstr(out, buf_c(&sent)));
	text.n -= 2;
	assert_int_equal(buf_str(&text, "x: y\r\n\r\n"), 0);
	assert_int_equal(head_read(&over, text.p, text.n, false), HEAD_BAD);
	assert_int_equal(over.reason, REASON_HEAD_TOO_LONG);
}

/* ---- however it is cut */

struct verdict {
	enum head_step step;
	enum egress_reason reason;
	size_t n;
	char out[HEAD_MAX];
	size_t out_n;
};

/* The first k bytes, then one more at a time in a buffer that moves, then all. */
static void read_cut(const char *text, size_t n, size_t k, struct verdict *v)
{
	struct head h = { 0 };
	v->step = HEAD_MORE;
	for (size_t have = k; v->step == HEAD_MORE && have <= n; have = have < k + 3 && have < n ? have + 1
		 : have < n                                                                      ? n
												 : n + 1) {
		char *moved = xcalloc(1, have + 1);
		memcpy(moved, text, have);
		v->step = head_read(&h, moved, have, false);
		v->reason = h.reason;
		v->n = h.n;
		v->out_n = v->step == HEAD_DONE ? head_forward(&h, NULL, true, v->out, sizeof v->out) : 0;
		free(moved);
	}
}

static void a_head_is_the_same_however_it_is_cut(void **s)
{
	(void)s;
	struct csv c = csv_open("tests/cases/egress/requests.csv");
	while (csv_next(&c)) {
		auto_buf struct buf text = BUF(200 * 1024);
		if (strstr(csv_get(&c, "raw_escaped"), "{LONG}") != NULL)
			continue;
		auto_free char *raw = xstrdup(csv_get(&c, "raw_escaped"));
		(void)buf_add(&text, raw, csv_unescape(raw));
		static struct verdict whole, cut;
		read_cut(buf_c(&text), text.n, text.n, &whole);
		for (size_t k = 0; k <= text.n; k++) {
			read_cut(buf_c(&text), text.n, k, &cut);
			if (cut.step != whole.step || cut.reason != whole.reason ||
			    (cut.step == HEAD_DONE &&
				(cut.n != whole.n || cut.out_n != whole.out_n ||
				    memcmp(cut.out, whole.out, cut.out_n) != 0)))
				fail_msg("%s cut at %zu", csv_get(&c, "id"), k);
		}
	}
	csv_close(&c);
}

/* Whatever comes: an answer, in bounds (the sanitizers watch), and what is sent on is understood in the same way. */
static void no_head_breaks_the_reader_or_what_is_sent_on(void **s)
{
	(void)s;
	static const char whole[] =
	    "POST http://a.example:81/p?q HTTP/1.1\r\nHost: a.example:81\r\nContent-Length: "
	    "12\r\nConnection: close, x\r\n"
	    "X: y\r\nTransfer-Encoding: chunked\r\nExpect: 100-continue\r\nProxy-Authorization: z\r\n\r\n";
	static const char bytes[] = "\r\n\t :/?#@[]0159aAzZ,;\0\x7f\x80\xff.-";
	char text[sizeof whole + 8], out[HEAD_MAX];
	uint64_t seed = 1;
	for (int i = 0; i < 50000; i++) {
		unsigned char r[12];
		chance_bytes(&seed, r, sizeof r);
		size_t n = sizeof whole - 1;
		memcpy(text, whole, n);
		for (int k = 0; k < i % 4; k++) {
			size_t at = (size_t)(r[k] | r[k + 4] << 8) % n;
			if (r[8] % 2 == 0)
				text[at] = bytes[r[8 + k] % (sizeof bytes - 1)];
			else {
				memmove(text + at, text + at + 1, n - at - 1);
				n--;
			}
		}
		struct head h = { 0 }, again = { 0 };
		if (head_read(&h, text, n, false) != HEAD_DONE || h.form != FORM_HTTP)
			continue;
		size_t m = head_forward(&h, NULL, h.keep, out, sizeof out);
		assert_true(m > 0);
		assert_int_equal(head_read(&again, out, m, true), HEAD_DONE);
		assert_int_equal(again.n, m);
		assert_true(host_equal(&h.host, &again.host) && h.port == again.port);
		assert_true(h.body == again.body && h.length == again.length && h.keep == again.keep);
		assert_null(memmem(out, m, "\nProxy-", 7));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_row_of_requests_is_answered_as_it_says),
		cmocka_unit_test(what_can_be_read_in_two_ways_is_refused),
		cmocka_unit_test(a_transparent_listener_takes_the_host_from_its_field),
		cmocka_unit_test(what_is_sent_on_is_written_anew),
		cmocka_unit_test(an_empty_path_is_the_root_or_the_whole_server),
		cmocka_unit_test(a_connection_is_kept_when_both_sides_say_so),
		cmocka_unit_test(as_many_fields_as_are_read_are_sent_on),
		cmocka_unit_test(a_head_is_the_same_however_it_is_cut),
		cmocka_unit_test(no_head_breaks_the_reader_or_what_is_sent_on),
	};
	return cmocka_run_group_tests_name("egress head", tests, NULL, NULL);
}
