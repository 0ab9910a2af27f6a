#include "op/multipart.h"

#include <string.h>
#include <strings.h>

#include "base/str.h"

enum { BUFFER_BYTES = 64 * 1024, DELIMITER_MAX = 4 + MULTIPART_BOUNDARY_MAX };

struct multipart {
	struct mem *mem;
	ssize_t (*read)(void *arg, void *p, size_t n);
	void *arg;
	char delimiter[DELIMITER_MAX + 1]; /* "\r\n--boundary" */
	size_t delimiter_n;
	char *p; /* BUFFER_BYTES; [at, end) is not taken yet */
	size_t at, end;
	bool in_part, over, broken;
};

/* ---- a header's parameters: token=value or token="value", with backslashes (RFC 7578, 9110) */

static const char ows[] = " \t";

/* Take one parameter off s; false at the end, or where it is malformed. */
static bool take_param(struct mem *m, struct str *s, struct str *name, const char **value)
{
	while (s->n > 0 && (s->p[0] == ';' || strchr(ows, s->p[0]) != NULL))
		*s = (struct str){ s->p + 1, s->n - 1 };
	const char *eq = memchr(s->p, '=', s->n);
	if (s->n == 0 || eq == NULL)
		return false;
	*name = str_trim((struct str){ s->p, (size_t)(eq - s->p) });
	*s = (struct str){ eq + 1, s->n - (size_t)(eq + 1 - s->p) };
	if (s->n == 0 || s->p[0] != '"') {
		const char *end = memchr(s->p, ';', s->n);
		size_t n = end == NULL ? s->n : (size_t)(end - s->p);
		struct str v = str_trim((struct str){ s->p, n });
		*value = mem_strn(m, v.p, v.n);
		*s = (struct str){ s->p + n, s->n - n };
		return true;
	}
	char *out = mem_alloc(m, s->n);
	size_t n = 0, i = 1;
	for (; i < s->n && s->p[i] != '"'; i++) {
		if (s->p[i] == '\\' && i + 1 < s->n && (s->p[i + 1] == '"' || s->p[i + 1] == '\\'))
			i++;
		out[n++] = s->p[i];
	}
	if (i >= s->n)
		return false;
	*value = out;
	*s = (struct str){ s->p + i + 1, s->n - i - 1 };
	return true;
}

static bool name_is(struct str a, const char *name)
{
	return a.n == strlen(name) && strncasecmp(a.p, name, a.n) == 0;
}

/* HTML writes three characters of a name as these, and no others. */
static void html_names(char *s)
{
	static const struct {
		const char *text;
		char c;
	} written[] = { { "%22", '"' }, { "%0D", '\r' }, { "%0A", '\n' } };
	char *to = s;
	while (*s != '\0') {
		char c = *s;
		size_t n = 1;
		for (size_t i = 0; i < sizeof written / sizeof written[0]; i++)
			if (strncmp(s, written[i].text, 3) == 0) {
				c = written[i].c;
				n = 3;
			}
		*to++ = c;
		s += n;
	}
	*to = '\0';
}

static int take_boundary(struct multipart *m, const char *type, struct err *e)
{
	static const char form[] = "multipart/form-data";
	struct str rest, name;
	const char *value;
	if (type == NULL || strncasecmp(type, form, sizeof form - 1) != 0 ||
	    (type[sizeof form - 1] != '\0' && strchr("; \t", type[sizeof form - 1]) == NULL))
		return err_set(e, ERR_MEDIA, "The body must be multipart/form-data.");
	rest = str_of(type + sizeof form - 1);
	while (take_param(m->mem, &rest, &name, &value)) {
		size_t n = strlen(value);
		if (!name_is(name, "boundary"))
			continue;
		if (n == 0 || n > MULTIPART_BOUNDARY_MAX || strpbrk(value, "\r\n") != NULL)
			break;
		memcpy(m->delimiter, "\r\n--", 4);
		memcpy(m->delimiter + 4, value, n);
		m->delimiter_n = n + 4;
		return 0;
	}
	return err_set(e, ERR_BAD_REQUEST, "The Content-Type must have a boundary of 1 to %d characters.",
	    MULTIPART_BOUNDARY_MAX);
}

struct multipart *multipart_open(struct mem *mem, const char *content_type,
    ssize_t (*read)(void *arg, void *p, size_t n), void *arg, struct err *e)
{
	struct multipart *m = mem_alloc(mem, sizeof *m);
	*m = (struct multipart){ .mem = mem, .read = read, .arg = arg };
	if (take_boundary(m, content_type, e) != 0)
		return NULL;
	m->p = mem_alloc(mem, BUFFER_BYTES);
	/* The first delimiter may stand at the very beginning, without a line end before it. */
	memcpy(m->p, "\r\n", 2);
	m->end = 2;
	m->in_part = true; /* what stands before it is read like a part, and passed over */
	return m;
}

