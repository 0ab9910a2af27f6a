/*
 * box.h - inside gatehouse-box: one thread, one poll loop, one struct box that everything hangs on.
 *
 * The box is pid 1 of a sandbox. It must survive whatever its sandbox does: no allocation here ends the process (so the
 * aborting allocators of the base layer are not used), a failure is told to whoever asked and the loop goes on.
 */
#pragma once

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "box/proto.h"
#include "box/ring.h"

enum {
	GRACE_MS = 500,      /* after the leader's death: this long without output ends the waiting for EOF */
	GRACE_MAX_MS = 2000, /* and this long in any case */
	STALL_MS = 5000,     /* a live reader that stands still this long no longer holds its command back */
	ESCAPE_MS = 5000,    /* a tree not dead by then is reported as escaped */
	HELLO_MS = 3000,     /* a connection must prove itself within this */
	HOLD_MS = 30000,     /* a held command is given up when no GO comes */
	CONNS_MAX = 4,
	SUBS_MAX = 256,
	XFERS_MAX = 32,
	STOPS_MAX = 64,
	FEEDS_MAX = 64,        /* writes to standard inputs that wait, PROTO_DATA_MAX each */
	KEEP_BYTES = 16 << 20, /* output held of finished commands */
	OUT_SOFT = 4 *
	    PROTO_DATA_MAX, /* output and files are not added to a connection that holds this much unsent */
	OUT_HARD = 4 << 20, /* a client that does not read its replies is hung up on */
};

struct conn {
	int fd;           /* -1: unused */
	bool client;      /* said the right hello */
	bool closing;     /* hang up once the rest is written */
	uint32_t version; /* of the protocol, agreed on with the client */
	int64_t since_ms;
	unsigned char *in, *out;
	size_t in_n, in_cap, out_at, out_n, out_cap;
};

enum cmd_state {
	CMD_FEEDING, /* its standard input is arriving */
	CMD_FORKED,  /* the keeper was started, the leader's pid is not known yet */
	CMD_HELD,    /* the leader waits for GO */
	CMD_RUNNING,
	CMD_ENDED, /* the exit is settled; processes it left behind may live on */
};
struct cmd {
	struct cmd *next;
	uint32_t id;
	enum cmd_state state;
	bool unheard; /* who started it has hung up: its id means nothing to the client there is now */
	bool dropped; /* its output is gone, nobody can ask for it; kept for the processes it left behind */
	char label[PROTO_LABEL_MAX];
	unsigned char *start; /* copy of START's payload until it is started */
	size_t start_n;
	bool hold;
	uint64_t timeout_ms;
	int in_fd; /* fed standard input: an anonymous file; -1 */
	size_t in_n;
	int stdin_fd; /* our end of a standard input that is written to while it runs; -1 */
	bool pty;     /* that is the master of its terminal, and fd[0] is, too */
	enum proto_in_state in_state;
	uint64_t in_taken; /* bytes of it */
	char *args, *dir;  /* what is told of its arguments and directory (PROTO_TOLD_MAX); NULL: nothing */
	uint32_t n_args;
	bool told_cut;
	pid_t keeper, leader; /* 0: none, or gone */
	pid_t pid;            /* the leader's, to be told */
	uint64_t mark;        /* see tree.h */
	int report_fd, go_fd; /* -1 */
	int fd[2];            /* read ends of stdout and stderr; -1: at their end */
	struct ring out[2];
	uint64_t due[2]; /* offsets up to which its leader may have written, known at its death */
	int64_t forked_ms, deadline_ms; /* 0: not yet, or none */
	int64_t dead_ms, data_ms;       /* since when its end is awaited; when output came last */
	int64_t took_ms;                /* from the fork to the leader's end */
	int64_t kill_ms;                /* when its killing began */
	int alive, empty;               /* processes of it in the last walk; walks in a row that found none */
	bool leader_dead;
	uint8_t how, flags;
	uint32_t code;
	int exec_errno;
	char message[PROTO_MESSAGE_MAX];
};

struct sub {
	struct sub *next;
	uint32_t id;
	struct cmd *cmd;
	uint8_t streams;
	bool live, lossy; /* lossy: stood still too long; again live once it has caught up */
	uint64_t at[2];
	uint64_t credit;
	int64_t blocked_ms; /* since when it alone keeps its command from being read; 0: it does not */
};

