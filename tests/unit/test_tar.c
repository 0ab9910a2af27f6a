/* The tar format, read in any pieces and written. SBX-47. */
#include "../t.h"

#include <string.h>

#include "base/buf.h"
#include "box/tar.h"

enum { ARCHIVE_MAX = 1 << 20 };

/* A head as somebody else may write it: every field ours to choose. */
struct made {
	const char *name, *target, *prefix;
	char type;
	unsigned mode;
	const char *size; /* octal text; NULL: of body */
	const char *body;
	bool wrong_sum, no_magic;
};

static void octal(unsigned char *to, int digits, size_t v)
{
	for (int i = digits; i-- > 0; v /= 8)
		to[i] = (unsigned char)('0' + v % 8);
}

static void sum(unsigned char *b)
{
	unsigned s = 0;
	memset(b + 148, ' ', 8);
	for (int i = 0; i < TAR_BLOCK; i++)
		s += b[i];
	octal(b + 148, 6, s);
	b[154] = 0;
}

static void add(struct buf *to, const struct made *m)
{
	unsigned char b[TAR_BLOCK + 1] = { 0 };
	static const char zeros[TAR_BLOCK];
	size_t n = m->body == NULL ? 0 : strlen(m->body);
	memcpy(b, m->name, strnlen(m->name, 100));
	octal(b + 100, 7, m->mode == 0 ? 0644 : m->mode);
	if (m->size != NULL)
		memcpy(b + 124, m->size, strnlen(m->size, 12));
	else
		octal(b + 124, 11, n);
	octal(b + 136, 11, 1000000000);
	b[156] = (unsigned char)m->type;
	memcpy(b + 157, m->target == NULL ? "" : m->target, m->target == NULL ? 0 : strnlen(m->target, 100));
	if (!m->no_magic)
		memcpy(b + 257, "ustar\00000", 8);
	if (m->prefix != NULL)
		memcpy(b + 345, m->prefix, strnlen(m->prefix, 155));
	sum(b);
	if (m->wrong_sum)
		b[0] ^= 1;
	assert_int_equal(buf_add(to, b, TAR_BLOCK), 0);
	assert_int_equal(buf_add(to, m->body, n), 0);
	assert_int_equal(buf_add(to, zeros, tar_pad(n)), 0);
}

static void finish(struct buf *to)
{
	static const char zeros[2 * TAR_BLOCK];
	assert_int_equal(buf_add(to, zeros, sizeof zeros), 0);
}

/* Everything that an archive says, as text; the same whatever pieces it comes in. */
static void say(const struct buf *archive, size_t piece, struct buf *out)
{
	auto_free struct tar_in *t = xcalloc(1, sizeof *t);
	for (size_t at = 0; at < archive->n; at += piece) {
		size_t n = archive->n - at < piece ? archive->n - at : piece;
		struct str in = { archive->p + at, n };
		for (enum tar_got got; (got = tar_next(t, &in)) != TAR_MORE;) {
			if (got == TAR_ENTRY)
				(void)buf_fmt(out, "%c%o %s%s%s %llu @%lld:", "fdlh"[t->entry.kind],
				    t -> entry.mode, t->entry.path, t->entry.target[0] == 0 ? "" : ">",
				    t->entry.target, (unsigned long long)t->entry.size,
				    (long long)t->entry.mtime_s);
			else if (got == TAR_DATA)
				(void)buf_add(out, t->data.p, t->data.n);
			else if (got == TAR_DONE)
				(void)buf_str(out, ";");
			else if (got == TAR_END)
				(void)buf_str(out, "END");
			else {
				(void)buf_fmt(out, "BAD %s: %s", t->entry.path, t->why);
				return;
			}
		}
		assert_int_equal(in.n, 0);
	}
	(void)buf_str(out, tar_is_whole(t) ? "." : "?");
}

static void says(const struct buf *archive, const char *what)
{
	static const size_t pieces[] = { ARCHIVE_MAX, 1, 7, 511, 512, 513, 10240 };
	for (size_t i = 0; i < sizeof pieces / sizeof pieces[0]; i++) {
		auto_buf struct buf out = BUF(ARCHIVE_MAX);
		say(archive, pieces[i], &out);
		assert_string_equal(buf_c(&out), what);
	}
}

