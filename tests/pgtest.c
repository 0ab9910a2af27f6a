#include "pgtest.h"

#include <dirent.h>
#include <fcntl.h>
#include <glob.h>
#include <grp.h>
#include <poll.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/mem.h"
#include "io/migrate.h"
#include "io/pg.h"
#include "t.h"

enum { PATH_BYTES = 512, CHILD_MS = 60000, POLL_MS = 10 };

struct pgtest {
	char dir[PATH_BYTES]; /* data/, the socket, log */
	char conninfo[PATH_BYTES + 64];
	pid_t pid; /* the postmaster, our child; 0 when down */
};

static char *path(char out[PATH_BYTES], const char *dir, const char *name)
{
	int n = snprintf(out, PATH_BYTES, "%s/%s", dir, name);
	assert_true(n > 0 && n < PATH_BYTES);
	return out;
}

/* ---- children, as an ordinary user */

static void become_postgres(void)
{
	const struct passwd *pw = geteuid() == 0 ? getpwnam("postgres") : NULL;
	if (pw != NULL && (setgroups(0, NULL) != 0 || setgid(pw->pw_gid) != 0 || setuid(pw->pw_uid) != 0))
		_exit(126);
}

static pid_t start(const char *log, const char *const *argv)
{
	pid_t parent = getpid(), pid = fork();
	assert_true(pid >= 0);
	if (pid > 0)
		return pid;
	int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
	int out = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
	if (null < 0 || out < 0 || dup2(null, 0) < 0 || dup2(out, 1) < 0 || dup2(out, 2) < 0 ||
	    chdir("/") != 0)
		_exit(125);
	(void)close_range(3, ~0U, CLOSE_RANGE_CLOEXEC);
	become_postgres();
	/* After the change of user, which clears it: an aborted test must not leave a server behind. */
	(void)prctl(PR_SET_PDEATHSIG, SIGQUIT);
	if (getppid() != parent)
		_exit(124);
	char *args[16] = { NULL };
	for (size_t i = 0; i < 15 && argv[i] != NULL; i++)
		args[i] = strdup(argv[i]);
	(void)execv(args[0], args);
	_exit(127);
}

static void show_log(const char *log)
{
	char text[4096];
	int fd = open(log, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof text - 1);
	if (fd >= 0)
		(void)close(fd);
	print_error("%.*s\n", (int)(n < 0 ? 0 : n), text);
}

static void run(const char *log, const char *const *argv)
{
	int status = 0;
	pid_t pid = start(log, argv);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (status != 0)
		show_log(log);
	assert_int_equal(status, 0);
}

static const char *pg_bin(char out[PATH_BYTES], const char *name)
{
	glob_t g;
	assert_int_equal(glob("/usr/lib/postgresql/*/bin/postgres", 0, NULL, &g), 0);
	(void)snprintf(out, PATH_BYTES, "%.*s/%s",
	    (int)(strrchr(g.gl_pathv[g.gl_pathc - 1], '/') - g.gl_pathv[g.gl_pathc - 1]),
	    g.gl_pathv[g.gl_pathc - 1], name);
	globfree(&g);
	return out;
}

/* ---- the server */

static bool server_ready(const char *dir)
{
	char file[PATH_BYTES], text[1024];
	int fd = open(path(file, dir, "data/postmaster.pid"), O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof text - 1);
	if (fd >= 0)
		(void)close(fd);
	text[n < 0 ? 0 : n] = 0;
	return strstr(text, "\nready") != NULL; /* written by the postmaster once it takes connections */
}

static pid_t server_start(const char *dir)
{
	char bin[PATH_BYTES], data[PATH_BYTES], log[PATH_BYTES];
	path(log, dir, "log");
	const char *const argv[] = { pg_bin(bin, "postgres"), "-D", path(data, dir, "data"), "-k", dir, "-c",
		"listen_addresses=", "-c", "fsync=off", "-c", "full_page_writes=off", "-c",
		"shared_buffers=16MB", NULL };
	pid_t pid = start(log, argv);
	int64_t end = clock_ms() + CHILD_MS;
	while (!server_ready(dir)) {
		int status;
		if (clock_ms() > end || waitpid(pid, &status, WNOHANG) != 0) {
			show_log(log);
			fail_msg("PostgreSQL did not start");
		}
		(void)poll(NULL, 0, POLL_MS);
	}
	return pid;
}

