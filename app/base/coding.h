/* coding.h - how a body is packed, as its Content-Encoding says (RFC 9110 8.4.1): judged here for requests and answers alike. */
#pragma once

#include "base/str.h"

enum coding {
	CODING_PLAIN, /* no field, an empty one, or identity */
	CODING_GZIP,
	CODING_DEFLATE,
	CODING_OTHER, /* another, or more than one */
};

/* The whole value of the field, without case. */
enum coding coding_of(struct str value);
