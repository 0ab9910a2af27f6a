/*
 * dns.c - the names a transparent sandbox sees (EGR-16): whatever its policy knows has one made-up address, to which every
 * connection leads to us anyway; everything else does not exist. No question leaves this process.
 */
#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

#include "egress/dns_answer.h"
#include "egress/proxy.h"

enum { ROUND = 32 /* questions of one socket in one round */ };

/* Refusals are recorded as every other; what is known is only recorded when it is connected to. */
static bool known(void *arg, struct str name)
{
	struct guest *g = arg;
	const struct egress_site *site = &g->proxy->site;
	struct egress_decision d = { .step = DECIDE_REFUSE, .form = FORM_TRANSPARENT };
	if (!host_canon(name, HOST_BARE, &d.host) || d.host.literal)
		return false;
	if (decide_known(site, g->policy, &d.host))
		return true;
	struct host host = d.host;
	decide_name(site, g->policy, FORM_TRANSPARENT, &host, 443, &d);
	d.port = 0;
	if (d.step == DECIDE_REFUSE && guest_may_ask(g) && guest_record(g, &d) == REASON_NONE)
		g->proxy->count.decisions[d.reason]++;
	return false;
}

/* The answer comes from the address that was asked, whichever of all it was. */
void dns_packets(struct listener *l)
{
	unsigned char in[DNS_UDP_BYTES], out[DNS_UDP_BYTES + DNS_ADDED_BYTES];
	union {
		char room[CMSG_SPACE(sizeof(struct in_pktinfo))];
		struct cmsghdr align;
	} control;
	for (int i = 0; i < ROUND; i++) {
		struct sockaddr_storage from;
		struct iovec piece = { .iov_base = in, .iov_len = sizeof in };
		struct msghdr m = { .msg_name = &from,
			.msg_namelen = sizeof from,
			.msg_iov = &piece,
			.msg_iovlen = 1,
			.msg_control = control.room,
			.msg_controllen = sizeof control.room };
		ssize_t n = recvmsg(l->watch.fd, &m, MSG_DONTWAIT);
		if (n < 0)
			return;
		size_t k = (m.msg_flags & MSG_TRUNC) != 0 ? 0
							  : dns_answer(in, (size_t)n, out, known, l->guest);
		struct cmsghdr *h = CMSG_FIRSTHDR(&m);
		if (h != NULL && h->cmsg_level == IPPROTO_IP && h->cmsg_type == IP_PKTINFO) {
			struct in_pktinfo info;
			memcpy(&info, CMSG_DATA(h), sizeof info);
			info.ipi_ifindex = 0;
			info.ipi_spec_dst = info.ipi_addr;
			memcpy(CMSG_DATA(h), &info, sizeof info);
		}
		piece = (struct iovec){ .iov_base = out, .iov_len = k };
		m.msg_flags = 0;
		if (k > 0)
			(void)sendmsg(l->watch.fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL);
	}
}

void dns_stream(struct conn *c)
{
	unsigned char out[2 + DNS_UDP_BYTES + DNS_ADDED_BYTES];
	while (!c->doomed && c->in.n >= 2) {
		const unsigned char *p = (const unsigned char *)c->in.p;
		size_t n = (size_t)p[0] << 8 | p[1];
		if (n > DNS_UDP_BYTES) {
			conn_close(c, REASON_BAD_HEADER, true);
			return;
		}
		if (c->in.n < 2 + n)
			return;
		size_t k = dns_answer(p + 2, n, out + 2, known, c->guest);
		out[0] = (unsigned char)(k >> 8);
		out[1] = (unsigned char)k;
		buf_drop(&c->in, 2 + n);
		if (k == 0 || conn_to_client(c, out, 2 + k) != 0)
			conn_close(c, REASON_EOF, true);
	}
}
