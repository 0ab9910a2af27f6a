/* channel_pid.c - what a pid inside a sandbox is on the host. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sandbox/channel_impl.h"

enum { TEXT_BYTES = 8192 };

/* A small file of /proc; false when it is not there. */
static bool slurp(char text[TEXT_BYTES], const char *path)
{
	auto_fd int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, text, TEXT_BYTES - 1);
	text[n < 0 ? 0 : n] = 0;
	return n >= 0;
}

/* Its innermost pid: the last number of the line NSpid. */
static pid_t inner_of(pid_t pid)
{
	char text[TEXT_BYTES], path[64];
	(void)snprintf(path, sizeof path, "/proc/%d/status", pid);
	const char *line = slurp(text, path) ? strstr(text, "\nNSpid:") : NULL;
	pid_t last = 0;
	if (line == NULL)
		return 0;
	for (char *p = text + (line - text) + 7; *p == '\t' || *p == ' ';) {
		char *end;
		last = (pid_t)strtol(p, &end, 10);
		p = end;
	}
	return last;
}

/* Leaders are grandchildren of the box: their keepers are in between. */
static pid_t find_below(pid_t parent, pid_t inner, int depth)
{
	char text[TEXT_BYTES], path[64];
	(void)snprintf(path, sizeof path, "/proc/%d/task/%d/children", parent, parent);
	if (!slurp(text, path))
		return 0;
	pid_t found = 0;
	for (char *p = text, *end; found == 0; p = end) {
		pid_t child = (pid_t)strtol(p, &end, 10);
		if (end == p || child <= 0)
			break;
		if (depth > 1)
			found = find_below(child, inner, depth - 1);
		else if (inner_of(child) == inner)
			found = child;
	}
	return found;
}

pid_t channel_host_pid(pid_t init, pid_t inner)
{
	return find_below(init, inner, 2);
}
