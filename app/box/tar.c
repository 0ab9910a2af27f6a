#include "box/tar.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

/* Where the fields of a head are (ustar). */
enum {
	AT_NAME = 0,
	AT_MODE = 100,
	AT_UID = 108,
	AT_GID = 116,
	AT_SIZE = 124,
	AT_MTIME = 136,
	AT_SUM = 148,
	AT_TYPE = 156,
	AT_TARGET = 157,
	AT_MAGIC = 257,
	AT_PREFIX = 345,
	NAME_BYTES = 100,
	PREFIX_BYTES = 155,
	SIZE_OCTAL_BITS = 33,
};

static enum tar_got bad(struct tar_in *t, const char *why)
{
	t->at = TAR_AT_BAD;
	t->why = why;
	return TAR_BAD;
}

/* ---- fields */

/* Octal text, or the binary form that larger values have (the highest bit set). False: it is neither. */
static bool number(const unsigned char *p, size_t n, uint64_t *v)
{
	*v = 0;
	if ((p[0] & 0x80) != 0) {
		for (size_t i = 0; i < n; i++) {
			if (*v > UINT64_MAX >> 9)
				return false;
			*v = *v << 8 | (i == 0 ? p[i] & 0x7f : p[i]);
		}
		return (p[0] & 0x40) == 0; /* a negative one */
	}
	size_t i = 0;
	while (i < n && p[i] == ' ')
		i++;
	for (; i < n && p[i] >= '0' && p[i] <= '7'; i++)
		*v = *v << 3 | (uint64_t)(p[i] - '0'); /* at most 12 digits */
	for (; i < n; i++)
		if (p[i] != ' ' && p[i] != 0)
			return false;
	return true;
}

static unsigned sum_of(const unsigned char *block)
{
	unsigned sum = 0;
	for (int i = 0; i < TAR_BLOCK; i++)
		sum += i >= AT_SUM && i < AT_SUM + 8 ? ' ' : block[i];
	return sum;
}

/* A name that is refused, for people: cut, with its control characters as \x1b. */
static void show(struct str s, char to[LIMIT_PATH_BYTES])
{
	static const char hex[] = "0123456789abcdef";
	size_t n = 0;
	for (size_t i = 0; i < s.n && n + 5 <= LIMIT_PATH_BYTES; i++) {
		unsigned char c = (unsigned char)s.p[i];
		if (c >= ' ' && c != 0x7f) {
			to[n++] = (char)c;
			continue;
		}
		memcpy(to + n, (char[]){ '\\', 'x', hex[c >> 4], hex[c & 15] }, 4);
		n += 4;
	}
	to[n] = 0;
}

enum path_fault { PATH_GOOD, PATH_ABSOLUTE, PATH_NUL, PATH_UP, PATH_LONG };

/* A path of an archive as a relative one without anything odd. */
static enum path_fault relative(struct str s, char to[LIMIT_PATH_BYTES])
{
	struct str part;
	size_t n = 0;
	to[0] = 0;
	if (s.n > 0 && s.p[0] == '/')
		return PATH_ABSOLUTE;
	if (memchr(s.p, 0, s.n) != NULL)
		return PATH_NUL;
	while (str_cut(&s, '/', &part)) {
		if (part.n == 0 || str_eq(part, "."))
			continue;
		if (str_eq(part, ".."))
			return PATH_UP;
		if (n + (n > 0) + part.n + 1 > LIMIT_PATH_BYTES)
			return PATH_LONG;
		if (n > 0)
			to[n++] = '/';
		memcpy(to + n, part.p, part.n);
		n += part.n;
		to[n] = 0;
	}
	return PATH_GOOD;
}

/* The entry's own path; one that is refused is left as it is to be shown. NULL, or what is wrong. */
static const char *clean(struct str s, char to[LIMIT_PATH_BYTES])
{
	static const char *const wrong[] = { [PATH_ABSOLUTE] = "its path is absolute",
		[PATH_NUL] = "its path holds a NUL",
		[PATH_UP] = "its path holds `..`",
		[PATH_LONG] = "its path is too long" };
	enum path_fault fault = relative(s, to);
	if (fault != PATH_GOOD)
		show(s, to);
	return wrong[fault];
}

static const char *clean_target(struct str s, char to[LIMIT_PATH_BYTES])
{
	static const char *const wrong[] = { [PATH_ABSOLUTE] = "its link target is absolute",
		[PATH_NUL] = "its link target holds a NUL",
		[PATH_UP] = "its link target holds `..`",
		[PATH_LONG] = "its link target is too long" };
	return wrong[relative(s, to)];
}

