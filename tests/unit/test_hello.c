/* EGR-7: ClientHellos, however they come. The rows are in tests/cases/egress/client-hellos.csv. */
#include "../t.h"

#include <string.h>

#include "../chance.h"
#include "../csv.h"
#include "base/hash.h"
#include "base/mem.h"
#include "egress/hello.h"

static const struct egress_site none;

struct row {
	const char *id;
	uint8_t *p;
	size_t n;
	struct host target;
};

static bool next_row(struct csv *c, struct row *r)
{
	if (!csv_next(c))
		return false;
	const char *hex = csv_get(c, "hex");
	struct str name, port;
	bool has_port;
	r->id = csv_get(c, "id");
	r->p = xcalloc(1, strlen(hex) / 2 + 1);
	ssize_t n = hex_decode(hex, r->p, strlen(hex) / 2);
	assert_true(n > 0);
	r->n = (size_t)n;
	assert_true(host_split(str_of(csv_get(c, "connect_target")), &name, &port, &has_port));
	assert_true(host_canon(name, HOST_IN_AUTHORITY, &r->target));
	return true;
}

static struct row find_row(const char *id)
{
	struct csv c = csv_open("tests/cases/egress/client-hellos.csv");
	struct row r = { 0 };
	while (next_row(&c, &r) && strcmp(r.id, id) != 0)
		free(r.p);
	r.id = NULL;
	csv_close(&c);
	return r;
}

static enum egress_reason judge(const struct host *target, const struct hello *h, enum hello_step step)
{
	return step == HELLO_MORE ? hello_cut(h)
	    : step == HELLO_BAD   ? h->reason
				  : hello_judge(&none, target, h);
}

static enum egress_reason whole(const struct host *target, const uint8_t *p, size_t n)
{
	struct hello h = { 0 };
	return judge(target, &h, hello_read(&h, p, n));
}

static void a_hello_is_the_same_however_it_is_cut(void **s)
{
	(void)s;
	struct csv c = csv_open("tests/cases/egress/client-hellos.csv");
	for (struct row r; next_row(&c, &r); free(r.p)) {
		enum egress_reason want = whole(&r.target, r.p, r.n);
		size_t by = r.n > 4000 ? 997 : 1;
		for (size_t k = 0; k <= r.n; k += by) {
			struct hello h = { 0 };
			enum hello_step step = hello_read(&h, r.p, k);
			if (step == HELLO_MORE)
				step = hello_read(&h, r.p, r.n);
			if (judge(&r.target, &h, step) != want)
				fail_msg("%s cut at %zu", r.id, k);
		}
		struct hello h = { 0 };
		enum hello_step step = HELLO_MORE;
		for (size_t k = 1; k <= r.n && step == HELLO_MORE; k++)
			step = hello_read(&h, r.p, k);
		if (judge(&r.target, &h, step) != want)
			fail_msg("%s byte by byte", r.id);
	}
	csv_close(&c);
}

/* The handshake message of a one-record hello in records of `size` bytes. */
static size_t records(const struct row *r, size_t size, uint8_t *out)
{
	size_t n = 0;
	for (size_t at = 5; at < r->n; at += size) {
		size_t len = r->n - at < size ? r->n - at : size;
		memcpy(out + n, (const uint8_t[]){ 22, 3, 1, (uint8_t)(len >> 8), (uint8_t)len }, 5);
		memcpy(out + n + 5, r->p + at, len);
		n += len + 5;
	}
	return n;
}

static void fragments_of_any_size_hide_nothing(void **s)
{
	(void)s;
	static const struct {
		const char *id;
		enum egress_reason want;
	} all[] = { { "S01", REASON_OK }, { "S04", REASON_SNI_MISMATCH }, { "S06", REASON_SNI_MISSING },
		{ "S15", REASON_OK }, { "S21", REASON_BAD_SNI }, { "S43", REASON_BAD_HELLO } };
	for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
		struct row r = find_row(all[i].id);
		auto_free uint8_t *out = xcalloc(6, r.n + 1);
		for (size_t size = 1; size < r.n; size++)
			assert_int_equal(whole(&r.target, out, records(&r, size, out)), all[i].want);
		free(r.p);
	}
}

