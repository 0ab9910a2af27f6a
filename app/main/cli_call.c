/* cli_call.c - `gatehouse call`: any op over HTTP (OP-3). The key comes from the environment or a file, never from an argument. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "base/id.h"
#include "base/js.h"
#include "base/secret.h"
#include "base/str.h"
#include "cli.h"
#include "handlers/handlers.h"
#include "io/conf_file.h"
#include "io/file.h"
#include "io/http.h"
#include "op/cli.h"

enum {
	CALL_ARGS_MAX = 512,
	CONNECT_MS = 10000,
	IDLE_MS = 1900 * 1000, /* the longest silent answer is that of a command of 1800 s */
	ENV_FILE_BYTES = 64 * 1024,
	REPLY_BYTES = 64 << 20,
	RESUMES = 10,
	RESUME_PAUSE_MS = 1000,
};

struct door {
	char url[512], ca[PATH_MAX];
	struct secret *key;
};

static int door_set(void *arg, const char *key, const char *value, int line, struct err *e)
{
	struct door *d = arg;
	(void)line, (void)e;
	if (strcmp(key, "GATEHOUSE_URL") == 0 && d->url[0] == 0)
		(void)snprintf(d->url, sizeof d->url, "%s", value);
	else if (strcmp(key, "GATEHOUSE_CA") == 0 && d->ca[0] == 0)
		(void)snprintf(d->ca, sizeof d->ca, "%s", value);
	else if (strcmp(key, "GATEHOUSE_KEY") == 0 && d->key == NULL && value[0] != 0)
		d->key = secret_new(value, strlen(value));
	return 0;
}

/* The environment, then the file of $GATEHOUSE_ENV_FILE, or var/demo.env where `make run` was. */
static int door_find(struct door *d, struct err *e)
{
	static const char *const names[] = { "GATEHOUSE_URL", "GATEHOUSE_KEY", "GATEHOUSE_CA" };
	for (size_t i = 0; i < 3; i++) {
		const char *value = getenv(names[i]);
		if (value != NULL)
			(void)door_set(d, names[i], value, 0, e);
	}
	const char *named = getenv("GATEHOUSE_ENV_FILE"), *path = named != NULL ? named : "var/demo.env";
	if (named != NULL || (d->url[0] == 0 && access(path, R_OK) == 0)) {
		auto_buf struct buf text = BUF(ENV_FILE_BYTES);
		if (file_read(path, &text, e) != 0 ||
		    conf_file_parse(buf_c(&text), text.n, door_set, d, e) != 0)
			return -1;
		secret_wipe(text.p, text.n);
	}
	if (d->url[0] == 0)
		return err_set(e, ERR_BAD_REQUEST,
		    "Set GATEHOUSE_URL and GATEHOUSE_KEY, or GATEHOUSE_ENV_FILE to a file that does; `make "
		    "run` writes "
		    "var/demo.env.");
	size_t n = strlen(d->url);
	if (n > 0 && d->url[n - 1] == '/')
		d->url[n - 1] = 0;
	return 0;
}

struct call {
	struct door door;
	struct cli_sink sink;
	bool async;
	int body_fd;          /* of an OP_RAW_IN op, or -1 */
	char session[ID_MAX]; /* that the stream tells of; "" when none */
};

static ssize_t body_read(void *arg, void *p, size_t n)
{
	return read(((struct call *)arg)->body_fd, p, n);
}
static int call_data(void *arg, const char *p, size_t n)
{
	return cli_sink_data(&((struct call *)arg)->sink, p, n);
}

static void take_session(struct call *k, const char *id)
{
	if (id_is("ses", id))
		memcpy(k->session, id, strlen(id) + 1);
}

static void note_session(struct call *k, const char *location)
{
	static const char under[] = "/v1/agents/sessions/";
	if (str_starts(location, under))
		take_session(k, location + sizeof under - 1);
}

