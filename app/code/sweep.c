#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/log.h"
#include "base/str.h"
#include "code/task.h"
#include "io/file.h"

/* A living attempt holds a lock on its directory; the kernel lets go of a dead one's. */
static bool is_left(int parent, const char *name)
{
	auto_fd int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0;
}

void task_sweep(const struct conf *conf)
{
	auto_mem struct mem *m = mem_new();
	const char *root = conf_str(conf, "RUNNER_DIR");
	struct err e = { 0 };
	DIR *d = file_mkdirs(root, 0700, &e) == 0 ? opendir(root) : NULL;
	if (d == NULL) {
		log_error("runner directory cannot be read", "error", e.msg);
		return;
	}
	(void)flock(dirfd(d), LOCK_EX); /* nobody is between making a directory and locking it */
	for (const struct dirent *f; (f = readdir(d)) != NULL;) {
		if (!str_starts(f->d_name, "run_") || !is_left(dirfd(d), f->d_name))
			continue;
		e = (struct err){ 0 };
		if (file_rmtree(mem_fmt(m, "%s/%s", root, f->d_name), &e) != 0)
			log_warn("directory not removed", "name", f->d_name, "error", e.msg);
	}
	(void)closedir(d);
}
