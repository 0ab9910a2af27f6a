/*
 * log.h - structured lines to standard error (RUN-2): time, level, and key=value pairs; logfmt, or JSON by setting.
 * The level and format are the module's one piece of state, set once at start (log_setup) and on SIGHUP.
 * Values pass the redactor. A function either logs or returns an error, never both.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum log_level { LOG_DEBUG_, LOG_INFO_, LOG_WARN_, LOG_ERROR_ };
enum log_format { LOG_LOGFMT, LOG_JSON };

void log_setup(const char *process, enum log_level least, enum log_format format);

/* log_kv(LOG_INFO_, "job claimed", "job", id, "attempt", "2", NULL): pairs of strings, ended by NULL. A NULL value is skipped. */
void log_kv(enum log_level level, const char *msg, ...) __attribute__((sentinel));
/*
 * What loops try again and again may fail as often: which of it is told. The first failure after a success, then one a minute,
 * and the first success after that; at most LOG_SPELL_BURST such changes at a time and one every 10 s from then on. Not for
 * several threads at once: its owner has a lock. Times are clock_ms().
 */
enum { LOG_SPELL_MS = 60000, LOG_SPELL_CHANGE_MS = 10000, LOG_SPELL_BURST = 6 };
struct log_spell {
	bool failing, told;        /* told: the failing was */
	int64_t told_ms, spent_ms; /* spent_ms: until when changes are paid for */
	long long untold;          /* failures since the last line */
};
/* Is this failure to be told? Then *times says how many there were since the last line, itself included. */
bool log_spell_fails(struct log_spell *s, int64_t now_ms, long long *times);
/* Is it to be told that it works? *times: failures that were not told. */
bool log_spell_works(struct log_spell *s, long long *times);

#define log_info(...)  log_kv(LOG_INFO_, __VA_ARGS__, (char *)0)
#define log_warn(...)  log_kv(LOG_WARN_, __VA_ARGS__, (char *)0)
#define log_error(...) log_kv(LOG_ERROR_, __VA_ARGS__, (char *)0)
#define log_debug(...) log_kv(LOG_DEBUG_, __VA_ARGS__, (char *)0)
