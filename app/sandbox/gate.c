#include "sandbox/gate.h"

#include <assert.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/id.h"
#include "base/log.h"
#include "base/mem.h"
#include "io/egress_ctl.h"

enum { CALL_MS = 2000, AGAIN_MS = 250, PATH_SIZE = 108 };

struct entry {
	struct entry *next;
	char id[ID_MAX];
	struct listeners l;
	bool
	    claimed; /* of a sandbox that we know; otherwise egress gave it back and nobody has asked for it */
	bool given;  /* egress has it */
};
struct gate {
	char path[PATH_SIZE];
	pthread_mutex_t lock; /* everything below; held while egress is spoken to */
	struct entry *entries;
	int ctl;    /* -1: egress is away */
	bool known; /* what it holds has been read over this connection */
	bool said;  /* that it is away has been logged */
	bool stop;
	int wake; /* eventfd */
	pthread_t thread;
};

/* ---- entries; g->lock is held */

static struct entry *find(struct gate *g, const char *id)
{
	for (struct entry *n = g->entries; n != NULL; n = n->next)
		if (strcmp(n->id, id) == 0)
			return n;
	return NULL;
}

static struct entry *add(struct gate *g, const char *id)
{
	struct entry *n = xcalloc(1, sizeof *n);
	(void)snprintf(n->id, sizeof n->id, "%s", id);
	listeners_none(&n->l);
	n->next = g->entries;
	g->entries = n;
	return n;
}

static void drop(struct gate *g, struct entry *gone)
{
	for (struct entry **p = &g->entries; *p != NULL; p = &(*p)->next)
		if (*p == gone) {
			*p = gone->next;
			break;
		}
	listeners_close(&gone->l);
	free(gone);
}

/* ---- speaking to egress; g->lock is held */

static void wake(struct gate *g)
{
	uint64_t one = 1;
	(void)!write(g->wake, &one, sizeof one);
}

static void hang_up(struct gate *g, const struct err *why)
{
	if (g->ctl >= 0)
		(void)close(g->ctl);
	g->ctl = -1;
	g->known = false;
	for (struct entry *n = g->entries; n != NULL; n = n->next)
		n->given = false;
	if (!g->said)
		log_warn("egress is away: sandboxes reach nothing until it is back", "error", why->msg);
	g->said = true;
}

/* What broke the connection, and not just the question. */
static bool broken(const struct err *e)
{
	return e->code == ERR_UNAVAILABLE || e->code == ERR_TIMEOUT;
}

static int give(struct gate *g, struct entry *n, struct err *e)
{
	if (g->ctl < 0)
		return err_set(e, ERR_UNAVAILABLE, "The egress boundary is away: try again.");
	for (int i = 0; i < LISTENERS; i++)
		if (n->l.fd[i] >= 0 &&
		    egress_ctl_open(g->ctl, n->id, listener_names[i], n->l.fd[i], e) != 0) {
			if (broken(e) && e->reason == NULL)
				hang_up(g, e);
			return -1;
		}
	n->given = true;
	return 0;
}

static int kind_of(const char *name)
{
	for (int i = 0; i < LISTENERS; i++)
		if (strcmp(listener_names[i], name) == 0)
			return i;
	return -1;
}

static void found(void *arg, const char *id, const char *kind, int fd)
{
	struct gate *g = arg;
	auto_fd int mine = fd;
	int i = kind_of(kind);
	if (i < 0 || !id_is("sbx", id))
		return;
	struct entry *n = find(g, id);
	if (n == NULL)
		n = add(g, id);
	n->given = true;
	if (n->l.fd[i] < 0)
		n->l.fd[i] = steal_fd(&mine);
}

/* A connection, what egress holds, and then what it lacks. */
static int meet(struct gate *g, struct err *e)
{
	g->ctl = egress_ctl_dial(g->path, CALL_MS, e);
	if (g->ctl < 0 || egress_ctl_list(g->ctl, found, g, e) != 0)
		return -1;
	g->known = true;
	log_info("egress is there");
	g->said = false;
	return 0;
}

/* False: there is more to do soon. */
static bool round_(struct gate *g)
{
	struct err e = { 0 };
	if (g->ctl < 0 && meet(g, &e) != 0) {
		hang_up(g, &e);
		return false;
	}
	bool all = true;
	/* One that egress refuses (it cannot read its policy) does not keep the others from theirs. */
	for (struct entry *n = g->entries; n != NULL && g->ctl >= 0; n = n->next)
		if (!n->given) {
			err_clear(&e);
			all = give(g, n, &e) == 0 && all;
		}
	return all && g->ctl >= 0;
}

