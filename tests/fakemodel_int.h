/* fakemodel_int.h - what the two files of the scripted model vendor share. */
#pragma once

#include <jansson.h>

#include "fakemodel.h"

enum fake_wire { FAKE_CHAT, FAKE_MESSAGES, FAKE_RESPONSES, FAKE_MODELS, FAKE_NO_WIRE };
enum fake_act {
	FAKE_OK,
	FAKE_429_AFTER,
	FAKE_429_DATE,
	FAKE_429,
	FAKE_401,
	FAKE_402,
	FAKE_403,
	FAKE_404,
	FAKE_500,
	FAKE_503,
	FAKE_RESET,
	FAKE_SILENT,
	FAKE_SLOW,      /* the head at once, the first token late */
	FAKE_CUT,       /* 40 tokens, then closed */
	FAKE_CUT_RESET, /* 40 tokens, then reset */
	FAKE_STALL,     /* 20 tokens, then silence, then closed */
	FAKE_MALFORMED, /* an event that is no JSON before the tenth token */
	FAKE_NO_DONE,   /* everything but the last, terminal event of the wire */
	FAKE_CONTEXT,
	FAKE_FILTER,
	FAKE_NO_PREFILL, /* refuses when the last message is the assistant's */
	FAKE_FLAP,
	FAKE_HTML_502,
	FAKE_HTML_200,
	FAKE_EMPTY, /* 200 and nothing */
	FAKE_NULL,  /* 200 and null */
	FAKE_NO_CHOICES,
	FAKE_REDIRECT,
	FAKE_JSON_CUT, /* a buffered answer, half of it, with the length of half of it */
	FAKE_CRLF,
	FAKE_COMMENTS,
	FAKE_SPLIT, /* seven bytes at a time, with characters of several bytes among the words */
	FAKE_BOM,   /* before a stream, and before a buffered answer */
	FAKE_GZIP,
	FAKE_NO_USAGE,
	FAKE_MUCH_USAGE,     /* two thousand million tokens of each kind */
	FAKE_ODD_USAGE,      /* less than nothing, and a fraction */
	FAKE_TOOLS,          /* two calls, one after the other */
	FAKE_TOOLS_MIXED,    /* their pieces in turn */
	FAKE_TOOLS_SAME,     /* both with index 0 */
	FAKE_TOOLS_NAMELESS, /* the first in one event, without a name */
	FAKE_ERROR_FIRST,    /* an error as the first event */
	FAKE_ERROR_EVENT,    /* after 10 tokens */
	FAKE_ENDLESS,        /* tokens until the client leaves */
	FAKE_MARKUP,         /* the text is a raw tool call */
	FAKE_MARKUP_SLOW,    /* the same in pieces that come one after the other, the marker in two */
	FAKE_MARKUP_CUT,     /* half a marker, then silence as of a stall */
	FAKE_MARKUP_LATE,    /* after 20 tokens, the marker in two pieces */
	FAKE_MARKUP_CODE,    /* a marker in a code span */
	FAKE_BIG_LINE,       /* an event of 10 MB */
	FAKE_ONLY_HEAD,      /* the head of a stream, then closed */
	FAKE_FIELD,          /* refuses the request for a member of it, which it names */
	FAKE_LEAK,           /* refuses the request in words that hold keys of several vendors */
	FAKE_NUL,            /* U+0000 within the thirtieth word */
	FAKE_TWICE,          /* another stream behind the end of the first */
	FAKE_NO_STREAM,      /* one JSON value, also to who wants a stream */
	FAKE_NO_STREAM_TOOLS,
	FAKE_KEY_TWICE, /* JSON with a member twice */
};

struct fake_call { /* one connection, and the request on it */
	struct fakemodel *f;
	int fd;
	bool gone, close;
	enum fake_wire wire;
	enum fake_act act;
	bool stream;
	char model[80];
	json_t *body;
};

bool fake_say(struct fake_call *k, const void *p, size_t n); /* false: the client is gone */
bool fake_wait(struct fake_call *k, int ms);
struct fakemodel_times fake_times(struct fake_call *k);
bool fake_down(struct fake_call *k);  /* "flap" is */
void fake_reset(struct fake_call *k); /* the connection will end with a reset */
void fake_answer(struct fake_call *k);

/* fakemodel_body.c */
void fake_head(
    struct fake_call *k, int status, const char *type, const char *more, long length); /* -1: chunked */
void fake_whole(struct fake_call *k, int status, const char *type, const char *more, const char *body);
void fake_error(struct fake_call *k, int status, const char *more, const char *type, const char *code,
    const char *message);
void fake_word(const struct fake_call *k, int i, char out[40]);
json_t *fake_chat_usage(const struct fake_call *k, int out);
json_t *fake_flat_usage(const struct fake_call *k, int out);
bool fake_refused(struct fake_call *k); /* it has answered */
bool fake_nonsense(struct fake_call *k);
void fake_buffered(struct fake_call *k);
bool fake_calls(const struct fake_call *k); /* does it answer with calls? */
void fake_nul(char *text); /* of FAKE_NUL: what stands for U+0000 in JSON text becomes its escape */
