/* The Connect protocol and multipart bodies, as the E2B SDK sends them (ECO-1). */
#include "../t.h"

#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/js.h"
#include "handlers/e2b_network.h"
#include "op/connect.h"
#include "op/multipart.h"

/* ---- a request whose body comes in pieces of `step` bytes, and what is answered */

struct fake {
	struct reply reply;
	const char *body, *type, *timeout;
	size_t n, at, step;
	int status;
	struct buf out;
	struct mem *mem;
	struct ctx c;
};

static ssize_t on_read(struct reply *r, void *p, size_t n)
{
	struct fake *f = (struct fake *)r;
	size_t left = f->n - f->at, k = n < f->step ? n : f->step;
	k = k < left ? k : left;
	memcpy(p, f->body + f->at, k);
	f->at += k;
	return (ssize_t)k;
}
static int on_head(struct reply *r, int status, const char *headers)
{
	(void)headers;
	((struct fake *)r)->status = status;
	return 0;
}
static int on_write(struct reply *r, const void *p, size_t n)
{
	return buf_add(&((struct fake *)r)->out, p, n);
}
static int on_flush(struct reply *r)
{
	(void)r;
	return 0;
}
static const char *on_param(struct reply *r, const char *name)
{
	const struct fake *f = (struct fake *)r;
	if (strcmp(name, "CONTENT_TYPE") == 0)
		return f->type;
	return strcmp(name, "HTTP_CONNECT_TIMEOUT_MS") == 0 ? f->timeout : NULL;
}
static const struct reply_vt vt = {
	.head = on_head, .write = on_write, .flush = on_flush, .read = on_read, .param = on_param
};

static struct ctx *request(struct fake *f, const void *body, size_t n, size_t step)
{
	*f = (struct fake){ .reply.vt = &vt,
		.body = body,
		.n = n,
		.step = step,
		.type = "application/connect+json",
		.out = BUF(1 << 20),
		.mem = mem_new() };
	f->c = (struct ctx){ .mem = f->mem, .reply = &f->reply, .request_id = "req_x" };
	return &f->c;
}
static void over(struct fake *f)
{
	mem_free(f->mem);
	buf_free(&f->out);
}

static void a_message_is_read_whatever_pieces_it_comes_in(void **s)
{
	(void)s;
	static const char body[] = "\0\0\0\0\x10{\"a\":{\"pid\":17}}";
	for (size_t step = 1; step < sizeof body; step++) {
		struct fake f;
		struct err e = { 0 };
		auto_json json_t *v = connect_read(request(&f, body, sizeof body - 1, step), 1000, &e);
		assert_non_null(v);
		assert_int_equal(js_int(js_get(v, "a"), "pid", 0), 17);
		over(&f);
	}
}

static void a_message_that_is_none_is_refused(void **s)
{
	(void)s;
	static const struct {
		const char *body;
		size_t n;
		enum err_code code;
	} bad[] = { { "\0\0\0\0\x11{\"a\":{\"pid\":17}}", 21, ERR_BAD_REQUEST }, /* cut */
		{ "\0\0\0", 3, ERR_BAD_REQUEST }, { "", 0, ERR_BAD_REQUEST },
		{ "\1\0\0\0\2{}", 7, ERR_BAD_REQUEST }, /* compressed */
		{ "\2\0\0\0\2{}", 7, ERR_BAD_REQUEST }, /* an end */
		{ "\0\0\0\0\2[]", 7, ERR_BAD_REQUEST }, /* no object */
		{ "\0\0\0\0\2{a", 7, ERR_BAD_REQUEST }, /* no JSON */
		{ "\0\0\0\4\0{}", 7, ERR_TOO_LARGE },   /* longer than is taken */
		{ "\0\xff\xff\xff\xff{}", 7, ERR_TOO_LARGE } };
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		struct fake f;
		struct err e = { 0 };
		assert_null(connect_read(request(&f, bad[i].body, bad[i].n, 3), 1000, &e));
		assert_int_equal(e.code, bad[i].code);
		over(&f);
	}
	struct fake f;
	struct err e = { 0 };
	(void)request(&f, "\0\0\0\0\2{}", 7, 7);
	f.type = "application/json";
	assert_null(connect_read(&f.c, 1000, &e));
	assert_int_equal(e.code, ERR_MEDIA);
	over(&f);
}

static void a_stream_is_messages_and_one_end(void **s)
{
	(void)s;
	struct fake f;
	struct err none = { 0 }, e = { 0 };
	struct ctx *c = request(&f, "", 0, 1);
	assert_int_equal(connect_begin(c), 0);
	assert_int_equal(connect_send(c, js_pack("{s:i}", "pid", 5)), 0);
	connect_end(c, &none);
	static const char want[] = "\0\0\0\0\x09{\"pid\":5}\2\0\0\0\2{}";
	assert_int_equal(f.status, 200);
	assert_int_equal(f.out.n, sizeof want - 1);
	assert_memory_equal(f.out.p, want, sizeof want - 1);
	over(&f);

	/* A call that never began has the status of a stream, too: its error is in its end. */
	c = request(&f, "", 0, 1);
	(void)err_set(&e, ERR_NOT_FOUND, "no");
	connect_end(c, &e);
	static const char error[] = "\2\0\0\0\x2f{\"error\":{\"code\":\"not_found\",\"message\":\"no\"}}";
	assert_int_equal(f.status, 200);
	assert_int_equal(f.out.n, 5 + strlen(error + 5));
	assert_memory_equal(f.out.p + 5, error + 5, strlen(error + 5));
	over(&f);
}

