/*
 * Linear over some hundred rows, of which most are passed over by how their paths begin. All routes of the best fitting path pattern
 * decide together: if none of them has the method, the answer is 405 with theirs, even where a less fitting pattern (a parameter in
 * place of the literal) would have it.
 */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/hash.h"
#include "base/js.h"
#include "base/str.h"
#include "op/op.h"

enum { SEGMENTS_MAX = 16 };

/* How well each segment of a path fits: 'a' a literal, 'b' a parameter with a literal tail, 'c' a parameter,
 * 'd' the rest. The lexicographically least rank is the best match. */
struct rank {
	char by[SEGMENTS_MAX + 1];
};

static struct str segment(const char *s)
{
	return (struct str){ s, strcspn(s, "/") };
}

static struct str param_name(struct str pat)
{
	const char *end = memchr(pat.p, '}', pat.n);
	assert(pat.p[0] == '{' && end != NULL);
	return (struct str){ pat.p + 1, (size_t)(end - pat.p - 1) };
}

static bool is_rest(struct str pat)
{
	return pat.n > 5 && pat.p[0] == '{' && memcmp(pat.p + pat.n - 4, "...}", 4) == 0;
}

/* 0 when the segment does not fit. */
static char segment_rank(struct str pat, struct str seg)
{
	if (pat.n == 0 || pat.p[0] != '{')
		return pat.n == seg.n && memcmp(pat.p, seg.p, seg.n) == 0 ? 'a' : 0;
	size_t tail_n = pat.n - param_name(pat).n - 2;
	if (seg.n <= tail_n) /* a parameter is never empty */
		return 0;
	if (tail_n == 0)
		return 'c';
	return memcmp(seg.p + seg.n - tail_n, pat.p + pat.n - tail_n, tail_n) == 0 ? 'b' : 0;
}

static bool path_fits(const char *pattern, const char *path, struct rank *r)
{
	memset(r, 0, sizeof *r);
	for (size_t i = 0; i < SEGMENTS_MAX && *pattern == '/' && *path == '/'; i++) {
		struct str pat = segment(++pattern), seg = segment(++path);
		if (is_rest(pat)) {
			r->by[i] = 'd';
			return *path != 0;
		}
		r->by[i] = segment_rank(pat, seg);
		if (r->by[i] == 0)
			return false;
		pattern += pat.n;
		path += seg.n;
	}
	return *pattern == 0 && *path == 0;
}

static json_t *path_params(const char *pattern, const char *path)
{
	json_t *o = json_object();
	while (*pattern == '/' && *path == '/') {
		struct str pat = segment(++pattern), seg = segment(++path);
		if (pat.n > 0 && pat.p[0] == '{') {
			bool rest = is_rest(pat);
			struct str name = param_name(pat);
			size_t tail_n = pat.n - name.n - 2;
			char key[64];
			(void)snprintf(key, sizeof key, "%.*s", (int)(name.n - (rest ? 3 : 0)), name.p);
			js_set(o, key, rest ? js_text(path, strlen(path)) : js_text(seg.p, seg.n - tail_n));
		}
		pattern += pat.n;
		path += seg.n;
	}
	return o;
}

bool route_has(const struct route *r, const char *name)
{
	size_t n = strlen(name);
	for (const char *s = strchr(r->path, '{'); s != NULL; s = strchr(s + 1, '{'))
		if (strncmp(s + 1, name, n) == 0 && (s[1 + n] == '}' || s[1 + n] == '.'))
			return true;
	return false;
}

static void allow_add(char *allow, size_t size, const char *method)
{
	auto_buf struct buf b = BUF(size - 1);
	if (strstr(allow, method) != NULL) /* no method's name is part of another's */
		return;
	(void)buf_str(&b, allow);
	(void)buf_str(&b, b.n > 0 ? ", " : "");
	(void)buf_str(&b, method);
	(void)buf_str(&b, strcmp(method, "GET") == 0 ? ", HEAD" : "");
	memcpy(allow, b.p, b.n + 1);
}

static bool at_door(const struct op *o, enum op_door door)
{
	if ((o->flags & OP_E2B) != 0)
		return door == DOOR_E2B;
	return door != DOOR_E2B && ((o->flags & OP_INTERNAL) == 0 || door == DOOR_INTERNAL);
}

struct row {
	uint32_t begins; /* of its path, when its first two segments are literals; else 0 */
	const struct op *op;
	const struct route *route;
};
struct routes {
	size_t n;
	struct row row[];
};

/* Of the first two segments. */
static uint32_t beginning(const char *path)
{
	size_t n = 0;
	for (int slashes = 0; path[n] != 0 && (slashes += path[n] == '/') < 3;)
		n++;
	uint32_t x = hash_own(path, n); /* what collides is told apart by path_fits */
	return x == 0 ? 1 : x;
}

static bool begins_literally(const char *pattern)
{
	for (int slashes = 0; *pattern != 0 && (slashes += *pattern == '/') < 3; pattern++)
		if (*pattern == '{')
			return false;
	return true;
}

