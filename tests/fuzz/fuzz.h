/*
 * fuzz.h - the readers of what comes from outside, each as a target: bytes in, and the properties that hold whatever they are. The same
 * targets are run by libFuzzer (`make fuzz`) and, over their seeds, by the unit tests.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

struct fuzz_target {
	const char *name;
	const char *subject; /* the sources whose lines are counted, as `llvm-cov` takes them */
	void (*run)(const uint8_t *p, size_t n);
};
extern const struct fuzz_target fuzz_targets[]; /* ended by a row without name */
const struct fuzz_target *fuzz_find(const char *name);

/* A property that does not hold is a finding like a crash. */
#define HOLDS(x)                                                                                             \
	do {                                                                                                 \
		if (!(x))                                                                                    \
			abort();                                                                             \
	} while (0)

/* Each seed of a target: the lines of tests/fuzz/seeds/NAME (escapes as in csv.h), and the rows of tests/cases that fit. */
typedef void fuzz_seed_fn(void *arg, const uint8_t *p, size_t n);
int fuzz_seeds(const struct fuzz_target *t, fuzz_seed_fn *each, void *arg); /* how many */

void fuzz_host(const uint8_t *p, size_t n);
void fuzz_address(const uint8_t *p, size_t n);
void fuzz_head(const uint8_t *p, size_t n);
void fuzz_answer(const uint8_t *p, size_t n);
void fuzz_chunks(const uint8_t *p, size_t n);
void fuzz_http(const uint8_t *p, size_t n);
void fuzz_hello(const uint8_t *p, size_t n);
void fuzz_socks(const uint8_t *p, size_t n);
void fuzz_dns(const uint8_t *p, size_t n);
void fuzz_policy(const uint8_t *p, size_t n);
void fuzz_json(const uint8_t *p, size_t n);
void fuzz_query(const uint8_t *p, size_t n);
void fuzz_ndjson(const uint8_t *p, size_t n);
void fuzz_redact(const uint8_t *p, size_t n);
void fuzz_conf(const uint8_t *p, size_t n);
void fuzz_url(const uint8_t *p, size_t n);
void fuzz_names(const uint8_t *p, size_t n);
void fuzz_refs(const uint8_t *p, size_t n);
void fuzz_patch(const uint8_t *p, size_t n);
void fuzz_html(const uint8_t *p, size_t n);
void fuzz_frames(const uint8_t *p, size_t n);
void fuzz_channel(const uint8_t *p, size_t n);
void fuzz_tar(const uint8_t *p, size_t n);
void fuzz_cred(const uint8_t *p, size_t n);
void fuzz_jwt(const uint8_t *p, size_t n);
void fuzz_jwks(const uint8_t *p, size_t n);
void fuzz_envelope(const uint8_t *p, size_t n);
void fuzz_form(const uint8_t *p, size_t n);
void fuzz_sse(const uint8_t *p, size_t n);
void fuzz_stream(const uint8_t *p, size_t n);
void fuzz_ask(const uint8_t *p, size_t n);
void fuzz_reply(const uint8_t *p, size_t n);
void fuzz_markup(const uint8_t *p, size_t n);
void fuzz_scan(const uint8_t *p, size_t n);
