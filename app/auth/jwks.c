#include "auth/jwks.h"

#include <openssl/bn.h>
#include <openssl/core_names.h>
#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/param_build.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/js.h"
#include "base/mem.h"
#include "base/str.h"

enum {
	KEYS_MAX = 64,
	KID_MAX = 256,
	RSA_MIN_BITS = 2048,
	RSA_MAX_BYTES = 1024, /* 8192 bits: more is slow to check, for nothing */
	RSA_E_MAX_BYTES = 4,
	P256_BYTES = 32,
};

struct jwk {
	char *kid;
	enum jwks_alg alg;
	EVP_PKEY *key; /* NULL: its kid stands there twice */
};
struct jwks {
	size_t n;
	struct jwk key[KEYS_MAX];
};

static void auto_bnp(BIGNUM **p)
{
	BN_free(*p);
}
static void auto_bldp(OSSL_PARAM_BLD **p)
{
	OSSL_PARAM_BLD_free(*p);
}
static void auto_paramp(OSSL_PARAM **p)
{
	OSSL_PARAM_free(*p);
}
static void auto_pkey_ctxp(EVP_PKEY_CTX **p)
{
	EVP_PKEY_CTX_free(*p);
}
static void auto_pkeyp(EVP_PKEY **p)
{
	EVP_PKEY_free(*p);
}
static void auto_md_ctxp(EVP_MD_CTX **p)
{
	EVP_MD_CTX_free(*p);
}
static void auto_ecsigp(ECDSA_SIG **p)
{
	ECDSA_SIG_free(*p);
}

/* ---- one key of a document */

/* The bytes of a base64url member, at most max; 0 when absent or wrong. */
static size_t member(const json_t *jwk, const char *name, unsigned char *out, size_t max)
{
	const char *text = js_str(jwk, name);
	size_t n = text == NULL ? 0 : strlen(text);
	if (n == 0 || n > max * 4 / 3 + 2)
		return 0;
	auto_free unsigned char *raw = xcalloc(1, n);
	ssize_t got = b64url_decode(text, n, raw);
	if (got <= 0 || (size_t)got > max)
		return 0;
	memcpy(out, raw, (size_t)got);
	return (size_t)got;
}

static EVP_PKEY *from_params(const char *type, OSSL_PARAM *params)
{
	EVP_PKEY *key AUTO(auto_pkeyp) = NULL;
	EVP_PKEY_CTX *c AUTO(auto_pkey_ctxp) = EVP_PKEY_CTX_new_from_name(NULL, type, NULL);
	if (params == NULL || c == NULL || EVP_PKEY_fromdata_init(c) != 1 ||
	    EVP_PKEY_fromdata(c, &key, EVP_PKEY_PUBLIC_KEY, params) != 1)
		return NULL;
	EVP_PKEY_CTX *check AUTO(auto_pkey_ctxp) = EVP_PKEY_CTX_new_from_pkey(NULL, key, NULL);
	if (check == NULL || EVP_PKEY_public_check(check) != 1)
		return NULL;
	return steal(key);
}

static EVP_PKEY *rsa_key(const json_t *jwk)
{
	unsigned char n[RSA_MAX_BYTES], e[RSA_E_MAX_BYTES];
	size_t n_bytes = member(jwk, "n", n, sizeof n), e_bytes = member(jwk, "e", e, sizeof e);
	if (n_bytes == 0 || e_bytes == 0)
		return NULL;
	BIGNUM *bn AUTO(auto_bnp) = BN_bin2bn(n, (int)n_bytes, NULL);
	BIGNUM *be AUTO(auto_bnp) = BN_bin2bn(e, (int)e_bytes, NULL);
	OSSL_PARAM_BLD *b AUTO(auto_bldp) = OSSL_PARAM_BLD_new();
	if (bn == NULL || be == NULL || b == NULL)
		abort();
	if (BN_num_bits(bn) < RSA_MIN_BITS || !BN_is_odd(be) || BN_is_one(be))
		return NULL;
	if (OSSL_PARAM_BLD_push_BN(b, OSSL_PKEY_PARAM_RSA_N, bn) != 1 ||
	    OSSL_PARAM_BLD_push_BN(b, OSSL_PKEY_PARAM_RSA_E, be) != 1)
		return NULL;
	OSSL_PARAM *params AUTO(auto_paramp) = OSSL_PARAM_BLD_to_param(b);
	return from_params("RSA", params);
}

static EVP_PKEY *ec_key(const json_t *jwk)
{
	unsigned char point[1 + 2 * P256_BYTES] = { 4 }; /* uncompressed */
	char group[] = "prime256v1";
	if (strcmp(js_str_or(jwk, "crv", ""), "P-256") != 0 ||
	    member(jwk, "x", point + 1, P256_BYTES) != P256_BYTES ||
	    member(jwk, "y", point + 1 + P256_BYTES, P256_BYTES) != P256_BYTES)
		return NULL;
	OSSL_PARAM params[] = {
		OSSL_PARAM_construct_utf8_string(OSSL_PKEY_PARAM_GROUP_NAME, group, 0),
		OSSL_PARAM_construct_octet_string(OSSL_PKEY_PARAM_PUB_KEY, point, sizeof point),
		OSSL_PARAM_construct_end(),
	};
	return from_params("EC", params);
}

