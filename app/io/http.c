#include "io/http.h"

#include <curl/curl.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/js.h"
#include "base/str.h"
#include "io/http_int.h"
#include "io/http_pool.h"

enum {
	REPLY_DEFAULT_BYTES = 1 << 20,
	ERROR_REPLY_BYTES = 64 * 1024, /* of an error while streaming; the rest is read and forgotten */
	PIECE_BYTES = 64 * 1024,
};

struct transfer {
	const struct http_req *q;
	struct http_res *res;
	CURL *easy;
	enum http_ending why;
	bool head_ended; /* the empty line after the last headers came */
	bool told;       /* on_head was called */
	struct http_watch watch;
	curl_off_t moved;
};

/* Headers may hold a credential. */
static void auto_slistp(struct curl_slist **p)
{
	for (struct curl_slist *l = *p; l != NULL; l = l->next)
		secret_wipe(l->data, strlen(l->data));
	curl_slist_free_all(*p);
}
static void auto_wipep(struct buf *b)
{
	if (b->p != NULL)
		secret_wipe(b->p, b->cap);
	buf_free(b);
}

void http_setup(void)
{
	(void)signal(
	    SIGPIPE, SIG_IGN); /* a TLS peer that went away; plain sockets are written with MSG_NOSIGNAL */
	if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
		abort();
}

void http_res_free(struct http_res *res)
{
	buf_free(&res->body);
}

/* ---- what curl calls */

static size_t on_body(char *p, size_t size, size_t n, void *arg)
{
	struct transfer *t = arg;
	n *= size;
	long status = 0;
	(void)curl_easy_getinfo(t->easy, CURLINFO_RESPONSE_CODE, &status);
	t->res->status = (int)status;
	t->why = http_take(t->q, t->res, p, n);
	return t->why == HTTP_GOING ? n : CURL_WRITEFUNC_ERROR;
}

/* A value that does not fit is left out, never cut. */
static void copy_header(CURL *c, const char *name, char *out, size_t size)
{
	struct curl_header *h = NULL;
	if (curl_easy_header(c, name, 0, CURLH_HEADER, -1, &h) == CURLHE_OK && strlen(h->value) < size)
		memcpy(out, h->value, strlen(h->value) + 1);
}

static int64_t retry_after_ms(CURL *c)
{
	char text[24] = "";
	long long ms = -1;
	copy_header(c, "retry-after-ms", text, sizeof text); /* some model vendors', finer than seconds */
	if (text[0] != 0 && str_int(text, 0, INT_MAX, &ms))
		return ms;
	curl_off_t s = 0; /* of both forms, a date as the difference from now */
	text[0] = 0;
	(void)curl_easy_getinfo(c, CURLINFO_RETRY_AFTER, &s);
	copy_header(c, "Retry-After", text, sizeof text);
	return s > 0 ? (s < INT_MAX ? s * 1000 : INT_MAX) : strcmp(text, "0") == 0 ? 0 : -1;
}

static void take_head(const struct transfer *t)
{
	struct http_res *res = t->res;
	long status = 0;
	(void)curl_easy_getinfo(t->easy, CURLINFO_RESPONSE_CODE, &status);
	res->status = (int)status;
	copy_header(t->easy, "Content-Type", res->content_type, sizeof res->content_type);
	copy_header(t->easy, "Location", res->location, sizeof res->location);
	res->retry_after_ms = retry_after_ms(t->easy);
}

static size_t on_header(char *p, size_t size, size_t n, void *arg)
{
	struct transfer *t = arg;
	if (size * n >= 5 && memcmp(p, "HTTP/", 5) == 0) /* also after an interim answer */
		t->head_ended = false;
	else if (size * n > 0 && (p[0] == '\r' || p[0] == '\n'))
		t->head_ended = true;
	if (t->q->on_head == NULL || !t->head_ended || t->told)
		return size * n;
	take_head(t);
	if (t->res->status < 200) /* an interim answer */
		return size * n;
	t->told = true;
	if (t->q->on_head(t->q->arg, t->res) == 0)
		return size * n;
	t->why = HTTP_CANCELLED;
	return 0;
}

static size_t on_send(char *p, size_t size, size_t n, void *arg)
{
	struct transfer *t = arg;
	ssize_t got = t->q->body_read(t->q->arg, p, size * n);
	if (got >= 0)
		return (size_t)got;
	t->why = HTTP_CANCELLED;
	return CURL_READFUNC_ABORT;
}

static curl_socket_t on_socket(void *arg, curlsocktype purpose, struct curl_sockaddr *a)
{
	(void)arg;
	(void)purpose;
	return socket(a->family, a->socktype | SOCK_CLOEXEC, a->protocol);
}

/* ---- the request */

static int add_header(struct curl_slist **to, const char *line, struct err *e)
{
	if (http_line_ok(line, e) != 0)
		return -1;
	struct curl_slist *l = curl_slist_append(*to, line);
	if (l == NULL)
		abort();
	*to = l;
	return 0;
}