/* A hello with the given extensions block (its length included), or without one. */
static size_t build(uint8_t *out, const uint8_t *exts, size_t n_exts)
{
	static const uint8_t body[] = { 3, 3, [2 ... 33] = 7, 0, 0, 2, 0x13, 1, 1, 0 };
	size_t msg = sizeof body + n_exts, record = msg + 4;
	memcpy(out,
	    (const uint8_t[]){
		22, 3, 1, (uint8_t)(record >> 8), (uint8_t)record, 1, 0, (uint8_t)(msg >> 8), (uint8_t)msg },
	    9);
	memcpy(out + 9, body, sizeof body);
	if (n_exts > 0)
		memcpy(out + 9 + sizeof body, exts, n_exts);
	return 9 + msg;
}

static void a_name_is_one_name_in_one_list(void **s)
{
	(void)s;
#define SNI_A 0, 0, 0, 6, 0, 4, 0, 0, 1, 'a'
	static const struct {
		size_t n;
		uint8_t p[40];
		enum egress_reason want;
	} all[] = {
		{ 0, { 0 }, REASON_SNI_MISSING },
		{ 2, { 0, 0 }, REASON_SNI_MISSING },
		{ 12, { 0, 10, SNI_A }, REASON_OK },
		{ 12, { 0, 10, 0, 0, 0, 6, 0, 4, 1, 0, 1, 'a' }, REASON_BAD_SNI }, /* of another type */
		{ 16, { 0, 14, 0, 0, 0, 10, 0, 8, 0, 0, 1, 'a', 0, 0, 1, 'a' },
		    REASON_BAD_SNI },                        /* two of one type */
		{ 6, { 0, 4, 0, 0, 0, 0 }, REASON_BAD_SNI }, /* nothing at all */
		{ 7, { 0, 5, 0, 0, 0, 1, 0 }, REASON_BAD_SNI },
		{ 13, { 0, 11, 0, 0, 0, 7, 0, 4, 0, 0, 1, 'a', 'b' },
		    REASON_BAD_SNI }, /* list shorter than its place */
		{ 12, { 0, 10, 0, 0, 0, 6, 0, 4, 0, 0, 1, '.' }, REASON_BAD_SNI },
		{ 12, { 0, 10, 0, 0, 0, 6, 0, 4, 0, 0, 1, 0 }, REASON_BAD_SNI },
		{ 12, { 0, 10, 0, 0, 0, 6, 0, 4, 0, 0, 1, 'b' }, REASON_SNI_MISMATCH },
		{ 12, { 0, 10, 0, 0, 0, 6, 0, 4, 0, 0, 1, 'A' }, REASON_OK },
		{ 22, { 0, 20, SNI_A, SNI_A }, REASON_BAD_SNI },
		{ 16, { 0, 14, SNI_A, 0xfe, 0x0d, 0, 0 }, REASON_ECH_REFUSED },
		{ 16, { 0, 14, SNI_A, 0xfe, 0x0d, 0, 1 }, REASON_BAD_HELLO }, /* past the end */
		{ 15, { 0, 13, SNI_A, 0xfe, 0x0d, 0 }, REASON_BAD_HELLO },
		{ 12, { 0, 11, SNI_A }, REASON_BAD_HELLO },
		{ 12, { 0, 9, SNI_A }, REASON_BAD_HELLO },
		{ 1, { 0 }, REASON_BAD_HELLO },
	};
	struct host a;
	assert_true(host_canon(str_of("a"), HOST_BARE, &a));
	for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
		uint8_t out[128];
		enum egress_reason got = whole(&a, out, build(out, all[i].p, all[i].n));
		if (got != all[i].want)
			fail_msg("%zu: %s and not %s", i, reason_name(got), reason_name(all[i].want));
	}
}

static void settings_open_what_they_name_and_no_more(void **s)
{
	(void)s;
	static const uint8_t ech[] = { 0, 14, SNI_A, 0xfe, 0x0d, 0, 0 };
	struct host a, b;
	uint8_t out[128];
	assert_true(host_canon(str_of("a"), HOST_BARE, &a) && host_canon(str_of("b"), HOST_BARE, &b));
	const struct egress_site absent = { .sni_absent = true }, hidden = { .ech = true };
	struct hello h = { 0 };
	assert_int_equal(hello_read(&h, out, build(out, NULL, 0)), HELLO_DONE);
	assert_int_equal(hello_judge(&absent, &a, &h), REASON_OK);
	assert_int_equal(hello_judge(&hidden, &a, &h), REASON_SNI_MISSING);
	h = (struct hello){ 0 };
	assert_int_equal(hello_read(&h, out, build(out, ech, sizeof ech)), HELLO_DONE);
	assert_int_equal(hello_judge(&hidden, &a, &h), REASON_OK);
	assert_int_equal(hello_judge(&absent, &a, &h), REASON_ECH_REFUSED);
	assert_int_equal(hello_judge(&hidden, &b, &h), REASON_SNI_MISMATCH);
}