static void an_archive_is_read_in_any_pieces(void **s)
{
	(void)s;
	auto_buf struct buf a = BUF(ARCHIVE_MAX);
	add(&a, &(struct made){ .name = "./", .type = '5', .mode = 0755 });
	add(&a, &(struct made){ .name = "./a//b/", .type = '5', .mode = 07777 });
	add(&a, &(struct made){ .name = "a/f", .type = '0', .body = "hello" });
	add(&a, &(struct made){ .name = "old", .body = "x", .no_magic = true });
	add(&a, &(struct made){ .name = "olddir/", .no_magic = true });
	add(&a, &(struct made){ .name = "e", .type = '7' });
	add(&a, &(struct made){ .name = "l", .type = '2', .target = "a/f", .size = "00000000005" });
	add(&a, &(struct made){ .name = "h", .type = '1', .target = "./a/f" });
	add(&a, &(struct made){ .name = "end", .prefix = "be/fore", .type = '0' });
	finish(&a);
	assert_int_equal(buf_str(&a, "anything"), 0);
	says(&a,
	    "d755  0 @1000000000:;d777 a/b 0 @1000000000:;f644 a/f 5 @1000000000:hello;f644 old 1 "
	    "@1000000000:x;"
	    "d644 olddir 0 @1000000000:;f644 e 0 @1000000000:;l644 l>a/f 0 @1000000000:;h644 h>a/f 0 "
	    "@1000000000:;"
	    "f644 be/fore/end 0 @1000000000:;END.");
}

static void extended_heads_count(void **s)
{
	(void)s;
	auto_buf struct buf a = BUF(ARCHIVE_MAX);
	add(&a, &(struct made){ .name = "x", .type = 'g', .body = "20 comment=whatever\n" });
	add(&a,
	    &(struct made){ .name = "x",
		.type = 'x',
		.body = "18 path=lo/ng/one\n13 mtime=5.5\n9 size=3\n14 linkpath=q\n" });
	add(&a, &(struct made){ .name = "short", .type = '0', .size = "0", .body = "" });
	assert_int_equal(buf_add(&a, "abc", 3), 0);
	static const char zeros[TAR_BLOCK];
	assert_int_equal(buf_add(&a, zeros, TAR_BLOCK - 3), 0);
	add(&a, &(struct made){ .name = "L", .type = 'L', .body = "./gnu/long" });
	add(&a, &(struct made){ .name = "L", .type = 'K', .body = "gnu/target" });
	add(&a, &(struct made){ .name = "short", .type = '2' });
	add(&a, &(struct made){ .name = "plain", .type = '0' });
	finish(&a);
	says(&a,
	    "f644 lo/ng/one>q 3 @5:abc;l644 gnu/long>gnu/target 0 @1000000000:;f644 plain 0 "
	    "@1000000000:;END.");
}

static void what_cannot_be_is_refused_by_name(void **s)
{
	(void)s;
	static const struct {
		struct made m;
		const char *what;
	} rows[] = {
		{ { .name = "../x", .type = '0' }, "BAD ../x: its path holds `..`" },
		{ { .name = "a/../x", .type = '0' }, "BAD a/../x: its path holds `..`" },
		{ { .name = "/etc/x", .type = '0' }, "BAD /etc/x: its path is absolute" },
		{ { .name = "", .type = '0' }, "BAD : it has no name" },
		{ { .name = "./", .type = '2', .target = "a" }, "BAD : it has no name" },
		{ { .name = "h", .type = '1', .target = "../x" }, "BAD h: its link target holds `..`" },
		{ { .name = "h", .type = '1', .target = "/x" }, "BAD h: its link target is absolute" },
		{ { .name = "../\x1b[1m\x7f", .type = '0' }, "BAD ../\\x1b[1m\\x7f: its path holds `..`" },
		{ { .name = "d", .type = '3' }, "BAD d: it is a device" },
		{ { .name = "d", .type = '4' }, "BAD d: it is a device" },
		{ { .name = "p", .type = '6' }, "BAD p: it is a pipe" },
		{ { .name = "s", .type = 'S' }, "BAD s: it is a sparse file: pack it without --sparse" },
		{ { .name = "?", .type = 'V' }, "BAD ?: it is of a kind that is not known here" },
		{ { .name = "n", .type = '0', .size = "12x" }, "BAD : its head holds no numbers" },
		{ { .name = "n", .type = '0', .size = "\x80\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff" },
		    "BAD : its head holds no numbers" },
		{ { .name = "n", .type = '0', .size = "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff" },
		    "BAD : its head holds no numbers" },
		{ { .name = "n", .type = '0', .wrong_sum = true },
		    "BAD : what follows is no tar: a checksum is wrong" },
		{ { .name = "n", .type = 'x', .size = "00000100001" },
		    "BAD : the next one's extended head is too long" },
		{ { .name = "n", .type = 'x', .body = "9 path=../x\n" },
		    "BAD : its extended head makes no sense" },
		{ { .name = "n", .type = 'x', .body = "13 path=../x\n" }, "BAD ../x: its path holds `..`" },
		{ { .name = "n", .type = 'x', .body = "12 size=-12\n" }, "BAD : its size is no number" },
		{ { .name = "n", .type = 'x', .body = "99 path=a\n" },
		    "BAD : its extended head makes no sense" },
		{ { .name = "n", .type = 'x', .body = "22 GNU.sparse.major=1\n" },
		    "BAD : it is a sparse file: pack it without --sparse" },
	};
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		auto_buf struct buf a = BUF(ARCHIVE_MAX);
		add(&a, &rows[i].m);
		finish(&a);
		print_message("row %zu\n", i);
		says(&a, rows[i].what);
	}
	auto_buf struct buf gz = BUF(ARCHIVE_MAX);
	assert_int_equal(buf_str(&gz, "\x1f\x8b\x08"), 0);
	finish(&gz);
	says(&gz, "BAD : the archive is compressed with gzip: send the tar itself");
}