static int headers(const struct http_req *q, struct curl_slist **to, struct err *e)
{
	/* Without them curl adds a wait of up to a second before larger bodies, and a content type nobody meant. */
	if (add_header(to, "Expect:", e) != 0)
		return -1;
	bool typed = false;
	for (const char *const *h = q->headers; h != NULL && *h != NULL; h++) {
		typed = typed || strncasecmp(*h, "Content-Type:", 13) == 0;
		if (add_header(to, *h, e) != 0)
			return -1;
	}
	if (!typed && add_header(to, "Content-Type:", e) != 0)
		return -1;
	/* What is packed although it was not asked for is unpacked all the same; a packed stream would come late. */
	if (q->decode && add_header(to, "Accept-Encoding: identity", e) != 0)
		return -1;
	if (q->bearer == NULL)
		return 0;
	struct buf line AUTO(auto_wipep) = BUF(HTTP_HEADER_BYTES);
	if (buf_room(&line, HTTP_HEADER_BYTES) ==
		NULL || /* all at once: growing would leave unwiped copies */
	    buf_str(&line, "Authorization: Bearer ") != 0 ||
	    buf_str(&line, secret_use(q->bearer)) != 0)
		return err_set(e, ERR_INTERNAL, "The credential for another service is too long.");
	return add_header(to, buf_c(&line), e);
}

#define SET(opt, value) ok = ok && curl_easy_setopt(c, opt, value) == CURLE_OK

static bool set_body(CURL *c, const struct http_req *q, struct transfer *t)
{
	static const char *const with_body[] = { "POST", "PUT", "PATCH", NULL };
	bool ok = true;
	if (q->body_read != NULL) {
		SET(CURLOPT_UPLOAD, 1L); /* of unknown size: chunked */
		SET(CURLOPT_READFUNCTION, on_send);
		SET(CURLOPT_READDATA, t);
		SET(CURLOPT_UPLOAD_BUFFERSIZE, (long)PIECE_BYTES);
	} else if (q->body_n > 0 || str_one_of(q->method, with_body)) {
		SET(CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)q->body_n);
		SET(CURLOPT_POSTFIELDS, q->body_n > 0 ? q->body : "");
	} else if (strcmp(q->method, "HEAD") == 0) {
		SET(CURLOPT_NOBODY, 1L);
	}
	SET(CURLOPT_CUSTOMREQUEST, q->method);
	return ok;
}

