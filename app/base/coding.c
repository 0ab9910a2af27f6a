#include "base/coding.h"

#include <string.h>
#include <strings.h>

enum coding coding_of(struct str value)
{
	static const struct {
		const char *name;
		enum coding coding;
	} known[] = { { "identity", CODING_PLAIN }, { "gzip", CODING_GZIP }, { "x-gzip", CODING_GZIP },
		{ "deflate", CODING_DEFLATE } };
	if (value.n == 0)
		return CODING_PLAIN;
	for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
		if (value.n == strlen(known[i].name) && strncasecmp(value.p, known[i].name, value.n) == 0)
			return known[i].coding;
	return CODING_OTHER;
}
