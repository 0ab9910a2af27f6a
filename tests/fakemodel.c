#include "t.h"

#include "fakemodel.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/js.h"
#include "fakemodel_int.h"

enum { LOG_MAX = 4000, BODY_MAX = 40 << 20, HEAD_MAX = 65536, KEPT_BODY = 1 << 20 };

struct seen {
	char model[80];
	int64_t at_ms;
	char *text; /* head and body */
	size_t n;
};

struct fakemodel {
	pthread_t thread;
	pthread_mutex_t lock;
	struct fakemodel_times times;
	int fd, port, n_seen;
	int64_t again_ms;
	struct seen seen[LOG_MAX];
	_Atomic int at_work, cut_off, connections;
	_Atomic bool over;
};

/* What a model does: in its first n attempts, and from then on. */
static const struct model {
	const char *name;
	int n;
	enum fake_act first, then;
} models[] = {
	{ "ok", 0, FAKE_OK, FAKE_OK },
	{ "429-after", 1, FAKE_429_AFTER, FAKE_OK },
	{ "429-date", 1, FAKE_429_DATE, FAKE_OK },
	{ "429", 0, FAKE_429, FAKE_429 },
	{ "429-once", 1, FAKE_429, FAKE_OK },
	{ "401", 0, FAKE_401, FAKE_401 },
	{ "500-once", 1, FAKE_500, FAKE_OK },
	{ "503", 0, FAKE_503, FAKE_503 },
	{ "402", 0, FAKE_402, FAKE_402 },
	{ "403", 0, FAKE_403, FAKE_403 },
	{ "404", 0, FAKE_404, FAKE_404 },
	{ "reset-once", 1, FAKE_RESET, FAKE_OK },
	{ "silent", 0, FAKE_SILENT, FAKE_SILENT },
	{ "slow", 0, FAKE_SLOW, FAKE_SLOW },
	{ "cut", 0, FAKE_CUT, FAKE_CUT },
	{ "cut-reset", 0, FAKE_CUT_RESET, FAKE_CUT_RESET },
	{ "stall", 0, FAKE_STALL, FAKE_STALL },
	{ "malformed", 0, FAKE_MALFORMED, FAKE_MALFORMED },
	{ "no-done", 0, FAKE_NO_DONE, FAKE_NO_DONE },
	{ "context", 0, FAKE_CONTEXT, FAKE_CONTEXT },
	{ "filter", 0, FAKE_FILTER, FAKE_FILTER },
	{ "no-prefill", 0, FAKE_NO_PREFILL, FAKE_NO_PREFILL },
	{ "flap", 0, FAKE_FLAP, FAKE_FLAP },
	{ "html-502", 0, FAKE_HTML_502, FAKE_HTML_502 },
	{ "html-200", 0, FAKE_HTML_200, FAKE_HTML_200 },
	{ "empty", 0, FAKE_EMPTY, FAKE_EMPTY },
	{ "null", 0, FAKE_NULL, FAKE_NULL },
	{ "no-choices", 0, FAKE_NO_CHOICES, FAKE_NO_CHOICES },
	{ "redirect", 0, FAKE_REDIRECT, FAKE_REDIRECT },
	{ "json-cut", 0, FAKE_JSON_CUT, FAKE_JSON_CUT },
	{ "crlf", 0, FAKE_CRLF, FAKE_CRLF },
	{ "comments", 0, FAKE_COMMENTS, FAKE_COMMENTS },
	{ "split", 0, FAKE_SPLIT, FAKE_SPLIT },
	{ "bom", 0, FAKE_BOM, FAKE_BOM },
	{ "gzip", 0, FAKE_GZIP, FAKE_GZIP },
	{ "no-usage", 0, FAKE_NO_USAGE, FAKE_NO_USAGE },
	{ "much-usage", 0, FAKE_MUCH_USAGE, FAKE_MUCH_USAGE },
	{ "odd-usage", 0, FAKE_ODD_USAGE, FAKE_ODD_USAGE },
	{ "tools", 0, FAKE_TOOLS, FAKE_TOOLS },
	{ "tools-mixed", 0, FAKE_TOOLS_MIXED, FAKE_TOOLS_MIXED },
	{ "tools-same", 0, FAKE_TOOLS_SAME, FAKE_TOOLS_SAME },
	{ "tools-nameless", 0, FAKE_TOOLS_NAMELESS, FAKE_TOOLS_NAMELESS },
	{ "error-first", 0, FAKE_ERROR_FIRST, FAKE_ERROR_FIRST },
	{ "error-event", 0, FAKE_ERROR_EVENT, FAKE_ERROR_EVENT },
	{ "endless", 0, FAKE_ENDLESS, FAKE_ENDLESS },
	{ "markup", 0, FAKE_MARKUP, FAKE_MARKUP },
	{ "markup-slow", 0, FAKE_MARKUP_SLOW, FAKE_MARKUP_SLOW },
	{ "markup-cut", 0, FAKE_MARKUP_CUT, FAKE_MARKUP_CUT },
	{ "markup-late", 0, FAKE_MARKUP_LATE, FAKE_MARKUP_LATE },
	{ "markup-code", 0, FAKE_MARKUP_CODE, FAKE_MARKUP_CODE },
	{ "big-line", 0, FAKE_BIG_LINE, FAKE_BIG_LINE },
	{ "only-head", 0, FAKE_ONLY_HEAD, FAKE_ONLY_HEAD },
	{ "leak", 0, FAKE_LEAK, FAKE_LEAK },
	{ "field", 0, FAKE_FIELD, FAKE_FIELD },
	{ "nul", 0, FAKE_NUL, FAKE_NUL },
	{ "twice", 0, FAKE_TWICE, FAKE_TWICE },
	{ "no-stream", 0, FAKE_NO_STREAM, FAKE_NO_STREAM },
	{ "no-stream-tools", 0, FAKE_NO_STREAM_TOOLS, FAKE_NO_STREAM_TOOLS },
	{ "key-twice", 0, FAKE_KEY_TWICE, FAKE_KEY_TWICE },
};

