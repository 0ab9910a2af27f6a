/* call_int.h - what the files of the engine share: one call, one attempt of it. Everything in it lives as long as the request. */
#pragma once

#include "base/buf.h"
#include "io/http.h"
#include "model/call.h"
#include "model/keyring.h"
#include "model/markup.h"

enum verdict {
	CALL_DONE,    /* the client has its answer */
	CALL_BROKEN,  /* the client has the beginning of a stream, and its end in an error */
	CALL_LEFT,    /* the client is gone */
	CALL_AGAIN,   /* a transient fault: the same model may be tried again */
	CALL_NEXT,    /* not this model any more, but another */
	CALL_REFUSED, /* permanent: nobody else is asked */
};

/* What a client is told when nobody answers. message is ours, or an upstream's through the redactor. */
struct call_fail {
	enum wire_fault kind;
	const char *message, *param;
	int retry_s;
};

struct call_limits {        /* milliseconds, of settings */
	int first_token_ms; /* of a stream, while another model may be asked */
	int answer_ms;      /* of a buffered answer, likewise */
	int stall_ms;       /* of silence in an answer that has begun */
	int tail_ms;        /* for what may follow the end of an answer: usage, the terminal event */
	int retry_wait_ms;  /* for a key that returns, at most */
	int connect_ms;
	int attempts; /* of one model */
};

struct call {
	struct ctx *c;
	const struct call_svc *svc;
	enum provider_wire wire; /* the client's */
	json_t *in;
	struct wire_ask ask;
	struct model_route route;
	struct call_limits limits;
	int64_t deadline_ms; /* for the first byte; what streams goes on under stall_ms and the total */
	int64_t end_ms;      /* of everything */
	const char *sticky;
	long long est_in;  /* input tokens, estimated */
	long long most_in; /* wire_input_most; 0: not looked yet */
	bool doubted;      /* it is in the log that an upstream's usage cannot be */
	struct gate_call *gate;
	struct gate_limits rates;
	struct err *e; /* the caller's, clear between attempts: open streams are many, and an err is large */
	struct call_fail fail;    /* of the last attempt */
	struct call_attempt *now; /* under way */
	int at_target;            /* how many there were before the first at its target */
	bool charged;             /* the last attempt is to be paid for */
	struct gate_used used;    /* by the attempt that answers */
	json_t *kept;             /* the answer, to be stored for its Idempotency-Key; in the arena */
	struct call_record rec;
};

struct call_stream; /* stream.c */
struct attempt {
	struct call *k;
	const struct route_target *t;
	const struct provider_key *key;
	struct call_attempt *note, beyond; /* beyond: of those that the record has no room for */
	const struct wire_names *names;    /* where wires differ */
	int64_t until_ms;
	int status;
	int64_t retry_after_ms;
	bool html;
	struct buf ask;  /* the request, until it is sent */
	struct buf body; /* of what is no stream */
	struct call_stream *stream;
	bool tell; /* outcome is for the key */
	enum key_outcome outcome;
};

/* attempt.c: ask this target with this key. `last`: nobody else can be asked, so slowness is borne. */
enum verdict attempt_run(
    struct call *k, const struct route_target *t, const struct provider_key *key, bool last);
/* Set the fault and say what becomes of the call. reason: static, for the record; outcome for the key. */
enum verdict attempt_fails(
    struct attempt *a, enum verdict v, const char *reason, enum wire_fault kind, const char *message);
enum verdict attempt_key_fails(struct attempt *a, enum verdict v, const char *reason, enum wire_fault kind,
    const char *message, enum key_outcome outcome);
/* A fault that an upstream tells of in an answer or a stream of status 200. */
enum verdict attempt_told(struct attempt *a, enum wire_fault kind, const char *said);

/* buffered.c: a buffered answer of status 2xx. */
enum verdict buffered_give(struct attempt *a);

/* stream.c: events as they come. -1: there is nothing to wait for any more. */
void stream_open(struct attempt *a);
int stream_data(struct attempt *a, const char *p, size_t n);
enum verdict stream_end(struct attempt *a, int rc, const struct err *e);
void stream_rest(struct attempt *a); /* it may be silent for long: no memory that it does not need */
void stream_close(struct attempt *a);

/* reply.c: what the client gets besides content. */
int call_reply_begin(struct call *k, int status, const char *type);
void call_tell(struct call *k); /* MOD-11: as headers of whatever is answered */
void call_refuse_with(struct call *k, struct err *e);

/* used.c */
/* Output tokens to reserve for. */
long long call_worst_out(const struct call *k, const struct provider_model *m);
/* False: what u tells cannot be. Then clients, of the same wire too, are told call_charged in its place. */
bool call_used(
    struct call *k, const struct attempt *a, const struct wire_usage *u, size_t written, bool ended);
struct wire_usage call_charged(const struct call *k);
/* What a client of another wire is told where the upstream told nothing: what is charged. */
struct wire_usage call_estimate(const struct call *k, size_t written);
/* What is known by now, for the case that this process dies. */
void call_note(struct call *k);
