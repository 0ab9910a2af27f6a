/* Tokens against key sets made by OpenSSL (ID-1): what is accepted, and every known way to have something else accepted. */
#include "../t.h"

#include <openssl/x509.h>

#include <stdio.h>
#include <string.h>

#include "../issuer.h"
#include "auth/jwt.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/js.h"

#define ISS "https://issuer.example"
#define AUD "gatehouse"

static struct issuer_key rsa, ec, other_rsa, other_ec;

/* A set of these keys (NULL ends). */
static struct jwks *set_of(const json_t *a, const json_t *b)
{
	struct err e = { 0 };
	auto_mem struct mem *m = mem_new();
	auto_json json_t *doc = js_pack("{s:[]}", "keys");
	js_push(js_get(doc, "keys"), json_deep_copy(a));
	if (b != NULL)
		js_push(js_get(doc, "keys"), json_deep_copy(b));
	const char *text = js_dump(m, doc);
	struct jwks *set = jwks_parse(text, strlen(text), &e);
	assert_non_null(set);
	return set;
}
static void auto_setp(struct jwks **s)
{
	jwks_free(*s);
}
#define auto_set __attribute__((cleanup(auto_setp)))

/* 1 when everything about the token is right. */
static bool good(struct mem *m, const char *token, const struct jwks *set)
{
	struct jwt t;
	return jwt_parse(m, token, &t) && jwt_fits(&t, ISS, AUD, clock_wall_ms() / 1000) &&
	    jwt_verify(&t, set) == JWKS_GOOD;
}

static json_t *claims(void)
{
	return issuer_claims(ISS, AUD, "acme", "ada");
}

static void tokens_of_both_algorithms_are_accepted(void **s)
{
	(void)s;
	auto_mem struct mem *m = mem_new();
	auto_set struct jwks *set = set_of(rsa.jwk, ec.jwk);
	auto_json json_t *c = claims(), *h1 = issuer_head(&rsa), *h2 = issuer_head(&ec);
	assert_int_equal(jwks_count(set), 2);
	assert_true(good(m, issuer_token(m, &rsa, h1, c), set));
	assert_true(good(m, issuer_token(m, &ec, h2, c), set));
	/* Many, as r and s are sometimes shorter numbers. */
	for (int i = 0; i < 300; i++)
		assert_true(good(m, issuer_token(m, &ec, h2, c), set));
}

static void another_keys_signature_under_a_known_name_is_refused(void **s)
{
	(void)s;
	auto_mem struct mem *m = mem_new();
	auto_set struct jwks *set = set_of(rsa.jwk, ec.jwk);
	auto_json json_t *c = claims(), *h1 = issuer_head(&rsa), *h2 = issuer_head(&ec);
	assert_false(good(m, issuer_token(m, &other_rsa, h1, c), set));
	assert_false(good(m, issuer_token(m, &other_ec, h2, c), set));
}

static void any_changed_character_is_refused(void **s)
{
	(void)s;
	auto_set struct jwks *set = set_of(rsa.jwk, ec.jwk);
	auto_json json_t *c = claims(), *h = issuer_head(&ec);
	auto_mem struct mem *m = mem_new();
	char *token = issuer_token(m, &ec, h, c);
	for (size_t i = 0; token[i] != 0; i++) {
		auto_mem struct mem *one = mem_new();
		char was = token[i];
		token[i] = was == 'A' ? 'B' : 'A';
		assert_false(good(one, token, set));
		token[i] = was;
	}
	for (size_t n = 0; n < strlen(token); n++) {
		auto_mem struct mem *one = mem_new();
		assert_false(good(one, mem_strn(one, token, n), set));
	}
	assert_true(good(m, token, set));
}