/* ---- bytes */

bool fake_say(struct fake_call *k, const void *p, size_t n)
{
	for (const char *at = p; n > 0 && !k->gone;) {
		ssize_t sent = send(k->fd, at, n, MSG_NOSIGNAL);
		if (sent <= 0)
			k->gone = true;
		else
			at += sent, n -= (size_t)sent;
	}
	return !k->gone;
}

/* False when the client left meanwhile. */
bool fake_wait(struct fake_call *k, int ms)
{
	int64_t end = clock_ms() + ms;
	while (!k->gone && !atomic_load(&k->f->over)) {
		int left = clock_left_ms(end);
		struct pollfd p = { .fd = k->fd, .events = POLLRDHUP };
		if (left == 0)
			return true;
		if (poll(&p, 1, left < 50 ? left : 50) > 0)
			k->gone = true;
	}
	return false;
}

struct fakemodel_times fake_times(struct fake_call *k)
{
	(void)pthread_mutex_lock(&k->f->lock);
	struct fakemodel_times t = k->f->times;
	(void)pthread_mutex_unlock(&k->f->lock);
	return t;
}

bool fake_down(struct fake_call *k)
{
	(void)pthread_mutex_lock(&k->f->lock);
	bool down = clock_ms() - k->f->again_ms < k->f->times.down_ms;
	(void)pthread_mutex_unlock(&k->f->lock);
	return down;
}

void fake_reset(struct fake_call *k)
{
	struct linger l = { .l_onoff = 1 };
	(void)setsockopt(k->fd, SOL_SOCKET, SO_LINGER, &l, sizeof l);
	k->close = true;
}

/* ---- a request */

static size_t body_bytes(const char *head)
{
	const char *at = strcasestr(head, "\r\nContent-Length:");
	return at == NULL ? 0 : strtoul(at + 17, NULL, 10);
}