static int call_once(struct call *k, const struct op *op, const json_t *in, struct err *e)
{
	auto_mem struct mem *m = mem_new();
	struct op_request r;
	if (op_check(op->in, in, op->flags, e) != 0 || op_request(m, op, in, &r, e) != 0)
		return -1;
	const char *headers[3] = { 0 };
	if (r.body != NULL)
		headers[0] = "Content-Type: application/json";
	if (k->async)
		headers[r.body != NULL] = "Prefer: respond-async";
	bool collect = (op->flags & (OP_STREAM | OP_RAW_OUT)) == 0;
	struct http_req q = {
		.method = r.method,
		.url = mem_fmt(m, "%s%s", k->door.url, r.target),
		.ca_file = k->door.ca[0] != 0 ? k->door.ca : NULL,
		.headers = headers,
		.bearer = k->door.key,
		.body = r.body,
		.body_n = r.body != NULL ? strlen(r.body) : 0,
		.body_read = k->body_fd >= 0 ? body_read : NULL,
		.on_data = collect ? NULL : call_data,
		.arg = k,
		.connect_ms = CONNECT_MS,
		.idle_ms = IDLE_MS,
		.max_reply_bytes = REPLY_BYTES,
	};
	struct http_res res;
	int rc = http_do(&q, &res, e);
	note_session(k, res.location);
	if (rc == 0 && (res.status < 200 || res.status > 299))
		rc = http_envelope(&res, e);
	else if (rc == 0 && collect)
		(void)cli_sink_value(&k->sink, buf_c(&res.body), res.body.n);
	http_res_free(&res);
	return rc;
}

/*
 * A stream of a session that ends without its last line is taken up again where it stopped: the server was restarted, or the
 * connection was cut. Only a run's own stream names its session.
 */
static int call_resumed(struct call *k, const struct op *op, const json_t *in, struct err *e)
{
	const struct op *watch = op_by_id(handlers_all, "watch_session");
	int rc = call_once(k, op, in, e);
	if (strcmp(op->id, watch->id) == 0)
		take_session(k, js_str_or(in, "id", ""));
	for (int left = RESUMES; left > 0 && k->session[0] != 0 && k->sink.view.last_seq > 0; left--) {
		if (k->sink.view.ended || k->sink.closed ||
		    (rc != 0 && e->code != ERR_UPSTREAM && e->code != ERR_UNAVAILABLE))
			break;
		(void)poll(NULL, 0, RESUME_PAUSE_MS);
		err_clear(e);
		cli_sink_again(&k->sink);
		auto_json json_t *again = js_pack(
		    "{s:s, s:I}", "id", k->session, "after", (json_int_t)k->sink.view.last_seq);
		rc = call_once(k, watch, again, e);
	}
	if (rc == 0 && k->sink.view.last_seq > 0 && !k->sink.view.ended && k->session[0] != 0)
		return err_set(e, ERR_UPSTREAM,
		    "The stream ended early; go on with: gatehouse call watch_session id=%s after=%lld",
		    k->session, k->sink.view.last_seq);
	return rc;
}

static int read_text(const char *path, struct buf *out, struct err *e)
{
	struct err why = { 0 };
	if (strcmp(path, "-") != 0) {
		if (file_read(path, out, &why) != 0)
			return err_set(e, ERR_BAD_REQUEST, "%s: %s", path, why.msg);
		return 0;
	}
	for (char *room; (room = buf_room(out, 4096)) != NULL;) {
		ssize_t n = read(STDIN_FILENO, room, 4096);
		if (n <= 0)
			return n == 0 ? 0 : err_set(e, ERR_BAD_REQUEST, "Standard input cannot be read.");
		buf_grew(out, (size_t)n);
	}
	return err_set(e, ERR_TOO_LARGE, "Standard input is too long.");
}

