#include "egress/dns_answer.h"

#include <string.h>

enum {
	HEAD = 12,
	TTL_S = 5,
	TYPE_A = 1,
	CLASS_IN = 1,
	QR = 0x80,
	OPCODE = 0x78,
	RD = 0x01,
	RA = 0x80,
	FORMERR = 1,
	NXDOMAIN = 3,
	NOTIMP = 4,
};

/* Of the benchmarking block: nobody's, and it says so in every log. */
static const unsigned char made_up[4] = { 198, 18, 0, 1 };

static unsigned get16(const unsigned char *p)
{
	return (unsigned)p[0] << 8 | p[1];
}

/* The name of the question at p[HEAD..n) as text; the end of the question, or 0 when it is none. */
static size_t question(const unsigned char *p, size_t n, char name[256], size_t *len)
{
	size_t at = HEAD;
	*len = 0;
	while (at < n && p[at] != 0) {
		size_t label = p[at++];
		if (label > 63 || at + label > n || *len + label + 1 > 253)
			return 0;
		if (*len > 0)
			name[(*len)++] = '.';
		memcpy(name + *len, p + at, label);
		*len += label;
		at += label;
	}
	return at + 5 <= n ? at + 5 : 0;
}

size_t dns_answer(const unsigned char *p, size_t n, unsigned char *out,
    bool (*known)(void *arg, struct str name), void *arg)
{
	char name[256];
	size_t len = 0, end = n < HEAD || (p[2] & QR) != 0 ? 0 : HEAD;
	unsigned rc = 0, answers = 0;
	if (end == 0)
		return 0;
	if ((p[2] & OPCODE) != 0)
		rc = NOTIMP;
	else if (get16(p + 4) != 1 || (end = question(p, n, name, &len)) == 0)
		rc = FORMERR;
	end = rc != 0 ? HEAD : end;
	memcpy(out, p, end);
	if (rc == 0 && !known(arg, (struct str){ name, len }))
		rc = NXDOMAIN;
	if (rc == 0 && get16(p + end - 4) == TYPE_A && get16(p + end - 2) == CLASS_IN) {
		const unsigned char record[] = { 0xc0, HEAD, 0, TYPE_A, 0, CLASS_IN, 0, 0, 0, TTL_S, 0,
			sizeof made_up };
		memcpy(out + end, record, sizeof record);
		memcpy(out + end + sizeof record, made_up, sizeof made_up);
		end += sizeof record + sizeof made_up;
		answers = 1;
	}
	out[2] = (unsigned char)(QR | (p[2] & (OPCODE | RD)));
	out[3] = (unsigned char)(RA | rc);
	memset(out + 4, 0, 8);
	out[5] = end > HEAD;
	out[7] = (unsigned char)answers;
	return end;
}
