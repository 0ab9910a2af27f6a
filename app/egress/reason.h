/*
 * reason.h - why the boundary let something pass or not: one enum for clients, events, audit rows and metrics (EGR-5), with one
 * table (reason.c) of names, verdicts and HTTP statuses.
 */
#pragma once

enum egress_verdict { EGRESS_ALLOW, EGRESS_DENY, EGRESS_BAD_REQUEST, EGRESS_CONFIG_ERROR };

enum egress_reason {
	REASON_NONE,
	/* allowed */
	REASON_OK,
	REASON_EXACT,
	REASON_SUFFIX,
	REASON_MODE_ALLOW_ALL,
	REASON_RESOLVER_ALLOWED,
	/* refused by policy, address, name resolution or limits */
	REASON_MODE_DENY_ALL,
	REASON_NOT_ON_ALLOWLIST,
	REASON_PORT_NOT_ALLOWED,
	REASON_RESOLVER_DENIED,
	REASON_POLICY_UNAVAILABLE,
	REASON_AUDIT_UNAVAILABLE,
	REASON_ADDRESS_DENIED,
	REASON_ADDRESS_SELF,
	REASON_DNS_NXDOMAIN,
	REASON_DNS_EMPTY,
	REASON_DNS_ERROR,
	REASON_LIMIT_EXCEEDED,
	REASON_BROKER_TUNNEL, /* a host with a brokered credential was asked for by a tunnel */
	REASON_COMMAND_NOT_SUPPORTED,
	/* not a request that can be understood in one way only */
	REASON_BAD_HOST,
	REASON_BAD_PORT,
	REASON_BAD_TARGET,
	REASON_BAD_SCHEME,
	REASON_BAD_REQUEST_LINE,
	REASON_BAD_VERSION,
	REASON_BAD_HEADER,
	REASON_BAD_CHAR,
	REASON_BARE_LF,
	REASON_OBS_FOLD,
	REASON_TE_AND_CL,
	REASON_TE_BAD,
	REASON_TE_IN_10,
	REASON_CL_BAD,
	REASON_CL_DUPLICATE,
	REASON_CL_LIST,
	REASON_CHUNK_BAD,
	REASON_HOST_MISSING,
	REASON_HOST_DUPLICATE,
	REASON_HOST_MISMATCH,
	REASON_CONNECT_BODY,
	REASON_METHOD_NOT_ALLOWED, /* 405 */
	REASON_TARGET_TOO_LONG,    /* 414; named too_long, as the next */
	REASON_HEAD_TOO_LONG,      /* 431 */
	REASON_EXPECTATION,        /* 417 */
	REASON_NOT_HTTP,
	REASON_BAD_SOCKS,
	REASON_BAD_ADDRESS_TYPE,
	/* TLS: the tunnel is closed */
	REASON_SNI_MISSING,
	REASON_SNI_MISMATCH,
	REASON_BAD_SNI,
	REASON_HELLO_TOO_LARGE,
	REASON_NOT_TLS,
	REASON_NOT_CLIENT_HELLO,
	REASON_BAD_RECORD,
	REASON_BAD_HELLO,
	REASON_ECH_REFUSED,
	/* time, peers and the end of a connection */
	REASON_HEAD_TIMEOUT, /* 408 */
	REASON_TIMEOUT,      /* a ClientHello that does not come */
	REASON_EOF,
	REASON_CONNECT_FAILED,   /* 502 */
	REASON_CONNECT_TIMEOUT,  /* 504 */
	REASON_UPSTREAM_BAD,     /* 502: the answer cannot be understood in one way only */
	REASON_UPSTREAM_CLOSED,  /* 502: closed before answering */
	REASON_UPSTREAM_TIMEOUT, /* 504: connected, then silent */
	REASON_UPSTREAM_TLS,     /* 502: of a request that was upgraded: no TLS, or not with that host */
	REASON_IDLE_TIMEOUT,
	REASON_TOTAL_TIMEOUT,
	REASON_POLICY_CHANGED,
	REASON_SANDBOX_ENDED,
	REASON_PROXY_ENDED,
	REASON_OVERLOADED, /* 503: no descriptor or memory for one more connection */
	/* a policy that may not be written */
	REASON_BAD_ENTRY,
	REASONS_
};

const char *reason_name(enum egress_reason r);
enum egress_verdict reason_verdict(enum egress_reason r);
const char *reason_verdict_name(enum egress_verdict v);
int reason_status(enum egress_reason r);       /* HTTP status of the refusal; 200 when allowed */
const char *reason_text(enum egress_reason r); /* one sentence that says what to do about it */