/* Is it meant for checking signatures with this algorithm? What it does not say it leaves open (RFC 7517, 4.2-4.4). */
static bool meant_for(const json_t *jwk, const char *alg)
{
	const json_t *use = js_get(jwk, "use"), *ops = js_get(jwk, "key_ops"), *its = js_get(jwk, "alg");
	if (use != NULL && strcmp(js_str_or(jwk, "use", ""), "sig") != 0)
		return false;
	if (its != NULL && strcmp(js_str_or(jwk, "alg", ""), alg) != 0)
		return false;
	bool verify = ops == NULL;
	for (size_t i = 0; i < json_array_size(ops); i++) {
		const char *op = json_string_value(json_array_get(ops, i));
		verify = verify || (op != NULL && strcmp(op, "verify") == 0);
	}
	/* Who publishes a private key has lost it. */
	return verify && js_get(jwk, "d") == NULL;
}

static void take(struct jwks *set, const json_t *jwk)
{
	const char *kty = js_str_or(jwk, "kty", ""), *kid = js_str_or(jwk, "kid", "");
	bool rsa = strcmp(kty, "RSA") == 0, ec = strcmp(kty, "EC") == 0;
	if (kid[0] == 0 || strlen(kid) > KID_MAX || (!rsa && !ec) || !meant_for(jwk, rsa ? "RS256" : "ES256"))
		return;
	EVP_PKEY *key = rsa ? rsa_key(jwk) : ec_key(jwk);
	if (key == NULL)
		return;
	for (size_t i = 0; i < set->n; i++)
		if (strcmp(set->key[i].kid, kid) == 0) {
			EVP_PKEY_free(set->key[i].key);
			EVP_PKEY_free(key);
			set->key[i].key = NULL;
			return;
		}
	set->key[set->n++] = (struct jwk){ xstrdup(kid), rsa ? JWKS_RS256 : JWKS_ES256, key };
}

struct jwks *jwks_parse(const char *text, size_t n, struct err *e)
{
	struct err why = { 0 };
	auto_json json_t *doc = js_parse(text, n, &why);
	const json_t *keys = js_get(doc, "keys");
	if (!json_is_array(keys) || json_array_size(keys) > KEYS_MAX) {
		err_set(e, ERR_UPSTREAM, "The issuer's key set is not one, or holds more than %d keys.",
		    KEYS_MAX);
		return NULL;
	}
	struct jwks *set = xcalloc(1, sizeof *set);
	for (size_t i = 0; i < json_array_size(keys); i++)
		take(set, json_array_get(keys, i));
	return set;
}

void jwks_free(struct jwks *set)
{
	for (size_t i = 0; set != NULL && i < set->n; i++) {
		free(set->key[i].kid);
		EVP_PKEY_free(set->key[i].key);
	}
	free(set);
}

size_t jwks_count(const struct jwks *set)
{
	size_t n = 0;
	for (size_t i = 0; i < set->n; i++)
		n += set->key[i].key != NULL;
	return n;
}

/* ---- signatures */

/* r || s as the DER that OpenSSL reads; its length, or 0. */
static size_t ecdsa_der(const unsigned char *sig, size_t n, unsigned char **der)
{
	if (n != 2 * P256_BYTES)
		return 0;
	ECDSA_SIG *s AUTO(auto_ecsigp) = ECDSA_SIG_new();
	BIGNUM *r = BN_bin2bn(sig, P256_BYTES, NULL), *v = BN_bin2bn(sig + P256_BYTES, P256_BYTES, NULL);
	if (s == NULL || r == NULL || v == NULL || ECDSA_SIG_set0(s, r, v) != 1)
		abort();
	int len = i2d_ECDSA_SIG(s, der);
	return len > 0 ? (size_t)len : 0;
}

static bool verify(EVP_PKEY *key, const void *p, size_t n, const unsigned char *sig, size_t sig_n)
{
	EVP_MD_CTX *c AUTO(auto_md_ctxp) = EVP_MD_CTX_new();
	return c != NULL && EVP_DigestVerifyInit(c, NULL, EVP_sha256(), NULL, key) == 1 &&
	    EVP_DigestVerify(c, sig, sig_n, p, n) == 1;
}

enum jwks_verdict jwks_verify(const struct jwks *set, const char *kid, enum jwks_alg alg, const void *p,
    size_t n, const unsigned char *sig, size_t sig_n)
{
	const struct jwk *k = NULL;
	for (size_t i = 0; i < set->n; i++)
		if (set->key[i].key != NULL && strcmp(set->key[i].kid, kid) == 0)
			k = &set->key[i];
	if (k == NULL)
		return JWKS_NO_KEY;
	if (k->alg != alg)
		return JWKS_BAD;
	if (alg == JWKS_RS256)
		return verify(k->key, p, n, sig, sig_n) ? JWKS_GOOD : JWKS_BAD;
	unsigned char *der = NULL;
	size_t der_n = ecdsa_der(sig, sig_n, &der);
	bool good = der_n > 0 && verify(k->key, p, n, der, der_n);
	OPENSSL_free(der);
	return good ? JWKS_GOOD : JWKS_BAD;
}
