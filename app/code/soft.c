#include "code/soft.h"

#include "base/js.h"
#include "base/log.h"
#include "code/runs.h"
#include "session/event.h"

enum { TAKE_MS = 2000 };

void soft_tell(void *arg, const struct gate_soft *s)
{
	struct err e = { 0 };
	auto_mem struct mem *m = mem_new();
	if (s->session == NULL && s->run == NULL)
		return;
	auto_pg struct pg *db = pg_take(arg, TAKE_MS, &e);
	auto_json json_t *run = db == NULL || s->session != NULL ? NULL : runs_get(db, s->org, s->run, &e);
	const char *session = s->session != NULL ? s->session : js_str(run, "session");
	const char *text = mem_fmt(m, "The soft budget of %s (%s) is reached: %lld of %lld millicents",
	    s->scope, s->period, s->spent, s->soft);
	if (db == NULL || session == NULL ||
	    session_step(db, s->org, session, "budget", text, NULL, NULL, &e) != 0)
		log_debug("a soft budget was not told in a session", "org", s->org, "error", e.msg);
}
