/*
 * jwt.h - signed tokens (RFC 7519 in the compact form of RFC 7515, read as RFC 8725 advises): taken apart, their claims judged.
 * Nothing in a token says where keys come from: `jku`, `jwk`, `x5u` and `x5c` are not looked at. No I/O.
 */
#pragma once

#include <jansson.h>
#include <stdint.h>

#include "auth/jwks.h"
#include "base/mem.h"
#include "base/str.h"

enum { JWT_MAX_BYTES = 8192, JWT_LEEWAY_S = 30 };

struct jwt {
	enum jwks_alg alg;
	const char *kid;
	json_t *claims;     /* an object */
	struct str signed_; /* what the signature is over */
	unsigned char *sig;
	size_t sig_n;
};
/* Does it look like one at all? Cheap; what does not is another kind of credential. */
bool jwt_is(const char *text);
/*
 * In the arena. False for whatever is not exactly a JWT with alg RS256 or ES256, a `kid`, a `typ` that is absent or an access
 * or identity token's, and no `crit`. The signature is not checked yet.
 */
bool jwt_parse(struct mem *m, const char *text, struct jwt *out);
/* iss and aud are what they must be, exp (which must be there), nbf and iat fit now_s. */
bool jwt_fits(const struct jwt *t, const char *iss, const char *aud, int64_t now_s);
enum jwks_verdict jwt_verify(const struct jwt *t, const struct jwks *set);
