#include "sandbox/client.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/js.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/str.h"
#include "sandbox/client_int.h"
#include "sandbox/node.h"
#include "sql/sandbox.h"

int client_door(const char *at, const char *node, struct box_addr *a, struct err *e)
{
	*a = (struct box_addr){ .tier = 0 };
	(void)snprintf(a->node, sizeof a->node, "%s", node);
	if (!str_starts(at, "unix:") || strlen(at) - 5 >= sizeof a->socket)
		return err_set(
		    e, ERR_INTERNAL, "The address of the sandbox's node is not one this version can reach.");
	(void)snprintf(a->socket, sizeof a->socket, "%s", at + 5);
	return 0;
}

static int address(const struct pg_res *r, const char *id, struct box_addr *a, struct err *e)
{
	if (client_door(pg_str(r, 0, 3), pg_str(r, 0, 1), a, e) != 0)
		return -1;
	(void)snprintf(a->id, sizeof a->id, "%s", id);
	(void)snprintf(a->workdir, sizeof a->workdir, "%s", pg_str(r, 0, 2));
	a->tier = (int)pg_int(r, 0, 6);
	return 0;
}

int client_reach(struct pg *db, const char *org, const char *id, struct box_addr *a,
    char status[CLIENT_STATUS_MAX], struct err *e)
{
	auto_mem struct mem *m = mem_new();
	auto_res struct pg_res *r = PG(db, &q_sandbox_reach, e, org, id, pg_num(m, NODE_SILENT_S));
	if (r == NULL)
		return -1;
	if (pg_rows(r) == 0)
		return err_set(e, ERR_NOT_FOUND, "There is no such sandbox.");
	(void)snprintf(status, CLIENT_STATUS_MAX, "%s", pg_str(r, 0, 0));
	bool over = strcmp(status, "ended") == 0 || strcmp(status, "error") == 0;
	if (!over && !pg_bool(r, 0, 4)) {
		(void)err_set(
		    e, ERR_UNAVAILABLE, "The sandbox's node has not been heard of for a while: try again.");
		e->reason = "node_away";
		return -1;
	}
	return address(r, id, a, e);
}

int box_find(struct pg *db, const char *org, const char *id, struct box_addr *a, struct err *e)
{
	char status[CLIENT_STATUS_MAX];
	if (client_reach(db, org, id, a, status, e) != 0)
		return -1;
	if (strcmp(status, "running") == 0)
		return 0;
	return err_set(e, ERR_CONFLICT, "The sandbox is not running: %s.",
	    strcmp(status, "pending") == 0     ? "it is still starting"
		: strcmp(status, "error") == 0 ? "it is in error, see get_sandbox"
					       : "it has ended");
}

bool box_was_ended(struct pg *db, const char *org, const char *id)
{
	struct err ignored = { 0 }; /* then nobody knows */
	auto_res struct pg_res *r = PG(db, &q_sandbox_over, &ignored, org, id);
	return r != NULL && pg_rows(r) == 1;
}

char *client_url(struct mem *m, const struct box_addr *a, const char *rest)
{
	return mem_fmt(m, "http://node/v1/node/sandboxes/%s%s", a->id, rest);
}

/* Why a node cannot serve for the moment, as its envelope's code says; other codes are told to people only. */
static void keep_reason(const struct http_res *res, struct err *e)
{
	static const char *const passing[] = { "database_away", "node_starting", "nodes_full", NULL };
	struct err bad = { 0 };
	auto_json json_t *body = js_parse(buf_c(&res->body), res->body.n, &bad);
	const char *code = js_str_or(js_get(body, "error"), "code", "");
	for (const char *const *p = passing; *p != NULL; p++)
		if (strcmp(code, *p) == 0)
			e->reason = *p;
}

int client_judge(int rc, const struct http_res *res, struct err *e)
{
	/* nginx answers 502 when its sandboxd is not there. */
	bool away = rc != 0 ? e->code == ERR_UNAVAILABLE : res->status == 502;
	if (rc == 0 && away)
		rc = err_set(e, ERR_UNAVAILABLE, "The sandbox's node does not answer: try again.");
	else if (rc != 0 && e->code == ERR_UPSTREAM)
		e->reason = "node_cut"; /* nobody knows what it has done */
	else if (rc == 0 && res->status / 100 != 2) {
		rc = http_envelope(res, e);
		keep_reason(res, e);
	}
	if (away)
		e->reason = "node_away";
	return rc;
}

