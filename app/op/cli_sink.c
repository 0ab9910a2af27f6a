#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/js.h"
#include "base/limits.h"
#include "op/cli.h"

static int put(struct cli_sink *s, const char *p, size_t n)
{
	if (n > 0 && (fwrite(p, 1, n, s->to) != n || fflush(s->to) != 0))
		s->closed = true;
	return s->closed ? -1 : 0;
}

static int sink_line(struct cli_sink *s, struct str line)
{
	/* Not js_parse: U+0000 is fine in what a tool printed. */
	bool shallow = js_depth(line.p, line.n) <= LIMIT_JSON_DEPTH;
	auto_json json_t *v = shallow ? json_loadb(line.p, line.n, JSON_ALLOW_NUL, NULL) : NULL;
	if (!s->render) {
		cli_see(&s->view, v);
		return put(s, line.p, line.n) != 0 ? -1 : put(s, "\n", 1);
	}
	auto_buf struct buf out = BUF(4 * CLI_LINE_BYTES);
	if (v != NULL) {
		cli_line(&s->view, v, &out);
	} else { /* not JSON: shown as it is, but not to the terminal's undoing */
		cli_clean(line.p, line.n, &out);
		(void)buf_chr(&out, '\n');
	}
	return put(s, buf_c(&out), out.n);
}

int cli_sink_data(struct cli_sink *s, const char *p, size_t n)
{
	if (!s->lines)
		return put(s, p, n);
	if (ndjson_feed(&s->reader, p, n) != 0)
		return -1;
	struct str line;
	while (ndjson_next(&s->reader, &line))
		if (sink_line(s, line) != 0)
			return -1;
	return 0;
}

struct cli_sink cli_sink_new(const struct op *op, FILE *to, bool render, bool raw)
{
	bool terminal = isatty(fileno(to)) == 1;
	struct winsize w = { 0 };
	struct cli_sink s = {
		.to = to,
		.render = render || (terminal && !raw),
		.lines = op == NULL || (op->flags & (OP_STREAM | OP_RAW_OUT)) == OP_STREAM,
		.reader = ndjson_new(CLI_LINE_BYTES),
	};
	if (terminal)
		s.view.columns = ioctl(fileno(to), TIOCGWINSZ, &w) == 0 && w.ws_col > 0 ? w.ws_col : 80;
	return s;
}

int cli_sink_value(struct cli_sink *s, const char *p, size_t n)
{
	struct err bad = { 0 };
	auto_json json_t *v = s->render ? js_parse(p, n, &bad) : NULL;
	auto_free char *text = v == NULL ? NULL : json_dumps(v, JSON_INDENT(2) | JSON_ENCODE_ANY);
	if (text == NULL)
		return put(s, p, n) != 0 ? -1 : put(s, "\n", 1);
	/* JSON escapes C0; what else may steer a terminal does not. */
	size_t len = strlen(text);
	auto_buf struct buf clean = BUF(3 * len + 4);
	cli_clean(text, len, &clean);
	(void)buf_chr(&clean, '\n');
	return put(s, buf_c(&clean), clean.n);
}

void cli_sink_again(struct cli_sink *s)
{
	ndjson_free(&s->reader);
	s->reader = ndjson_new(CLI_LINE_BYTES);
}

void cli_sink_end(struct cli_sink *s)
{
	struct str rest = ndjson_rest(&s->reader);
	if (rest.n > 0)
		(void)sink_line(s, rest); /* one JSON value instead of a stream has no newline */
	auto_buf struct buf out = BUF(100);
	cli_settle(&s->view, &out);
	(void)put(s, buf_c(&out), out.n);
	ndjson_free(&s->reader);
}
