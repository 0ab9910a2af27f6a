/*
 * A stream's own way to nginx (FastCGI 1.0, sections 3.3 and 6.2). libfcgi holds 16 KiB of buffers a request for as long as it
 * lasts and copies what it is given; a stream lasts for hours and says a line now and then. So once its request has been read we
 * give libfcgi's streams back and write the records ourselves: what is small is gathered until the next flush, what is large
 * goes out from where it is.
 */
#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "io/fcgi_int.h"

enum {
	VERSION_1 = 1,
	END_REQUEST = 3, /* record types */
	STDOUT_DATA = 6,
	HEADER_BYTES = 8,
	END_BYTES = 8, /* of END_REQUEST: application status and protocol status, both 0 */
	RECORD_MAX = 65535,
	GATHER_BYTES = 8192,
};

static void header(const struct fcgi_call *k, unsigned char h[HEADER_BYTES], int type, size_t n)
{
	unsigned id = (unsigned)k->req.requestId;
	h[0] = VERSION_1;
	h[1] = (unsigned char)type;
	h[2] = (unsigned char)(id >> 8);
	h[3] = (unsigned char)id;
	h[4] = (unsigned char)(n >> 8);
	h[5] = (unsigned char)n;
	h[6] = h[7] = 0; /* no padding: nginx keeps what was flushed back when a record ends with it */
}

/* All of it, or the client is gone: SO_SNDTIMEO ends the wait for a peer that takes nothing. */
static void send_all(struct fcgi_call *k, struct iovec *v, size_t n)
{
	while (n > 0 && !k->gone) {
		ssize_t sent = sendmsg(
		    k->req.ipcFd, &(struct msghdr){ .msg_iov = v, .msg_iovlen = n }, MSG_NOSIGNAL);
		if (sent < 0 && errno != EINTR)
			k->gone = true;
		size_t left = sent < 0 ? 0 : (size_t)sent;
		for (; n > 0 && left >= v->iov_len; v++, n--)
			left -= v->iov_len;
		if (n > 0) {
			v->iov_base = (char *)v->iov_base + left;
			v->iov_len -= left;
		}
	}
}

/* What was gathered, and behind it p. */
static void send_data(struct fcgi_call *k, const char *p, size_t n)
{
	size_t before = k->gathered.n;
	while (before + n > 0 && !k->gone) {
		unsigned char h[HEADER_BYTES];
		size_t some = n > RECORD_MAX - before ? RECORD_MAX - before : n;
		header(k, h, STDOUT_DATA, before + some);
		struct iovec v[] = { { h, sizeof h }, { k->gathered.p, before },
			{ (void *)(uintptr_t)p, some } };
		send_all(k, v, 3);
		before = 0;
		p += some;
		n -= some;
	}
	buf_free(&k->gathered); /* a stream is silent for long: nothing is kept for it */
}

void fcgi_wire_begin(struct fcgi_call *k)
{
	assert(!k->wire);
	k->wire = true;
	k->gathered = BUF(GATHER_BYTES);
	/* Nothing was written yet, so closing them without a word leaves nothing out. */
	FCGX_FreeStream(&k->req.in);
	FCGX_FreeStream(&k->req.out);
	FCGX_FreeStream(&k->req.err);
}

int fcgi_wire_flush(struct fcgi_call *k)
{
	send_data(k, "", 0);
	return k->gone ? -1 : 0;
}

int fcgi_wire_write(struct fcgi_call *k, const char *p, size_t n)
{
	if (n < GATHER_BYTES && buf_add(&k->gathered, p, n) == 0)
		return k->gone ? -1 : 0;
	if (n < GATHER_BYTES) {
		(void)fcgi_wire_flush(k);
		(void)buf_add(&k->gathered, p, n);
	} else {
		send_data(k, p, n);
	}
	return k->gone ? -1 : 0;
}

void fcgi_wire_end(struct fcgi_call *k)
{
	unsigned char last[HEADER_BYTES + HEADER_BYTES + END_BYTES] = { 0 };
	(void)fcgi_wire_flush(k);
	header(k, last, STDOUT_DATA, 0); /* the end of that stream */
	header(k, last + HEADER_BYTES, END_REQUEST, END_BYTES);
	send_all(k, &(struct iovec){ last, sizeof last }, 1);
}
