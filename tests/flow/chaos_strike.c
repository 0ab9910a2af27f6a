/* chaos_strike.c - whom chaos.h kills, when, and how it comes back. */
#include "../t.h"

#include "chaos.h"

#include <dirent.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/str.h"
#include "io/file.h"

enum {
	GAP_MIN = 6,
	GAP_SPAN = 20, /* events between two kills */
	BACK_MS = 100,
	BACK_LATE = 2500, /* what died comes back soon, one in four times late */
	TICK_MS = 5,
	LOOK_MS = 250,
	SLOTS = 16,
	PIDS_MAX = 256,
};

const char *const chaos_part_names[CHAOS_PARTS] = { "postgres", "backend", "nginx", "worker", "api", "runner",
	"sandboxd", "egress", "box" };
/* How often of 32. */
static const int weights[CHAOS_PARTS] = { 3, 3, 2, 3, 6, 6, 5, 2, 2 };

struct strike {
	int at; /* events seen */
	enum chaos_part part;
	int which, back_ms;
};

struct slot { /* a part that is started and ended by itself */
	char name[24];
	int64_t back_at; /* 0: it runs */
};
struct director {
	struct chaos *c;
	struct slot slots[SLOTS];
	int n;
	unsigned long long state;
	struct strike next;
};

unsigned long long chaos_next(unsigned long long *state)
{
	unsigned long long z = *state += 0x9e3779b97f4a7c15ULL;
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
	return z ^ (z >> 31);
}

/* The seed alone decides what comes next and after how many events. */
static void plan(struct director *d)
{
	int gap = GAP_MIN + (int)(chaos_next(&d->state) % GAP_SPAN), w = (int)(chaos_next(&d->state) % 32),
	    part = 0;
	while (w >= weights[part])
		w -= weights[part++];
	d->next.at += gap;
	d->next.part = (enum chaos_part)part;
	d->next.which = (int)(chaos_next(&d->state) % 1000);
	bool late = chaos_next(&d->state) % 4 == 0;
	d->next.back_ms = late ? BACK_LATE : BACK_MS;
}

/* ---- looking at processes */

static bool read_proc(const char *pid, const char *file, struct buf *b)
{
	char path[300];
	struct err e = { 0 };
	(void)snprintf(path, sizeof path, "/proc/%s/%s", pid, file);
	return file_read(path, b, &e) == 0;
}

/* From the pid file, "PID STARTTIME": 0 when that process is gone. */
static pid_t living(const struct chaos *c, const char *part)
{
	char path[128], pid[16];
	auto_buf struct buf file = BUF(128), stat = BUF(4096);
	struct err e = { 0 };
	(void)snprintf(path, sizeof path, "%s/pid/%s", c->stack.dir, part);
	if (file_read(path, &file, &e) != 0)
		return 0;
	long long want = 0;
	char *rest = NULL;
	long n = strtol(buf_c(&file), &rest, 10);
	want = strtoll(rest, NULL, 10);
	(void)snprintf(pid, sizeof pid, "%ld", n);
	if (n <= 0 || !read_proc(pid, "stat", &stat))
		return 0;
	const char *at = strrchr(buf_c(&stat), ')');
	if (at == NULL || str_starts(at, ") Z"))
		return 0;
	for (int i = 0; i < 20 && at != NULL; i++) /* field 22, counted from the state, 3 */
		at = strchr(at + 1, ' ');
	return at != NULL && strtoll(at + 1, NULL, 10) == want ? (pid_t)n : 0;
}

static int children(pid_t parent, pid_t out[PIDS_MAX])
{
	char self[16];
	auto_buf struct buf list = BUF(65536);
	int n = 0;
	(void)snprintf(self, sizeof self, "%d", (int)parent);
	char file[48];
	(void)snprintf(file, sizeof file, "task/%s/children", self);
	if (!read_proc(self, file, &list))
		return 0;
	struct str rest = { list.p, list.n }, word;
	while (n < PIDS_MAX && str_cut(&rest, ' ', &word))
		if (word.n > 0)
			out[n++] = (pid_t)strtol(word.p, NULL, 10);
	return n;
}

/* "sbx_…" of a control group's path, or false. */
static bool sandbox_of(const char *cgroup, const char *instance, char id[ID_MAX])
{
	const char *ours = strstr(cgroup, instance), *at = ours == NULL ? NULL : strstr(ours, "sbx_");
	if (at == NULL)
		return false;
	(void)snprintf(id, ID_MAX, "%.*s", (int)strcspn(at, "/\n"), at);
	return true;
}

struct box {
	pid_t pid;
	char id[ID_MAX];
};

static int by_id(const void *a, const void *b)
{
	return strcmp(((const struct box *)a)->id, ((const struct box *)b)->id);
}

/* Processes 1 of this stack's sandboxes, in the order of their ids. */
static int boxes(const struct chaos *c, struct box out[PIDS_MAX])
{
	char instance[64];
	int n = 0;
	stack_instance(&c->stack, instance);
	DIR *d = opendir("/proc");
	assert_non_null(d);
	for (const struct dirent *f; n < PIDS_MAX && (f = readdir(d)) != NULL;) {
		auto_buf struct buf cgroup = BUF(65536), status = BUF(65536);
		if (!str_only(f->d_name, "0123456789") || !read_proc(f->d_name, "cgroup", &cgroup) ||
		    !sandbox_of(buf_c(&cgroup), instance, out[n].id) ||
		    !read_proc(f->d_name, "status", &status) || strstr(buf_c(&status), "\t1\nNSpgid") == NULL)
			continue;
		out[n++].pid = (pid_t)strtol(f->d_name, NULL, 10);
	}
	(void)closedir(d);
	qsort(out, (size_t)n, sizeof out[0], by_id);
	return n;
}

