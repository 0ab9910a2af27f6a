#include "fuzz.h"

#include <string.h>

const struct fuzz_target fuzz_targets[] = {
	{ "host", "app/base/host.c", fuzz_host },
	{ "address", "app/base/addr.c", fuzz_address },
	{ "head", "app/egress/head.c app/egress/head_line.c", fuzz_head },
	{ "answer", "app/egress/head_answer.c", fuzz_answer },
	{ "chunks", "app/egress/head_chunks.c", fuzz_chunks },
	{ "http", "app/io/http_read.c", fuzz_http },
	{ "hello", "app/egress/hello.c", fuzz_hello },
	{ "socks", "app/egress/socks.c", fuzz_socks },
	{ "dns", "app/egress/dns_answer.c", fuzz_dns },
	{ "policy", "app/egress/policy.c app/egress/decide.c", fuzz_policy },
	{ "json", "app/base/js.c app/op/check.c", fuzz_json },
	{ "query", "app/op/query.c app/op/route.c", fuzz_query },
	{ "ndjson", "app/base/ndjson.c app/op/cli_render.c", fuzz_ndjson },
	{ "redact", "app/base/redact.c app/base/redact_json.c", fuzz_redact },
	{ "conf", "app/io/conf_file.c", fuzz_conf },
	{ "url", "app/code/ask.c", fuzz_url },
	{ "names", "app/forge/name.c app/forge/push_path.c app/base/str.c", fuzz_names },
	{ "refs", "app/forge/refpolicy.c", fuzz_refs },
	{ "patch", "app/forge/patch.c", fuzz_patch },
	{ "html", "app/forge/html.c", fuzz_html },
	{ "frames", "app/box/proto.c app/box/proto_file.c", fuzz_frames },
	{ "channel", "app/sandbox/channel_check.c", fuzz_channel },
	{ "tar", "app/box/tar.c", fuzz_tar },
	{ "cred", "app/auth/cred.c app/base/hash.c", fuzz_cred },
	{ "jwt", "app/auth/jwt.c", fuzz_jwt },
	{ "jwks", "app/auth/jwks.c", fuzz_jwks },
	{ "envelope", "app/op/connect.c", fuzz_envelope },
	{ "form", "app/op/multipart.c", fuzz_form },
	{ "sse", "app/model/sse.c", fuzz_sse },
	{ "scan", "app/model/scan.c", fuzz_scan },
	{ "stream",
	    "app/model/scan.c app/model/in.c app/model/chat_in.c app/model/responses_in.c "
	    "app/model/messages_in.c "
	    "app/model/out.c app/model/chat_out.c app/model/responses_out.c app/model/messages_out.c",
	    fuzz_stream },
	{ "ask",
	    "app/model/look.c app/model/request.c app/model/rules.c app/model/chat_read.c "
	    "app/model/responses_read.c "
	    "app/model/messages_read.c app/model/chat_write.c app/model/responses_write.c "
	    "app/model/messages_write.c",
	    fuzz_ask },
	{ "reply", "app/model/answer.c app/model/answer_read.c app/model/answer_write.c app/model/fault.c",
	    fuzz_reply },
	{ "markup", "app/model/markup.c", fuzz_markup },
	{ 0 },
};

const struct fuzz_target *fuzz_find(const char *name)
{
	for (const struct fuzz_target *t = fuzz_targets; name != NULL && t->name != NULL; t++)
		if (strcmp(t->name, name) == 0)
			return t;
	return NULL;
}
