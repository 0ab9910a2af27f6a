/* same.h - two errors are the same to a client (ID-4). Member by member: a copy of a struct need not copy its padding. */
#pragma once

#include "base/err.h"

static inline void same_error(const struct err *a, const struct err *b)
{
	assert_int_equal(a->code, b->code);
	assert_string_equal(a->msg, b->msg);
	assert_string_equal(a->param, b->param);
	assert_ptr_equal(a->reason, b->reason);
	assert_int_equal(a->retry_s, b->retry_s);
	assert_int_equal(a->n_details, b->n_details);
}