static void a_unary_error_has_the_status_of_its_code(void **s)
{
	(void)s;
	static const struct {
		enum err_code code;
		const char *reason, *want;
		int status;
	} rows[] = { { ERR_NOT_FOUND, NULL, "not_found", 404 },
		{ ERR_BAD_REQUEST, NULL, "invalid_argument", 400 },
		{ ERR_UNAUTHORIZED, NULL, "unauthenticated", 401 },
		{ ERR_UPSTREAM, CONNECT_OVER, "unavailable", 503 }, { ERR_UPSTREAM, "lost", "internal", 500 },
		{ ERR_UPSTREAM, NULL, "internal", 500 }, { ERR_UNAVAILABLE, NULL, "aborted", 409 },
		{ ERR_CONFLICT, NULL, "failed_precondition", 400 },
		{ ERR_CONFLICT, "already_exists", "already_exists", 409 },
		{ ERR_TIMEOUT, NULL, "deadline_exceeded", 504 },
		{ ERR_RATE, NULL, "resource_exhausted", 429 } };
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		struct fake f;
		struct err e = { 0 };
		struct ctx *c = request(&f, "", 0, 1);
		(void)err_set(&e, rows[i].code, "why");
		e.reason = rows[i].reason;
		connect_refuse(c, &e);
		assert_int_equal(f.status, rows[i].status);
		auto_json json_t *v = js_parse(f.out.p, f.out.n, &(struct err){ 0 });
		assert_string_equal(js_str(v, "code"), rows[i].want);
		assert_string_equal(js_str(v, "message"), "why");
		over(&f);
	}
}

static void a_deadline_is_a_number_of_milliseconds(void **s)
{
	(void)s;
	struct fake f;
	struct err e = { 0 };
	long long ms = -1;
	struct ctx *c = request(&f, "", 0, 1);
	assert_int_equal(connect_timeout(c, &ms, &e), 0);
	assert_int_equal(ms, 0);
	f.timeout = "60000";
	assert_int_equal(connect_timeout(c, &ms, &e), 0);
	assert_int_equal(ms, 60000);
	f.timeout = "1e3";
	assert_int_equal(connect_timeout(c, &ms, &e), -1);
	err_clear(&e);
	f.timeout = "99999999999";
	assert_int_equal(connect_timeout(c, &ms, &e), -1);
	over(&f);
}

/* ---- multipart */

static ssize_t read_fake(void *arg, void *p, size_t n)
{
	return on_read(arg, p, n);
}

static const char form[] =
    "preamble\r\n--b 1\r\nContent-Disposition: form-data; name=\"file\"; "
    "filename=\"/tmp/a %22b.txt\"\r\nContent-Type: text/plain\r\n\r\n"
    "one\r\n--b two\r\n--b\r\r\n--b 1  \r\n"
    "content-disposition: form-data; filename=x; name=file\r\n\r\n\r\n--b 1\r\n\r\nlast"
    "\r\n--b 1--\r\nepilogue";

/* Everything of a form as one text. */
static int all(const char *body, size_t n, size_t step, const char *type, struct buf *out, struct err *e)
{
	struct fake f;
	struct multipart_part part;
	(void)request(&f, body, n, step);
	struct multipart *m = multipart_open(f.mem, type, read_fake, &f, e);
	int more = m == NULL ? -1 : multipart_next(m, &part, e);
	for (; more > 0; more = multipart_next(m, &part, e)) {
		char piece[5];
		(void)buf_fmt(out, "[%s|%s|", part.name == NULL ? "" : part.name,
		    part.filename == NULL ? "" : part.filename);
		for (ssize_t k; (k = multipart_read(m, piece, sizeof piece)) != 0;) {
			if (k < 0)
				break;
			(void)buf_add(out, piece, (size_t)k);
		}
		(void)buf_chr(out, ']');
	}
	over(&f);
	return more;
}

static void a_form_is_the_same_however_it_is_cut(void **s)
{
	(void)s;
	for (size_t step = 1; step < sizeof form; step++) {
		auto_buf struct buf out = BUF(4096);
		struct err e = { 0 };
		assert_int_equal(all(form, sizeof form - 1, step,
				     "multipart/form-data; charset=x; boundary=\"b 1\"", &out, &e),
		    0);
		assert_string_equal(
		    buf_c(&out), "[file|/tmp/a \"b.txt|one\r\n--b two\r\n--b\r][file|x|][||last]");
	}
}