/* Head and body into `in`; the length of the head, 0 when the client is gone. */
static size_t receive(struct fake_call *k, struct buf *in)
{
	size_t head = 0;
	for (;;) {
		const char *end = head != 0 ? NULL : strstr(buf_c(in), "\r\n\r\n");
		if (end != NULL)
			head = (size_t)(end - in->p) + 4;
		if (head != 0 && in->n >= head + body_bytes(in->p))
			return head;
		char *room = buf_room(in, 65536);
		ssize_t n = room == NULL ? -1 : recv(k->fd, room, 65536, 0);
		if (n <= 0)
			return 0;
		buf_grew(in, (size_t)n);
	}
}

/* Write the request down; how many there were for this model before. */
static int note(struct fakemodel *f, const char *model, const struct buf *in)
{
	(void)pthread_mutex_lock(&f->lock);
	int before = 0;
	for (int i = 0; i < f->n_seen; i++)
		before += strcmp(f->seen[i].model, model) == 0;
	if (f->n_seen < LOG_MAX) {
		struct seen *s = &f->seen[f->n_seen++];
		*s = (struct seen){ .at_ms = clock_ms(), .n = in->n < KEPT_BODY ? in->n : KEPT_BODY };
		(void)snprintf(s->model, sizeof s->model, "%s", model);
		s->text = malloc(s->n + 1);
		if (s->text != NULL)
			memcpy(s->text, buf_c(in), s->n);
	}
	(void)pthread_mutex_unlock(&f->lock);
	return before;
}

static enum fake_wire wire_of(const char *head)
{
	const char *path = strchr(head, ' '), *end = path == NULL ? NULL : strpbrk(path + 1, " ?");
	size_t n = end == NULL ? 0 : (size_t)(end - path - 1);
	static const char *const tails[] = { "/chat/completions", "/messages", "/responses", "/models" };
	for (int i = 0; i < 4; i++) {
		size_t m = strlen(tails[i]);
		if (n >= m && memcmp(end - m, tails[i], m) == 0)
			return (enum fake_wire)i;
	}
	return FAKE_NO_WIRE;
}

static bool answer(struct fake_call *k, struct buf *in)
{
	size_t head = receive(k, in);
	if (head == 0)
		return false;
	struct err e = { 0 };
	k->wire = wire_of(in->p);
	auto_json json_t *body = js_parse(in->p + head, in->n - head, &e);
	k->body = body;
	k->stream = js_bool(body, "stream", false);
	(void)snprintf(k->model, sizeof k->model, "%s", js_str_or(body, "model", ""));
	int before = note(k->f, k->model, in);
	size_t plain = strcspn(k->model, "@");
	k->act = FAKE_404;
	for (size_t i = 0; i < sizeof models / sizeof models[0]; i++)
		if (strlen(models[i].name) == plain && memcmp(models[i].name, k->model, plain) == 0)
			k->act = before < models[i].n ? models[i].first : models[i].then;
	atomic_fetch_add(&k->f->at_work, 1);
	fake_answer(k);
	atomic_fetch_sub(&k->f->at_work, 1);
	if (k->gone)
		atomic_fetch_add(&k->f->cut_off, 1);
	k->body = NULL;
	buf_reset(in);
	return !k->gone && !k->close;
}

static void *serve(void *arg)
{
	struct fake_call k = *(struct fake_call *)arg;
	free(arg);
	auto_buf struct buf in = BUF(BODY_MAX);
	while (!atomic_load(&k.f->over) && answer(&k, &in))
		;
	(void)close(k.fd);
	return NULL;
}

