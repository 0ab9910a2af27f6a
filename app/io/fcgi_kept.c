/*
 * Connections that nginx keeps (fastcgi_keep_conn, and an upstream block with keepalive): between two requests they hold a descriptor and
 * no thread, and wait in the epoll of those who sit, each armed for one event under a number that is used once. What is on the list is
 * armed; who is told of it takes it from there, unless it was ended meanwhile, and puts it back once its call is over.
 *
 * nginx closes what it does not need. We close only for want of descriptors and at the drain: a request that nginx sends in that moment gets
 * what one gets that finds nobody listening, and was not begun.
 */
#include <sys/epoll.h>
#include <unistd.h>

#include "base/mem.h"
#include "io/fcgi_int.h"

struct fcgi_kept {
	struct fcgi_kept *prev, *next;
	uint64_t number;
	int fd;
};

/* The lock is held. */
static void unlist(struct fcgi *f, struct fcgi_kept *h)
{
	*(h->prev != NULL ? &h->prev->next : &f->kept) = h->next;
	if (h->next != NULL)
		h->next->prev = h->prev;
	h->prev = h->next = NULL;
	f->n_kept--;
}

/* The lock is held, and it is on the list. It is disarmed first: a child between fork and exec may have the descriptor, too. */
static void end(struct fcgi *f, struct fcgi_kept *h)
{
	unlist(f, h);
	fcgi_watch(f, EPOLL_CTL_DEL, h->fd, 0, h->number);
	(void)close(h->fd);
	free(h);
}

int fcgi_kept_take(struct fcgi *f, uint64_t number, struct fcgi_kept **out)
{
	pthread_mutex_lock(&f->lock);
	struct fcgi_kept *h = f->kept; /* the newest first, and that is whose turn it mostly is */
	while (h != NULL && h->number != number)
		h = h->next;
	if (h != NULL)
		unlist(f, h);
	pthread_mutex_unlock(&f->lock);
	*out = h;
	return h == NULL ? -1 : h->fd;
}

void fcgi_kept_put(struct fcgi *f, struct fcgi_kept *h, int fd)
{
	bool fresh = h == NULL;
	if (fresh) {
		h = xcalloc(1, sizeof *h);
		h->fd = fd;
	}
	pthread_mutex_lock(&f->lock);
	/* Under the lock, as it may be taken or ended as soon as it is armed. Nothing is kept once the drain has begun. */
	bool keep = !atomic_load(&f->draining);
	if (keep) {
		h->next = f->kept;
		if (h->next != NULL)
			h->next->prev = h;
		f->kept = h;
		f->n_kept++;
		h->number = FCGI_FIRST_NUMBER + f->kept_numbers++;
		fcgi_watch(f, fresh ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, fd, EPOLLIN | EPOLLRDHUP | EPOLLONESHOT,
		    h->number);
	}
	pthread_mutex_unlock(&f->lock);
	if (keep)
		return;
	(void)close(fd);
	free(h);
}

bool fcgi_kept_drop(struct fcgi *f)
{
	pthread_mutex_lock(&f->lock);
	struct fcgi_kept *h = f->kept;
	if (h != NULL)
		end(f, h);
	pthread_mutex_unlock(&f->lock);
	return h != NULL;
}

void fcgi_kept_end(struct fcgi *f)
{
	while (f->kept != NULL)
		end(f, f->kept);
}