static void a_form_that_is_cut_short_is_an_error_and_never_a_part(void **s)
{
	(void)s;
	size_t whole = (size_t)(strstr(form, "--b 1--") - form) + 7;
	for (size_t n = 0; n < whole; n++) {
		auto_buf struct buf out = BUF(4096);
		struct err e = { 0 };
		assert_int_equal(all(form, n, 7, "multipart/form-data; boundary=\"b 1\"", &out, &e), -1);
		assert_int_equal(e.code, ERR_BAD_REQUEST);
	}
}

static void what_is_no_form_is_refused(void **s)
{
	(void)s;
	static const char *const types[] = { NULL, "", "multipart/mixed; boundary=x", "multipart/form-data",
		"multipart/form-data; boundary=", "multipart/form-dataX; boundary=x",
		"multipart/form-data; boundary=\"x",
		"multipart/form-data; "
		"boundary=01234567890123456789012345678901234567890123456789012345678901234567891" };
	for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
		auto_buf struct buf out = BUF(4096);
		struct err e = { 0 };
		assert_int_equal(all(form, sizeof form - 1, 100, types[i], &out, &e), -1);
		assert_true(e.code == ERR_MEDIA || e.code == ERR_BAD_REQUEST);
	}
}

/* ---- network rules */

/* The policy of a request as JSON, or the field that is refused. */
static void rules(const char *in, const char *want)
{
	struct err e = { 0 };
	auto_json json_t *v = js_parse(in, strlen(in), &e);
	assert_non_null(v);
	auto_json json_t *got = e2b_network(v, js_get(v, "network"), &e);
	auto_free char *text = got == NULL ? strdup(e.param)
					   : json_dumps(got, JSON_COMPACT | JSON_ENCODE_ANY);
	if (strcmp(text, want) != 0)
		fail_msg("%s: %s", in, text);
}

static void rules_are_taken_where_they_mean_the_same_and_refused_by_name_elsewhere(void **s)
{
	(void)s;
#define DENY "{\"mode\":\"deny-all\",\"allowedHosts\":[]}"
#define ALL  "{\"mode\":\"allow-all\",\"allowedHosts\":[]}"
	rules("{}", "null");
	rules("{\"allow_internet_access\":null}", "null");
	rules("{\"allow_internet_access\":false}", DENY);
	rules("{\"allow_internet_access\":true}", ALL);
	rules("{\"network\":{\"denyOut\":[\"0.0.0.0/0\"]}}", DENY);
	rules("{\"allow_internet_access\":true,\"network\":{\"denyOut\":[\"0.0.0.0/0\"]}}", DENY);
	rules("{\"network\":{\"allowOut\":[\"0.0.0.0/0\"]}}", ALL);
	rules("{\"network\":{\"allowOut\":[\"a.example\"],\"denyOut\":[\"0.0.0.0/0\"]}}",
	    "{\"mode\":\"static\",\"allowedHosts\":[\"a.example\"]}");
	rules("{\"network\":{\"allowOut\":[\"a.example\"]}}", "denyOut");
	rules("{\"network\":{\"denyOut\":[\"10.0.0.0/8\"]}}", "denyOut");
	rules("{\"network\":{\"denyOut\":[\"a.example\"]}}", "denyOut");
	rules("{\"network\":{\"allowOut\":[\"8.8.8.8\"],\"denyOut\":[\"0.0.0.0/0\"]}}", "allowOut");
	rules("{\"network\":{\"allowOut\":[\"8.8.8.0/24\"],\"denyOut\":[\"0.0.0.0/0\"]}}", "allowOut");
	rules("{\"network\":{\"allowOut\":[\"*.example.com\"],\"denyOut\":[\"0.0.0.0/0\"]}}", "allowOut");
	rules("{\"network\":{\"allowOut\":[\".example.com\"],\"denyOut\":[\"0.0.0.0/0\"]}}", "allowOut");
	rules("{\"allow_internet_access\":false,\"network\":{\"allowOut\":[\"a.example\"]}}", "allowOut");
	rules("{\"network\":{\"rules\":{}}}", "rules");
	rules("{\"network\":{\"egressProxy\":{}}}", "egressProxy");
	rules("{\"network\":{\"allowPublicTraffic\":true}}", "allowPublicTraffic");
	rules("{\"network\":{\"allowPublicTraffic\":false}}", "null");
	rules("{\"network\":{\"maskRequestHost\":\"x\"}}", "maskRequestHost");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_message_is_read_whatever_pieces_it_comes_in),
		cmocka_unit_test(a_message_that_is_none_is_refused),
		cmocka_unit_test(a_stream_is_messages_and_one_end),
		cmocka_unit_test(a_unary_error_has_the_status_of_its_code),
		cmocka_unit_test(a_deadline_is_a_number_of_milliseconds),
		cmocka_unit_test(a_form_is_the_same_however_it_is_cut),
		cmocka_unit_test(a_form_that_is_cut_short_is_an_error_and_never_a_part),
		cmocka_unit_test(what_is_no_form_is_refused),
		cmocka_unit_test(rules_are_taken_where_they_mean_the_same_and_refused_by_name_elsewhere),
	};
	return cmocka_run_group_tests_name("connect", tests, NULL, NULL);
}
