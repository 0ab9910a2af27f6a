/*
 * rules.h - what a request of one wire may hold, and what becomes of it on another (MOD-1): the one table. The readers of requests
 * check every object against it, so that nothing is lost without a rule; TRANSLATION.md is made of it, and every row is tested.
 */
#pragma once

#include "model/wire_int.h"

enum wire_verb {
	WIRE_CARRY,  /* means the same there */
	WIRE_LIKE,   /* comes close; `how` says in which way */
	WIRE_DROP,   /* left out; `how` says why nothing is lost that was asked for */
	WIRE_REFUSE, /* 400, naming the field */
};

struct wire_rule {
	enum provider_wire from;
	const char *place; /* the kind of object; with a * in front: `key` is a value of its `type` */
	const char *key;
	enum wire_verb verb[WIRES]; /* by target; its own wire's is not used */
	const char *how;
};
extern const struct wire_rule wire_rules[]; /* ended by a row without place */
const char *wire_verb_name(enum wire_verb v);

/* Where a reader is. */
struct wire_rd {
	struct mem *m;
	enum provider_wire from, to;
	struct wire_request *r;
	struct err *e;
};
/* The members of the objects below the body, by their type (or another name): what is in no list is refused by name as well. */
struct wire_known {
	const char *type, *members; /* words */
};
int wire_known(const struct wire_rd *d, const struct wire_known *table, const char *type, const json_t *o,
    const char *path);
/* Every member of o against the rows of its place; path is where o stands ("" for the body). 0, or -1 with the field at fault. A member that is
 * null, or says what is so anyway (false, 0, an empty list or object), is as if it were not there. */
int wire_rule_check(const struct wire_rd *d, const char *place, const json_t *o, const char *path);
/* A value of `type` likewise: the row of "*place". *verb where it is not refused. */
int wire_rule_type(
    const struct wire_rd *d, const char *place, const char *type, const char *path, enum wire_verb *verb);
/* The verb of a member; WIRE_REFUSE for one without a row. */
enum wire_verb wire_rule_of(
    enum provider_wire from, enum provider_wire to, const char *place, const char *key);
