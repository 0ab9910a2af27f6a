#include <stddef.h>

#include "io/conf.h"
#include "io/conf_keys.h"
#include "io/conf_rules.h"

const struct conf_key conf_keys_trace[] = {
	{ .section = "Traces of model calls",
	    .name = "TRACE_KEEP_HOURS",
	    .def = "168",
	    .type = CONF_INT,
	    .max = 24 * 366,
	    .doc =
		"How long spans of model calls are kept, for GET /v1/traces. 0: not at all. They never hold "
		"what was said." },
	{ .name = "TRACE_OTLP_URL",
	    .def = "",
	    .type = CONF_STR,
	    .wrong = rule_http_url,
	    .doc = "A collector that gets them too, as OTLP over HTTP in JSON; the whole URL, such as "
		   "http://127.0.0.1:4318/v1/traces. Empty: none." },
	{ .name = "TRACE_OTLP_KEY_FILE",
	    .def = "",
	    .type = CONF_PATH,
	    .doc = "The token that it wants as Authorization: Bearer: a file that only the service can read. "
		   "Empty: none." },
	{ .name = "TRACE_OTLP_CA_FILE",
	    .def = "",
	    .type = CONF_PATH,
	    .doc = "Certificates that it is checked against. Empty: those of the system." },
	{ 0 },
};
