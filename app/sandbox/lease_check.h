/*
 * lease_check.h - may this be leased (SBX-1, SBX-2, SBX-31)? Pure: what is wrong is refused by name before anything is asked
 * of the database or a node.
 */
#pragma once

#include "io/conf.h"
#include "sandbox/lease.h"

struct lease_terms { /* what the lease will have, every default filled in */
	const char *class, *image, *workdir;
	long long ttl_s;
	json_t *env;    /* object of strings; borrowed from the request */
	json_t *limits; /* {memoryMb, cpuMilli, pids, diskMb}; new reference */
};
int lease_check(const struct conf *conf, const struct lease_want *want, struct lease_terms *t, struct err *e);