struct stop {
	struct stop *next;
	uint32_t id, cmd; /* cmd 0: everything */
	uint32_t count;
	int64_t since_ms;
};

struct feed; /* input.c */
struct xfer; /* xfer.h */

struct root {
	char *path;
	size_t n;
	int fd;
	bool ro; /* never written to by a file request */
};

struct box {
	struct proto_config conf; /* strings live in conf_mem for good, without the nonce */
	unsigned char *conf_mem;
	unsigned char
	    *nonce; /* PROTO_NONCE bytes on a page that children do not get (MADV_WIPEONFORK, and wiped) */
	struct root roots[2 * PROTO_ROOTS_MAX];
	int n_roots;
	int listen_fd;
	int64_t listen_again_ms; /* accept failed for want of descriptors: not before */
	int64_t end_ms, idle_since_ms;
	uint32_t last_id;
	bool subreaper; /* orphans go to their keeper (Linux); otherwise to us (gVisor) */
	bool init;      /* pid 1 */
	bool old;       /* stop what forgotten commands left behind, too (gVisor) */
	bool strays;    /* look for processes that nobody keeps */
	bool ending;
	int64_t next_kill_ms; /* 0: nothing is being killed */
	pid_t kill_max;       /* the highest pid that the last round killed; 0: there was none */
	struct conn conns[CONNS_MAX];
	struct conn *client; /* NULL: none */
	struct cmd *cmds;    /* in order of their ids */
	struct sub *subs;
	struct stop *stops;
	struct feed *feeds;
	struct xfer *xfers;
	int n_subs, n_stops, n_feeds, n_xfers;
};

