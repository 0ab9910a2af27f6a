/* Tokens of an attempt in the gate's classes, told by the upstream or estimated (MOD-6). */
#include <stdio.h>

#include "base/log.h"
#include "model/call_int.h"

enum {
	OUTPUT_TOKENS = 4096,    /* reserved where neither the request nor the model states a limit */
	OUTPUT_ANY = 1000000,    /* believed where neither does */
	OUTPUT_SLACK = 1024,     /* vendors do not count alike */
	REASONING_SLACK = 32768, /* of some it is beside the limit */
};

static long long not_below(long long a, long long b)
{
	return a > b ? a : b;
}

static long long not_above(long long a, long long b)
{
	return a < b ? a : b;
}

/* Of all completions: what the request and the model state, else `none`. */
static long long output_most(const struct call *k, const struct provider_model *m, long long none)
{
	long long most = m->output_tokens > 0 ? m->output_tokens : none;
	if (k->ask.max_out > 0 && (k->ask.max_out < most || m->output_tokens <= 0))
		most = k->ask.max_out;
	return most * (k->ask.n > 1 ? k->ask.n : 1);
}

long long call_worst_out(const struct call *k, const struct provider_model *m)
{
	return output_most(k, m, OUTPUT_TOKENS);
}

/* Can that be what this call used? README.md, rule 6. */
static bool can_be(struct call *k, const struct provider_model *m, const struct wire_usage *u, size_t written)
{
	long long context = m->context_tokens, in = context > 0 ? context + context / 4 : WIRE_INPUT_ANY,
		  out = output_most(k, m, context > 0 ? context : OUTPUT_ANY);
	/* What any body may be is not looked for in this one. */
	if (u->input > not_above(in, WIRE_INPUT_LEAST)) {
		if (k->most_in == 0)
			k->most_in = wire_input_most(k->in);
		in = k->most_in < WIRE_INPUT_ANY ? not_above(in, k->most_in) : k->most_in;
	}
	out = not_below(out, (long long)written); /* it was there, whatever the limit was */
	return !u->odd && u->input <= in && u->output - u->reasoning <= out + OUTPUT_SLACK &&
	    u->reasoning <= out + REASONING_SLACK;
}

static bool believed(struct call *k, const struct attempt *a, const struct wire_usage *u, size_t written)
{
	if (can_be(k, a->t->model, u, written))
		return true;
	if (!k->doubted) {
		char in[24], out[24];
		(void)snprintf(in, sizeof in, "%lld", u->input);
		(void)snprintf(out, sizeof out, "%lld", u->output);
		log_warn("a provider's usage cannot be; the call is charged by an estimate", "org",
		    k->rec.org, "call", k->rec.id, "provider", a->t->provider->name, "model",
		    a->t->model->name, "input_tokens", in, "output_tokens", out);
	}
	k->doubted = true;
	return false;
}

/* u NULL, not known or not believed: all is estimated, within what was reserved if it is not believed. ended: nothing of the output
 * follows; before that, and where u tells of a part of it, it counts for no less than what was written so far. */
bool call_used(
    struct call *k, const struct attempt *a, const struct wire_usage *u, size_t written, bool ended)
{
	bool told = u != NULL && u->known, known = told && believed(k, a, u, written);
	struct tokens t = { .input = k->est_in };
	if (known) {
		t.cached = u->cached;
		t.cache_write = u->cache_write;
		t.input = not_below(u->input - u->cached - u->cache_write, 0);
		t.reasoning = u->reasoning;
		t.output = not_below(u->output - u->reasoning, 0);
	}
	bool whole = ended && known && !u->part;
	if (!whole)
		t.output = not_below(t.output, wire_estimate_tokens(written));
	if (told && !known)
		t.output = not_above(t.output, call_worst_out(k, a->t->model));
	k->used = (struct gate_used){ .provider = a->t->provider->name,
		.model = a->t->model->name,
		.price = a->t->model->price,
		.tokens = t,
		.estimated = !whole };
	return known || !told;
}

struct wire_usage call_charged(const struct call *k)
{
	const struct tokens *t = &k->used.tokens;
	return (struct wire_usage){ .known = true,
		.input = t->input + t->cached + t->cache_write,
		.cached = t->cached,
		.cache_write = t->cache_write,
		.output = t->output + t->reasoning,
		.reasoning = t->reasoning };
}

struct wire_usage call_estimate(const struct call *k, size_t written)
{
	return (
	    struct wire_usage){ .known = true, .input = k->est_in, .output = wire_estimate_tokens(written) };
}

void call_note(struct call *k)
{
	gate_note(k->gate, &k->used);
}
