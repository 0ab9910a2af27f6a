#include "../t.h"

#include "pace.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../egresstest.h"
#include "base/buf.h"
#include "bench.h"

enum { HEAD_BYTES = 64 * 1024 };

static int listen_fd = -1;
static pthread_t acceptor;
static _Atomic int64_t sent_us[PACE_EVENTS];

static void say(int fd, const char *text)
{
	/* Who leaves is noticed at the next request. */
	(void)send(fd, text, strlen(text), MSG_NOSIGNAL);
}

static void chunk(int fd, const char *before, const char *text)
{
	char out[1024];
	(void)snprintf(out, sizeof out, "%s%zx\r\n%s\r\n", before, strlen(text), text);
	say(fd, out);
}

static void stream(int fd)
{
	static const char head[] = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
				   "Transfer-Encoding: chunked\r\n\r\n";
	for (int i = 0; i < PACE_EVENTS; i++) {
		char event[400];
		(void)snprintf(event, sizeof event,
		    "data: "
		    "{\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"created\":1700000000,"
		    "\"model\":\"bench\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\" word%d\"},"
		    "\"finish_reason\":%s}]}\n\n",
		    i, i == PACE_EVENTS - 1 ? "\"stop\"" : "null");
		(void)usleep(PACE_MS * 1000);
		atomic_store(&sent_us[i], (int64_t)bench_now_us());
		chunk(fd, i == 0 ? head : "", event); /* the head comes with the first */
	}
	chunk(fd, "", "data: [DONE]\n\n");
	say(fd, "0\r\n\r\n");
}

/* A whole request; false: the peer has gone. */
static bool request(int fd)
{
	auto_buf struct buf in = BUF(HEAD_BYTES);
	for (;;) {
		const char *end = strstr(buf_c(&in), "\r\n\r\n"),
			   *length = strcasestr(buf_c(&in), "\r\nContent-Length:");
		if (end != NULL && length != NULL &&
		    in.n >= (size_t)(end + 4 - in.p) + strtoul(length + 17, NULL, 10))
			return true;
		char *room = buf_room(&in, 4096);
		ssize_t n = room == NULL ? -1 : recv(fd, room, 4096, 0);
		if (n <= 0)
			return false;
		buf_grew(&in, (size_t)n);
	}
}

static void *serve(void *arg)
{
	int fd = (int)(intptr_t)arg;
	while (request(fd))
		stream(fd);
	(void)close(fd);
	return NULL;
}

static void *accepting(void *arg)
{
	(void)arg;
	for (int fd; (fd = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC)) >= 0;) {
		int one = 1;
		pthread_t t;
		(void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
		if (pthread_create(&t, NULL, serve, (void *)(intptr_t)fd) != 0 || pthread_detach(t) != 0)
			abort();
	}
	return NULL;
}

int pace_start(void)
{
	int port;
	listen_fd = egt_listener(&port);
	assert_int_equal(pthread_create(&acceptor, NULL, accepting, NULL), 0);
	return port;
}

void pace_end(void)
{
	(void)shutdown(listen_fd, SHUT_RDWR);
	(void)pthread_join(acceptor, NULL);
	(void)close(listen_fd);
}

double pace_sent_us(int i)
{
	return (double)atomic_load(&sent_us[i]);
}
