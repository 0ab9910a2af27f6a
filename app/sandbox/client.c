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

enum { FILE_MS = 600 * 1000 };

/* nodes.address */
static int door(const char *at, struct box_addr *a, struct err *e)
{
	if (!str_starts(at, "unix:") || strlen(at) - 5 >= sizeof a->socket)
		return err_set(
		    e, ERR_INTERNAL, "The address of the sandbox's node is not one this version can reach.");
	(void)snprintf(a->socket, sizeof a->socket, "%s", at + 5);
	return 0;
}

static int address(const struct pg_res *r, const char *id, struct box_addr *a, struct err *e)
{
	if (door(pg_str(r, 0, 3), a, e) != 0)
		return -1;
	(void)snprintf(a->id, sizeof a->id, "%s", id);
	(void)snprintf(a->node, sizeof a->node, "%s", pg_str(r, 0, 1));
	(void)snprintf(a->workdir, sizeof a->workdir, "%s", pg_str(r, 0, 2));
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
	if (!over && !pg_bool(r, 0, 4))
		return err_set(
		    e, ERR_UNAVAILABLE, "The sandbox's node has not been heard of for a while: try again.");
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

char *client_url(struct mem *m, const struct box_addr *a, const char *rest)
{
	return mem_fmt(m, "http://node/v1/node/sandboxes/%s%s", a->id, rest);
}

int client_call(const struct box_addr *a, const char *method, const char *url, const json_t *body,
    int total_ms, json_t **got, struct err *e)
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
		.total_ms = total_ms,
		.max_reply_bytes = 8 << 20 };
	int rc = http_do(&q, &res, e);
	/* nginx answers 502 when its sandboxd is not there. */
	bool away = rc != 0 ? e->code == ERR_UNAVAILABLE : res.status == 502;
	if (rc == 0 && away)
		rc = err_set(e, ERR_UNAVAILABLE, "The sandbox's node does not answer: try again.");
	else if (rc == 0 && res.status / 100 != 2)
		rc = http_envelope(&res, e);
	if (away)
		e->reason = "node_away";
	if (rc == 0 && got != NULL && (*got = js_parse(buf_c(&res.body), res.body.n, e)) == NULL)
		rc = err_replace(e, ERR_UPSTREAM, "The sandbox's node gave no sensible answer.");
	http_res_free(&res);
	return rc;
}

int box_nodes_answer(struct pg *db, int wait_ms, struct err *e)
{
	auto_mem struct mem *m = mem_new();
	auto_res struct pg_res *r = PG(db, &q_node_doors, e, pg_num(m, NODE_SILENT_S));
	if (r == NULL)
		return -1;
	int64_t deadline = clock_ms() + wait_ms;
	struct err last = { 0 };
	for (int i = 0; i < pg_rows(r) && clock_left_ms(deadline) > 0; i++) {
		struct box_addr a = { 0 };
		struct err one = { 0 };
		if (door(pg_str(r, i, 1), &a, &one) == 0 &&
		    client_call(&a, "GET", "http://node/v1/node/ready", NULL, clock_left_ms(deadline), NULL,
			&one) == 0)
			return 0;
		log_warn("a node does not answer at its door", "node", pg_str(r, i, 0), "error", one.msg);
		last = one;
	}
	return err_set(e, ERR_UNAVAILABLE, "No node's sandboxd answers at its door%s%s",
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

/* ---- files */

static int file_do(struct http_req *q, const struct box_addr *a, struct err *e)
{
	struct http_res res = { 0 };
	q->unix_socket = a->socket;
	q->connect_ms = CLIENT_CONNECT_MS;
	q->total_ms = FILE_MS;
	q->idle_ms = CLIENT_IDLE_MS;
	int rc = http_do(q, &res, e);
	if (rc == 0 && res.status / 100 != 2)
		rc = http_envelope(&res, e);
	http_res_free(&res);
	return rc;
}

int box_put(const struct box_addr *a, const char *path, int mode,
    ssize_t (*read)(void *arg, void *p, size_t n), void *arg, struct err *e)
{
	auto_mem struct mem *m = mem_new();
	const char *rest = mem_fmt(m, "/files?path=%s", http_escape(m, path));
	if (mode >= 0)
		rest = mem_fmt(m, "%s&mode=%d", rest, mode);
	struct http_req q = { .method = "PUT", .url = client_url(m, a, rest), .body_read = read, .arg = arg };
	return file_do(&q, a, e);
}

int box_get(const struct box_addr *a, const char *path, long long offset, long long length,
    int (*on_data)(void *arg, const char *p, size_t n), void *arg, struct err *e)
{
	auto_mem struct mem *m = mem_new();
	const char *rest = mem_fmt(m, "/files?path=%s&offset=%lld", http_escape(m, path), offset);
	if (length >= 0)
		rest = mem_fmt(m, "%s&length=%lld", rest, length);
	struct http_req q = {
		.method = "GET", .url = client_url(m, a, rest), .on_data = on_data, .arg = arg
	};
	return file_do(&q, a, e);
}

json_t *box_stat(const struct box_addr *a, const char *path, struct err *e)
{
	auto_mem struct mem *m = mem_new();
	json_t *got = NULL;
	const char *rest = mem_fmt(m, "/stat?path=%s", http_escape(m, path));
	return client_call(a, "GET", client_url(m, a, rest), NULL, CLIENT_CALL_MS, &got, e) == 0 ? got : NULL;
}