static const char *keep_target(struct str s, char to[LIMIT_PATH_BYTES])
{
	if (s.n >= LIMIT_PATH_BYTES || memchr(s.p, 0, s.n) != NULL)
		return "its link target is too long, or holds a NUL";
	memcpy(to, s.p, s.n);
	to[s.n] = 0;
	return NULL;
}

static struct str text(const unsigned char *p, size_t n)
{
	return (struct str){ (const char *)p, strnlen((const char *)p, n) };
}

/* ---- what is said before a head: pax records, GNU's long names */

static bool decimal(struct str s, uint64_t *v)
{
	*v = 0;
	if (s.n == 0)
		return false;
	for (size_t i = 0; i < s.n; i++) {
		if (s.p[i] < '0' || s.p[i] > '9' || *v > (UINT64_MAX - 9) / 10)
			return false;
		*v = *v * 10 + (uint64_t)(s.p[i] - '0');
	}
	return true;
}

static const char *pax_record(struct tar_in *t, struct str key, struct str value)
{
	uint64_t v;
	if (str_eq(key, "path")) {
		t->given.path = true;
		return clean(value, t->next.path);
	}
	if (str_eq(key, "linkpath")) {
		t->given.target = true;
		return keep_target(value, t->next.target);
	}
	if (str_eq(key, "size")) {
		t->given.size = true;
		return decimal(value, &t->next.size) ? NULL : "its size is no number";
	}
	if (str_eq(key, "mtime")) { /* a fraction is left out, a time before 1970 is none */
		struct str whole;
		t->given.mtime = str_cut(&value, '.', &whole) && decimal(whole, &v) && v < INT64_MAX;
		t->next.mtime_s = t->given.mtime ? (int64_t)v : 0;
		return NULL;
	}
	if (key.n > 11 && memcmp(key.p, "GNU.sparse.", 11) == 0)
		return "it is a sparse file: pack it without --sparse";
	return NULL;
}

/* "25 mtime=1350244992.02\n", each with its own length in front. */
static const char *pax(struct tar_in *t, struct str all)
{
	while (all.n > 0) {
		struct str rest = all, length, key;
		uint64_t n;
		if (!str_cut(&rest, ' ', &length) || !decimal(length, &n) || n > all.n || n < length.n + 3 ||
		    all.p[n - 1] != '\n')
			return "its extended head makes no sense";
		rest = (struct str){ all.p + length.n + 1, n - length.n - 2 };
		if (memchr(rest.p, '=', rest.n) == NULL || !str_cut(&rest, '=', &key))
			return "its extended head makes no sense";
		const char *why = pax_record(t, key, rest);
		if (why != NULL)
			return why;
		all = (struct str){ all.p + n, all.n - n };
	}
	return NULL;
}

static const char *take_meta(struct tar_in *t)
{
	struct str all = { t->meta, t->meta_n };
	if (t->meta_type == 'x')
		return pax(t, all);
	if (t->meta_type == 'g') /* for all that follow: nothing of that matters here */
		return NULL;
	all.n = strnlen(all.p, all.n);
	if (t->meta_type == 'K') {
		t->given.target = true;
		return keep_target(all, t->next.target);
	}
	t->given.path = true;
	return clean(all, t->next.path);
}

/* ---- a head */

static const char *kind(struct tar_in *t, unsigned char type, bool slash)
{
	switch (type) {
	case 0:
	case '0':
	case '7':
		t->next.kind = slash ? TAR_DIR : TAR_FILE; /* the first tars knew no directories */
		return NULL;
	case '1':
		t->next.kind = TAR_HARD_LINK;
		return NULL;
	case '2':
		t->next.kind = TAR_LINK;
		return NULL;
	case '5':
		t->next.kind = TAR_DIR;
		return NULL;
	case '3':
	case '4':
		return "it is a device";
	case '6':
		return "it is a pipe";
	case 'S':
		return "it is a sparse file: pack it without --sparse";
	default:
		return "it is of a kind that is not known here";
	}
}

static const char *take_path(struct tar_in *t, const unsigned char *b, bool *slash)
{
	char both[NAME_BYTES + PREFIX_BYTES + 2];
	struct str name = text(b + AT_NAME, NAME_BYTES), prefix = { "", 0 };
	if (memcmp(b + AT_MAGIC, "ustar\0", 6) == 0) /* GNU's old form has other things there */
		prefix = text(b + AT_PREFIX, PREFIX_BYTES);
	int n = snprintf(both, sizeof both, "%.*s%s%.*s", (int)prefix.n, prefix.p, prefix.n > 0 ? "/" : "",
	    (int)name.n, name.p);
	*slash = name.n > 0 && name.p[name.n - 1] == '/';
	return t->given.path ? NULL : clean((struct str){ both, (size_t)n }, t->next.path);
}