/* alg:none, in every spelling, with and without a signature. */
static void a_token_without_a_signature_is_refused(void **s)
{
	(void)s;
	static const char *const algs[] = { "none", "None", "NONE", "nOnE", "", "rs256", "RS256 ", "RS384",
		"RS512", "PS256", "ES384", "ES512", "ES256K", "EdDSA", "HS256", "HS384", "HS512", "dir",
		"RSA-OAEP" };
	auto_mem struct mem *m = mem_new();
	auto_set struct jwks *set = set_of(rsa.jwk, ec.jwk);
	auto_json json_t *c = claims();
	for (size_t i = 0; i < sizeof algs / sizeof *algs; i++) {
		auto_json json_t *h = issuer_head(&rsa), *h2 = issuer_head(&ec);
		js_set_str(h, "alg", algs[i]);
		js_set_str(h2, "alg", algs[i]);
		assert_false(good(m, mem_fmt(m, "%s.", issuer_unsigned(m, h, c)), set));
		assert_false(good(m, issuer_unsigned(m, h, c), set));
		assert_false(good(m, issuer_token(m, &rsa, h, c), set));
		assert_false(good(m, issuer_token(m, &ec, h2, c), set));
	}
	auto_json json_t *none = issuer_head(&rsa), *number = issuer_head(&rsa);
	(void)json_object_del(none, "alg");
	js_set(number, "alg", json_integer(256));
	assert_false(good(m, issuer_token(m, &rsa, none, c), set));
	assert_false(good(m, issuer_token(m, &rsa, number, c), set));
}

/* The public key, in every form somebody may hold it in, as the secret of an HMAC. */
static void the_public_key_is_no_hmac_secret(void **s)
{
	(void)s;
	auto_mem struct mem *m = mem_new();
	auto_set struct jwks *set = set_of(rsa.jwk, ec.jwk);
	auto_json json_t *c = claims();
	unsigned char *der = NULL;
	int der_n = i2d_PUBKEY(rsa.key, &der);
	const char *const secrets[] = { js_str(rsa.jwk, "n"), js_dump(m, rsa.jwk) };
	static const char *const algs[] = { "HS256", "RS256", "ES256" };
	for (size_t a = 0; a < 3; a++)
		for (size_t i = 0; i < 3; i++) {
			auto_json json_t *h = issuer_head(&rsa);
			js_set_str(h, "alg", algs[a]);
			const char *text = issuer_unsigned(m, h, c);
			unsigned char mac[EVP_MAX_MD_SIZE];
			size_t n = 0;
			const void *key = i < 2 ? (const void *)secrets[i] : der;
			assert_non_null(EVP_Q_mac(NULL, "HMAC", NULL, "SHA256", NULL, key,
			    i < 2 ? strlen(secrets[i]) : (size_t)der_n, (const unsigned char *)text,
			    strlen(text), mac, sizeof mac, &n));
			assert_false(good(m, mem_fmt(m, "%s.%s", text, issuer_b64url(m, mac, n)), set));
		}
	OPENSSL_free(der);
}

static void a_key_is_used_with_its_own_algorithm_only(void **s)
{
	(void)s;
	auto_mem struct mem *m = mem_new();
	auto_set struct jwks *set = set_of(rsa.jwk, ec.jwk);
	auto_json json_t *c = claims(), *h1 = issuer_head(&rsa), *h2 = issuer_head(&ec);
	js_set_str(h1, "alg", "ES256");
	js_set_str(h2, "alg", "RS256");
	assert_false(good(m, issuer_token(m, &rsa, h1, c), set));
	assert_false(good(m, issuer_token(m, &ec, h2, c), set));
	/* An ECDSA signature in OpenSSL's own form, announced as RSA: whoever checks it by the key alone would take it. */
	unsigned char der[128];
	size_t n = sizeof der;
	const char *text = issuer_unsigned(m, h2, c);
	EVP_MD_CTX *md = EVP_MD_CTX_new();
	assert_int_equal(EVP_DigestSignInit(md, NULL, EVP_sha256(), NULL, ec.key), 1);
	assert_int_equal(EVP_DigestSign(md, der, &n, (const unsigned char *)text, strlen(text)), 1);
	EVP_MD_CTX_free(md);
	assert_false(good(m, mem_fmt(m, "%s.%s", text, issuer_b64url(m, der, n)), set));
	js_set_str(h1, "kid", "ec"); /* and neither with the other's name */
	js_set_str(h2, "kid", "rsa");
	assert_false(good(m, issuer_token(m, &rsa, h1, c), set));
	assert_false(good(m, issuer_token(m, &ec, h2, c), set));
}