/* Takes body=@file out of args. */
static int raw_body(const struct op *op, char **args, int *fd, struct err *e)
{
	if ((op->flags & OP_RAW_IN) == 0)
		return 0;
	for (; *args != NULL; args++)
		if (str_starts(*args, "body=@")) {
			const char *path = *args + 6;
			*fd = strcmp(path, "-") == 0 ? dup(STDIN_FILENO) : open(path, O_RDONLY | O_CLOEXEC);
			if (*fd < 0)
				return err_set(e, ERR_BAD_REQUEST, "%s: %s.", path, strerror(errno));
			for (; *args != NULL; args++)
				args[0] = args[1];
			return 0;
		}
	return err_set(e, ERR_BAD_REQUEST,
	    "This op takes bytes: give them as body=@file, or body=@- for standard input.");
}

static int call_op(const struct op *op, char **args, struct call *k, struct err *e)
{
	if (raw_body(op, args, &k->body_fd, e) != 0 || door_find(&k->door, e) != 0)
		return -1;
	auto_json json_t *in = cli_input(op, args, read_text, e);
	int rc = in == NULL ? -1 : call_resumed(k, op, in, e);
	cli_sink_end(&k->sink);
	if (k->body_fd >= 0)
		(void)close(k->body_fd);
	return rc != 0 ? -1 : k->sink.view.ended ? k->sink.view.exit : 0;
}

/* NDJSON from standard input, for people. */
static int render_input(struct err *e)
{
	struct cli_sink s = cli_sink_new(NULL, stdout, true, false);
	char piece[16384];
	ssize_t n;
	while ((n = read(STDIN_FILENO, piece, sizeof piece)) > 0)
		if (cli_sink_data(&s, piece, (size_t)n) != 0)
			return err_set(
			    e, ERR_BAD_REQUEST, "Standard input is not NDJSON, or standard output is gone.");
	cli_sink_end(&s);
	return s.view.ended ? s.view.exit : 0;
}

static int print_text(void (*make)(const void *of, struct buf *out), const void *of)
{
	auto_buf struct buf out = BUF(1 << 20);
	make(of, &out);
	(void)fputs(buf_c(&out), stdout);
	return 0;
}
static void make_list(const void *of, struct buf *out)
{
	(void)of;
	cli_list(handlers_all, out);
}
static void make_help(const void *of, struct buf *out)
{
	cli_help(of, out);
}

int cli_call(char **args, struct err *e)
{
	bool render = false, raw = false, help = false, async = false;
	const struct cli_option all[] = { { "render", NULL, &render }, { "raw", NULL, &raw },
		{ "help", NULL, &help }, { "async", NULL, &async }, { 0 } };
	/* Options stand anywhere; they begin with two dashes, fields never do. */
	char *fields[CALL_ARGS_MAX + 1] = { 0 }, *flags[CALL_ARGS_MAX + 1] = { 0 };
	int n_fields = 0, n_flags = 0;
	for (; *args != NULL && n_fields < CALL_ARGS_MAX && n_flags < CALL_ARGS_MAX; args++)
		*(str_starts(*args, "--") ? &flags[n_flags++] : &fields[n_fields++]) = *args;
	if (*args != NULL)
		return err_set(e, ERR_BAD_REQUEST,
		    "These are too many arguments; give long lists as JSON with field:=...");
	if (cli_options(flags, all, NULL, 0, e) != 0)
		return -1;
	if (fields[0] == NULL)
		return render ? render_input(e) : print_text(make_list, NULL);
	const struct op *op = op_by_id(handlers_all, fields[0]);
	if (op == NULL || (op->flags & (OP_INTERNAL | OP_HIDDEN)) != 0)
		return err_set(
		    e, ERR_BAD_REQUEST, "There is no op %.60s; `gatehouse call` lists them.", fields[0]);
	if (help)
		return print_text(make_help, op);
	struct call k = { .sink = cli_sink_new(op, stdout, render, raw), .async = async, .body_fd = -1 };
	int rc = call_op(op, fields + 1, &k, e);
	secret_free(k.door.key);
	return rc;
}
