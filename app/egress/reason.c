#include "egress/reason.h"

#include <stddef.h>

/*
 * What a client does about it is said by the name and the text. The texts name no host and no address, and a setting only
 * where nobody but the deployment can do something about it.
 */
static const struct {
	const char *name, *text;
	enum egress_verdict verdict;
	int status;
} reasons[REASONS_] = {
#define ALLOW(r, name)              [r] = { name, "This is allowed.", EGRESS_ALLOW, 200 }
#define DENY(r, name, status, text) [r] = { name, text, EGRESS_DENY, status }
#define BAD(r, name, status, text)  [r] = { name, text, EGRESS_BAD_REQUEST, status }
	ALLOW(REASON_NONE, "none"),
	ALLOW(REASON_OK, "ok"),
	ALLOW(REASON_EXACT, "exact"),
	ALLOW(REASON_SUFFIX, "suffix"),
	ALLOW(REASON_MODE_ALLOW_ALL, "mode_allow_all"),
	ALLOW(REASON_RESOLVER_ALLOWED, "resolver_allowed"),

	DENY(REASON_MODE_DENY_ALL, "mode_deny_all", 403,
	    "This sandbox reaches nothing: its network mode is deny-all; PUT /v1/sandboxes/{id}/network "
	    "changes "
	    "it."),
	DENY(REASON_NOT_ON_ALLOWLIST, "not_on_allowlist", 403,
	    "The host is not on this sandbox's list; add it to allowedHosts to reach it."),
	DENY(REASON_PORT_NOT_ALLOWED, "port_not_allowed", 403,
	    "The host is allowed on other ports only; a list entry names a port as host:port."),
	DENY(REASON_RESOLVER_DENIED, "resolver_denied", 403,
	    "The deployment's policy resolver refuses this host."),
	DENY(REASON_POLICY_UNAVAILABLE, "policy_unavailable", 403,
	    "This sandbox's network policy cannot be read now, so nothing is allowed."),
	DENY(REASON_AUDIT_UNAVAILABLE, "audit_unavailable", 503,
	    "The decision cannot be recorded now, so nothing is allowed; try again later."),
	DENY(REASON_ADDRESS_DENIED, "address_denied", 403,
	    "The host has an address that is not a public one; private ones are reached only where the "
	    "deployment's setting EGRESS_ALLOW_INWARD_FOR lists the host."),
	DENY(REASON_ADDRESS_SELF, "address_self", 403,
	    "The host has an address that belongs to this installation, which no sandbox can ever reach."),
	DENY(REASON_DNS_NXDOMAIN, "dns_nxdomain", 502, "The host name does not exist."),
	DENY(REASON_DNS_EMPTY, "dns_empty", 502, "The host name has no address."),
	DENY(REASON_DNS_ERROR, "dns_error", 502, "The host name cannot be resolved now; try again later."),
	DENY(
	    REASON_LIMIT_EXCEEDED, "limit_exceeded", 429, "This sandbox has reached a limit of its network."),
	DENY(REASON_BROKER_TUNNEL, "broker_tunnel", 403,
	    "A credential is kept for this host, which a tunnel cannot be given: ask for http:// through the "
	    "proxy, it is sent "
	    "on by https."),
	DENY(REASON_COMMAND_NOT_SUPPORTED, "command_not_supported", 405,
	    "Of SOCKS only CONNECT is spoken here."),

	BAD(REASON_BAD_HOST, "bad_host", 400, "The host is not a name in ASCII nor a canonical IP address."),
	BAD(REASON_BAD_PORT, "bad_port", 400, "The port is missing or not a decimal number from 1 to 65535."),
	BAD(REASON_BAD_TARGET, "bad_target", 400,
	    "A proxy is asked with `CONNECT host:port` or with `METHOD http://host/path`."),
	BAD(REASON_BAD_SCHEME, "bad_scheme", 400, "Only http:// is spoken here; https goes through CONNECT."),
	BAD(REASON_BAD_REQUEST_LINE, "bad_request_line", 400,
	    "The request line is not METHOD, target and version."),
	BAD(REASON_BAD_VERSION, "bad_version", 400, "Only HTTP/1.1 and HTTP/1.0 are spoken here."),
	BAD(REASON_BAD_HEADER, "bad_header", 400, "A header line is not a name, a colon and a value."),
	BAD(REASON_BAD_CHAR, "bad_char", 400, "The head has a control character."),
	BAD(REASON_BARE_LF, "bare_lf", 400, "Lines of the head end with CR and LF."),
	BAD(REASON_OBS_FOLD, "obs_fold", 400, "A header line goes on in the next one."),
	BAD(REASON_TE_AND_CL, "te_and_cl", 400, "The body has both a length and chunks."),
	BAD(REASON_TE_BAD, "te_bad", 400, "The only transfer coding spoken here is one `chunked`."),
	BAD(REASON_TE_IN_10, "te_in_10", 400, "HTTP/1.0 has no transfer codings."),
	BAD(REASON_CL_BAD, "cl_bad", 400, "Content-Length is not a decimal number."),
	BAD(REASON_CL_DUPLICATE, "cl_duplicate", 400, "Content-Length stands twice."),
	BAD(REASON_CL_LIST, "cl_list", 400, "Content-Length is a list."),
	BAD(REASON_CHUNK_BAD, "chunk_bad", 400, "The chunks of the body are malformed."),
	BAD(REASON_HOST_MISSING, "host_missing", 400, "HTTP/1.1 needs a Host header."),
	BAD(REASON_HOST_DUPLICATE, "host_duplicate", 400, "There are two Host headers."),
	BAD(REASON_HOST_MISMATCH, "host_mismatch", 400,
	    "The Host header names another host than the target."),
	BAD(REASON_CONNECT_BODY, "connect_body", 400, "CONNECT has no body."),
	BAD(REASON_METHOD_NOT_ALLOWED, "method_not_allowed", 405, "This method is not sent on."),
	BAD(REASON_TARGET_TOO_LONG, "too_long", 414, "The request line is too long."),
	BAD(REASON_HEAD_TOO_LONG, "too_long", 431, "The headers are too long or too many."),
	BAD(REASON_EXPECTATION, "bad_expectation", 417, "The only expectation spoken here is 100-continue."),
	BAD(REASON_NOT_HTTP, "not_http", 400, "This is neither HTTP nor SOCKS5."),
	BAD(REASON_BAD_SOCKS, "bad_socks", 400, "The SOCKS request is malformed or wants a login."),
	BAD(REASON_BAD_ADDRESS_TYPE, "bad_address_type", 400, "The SOCKS address type is unknown."),

	DENY(REASON_SNI_MISSING, "sni_missing", 403,
	    "The TLS client names no server, and the tunnel is to a name."),
	DENY(REASON_SNI_MISMATCH, "sni_mismatch", 403,
	    "The TLS client names another server than the tunnel's host."),
	DENY(REASON_BAD_SNI, "bad_sni", 403, "The TLS server name is malformed."),
	DENY(REASON_HELLO_TOO_LARGE, "hello_too_large", 403, "The TLS ClientHello is too large."),
	DENY(REASON_NOT_TLS, "not_tls", 403, "What is sent to this port is not TLS."),
	DENY(REASON_NOT_CLIENT_HELLO, "not_client_hello", 403, "TLS does not begin with a ClientHello."),
	DENY(REASON_BAD_RECORD, "bad_record", 403, "The TLS records of the ClientHello are malformed."),
	DENY(REASON_BAD_HELLO, "bad_hello", 403, "The TLS ClientHello is malformed."),
	DENY(REASON_ECH_REFUSED, "ech_refused", 403,
	    "The TLS client hides the server's name; turn Encrypted ClientHello off."),

	BAD(REASON_HEAD_TIMEOUT, "head_timeout", 408, "The head of the request did not come in time."),
	DENY(REASON_TIMEOUT, "timeout", 408, "The TLS ClientHello did not come in time."),
	DENY(REASON_EOF, "eof", 400, "The client closed before it had asked."),
	DENY(REASON_CONNECT_FAILED, "connect_failed", 502,
	    "The host refused the connection or cannot be reached."),
	DENY(REASON_CONNECT_TIMEOUT, "connect_timeout", 504, "The host did not take the connection in time."),
	DENY(REASON_UPSTREAM_BAD, "upstream_bad", 502, "The host's answer is malformed."),
	DENY(REASON_UPSTREAM_CLOSED, "upstream_closed", 502,
	    "The host closed the connection before it had answered."),
	DENY(REASON_UPSTREAM_TIMEOUT, "upstream_timeout", 504, "The host did not answer in time."),
	DENY(REASON_UPSTREAM_TLS, "upstream_tls", 502,
	    "A credential is kept for this host, and no TLS with a valid certificate could be agreed on."),
	DENY(REASON_IDLE_TIMEOUT, "idle_timeout", 408, "Nothing was sent for too long."),
	DENY(REASON_TOTAL_TIMEOUT, "total_timeout", 408, "The connection has lasted as long as one may."),
	DENY(REASON_POLICY_CHANGED, "policy_changed", 403,
	    "The network policy changed and no longer allows this host."),
	DENY(REASON_SANDBOX_ENDED, "sandbox_ended", 403, "The sandbox has ended."),
	DENY(REASON_PROXY_ENDED, "proxy_ended", 503, "The boundary is starting again; try again."),
	DENY(REASON_OVERLOADED, "overloaded", 503, "No more connections can be taken now; try again later."),
	[REASON_BAD_ENTRY] = { "bad_entry", "An entry of the list is not a host pattern.",
	    EGRESS_CONFIG_ERROR, 400 },
};

const char *reason_name(enum egress_reason r)
{
	return reasons[r].name;
}

enum egress_verdict reason_verdict(enum egress_reason r)
{
	return reasons[r].verdict;
}

const char *reason_verdict_name(enum egress_verdict v)
{
	static const char *const names[] = { "allow", "deny", "bad_request", "config_error" };
	return names[v];
}

int reason_status(enum egress_reason r)
{
	return reasons[r].status;
}

const char *reason_text(enum egress_reason r)
{
	return reasons[r].text;
}
