#include "auth/broker.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/host.h"
#include "base/js.h"
#include "base/str.h"
#include "sql/broker.h"

enum { HEADER_MAX = 64, VALUE_MAX = 4096, HOST_SIZE = HOST_TEXT + 16 };

/* Framing, the connection's own fields, and what names the target: those are the boundary's to write. */
static const char *const reserved[] = { "host", "connection", "content-length", "transfer-encoding", "te",
	"trailer", "upgrade", "keep-alive", "expect", "proxy-authorization", "proxy-authenticate",
	"proxy-connection", "forwarded", "via", NULL };

static int header_name(const char *in, char out[HEADER_MAX + 1], struct err *e)
{
	static const char token[] = "abcdefghijklmnopqrstuvwxyz0123456789-_.!#$%&'*+^`|~";
	size_t n = strlen(in);
	if (n > HEADER_MAX)
		return err_field(
		    e, ERR_BAD_REQUEST, "header", "A header's name has at most %d bytes.", HEADER_MAX);
	for (size_t i = 0; i <= n; i++)
		out[i] = (char)tolower((unsigned char)in[i]);
	if (!str_only(out, token))
		return err_field(e, ERR_BAD_REQUEST, "header", "This is not the name of a header.");
	if (str_one_of(out, reserved))
		return err_field(
		    e, ERR_BAD_REQUEST, "header", "The header \"%s\" is the boundary's own.", out);
	return 0;
}

/* RFC 9110 5.5 without obs-text: what every client and server reads the same. */
static int header_value(const struct secret *value, struct err *e)
{
	const char *p = secret_use(value);
	size_t n = secret_len(value);
	bool ok = n > 0 && n <= VALUE_MAX && p[0] != ' ' && p[n - 1] != ' ';
	for (size_t i = 0; i < n && ok; i++)
		ok = p[i] >= ' ' && p[i] <= '~';
	return ok
	    ? 0
	    : err_field(e, ERR_BAD_REQUEST, "value",
		  "A header's value is 1 to %d visible ASCII characters, with spaces only between them.",
		  VALUE_MAX);
}

/* One spelling, so that one host has one row. */
static int host(const char *in, char out[HOST_SIZE], struct err *e)
{
	struct host_pattern p;
	const char *why = "";
	if (!host_pattern_parse(str_of(in), &p, &why))
		return err_field(e, ERR_BAD_REQUEST, "host", "\"%.80s\" is not allowed here: %s", in, why);
	bool v6 = p.literal && strchr(p.name, ':') != NULL && p.port != 0;
	int n = snprintf(
	    out, HOST_SIZE, "%s%s%s%s", p.suffix ? "." : "", v6 ? "[" : "", p.name, v6 ? "]" : "");
	if (p.port != 0)
		(void)snprintf(out + n, HOST_SIZE - (size_t)n, ":%d", p.port);
	host_pattern_free(&p);
	return 0;
}

static json_t *row(const struct pg_res *r, int i)
{
	return js_pack("{s:s,s:s,s:s,s:s,s:s,s:s}", "id", pg_str(r, i, 0), "name", pg_str(r, i, 1), "host",
	    pg_str(r, i, 2), "header", pg_str(r, i, 3), "createdBy", pg_str(r, i, 4), "createdAt",
	    pg_str(r, i, 5));
}

json_t *broker_bind(struct pg *db, const struct seal_key *k, const struct broker_new *want, struct err *e)
{
	char header[HEADER_MAX + 1], where[HOST_SIZE], id[ID_MAX];
	if (host(want->host, where, e) != 0 || header_name(want->header, header, e) != 0 ||
	    header_value(want->value, e) != 0)
		return NULL;
	id_make("ecr", id);
	auto_mem struct mem *m = mem_new();
	auto_res struct pg_res *r = PG(db, &q_broker_bind, e, id, want->org, want->name, where, header,
	    seal(m, k, id, want->value), want->user);
	if (r != NULL)
		return row(r, 0);
	if (e->code == ERR_CONFLICT)
		(void)err_replace(e, ERR_CONFLICT,
		    "There is a credential for the header \"%s\" of \"%.200s\" already; remove it first.",
		    header, where);
	return NULL;
}

json_t *broker_list(struct pg *db, const char *org, const char *before, int limit, struct err *e)
{
	auto_mem struct mem *m = mem_new();
	auto_res struct pg_res *r = PG(db, &q_broker_list, e, org, before, pg_num(m, limit));
	if (r == NULL)
		return NULL;
	json_t *rows = json_array();
	for (int i = 0; i < pg_rows(r); i++)
		js_push(rows, row(r, i));
	return rows;
}

int broker_remove(struct pg *db, const char *org, const char *id, struct err *e)
{
	auto_res struct pg_res *r = PG(db, &q_broker_remove, e, org, id);
	if (r == NULL)
		return -1;
	return pg_affected(r) == 1 ? 0 : err_set(e, ERR_NOT_FOUND, "There is no such credential.");
}
