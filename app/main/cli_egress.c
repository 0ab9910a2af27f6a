/* cli_egress.c - `gatehouse egress explain`: what the boundary would say, by its own functions. It reads no setting. */
#include <stdio.h>
#include <unistd.h>

#include "base/js.h"
#include "base/str.h"
#include "cli.h"
#include "egress/explain.h"
#include "egress/hello.h"
#include "op/cli.h"

/* What a client may send before it is judged, and one byte more. */
static int read_hello(struct buf *in, struct err *e)
{
	while (in->n <= HELLO_RAW_MAX) {
		char *room = buf_room(in, 4096);
		ssize_t n = room == NULL ? -1 : read(STDIN_FILENO, room, 4096);
		if (n <= 0)
			return n == 0 ? 0 : err_set(e, ERR_BAD_REQUEST, "Standard input cannot be read.");
		buf_grew(in, (size_t)n);
	}
	return 0;
}

static int form_of(const char *name, enum egress_form *form, struct err *e)
{
	for (int f = FORM_CONNECT; f <= FORM_SOCKS; f++)
		if (name == NULL || str_eq(str_of(name), decide_form_name((enum egress_form)f))) {
			*form = (enum egress_form)f;
			return 0;
		}
	return err_set(e, ERR_BAD_REQUEST, "--form is one of connect, http and socks, not \"%.60s\".", name);
}

static int print(json_t *answer)
{
	auto_json json_t *o = answer;
	auto_mem struct mem *m = mem_new();
	(void)printf("%s\n", js_dump(m, o));
	return 0;
}

int cli_egress_explain(char **args, struct err *e)
{
	struct explain_ask ask = { 0 };
	struct egress_site site = { 0 };
	const char *address = NULL, *hello = NULL, *form = NULL, *inward = NULL;
	const struct cli_option all[] = {
		{ "allow", &ask.allow, NULL },
		{ "mode", &ask.mode, NULL },
		{ "resolve", &ask.resolve, NULL },
		{ "form", &form, NULL },
		{ "inward", &inward, NULL },
		{ "address", &address, NULL },
		{ "client-hello", &hello, NULL },
		{ "nat64", NULL, &site.nat64 },
		{ "observe", NULL, &site.observe },
		{ 0 },
	};
	/* Which of the three questions it is decides whether a host stands alone. */
	bool alone = true;
	for (char **a = args; *a != NULL; a++)
		alone = alone && !str_starts(*a, "--address") && !str_starts(*a, "--client-hello");
	if (cli_options(args, all, &ask.target, alone ? 1 : 0, e) != 0 || form_of(form, &ask.form, e) != 0 ||
	    explain_check(&ask, e) != 0)
		return -1;
	if (inward != NULL && policy_patterns(inward, &site.inward, &site.n_inward, e) != 0)
		return -1;
	auto_buf struct buf in = BUF(HELLO_RAW_MAX + 2 * 4096);
	if (hello != NULL && read_hello(&in, e) != 0)
		return -1;
	(void)print(hello != NULL ? explain_hello(&site, hello, (const uint8_t *)buf_c(&in), in.n)
		: address != NULL ? explain_address(&site, address)
				  : explain_host(&site, &ask));
	policy_site_free(&site);
	return 0;
}
