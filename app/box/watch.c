/*
 * watch.c - changes below a path, told as they happen (SBX-47), by inotify, which gVisor has as well.
 *
 * The queue of changes is the kernel's: while the client gives no credit nothing is read, and when the queue runs over, that is
 * told as an overflow. A tree is a watch on each directory in it; one that comes to be is watched first and read then, so what is
 * in it already is told, and what comes meanwhile at worst twice. No descriptor of the tree is kept, as the kernel tells the end of a
 * directory only when nobody holds it: to go down again the path is judged anew.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/str.h"
#include "box/path.h"
#include "box/watch_dirs.h"
#include "box/xfer.h"

enum {
	IN_BYTES = 8192,
	DENTS_BYTES = 2048,
	STEPS = 64,
	CHANGE_BYTES = 2 * LIMIT_PATH_BYTES + 32, /* the longest of one change */
	SPARE_BYTES = 4 * CHANGE_BYTES,           /* one event may be two, and two more end a frame */
	WATCHES_MAX = XFERS_MAX / 2,              /* the rest is for requests that end */
	PAUSE_MS = 20, /* between two looks: what is written all the time is told so often */
};

struct watching {
	struct xfer x;
	char base[LIMIT_PATH_BYTES]; /* the directory that is watched; a file's is the one it is in */
	char only[256];              /* "": everything in it */
	bool recursive, ready, ended;
	struct watch_dirs dirs;
	int root; /* its wd */
	/* a directory that is being read: its contents are watched, and told of */
	int scan_fd;
	int scan_wd;
	bool scan_told;
	size_t dents_at, dents_n;
	char dents[DENTS_BYTES] __attribute__((aligned(8)));
	/* what the kernel said */
	size_t in_at, in_n;
	char in[IN_BYTES] __attribute__((aligned(8)));
	struct { /* a name that went, and may come again as another */
		bool is, dir;
		int64_t since_ms;
		uint32_t cookie;
		char path[LIMIT_PATH_BYTES];
	} gone;
	bool overflow;
	bool too_many;        /* directories, before it began */
	struct proto_out out; /* changes of the frame under way */
};

static void close_watching(struct xfer *x)
{
	struct watching *w = (struct watching *)x;
	if (x->poll_fd >= 0)
		(void)close(x->poll_fd);
	if (w->scan_fd >= 0)
		(void)close(w->scan_fd);
	watch_dirs_free(&w->dirs);
}

/* ---- telling */

/* For one event, besides what is spare. */
static bool has_room(const struct watching *w)
{
	return w->out.n + SPARE_BYTES < w->out.cap;
}

static void tell(struct watching *w, enum proto_what what, bool dir, const char *path, const char *from)
{
	const struct proto_change c = { .what = (uint8_t)what, .dir = dir, .path = path, .from = from };
	proto_change_put(&w->out, &c);
}

/* The path of a name in a watched directory; false: it is not to be told, or cannot be. */
static bool path_of(struct watching *w, const char *dir, const char *name, char out[LIMIT_PATH_BYTES])
{
	if (w->only[0] != 0) {
		out[0] = 0;
		return strcmp(name, w->only) == 0;
	}
	int n = snprintf(out, LIMIT_PATH_BYTES, "%s%s%s", dir, dir[0] == 0 ? "" : "/", name);
	bool fits = n > 0 && n < LIMIT_PATH_BYTES;
	w->overflow |= !fits;
	return fits;
}

/* ---- watching */

enum {
	TOLD = IN_CREATE | IN_MODIFY | IN_ATTRIB | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO,
	OF_ROOT = TOLD | IN_DELETE_SELF | IN_MOVE_SELF,
};

