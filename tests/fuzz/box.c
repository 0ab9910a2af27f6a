/* Both ends of the box's protocol: each is hostile to the other. */
#include <string.h>

#include "base/limits.h"
#include "box/proto.h"
#include "fuzz.h"
#include "sandbox/channel_impl.h"

static void strings(struct proto_in in, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		(void)strlen(proto_get_str(&in));
	HOLDS(proto_in_end(&in)); /* they were counted when the payload was read */
}

/* A frame: its head, then a payload by the head's type. */
void fuzz_frames(const uint8_t *p, size_t n)
{
	struct proto_head h;
	if (n < PROTO_HEAD || !proto_head_get(p, PROTO_START_MAX, &h))
		return;
	struct proto_in in = { .p = p + PROTO_HEAD, .n = n - PROTO_HEAD };
	struct proto_start start;
	struct proto_config config;
	struct proto_sub sub;
	struct proto_exit ended;
	struct proto_item item;
	struct proto_input input;
	struct proto_signal sig;
	struct proto_resize size;
	struct proto_file file;
	struct proto_look look;
	struct proto_node node;
	switch (h.type) {
	case PROTO_START:
		if (!proto_start_get(&in, &start))
			return;
		HOLDS(start.n_argv > 0 && start.n_argv <= PROTO_ARGS_MAX &&
		    strlen(start.label) < PROTO_LABEL_MAX);
		strings(start.argv_in, start.n_argv);
		strings(start.env_in, start.n_env);
		return;
	case PROTO_HELLO: /* stands for the configuration, which is no frame */
		if (!proto_config_get(&in, &config))
			return;
		HOLDS(config.n_roots <= PROTO_ROOTS_MAX);
		strings(config.roots_in, config.n_roots);
		strings(config.env_in, config.n_env);
		return;
	case PROTO_SUB:
		(void)proto_sub_get(&in, &sub);
		return;
	case PROTO_EXIT:
		if (proto_exit_get(&in, &ended))
			HOLDS(strlen(ended.message) < PROTO_MESSAGE_MAX);
		return;
	case PROTO_LISTED:
		for (struct proto_in old = in; old.n > 0 && proto_item_get(&old, &item, 1);)
			HOLDS(strlen(item.label) < PROTO_LABEL_MAX);
		while (in.n > 0 && proto_item_get(&in, &item, 2)) {
			HOLDS(strlen(item.label) < PROTO_LABEL_MAX && strlen(item.dir) <= PROTO_TOLD_MAX);
			strings(item.args_in, item.n_args);
		}
		return;
	case PROTO_INPUT:
		if (proto_input_get(&in, &input))
			HOLDS(in.n <= PROTO_DATA_MAX);
		return;
	case PROTO_SIGNAL:
		if (proto_signal_get(&in, &sig))
			HOLDS(sig.signal >= 1 && sig.signal <= 64);
		return;
	case PROTO_RESIZE:
		(void)proto_resize_get(&in, &size);
		return;
	case PROTO_LOOK:
		if (proto_look_get(&in, &look))
			HOLDS(look.depth <= PROTO_DEPTH_MAX && look.nodes <= PROTO_ENTRIES_MAX);
		return;
	case PROTO_NODES:
		while (in.n > 0 && proto_node_get(&in, &node))
			HOLDS(node.path[0] != '/' && strlen(node.path) < LIMIT_PATH_BYTES);
		return;
	default:
		while (in.n > 0 && proto_file_get(&in, &file))
			(void)strlen(file.name);
	}
}

/* Frames from a box to a request: the request's kind and credit, then for each frame its type, two bytes of length, its payload. */
void fuzz_channel(const uint8_t *p, size_t n)
{
	static const uint8_t kinds[] = { PROTO_START, PROTO_SUB, PROTO_LOOK, PROTO_READ, PROTO_WRITE,
		PROTO_LIST, PROTO_STOP, PROTO_PING, PROTO_LEASE };
	if (n < 2)
		return;
	struct entry en = { .kind = kinds[p[0] % sizeof kinds],
		.streams = p[1] & 3,
		.credit = 1000,
		.granted = p[1],
		.nodes = 3,
		.id = 7 };
	uint64_t got = 0;
	for (size_t at = 2; at + 3 <= n;) {
		size_t len = (size_t)p[at + 1] | (size_t)p[at + 2] << 8;
		bool last = false;
		if (len > n - at - 3)
			return;
		const char *why = channel_check(&en, p[at], p + at + 3, len, &last);
		if (why != NULL || last)
			return;
		if (p[at] == PROTO_OUT || p[at] == PROTO_DATA)
			HOLDS(
			    (got += len) <= 1000 + 16 * n); /* never more than was granted, but for offsets */
		at += 3 + len;
	}
}