static void an_es256_signature_is_sixty_four_bytes_and_no_der(void **s)
{
	(void)s;
	auto_mem struct mem *m = mem_new();
	auto_set struct jwks *set = set_of(ec.jwk, NULL);
	auto_json json_t *c = claims(), *h = issuer_head(&ec);
	const char *text = issuer_unsigned(m, h, c);
	EVP_MD_CTX *md = EVP_MD_CTX_new();
	unsigned char der[128], zero[64] = { 0 }, longer[66];
	size_t n = sizeof der;
	assert_int_equal(EVP_DigestSignInit(md, NULL, EVP_sha256(), NULL, ec.key), 1);
	assert_int_equal(EVP_DigestSign(md, der, &n, (const unsigned char *)text, strlen(text)), 1);
	EVP_MD_CTX_free(md);
	assert_false(good(m, mem_fmt(m, "%s.%s", text, issuer_b64url(m, der, n)), set));
	assert_false(good(m, mem_fmt(m, "%s.%s", text, issuer_b64url(m, zero, 64)), set)); /* r = s = 0 */
	const unsigned char *sig = issuer_sign(m, &ec, text, &n);
	assert_int_equal(n, 64);
	assert_true(good(m, mem_fmt(m, "%s.%s", text, issuer_b64url(m, sig, 64)), set));
	memcpy(longer + 1, sig, 64);
	longer[0] = longer[65] = 0;
	assert_false(good(m, mem_fmt(m, "%s.%s", text, issuer_b64url(m, longer, 65)), set));
	assert_false(good(m, mem_fmt(m, "%s.%s", text, issuer_b64url(m, longer + 1, 65)), set));
	assert_false(good(m, mem_fmt(m, "%s.%s", text, issuer_b64url(m, sig, 63)), set));
}

static void the_kid_names_one_key_or_the_token_is_refused(void **s)
{
	(void)s;
	auto_mem struct mem *m = mem_new();
	auto_json json_t *c = claims(), *h = issuer_head(&rsa);
	auto_set struct jwks *one = set_of(rsa.jwk, ec.jwk);
	static const char *const names[] = { "", "RSA", "rsa ", "unknown", "../rsa", NULL };
	for (const char *const *n = names; *n != NULL; n++) {
		js_set_str(h, "kid", *n);
		assert_false(good(m, issuer_token(m, &rsa, h, c), one));
	}
	/* Without one it is no token at all: nobody is asked for newer keys. */
	struct jwt t;
	js_set_str(h, "kid", "");
	assert_false(jwt_parse(m, issuer_token(m, &rsa, h, c), &t));
	js_set(h, "kid", json_integer(1));
	assert_false(jwt_parse(m, issuer_token(m, &rsa, h, c), &t));
	(void)json_object_del(h, "kid");
	assert_false(jwt_parse(m, issuer_token(m, &rsa, h, c), &t));
	/* A name that stands twice in the set is nobody's; three times neither. */
	js_set_str(h, "kid", "rsa");
	auto_json json_t *twin = json_deep_copy(ec.jwk);
	js_set_str(twin, "kid", "rsa");
	auto_set struct jwks *two = set_of(rsa.jwk, twin);
	assert_int_equal(jwks_count(two), 0);
	assert_false(good(m, issuer_token(m, &rsa, h, c), two));
	auto_set struct jwks *same = set_of(rsa.jwk, rsa.jwk);
	assert_false(good(m, issuer_token(m, &rsa, h, c), same));
	/* A name that stands twice in the token's own head. */
	const char *head = "{\"alg\":\"RS256\",\"kid\":\"rsa\",\"kid\":\"rsa\"}";
	const char *text = mem_fmt(
	    m, "%s.%s", issuer_b64url(m, head, strlen(head)), strchr(issuer_unsigned(m, h, c), '.') + 1);
	size_t n;
	const unsigned char *sig = issuer_sign(m, &rsa, text, &n);
	assert_false(good(m, mem_fmt(m, "%s.%s", text, issuer_b64url(m, sig, n)), one));
}

