/* What the ops of commands ask of a sandbox's node: bounds, defaults and refusals, before anything is started (SBX-40, SBX-46). */
#include "../t.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "auth/principal.h"
#include "base/js.h"
#include "base/limits.h"
#include "handlers/sandbox.h"

extern const struct op sandbox_run_ops[], sandbox_commands_ops[];

/* ---- a node that does what it is told and remembers it */

static struct {
	int uses, starts, runs, signals;
	long long timeout_s;
	bool stdin_open;
	char to[16];
	int sig, wait_s;
	struct box_input input;
	char bytes[16];
} node;

int sandbox_use(struct ctx *c, const json_t *in, struct box_addr *a, struct err *e)
{
	(void)c, (void)in, (void)e;
	node.uses++;
	*a = (struct box_addr){ .tier = 2 };
	return 0;
}

json_t *sandbox_bytes(const char *p, size_t n, const char **enc)
{
	*enc = "utf8";
	return json_stringn(p == NULL ? "" : p, n);
}

int box_start(const struct box_addr *a, const struct box_cmd *cmd, struct box_started *s, struct err *e)
{
	(void)a, (void)e;
	node.starts++;
	node.timeout_s = cmd->timeout_s;
	node.stdin_open = cmd->stdin_open;
	*s = (struct box_started){ .pid = 7 };
	(void)snprintf(s->cmd, sizeof s->cmd, "%s", cmd->id);
	return 0;
}

int box_run(const struct box_addr *a, const struct box_cmd *cmd, struct box_exit *x, struct err *e)
{
	(void)a, (void)e;
	node.runs++;
	node.timeout_s = cmd->timeout_s;
	*x = (struct box_exit){ 0 };
	return 0;
}

void box_exit_free(struct box_exit *x)
{
	(void)x;
}

int box_output(const struct box_addr *a, const char *cmd, const long long from[2], int only,
    int (*on_line)(void *arg, const json_t *line), bool (*cancelled)(void *arg), void *arg, struct err *e)
{
	(void)a, (void)cmd, (void)from, (void)only, (void)on_line, (void)cancelled, (void)arg, (void)e;
	return 0;
}

json_t *box_commands(const struct box_addr *a, struct err *e)
{
	(void)a, (void)e;
	return js_pack("{s:[]}", "data");
}

json_t *box_command(const struct box_addr *a, const char *cmd, int wait_s, bool (*cancelled)(void *arg),
    void *arg, struct err *e)
{
	(void)a, (void)cmd, (void)cancelled, (void)arg, (void)e;
	node.wait_s = wait_s;
	return json_object();
}

json_t *box_input(const struct box_addr *a, const char *cmd, const struct box_input *in, struct err *e)
{
	(void)a, (void)cmd, (void)e;
	node.input = *in;
	assert_true(in->n < sizeof node.bytes);
	memcpy(node.bytes, in->p, in->n);
	return json_object();
}

int box_signal_number(const char *text)
{
	return strcmp(text, "KILL") == 0 ? SIGKILL : strcmp(text, "HUP") == 0 ? SIGHUP : 0;
}

json_t *box_signal(const struct box_addr *a, const char *cmd, int sig, const char *to, struct err *e)
{
	(void)a, (void)cmd, (void)e;
	node.signals++;
	node.sig = sig;
	(void)snprintf(node.to, sizeof node.to, "%s", to);
	return json_object();
}

/* ---- a request, checked as the core does it */

static const struct op *op_of(const char *id)
{
	for (const struct op *o = sandbox_run_ops; o->id != NULL; o++)
		if (strcmp(o->id, id) == 0)
			return o;
	for (const struct op *o = sandbox_commands_ops; o->id != NULL; o++)
		if (strcmp(o->id, id) == 0)
			return o;
	fail();
	return NULL;
}

static json_t *ask(const char *id, const char *fields, struct err *e)
{
	static const struct principal who = { .org = "acme", .user = "u", .scopes = "*" };
	auto_mem struct mem *m = mem_new();
	struct reply reply = { 0 };
	struct ctx c = { .mem = m, .who = &who, .reply = &reply };
	const struct op *op = op_of(id);
	const char *text = mem_fmt(m, "{\"id\":\"" SBX "\"%s%s}", fields[0] == 0 ? "" : ",", fields);
	*e = (struct err){ 0 };
	memset(&node, 0, sizeof node);
	auto_json json_t *in = js_parse(text, strlen(text), e);
	assert_non_null(in);
	json_t *out = op_check(op->in, in, op->flags, e) == 0 ? op->run(&c, in, e) : NULL;
	struct err bad = { 0 };
	if (out != NULL && strcmp(id, "run_in_sandbox") == 0 && op_check_out(op->out, out, &bad) != 0)
		fail_msg("%s", bad.msg);
	return out;
}

