/*
 * boxtest.h - a real gatehouse-box for one test: in a pid and mount namespace of its own, with its own /proc and an unprivileged
 * uid, as in a sandbox, and the channel to it. Needs root. Failures end the test (assertions).
 */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "base/buf.h"
#include "sandbox/channel.h"
#include "span.h"

struct boxtest {
	char dir
	    [64]; /* holds run/ (the socket), work/ and two/ (workspace roots), work/shown/ (only to be read),
			 out/ (outside of them) */
	char socket[96], work[96];
	uid_t uid; /* of nobody else: limits on processes count by uid */
	pid_t pid; /* of the box on the host */
	int log;   /* read end of its standard output and error */
	struct channel_opts opts;
	struct channel *c;
};

struct boxtest_conf { /* zero: the default */
	uint64_t lease_ms, idle_ms;
	const char *const *env; /* ended by NULL */
	const char *check_path, *check_text;
	bool as_root;
	bool no_channel; /* do not wait for it */
	bool runsc;      /* in gVisor: boxtest_runsc() must have found it */
	bool plain;      /* a process like any other, not pid 1 */
};
void boxtest_up(struct boxtest *t, const struct boxtest_conf *conf);
void boxtest_down(struct boxtest *t);
void boxtest_redial(struct boxtest *t); /* a new channel; the old one must be closed */
const char *boxtest_runsc(void);        /* where gVisor is; NULL */
/* Become runsc with the box in it; does not return. */
_Noreturn void boxtest_exec_runsc(const struct boxtest *t, const char *box, int config, int log);
/* Everything it wrote to its log until it ended; its exit status (waitpid's). */
int boxtest_ended(struct boxtest *t, char *log, size_t size);

struct channel_wait boxtest_wait(int ms); /* from now */
/* Start; the command must start. */
struct channel_cmd *boxtest_start(struct boxtest *t, const struct channel_spec *s);
struct channel_cmd *boxtest_sh(struct boxtest *t, const char *script, int timeout_ms);
/* Everything to the exit; out and errout may be NULL. Offsets must be gapless unless gaps is set. */
struct channel_exit boxtest_finish(struct channel_cmd *k, struct buf *out, struct buf *errout, bool gaps);
struct channel_exit boxtest_run(struct boxtest *t, const char *script, int timeout_ms, struct buf *out);

/* Processes in the box's namespace besides the box itself: on the host, read from /proc. Zombies count as well. */
int boxtest_processes(const struct boxtest *t, int *zombies);
/* Wait (at most ms) until a condition holds; fails the test otherwise. */
void boxtest_until(bool (*is)(void *arg), void *arg, int ms);
int boxtest_open_fds(pid_t pid);
/* Wait until it has n open: what an exit or an answer was told before may be closed a moment after. */
void boxtest_fds_become(pid_t pid, int n);
