/*
 * lease_check.h - may this be leased (SBX-1, SBX-2, SBX-31)? Pure: what is wrong is refused by name before anything is asked
 * of the database or a node.
 */
#pragma once

#include "io/conf.h"
#include "sandbox/lease.h"
#include "sandbox/network.h"

enum { LEASE_PROJECT_MAX = 64 };
struct lease_terms { /* what the lease will have, every default filled in */
	const char *class, *image, *workdir;
	char project[LEASE_PROJECT_MAX]; /* its slug; empty: none */
	long long ttl_s;
	json_t *env;    /* object of strings; borrowed from the request */
	json_t *limits; /* {memoryMb, cpuMilli, pids, diskMb}; new reference */
	json_t *
	    mounts; /* a layout as layout.h writes it, or NULL; new reference, which `workdir` may point into */
	struct network network; /* its policy: new reference */
};
/* DRV-0: does this deployment name sandboxes without isolation? Then it has no others. */
bool lease_unisolated(const struct conf *conf);
/* SBX-3: the one place where a project becomes the slug that names its volume and its place. */
int lease_project(const char *name, char slug[LEASE_PROJECT_MAX], struct err *e);
int lease_check(const struct conf *conf, const struct lease_want *want, struct lease_terms *t, struct err *e);
