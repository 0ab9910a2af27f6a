#include "egress/hello.h"

#include <string.h>

enum { HANDSHAKE = 22, RECORD_MAX = 16384, CLIENT_HELLO = 1, SESSION_ID_MAX = 32, RANDOM_BYTES = 32 };
enum { EXT_SERVER_NAME = 0, EXT_ECH = 0xfe0d /* encrypted_client_hello */ };

/* Numbers come first: STATE_BYTES says of how many bytes each is. The others skip or keep `left` bytes. */
enum state {
	MSG_TYPE,
	MSG_LENGTH,
	VERSION,
	SESSION_LEN,
	CIPHERS_LEN,
	COMPRESSIONS_LEN,
	EXTS_LEN,
	EXT_TYPE,
	EXT_LEN,
	SNI_LIST,
	SNI_TYPE,
	SNI_LEN,
	NUMBERS_,
	RANDOM = NUMBERS_,
	SESSION,
	CIPHERS,
	COMPRESSIONS,
	EXT_BODY,
	SNI_NAME,
};
static const uint8_t bytes_of[NUMBERS_] = {
	[MSG_TYPE] = 1,
	[MSG_LENGTH] = 3,
	[VERSION] = 2,
	[SESSION_LEN] = 1,
	[CIPHERS_LEN] = 2,
	[COMPRESSIONS_LEN] = 1,
	[EXTS_LEN] = 2,
	[EXT_TYPE] = 2,
	[EXT_LEN] = 2,
	[SNI_LIST] = 2,
	[SNI_TYPE] = 1,
	[SNI_LEN] = 2,
};

static enum egress_reason skip(struct hello *h, enum state state, uint32_t left)
{
	static const enum state next[] = { [RANDOM] = SESSION_LEN,
		[SESSION] = CIPHERS_LEN,
		[CIPHERS] = COMPRESSIONS_LEN,
		[COMPRESSIONS] = EXTS_LEN,
		[EXT_BODY] = EXT_TYPE };
	h->left = left;
	h->state = (uint8_t)(left > 0 ? state : next[state]);
	return REASON_OK;
}

static enum egress_reason expect(struct hello *h, enum state state)
{
	h->state = (uint8_t)state;
	return REASON_OK;
}

static enum egress_reason on_ext(struct hello *h, uint32_t len)
{
	enum state kind = h->list == EXT_SERVER_NAME ? SNI_LIST
						     : EXT_BODY; /* list: the extension's type so far */
	if (len > h->exts)
		return REASON_BAD_HELLO;
	h->exts -= len;
	h->ech = h->ech || h->list == EXT_ECH;
	if (kind == EXT_BODY)
		return skip(h, EXT_BODY, len);
	if (h->sni_seen || len < 2)
		return REASON_BAD_SNI;
	h->sni_seen = true;
	h->list = (uint16_t)(len - 2);
	return expect(h, SNI_LIST);
}

/* A number of the message is whole. Whether its length fits into what encloses it is asked here, before anything is skipped. */
static enum egress_reason on_number(struct hello *h, uint32_t v)
{
	uint32_t rest = h->length + 4 - h->seen;
	switch ((enum state)h->state) {
	case MSG_TYPE:
		return v == CLIENT_HELLO ? expect(h, MSG_LENGTH) : REASON_NOT_CLIENT_HELLO;
	case MSG_LENGTH:
		h->length = v;
		return v + 4 > HELLO_MAX ? REASON_HELLO_TOO_LARGE : expect(h, VERSION);
	case VERSION:
		return v >> 8 == 3 ? skip(h, RANDOM, RANDOM_BYTES) : REASON_BAD_HELLO;
	case SESSION_LEN:
		return v <= SESSION_ID_MAX && v <= rest ? skip(h, SESSION, v) : REASON_BAD_HELLO;
	case CIPHERS_LEN:
		return v >= 2 && v % 2 == 0 && v <= rest ? skip(h, CIPHERS, v) : REASON_BAD_HELLO;
	case COMPRESSIONS_LEN:
		return v >= 1 && v <= rest ? skip(h, COMPRESSIONS, v) : REASON_BAD_HELLO;
	case EXTS_LEN:
		h->exts = v;
		return v == rest ? expect(h, EXT_TYPE) : REASON_BAD_HELLO;
	case EXT_TYPE:
		h->list = (uint16_t)v;
		return h->exts >= 4 ? (h->exts -= 4, expect(h, EXT_LEN)) : REASON_BAD_HELLO;
	case EXT_LEN:
		return on_ext(h, v);
	case SNI_LIST:
		return v == h->list && v > 0 ? expect(h, SNI_TYPE) : REASON_BAD_SNI;
	case SNI_TYPE:
		return v == 0 ? expect(h, SNI_LEN) : REASON_BAD_SNI;
	case SNI_LEN: /* the list is this one name (RFC 6066: one of a type, and there is one type) */
		if (v == 0 || v >= sizeof h->name || v + 3 != h->list)
			return REASON_BAD_SNI;
		h->left = v;
		return expect(h, SNI_NAME);
	default:
		return REASON_BAD_HELLO;
	}
}

