/* refuse.h - what a refused requester is told (EGR-5): the host and the reason, and nothing that it sent besides. */
#pragma once

#include "base/buf.h"
#include "egress/decide.h"

/*
 * A whole HTTP answer with the error envelope; the reason is in the status line, too, which is all that many clients show.
 * d: what was decided; its host may be empty.
 */
void refuse_http(struct buf *out, const struct egress_decision *d, enum egress_reason why);
/* A fatal TLS alert, access_denied (RFC 8446 6). */
enum { REFUSE_ALERT_BYTES = 7 };
extern const unsigned char refuse_alert[REFUSE_ALERT_BYTES];
