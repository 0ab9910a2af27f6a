/*
 * pgtest.h - a private PostgreSQL for one test program: a throw-away cluster on a unix socket in a temporary
 * directory, with the schema in it, as the user postgres when we are root. Made once per build and schema,
 * then copied. It ends with the test program, however that ends. Failures end the test (assertions).
 */
#pragma once

struct pgtest;

struct pgtest *pgtest_start(void);
void pgtest_end(struct pgtest *t); /* stops the server by its pid and removes the directory */
const char *pgtest_conninfo(const struct pgtest *t);

/* Bad days: the server goes at once, comes back, hangs (every process of it is stopped), and goes on. */
void pgtest_down(struct pgtest *t);
void pgtest_up(struct pgtest *t);
void pgtest_hang(struct pgtest *t);
void pgtest_resume(struct pgtest *t);

/* Run SQL text on a connection of its own. */
void pgtest_sql(struct pgtest *t, const char *sql);