/* Watch a directory: `path` from base. Its wd, or -1 with errno. */
static int watch_dir(struct box *b, struct watching *w, const char *path, uint32_t mask)
{
	struct path_at at;
	char whole[2 * LIMIT_PATH_BYTES], self[40];
	(void)snprintf(whole, sizeof whole, "%s/%s", w->base, path);
	int err = path_find(b, whole, PATH_KEEP, &at);
	int fd = err != 0 ? -1 : openat(at.dir, at.name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (err == 0 && fd < 0)
		err = errno;
	path_done(&at);
	int wd = -1;
	if (fd >= 0) {
		(void)snprintf(self, sizeof self, "/proc/self/fd/%d", fd);
		wd = inotify_add_watch(w->x.poll_fd, self, mask | IN_ONLYDIR);
		err = errno;
		(void)close(fd);
	}
	errno = err;
	return wd;
}

/* A directory below is watched and will be read. `told`: what is in it is new. */
static void add_dir(struct box *b, struct watching *w, const char *path, bool told)
{
	int wd = watch_dir(b, w, path, TOLD);
	if (wd >= 0 && watch_dirs_add(&w->dirs, wd, path, told) == 0)
		return;
	if (wd >= 0)
		(void)inotify_rm_watch(w->x.poll_fd, wd);
	/* One that is gone again, or not ours to read, is nothing to tell. */
	if (wd >= 0 || errno == ENOSPC || errno == ENOMEM || errno == EMFILE || errno == ENFILE)
		*(w->ready ? &w->overflow : &w->too_many) = true;
}

static void drop_dirs(struct watching *w, const char *path)
{
	int wd;
	while ((wd = watch_dirs_take(&w->dirs, path)) >= 0)
		(void)inotify_rm_watch(w->x.poll_fd, wd);
}

static const struct dirent64 *next_entry(struct watching *w)
{
	if (w->dents_at >= w->dents_n) {
		long n = syscall(SYS_getdents64, w->scan_fd, w->dents, sizeof w->dents);
		w->dents_at = 0;
		w->dents_n = n <= 0 ? 0 : (size_t)n;
		if (n <= 0)
			return NULL;
	}
	const struct dirent64 *d = (const struct dirent64 *)(const void *)(w->dents + w->dents_at);
	w->dents_at += d->d_reclen;
	return d;
}

/* Begin to read the next directory that waits for it. False: none does. */
static bool begin_scan(struct box *b, struct watching *w)
{
	const struct watch_dir *d = watch_dirs_waiting(&w->dirs);
	char path[2 * LIMIT_PATH_BYTES];
	if (d == NULL)
		return false;
	w->scan_wd = d->wd;
	w->scan_told = d->told;
	w->dents_at = w->dents_n = 0;
	(void)snprintf(path, sizeof path, "%s/%s", w->base, d->path);
	w->scan_fd = path_open(b, path);
	return true;
}

/* One entry of the directory that is read. */
static void scan_step(struct box *b, struct watching *w)
{
	char path[LIMIT_PATH_BYTES];
	struct stat st;
	const struct dirent64 *d = w->scan_fd < 0 ? NULL : next_entry(w);
	const struct watch_dir *dir = watch_dirs_find(&w->dirs, w->scan_wd);
	if (d == NULL || dir == NULL) { /* read, gone, or not ours to read */
		if (w->scan_fd >= 0)
			(void)close(w->scan_fd);
		w->scan_fd = w->scan_wd = -1;
		return;
	}
	if (strcmp(d->d_name, ".") == 0 || strcmp(d->d_name, "..") == 0 || fresh_is(d->d_name) != FRESH_NOT ||
	    !path_of(w, dir->path, d->d_name, path))
		return;
	bool is_dir = d->d_type == DT_DIR ||
	    (d->d_type == DT_UNKNOWN && fstatat(w->scan_fd, d->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
		S_ISDIR(st.st_mode));
	if (w->scan_told)
		tell(w, PROTO_CREATED, is_dir, path, "");
	if (is_dir)
		add_dir(b, w, path, w->scan_told);
}

/* Read what waits to be read, a little. True: there is more. */
static bool scan(struct box *b, struct watching *w)
{
	for (int i = 0; i < STEPS && has_room(w); i++) {
		if (w->scan_wd < 0 && !begin_scan(b, w))
			return false;
		scan_step(b, w);
	}
	return true;
}

/* ---- what the kernel says */

/* The name that went did not come again. */
static void settle_gone(struct watching *w)
{
	if (!w->gone.is)
		return;
	w->gone.is = false;
	if (fresh_is(w->gone.path) != FRESH_NOT)
		return;
	if (w->gone.dir && w->recursive)
		drop_dirs(w, w->gone.path);
	tell(w, PROTO_REMOVED, w->gone.dir, w->gone.path, "");
}

static void came(struct box *b, struct watching *w, const char *path, bool dir)
{
	bool pair = w->gone.is; /* with this cookie */
	w->gone.is = false;
	enum fresh fresh = pair ? fresh_is(w->gone.path) : FRESH_NOT;
	if (fresh != FRESH_NOT) { /* a file that was written by a request */
		tell(w, fresh == FRESH_REPLACES ? PROTO_WRITTEN : PROTO_CREATED, dir, path, "");
		return;
	}
	tell(w, pair ? PROTO_RENAMED : PROTO_CREATED, dir, path, pair ? w->gone.path : "");
	if (!dir || !w->recursive)
		return;
	if (!pair)
		add_dir(b, w, path, true);
	else if (watch_dirs_rename(&w->dirs, w->gone.path, path) != 0)
		w->overflow = true;
}

/* A directory that a request is removing has been put aside: it is told of when it is gone, what is in it as that goes. */
static void put_aside(struct watching *w)
{
	if (w->gone.is)
		watch_dirs_aside(&w->dirs, w->gone.path);
	w->gone.is = false;
}

static void went(struct watching *w, const struct inotify_event *ev, const char *path, bool dir)
{
	w->gone.is = true;
	w->gone.dir = dir;
	w->gone.cookie = ev->cookie;
	w->gone.since_ms = clock_ms();
	(void)snprintf(w->gone.path, sizeof w->gone.path, "%s", path);
}

/* Writes in a row are told once for each frame. */
static void told_once(struct watching *w, enum proto_what what, bool dir, const char *path)
{
	struct proto_out before = w->out;
	tell(w, what, dir, path, "");
	size_t n = w->out.n - before.n;
	if (before.n >= n && memcmp(w->out.p + before.n, w->out.p + before.n - n, n) == 0)
		w->out = before;
}

static void named(struct box *b, struct watching *w, const struct inotify_event *ev, const char *dir_path)
{
	char path[LIMIT_PATH_BYTES];
	bool dir = (ev->mask & IN_ISDIR) != 0;
	enum fresh fresh = fresh_is(ev->name);
	/* What a request uses on its way is not told of by its own name. */
	if (fresh == FRESH_ASIDE && (ev->mask & IN_MOVED_TO) != 0)
		put_aside(w);
	if (fresh != FRESH_NOT && (ev->mask & IN_MOVED_FROM) == 0)
		return;
	if (fresh != FRESH_NOT)
		(void)snprintf(path, sizeof path, "%.255s", ev->name);
	else if (!path_of(w, dir_path, ev->name, path))
		return;
	if ((ev->mask & IN_MOVED_FROM) != 0) {
		went(w, ev, path, dir);
	} else if ((ev->mask & IN_MOVED_TO) != 0) {
		came(b, w, path, dir);
	} else {
		if ((ev->mask & IN_CREATE) != 0)
			tell(w, PROTO_CREATED, dir, path, "");
		else if ((ev->mask & IN_DELETE) != 0)
			tell(w, PROTO_REMOVED, dir, path, "");
		else
			told_once(w, (ev->mask & IN_MODIFY) != 0 ? PROTO_WRITTEN : PROTO_CHMOD, dir, path);
		if ((ev->mask & IN_CREATE) != 0 && dir && w->recursive)
			add_dir(b, w, path, true);
	}
}

static void happened(struct box *b, struct watching *w, const struct inotify_event *ev)
{
	/* A directory that went takes those below it along, so this comes first. */
	if ((ev->mask & IN_MOVED_TO) == 0 || ev->cookie != w->gone.cookie)
		settle_gone(w);
	const struct watch_dir *d = watch_dirs_find(&w->dirs, ev->wd);
	if ((ev->mask & IN_Q_OVERFLOW) != 0) {
		w->overflow = true;
		if (w->recursive)
			watch_dirs_again(&w->dirs); /* directories may have come unseen */
	} else if (d == NULL) {
		return; /* of a directory that was given up meanwhile */
	} else if (ev->wd == w->root &&
	    (ev->mask & (IN_DELETE_SELF | IN_MOVE_SELF | IN_IGNORED | IN_UNMOUNT)) != 0) {
		w->ended = true;
	} else if ((ev->mask & IN_IGNORED) != 0) {
		if (d->aside)
			tell(w, PROTO_REMOVED, true, d->path, "");
		watch_dirs_drop(&w->dirs, ev->wd);
	} else if (ev->len > 0) {
		named(b, w, ev, d->path);
	}
}

/* Take what the kernel has for us, as much as the frame holds. True: there may be more. */
static bool take_events(struct box *b, struct watching *w)
{
	while (!w->ended && has_room(w)) {
		if (w->in_at >= w->in_n) {
			ssize_t n = read(w->x.poll_fd, w->in, sizeof w->in);
			w->in_at = 0;
			w->in_n = n <= 0 ? 0 : (size_t)n;
			if (n <= 0)
				return false;
		}
		const struct inotify_event *ev = (const struct inotify_event *)(const void *)(w->in +
		    w->in_at);
		w->in_at += sizeof *ev + ev->len;
		happened(b, w, ev);
	}
	return true;
}

/* ---- the request */

static bool send(struct box *b, struct watching *w)
{
	if (w->out.n == 0)
		return false;
	say(b, PROTO_CHANGES, w->x.id, w->out.p, w->out.n);
	w->x.credit -= w->out.n;
	return true;
}

/* What a frame ends with. */
static void last_words(struct watching *w, int64_t now)
{
	if (w->gone.is && now - w->gone.since_ms >= PAUSE_MS)
		settle_gone(w); /* it had its time to come again */
	/* Who is told and looks then has seen everything that is not told from here on. */
	if (w->overflow && w->ready && w->scan_wd < 0 && !watch_dirs_wait(&w->dirs)) {
		tell(w, PROTO_OVERFLOW, false, "", "");
		w->overflow = false;
	}
	if (w->ended)
		tell(w, PROTO_REMOVED, w->only[0] == 0, "", "");
}

static bool pump_watching(struct box *b, struct xfer *x)
{
	static unsigned char piece[PROTO_DATA_MAX];
	struct watching *w = (struct watching *)x;
	int64_t now = clock_ms();
	if (now < x->due_ms || !xfer_wants(b, x))
		return false;
	w->out = (struct proto_out){ .p = piece,
		.cap = x->credit < sizeof piece ? (size_t)x->credit : sizeof piece };
	bool more = scan(b, w);
	if (w->too_many) {
		say_error(b, x->id, PROTO_TOO_LARGE,
		    "There are more directories than can be watched: watch a part of them.");
		xfer_close(b, x);
		return true;
	}
	if (!more && !w->ready) {
		tell(w, PROTO_WATCHED, false, "", "");
		w->ready = true;
	}
	bool quiet = !more && !take_events(b, w);
	last_words(w, now);
	bool sent = send(b, w);
	if (w->ended) {
		xfer_done(b, x);
		return true;
	}
	quiet = quiet && !watch_dirs_wait(&w->dirs);
	x->due_ms = quiet && (sent || w->gone.is) ? now + PAUSE_MS : 0;
	return !quiet;
}

static const struct xfer_kind watching = {
	.pump = pump_watching, .close = close_watching, .least = SPARE_BYTES + 2 * CHANGE_BYTES
};

/* 0, or an errno. */
static int begin(struct box *b, struct watching *w, const char *path)
{
	struct path_at at;
	struct stat st;
	w->x.poll_fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
	if (w->x.poll_fd < 0)
		return errno;
	int err = path_find(b, path, 0, &at);
	if (err == 0 && fstatat(at.dir, at.name, &st, AT_SYMLINK_NOFOLLOW) != 0)
		err = errno;
	path_done(&at);
	if (err != 0)
		return err;
	(void)snprintf(w->base, sizeof w->base, "%s", at.path);
	if (!S_ISDIR(st.st_mode)) { /* by its name: files are replaced, and then are others */
		(void)snprintf(w->only, sizeof w->only, "%s", at.name);
		w->base[strlen(w->base) - strlen(at.name) - 1] = 0;
		w->recursive = false;
	}
	w->root = watch_dir(b, w, "", OF_ROOT);
	if (w->root < 0)
		return errno;
	return watch_dirs_add(&w->dirs, w->root, "", false);
}

static int watches(const struct box *b)
{
	int n = 0;
	for (const struct xfer *x = b->xfers; x != NULL; x = x->next)
		n += x->kind == &watching;
	return n;
}

void file_watch(struct box *b, uint32_t id, const char *path, bool recursive, uint64_t credit)
{
	if (watches(b) >= WATCHES_MAX) {
		say_error(
		    b, id, PROTO_NO_ROOM, "The sandbox is watched too often already: end other watches.");
		return;
	}
	struct watching *w = xfer_add(b, id, &watching, sizeof *w);
	if (w == NULL)
		return;
	w->recursive = recursive;
	w->scan_fd = w->scan_wd = -1;
	w->x.credit = credit;
	int err = begin(b, w, path);
	if (err == ENOSPC || err == EMFILE || err == ENFILE) {
		say_error(b, id, PROTO_NO_ROOM,
		    "The host's limit on watches is reached: end others, or try again.");
		xfer_close(b, &w->x);
	} else if (err != 0) {
		xfer_fail(b, &w->x, err, NULL);
	} else if (!w->recursive) {
		watch_dirs_read(&w->dirs, w->root);
	}
}