/* ---- conn.c */
void conn_accept(struct box *b);
void conn_read(struct box *b, struct conn *c);
void conn_write(struct box *b, struct conn *c);
void conn_close(struct box *b, struct conn *c);
void conn_expire(struct box *b, int64_t now);
/* Queue a frame for the client; without one, or when it cannot be queued (then the client is hung up on), it is lost. */
void say(struct box *b, uint8_t type, uint32_t id, const void *p, size_t n);
void say_done(struct box *b, uint32_t id, uint64_t value);
void say_error(struct box *b, uint32_t id, enum proto_fault fault, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* Room for a frame with data in the client's buffer: where n bytes of payload go, or NULL when it is full for now. */
unsigned char *say_room(struct box *b, uint8_t type, uint32_t id, size_t n);
/* What an errno of a request becomes. */
enum proto_fault fault_of(int err);

/* ---- serve.c: one request frame; false: the frame is wrong, hang up */
bool serve(struct box *b, const struct proto_head *h, const unsigned char *p);
/* The client is gone: forget what only it wanted. */
void serve_hangup(struct box *b);

/* ---- cmd.c */
struct cmd *cmd_any(struct box *b, uint32_t id);
struct cmd *cmd_find(struct box *b, uint32_t id); /* one that can still be asked about; NULL */
void cmd_start(struct box *b, uint32_t id, const unsigned char *p, size_t n, const struct proto_start *s);
void cmd_feed(struct box *b, struct cmd *c, const unsigned char *p, size_t n);
void cmd_go(struct box *b, struct cmd *c);
void cmd_report(struct box *b, struct cmd *c);          /* the report pipe has something */
void cmd_read(struct box *b, struct cmd *c, int s);     /* stream s (0, 1) has something */
bool cmd_readable(struct box *b, struct cmd *c, int s); /* its output should be asked for */
void cmd_reaped(struct box *b, pid_t pid, int status);
bool cmd_is_keeper(const struct box *b, pid_t pid);
void cmd_hangup(struct box *b);            /* the client is gone */
void cmd_tick(struct box *b, int64_t now); /* time-outs, graces, ends */
int64_t cmd_next_ms(struct box *b);        /* when cmd_tick has something to do; INT64_MAX */
void cmd_fill_exit(const struct cmd *c, struct proto_exit *x);
void cmd_forget(struct box *b, struct cmd *c); /* one that was never started */
int cmd_live(const struct box *b);             /* not ended */

/* ---- stop.c: killing trees, and who waits for it */
void stop_hangup(struct box *b);                             /* nobody waits any more */
void kill_begin(struct box *b, struct cmd *c, uint8_t flag); /* flag: PROTO_TIMED_OUT or PROTO_STOPPED */
void kill_tick(struct box *b, int64_t now);
void stop_request(struct box *b, uint32_t id, uint32_t cmd);
void stop_tick(struct box *b, int64_t now);
/* Answer `id` with `count` once cmd (0: all) is gone. False: too many wait already, which was said. */
bool stop_await(struct box *b, uint32_t id, uint32_t cmd, uint32_t count);

/* ---- signal.c */
void signal_request(struct box *b, uint32_t id, const struct proto_signal *s);

/* ---- input.c: standard input that is written to while its command runs (SBX-46) */
void input_write(struct box *b, uint32_t id, const struct proto_input *s, const unsigned char *p, size_t n);
/* Its pipe takes something again, or nobody reads it any more. */
void input_ready(struct box *b, struct cmd *c);
bool input_waits(const struct box *b, const struct cmd *c); /* for room in the pipe */
bool input_cancel(struct box *b, uint32_t id);              /* answers what was taken; false: there is none */
/* No more will be taken: who waits is told why. */
void input_end(struct box *b, struct cmd *c, enum proto_in_state state);
void input_hangup(struct box *b); /* nobody waits any more */

/* ---- pty.c */
/* Its terminal: the slave's descriptor, or -1 with errno. The master is c->stdin_fd then. */
int pty_open(struct cmd *c, uint16_t cols, uint16_t rows);
void pty_resize(struct box *b, uint32_t id, const struct proto_resize *s);

/* ---- spawn.c */
/* Fork keeper and leader. 0, or an errno: nothing was started. */
int spawn(struct box *b, struct cmd *c, const struct proto_start *s, int dir_fd, int in_fd);
struct report { /* what keeper and leader write, whole, into the report pipe */
	uint32_t what;
	int32_t value;
};
enum { REPORT_PID = 1, REPORT_NO_FORK, REPORT_NO_EXEC, REPORT_EXIT };
bool spawn_subreaper_works(void);

/* ---- sub.c */
void sub_open(struct box *b, uint32_t id, const struct proto_sub *s);
struct sub *sub_find(struct box *b, uint32_t id);
void sub_close(struct box *b, struct sub *s);
void sub_drop(struct box *b, struct cmd *c); /* its output is being dropped */
/* The offset from which stream s of c must be kept for live readers; UINT64_MAX: nobody minds. */
uint64_t sub_floor(struct box *b, const struct cmd *c, int s);
bool sub_pump(struct box *b); /* send what credit and buffer allow; true when something was queued */
void sub_tick(struct box *b, int64_t now);
int64_t sub_next_ms(struct box *b);

/* ---- file.c, look.c, change.c, pack.c, unpack.c, watch.c: requests about files, answered at once or by an xfer */
void file_read(
    struct box *b, uint32_t id, const char *path, uint64_t offset, uint64_t length, uint64_t credit);
void file_write(struct box *b, uint32_t id, const char *path, uint32_t mode);
void file_look(struct box *b, uint32_t id, const struct proto_look *l);
void file_mkdir(struct box *b, uint32_t id, const char *path, uint32_t mode);
void file_move(struct box *b, uint32_t id, const char *from, const char *to, bool replace);
void file_remove(struct box *b, uint32_t id, const char *path, bool tree);
void file_pack(struct box *b, uint32_t id, const char *path, uint64_t credit);
void file_unpack(struct box *b, uint32_t id, const char *path);
void file_watch(struct box *b, uint32_t id, const char *path, bool recursive, uint64_t credit);

/* ---- xfer.c */
struct xfer *xfer_find(struct box *b, uint32_t id);
void xfer_data(struct box *b, struct xfer *x, const unsigned char *p, size_t n);
void xfer_credit(struct xfer *x, uint32_t n);
void xfer_close(struct box *b, struct xfer *x); /* an unfinished write leaves nothing */
bool xfer_pump(struct box *b);
/* All of them, one after the other: x NULL gives the first, NULL is the end. */
const struct xfer *xfer_after(const struct box *b, const struct xfer *x);
/* What to poll for it, for reading; -1: nothing. The next pump finds out what there is. */
int xfer_poll(const struct box *b, const struct xfer *x, int64_t now);
int64_t xfer_next_ms(const struct box *b); /* when a pump has something to do; INT64_MAX */

/* ---- loop.c */
void box_run(struct box *b);