static bool set_all(
    CURL *c, const struct http_req *q, struct transfer *t, struct curl_slist *head, struct curl_slist *pin)
{
	bool ok = set_body(c, q, t);
	if (pin != NULL)
		SET(CURLOPT_RESOLVE, pin);
	SET(CURLOPT_URL, q->url);
	SET(CURLOPT_PROTOCOLS_STR, "http,https");
	SET(CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
	SET(CURLOPT_PROXY, ""); /* also: none from the environment */
	SET(CURLOPT_NOSIGNAL, 1L);
	SET(CURLOPT_FOLLOWLOCATION, 0L);
	SET(CURLOPT_SSL_VERIFYPEER, 1L);
	SET(CURLOPT_SSL_VERIFYHOST, 2L);
	if (q->ca_file != NULL)
		SET(CURLOPT_CAINFO, q->ca_file);
	if (q->unix_socket != NULL)
		SET(CURLOPT_UNIX_SOCKET_PATH, q->unix_socket);
	SET(CURLOPT_HTTPHEADER, head);
	SET(CURLOPT_USERAGENT, "gatehouse");
	SET(CURLOPT_CONNECTTIMEOUT_MS, (long)(q->connect_ms > 0 ? q->connect_ms : HTTP_CONNECT_MS));
	SET(CURLOPT_TCP_KEEPALIVE, 1L);
	SET(CURLOPT_BUFFERSIZE, q->piece_bytes != 0 ? (long)q->piece_bytes : (long)PIECE_BYTES);
	if (q->decode)
		SET(CURLOPT_ACCEPT_ENCODING, "gzip, deflate");
	if (!q->keep)
		SET(CURLOPT_FORBID_REUSE, 1L);
	SET(CURLOPT_OPENSOCKETFUNCTION, on_socket);
	SET(CURLOPT_HEADERFUNCTION, on_header);
	SET(CURLOPT_HEADERDATA, t);
	SET(CURLOPT_WRITEFUNCTION, on_body);
	SET(CURLOPT_WRITEDATA, t);
	return ok;
}

/* ---- the transfer */

static enum http_ending look(struct transfer *t)
{
	curl_off_t up = 0, down = 0;
	(void)curl_easy_getinfo(t->easy, CURLINFO_SIZE_UPLOAD_T, &up);
	(void)curl_easy_getinfo(t->easy, CURLINFO_SIZE_DOWNLOAD_T, &down);
	if (up + down != t->moved) {
		t->moved = up + down;
		http_watch_moved(&t->watch);
	}
	return http_watch_look(&t->watch);
}

static CURLcode run(struct transfer *t, CURLM *multi)
{
	if (curl_multi_add_handle(multi, t->easy) != CURLM_OK)
		abort();
	int running = 1;
	while (running != 0 && t->why == HTTP_GOING) {
		if (curl_multi_perform(multi, &running) != CURLM_OK)
			break;
		if (t->why == HTTP_GOING && running != 0)
			t->why = look(t);
		if (t->why == HTTP_GOING && running != 0 &&
		    curl_multi_poll(multi, NULL, 0, http_watch_wait_ms(&t->watch), NULL) != CURLM_OK)
			break;
	}
	CURLcode rc = CURLE_RECV_ERROR; /* of a transfer that did not come to its own end */
	int left = 0;
	const CURLMsg *m = curl_multi_info_read(multi, &left);
	if (m != NULL && m->msg == CURLMSG_DONE)
		rc = m->data.result;
	(void)curl_multi_remove_handle(multi, t->easy);
	return rc;
}

static int failed(const struct transfer *t, CURLcode rc, struct err *e)
{
	if (t->why != HTTP_GOING)
		return http_ended(t->why, e);
	/* curl's own texts for a code hold no address. */
	const char *text = curl_easy_strerror(rc);
	switch (rc) {
	case CURLE_URL_MALFORMAT:
	case CURLE_UNSUPPORTED_PROTOCOL:
	case CURLE_SSL_CACERT_BADFILE:
		return err_set(e, ERR_INTERNAL, "A request to another service could not be made (%s).", text);
	case CURLE_COULDNT_RESOLVE_HOST:
	case CURLE_COULDNT_CONNECT:
	case CURLE_OPERATION_TIMEDOUT: /* of the connection: the other times are ours */
	case CURLE_SSL_CONNECT_ERROR:
	case CURLE_PEER_FAILED_VERIFICATION:
		return err_set(e, ERR_UNAVAILABLE,
		    "Another service cannot be reached (%s); try again in a moment.", text);
	default:
		return err_set(e, ERR_UPSTREAM, "Another service broke off its answer (%s).", text);
	}
}

/* With a plus: it is forgotten like any other answer of a resolver. */
static char *pin_text(const char *pin)
{
	size_t n = strlen(pin);
	char *out = xcalloc(n + 2, 1);
	out[0] = '+';
	memcpy(out + 1, pin, n);
	return out;
}

int http_do(const struct http_req *q, struct http_res *res, struct err *e)
{
	size_t max = q->on_data != NULL ? ERROR_REPLY_BYTES
	    : q->max_reply_bytes != 0   ? q->max_reply_bytes
					: REPLY_DEFAULT_BYTES;
	*res = (struct http_res){ .body = BUF(max), .retry_after_ms = -1 };
	int rc;
	if (http_keep_do(q, res, &rc, e))
		return rc;
	struct curl_slist *head AUTO(auto_slistp) = NULL;
	if (headers(q, &head, e) != 0)
		return -1;
	struct curl_slist *pin AUTO(auto_slistp) = NULL;
	auto_free char *pinned = q->pin == NULL ? NULL : pin_text(q->pin);
	if (pinned != NULL && (pin = curl_slist_append(NULL, pinned)) == NULL)
		abort();
	struct http_handle h = http_handle_take(q);
	struct transfer t = { .q = q, .res = res, .easy = h.easy, .watch = http_watch_new(q) };
	if (!set_all(h.easy, q, &t, head, pin)) {
		http_handle_give(&h, false);
		return err_set(e, ERR_INTERNAL, "A request to another service could not be made.");
	}
	CURLcode ended = run(&t, h.multi);
	if (ended == CURLE_OK && !t.head_ended)
		ended = CURLE_WEIRD_SERVER_REPLY; /* curl takes a head that was cut for a whole one */
	take_head(&t);
	http_handle_give(&h, ended == CURLE_OK);
	return ended == CURLE_OK ? 0 : failed(&t, ended, e);
}

/* ---- texts */

char *http_escape(struct mem *m, const char *s)
{
	static const char plain[] =
	    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~"; /* RFC 3986, 2.3 */
	static const char hex[] = "0123456789ABCDEF";
	char *out = mem_alloc(m, 3 * strlen(s) + 1), *p = out;
	for (; *s != 0; s++) {
		unsigned char c = (unsigned char)*s;
		if (strchr(plain, c) != NULL) {
			*p++ = *s;
			continue;
		}
		*p++ = '%';
		*p++ = hex[c >> 4];
		*p++ = hex[c & 15];
	}
	return out;
}

int http_envelope(const struct http_res *res, struct err *e)
{
	struct err bad = { 0 };
	auto_json json_t *body = js_parse(buf_c(&res->body), res->body.n, &bad);
	const json_t *error = js_get(body, "error");
	const char *msg = js_str(error, "message");
	enum err_code code = err_from_http(res->status);
	if (msg == NULL || code == ERR_NONE)
		return err_set(e, ERR_UPSTREAM, "Another service answered with status %d.", res->status);
	return err_field(e, code, js_str_or(error, "param", ""), "%s", msg);
}