static void what_is_no_tls_is_known_by_its_first_byte(void **s)
{
	(void)s;
	struct host a;
	assert_true(host_canon(str_of("a"), HOST_BARE, &a));
	for (int b = 0; b < 256; b++) {
		struct hello h = { 0 };
		enum hello_step step = hello_read(&h, &(uint8_t){ (uint8_t)b }, 1);
		enum egress_reason want = b >= 20 && b <= 24 ? REASON_NOT_CLIENT_HELLO : REASON_NOT_TLS;
		assert_int_equal(step, b == 22 ? HELLO_MORE : HELLO_BAD);
		if (b != 22)
			assert_int_equal(h.reason, want);
	}
	static const uint8_t sslv2[] = { 0x80, 0x2e, 1, 3, 1 }, late[] = { 22, 2, 0, 0, 5 },
			     ssh[] = "SSH-2.0-x\r\n";
	assert_int_equal(whole(&a, sslv2, sizeof sslv2), REASON_NOT_TLS);
	assert_int_equal(whole(&a, late, sizeof late), REASON_NOT_TLS);
	assert_int_equal(whole(&a, ssh, sizeof ssh - 1), REASON_NOT_TLS);
}

static void nothing_is_read_past_its_bounds(void **s)
{
	(void)s;
	struct host a;
	assert_true(host_canon(str_of("a"), HOST_BARE, &a));
	static uint8_t raw[HELLO_RAW_MAX + 6];
	/* an empty record, one above 2^14, a message above the cap, and one that comes in more bytes than are kept */
	static const uint8_t empty[] = { 22, 3, 1, 0, 0 }, long_record[] = { 22, 3, 1, 0x40, 1 },
			     huge[] = { 22, 3, 1, 0x40, 0, 1, 0, 0xf0, 0 };
	assert_int_equal(whole(&a, empty, sizeof empty), REASON_BAD_RECORD);
	assert_int_equal(whole(&a, long_record, sizeof long_record), REASON_BAD_RECORD);
	assert_int_equal(whole(&a, huge, sizeof huge), REASON_HELLO_TOO_LARGE);
	for (size_t at = 0; at + 6 <= sizeof raw; at += 6)
		memcpy(raw + at, (const uint8_t[]){ 22, 3, 1, 0, 1, at == 0 ? 1 : at == 12 ? 0xe0 : 0 }, 6);
	assert_int_equal(whole(&a, raw, sizeof raw), REASON_HELLO_TOO_LARGE);
}

/* Mutated rows: never a tunnel to another name, in bounds (the sanitizers watch), and the same however they are cut. */
static void no_mutation_opens_a_tunnel_to_another_name(void **s)
{
	(void)s;
	uint64_t seed = 1;
	struct host other;
	assert_true(host_canon(str_of("never.example"), HOST_BARE, &other));
	struct csv c = csv_open("tests/cases/egress/client-hellos.csv");
	for (struct row r; next_row(&c, &r); free(r.p)) {
		for (int i = 0; i < 2000 && r.n < 2000; i++) {
			unsigned char rnd[8];
			chance_bytes(&seed, rnd, sizeof rnd);
			for (int k = 0; k < 1 + i % 3; k++)
				r.p[(size_t)(rnd[k] | rnd[k + 3] << 8) % r.n] = (uint8_t)(rnd[6] % 4 == 0
					? rnd[7]
					: rnd[7] % 4);
			enum egress_reason got = whole(&other, r.p, r.n);
			if (reason_verdict(got) == EGRESS_ALLOW)
				fail_msg("%s", r.id);
			struct hello h = { 0 };
			enum hello_step step = hello_read(&h, r.p, rnd[0] % r.n);
			if (step == HELLO_MORE)
				step = hello_read(&h, r.p, r.n);
			assert_int_equal(judge(&other, &h, step), got);
		}
	}
	csv_close(&c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_hello_is_the_same_however_it_is_cut),
		cmocka_unit_test(fragments_of_any_size_hide_nothing),
		cmocka_unit_test(a_name_is_one_name_in_one_list),
		cmocka_unit_test(settings_open_what_they_name_and_no_more),
		cmocka_unit_test(what_is_no_tls_is_known_by_its_first_byte),
		cmocka_unit_test(nothing_is_read_past_its_bounds),
		cmocka_unit_test(no_mutation_opens_a_tunnel_to_another_name),
	};
	return cmocka_run_group_tests_name("hello", tests, NULL, NULL);
}