static void *accepting(void *arg)
{
	struct fakemodel *f = arg;
	while (!atomic_load(&f->over)) {
		int fd = accept4(f->fd, NULL, NULL, SOCK_CLOEXEC), one = 1;
		if (fd < 0)
			break;
		struct timeval t = { .tv_sec = 60 };
		(void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t);
		(void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
		atomic_fetch_add(&f->connections, 1);
		struct fake_call *k = calloc(1, sizeof *k);
		pthread_attr_t a;
		pthread_t t_;
		if (k == NULL || pthread_attr_init(&a) != 0)
			abort();
		k->f = f;
		k->fd = fd;
		(void)pthread_attr_setdetachstate(&a, PTHREAD_CREATE_DETACHED);
		(void)pthread_attr_setstacksize(&a, 512 * 1024);
		if (pthread_create(&t_, &a, serve, k) != 0)
			abort();
		(void)pthread_attr_destroy(&a);
	}
	return NULL;
}

/* ---- for tests */

struct fakemodel *fakemodel_start(void)
{
	struct fakemodel *f = calloc(1, sizeof *f);
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t n = sizeof a;
	assert_non_null(f);
	f->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(f->fd, (struct sockaddr *)&a, sizeof a), 0);
	assert_int_equal(getsockname(f->fd, (struct sockaddr *)&a, &n), 0);
	assert_int_equal(listen(f->fd, 512), 0);
	f->port = ntohs(a.sin_port);
	f->times = (struct fakemodel_times){ .token_ms = 0, .retry_after_s = 1 };
	f->again_ms = clock_ms();
	assert_int_equal(pthread_mutex_init(&f->lock, NULL), 0);
	assert_int_equal(pthread_create(&f->thread, NULL, accepting, f), 0);
	return f;
}

/* Connections that are still open hold threads: what they use stays until the program ends. */
void fakemodel_end(struct fakemodel *f)
{
	atomic_store(&f->over, true);
	(void)shutdown(f->fd, SHUT_RDWR);
	assert_int_equal(pthread_join(f->thread, NULL), 0);
	(void)close(f->fd);
}

int fakemodel_port(const struct fakemodel *f)
{
	return f->port;
}

void fakemodel_times(struct fakemodel *f, struct fakemodel_times t)
{
	(void)pthread_mutex_lock(&f->lock);
	f->times = t;
	(void)pthread_mutex_unlock(&f->lock);
}

void fakemodel_again(struct fakemodel *f)
{
	(void)pthread_mutex_lock(&f->lock);
	for (int i = 0; i < f->n_seen; i++)
		free(f->seen[i].text);
	f->n_seen = 0;
	f->again_ms = clock_ms();
	(void)pthread_mutex_unlock(&f->lock);
}

/* The n-th request for the model, the lock being held; NULL when there is none. Their number into *count. */
static struct seen *nth(struct fakemodel *f, const char *model, int n, int *count)
{
	struct seen *found = NULL;
	int c = 0;
	for (int i = 0; i < f->n_seen; i++) {
		if (strcmp(f->seen[i].model, model) != 0)
			continue;
		if (c++ == n)
			found = &f->seen[i];
	}
	if (count != NULL)
		*count = c;
	return found;
}

int fakemodel_attempts(struct fakemodel *f, const char *model)
{
	int count = 0;
	(void)pthread_mutex_lock(&f->lock);
	(void)nth(f, model, -1, &count);
	(void)pthread_mutex_unlock(&f->lock);
	return count;
}

int64_t fakemodel_when_ms(struct fakemodel *f, const char *model, int n)
{
	(void)pthread_mutex_lock(&f->lock);
	const struct seen *s = nth(f, model, n, NULL);
	int64_t at = s == NULL ? -1 : s->at_ms;
	(void)pthread_mutex_unlock(&f->lock);
	return at;
}

void fakemodel_request(struct fakemodel *f, const char *model, int n, struct buf *out)
{
	(void)pthread_mutex_lock(&f->lock);
	const struct seen *s = nth(f, model, n, NULL);
	if (s != NULL && s->text != NULL)
		(void)buf_add(out, s->text, s->n);
	(void)pthread_mutex_unlock(&f->lock);
}

int fakemodel_at_work(struct fakemodel *f)
{
	return atomic_load(&f->at_work);
}

int fakemodel_cut_off(struct fakemodel *f)
{
	return atomic_load(&f->cut_off);
}

int fakemodel_connections(struct fakemodel *f)
{
	return atomic_load(&f->connections);
}
