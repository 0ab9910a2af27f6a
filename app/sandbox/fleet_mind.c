/* fleet_mind.c - commands that nobody follows: how they ended, and what is left to do after it (SBX-41, SBX-46). */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "sandbox/fleet_int.h"

enum { LIST_MS = 1000 };

/* ---- marks; f->lock is held */

static struct mark *mark_of(const struct box *b, const char *cmd)
{
	for (int i = 0; b->marks != NULL && i < MARKS_MAX; i++)
		if (strcmp(b->marks[i].cmd, cmd) == 0)
			return &b->marks[i];
	return NULL;
}

static struct mark *mark_new(struct box *b, const char *cmd, long long oom_before)
{
	if (b->marks == NULL)
		b->marks = xcalloc(MARKS_MAX, sizeof *b->marks);
	struct mark *m = &b->marks[b->next_mark % MARKS_MAX];
	*m = (struct mark){ .number = b->next_mark++, .oom_before = oom_before };
	(void)snprintf(m->cmd, sizeof m->cmd, "%s", cmd);
	return m;
}

void held_began(struct held *h, const char *cmd, long long oom_kills)
{
	(void)pthread_mutex_lock(&h->f->lock);
	(void)mark_new(h->box, cmd, oom_kills);
	(void)pthread_mutex_unlock(&h->f->lock);
}

int held_oom(struct held *h, const char *cmd, bool ended)
{
	long long now = held_oom_kills(h);
	(void)pthread_mutex_lock(&h->f->lock);
	struct mark *m = mark_of(h->box, cmd);
	int oom = m == NULL || m->oom_before < 0 ? -1 : m->over ? m->oom : now > m->oom_before;
	if (m != NULL && ended && !m->over) {
		m->oom = oom == 1;
		m->over = true;
	}
	(void)pthread_mutex_unlock(&h->f->lock);
	return oom;
}

/* ---- looking */

/* A command of the list. The first look of a process finds what ended, and what runs, before it. */
static void look_at(struct held *h, const struct channel_item *t)
{
	const struct channel_exit *x = &t->exit;
	(void)pthread_mutex_lock(&h->f->lock);
	struct mark *m = mark_of(h->box, t->label);
	if (m == NULL)
		m = mark_new(h->box, t->label, -1);
	bool swept = m->swept;
	(void)pthread_mutex_unlock(&h->f->lock);
	if (t->running)
		return;
	if (!swept && (x->timed_out || x->stopped))
		held_sweep(h, t->label);
	if (!swept && x->escaped)
		held_condemn(h, "A command of the sandbox could not be stopped, so the sandbox was ended.");
	(void)held_oom(h, t->label, true);
	(void)pthread_mutex_lock(&h->f->lock);
	m = mark_of(h->box, t->label);
	if (m != NULL) /* as many have begun since as are remembered */
		m->swept = true;
	(void)pthread_mutex_unlock(&h->f->lock);
}

/* What began before the box was asked, and is not told of any more, has ended. */
static void forget(struct held *h, const struct channel_item *items, int n, unsigned asked)
{
	(void)pthread_mutex_lock(&h->f->lock);
	for (int i = 0; h->box->marks != NULL && i < MARKS_MAX; i++) {
		struct mark *m = &h->box->marks[i];
		bool told = m->cmd[0] == '\0' || (int)(m->number - asked) >= 0;
		for (int k = 0; k < n && !told; k++)
			told = strcmp(items[k].label, m->cmd) == 0;
		m->swept = m->swept || !told;
		m->over = m->over || !told;
	}
	h->box->minded = true;
	(void)pthread_mutex_unlock(&h->f->lock);
}

static void mind(struct fleet *f, const char *id)
{
	struct err e = {
		0
	}; /* a box that does not answer now is asked again; its death is noticed by others */
	struct channel_wait w = { .deadline_ms = clock_ms() + LIST_MS };
	struct channel_item *items = NULL;
	auto_held struct held *h = fleet_take(f, id, &e);
	if (h == NULL)
		return;
	(void)pthread_mutex_lock(&f->lock);
	unsigned asked = h->box->next_mark;
	(void)pthread_mutex_unlock(&f->lock);
	int n = channel_list(held_channel(h), 0, &w, &items, &e);
	auto_free struct channel_item *mine = items;
	for (int i = 0; i < n; i++)
		if (mine[i].label[0] != '\0')
			look_at(h, &mine[i]);
	if (n >= 0)
		forget(h, mine, n, asked);
}

/* f->lock is held. Boxes at rest are left alone. */
static bool needs(const struct box *b)
{
	if (b->state != BOX_LIVE)
		return false;
	if (!b->minded || b->line == NULL || channel_lost(b->line->channel))
		return true;
	for (int i = 0; b->marks != NULL && i < MARKS_MAX; i++)
		if (b->marks[i].cmd[0] != '\0' && !b->marks[i].swept)
			return true;
	return false;
}

void fleet_mind(struct fleet *f)
{
	char(*ids)[ID_MAX] = NULL;
	size_t n = 0;
	(void)pthread_mutex_lock(&f->lock);
	for (struct box *b = f->boxes; b != NULL; b = b->next)
		n += needs(b);
	ids = xcalloc(n + 1, sizeof *ids);
	n = 0;
	for (struct box *b = f->boxes; b != NULL; b = b->next)
		if (needs(b))
			(void)snprintf(ids[n++], sizeof ids[0], "%s", b->id);
	(void)pthread_mutex_unlock(&f->lock);
	for (size_t i = 0; i < n; i++)
		mind(f, ids[i]);
	free(ids);
}
