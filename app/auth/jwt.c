#include "auth/jwt.h"

#include <string.h>
#include <strings.h>

#include "base/hash.h"
#include "base/js.h"

bool jwt_is(const char *text)
{
	return str_starts(text, "eyJ") && strchr(text, '.') != NULL; /* {" */
}

/* A part's bytes, with a NUL after them. NULL when it is not base64url, or empty. */
static unsigned char *part(struct mem *m, struct str p, size_t *n)
{
	unsigned char *raw = mem_alloc(m, p.n + 1);
	ssize_t got = b64url_decode(p.p, p.n, raw);
	*n = got < 0 ? 0 : (size_t)got;
	return got <= 0 ? NULL : raw;
}

static json_t *object(struct mem *m, struct str p)
{
	size_t n;
	struct err e = { 0 };
	const unsigned char *raw = part(m, p, &n);
	json_t *v = raw == NULL
	    ? NULL
	    : js_parse((const char *)raw, n, &e); /* also refuses a name that stands twice */
	if (v == NULL)
		return NULL;
	(void)mem_json(m, v);
	return json_is_object(v) ? v : NULL;
}

/* RFC 8725, 3.11: a token that was made for something else is none, though its issuer signed it (a logout token, say). */
static bool typ_fits(const json_t *head)
{
	static const char *const fine[] = { "JWT", "at+jwt", "application/jwt", "application/at+jwt" };
	const char *typ = js_str(head, "typ");
	if (typ == NULL)
		return json_object_get(head, "typ") == NULL;
	for (size_t i = 0; i < sizeof fine / sizeof *fine; i++)
		if (strcasecmp(typ, fine[i]) == 0)
			return true;
	return false;
}

static bool head_fits(const json_t *head, struct jwt *out)
{
	const char *alg = js_str_or(head, "alg", "");
	out->kid = js_str_or(head, "kid", "");
	if (strcmp(alg, "RS256") == 0)
		out->alg = JWKS_RS256;
	else if (strcmp(alg, "ES256") == 0)
		out->alg = JWKS_ES256;
	else
		return false;
	/* RFC 7515, 4.1.11: we know no extension, so none may be critical. */
	return out->kid[0] != 0 && typ_fits(head) && json_object_get(head, "crit") == NULL;
}

bool jwt_parse(struct mem *m, const char *text, struct jwt *out)
{
	*out = (struct jwt){ 0 };
	size_t n = strlen(text);
	if (n > JWT_MAX_BYTES)
		return false;
	const char *dot1 = strchr(text, '.'), *dot2 = dot1 == NULL ? NULL : strchr(dot1 + 1, '.');
	if (dot2 == NULL || strchr(dot2 + 1, '.') != NULL)
		return false;
	const json_t *head = object(m, (struct str){ text, (size_t)(dot1 - text) });
	if (head == NULL || !head_fits(head, out))
		return false;
	out->claims = object(m, (struct str){ dot1 + 1, (size_t)(dot2 - dot1 - 1) });
	out->sig = part(m, (struct str){ dot2 + 1, n - (size_t)(dot2 + 1 - text) }, &out->sig_n);
	out->signed_ = (struct str){ text, (size_t)(dot2 - text) };
	return out->claims != NULL && out->sig != NULL;
}

static bool is_for(const json_t *aud, const char *us)
{
	if (json_is_string(aud))
		return strcmp(json_string_value(aud), us) == 0;
	for (size_t i = 0; i < json_array_size(aud); i++) {
		const char *one = json_string_value(json_array_get(aud, i));
		if (one != NULL && strcmp(one, us) == 0)
			return true;
	}
	return false;
}

/* NumericDate (RFC 7519, 2): `def` when absent; false when it is there and no number. */
static bool moment(const json_t *claims, const char *name, double def, double *out)
{
	const json_t *v = json_object_get(claims, name);
	*out = v == NULL ? def : json_number_value(v);
	return v == NULL || json_is_number(v);
}

bool jwt_fits(const struct jwt *t, const char *iss, const char *aud, int64_t now_s)
{
	double now = (double)now_s, exp, nbf, iat;
	return strcmp(js_str_or(t->claims, "iss", ""), iss) == 0 && is_for(js_get(t->claims, "aud"), aud) &&
	    moment(t->claims, "exp", 0, &exp) && moment(t->claims, "nbf", now, &nbf) &&
	    moment(t->claims, "iat", now, &iat) && now < exp + JWT_LEEWAY_S && nbf <= now + JWT_LEEWAY_S &&
	    iat <= now + JWT_LEEWAY_S;
}

enum jwks_verdict jwt_verify(const struct jwt *t, const struct jwks *set)
{
	return jwks_verify(set, t->kid, t->alg, t->signed_.p, t->signed_.n, t->sig, t->sig_n);
}