/* Cut anywhere, an archive is not whole. */
static void a_cut_archive_is_not_whole(void **s)
{
	(void)s;
	auto_buf struct buf a = BUF(ARCHIVE_MAX);
	add(&a, &(struct made){ .name = "f", .type = '0', .body = "hello" });
	finish(&a);
	for (size_t n = 0; n < a.n; n++) {
		auto_buf struct buf out = BUF(ARCHIVE_MAX);
		struct buf cut = a;
		cut.n = n;
		say(&cut, ARCHIVE_MAX, &out);
		assert_int_equal(buf_c(&out)[out.n - 1], n < 3 * TAR_BLOCK ? '?' : '.');
	}
}

static void what_is_written_is_read(void **s)
{
	(void)s;
	static const size_t lengths[] = { 1, 99, 100, 101, 155, 256, 3000, LIMIT_PATH_BYTES - 1 };
	static const uint64_t sizes[] = { 0, 511, (UINT64_C(1) << 33) - 1, UINT64_C(1) << 33,
		UINT64_C(1) << 50 };
	auto_free unsigned char *head = xcalloc(1, TAR_HEAD_MAX);
	auto_free struct tar_in *t = xcalloc(1, sizeof *t);
	auto_free struct tar_entry *e = xcalloc(1, sizeof *e);
	for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++)
		for (size_t k = 0; k < sizeof sizes / sizeof sizes[0]; k++)
			for (int kind = TAR_FILE; kind <= TAR_HARD_LINK; kind++) {
				*e = (struct tar_entry){
					.kind = (enum tar_kind)kind, .mode = 0751, .mtime_s = 77
				};
				e->size = kind == TAR_FILE ? sizes[k] : 0;
				memset(e->path, 'p', lengths[i]);
				if (kind >= TAR_LINK)
					memset(e->target, 't', lengths[i]);
				size_t n = tar_head(e, head);
				assert_int_equal(n % TAR_BLOCK, 0);
				assert_true(n <= TAR_HEAD_MAX);
				struct str in = { (const char *)head, n };
				memset(t, 0, sizeof *t);
				assert_int_equal(tar_next(t, &in), TAR_ENTRY);
				assert_int_equal(in.n, 0);
				assert_int_equal(t->entry.kind, kind);
				assert_string_equal(t->entry.path, e->path);
				assert_string_equal(t->entry.target, e->target);
				assert_int_equal(t->entry.size, e->size);
				assert_int_equal(t->entry.mode, 0751);
				assert_int_equal(t->entry.mtime_s, 77);
			}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_archive_is_read_in_any_pieces),
		cmocka_unit_test(extended_heads_count),
		cmocka_unit_test(what_cannot_be_is_refused_by_name),
		cmocka_unit_test(a_cut_archive_is_not_whole),
		cmocka_unit_test(what_is_written_is_read),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
