#include "egress/refuse.h"

#include <stdio.h>

#include "base/err.h"
#include "base/id.h"

enum { BODY_BYTES = 2048, AUTHORITY_BYTES = HOST_TEXT + 16 };

const unsigned char refuse_alert[REFUSE_ALERT_BYTES] = { 21, 3, 3, 0, 2, 2, 49 };

static const char *phrase(int status)
{
	switch (status) {
	case 400:
		return "Bad request";
	case 429:
		return "Too many";
	case 502:
	case 504:
		return "Egress failed";
	case 503:
		return "Egress unavailable";
	default:
		return "Egress denied";
	}
}

void refuse_http(struct buf *out, const struct egress_decision *d, enum egress_reason why)
{
	char host[AUTHORITY_BYTES] = "", id[ID_MAX], address[ADDR_TEXT] = "";
	auto_buf struct buf body = BUF(BODY_BYTES);
	const char *name = reason_name(why);
	int status = reason_status(why);
	bool six = d->host.literal && !addr_is4(&d->host.ip), judged = why == REASON_ADDRESS_DENIED;
	enum err_code code = err_from_http(status);
	if (d->host.n > 0)
		(void)snprintf(
		    host, sizeof host, "%s%s%s:%u", six ? "[" : "", d->host.name, six ? "]" : "", d->port);
	if (judged && d->has_address)
		addr_fmt(&d->address, address);
	id_make("egr", id);
	(void)buf_fmt(&body, "{\"error\":{\"type\":\"%s\",\"code\":\"%s\",\"message\":\"%s%s%s",
	    err_type(code), name, host, host[0] == '\0' ? "" : ": ", reason_text(why));
	if (address[0] != '\0')
		(void)buf_fmt(&body, " (%s is %s)", address, addr_class_name(d->class));
	(void)buf_fmt(&body, "\",\"param\":null,\"request_id\":\"%s\"},\"host\":\"%s\",\"reason\":\"%s\"", id,
	    host, name);
	if (address[0] != '\0')
		(void)buf_fmt(
		    &body, ",\"address\":\"%s\",\"class\":\"%s\"", address, addr_class_name(d->class));
	(void)buf_str(&body, "}\n");
	(void)buf_fmt(out, "HTTP/1.1 %d %s: %s%s%s\r\n", status, phrase(status), name,
	    host[0] == '\0' ? "" : " ", host);
	(void)buf_fmt(out,
	    "Content-Type: application/json\r\nContent-Length: %zu\r\nConnection: close\r\nCache-Control: "
	    "no-store\r\n"
	    "X-Egress-Reason: %s\r\nX-Request-Id: %s\r\n",
	    body.n, name, id);
	if (host[0] != '\0')
		(void)buf_fmt(out, "X-Egress-Host: %s\r\n", host);
	if (status == 405)
		(void)buf_str(out, "Allow: GET, HEAD, POST, PUT, DELETE, OPTIONS, PATCH, CONNECT\r\n");
	if (status == 429 || status == 503)
		(void)buf_str(out, "Retry-After: 1\r\n");
	(void)buf_str(out, "\r\n");
	(void)buf_add(out, body.p, body.n);
}
