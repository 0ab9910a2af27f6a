/* reaper.c - open calls of dead processes (keeper.h). */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "money/gate_int.h"
#include "money/keeper_int.h"
#include "sql/money.h"

enum { TAKE_MS = 2000, SEEN_MAX = 1024 };

/* A process with open calls, as it was seen last. */
struct seen {
	char gate[ID_MAX];
	long long beats;
	int64_t still_ms; /* how long these beats were seen */
	bool fresh;       /* in this look */
};
struct watch {
	struct seen at[SEEN_MAX];
	int n;
	int64_t looked_ms;
};

static struct seen *find(struct watch *w, const char *gate)
{
	for (int i = 0; i < w->n; i++)
		if (strcmp(w->at[i].gate, gate) == 0)
			return &w->at[i];
	if (w->n == SEEN_MAX)
		return NULL; /* its turn comes when others are gone */
	struct seen *s = &w->at[w->n++];
	*s = (struct seen){ .beats = -2 };
	(void)snprintf(s->gate, sizeof s->gate, "%s", gate);
	return s;
}

/* Reservations of one process, one transaction each. */
static int reap(struct keeper *k, struct pg *db, const char *gate, struct err *e)
{
	const char *report = k->reports ? "true" : "false";
	for (;;) {
		auto_res struct pg_res *r = PG(db, &q_money_reap, e, gate, report);
		if (r == NULL)
			return -1;
		if (pg_rows(r) == 0 || atomic_load(&k->ending))
			return 0;
		if (pg_null(r, 0, 0))
			continue;
		log_warn("a call of a process that died was closed", "org", pg_str(r, 0, 0), "request",
		    pg_str(r, 0, 1), "noted", pg_bool(r, 0, 4) ? "yes" : "no", "millicents", pg_str(r, 0, 5));
		if (!pg_null(r, 0, 6))
			gate_tell_soft(&k->o, pg_str(r, 0, 0), pg_null(r, 0, 2) ? NULL : pg_str(r, 0, 2),
			    pg_null(r, 0, 3) ? NULL : pg_str(r, 0, 3), pg_str(r, 0, 6));
	}
}

static void forget(struct watch *w)
{
	int n = 0;
	for (int i = 0; i < w->n; i++)
		if (w->at[i].fresh)
			w->at[n++] = w->at[i];
	w->n = n;
	for (int i = 0; i < n; i++)
		w->at[i].fresh = false;
}

/* Time counts between two looks that PostgreSQL answered, and at most twice what lies between looks as a rule. */
static int look(struct keeper *k, struct watch *w, int every_ms, struct err *e)
{
	auto_pg struct pg *db = pg_take(k->o.db, TAKE_MS, e);
	auto_res struct pg_res *r = db == NULL ? NULL : PG0(db, &q_money_gates, e);
	if (r == NULL)
		return -1;
	int64_t now = clock_ms(), since = w->looked_ms == 0 ? 0 : now - w->looked_ms;
	int64_t dead_ms = 1000 * conf_int(k->o.conf, "BILLING_REAP_S");
	if (since > 2 * every_ms)
		since = every_ms;
	w->looked_ms = now;
	for (int i = 0; i < pg_rows(r); i++) {
		struct seen *s = find(w, pg_str(r, i, 0));
		long long beats = pg_int(r, i, 1);
		if (s == NULL)
			continue;
		s->fresh = true;
		s->still_ms = s->beats == beats ? s->still_ms + since : 0;
		s->beats = beats;
		if (s->still_ms >= dead_ms && reap(k, db, s->gate, e) != 0)
			return -1;
	}
	forget(w);
	return 0;
}

void *reaper_thread(void *arg)
{
	struct keeper *k = arg;
	struct watch *w = xcalloc(1, sizeof *w);
	struct log_spell spell = { 0 };
	int every_ms;
	do {
		struct err e = { 0 };
		long long times;
		every_ms = (int)(1000 * conf_int(k->o.conf, "BILLING_REAP_S") / GATE_BEATS);
		if (look(k, w, every_ms, &e) == 0) {
			(void)log_spell_works(&spell, &times);
		} else {
			w->looked_ms = 0; /* nobody could give a sign of life meanwhile */
			if (log_spell_fails(&spell, clock_ms(), &times))
				log_warn("open calls cannot be looked at", "error", e.msg);
		}
	} while (keeper_rest(k, every_ms));
	free(w);
	return NULL;
}