/* The fields of an entry's own head. */
static const char *take_fields(struct tar_in *t, const unsigned char *b)
{
	uint64_t mode, size, mtime;
	bool slash, links;
	if (!number(b + AT_MODE, 8, &mode) || !number(b + AT_SIZE, 12, &size))
		return "its head holds no numbers";
	const char *why = take_path(t, b, &slash);
	if (why == NULL)
		why = kind(t, b[AT_TYPE], slash);
	links = why == NULL && (t->next.kind == TAR_LINK || t->next.kind == TAR_HARD_LINK);
	if (links && !t->given.target)
		why = keep_target(text(b + AT_TARGET, NAME_BYTES), t->next.target);
	if (links && t->next.kind == TAR_HARD_LINK) {
		char cleaned[LIMIT_PATH_BYTES];
		why = why != NULL ? why : clean_target(str_of(t->next.target), cleaned);
		memcpy(t->next.target, cleaned, why == NULL ? strlen(cleaned) + 1 : 0);
	}
	t->next.mode = (uint32_t)mode & 0777;
	if (!t->given.size)
		t->next.size = size;
	if (!t->given.mtime)
		t->next.mtime_s = number(b + AT_MTIME, 12, &mtime) && mtime < INT64_MAX ? (int64_t)mtime : 0;
	if (why == NULL && t->next.path[0] == 0 && t->next.kind != TAR_DIR)
		why = "it has no name";
	return why != NULL ? why : t->next.size > INT64_MAX - TAR_BLOCK ? "its size makes no sense" : NULL;
}

static enum tar_got take_entry(struct tar_in *t)
{
	const char *why = take_fields(t, t->block);
	memcpy(t->entry.path, t->next.path, sizeof t->entry.path);
	if (why != NULL)
		return bad(t, why);
	t->entry = t->next;
	t->next = (struct tar_entry){ .size = 0 };
	memset(&t->given, 0, sizeof t->given);
	if (t->entry.kind != TAR_FILE)
		t->entry.size = 0;
	t->left = t->entry.size;
	t->pad = tar_pad(t->left);
	t->at = TAR_AT_DATA;
	return TAR_ENTRY;
}

static enum tar_got take_head(struct tar_in *t)
{
	static const unsigned char zeros[TAR_BLOCK];
	const unsigned char *b = t->block;
	uint64_t sum, size;
	t->block_n = 0;
	if (memcmp(b, zeros, sizeof zeros) == 0) {
		t->at = TAR_AT_END;
		return TAR_END;
	}
	if (!number(b + AT_SUM, 8, &sum) || sum != sum_of(b))
		return bad(t, "what follows is no tar: a checksum is wrong");
	if (strchr("xgLK", b[AT_TYPE]) == NULL || b[AT_TYPE] == 0)
		return take_entry(t);
	if (!number(b + AT_SIZE, 12, &size) || (size > TAR_META_MAX && b[AT_TYPE] != 'g'))
		return bad(t, "the next one's extended head is too long");
	t->meta_type = b[AT_TYPE];
	t->meta_n = 0;
	t->left = size;
	t->pad = tar_pad(size);
	t->at = TAR_AT_META;
	return TAR_MORE;
}

static size_t up_to(struct str in, uint64_t n)
{
	return in.n < n ? in.n : (size_t)n;
}

static void use(struct str *in, size_t n)
{
	in->p += n;
	in->n -= n;
}

static enum tar_got step_head(struct tar_in *t, struct str *in)
{
	size_t n = up_to(*in, TAR_BLOCK - t->block_n);
	memcpy(t->block + t->block_n, in->p, n);
	t->block_n += n;
	use(in, n);
	if (!t->begun && t->block_n >= 2 && t->block[0] == 0x1f && t->block[1] == 0x8b)
		return bad(t, "the archive is compressed with gzip: send the tar itself");
	if (t->block_n < TAR_BLOCK)
		return TAR_MORE;
	t->begun = true;
	return take_head(t);
}

static enum tar_got step_meta(struct tar_in *t, struct str *in)
{
	size_t n = up_to(*in, t->left), room = sizeof t->meta - t->meta_n, keep = n < room ? n : room;
	memcpy(t->meta + t->meta_n, in->p, keep); /* of a global one the rest does not matter */
	t->meta_n += keep;
	t->left -= n;
	use(in, n);
	if (t->left > 0)
		return TAR_MORE;
	t->at = TAR_AT_PAD;
	const char *why = take_meta(t);
	return why == NULL ? TAR_MORE
			   : (memcpy(t->entry.path, t->next.path, sizeof t->entry.path), bad(t, why));
}

