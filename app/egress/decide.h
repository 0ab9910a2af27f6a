/*
 * decide.h - the only decision about where a connection may go (EGR-15): every form, every port, every request of a kept
 * connection passes here. Pure: no query, no clock, no allocation. What a decision may depend on is its arguments.
 *
 * decide_name() first; when it says DECIDE_RESOLVE, one resolution, then decide_addresses() with all of its records.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/addr.h"
#include "base/host.h"
#include "base/str.h"
#include "egress/policy.h"
#include "egress/reason.h"

enum egress_form { FORM_CONNECT, FORM_HTTP, FORM_SOCKS, FORM_TRANSPARENT };
const char *decide_form_name(enum egress_form form);

enum decide_step {
	DECIDE_REFUSE,  /* reason says why */
	DECIDE_ASK,     /* mode resolver: ask the deployment's resolver, then decide_asked() */
	DECIDE_RESOLVE, /* ask DNS for host.name, then decide_addresses() */
	DECIDE_CONNECT, /* to address */
};

struct egress_decision {
	enum decide_step step;
	enum egress_reason reason;
	enum egress_reason would; /* EGR-13: what would have refused it; REASON_NONE otherwise */
	enum egress_form form;
	struct host host;
	uint16_t port;
	bool inward;       /* EGR-4 applies to this host */
	struct ip address; /* DECIDE_CONNECT: where to; refused by address: the first that is at fault */
	bool has_address;
	enum addr_class class; /* of address */
};

/* The text of an authority or a SOCKS name. no_port is the port when there is none; 0 makes that REASON_BAD_PORT. */
enum egress_reason decide_target(struct str text, uint16_t no_port, struct host *host, uint16_t *port);

/* Name rules; a literal is screened at once. */
void decide_name(const struct egress_site *site, const struct egress_policy *policy, enum egress_form form,
    const struct host *host, uint16_t port, struct egress_decision *d);
/* The answer of a resolver of mode `resolver`: allowed, or not; unanswered denies with policy_unavailable. */
enum decide_answer { ANSWER_NONE, ANSWER_NO, ANSWER_YES };
void decide_asked(const struct egress_site *site, enum decide_answer answer, struct egress_decision *d);
/* All records of the one resolution. One that may not be reached refuses the whole answer; n 0 is REASON_DNS_EMPTY. */
void decide_addresses(
    const struct egress_site *site, const struct ip *addrs, size_t n, struct egress_decision *d);
/* The resolution failed: REASON_DNS_NXDOMAIN or REASON_DNS_ERROR. */
void decide_unresolved(enum egress_reason why, struct egress_decision *d);

/* A new policy for a connection that stands: are its name and port still allowed? Mode resolver: yes, it asks per decision. */
bool decide_still(
    const struct egress_site *site, const struct egress_policy *policy, const struct egress_decision *d);
/* EGR-16: the DNS answerer of transparent mode knows this name: it is allowed at some port. */
bool decide_known(
    const struct egress_site *site, const struct egress_policy *policy, const struct host *host);
