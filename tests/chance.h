/* chance.h - bytes for tests that try many inputs: the same in every run, so that a failure is the commit's and comes again. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* *seed begins as any number and moves on (splitmix64). */
static inline void chance_bytes(uint64_t *seed, void *p, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		uint64_t z = *seed += UINT64_C(0x9e3779b97f4a7c15);
		z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
		z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
		((unsigned char *)p)[i] = (unsigned char)(z >> 56);
	}
}
