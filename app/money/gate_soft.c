/* gate_soft.c - what a gate tells: soft budgets that were reached, and its counters. */
#include <stdio.h>
#include <string.h>

#include "base/js.h"
#include "base/log.h"
#include "money/gate_int.h"

static void tell(const struct gate_opts *o, const struct gate_soft *s)
{
	char spent[24], soft[24];
	(void)snprintf(spent, sizeof spent, "%lld", s->spent);
	(void)snprintf(soft, sizeof soft, "%lld", s->soft);
	log_warn("soft budget reached", "org", s->org, "scope", s->scope, "period", s->period,
	    "spent_millicents", spent, "soft_millicents", soft, "run", s->run);
	if (o->on_soft != NULL)
		o->on_soft(o->arg, s);
}

void gate_tell_soft(
    const struct gate_opts *o, const char *org, const char *run, const char *session, const char *json)
{
	struct err e = { 0 };
	auto_json json_t *all = js_parse(json, strlen(json), &e);
	size_t i;
	json_t *v;
	json_array_foreach(all, i, v) {
		const struct gate_soft s = {
			.org = org,
			.run = run,
			.session = session,
			.scope = js_str_or(v, "scope", ""),
			.period = js_str_or(v, "period", ""),
			.spent = js_int(v, "spent", 0),
			.soft = js_int(v, "soft", 0),
		};
		tell(o, &s);
	}
}

void gate_metrics(struct gate *g, struct buf *out)
{
	static const char *const why[] = { "balance", "budget", "rate", "ledger_away" };
	(void)pthread_mutex_lock(&g->lock);
	size_t open = 0, queued = g->queued;
	const struct gate_call *c;
	LIST_FOREACH(c, &g->open, in_open)
	open++;
	(void)pthread_mutex_unlock(&g->lock);
	(void)buf_fmt(out,
	    "# TYPE gatehouse_money_calls_total counter\n"
	    "gatehouse_money_calls_total{end=\"settled\"} %lld\n"
	    "gatehouse_money_calls_total{end=\"again\"} %lld\n"
	    "gatehouse_money_calls_total{end=\"released\"} %lld\n"
	    "# TYPE gatehouse_money_refused_total counter\n",
	    atomic_load(&g->settled), atomic_load(&g->late), atomic_load(&g->released));
	for (size_t i = 0; i < sizeof why / sizeof why[0]; i++)
		(void)buf_fmt(out, "gatehouse_money_refused_total{reason=\"%s\"} %lld\n", why[i],
		    atomic_load(&g->refused[i]));
	(void)buf_fmt(out,
	    "# TYPE gatehouse_money_soft_budgets_total counter\ngatehouse_money_soft_budgets_total %lld\n"
	    "# TYPE gatehouse_money_calls_open gauge\ngatehouse_money_calls_open %zu\n"
	    "# TYPE gatehouse_money_calls_waiting gauge\ngatehouse_money_calls_waiting %zu\n",
	    atomic_load(&g->soft), open, queued);
}
