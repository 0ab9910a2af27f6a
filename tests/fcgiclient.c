#include "t.h"

#include "fcgiclient.h"

#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/mem.h"

enum { BEGIN = 1, END = 3, PARAMS = 4, IN = 5, OUT = 6, ANSWER_BYTES = 4 << 20, WAIT_S = 60 };

struct fcgiclient {
	struct sockaddr_un at;
	char key[200];
	bool keep;
	int fd; /* -1: none */
};

struct fcgiclient *fcgiclient_new(const char *socket_path, const char *key, bool keep)
{
	struct fcgiclient *c = xcalloc(1, sizeof *c);
	c->at.sun_family = AF_UNIX;
	c->keep = keep;
	c->fd = -1;
	assert_true(
	    snprintf(c->at.sun_path, sizeof c->at.sun_path, "%s", socket_path) < (int)sizeof c->at.sun_path);
	(void)snprintf(c->key, sizeof c->key, "%s%s", key == NULL ? "" : "Bearer ", key == NULL ? "" : key);
	return c;
}

void fcgiclient_free(struct fcgiclient *c)
{
	if (c->fd >= 0)
		(void)close(c->fd);
	free(c);
}

static void record(struct buf *out, int type, const void *p, size_t n)
{
	unsigned char h[8] = { 1, (unsigned char)type, 0, 1, (unsigned char)(n >> 8), (unsigned char)n, 0,
		0 };
	assert_true(n < 65536);
	(void)buf_add(out, h, sizeof h);
	(void)buf_add(out, p, n);
}

static void param(struct buf *out, const char *name, const char *value)
{
	size_t n = strlen(value);
	unsigned char h[5] = { (unsigned char)strlen(name), 0x80, 0, (unsigned char)(n >> 8),
		(unsigned char)n };
	(void)buf_add(out, h, sizeof h);
	(void)buf_str(out, name);
	(void)buf_str(out, value);
}

static void connected(struct fcgiclient *c)
{
	struct timeval limit = { .tv_sec = WAIT_S };
	if (c->fd >= 0)
		return;
	c->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(connect(c->fd, (const struct sockaddr *)&c->at, sizeof c->at), 0);
	(void)setsockopt(c->fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
}

/* What nginx's fastcgi_params say, and a client's usual headers. */
void fcgiclient_send(struct fcgiclient *c, const char *method, const char *path, const char *body)
{
	connected(c);
	char length[24];
	size_t n = body == NULL ? 0 : strlen(body);
	const unsigned char begin[8] = { 0, 1, c->keep };
	auto_buf struct buf all = BUF(1 << 20), params = BUF(65536);
	(void)snprintf(length, sizeof length, "%zu", n);
	const char *const rows[][2] = { { "QUERY_STRING", "" }, { "REQUEST_METHOD", method },
		{ "CONTENT_TYPE", body == NULL ? "" : "application/json" },
		{ "CONTENT_LENGTH", body == NULL ? "" : length }, { "SCRIPT_NAME", path },
		{ "REQUEST_URI", path }, { "DOCUMENT_URI", path },
		{ "DOCUMENT_ROOT", "/usr/share/nginx/html" }, { "SERVER_PROTOCOL", "HTTP/2.0" },
		{ "REQUEST_SCHEME", "https" }, { "HTTPS", "on" }, { "GATEWAY_INTERFACE", "CGI/1.1" },
		{ "SERVER_SOFTWARE", "nginx" }, { "REMOTE_ADDR", "127.0.0.1" }, { "REMOTE_PORT", "40000" },
		{ "SERVER_ADDR", "127.0.0.1" }, { "SERVER_PORT", "443" }, { "SERVER_NAME", "localhost" },
		{ "GATEHOUSE_DOOR", "public" }, { "HTTP_ACCEPT", "*/*" }, { "HTTP_HOST", "localhost" },
		{ "HTTP_AUTHORIZATION", c->key } };
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
		param(&params, rows[i][0], rows[i][1]);
	record(&all, BEGIN, begin, sizeof begin);
	record(&all, PARAMS, params.p, params.n);
	record(&all, PARAMS, "", 0);
	if (n > 0)
		record(&all, IN, body, n);
	record(&all, IN, "", 0);
	assert_int_equal(send(c->fd, all.p, all.n, MSG_NOSIGNAL), all.n);
}

/* One more record is whole in `in` from *at on: its type; 0: not yet. Output is added to out. */
static int next_record(const struct buf *in, size_t *at, struct buf *out)
{
	const unsigned char *h = (const unsigned char *)in->p + *at;
	if (in->n - *at < 8)
		return 0;
	size_t n = (size_t)h[4] << 8 | h[5];
	if (in->n - *at < 8 + n + h[6])
		return 0;
	if (h[1] == OUT)
		assert_int_equal(buf_add(out, h + 8, n), 0);
	*at += 8 + n + h[6];
	return h[1];
}

int fcgiclient_hear(struct fcgiclient *c, struct buf *reply)
{
	auto_buf struct buf in = BUF(ANSWER_BYTES), out = BUF(ANSWER_BYTES);
	size_t at = 0;
	int status = 0;
	for (int type = 0; type != END;) {
		type = next_record(&in, &at, &out);
		if (type != 0)
			continue;
		char *room = buf_room(&in, 16384);
		assert_non_null(room);
		ssize_t got = recv(c->fd, room, 16384, 0);
		assert_true(got > 0);
		buf_grew(&in, (size_t)got);
	}
	assert_int_equal(at, in.n); /* and nothing behind it */
	if (sscanf(buf_c(&out), "Status: %d", &status) != 1)
		fail_msg("No answer: %.300s", buf_c(&out));
	if (reply != NULL)
		(void)buf_add(reply, out.p, out.n);
	if (!c->keep) {
		(void)close(c->fd);
		c->fd = -1;
	}
	return status;
}

int fcgiclient_ask(
    struct fcgiclient *c, const char *method, const char *path, const char *body, struct buf *out)
{
	fcgiclient_send(c, method, path, body);
	return fcgiclient_hear(c, out);
}

int fcgiclient_fd(const struct fcgiclient *c)
{
	return c->fd;
}