/* ---- killing */

static struct slot *slot_of(struct director *d, const char *kind, int which)
{
	struct slot *found[SLOTS];
	int n = 0;
	for (int i = 0; i < d->n; i++)
		if (str_starts(d->slots[i].name, kind))
			found[n++] = &d->slots[i];
	return n == 0 ? NULL : found[which % n];
}

/* PostgreSQL with its backends, as its unit's control group is cleared. Of the others only the process itself: what it had
 * started must end without a supervisor's help, or be a sandbox. */
static bool kill_part(struct director *d, const char *kind, int which, int back_ms)
{
	pid_t below[PIDS_MAX];
	struct slot *s = slot_of(d, kind, which);
	pid_t pid = s == NULL || s->back_at != 0 ? 0 : living(d->c, s->name);
	if (pid == 0)
		return false;
	int n = strcmp(kind, "pg") == 0 ? children(pid, below) : 0;
	(void)kill(pid, SIGKILL);
	for (int i = 0; i < n; i++)
		(void)kill(below[i], SIGKILL);
	s->back_at = clock_ms() + back_ms;
	return true;
}

/* A child of it, which it must replace itself. */
static bool kill_child(struct director *d, const char *kind, int which)
{
	pid_t below[PIDS_MAX];
	struct slot *s = slot_of(d, kind, 0);
	int n = s == NULL || s->back_at != 0 ? 0 : children(living(d->c, s->name), below);
	return n > 0 && kill(below[which % n], SIGKILL) == 0;
}

static bool kill_box(struct director *d, int which)
{
	struct chaos *c = d->c;
	struct box *all = xcalloc(PIDS_MAX, sizeof *all);
	int n = boxes(c, all);
	bool done = n > 0 && c->n_boxes < CHAOS_BOXES_MAX;
	if (done) {
		memcpy(c->boxes[c->n_boxes++], all[which % n].id, ID_MAX);
		(void)kill(all[which % n].pid, SIGKILL);
	}
	free(all);
	return done;
}

static void strike(struct director *d)
{
	const struct strike *k = &d->next;
	bool hit = k->part == AT_BACKEND ? kill_child(d, "pg", k->which)
	    : k->part == AT_WORKER       ? kill_child(d, "nginx", k->which)
	    : k->part == AT_BOX          ? kill_box(d, k->which)
					 : kill_part(d,
                                      k->part == AT_PG           ? "pg"
						   : k->part == AT_NGINX  ? "nginx"
						   : k->part == AT_API    ? "api"
						   : k->part == AT_RUNNER ? "runner"
						   : k->part == AT_EGRESS ? "egress"
									  : "node",
					       k->which, k->back_ms);
	if (hit)
		d->c->kills[k->part]++;
	else
		d->c->missed++;
	if (getenv("CHAOS_VERBOSE") != NULL)
		print_message(
		    "%5d %-9s %d%s\n", k->at, chaos_part_names[k->part], k->which, hit ? "" : " (away)");
}

/* ---- bringing back */

static void bring_back(struct director *d, bool all)
{
	for (int i = 0; i < d->n; i++) {
		struct slot *s = &d->slots[i];
		if (s->back_at == 0 || (!all && clock_ms() < s->back_at))
			continue;
		stack_start(&d->c->stack, s->name);
		s->back_at = 0;
	}
}

static void say_end(const struct chaos *c, const char *part)
{
	char path[128];
	auto_buf struct buf log = BUF(256 << 20);
	struct err e = { 0 };
	(void)snprintf(path, sizeof path, "%s/log/%s.log", c->stack.dir, part);
	(void)file_read(path, &log, &e);
	print_message("%s ended by itself: %s\n", part, buf_c(&log) + (log.n > 1000 ? log.n - 1000 : 0));
}

/* Nobody may end by itself; whoever does comes back, and is counted. */
static void look(struct director *d)
{
	for (int i = 0; i < d->n; i++) {
		struct slot *s = &d->slots[i];
		if (s->back_at != 0 || living(d->c, s->name) != 0)
			continue;
		say_end(d->c, s->name);
		d->c->exits++;
		s->back_at = clock_ms() + BACK_MS;
	}
}

static void name_slots(struct director *d)
{
	const struct stack *s = &d->c->stack;
	const struct {
		const char *kind;
		int n;
	} kinds[] = { { "api", s->apis }, { "runner", s->runners }, { "node", s->nodes },
		{ "egress", s->nodes } };
	(void)snprintf(d->slots[d->n++].name, sizeof d->slots[0].name, "pg");
	(void)snprintf(d->slots[d->n++].name, sizeof d->slots[0].name, "nginx");
	for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++)
		for (int i = 1; i <= kinds[k].n; i++)
			(void)snprintf(
			    d->slots[d->n++].name, sizeof d->slots[0].name, "%s%d", kinds[k].kind, i);
}

void chaos_direct(struct chaos *c)
{
	struct director d = { .c = c, .state = c->seed };
	int64_t looked = 0;
	name_slots(&d);
	plan(&d);
	while (atomic_load(&c->living) > 0) {
		while (atomic_load(&c->events) >= d.next.at) {
			strike(&d);
			plan(&d);
		}
		bring_back(&d, false);
		if (clock_ms() - looked > LOOK_MS) {
			look(&d);
			looked = clock_ms();
		}
		(void)poll(NULL, 0, TICK_MS);
	}
	bring_back(&d, true);
}