int client_call(const struct box_addr *a, const char *method, const char *url, const json_t *body,
    int total_ms, json_t **got, struct err *e)
{
	return client_call_until(
	    a, method, url, body, &(struct client_until){ .total_ms = total_ms }, got, e);
}

int client_call_until(const struct box_addr *a, const char *method, const char *url, const json_t *body,
    const struct client_until *until, json_t **got, struct err *e)
{
	static const char *const json[] = { "Content-Type: application/json", NULL };
	auto_mem struct mem *m = mem_new();
	struct http_res res = { 0 };
	const char *text = body == NULL ? NULL : js_dump(m, body);
	struct http_req q = { .method = method,
		.url = url,
		.unix_socket = a->socket,
		.headers = json,
		.body = text,
		.body_n = text == NULL ? 0 : strlen(text),
		.connect_ms = CLIENT_CONNECT_MS,
		.total_ms = until->total_ms,
		.cancelled = until->cancelled,
		.arg = until->arg,
		.max_reply_bytes = until->max_reply_bytes > 0 ? until->max_reply_bytes : 8 << 20 };
	int rc = client_judge(http_do(&q, &res, e), &res, e);
	if (rc == 0 && got != NULL && (*got = js_parse(buf_c(&res.body), res.body.n, e)) == NULL)
		rc = err_replace(e, ERR_UPSTREAM, "The sandbox's node gave no sensible answer.");
	http_res_free(&res);
	return rc;
}

/* One node: how its boundary is, or NULL with e set. */
static const char *node_egress(const char *address, int wait_ms, struct err *e)
{
	static const char *const states[] = { "ok", "none", NULL };
	struct box_addr a = { 0 };
	auto_json json_t *got = NULL;
	if (client_door(address, "", &a, e) != 0 ||
	    client_call(&a, "GET", "http://node/v1/node/ready", NULL, wait_ms, &got, e) != 0)
		return NULL;
	for (const char *const *s = states; *s != NULL; s++)
		if (strcmp(js_str_or(got, "egress", ""), *s) == 0)
			return *s;
	return "away";
}

int box_nodes_answer(struct pg *db, int wait_ms, const char **egress, struct err *e)
{
	auto_mem struct mem *m = mem_new();
	auto_res struct pg_res *r = PG(db, &q_node_doors, e, pg_num(m, NODE_SILENT_S));
	*egress = NULL;
	if (r == NULL)
		return -1;
	int64_t deadline = clock_ms() + wait_ms;
	struct err last = { 0 };
	for (int i = 0; i < pg_rows(r) && clock_left_ms(deadline) > 0; i++) {
		struct err one = { 0 };
		const char *is = node_egress(pg_str(r, i, 1), clock_left_ms(deadline), &one);
		if (is == NULL) {
			log_warn(
			    "a node does not answer at its door", "node", pg_str(r, i, 0), "error", one.msg);
			last = one;
			continue;
		}
		*egress = is;
		if (strcmp(is, "away") != 0)
			break;
	}
	return *egress != NULL ? 0
			       : err_set(e, ERR_UNAVAILABLE, "No node's sandboxd answers at its door%s%s",
				     last.code == ERR_NONE ? "." : ": ", last.msg);
}

int client_stop(const struct box_addr *a, const char *cmd, int *stopped, struct err *e)
{
	auto_mem struct mem *m = mem_new();
	auto_json json_t *body = json_object(), *got = NULL;
	if (cmd != NULL)
		js_set_str(body, "cmd", cmd);
	if (client_call(a, "POST", client_url(m, a, "/stop"), body, CLIENT_CALL_MS, &got, e) != 0)
		return -1;
	*stopped = (int)js_int(got, "stopped", 0);
	return 0;
}

int box_stop(const struct box_addr *a, int *stopped, struct err *e)
{
	return client_stop(a, NULL, stopped, e);
}