/* More bytes behind those that are there: how many, 0 at the end of the body or when there is no room, -1. */
static ssize_t fill(struct multipart *m)
{
	if (m->at > 0) {
		memmove(m->p, m->p + m->at, m->end - m->at);
		m->end -= m->at;
		m->at = 0;
	}
	if (m->end == BUFFER_BYTES)
		return 0;
	ssize_t n = m->read(m->arg, m->p + m->end, BUFFER_BYTES - m->end);
	if (n > 0)
		m->end += (size_t)n;
	return n;
}

static ssize_t broke(struct multipart *m)
{
	m->broken = true;
	return -1;
}

/* Bytes that surely belong to the part, 0 where its delimiter begins, -1 when the body ends before that. */
static ssize_t ready(struct multipart *m)
{
	for (;;) {
		size_t have = m->end - m->at;
		const char *from = m->p + m->at, *hit = memmem(from, have, m->delimiter, m->delimiter_n);
		if (hit != NULL)
			return hit - from;
		if (have >= m->delimiter_n)
			return (ssize_t)(have - m->delimiter_n + 1);
		if (fill(m) <= 0)
			return broke(m);
	}
}

ssize_t multipart_read(struct multipart *m, void *p, size_t n)
{
	if (m->broken)
		return -1;
	if (!m->in_part || n == 0)
		return 0;
	ssize_t have = ready(m);
	if (have <= 0) {
		m->in_part = false;
		return have;
	}
	n = n < (size_t)have ? n : (size_t)have;
	memcpy(p, m->p + m->at, n);
	m->at += n;
	return (ssize_t)n;
}

/* At least n bytes from m->at on are there. */
static bool want(struct multipart *m, size_t n)
{
	while (m->end - m->at < n)
		if (fill(m) <= 0)
			return false;
	return true;
}

/* A line of the part's head, without its end; NULL when it is too long or the body ends. */
static const char *head_line(struct multipart *m, size_t *room)
{
	for (;;) {
		const char *from = m->p + m->at, *end = memmem(from, m->end - m->at, "\r\n", 2);
		size_t n = end == NULL ? m->end - m->at : (size_t)(end - from);
		if (n > *room)
			return NULL;
		if (end != NULL) {
			*room -= n;
			m->at += n + 2;
			return memchr(from, 0, n) == NULL ? mem_strn(m->mem, from, n) : NULL;
		}
		if (fill(m) <= 0)
			return NULL;
	}
}

static void take_disposition(struct multipart *m, const char *text, struct multipart_part *part)
{
	struct str rest = str_of(text), name, kind;
	const char *value;
	(void)str_cut(&rest, ';', &kind);
	while (take_param(m->mem, &rest, &name, &value)) {
		char *own = mem_str(m->mem, value);
		html_names(own);
		if (name_is(name, "name"))
			part->name = own;
		else if (name_is(name, "filename"))
			part->filename = own;
	}
}

static bool take_head(struct multipart *m, struct multipart_part *part)
{
	static const char field[] = "content-disposition:";
	size_t room = MULTIPART_HEAD_MAX;
	const char *line;
	while ((line = head_line(m, &room)) != NULL && line[0] != '\0')
		if (strncasecmp(line, field, sizeof field - 1) == 0)
			take_disposition(m, line + sizeof field - 1, part);
	return line != NULL;
}

static int malformed(struct multipart *m, struct err *e)
{
	(void)broke(m);
	return err_set(e, ERR_BAD_REQUEST, "The multipart body is malformed or ends too early.");
}

int multipart_next(struct multipart *m, struct multipart_part *part, struct err *e)
{
	*part = (struct multipart_part){ 0 };
	if (m->over)
		return 0;
	while (m->in_part && !m->broken) {
		ssize_t n = ready(m);
		if (n <= 0)
			m->in_part = false;
		else
			m->at += (size_t)n;
	}
	if (m->broken || !want(m, m->delimiter_n + 2))
		return malformed(m, e);
	m->at += m->delimiter_n;
	if (memcmp(m->p + m->at, "--", 2) == 0) {
		m->over = true;
		return 0;
	}
	/* RFC 2046 lets blanks follow the delimiter; then its line ends. */
	while (want(m, 2) && strchr(ows, m->p[m->at]) != NULL && m->p[m->at] != '\0')
		m->at++;
	if (!want(m, 2) || memcmp(m->p + m->at, "\r\n", 2) != 0)
		return malformed(m, e);
	m->at += 2;
	if (!take_head(m, part))
		return malformed(m, e);
	m->in_part = true;
	return 1;
}