static void good(const char *id, const char *fields)
{
	struct err e;
	auto_json json_t *out = ask(id, fields, &e);
	if (out == NULL)
		fail_msg("%s: %s", fields, e.msg);
}

static void refused(const char *id, const char *fields, const char *param)
{
	struct err e;
	auto_json json_t *out = ask(id, fields, &e);
	if (out != NULL || strcmp(e.param, param) != 0)
		fail_msg("%s: %s (%s)", fields, e.msg, e.param);
	assert_int_equal(node.uses + node.starts + node.runs + node.signals, 0);
}

#define RUN "\"command\":\"x\""

/* Fault 4: no default time ends what is meant to stay. */
static void nothing_but_the_lease_bounds_a_detached_command(void **s)
{
	(void)s;
	good("run_in_sandbox", RUN ",\"detach\":true");
	assert_int_equal(node.starts, 1);
	assert_int_equal(node.timeout_s, 0);
	assert_false(node.stdin_open);
	good("run_in_sandbox", RUN ",\"detach\":true,\"timeoutSec\":1800,\"stdinOpen\":true");
	assert_int_equal(node.timeout_s, 1800);
	assert_true(node.stdin_open);
}

static void a_command_that_is_waited_for_has_a_default_time(void **s)
{
	(void)s;
	good("run_in_sandbox", RUN);
	assert_int_equal(node.runs, 1);
	assert_int_equal(node.timeout_s, LIMIT_COMMAND_DEFAULT_S);
}

static void what_does_not_go_together_is_refused_by_name(void **s)
{
	(void)s;
	refused("run_in_sandbox", RUN ",\"detach\":true,\"stream\":true", "stream");
	refused("run_in_sandbox", RUN ",\"detach\":true,\"session\":\"ses_x\"", "session");
	refused("run_in_sandbox", RUN ",\"stdinOpen\":true", "stdinOpen");
	refused("run_in_sandbox", RUN ",\"detach\":true,\"stdinOpen\":true,\"stdin\":\"x\"", "stdinOpen");
	refused("run_in_sandbox", RUN ",\"detach\":true,\"timeoutSec\":1801", "timeoutSec");
}

#define OF "\"cmd\":\"" CMD "\""

static void kill_takes_the_tree_and_others_the_group(void **s)
{
	(void)s;
	good("signal_command", OF ",\"signal\":\"KILL\"");
	assert_string_equal(node.to, "tree");
	good("signal_command", OF ",\"signal\":\"HUP\"");
	assert_string_equal(node.to, "group");
	good("signal_command", OF ",\"signal\":\"KILL\",\"to\":\"process\"");
	assert_string_equal(node.to, "process");
	refused("signal_command", OF ",\"signal\":\"NOPE\"", "signal");
	refused("signal_command", OF ",\"signal\":\"HUP\",\"to\":\"all\"", "to");
	refused("signal_command", "\"cmd\":\"../x\",\"signal\":\"HUP\"", "");
}

static void input_is_taken_as_it_is_written(void **s)
{
	(void)s;
	good("write_stdin",
	    OF ",\"data\":\"aGk=\",\"enc\":\"base64\",\"close\":true,\"offset\":5,\"waitSec\":0");
	assert_int_equal(node.input.n, 2);
	assert_memory_equal(node.bytes, "hi", 2);
	assert_true(node.input.close);
	assert_int_equal(node.input.offset, 5);
	assert_int_equal(node.input.wait_s, 0);
	good("write_stdin", OF ",\"data\":\"aGk=\"");
	assert_int_equal(node.input.n, 4);
	assert_int_equal(node.input.offset, -1);
	good("write_stdin", OF ",\"close\":true");
	assert_int_equal(node.input.n, 0);
	refused("write_stdin", OF, "data");
	refused("write_stdin", OF ",\"data\":\"?\",\"enc\":\"base64\"", "data");
	refused("write_stdin", OF ",\"data\":\"x\",\"waitSec\":61", "waitSec");
}

static void waiting_is_bounded(void **s)
{
	(void)s;
	good("get_command", OF ",\"waitSec\":60");
	assert_int_equal(node.wait_s, 60);
	refused("get_command", OF ",\"waitSec\":61", "waitSec");
	good("list_commands", "");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nothing_but_the_lease_bounds_a_detached_command),
		cmocka_unit_test(a_command_that_is_waited_for_has_a_default_time),
		cmocka_unit_test(what_does_not_go_together_is_refused_by_name),
		cmocka_unit_test(kill_takes_the_tree_and_others_the_group),
		cmocka_unit_test(input_is_taken_as_it_is_written),
		cmocka_unit_test(waiting_is_bounded),
	};
	return cmocka_run_group_tests_name("commands", tests, NULL, NULL);
}
