#include "base/log.h"

/* A change that may be told: it uses up some of what is allowed. */
static bool change(struct log_spell *s, int64_t now_ms)
{
	int64_t from = s->spent_ms > now_ms ? s->spent_ms : now_ms;
	if (from + LOG_SPELL_CHANGE_MS > now_ms + (int64_t)LOG_SPELL_BURST * LOG_SPELL_CHANGE_MS)
		return false;
	s->spent_ms = from + LOG_SPELL_CHANGE_MS;
	return true;
}

bool log_spell_fails(struct log_spell *s, int64_t now_ms, long long *times)
{
	bool tell = s->failing && s->told ? now_ms - s->told_ms >= LOG_SPELL_MS : change(s, now_ms);
	s->failing = true;
	s->untold++;
	*times = s->untold;
	if (!tell)
		return false;
	s->told = true;
	s->told_ms = now_ms;
	s->untold = 0;
	return true;
}

bool log_spell_works(struct log_spell *s, long long *times)
{
	bool tell = s->failing && s->told;
	*times = s->untold;
	s->failing = s->told = false;
	if (tell)
		s->untold = 0;
	return tell;
}
