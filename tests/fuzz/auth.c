/* Credentials as a client writes them, and keys as an issuer serves them. */
#include <string.h>

#include "auth/cred.h"
#include "auth/jwks.h"
#include "auth/jwt.h"
#include "fuzz.h"

void fuzz_cred(const uint8_t *p, size_t n)
{
	auto_mem struct mem *m = mem_new();
	const char *s = mem_strn(m, (const char *)p, n);
	struct cred_parts parts;
	if (cred_split(s, &parts))
		HOLDS(strlen(parts.id) < ID_MAX && strlen(parts.hash) == SHA256_HEX - 1);
	auto_free unsigned char *out = xcalloc(1, n + 4);
	auto_free char *back = xcalloc(1, B64_SIZE(n + 4));
	ssize_t got = b64_decode((const char *)p, n, out);
	if (got >= 0) { /* strict: one text for one value */
		HOLDS((size_t)got <= 3 * n / 4 && b64_encode(out, (size_t)got, back) == n);
		HOLDS(n == 0 || memcmp(back, p, n) == 0);
	}
	(void)hex_decode(s, out, n);
}

void fuzz_jwt(const uint8_t *p, size_t n)
{
	auto_mem struct mem *m = mem_new();
	const char *s = mem_strn(m, (const char *)p, n);
	struct jwt t = { 0 };
	struct err e = { 0 };
	if (!jwt_parse(m, s, &t))
		return;
	HOLDS(jwt_is(s) && strlen(s) <= JWT_MAX_BYTES && json_is_object(t.claims) && t.kid != NULL);
	(void)jwt_fits(&t, "https://issuer.example", "gatehouse", 1700000000);
	struct jwks *none = jwks_parse("{\"keys\":[]}", 11, &e);
	HOLDS(none != NULL && jwt_verify(&t, none) == JWKS_NO_KEY);
	jwks_free(none);
}

void fuzz_jwks(const uint8_t *p, size_t n)
{
	struct err e = { 0 };
	struct jwks *set = jwks_parse((const char *)p, n, &e);
	HOLDS(set != NULL || e.code == ERR_UPSTREAM);
	if (set != NULL)
		HOLDS(jwks_verify(set, "k", JWKS_ES256, "x", 1, (const unsigned char *)"y", 1) != JWKS_GOOD);
	jwks_free(set);
}