static enum egress_reason on_field(struct hello *h, uint8_t b)
{
	if (h->state < NUMBERS_) {
		h->value = h->value << 8 | b;
		if (++h->have < bytes_of[h->state])
			return REASON_OK;
		uint32_t v = h->value;
		h->value = 0;
		h->have = 0;
		return on_number(h, v);
	}
	if (h->state == SNI_NAME) {
		h->name[h->name_n++] = (char)b;
		h->has_name = --h->left == 0;
		return h->has_name ? expect(h, EXT_TYPE) : REASON_OK;
	}
	return skip(h, h->state, h->left - 1);
}

/*
 * One byte of the handshake message. What is wrong inside it is kept until it is whole: a length that promises more than comes
 * is waited for like everything else that is late.
 */
static enum egress_reason on_byte(struct hello *h, uint8_t b)
{
	h->seen++;
	if (h->reason != REASON_NONE)
		return REASON_OK;
	enum egress_reason why = on_field(h, b);
	if (why == REASON_OK || h->seen <= 4)
		return why;
	h->reason = why;
	return REASON_OK;
}

/* Of the record header: one of its five bytes. */
static enum egress_reason on_header(struct hello *h, uint8_t b)
{
	switch (h->header++) {
	case 0:
		if (b == HANDSHAKE)
			return REASON_OK;
		/* change_cipher_spec, alert, application data */
		return h->later          ? REASON_BAD_RECORD
		    : b >= 20 && b <= 24 ? REASON_NOT_CLIENT_HELLO
					 : REASON_NOT_TLS;
	case 1:
		return b == 3 ? REASON_OK : h->later ? REASON_BAD_RECORD : REASON_NOT_TLS;
	case 2:
		return REASON_OK;
	case 3:
		h->record = (uint16_t)(b << 8);
		return REASON_OK;
	default:
		h->record |= b;
		h->header = 0;
		h->later = true;
		/* RFC 8446 5.1: handshake fragments are not empty */
		return h->record == 0 || h->record > RECORD_MAX ? REASON_BAD_RECORD : REASON_OK;
	}
}

static bool whole(const struct hello *h)
{
	return h->seen >= 4 && h->seen == h->length + 4;
}

/* The message has ended: where it may, and nothing follows it in its record. */
static enum egress_reason finish(const struct hello *h)
{
	if (h->reason != REASON_NONE)
		return h->reason;
	bool between = h->have == 0 && (h->state == EXTS_LEN || (h->state == EXT_TYPE && h->exts == 0));
	return !between ? REASON_BAD_HELLO : h->record > 0 ? REASON_BAD_RECORD : REASON_OK;
}

enum hello_step hello_read(struct hello *h, const uint8_t *p, size_t n)
{
	enum egress_reason why = REASON_OK;
	while (h->at < n && why == REASON_OK && !whole(h)) {
		uint8_t b = p[h->at++];
		if (h->at > HELLO_RAW_MAX) {
			why = REASON_HELLO_TOO_LARGE;
		} else if (h->record == 0 || h->header > 0) {
			why = on_header(h, b);
		} else {
			h->record--;
			why = on_byte(h, b);
		}
	}
	if (why == REASON_OK && !whole(h))
		return HELLO_MORE;
	if (why == REASON_OK)
		why = finish(h);
	h->reason = why;
	return why == REASON_OK ? HELLO_DONE : HELLO_BAD;
}

enum egress_reason hello_cut(const struct hello *h)
{
	bool between = h->later && h->record == 0 && h->header == 0;
	return between ? REASON_TIMEOUT : REASON_EOF;
}

enum egress_reason hello_judge(const struct egress_site *site, const struct host *host, const struct hello *h)
{
	struct host name;
	if (!h->has_name)
		return host->literal || site->sni_absent ? REASON_OK : REASON_SNI_MISSING;
	if (!host_canon((struct str){ h->name, h->name_n }, HOST_BARE, &name) || name.literal)
		return REASON_BAD_SNI; /* RFC 6066: a name, and not an address */
	if (!host_equal(&name, host))
		return REASON_SNI_MISMATCH;
	return h->ech && !site->ech ? REASON_ECH_REFUSED : REASON_OK;
}
