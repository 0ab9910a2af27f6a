/*
 * log.h - structured lines to standard error (RUN-2): time, level, and key=value pairs; logfmt, or JSON by setting.
 * The level and format are the module's one piece of state, set once at start (log_setup) and on SIGHUP.
 * Values pass the redactor. A function either logs or returns an error, never both.
 */
#pragma once

enum log_level { LOG_DEBUG_, LOG_INFO_, LOG_WARN_, LOG_ERROR_ };
enum log_format { LOG_LOGFMT, LOG_JSON };

void log_setup(const char *process, enum log_level least, enum log_format format);

/* log_kv(LOG_INFO_, "job claimed", "job", id, "attempt", "2", NULL): pairs of strings, ended by NULL. A NULL value is skipped. */
void log_kv(enum log_level level, const char *msg, ...) __attribute__((sentinel));
#define log_info(...)  log_kv(LOG_INFO_, __VA_ARGS__, (char *)0)
#define log_warn(...)  log_kv(LOG_WARN_, __VA_ARGS__, (char *)0)
#define log_error(...) log_kv(LOG_ERROR_, __VA_ARGS__, (char *)0)
#define log_debug(...) log_kv(LOG_DEBUG_, __VA_ARGS__, (char *)0)