static void *keep(void *arg)
{
	struct gate *g = arg;
	for (;;) {
		uint64_t drained;
		(void)pthread_mutex_lock(&g->lock);
		bool stop = g->stop, done = stop || round_(g);
		/* No events asked for: only its end is reported. Another thread may be reading an answer. */
		struct pollfd p[2] = { { .fd = g->wake, .events = POLLIN }, { .fd = g->ctl } };
		(void)pthread_mutex_unlock(&g->lock);
		if (stop)
			return NULL;
		(void)poll(p, 2, done ? -1 : AGAIN_MS);
		(void)pthread_mutex_lock(&g->lock);
		if (p[0].revents != 0)
			(void)!read(g->wake, &drained, sizeof drained);
		if (p[1].revents != 0 && p[1].fd == g->ctl)
			hang_up(g, &(struct err){ .msg = "gatehouse-egress has ended" });
		(void)pthread_mutex_unlock(&g->lock);
	}
}

/* ---- for the fleet */

int gate_open(struct gate *g, const char *id, struct listeners *l, struct err *e)
{
	(void)pthread_mutex_lock(&g->lock);
	struct entry *n = find(g, id);
	if (n == NULL)
		n = add(g, id);
	listeners_close(&n->l);
	n->l = *l;
	n->claimed = true;
	listeners_none(l);
	int rc = give(g, n, e);
	if (rc != 0)
		wake(g); /* the thread tries again, and may be watching a connection that was hung up */
	(void)pthread_mutex_unlock(&g->lock);
	return rc;
}

bool gate_has(struct gate *g, const char *id)
{
	(void)pthread_mutex_lock(&g->lock);
	const struct entry *n = find(g, id);
	bool yes = n != NULL && n->claimed;
	(void)pthread_mutex_unlock(&g->lock);
	return yes;
}

bool gate_claim(struct gate *g, const char *id)
{
	(void)pthread_mutex_lock(&g->lock);
	struct entry *n = find(g, id);
	if (n != NULL)
		n->claimed = true;
	(void)pthread_mutex_unlock(&g->lock);
	return n != NULL;
}

bool gate_known(struct gate *g)
{
	(void)pthread_mutex_lock(&g->lock);
	bool yes = g->known;
	(void)pthread_mutex_unlock(&g->lock);
	return yes;
}

static void tell_closed(struct gate *g, const char *id)
{
	struct err e = { 0 };
	if (g->ctl >= 0 && egress_ctl_close(g->ctl, id, &e) != 0 && broken(&e)) {
		hang_up(g, &e);
		wake(g);
	}
}

void gate_close(struct gate *g, const char *id)
{
	(void)pthread_mutex_lock(&g->lock);
	struct entry *n = find(g, id);
	if (n != NULL)
		drop(g, n);
	tell_closed(g, id);
	(void)pthread_mutex_unlock(&g->lock);
}

static void judge(struct gate *g, const char *id, enum gate_verdict verdict)
{
	(void)pthread_mutex_lock(&g->lock);
	struct entry *n = find(g, id);
	if (n != NULL && !n->claimed && verdict != GATE_KEEP) {
		drop(g, n);
		if (verdict == GATE_CLOSE)
			tell_closed(g, id);
	}
	(void)pthread_mutex_unlock(&g->lock);
}

void gate_strays(struct gate *g, enum gate_verdict (*fn)(void *arg, const char *id), void *arg)
{
	char(*ids)[ID_MAX] = NULL;
	size_t n = 0;
	(void)pthread_mutex_lock(&g->lock);
	for (const struct entry *i = g->entries; i != NULL; i = i->next)
		if (!i->claimed) {
			ids = xrealloc(ids, (n + 1) * sizeof *ids);
			memcpy(ids[n++], i->id, sizeof *ids);
		}
	(void)pthread_mutex_unlock(&g->lock);
	auto_free void *owned = ids;
	for (size_t i = 0; i < n; i++)
		judge(g, ids[i], fn(arg, ids[i]));
}

/* ---- life */

struct gate *gate_start(const char *socket_path)
{
	struct gate *g = xcalloc(1, sizeof *g);
	(void)snprintf(g->path, sizeof g->path, "%s", socket_path);
	g->ctl = -1;
	(void)pthread_mutex_init(&g->lock, NULL);
	g->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	struct err e = { 0 };
	/* Once here, so that who starts after us finds egress if it is there. */
	if (meet(g, &e) != 0)
		hang_up(g, &e);
	int rc = pthread_create(&g->thread, NULL, keep, g);
	assert(g->wake >= 0 && rc == 0); /* at start there is room for one of each */
	return g;
}

void gate_stop(struct gate *g)
{
	if (g == NULL)
		return;
	(void)pthread_mutex_lock(&g->lock);
	g->stop = true;
	(void)pthread_mutex_unlock(&g->lock);
	wake(g);
	(void)pthread_join(g->thread, NULL);
	while (g->entries != NULL)
		drop(g, g->entries);
	if (g->ctl >= 0)
		(void)close(g->ctl);
	(void)close(g->wake);
	(void)pthread_mutex_destroy(&g->lock);
	free(g);
}
