#include "io/conf_file.h"

#include <ctype.h>
#include <string.h>

enum state {
	BEFORE,
	COMMENT,
	COMMENT_ESCAPE,
	KEY,
	VALUE_START,
	VALUE,
	ESCAPE,
	SINGLE,
	DOUBLE,
	DOUBLE_ESCAPE
};

enum { KEY_MAX = 128, VALUE_MAX = 64 * 1024 };

struct parse {
	enum state state;
	int line, from; /* now, and where the assignment began */
	struct buf key, value;
	size_t keep; /* bytes of value that are not trailing blanks */
	conf_file_fn *got;
	void *arg;
	struct err *e;
};

static bool blank(char c)
{
	return c == ' ' || c == '\t' || c == '\r';
}

static void add(struct parse *s, char c, bool may_be_trailing)
{
	(void)buf_chr(&s->value, c);
	if (!may_be_trailing)
		s->keep = s->value.n;
}

static int assign(struct parse *s)
{
	while (s->key.n > 0 && blank(s->key.p[s->key.n - 1]))
		s->key.p[--s->key.n] = 0;
	if (s->value.full || s->key.full)
		return err_set(s->e, ERR_BAD_REQUEST, "Line %d is too long.", s->from);
	if (s->value.n > 0)
		s->value.p[s->keep] = 0;
	int rc = s->got(s->arg, buf_c(&s->key), buf_c(&s->value), s->from, s->e);
	buf_reset(&s->key);
	buf_reset(&s->value);
	s->keep = 0;
	s->state = BEFORE;
	return rc;
}

static int in_key(struct parse *s, char c)
{
	if (c == '\n')
		return err_set(s->e, ERR_BAD_REQUEST, "Line %d is not of the form KEY=value.", s->from);
	if (c == '=')
		s->state = VALUE_START;
	else
		(void)buf_chr(&s->key, c);
	return 0;
}

static int before(struct parse *s, char c)
{
	if (c == '#' || c == ';') {
		s->state = COMMENT;
	} else if (!isspace((unsigned char)c)) {
		s->state = KEY;
		s->from = s->line;
		return in_key(s, c);
	}
	return 0;
}

static int in_value(struct parse *s, char c)
{
	if (c == '\n')
		return assign(s);
	if (c == '\\')
		s->state = ESCAPE;
	else if (s->state == VALUE_START && (c == '\'' || c == '"'))
		s->state = c == '"' ? DOUBLE : SINGLE;
	else if (s->state == VALUE || !blank(c)) {
		s->state = VALUE;
		add(s, c, blank(c));
	}
	return 0;
}

static void in_quotes(struct parse *s, char c)
{
	if (c == (s->state == DOUBLE ? '"' : '\''))
		s->state = VALUE_START; /* more may follow: 'a'"b" */
	else if (c == '\\' && s->state == DOUBLE)
		s->state = DOUBLE_ESCAPE;
	else
		add(s, c, false);
}

static void escaped(struct parse *s, char c)
{
	bool in_double = s->state == DOUBLE_ESCAPE;
	s->state = in_double ? DOUBLE : VALUE;
	if (c == '\n')
		return; /* the line goes on */
	if (in_double && memchr("\"\\`$", c, 4) == NULL)
		add(s, '\\', false);
	add(s, c, false);
}

static int next(struct parse *s, char c)
{
	switch (s->state) {
	case BEFORE:
		return before(s, c);
	case COMMENT:
		s->state = c == '\\' ? COMMENT_ESCAPE : c == '\n' ? BEFORE : COMMENT;
		return 0;
	case COMMENT_ESCAPE: /* systemd continues a comment too */
		s->state = COMMENT;
		return 0;
	case KEY:
		return in_key(s, c);
	case VALUE_START:
	case VALUE:
		return in_value(s, c);
	case SINGLE:
	case DOUBLE:
		in_quotes(s, c);
		return 0;
	case ESCAPE:
	case DOUBLE_ESCAPE:
		escaped(s, c);
		return 0;
	}
	return 0;
}

int conf_file_parse(const char *p, size_t n, conf_file_fn *got, void *arg, struct err *e)
{
	struct parse s = {
		.line = 1, .key = BUF(KEY_MAX), .value = BUF(VALUE_MAX), .got = got, .arg = arg, .e = e
	};
	int rc = memchr(p, 0, n) == NULL ? 0 : err_set(e, ERR_BAD_REQUEST, "The file holds a NUL byte.");
	for (size_t i = 0; rc == 0 && i < n; i++) {
		rc = next(&s, p[i]);
		if (p[i] == '\n')
			s.line++;
	}
	if (rc == 0 && (s.state == SINGLE || s.state == DOUBLE || s.state == DOUBLE_ESCAPE))
		rc = err_set(e, ERR_BAD_REQUEST, "The quotes opened in line %d are not closed.", s.from);
	else if (rc == 0 && s.state != BEFORE && s.state != COMMENT && s.state != COMMENT_ESCAPE)
		rc = s.state == KEY ? in_key(&s, '\n') : assign(&s);
	buf_free(&s.key);
	buf_free(&s.value);
	return rc;
}