static void a_set_leaves_out_keys_that_are_not_for_this(void **s)
{
	(void)s;
	static const struct {
		const char *name, *json; /* NULL: taken out */
		bool stays;
	} rows[] = { { "use", "\"enc\"", false }, { "use", "7", false }, { "use", NULL, true },
		{ "use", "\"sig\"", true }, { "alg", "\"RS512\"", false }, { "alg", "\"RSA-OAEP\"", false },
		{ "alg", "\"HS256\"", false }, { "alg", NULL, true }, { "key_ops", "[\"encrypt\"]", false },
		{ "key_ops", "[]", false }, { "key_ops", "\"verify\"", false },
		{ "key_ops", "[\"sign\",\"verify\"]", true }, { "kid", NULL, false },
		{ "kid", "\"\"", false }, { "kty", "\"oct\"", false }, { "kty", "\"OKP\"", false },
		{ "kty", "\"EC\"", false }, { "kty", NULL, false }, { "d", "\"AQAB\"", false },
		{ "n", NULL, false }, { "n", "\"AQ\"", false }, { "n", "\"AQAB====\"", false },
		{ "e", "\"AQ\"", false }, { "e", "\"Ag\"", false }, { "e", NULL, false },
		{ "e", "\"AQAAAAAB\"", false }, { "e", "\"\"", false }, { "x5c", "[\"MII\"]", true },
		{ "x5u", "\"https://evil\"", true } };
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		auto_json json_t *k = json_deep_copy(rsa.jwk);
		(void)json_object_del(k, rows[i].name);
		if (rows[i].json != NULL)
			js_set(k, rows[i].name, json_loads(rows[i].json, JSON_DECODE_ANY, NULL));
		auto_set struct jwks *set = set_of(k, ec.jwk);
		if (jwks_count(set) != (rows[i].stays ? 2 : 1))
			fail_msg("%s: %s", rows[i].name, rows[i].json);
	}
}

static void a_modulus_that_is_none_is_left_out(void **s)
{
	(void)s;
	auto_mem struct mem *m = mem_new();
	unsigned char n[256];
	auto_json json_t *even = json_deep_copy(rsa.jwk), *third = json_deep_copy(rsa.jwk);
	assert_int_equal(b64url_decode(js_str(rsa.jwk, "n"), strlen(js_str(rsa.jwk, "n")), n), 256);
	n[255] ^= 1;
	js_set_str(even, "n", issuer_b64url(m, n, 256));
	memset(n, 0xff, 256); /* 2^2048 - 1: divisible by 3 */
	js_set_str(third, "n", issuer_b64url(m, n, 256));
	auto_set struct jwks *a = set_of(even, NULL), *b = set_of(third, NULL);
	assert_int_equal(jwks_count(a) + jwks_count(b), 0);
}

static void small_keys_other_curves_and_points_off_the_curve_are_left_out(void **s)
{
	(void)s;
	auto_mem struct mem *m = mem_new();
	struct issuer_key small, p384;
	issuer_key_make(&small, KEY_RSA_SMALL, "small");
	issuer_key_make(&p384, KEY_P384, "p384");
	auto_set struct jwks *set = set_of(small.jwk, p384.jwk);
	assert_int_equal(jwks_count(set), 0);
	/* The wrong curve under the right name, with the right algorithm. */
	js_set_str(p384.jwk, "alg", "ES256");
	js_set_str(p384.jwk, "crv", "P-256");
	auto_set struct jwks *liar = set_of(p384.jwk, NULL);
	assert_int_equal(jwks_count(liar), 0);
	static const char *const curves[] = { "P-384", "secp256k1", "p-256", "prime256v1", "" };
	for (size_t i = 0; i < 5; i++) {
		auto_json json_t *k = json_deep_copy(ec.jwk);
		js_set_str(k, "crv", curves[i]);
		auto_set struct jwks *one = set_of(k, NULL);
		assert_int_equal(jwks_count(one), 0);
	}
	unsigned char x[32];
	auto_json json_t *off = json_deep_copy(ec.jwk), *swapped = json_deep_copy(ec.jwk),
			 *zero = json_deep_copy(ec.jwk);
	assert_int_equal(b64url_decode(js_str(ec.jwk, "y"), 43, x), 32);
	x[31] ^= 1;
	js_set_str(off, "y", issuer_b64url(m, x, 32));
	js_set_str(swapped, "x", js_str(ec.jwk, "y"));
	js_set_str(swapped, "y", js_str(ec.jwk, "x"));
	memset(x, 0, 32);
	js_set_str(zero, "x", issuer_b64url(m, x, 32));
	js_set_str(zero, "y", issuer_b64url(m, x, 32));
	auto_set struct jwks *a = set_of(off, NULL), *b = set_of(swapped, NULL), *c = set_of(zero, NULL);
	assert_int_equal(jwks_count(a) + jwks_count(b) + jwks_count(c), 0);
	issuer_key_free(&small);
	issuer_key_free(&p384);
}

