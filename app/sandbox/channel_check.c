/* channel_check.c - the box is hostile: what it may say, when, and how much. */
#include <string.h>

#include "sandbox/channel_impl.h"

static const char wrong_frame[] = "a frame that makes no sense";
static const char wrong_time[] = "a frame that nobody asked for";
static const char too_much[] = "more than it was allowed to";
static const char wrong_offset[] = "output at an offset that cannot be";

static const char *check_out(struct entry *en, struct proto_in *in)
{
	uint8_t stream = proto_get_u8(in);
	uint64_t at = proto_get_u64(in), n = in->n;
	if (in->bad || n == 0 || n > PROTO_DATA_MAX || (stream != PROTO_STDOUT && stream != PROTO_STDERR) ||
	    (en->streams & stream) == 0)
		return wrong_frame;
	if (n > en->credit)
		return too_much;
	if (at < en->at[stream - 1] || at > INT64_MAX - n)
		return wrong_offset;
	en->at[stream - 1] = at + n;
	en->heard |= stream;
	en->credit -= n;
	return NULL;
}

/* A reader may have asked for more than there ever was: only what was sent counts against the totals. */
static const char *check_exit(const struct entry *en, struct proto_in *in)
{
	struct proto_exit x;
	if (!proto_exit_get(in, &x) || !proto_in_end(in) || x.how == PROTO_RUNNING)
		return wrong_frame;
	for (int i = 0; i < 2; i++)
		if ((en->heard & (1 << i)) != 0 && x.bytes[i] < en->at[i])
			return wrong_offset;
	return x.bytes[0] > INT64_MAX || x.bytes[1] > INT64_MAX ? wrong_offset : NULL;
}

static const char *check_data(struct entry *en, struct proto_in *in)
{
	uint64_t at = proto_get_u64(in), n = in->n;
	if (in->bad || n == 0 || n > PROTO_DATA_MAX || !en->described)
		return wrong_frame;
	if (n > en->credit)
		return too_much;
	if (at != en->at[0])
		return wrong_offset;
	en->at[0] += n;
	en->credit -= n;
	return NULL;
}

static const char *check_file(struct entry *en, struct proto_in *in)
{
	struct proto_file f;
	if (en->described || !proto_file_get(in, &f) || !proto_in_end(in) || f.name[0] != 0 ||
	    f.kind != PROTO_KIND_FILE || f.size > INT64_MAX)
		return wrong_frame;
	en->described = true;
	return NULL;
}

static const char *check_nodes(struct entry *en, struct proto_in *in)
{
	if (in->n > en->credit)
		return too_much;
	en->credit -= in->n;
	while (in->n > 0) {
		struct proto_node n;
		if (!proto_node_get(in, &n) || (n.path[0] == 0) == en->described)
			return wrong_frame; /* the place itself comes first, and once */
		if (en->described && en->nodes-- == 0)
			return too_much;
		en->described = true;
	}
	return NULL;
}

static const char *check_changes(struct entry *en, struct proto_in *in)
{
	if (in->n > en->credit)
		return too_much;
	en->credit -= in->n;
	while (in->n > 0) {
		struct proto_change c;
		if (!proto_change_get(in, &c) || (c.what == PROTO_WATCHED) == en->described)
			return wrong_frame; /* that it is watched comes first, and once */
		en->described = true;
	}
	return NULL;
}

/* Version 1 said everything in one frame. */
static const char *check_listed(struct entry *en, struct proto_in *in)
{
	uint32_t n = proto_get_u32(in);
	if ((en->described && en->version < 2) || n > 2 * PROTO_COMMANDS_MAX - en->nodes)
		return wrong_frame;
	for (uint32_t i = 0; i < n; i++) {
		struct proto_item t;
		if (!proto_item_get(in, &t, en->version))
			return wrong_frame;
	}
	en->described = true;
	en->nodes += n;
	return proto_in_end(in) ? NULL : wrong_frame;
}

static const char *check_credit(struct entry *en, struct proto_in *in)
{
	uint32_t n = proto_get_u32(in);
	if (!proto_in_end(in))
		return wrong_frame;
	if (n > en->granted)
		return too_much;
	en->granted -= n;
	en->credit += n;
	return NULL;
}

static const char *check_started(const struct entry *en, struct proto_in *in)
{
	(void)en;
	uint32_t pid = proto_get_u32(in);
	return proto_in_end(in) && pid > 1 && pid <= INT32_MAX ? NULL : wrong_frame;
}

static const char *check_error(struct proto_in *in)
{
	(void)proto_get_u8(in);
	const char *msg = proto_get_str(in);
	return proto_in_end(in) && strlen(msg) < PROTO_MESSAGE_MAX ? NULL : wrong_frame;
}

/* DONE ends most requests, and those that do not end so when we cancelled them. */
static const char *check_done(const struct entry *en, struct proto_in *in)
{
	uint64_t value = proto_get_u64(in);
	bool early = en->kind == PROTO_START || en->kind == PROTO_SUB;
	bool undescribed = (en->kind == PROTO_LIST || en->kind == PROTO_LOOK || en->kind == PROTO_READ ||
			       en->kind == PROTO_WATCH) &&
	    !en->described;
	if (!proto_in_end(in) || value > INT64_MAX || (en->kind == PROTO_INPUT && value > en->granted))
		return wrong_frame;
	return (early || undescribed) && !en->cancelled ? wrong_time : NULL;
}

const char *channel_check(struct entry *en, uint8_t type, const unsigned char *p, size_t n, bool *last)
{
	struct proto_in in = { .p = p, .n = n };
	*last = type == PROTO_DONE || type == PROTO_ERROR || type == PROTO_EXIT || type == PROTO_STARTED;
	switch (type) {
	case PROTO_ERROR:
		return check_error(&in);
	case PROTO_DONE:
		return check_done(en, &in);
	case PROTO_STARTED:
		return en->kind == PROTO_START ? check_started(en, &in) : wrong_time;
	case PROTO_OUT:
		return en->kind == PROTO_SUB ? check_out(en, &in) : wrong_time;
	case PROTO_EXIT:
		return en->kind == PROTO_SUB ? check_exit(en, &in) : wrong_time;
	case PROTO_LISTED:
		return en->kind == PROTO_LIST ? check_listed(en, &in) : wrong_time;
	case PROTO_FILE:
		return en->kind == PROTO_READ ? check_file(en, &in) : wrong_time;
	case PROTO_NODES:
		return en->kind == PROTO_LOOK ? check_nodes(en, &in) : wrong_time;
	case PROTO_CHANGES:
		return en->kind == PROTO_WATCH ? check_changes(en, &in) : wrong_time;
	case PROTO_DATA:
		return en->kind == PROTO_READ || en->kind == PROTO_PACK ? check_data(en, &in) : wrong_time;
	case PROTO_CREDIT:
		return en->kind == PROTO_WRITE || en->kind == PROTO_UNPACK ? check_credit(en, &in)
									   : wrong_time;
	default:
		return wrong_frame;
	}
}
