#include "streams.h"

#include "t.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>

#include "io/file.h"

#define DIR_ "tests/cases/model"

static int is_stream(const struct dirent *d)
{
	return str_ends(d->d_name, ".sse");
}

int stream_cases(stream_case_fn *each, void *arg)
{
	struct dirent **names;
	int n = scandir(DIR_, &names, is_stream, alphasort);
	assert_true(n > 0);
	for (int i = 0; i < n; i++) {
		struct stream_case c = { .text = BUF(STREAM_BYTES) };
		char path[512];
		struct err e = { 0 };
		(void)snprintf(path, sizeof path, DIR_ "/%s", names[i]->d_name);
		(void)snprintf(
		    c.name, sizeof c.name, "%.*s", (int)strlen(names[i]->d_name) - 4, names[i]->d_name);
		c.w = str_starts(c.name, "chat-") ? WIRE_CHAT
		    : str_starts(c.name, "resp")  ? WIRE_RESPONSES
						  : WIRE_MESSAGES;
		assert_int_equal(file_read(path, &c.text, &e), 0);
		each(&c, arg);
		buf_free(&c.text);
		free(names[i]);
	}
	free(names);
	return n;
}

int stream_read(struct wire_in *in, const char *p, size_t n, size_t first, stream_event_fn *each, void *arg,
    struct err *e)
{
	struct sse s = sse_new(STREAM_BYTES);
	struct sse_event ev;
	struct wire_read r;
	int rc = 0;
	for (size_t at = 0; at < n && rc == 0;) {
		size_t part = first == 0 ? 1 : at == 0 && first < n ? first : n - at;
		rc = sse_feed(&s, p + at, part, e);
		at += part;
		while (rc == 0 && sse_next(&s, &ev)) {
			rc = wire_in_event(in, &ev, &r, e);
			if (rc == 0)
				each(in, &ev, &r, arg);
		}
	}
	while (rc == 0 && sse_end(&s, &ev)) {
		rc = wire_in_event(in, &ev, &r, e);
		if (rc == 0)
			each(in, &ev, &r, arg);
	}
	sse_free(&s);
	return rc;
}

void golden_is(const char *path, const struct buf *now)
{
	if (getenv("GATEHOUSE_GOLDEN") != NULL) {
		FILE *f = fopen(path, "we");
		assert_non_null(f);
		assert_int_equal(fwrite(buf_c(now), 1, now->n, f), now->n);
		(void)fclose(f);
	}
	auto_buf struct buf want = BUF(4 << 20);
	struct err e = { 0 };
	assert_int_equal(file_read(path, &want, &e), 0);
	if (want.n == now->n && memcmp(buf_c(&want), buf_c(now), now->n) == 0)
		return;
	size_t at = 0, line = 1;
	for (; at < want.n && at < now->n && want.p[at] == now->p[at]; at++)
		line += want.p[at] == '\n';
	fail_msg(
	    "%s is another text from line %zu on: run `make golden` and look at the difference", path, line);
}
