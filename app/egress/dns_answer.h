/*
 * dns_answer.h - questions of a transparent sandbox (EGR-16; RFC 1035), read and answered without any I/O.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/str.h"

enum { DNS_UDP_BYTES = 512, DNS_ADDED_BYTES = 16 };

/*
 * The answer to the packet p[0..n) into out, which holds n + DNS_ADDED_BYTES; its length, 0 for none. known() is asked at most once,
 * with the name as it came: what it knows has one made-up address, everything else does not exist.
 */
size_t dns_answer(const unsigned char *p, size_t n, unsigned char *out,
    bool (*known)(void *arg, struct str name), void *arg);
