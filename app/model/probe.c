#include "model/probe.h"

#include <string.h>

#include "base/clock.h"
#include "base/js.h"
#include "base/redact.h"
#include "base/str.h"
#include "io/http.h"
#include "model/keyring.h"

enum { CONNECT_MS = 5000, TOTAL_MS = 30000, SAID_BYTES = 400, REPLY_BYTES = 256 * 1024 };

static const struct {
	const char *path, *body;
} wires[] = {
	[WIRE_CHAT] = { "/chat/completions",
	    "{\"model\":%s,\"max_tokens\":16,\"messages\":[{\"role\":\"user\",\"content\":\"ping\"}]}" },
	[WIRE_RESPONSES] = { "/responses", "{\"model\":%s,\"max_output_tokens\":16,\"input\":\"ping\"}" },
	[WIRE_MESSAGES] = { "/messages",
	    "{\"model\":%s,\"max_tokens\":16,\"messages\":[{\"role\":\"user\",\"content\":\"ping\"}]}" },
};

static const struct provider *provider_of(const struct org_models *o, const struct probe_ask *ask)
{
	for (int i = 0; i < o->n_providers; i++)
		if (strcmp(o->providers[i].name, ask->provider) == 0 &&
		    strcmp(o->providers[i].org, ask->org) == 0)
			return &o->providers[i];
	return NULL;
}

static const struct provider_model *model_of(
    const struct provider *p, const struct probe_ask *ask, struct err *e)
{
	for (int i = 0; i < p->n_models; i++)
		if (ask->model == NULL || strcmp(p->models[i].name, ask->model) == 0)
			return &p->models[i];
	(void)(ask->model == NULL
		? err_set(e, ERR_BAD_REQUEST, "The provider has no models to try; add one first.")
		: err_field(e, ERR_NOT_FOUND, "model", "The provider has no model \"%.160s\".", ask->model));
	return NULL;
}

static const struct provider_key *key_of(struct catalog *c, const struct provider *p, const char *model,
    const struct probe_ask *ask, struct err *e)
{
	const struct provider_key *key = NULL;
	struct err cooling = { 0 };
	struct key_rest rest;
	for (int i = 0; i < p->n_keys && ask->key != NULL; i++)
		if (strcmp(p->keys[i].id, ask->key) == 0)
			return &p->keys[i];
	if (ask->key == NULL && keyring_take(c, p, model, NULL, &key, &rest, &cooling) == 0)
		return key;
	if (ask->key == NULL && p->n_keys > 0)
		return &p->keys[0];
	(void)err_field(e, ERR_NOT_FOUND, "key", "The provider has no such key.");
	return NULL;
}

/* What people may read of an answer: no key of ours, no secrets of others, not long. */
static const char *said(struct mem *m, const struct buf *body, const struct provider *p)
{
	auto_buf struct buf plain = BUF(2 * REPLY_BYTES), clean = BUF(4 * REPLY_BYTES);
	if (catalog_redact(p, buf_c(body), body->n, &plain) != 0 ||
	    redact_text(buf_c(&plain), plain.n, &clean) != 0)
		return "";
	size_t n = utf8_valid(buf_c(&clean), clean.n < SAID_BYTES ? clean.n : SAID_BYTES);
	return mem_strn(m, buf_c(&clean), n);
}

static bool answered(const struct http_res *res)
{
	struct err e = { 0 };
	if (res->status < 200 || res->status > 299)
		return false;
	auto_json json_t *v = wire_parse(buf_c(&res->body), res->body.n, &e);
	return json_is_object(v) && js_get(v, "error") == NULL &&
	    (js_get(v, "choices") != NULL || js_get(v, "output") != NULL || js_get(v, "content") != NULL);
}

static json_t *call(struct catalog *c, struct mem *m, const struct provider *p,
    const struct provider_model *model, const struct provider_key *key)
{
	auto_json json_t *name = json_string(model->upstream);
	auto_buf struct buf body = BUF(4096), header = BUF(PROVIDER_SECRET_BYTES + 64);
	struct err e = { 0 };
	auto_free char *quoted = json_dumps(name, JSON_ENCODE_ANY);
	const char *heads[4] = { "Content-Type: application/json", NULL };
	const char *pin = NULL;
	if (p->wire == WIRE_MESSAGES && key->secret != NULL) {
		(void)buf_fmt(&header, "x-api-key: %s", secret_use(key->secret));
		heads[1] = "anthropic-version: 2023-06-01";
		heads[2] = buf_c(&header);
	}
	const char *at = strstr(wires[p->wire].body, "%s");
	(void)buf_add(&body, wires[p->wire].body, (size_t)(at - wires[p->wire].body));
	(void)buf_str(&body, quoted == NULL ? "\"\"" : quoted);
	(void)buf_str(&body, at + 2);
	struct http_res res = { 0 };
	int64_t begun = clock_ms();
	int rc = catalog_pin(c, m, p, &pin, &e);
	if (rc == 0)
		rc = http_do(&(struct http_req){ .method = "POST",
				 .url = mem_fmt(m, "%s%s", p->base_url, wires[p->wire].path),
				 .pin = pin,
				 .headers = heads,
				 .bearer = p->wire == WIRE_MESSAGES ? NULL : key->secret,
				 .body = buf_c(&body),
				 .body_n = body.n,
				 .connect_ms = CONNECT_MS,
				 .total_ms = TOTAL_MS,
				 .max_reply_bytes = REPLY_BYTES },
		    &res, &e);
	bool ok = rc == 0 && answered(&res);
	const char *what = rc == 0 ? said(m, &res.body, p) : e.msg;
	json_t *out = js_pack("{s:b,s:i,s:I,s:s,s:s?,s:o}", "ok", ok, "status", res.status, "latencyMs",
	    (json_int_t)(clock_ms() - begun), "model", model->name, "key",
	    key->secret == NULL ? NULL : key->id, "message", js_text(what, strlen(what)));
	http_res_free(&res);
	if (header.p != NULL)
		secret_wipe(header.p, header.cap);
	if (ok)
		keyring_well(c, p, key, model->name);
	return out;
}

json_t *probe_provider(struct catalog *c, struct mem *m, const struct probe_ask *ask, struct err *e)
{
	const struct org_models *o;
	catalog_forget(c, ask->org); /* it may have been made a moment ago, by another process */
	if (catalog_of(c, m, ask->org, &o, e) != 0)
		return NULL;
	const struct provider *p = provider_of(o, ask);
	if (p == NULL) {
		(void)err_set(e, ERR_NOT_FOUND, "There is no provider \"%.60s\" of your org.", ask->provider);
		return NULL;
	}
	const struct provider_model *model = model_of(p, ask, e);
	const struct provider_key *key = model == NULL ? NULL : key_of(c, p, model->name, ask, e);
	return key == NULL ? NULL : call(c, m, p, model, key);
}