static void what_is_no_key_set_is_refused(void **s)
{
	(void)s;
	auto_mem struct mem *m = mem_new();
	const char *many = "1";
	for (int i = 0; i < 64; i++)
		many = mem_fmt(m, "%s,1", many);
	const char *const bad[] = { "", "{}", "[]", "null", "{\"keys\":{}}", "{\"keys\":null}",
		"{\"keys\":[1,2]", "<html>", mem_fmt(m, "{\"keys\":[%s]}", many) };
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		struct err e = { 0 };
		assert_null(jwks_parse(bad[i], strlen(bad[i]), &e));
		assert_int_equal(e.code, ERR_UPSTREAM);
	}
	struct err e = { 0 };
	const char *odd = "{\"keys\":[1,null,[],\"x\",{}]}";
	auto_set struct jwks *set = jwks_parse(odd, strlen(odd), &e);
	assert_int_equal(jwks_count(set), 0);
}

/* Where a token says its keys are is never looked at; what it says must be understood is refused. */
static void nothing_in_a_token_chooses_its_key_or_our_rules(void **s)
{
	(void)s;
	auto_mem struct mem *m = mem_new();
	auto_set struct jwks *set = set_of(rsa.jwk, ec.jwk);
	auto_json json_t *c = claims();
	static const char *const pointers[] = { "jku", "x5u" };
	for (size_t i = 0; i < 2; i++) {
		auto_json json_t *h = issuer_head(&rsa);
		js_set_str(h, pointers[i], "https://evil.example/jwks");
		assert_true(good(m, issuer_token(m, &rsa, h, c), set));
		assert_false(good(m, issuer_token(m, &other_rsa, h, c), set));
	}
	auto_json json_t *own = issuer_head(&rsa);
	js_set(own, "jwk", json_deep_copy(other_rsa.jwk));
	assert_false(good(m, issuer_token(m, &other_rsa, own, c), set));
	static const char *const crits[] = { "[\"exp\"]", "[\"b64\"]", "[]", "null", "\"exp\"" };
	for (size_t i = 0; i < 5; i++) {
		auto_json json_t *h = issuer_head(&rsa);
		js_set(h, "crit", json_loads(crits[i], JSON_DECODE_ANY, NULL));
		assert_false(good(m, issuer_token(m, &rsa, h, c), set));
	}
	static const struct {
		const char *typ;
		bool fine;
	} typs[] = { { "JWT", true }, { "jwt", true }, { "at+jwt", true }, { "application/at+jwt", true },
		{ "logout+jwt", false }, { "secevent+jwt", false }, { "JOSE", false }, { "", false } };
	for (size_t i = 0; i < sizeof typs / sizeof *typs; i++) {
		auto_json json_t *h = issuer_head(&rsa);
		js_set_str(h, "typ", typs[i].typ);
		assert_int_equal(good(m, issuer_token(m, &rsa, h, c), set), typs[i].fine);
	}
	auto_json json_t *none = issuer_head(&rsa), *null = issuer_head(&rsa);
	(void)json_object_del(none, "typ");
	js_set(null, "typ", json_null());
	assert_true(good(m, issuer_token(m, &rsa, none, c), set));
	assert_false(good(m, issuer_token(m, &rsa, null, c), set));
}

/* ---- claims */

static bool fits(const char *name, json_t *v)
{
	auto_json json_t *c = claims();
	if (v == NULL)
		(void)json_object_del(c, name);
	else
		js_set(c, name, v);
	struct jwt t = { .claims = c };
	return jwt_fits(&t, ISS, AUD, clock_wall_ms() / 1000);
}

