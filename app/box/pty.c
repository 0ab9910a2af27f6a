/*
 * pty.c - a command's own terminal: the command and what it starts have its slave as standard input, output and error, and it is their
 * controlling terminal; the box has its master. What is written there is stream 1; there is no stream 2.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include "box/box.h"

static int set_size(int master, uint16_t cols, uint16_t rows)
{
	const struct winsize size = { .ws_col = cols, .ws_row = rows };
	return ioctl(master, TIOCSWINSZ, &size);
}

/* The master, which must not block us, and its slave. */
static int open_pair(int *master)
{
	char name[64];
	*master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);
	if (*master < 0 || unlockpt(*master) != 0)
		return -1;
	int slave = ioctl(*master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
	if (slave >= 0 || ptsname_r(*master, name, sizeof name) != 0)
		return slave;
	return open(name, O_RDWR | O_NOCTTY | O_CLOEXEC); /* gVisor */
}

int pty_open(struct cmd *c, uint16_t cols, uint16_t rows)
{
	struct termios t;
	int master, slave = open_pair(&master);
	if (slave >= 0 && set_size(master, cols, rows) == 0) {
		/* Erasing takes whole characters; where that is not known it is as before. */
		if (tcgetattr(slave, &t) == 0) {
			t.c_iflag |= IUTF8;
			(void)tcsetattr(slave, TCSANOW, &t);
		}
		c->pty = true;
		c->stdin_fd = master;
		c->in_state = PROTO_IN_OPEN;
		return slave;
	}
	int err = errno;
	if (slave >= 0)
		(void)close(slave);
	if (master >= 0)
		(void)close(master);
	errno = err;
	return -1;
}

void pty_resize(struct box *b, uint32_t id, const struct proto_resize *s)
{
	struct cmd *c = cmd_find(b, s->cmd);
	if (c == NULL)
		say_error(b, id, PROTO_MISSING, "There is no such command.");
	else if (!c->pty)
		say_error(b, id, PROTO_CONFLICT, "The command was not started with a terminal.");
	else if (c->stdin_fd < 0 || set_size(c->stdin_fd, s->cols, s->rows) != 0)
		say_error(b, id, PROTO_CONFLICT, "Nothing has the command's terminal open any more.");
	else
		say_done(b, id, 0);
}
