/* client_cmd.c - commands that outlive their request, from the API's side: started, told of, fed, signalled (SBX-46). */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/id.h"
#include "base/js.h"
#include "base/str.h"
#include "sandbox/client_int.h"

enum { START_MS = 40 * 1000, SIGNALS = 64, SIGNAL_NAME_MAX = 32 };

static char *command_url(struct mem *m, const struct box_addr *a, const char *cmd, const char *rest)
{
	return client_url(m, a, mem_fmt(m, "/commands/%s%s", http_escape(m, cmd), rest));
}

/* The node was cut off while it started something: did it? 0 with *s; -1 with e. */
static int look_for(const struct box_addr *a, struct box_started *s, struct err *e)
{
	struct err why = { 0 };
	auto_json json_t *got = box_command(a, s->cmd, 0, NULL, NULL, &why);
	if (got != NULL) {
		s->pid = (int)js_int(got, "pid", 0);
		err_clear(e);
		return 0;
	}
	if (why.code == ERR_NOT_FOUND)
		return err_replace(
		    e, ERR_UNAVAILABLE, "The command was not started: the sandbox's node went away.");
	(void)err_replace(e, ERR_UPSTREAM, "It is unknown whether the command was started: %.300s", why.msg);
	e->reason = "lost";
	return -1;
}

int box_start(const struct box_addr *a, const struct box_cmd *cmd, struct box_started *s, struct err *e)
{
	auto_mem struct mem *m = mem_new();
	*s = (struct box_started){ 0 };
	if (cmd->id != NULL)
		(void)snprintf(s->cmd, sizeof s->cmd, "%s", cmd->id);
	else
		id_make("cmd", s->cmd);
	auto_json json_t *body = client_run_body(a, cmd, s->cmd), *got = NULL;
	js_set(body, "detach", json_true());
	if (client_call(a, "POST", client_url(m, a, "/run"), body, START_MS, &got, e) != 0)
		return e->code == ERR_UPSTREAM || e->code == ERR_TIMEOUT ? look_for(a, s, e) : -1;
	s->pid = (int)js_int(got, "pid", 0);
	return 0;
}

json_t *box_commands(const struct box_addr *a, struct err *e)
{
	auto_mem struct mem *m = mem_new();
	json_t *got = NULL;
	return client_call(a, "GET", client_url(m, a, "/commands"), NULL, CLIENT_CALL_MS, &got, e) == 0
	    ? got
	    : NULL;
}

json_t *box_command(const struct box_addr *a, const char *cmd, int wait_s, bool (*cancelled)(void *arg),
    void *arg, struct err *e)
{
	auto_mem struct mem *m = mem_new();
	json_t *got = NULL;
	const char *url = command_url(m, a, cmd, mem_fmt(m, "?waitSec=%d", wait_s));
	const struct client_until until = {
		.total_ms = CLIENT_CALL_MS + wait_s * 1000, .cancelled = cancelled, .arg = arg
	};
	return client_call_until(a, "GET", url, NULL, &until, &got, e) == 0 ? got : NULL;
}

json_t *box_input(const struct box_addr *a, const char *cmd, const struct box_input *in, struct err *e)
{
	auto_mem struct mem *m = mem_new();
	auto_free char *b64 = xcalloc(1, B64_SIZE(in->n));
	(void)b64_encode(in->p, in->n, b64);
	auto_json json_t *body = js_pack(
	    "{s:s,s:b,s:i}", "data", b64, "close", in->close, "waitSec", in->wait_s);
	if (in->offset >= 0)
		js_set(body, "offset", json_integer(in->offset));
	json_t *got = NULL;
	int rc = client_call(
	    a, "POST", command_url(m, a, cmd, "/stdin"), body, CLIENT_CALL_MS + in->wait_s * 1000, &got, e);
	return rc == 0 ? got : NULL;
}

int box_resize(const struct box_addr *a, const char *cmd, int cols, int rows, struct err *e)
{
	auto_mem struct mem *m = mem_new();
	auto_json json_t *body = js_pack("{s:i,s:i}", "cols", cols, "rows", rows);
	return client_call(a, "POST", command_url(m, a, cmd, "/terminal"), body, CLIENT_CALL_MS, NULL, e);
}

static int real_time(const char *name)
{
	long long n = 0;
	if (strcmp(name, "RTMIN") == 0)
		return SIGRTMIN;
	if (strcmp(name, "RTMAX") == 0)
		return SIGRTMAX;
	if (str_starts(name, "RTMIN+") && str_int(name + 6, 0, SIGRTMAX - SIGRTMIN, &n))
		return SIGRTMIN + (int)n;
	if (str_starts(name, "RTMAX-") && str_int(name + 6, 0, SIGRTMAX - SIGRTMIN, &n))
		return SIGRTMAX - (int)n;
	return 0;
}

int box_signal_number(const char *as_written)
{
	char text[SIGNAL_NAME_MAX];
	size_t len = strlen(as_written);
	if (len >= sizeof text)
		return 0;
	for (size_t i = 0; i <= len; i++)
		text[i] = as_written[i] >= 'a' && as_written[i] <= 'z' ? (char)(as_written[i] - 'a' + 'A')
								       : as_written[i];
	const char *name = str_starts(text, "SIG") ? text + 3 : text;
	long long n;
	if (str_int(text, 1, SIGNALS, &n))
		return (int)n;
	for (int sig = 1; sig < SIGRTMIN; sig++) {
		const char *known = sigabbrev_np(sig);
		if (known != NULL && strcmp(known, name) == 0)
			return sig;
	}
	return real_time(name);
}

json_t *box_signal(const struct box_addr *a, const char *cmd, int sig, const char *to, struct err *e)
{
	auto_mem struct mem *m = mem_new();
	auto_json json_t *body = js_pack("{s:i,s:s}", "signal", sig, "to", to);
	json_t *got = NULL;
	int rc = client_call(a, "POST", command_url(m, a, cmd, "/signal"), body, CLIENT_CALL_MS, &got, e);
	return rc == 0 ? got : NULL;
}