static void issuer_and_audience_are_exactly_ours(void **s)
{
	(void)s;
	static const char *const iss[] = { "", "https://issuer.example/", "https://Issuer.example",
		"https://issuer.exampl", "https://issuer.example.evil", "http://issuer.example" };
	for (size_t i = 0; i < sizeof iss / sizeof *iss; i++)
		assert_false(fits("iss", json_string(iss[i])));
	assert_false(fits("iss", NULL));
	assert_false(fits("iss", js_pack("[s]", ISS)));
	assert_true(fits("iss", json_string(ISS)));
	assert_true(fits("aud", js_pack("[s,s]", "other", AUD)));
	assert_false(fits("aud", json_string("other")));
	assert_false(fits("aud", json_string("gatehouse2")));
	assert_false(fits("aud", js_pack("[s]", "other")));
	assert_false(fits("aud", js_pack("[i, n]", 1)));
	assert_false(fits("aud", js_pack("[]")));
	assert_false(fits("aud", js_pack("{s:s}", "0", AUD)));
	assert_false(fits("aud", NULL));
}

static void a_token_counts_in_its_time_and_half_a_minute_around(void **s)
{
	(void)s;
	json_int_t now = clock_wall_ms() / 1000;
	assert_false(fits("exp", NULL));
	assert_false(fits("exp", json_null()));
	assert_false(fits("exp", json_string("9999999999")));
	assert_false(fits("exp", json_true()));
	assert_false(fits("exp", json_integer(0)));
	assert_false(fits("exp", json_integer(-1)));
	assert_false(fits("exp", json_integer(now - JWT_LEEWAY_S - 2)));
	assert_true(fits("exp", json_integer(now - JWT_LEEWAY_S + 5)));
	assert_true(fits("exp", json_real((double)now + 0.5)));
	assert_true(fits("exp", json_real(1e300)));
	static const char *const from[] = { "nbf", "iat" };
	for (size_t i = 0; i < 2; i++) {
		assert_true(fits(from[i], NULL));
		assert_true(fits(from[i], json_integer(now - 1000000)));
		assert_true(fits(from[i], json_integer(now + JWT_LEEWAY_S - 5)));
		assert_false(fits(from[i], json_integer(now + JWT_LEEWAY_S + 5)));
		assert_false(fits(from[i], json_string("1")));
		assert_false(fits(from[i], json_null()));
	}
}

/* ---- form */

static void only_the_compact_form_in_strict_base64url_is_read(void **s)
{
	(void)s;
	auto_mem struct mem *m = mem_new();
	struct jwt t;
	auto_json json_t *c = claims(), *h = issuer_head(&ec);
	const char *token = issuer_token(m, &ec, h, c);
	const char *dot1 = strchr(token, '.'), *dot2 = strrchr(token, '.');
	assert_true(jwt_parse(m, token, &t));
	const char *const bad[] = { mem_fmt(m, "%s.", token), mem_fmt(m, ".%s", token),
		mem_fmt(m, "%s=", token), mem_fmt(m, "%s\n", token), mem_fmt(m, " %s", token),
		mem_fmt(m, "%s.x", token), mem_fmt(m, "%.*s..%s", (int)(dot1 - token), token, dot2 + 1),
		mem_fmt(m, "%.*s.", (int)(dot2 - token), token),
		mem_fmt(m, "%s.%s.AA", issuer_b64url(m, "[]", 2), issuer_b64url(m, "{}", 2)),
		mem_fmt(m, "%.*s.%s.AA", (int)(dot1 - token), token, issuer_b64url(m, "[1]", 3)),
		mem_fmt(m, "%.*s.%s.AA", (int)(dot1 - token), token, issuer_b64url(m, "{}{}", 4)),
		mem_fmt(
		    m, "%.*s.%s.AA", (int)(dot1 - token), token, issuer_b64url(m, "{\"a\":1,\"a\":2}", 13)),
		mem_fmt(
		    m, "%.*s.%s.AA", (int)(dot1 - token), token, issuer_b64url(m, "{\"a\":\"\\u0000\"}", 14)),
		mem_fmt(m, "%.*s.e30.AB", (int)(dot1 - token), token), /* bits that mean nothing */
		mem_fmt(m, "%.*s.e3+.AA", (int)(dot1 - token), token), "..", ".", "", "eyJ.eyJ.eyJ" };
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
		if (jwt_parse(m, bad[i], &t))
			fail_msg("%s", bad[i]);
	const char *deep = mem_fmt(m, "{\"a\":%.*s1%.*s}", 40, "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[", 40,
	    "]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]");
	assert_false(jwt_parse(m,
	    mem_fmt(m, "%.*s.%s.AA", (int)(dot1 - token), token, issuer_b64url(m, deep, strlen(deep))), &t));
}