/* Into all[]; NULL: only count them. */
static size_t rows(const struct op *const *tables, struct row *all)
{
	size_t n = 0;
	for (; *tables != NULL; tables++)
		for (const struct op *o = *tables; o->id != NULL; o++)
			for (int i = 0; i < OP_ROUTES_MAX && o->routes[i].path != NULL; i++, n++)
				if (all != NULL)
					all[n] = (struct row){ begins_literally(o->routes[i].path)
						    ? beginning(o->routes[i].path)
						    : 0,
						o, &o->routes[i] };
	return n;
}

struct routes *routes_new(const struct op *const *tables)
{
	size_t n = rows(tables, NULL);
	struct routes *r = xcalloc(1, sizeof *r + n * sizeof r->row[0]);
	r->n = rows(tables, r->row);
	return r;
}

void routes_free(struct routes *r)
{
	free(r);
}

/* The op whose clients read errors in a form of their own and that this path is below of, the nearest; or NULL. */
static const struct op *above(const struct routes *all, const char *path, enum op_door door)
{
	const struct op *found = NULL;
	size_t nearest = 0;
	for (const struct row *w = all->row; w < all->row + all->n; w++) {
		const char *p = w->route->path;
		size_t n = strlen(p);
		if (w->op->refuse == NULL || n <= nearest || !at_door(w->op, door) ||
		    strncmp(p, path, n) != 0 || path[n] != '/')
			continue;
		nearest = n;
		found = w->op;
	}
	return found;
}

int route_find(const struct routes *all, const char *method, const char *path, enum op_door door,
    struct route_match *m, struct err *e)
{
	if (strcmp(method, "HEAD") == 0)
		method = "GET";
	struct rank best = { "~" }, r;
	uint32_t begins = beginning(path);
	*m = (struct route_match){ 0 };
	for (const struct row *w = all->row; w < all->row + all->n; w++) {
		if ((w->begins != 0 && w->begins != begins) || !at_door(w->op, door) ||
		    !path_fits(w->route->path, path, &r) || strcmp(r.by, best.by) > 0)
			continue;
		if (strcmp(r.by, best.by) < 0)
			*m = (struct route_match){ 0 };
		best = r;
		allow_add(m->allow, sizeof m->allow, w->route->method);
		m->near = m->near != NULL ? m->near : w->op;
		if (strcmp(w->route->method, method) == 0) {
			m->op = w->op;
			m->route = w->route;
		}
	}
	if (m->op == NULL && m->allow[0] != 0)
		return err_set(
		    e, ERR_METHOD, "This path is there, but not with this method; use %s.", m->allow);
	if (m->op == NULL) {
		m->near = above(all, path, door);
		return err_set(
		    e, ERR_NOT_FOUND, "There is nothing at this path; GET /v1/openapi.json lists every op.");
	}
	m->path_params = path_params(m->route->path, path);
	return 0;
}

/* The next character of a raw path, decoded; %zz stays what it is: nginx has refused it. */
static unsigned char raw_char(struct str *s)
{
	unsigned char c = (unsigned char)s->p[0];
	char hex[3] = { 0 };
	if (c == '%' && s->n >= 3)
		memcpy(hex, s->p + 1, 2);
	size_t n = hex_decode(hex, &c, 1) == 1 ? 3 : 1;
	*s = (struct str){ s->p + n, s->n - n };
	return c;
}

static int no_empty(struct err *e)
{
	return err_set(
	    e, ERR_NOT_FOUND, "There is nothing at this path: a segment of it is empty; is an id missing?");
}

static int no_dots(size_t n, size_t dots, struct err *e)
{
	if (n != dots || n > 2)
		return 0;
	return err_set(e, ERR_BAD_REQUEST, "A path cannot hold the segments \".\" and \"..\".");
}

/* rest: an encoded slash is one like any other. */
static int raw_segment(struct str s, bool rest, struct err *e)
{
	size_t dots = 0, n = 0;
	for (; s.n > 0; n++) {
		unsigned char c = raw_char(&s);
		dots += c == '.';
		if (c != '/')
			continue;
		if (!rest)
			return err_set(
			    e, ERR_BAD_REQUEST, "A path cannot hold an encoded slash (%%2F) in a segment.");
		if (n == 0)
			return no_empty(e);
		if (no_dots(n, dots, e) != 0)
			return -1;
		dots = 0;
		n = (size_t)-1; /* the next is the first of its segment */
	}
	return n == 0 ? no_empty(e) : no_dots(n, dots, e);
}

/* The number of slashes before the rest of a path begins. */
static size_t rest_begins(const struct route *r)
{
	size_t n = 0;
	for (const char *s = r == NULL ? "" : r->path; (s = strchr(s, '/')) != NULL;) {
		n++;
		if (is_rest(segment(++s)))
			return n;
	}
	return SIZE_MAX;
}

int route_raw(const char *uri, const struct route *r, struct err *e)
{
	struct str path = { uri, strcspn(uri, "?#") }, seg;
	size_t rest = rest_begins(r);
	(void)str_cut(&path, '/', &seg); /* before the first slash */
	for (size_t i = 1; str_cut(&path, '/', &seg); i++)
		if (raw_segment(seg, i >= rest, e) != 0)
			return -1;
	return 0;
}

const struct op *op_by_id(const struct op *const *tables, const char *id)
{
	for (; *tables != NULL; tables++)
		for (const struct op *o = *tables; o->id != NULL; o++)
			if (strcmp(o->id, id) == 0)
				return o;
	return NULL;
}