static enum tar_got step_data(struct tar_in *t, struct str *in)
{
	if (t->left == 0) {
		t->at = TAR_AT_PAD;
		return TAR_DONE;
	}
	t->data = (struct str){ in->p, up_to(*in, t->left) };
	t->left -= t->data.n;
	use(in, t->data.n);
	return TAR_DATA;
}

enum tar_got tar_next(struct tar_in *t, struct str *in)
{
	for (;;) {
		enum tar_got got = TAR_MORE;
		if (t->at == TAR_AT_BAD)
			return TAR_BAD;
		if (t->at == TAR_AT_END) {
			use(in, in->n);
			return TAR_MORE;
		}
		if (t->at == TAR_AT_PAD) {
			size_t n = up_to(*in, t->pad);
			t->pad -= n;
			use(in, n);
			if (t->pad == 0)
				t->at = TAR_AT_HEAD;
		}
		/* The end of an entry needs no more bytes. */
		if (in->n == 0 && !(t->at == TAR_AT_DATA && t->left == 0))
			return TAR_MORE;
		if (t->at == TAR_AT_HEAD)
			got = step_head(t, in);
		else if (t->at == TAR_AT_META)
			got = step_meta(t, in);
		else if (t->at == TAR_AT_DATA)
			got = step_data(t, in);
		if (got != TAR_MORE)
			return got;
	}
}

bool tar_is_whole(const struct tar_in *t)
{
	return t->at == TAR_AT_END;
}

/* ---- writing */

size_t tar_pad(uint64_t n)
{
	return (size_t)((TAR_BLOCK - n % TAR_BLOCK) % TAR_BLOCK);
}

static void octal(unsigned char *p, size_t n, uint64_t v)
{
	for (size_t i = n - 1; i-- > 0; v >>= 3)
		p[i] = (unsigned char)('0' + (v & 7));
}

static void put_head(
    unsigned char *b, const char *name, unsigned char type, uint64_t size, const struct tar_entry *e)
{
	memset(b, 0, TAR_BLOCK);
	memcpy(b + AT_NAME, name, strnlen(name, NAME_BYTES));
	memcpy(b + AT_TARGET, e->target, strnlen(e->target, NAME_BYTES));
	octal(b + AT_MODE, 8, e->mode & 0777);
	octal(b + AT_UID, 8, 0);
	octal(b + AT_GID, 8, 0);
	octal(b + AT_SIZE, 12, size);
	octal(b + AT_MTIME, 12, e->mtime_s < 0 ? 0 : (uint64_t)e->mtime_s);
	b[AT_TYPE] = type;
	memcpy(b + AT_MAGIC, "ustar\00000", 8);
	octal(b + AT_SUM, 7, sum_of(b)); /* six digits, a NUL */
	b[AT_SUM + 7] = ' ';
}

/* "length key=value\n", where the length counts itself. */
static size_t put_record(unsigned char *to, const char *key, const char *value)
{
	size_t rest = strlen(key) + strlen(value) + 3, n = rest + 1;
	for (size_t digits = 1, power = 10; n >= power; power *= 10)
		n = rest + ++digits;
	int put = snprintf((char *)to, n + 1, "%zu %s=%s\n", n, key, value);
	assert(put == (int)n);
	return n;
}

size_t tar_head(const struct tar_entry *e, unsigned char to[TAR_HEAD_MAX])
{
	static const unsigned char types[] = {
		[TAR_FILE] = '0', [TAR_DIR] = '5', [TAR_LINK] = '2', [TAR_HARD_LINK] = '1'
	};
	unsigned char *body = to + TAR_BLOCK;
	char size[24];
	size_t n = 0;
	bool large = e->size >> SIZE_OCTAL_BITS != 0;
	(void)snprintf(size, sizeof size, "%llu", (unsigned long long)e->size);
	if (strlen(e->path) > NAME_BYTES)
		n += put_record(body + n, "path", e->path);
	if (strlen(e->target) > NAME_BYTES)
		n += put_record(body + n, "linkpath", e->target);
	if (large)
		n += put_record(body + n, "size", size);
	size_t before = 0;
	if (n > 0) {
		memset(body + n, 0, tar_pad(n));
		put_head(to, "pax", 'x', n, &(struct tar_entry){ .mode = 0644 });
		before = TAR_BLOCK + n + tar_pad(n);
	}
	put_head(to + before, e->path, types[e->kind], large ? 0 : e->size, e);
	return before + TAR_BLOCK;
}