static void a_token_has_a_length_it_may_not_pass(void **s)
{
	(void)s;
	auto_mem struct mem *m = mem_new();
	auto_set struct jwks *set = set_of(ec.jwk, NULL);
	for (int round = 0; round < 2; round++) {
		auto_json json_t *c = claims(), *h = issuer_head(&ec);
		js_set_str(c, "pad", mem_fmt(m, "%*d", round == 0 ? 5500 : 6200, 1));
		const char *token = issuer_token(m, &ec, h, c);
		assert_int_equal(strlen(token) > JWT_MAX_BYTES, round == 1);
		assert_int_equal(good(m, token, set), round == 0);
	}
}

static void base64url_is_strict_and_canonical(void **s) /* RFC 4648, 3.5 and 5 */
{
	(void)s;
	unsigned char raw[300], back[300];
	auto_mem struct mem *m = mem_new();
	for (size_t n = 0; n < 256; n++) {
		for (size_t i = 0; i < n; i++)
			raw[i] = (unsigned char)(i * 37 + n);
		const char *text = issuer_b64url(m, raw, n);
		assert_int_equal(b64url_decode(text, strlen(text), back), n);
		assert_memory_equal(raw, back, n);
	}
	static const char *const bad[] = { "A", "AAAAA", "AB", "AAB", "A=", "AA==", "AAA=", "A+AA", "A/AA",
		"AA A", "AA\n", "\xc3\xa4" };
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
		if (b64url_decode(bad[i], strlen(bad[i]), back) >= 0)
			fail_msg("%s", bad[i]);
}

static int make_keys(void **s)
{
	(void)s;
	issuer_key_make(&rsa, KEY_RSA, "rsa");
	issuer_key_make(&other_rsa, KEY_RSA, "rsa");
	issuer_key_make(&ec, KEY_P256, "ec");
	issuer_key_make(&other_ec, KEY_P256, "ec");
	return 0;
}

static int free_keys(void **s)
{
	(void)s;
	issuer_key_free(&rsa);
	issuer_key_free(&other_rsa);
	issuer_key_free(&ec);
	issuer_key_free(&other_ec);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(tokens_of_both_algorithms_are_accepted),
		cmocka_unit_test(another_keys_signature_under_a_known_name_is_refused),
		cmocka_unit_test(any_changed_character_is_refused),
		cmocka_unit_test(a_token_without_a_signature_is_refused),
		cmocka_unit_test(the_public_key_is_no_hmac_secret),
		cmocka_unit_test(a_key_is_used_with_its_own_algorithm_only),
		cmocka_unit_test(an_es256_signature_is_sixty_four_bytes_and_no_der),
		cmocka_unit_test(the_kid_names_one_key_or_the_token_is_refused),
		cmocka_unit_test(a_set_leaves_out_keys_that_are_not_for_this),
		cmocka_unit_test(a_modulus_that_is_none_is_left_out),
		cmocka_unit_test(small_keys_other_curves_and_points_off_the_curve_are_left_out),
		cmocka_unit_test(what_is_no_key_set_is_refused),
		cmocka_unit_test(nothing_in_a_token_chooses_its_key_or_our_rules),
		cmocka_unit_test(issuer_and_audience_are_exactly_ours),
		cmocka_unit_test(a_token_counts_in_its_time_and_half_a_minute_around),
		cmocka_unit_test(only_the_compact_form_in_strict_base64url_is_read),
		cmocka_unit_test(a_token_has_a_length_it_may_not_pass),
		cmocka_unit_test(base64url_is_strict_and_canonical),
	};
	return cmocka_run_group_tests_name("jwt", tests, make_keys, free_keys);
}