static void server_stop(pid_t pid, int sig)
{
	int status;
	assert_int_equal(kill(pid, sig), 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
}

static void conninfo(char *out, size_t size, const char *dir)
{
	(void)snprintf(out, size, "host=%s user=postgres dbname=postgres", dir);
}

static void apply_schema(const char *dir)
{
	char info[PATH_BYTES + 64];
	conninfo(info, sizeof info, dir);
	struct pg_pool *pool = pg_pool_new(info, 1, CHILD_MS);
	struct err e = { 0 };
	if (migrate_up(pool, migrations, &e) <= 0)
		fail_msg("%s", e.msg);
	pg_pool_free(pool);
}

/* ---- the template */

static void tmpdir(char out[PATH_BYTES])
{
	(void)snprintf(out, PATH_BYTES, "/tmp/gh-pgtest.XXXXXX"); /* short: a socket's path has 107 bytes */
	assert_non_null(mkdtemp(out));
	const struct passwd *pw = geteuid() == 0 ? getpwnam("postgres") : NULL;
	assert_true(geteuid() != 0 || (pw != NULL && chown(out, pw->pw_uid, pw->pw_gid) == 0));
}

/* As we are, so that a checkout that only root can read works too. */
static void run_own(const char *a, const char *b, const char *c, const char *d)
{
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		(void)execl(a, a, b, c, d, (char *)NULL);
		_exit(127);
	}
	int status = 0;
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

/* Where this build keeps its template: beside build/MODE/, named after the schema that is in it. */
static void template_dir(char out[PATH_BYTES])
{
	auto_buf struct buf all = BUF(4 << 20);
	for (const struct migration *m = migrations; m->name != NULL; m++)
		assert_int_equal(buf_str(&all, m->sql), 0);
	char hex[SHA256_HEX], exe[PATH_BYTES - 32];
	sha256_hex(all.p, all.n, hex);
	ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);
	assert_true(n > 0);
	exe[n] = 0;
	for (int up = 0; up < 3; up++) { /* build/MODE/tests/test_x */
		char *slash = strrchr(exe, '/');
		assert_non_null(slash);
		*slash = 0;
	}
	(void)snprintf(out, PATH_BYTES, "%s/pgtemplate-%.12s", exe, hex);
}

static void make_template(const char *to)
{
	char dir[PATH_BYTES], bin[PATH_BYTES], data[PATH_BYTES], log[PATH_BYTES], part[PATH_BYTES + 8];
	tmpdir(dir);
	path(log, dir, "log");
	const char *const argv[] = { pg_bin(bin, "initdb"), "-D", path(data, dir, "data"), "-U", "postgres",
		"--auth=trust", "--no-sync", "--wal-segsize=1", "--locale=C.UTF-8", "--encoding=UTF8", NULL };
	run(log, argv);
	pid_t pid = server_start(dir);
	apply_schema(dir);
	server_stop(pid, SIGINT);
	(void)snprintf(part, sizeof part, "%s.part", to);
	run_own("/bin/rm", "-rf", "--", part);
	run_own("/bin/cp", "-a", data, part);
	assert_int_equal(rename(part, to), 0);
	run_own("/bin/rm", "-rf", "--", dir);
}

static void copy_template(const char *dir)
{
	char from[PATH_BYTES], lock[PATH_BYTES + 8], data[PATH_BYTES];
	template_dir(from);
	(void)snprintf(lock, sizeof lock, "%s.lock", from);
	auto_fd int fd = open(lock, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
	assert_true(fd >= 0);
	assert_int_equal(flock(fd, LOCK_EX), 0); /* two test programs at once make it once */
	if (access(from, F_OK) != 0)
		make_template(from);
	run_own("/bin/cp", "-a", from, path(data, dir, "data"));
}

/* ---- the fixture */

struct pgtest *pgtest_start(void)
{
	struct pgtest *t = xcalloc(1, sizeof *t);
	tmpdir(t->dir);
	copy_template(t->dir);
	conninfo(t->conninfo, sizeof t->conninfo, t->dir);
	t->pid = server_start(t->dir);
	return t;
}

void pgtest_end(struct pgtest *t)
{
	if (t->pid != 0) {
		pgtest_resume(t); /* a test that failed half way may have left it stopped */
		pgtest_down(t);
	}
	run_own("/bin/rm", "-rf", "--", t->dir);
	free(t);
}

const char *pgtest_conninfo(const struct pgtest *t)
{
	return t->conninfo;
}

void pgtest_down(struct pgtest *t)
{
	server_stop(t->pid, SIGQUIT);
	t->pid = 0;
	char file[PATH_BYTES];
	(void)unlink(path(file, t->dir, "data/postmaster.pid"));
}

void pgtest_up(struct pgtest *t)
{
	t->pid = server_start(t->dir);
}

/* The postmaster and its children: a stopped postmaster alone leaves open connections working. */
static void signal_all(pid_t postmaster, int sig)
{
	assert_int_equal(kill(postmaster, sig), 0);
	char file[64], list[8192];
	(void)snprintf(file, sizeof file, "/proc/%d/task/%d/children", (int)postmaster, (int)postmaster);
	int fd = open(file, O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	ssize_t n = read(fd, list, sizeof list - 1);
	(void)close(fd);
	assert_true(n > 0);
	list[n] = 0;
	char *at = list;
	for (long pid = strtol(at, &at, 10); pid > 0; pid = strtol(at, &at, 10))
		(void)kill((pid_t)pid, sig);
}

void pgtest_hang(struct pgtest *t)
{
	signal_all(t->pid, SIGSTOP);
}

void pgtest_resume(struct pgtest *t)
{
	signal_all(t->pid, SIGCONT);
}

void pgtest_sql(struct pgtest *t, const char *sql)
{
	struct pg_pool *pool = pg_pool_new(t->conninfo, 1, CHILD_MS);
	struct err e = { 0 };
	struct pg *db = pg_take(pool, 0, &e);
	assert_non_null(db);
	if (pg_script(db, sql, &e) != 0)
		fail_msg("%s", e.msg);
	pg_put(db);
	pg_pool_free(pool);
}
