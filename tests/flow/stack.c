#include "../span.h"
#include "../t.h"

#include "stack.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <libpq-fe.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/str.h"
#include "io/file.h"
#include "io/pg.h"
#include "io/proc.h"

enum { STACK_START_MS = 300 * 1000 };
/* Below the ports of outgoing connections. */
enum { FIRST_PORT = 20000, RANGES = 390 };

/* Run a program and give its standard output and exit status; any but 0 fails the test with the program's last words, unless
 * it may `fail`. */
static int run_to_end(const char *const *argv, const char *const *env, struct buf *out, bool fail)
{
	struct err e = { 0 };
	auto_proc struct proc_result r = { 0 };
	struct proc_opts o = { .argv = argv,
		.env = env,
		.stdin_fd = -1,
		.stdout_fd = -1,
		.stderr_fd = -1,
		.timeout_ms = STACK_START_MS,
		.max_out_bytes = 16 << 20 };
	if (proc_run(&o, &r, &e) != 0)
		fail_msg("%s: %s", argv[0], e.msg);
	if (r.exit_code != 0 && !fail)
		fail_msg("%s %s: exit %d: %s", argv[0], argv[1], r.exit_code, buf_c(&r.errout));
	if (out != NULL)
		assert_int_equal(buf_add(out, buf_c(&r.out), r.out.n), 0);
	return r.exit_code;
}

static void run(const char *const *argv, const char *const *env, struct buf *out)
{
	(void)run_to_end(argv, env, out, false);
}

static const char *bin_dir(void)
{
	const char *b = getenv("STACK_BIN");
	return b != NULL ? b : "build/asan";
}

int stack_ports(void)
{
	static int mine = -1; /* which of the ranges this process has */
	for (int i = 0; mine < 0 && i < RANGES; i++) {
		/* A name of its own kind (unix(7), abstract): one process has it, and it is free again with its end, however that comes. */
		int k = (getpid() + i) % RANGES, fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
		struct sockaddr_un a = { .sun_family = AF_UNIX };
		int n = snprintf(a.sun_path + 1, sizeof a.sun_path - 1, "gatehouse-tests-ports-%d", k);
		socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
		assert_true(fd >= 0);
		if (bind(fd, (const struct sockaddr *)&a, size) == 0)
			mine = k; /* and fd stays open */
		else
			(void)close(fd);
	}
	assert_true(mine >= 0);
	return FIRST_PORT + mine * STACK_PORTS;
}

static void script(const struct stack *s, const char *verb, const char *part, const char *conf)
{
	char apis[32], runners[32], nodes[32], port[32], bin[300], crash[120], cwd[200];
	char workers[32], pg_conf[256];
	auto_buf struct buf extra = BUF(8192);
	const char *pg = getenv("STACK_PG_CONF"), *nginx = getenv("NGINX_WORKERS");
	assert_non_null(getcwd(cwd, sizeof cwd));
	(void)snprintf(apis, sizeof apis, "APIS=%d", s->apis);
	(void)snprintf(runners, sizeof runners, "RUNNERS=%d", s->runners);
	(void)snprintf(nodes, sizeof nodes, "NODES=%d", s->nodes);
	(void)snprintf(bin, sizeof bin, "BIN=%s/%s", cwd, bin_dir());
	(void)snprintf(port, sizeof port, "PORT=%d", stack_ports());
	(void)snprintf(crash, sizeof crash, "GATEHOUSE_CRASH_DIR=%s", s->crash_dir);
	/* The binary behind the default runtime, as the caller of the tests chooses. */
	const char *runtime = getenv("SANDBOX_OCI_RUNTIME");
	(void)buf_fmt(&extra, "STACK_CONF=%s", conf == NULL ? "" : conf);
	if (runtime != NULL && strstr(buf_c(&extra), "SANDBOX_OCI_RUNTIME=") == NULL)
		(void)buf_fmt(&extra, "\nSANDBOX_OCI_RUNTIME=%s", runtime);
	(void)snprintf(workers, sizeof workers, "NGINX_WORKERS=%s", nginx != NULL ? nginx : "2");
	(void)snprintf(pg_conf, sizeof pg_conf, "STACK_PG_CONF=%s", pg != NULL ? pg : "fsync = off");
	const char *const env[] = { "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8", apis, runners,
		nodes, bin, crash, buf_c(&extra), port, pg_conf, workers,
		"ASAN_OPTIONS=detect_leaks=0:abort_on_error=1:quarantine_size_mb=64", "READY_S=240", NULL };
	char path[300];
	(void)snprintf(path, sizeof path, "%s/tests/stack/stack.sh", cwd);
	const char *const argv[] = { path, verb, s->dir, part, NULL };
	run(argv, env, NULL);
}

static void read_ports(struct stack *s)
{
	char path[128];
	auto_buf struct buf b = BUF(4096);
	struct err e = { 0 };
	(void)snprintf(path, sizeof path, "%s/stack.conf", s->dir);
	assert_int_equal(file_read(path, &b, &e), 0);
	const char *at = strstr(buf_c(&b), "PORTS=\"");
	assert_non_null(at);
	at += strlen("PORTS=\"");
	for (int i = 0; i < s->apis && i < 2; i++) {
		(void)snprintf(s->url[i], sizeof s->url[i], "https://127.0.0.1:%ld", strtol(at, NULL, 10));
		at += strcspn(at, " \"");
		at += *at == ' ';
	}
	static const char *const doors[2][2] = { { "E2B_PORT=", "https" }, { "E2B_HTTP_PORT=", "http" } };
	for (int i = 0; i < 2; i++) {
		at = strstr(buf_c(&b), doors[i][0]);
		assert_non_null(at);
		(void)snprintf(s->e2b[i], sizeof s->e2b[i], "%s://127.0.0.1:%ld", doors[i][1],
		    strtol(at + strlen(doors[i][0]), NULL, 10));
	}
}

void stack_up(struct stack *s, int apis, int runners, int nodes, const char *conf)
{
	*s = (struct stack){ .apis = apis, .runners = runners, .nodes = nodes };
	unsigned char rnd[4];
	char hex[9];
	random_bytes(rnd, sizeof rnd);
	hex_encode(rnd, sizeof rnd, hex);
	(void)snprintf(s->dir, sizeof s->dir, "/tmp/ghf.%s", hex);
	(void)snprintf(s->ca, sizeof s->ca, "%s/tls/cert.pem", s->dir);
	(void)snprintf(s->crash_dir, sizeof s->crash_dir, "%s/crash", s->dir);
	assert_int_equal(mkdir(s->dir, 0755), 0);
	assert_int_equal(mkdir(s->crash_dir, 0777), 0);
	assert_int_equal(chmod(s->crash_dir, 0777), 0);
	script(s, "up", NULL, conf);
	read_ports(s);
}

void stack_down(struct stack *s)
{
	struct err e = { 0 };
	script(s, "down", NULL, NULL);
	if (getenv("STACK_KEEP") != NULL)
		print_message("kept %s\n", s->dir);
	else if (file_rmtree(s->dir, &e) != 0)
		fail_msg("%s: %s", s->dir, e.msg);
}

void stack_start(const struct stack *s, const char *part)
{
	script(s, "start", part, NULL);
}

void stack_stop(const struct stack *s, const char *part)
{
	script(s, "stop", part, NULL);
}

void stack_kill(const struct stack *s, const char *part)
{
	script(s, "kill", part, NULL);
}

void stack_ready(const struct stack *s)
{
	script(s, "up", NULL, NULL);
}

pid_t stack_pid(const struct stack *s, const char *part)
{
	char path[128];
	auto_buf struct buf b = BUF(128);
	struct err e = { 0 };
	(void)snprintf(path, sizeof path, "%s/pid/%s", s->dir, part);
	if (file_read(path, &b, &e) != 0)
		fail_msg("%s: %s", path, e.msg);
	return (pid_t)strtol(buf_c(&b), NULL, 10);
}

static int cli(const struct stack *s, const char *const *args, struct buf *out, bool fail)
{
	char conf[128], bin[128];
	const char *argv[32] = { "setpriv", "--reuid=www-data", "--regid=www-data", "--clear-groups", "--",
		bin };
	size_t n = 6;
	(void)snprintf(bin, sizeof bin, "%s/bin/gatehouse", s->dir);
	for (; *args != NULL; args++) {
		assert_true(n + 1 < sizeof argv / sizeof *argv);
		argv[n++] = *args;
	}
	(void)snprintf(conf, sizeof conf, "GATEHOUSE_CONFIG=%s/gatehouse.conf", s->dir);
	const char *const env[] = { "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8",
		"ASAN_OPTIONS=detect_leaks=0", conf, NULL };
	return run_to_end(argv, env, out, fail);
}

void stack_cli(const struct stack *s, const char *const *args, struct buf *out)
{
	(void)cli(s, args, out, false);
}

int stack_cli_exit(const struct stack *s, const char *const *args, struct buf *out)
{
	return cli(s, args, out, true);
}

void stack_key(
    const struct stack *s, const char *org, const char *user, bool admin, const char *scopes, char out[128])
{
	const char *args[12] = { "key", "create", "--org", org, "--user", user };
	size_t n = 6;
	if (scopes != NULL) {
		args[n++] = "--scopes";
		args[n++] = scopes;
	}
	if (admin)
		args[n++] = "--admin";
	auto_buf struct buf b = BUF(1024);
	stack_cli(s, args, &b);
	(void)snprintf(out, 128, "%.*s", (int)strcspn(buf_c(&b), "\n"), buf_c(&b));
	assert_true(str_starts(out, "gk_"));
}

void stack_org(const struct stack *s, struct stack_org *org)
{
	unsigned char rnd[5];
	char hex[11];
	random_bytes(rnd, sizeof rnd);
	hex_encode(rnd, sizeof rnd, hex);
	(void)snprintf(org->slug, sizeof org->slug, "o%s", hex);
	const char *const args[] = { "org", "create", org->slug, NULL };
	stack_cli(s, args, NULL);
	stack_key(s, org->slug, "boss", true, NULL, org->key);
	stack_key(s, org->slug, "member", false, NULL, org->member);
}

struct pg_pool *stack_pool(const struct stack *s, int size)
{
	char conninfo[160];
	(void)snprintf(conninfo, sizeof conninfo, "host=%s/run/pg dbname=gatehouse user=postgres", s->dir);
	return pg_pool_new(conninfo, size, PATIENCE_MS);
}

/* As psql -At prints them. */
static void rows_as_text(const PGresult *r, struct buf *out)
{
	for (int i = 0; i < PQntuples(r); i++)
		for (int c = 0, n = PQnfields(r); c < n; c++) {
			assert_int_equal(buf_str(out, PQgetvalue(r, i, c)), 0);
			assert_int_equal(buf_chr(out, c + 1 < n ? '|' : '\n'), 0);
		}
}

/* By a connection of its own, which no restart of PostgreSQL can have broken, and without psql: the start of a program, and of the one that
 * chooses its version, is most of what a look costs. */
void stack_sql(const struct stack *s, const char *sql, struct buf *out)
{
	char conninfo[160];
	auto_buf struct buf b = BUF(16 << 20);
	(void)snprintf(conninfo, sizeof conninfo,
	    "host=%s/run/pg dbname=gatehouse user=postgres connect_timeout=60", s->dir);
	PGconn *db = PQconnectdb(conninfo);
	if (PQstatus(db) != CONNECTION_OK || PQsendQuery(db, sql) != 1)
		fail_msg("%s: %s", sql, PQerrorMessage(db));
	for (PGresult *r; (r = PQgetResult(db)) != NULL; PQclear(r)) {
		ExecStatusType is = PQresultStatus(r);
		if (is != PGRES_TUPLES_OK && is != PGRES_COMMAND_OK)
			fail_msg("%s: %s", sql, PQresultErrorMessage(r));
		rows_as_text(r, &b);
	}
	PQfinish(db);
	while (b.n > 0 && b.p[b.n - 1] == '\n')
		b.p[--b.n] = 0;
	if (out != NULL)
		assert_int_equal(buf_add(out, buf_c(&b), b.n), 0);
}

static void crash_path(const struct stack *s, const char *point, const char *suffix, char out[200])
{
	(void)snprintf(out, 200, "%s/%s%s", s->crash_dir, point, suffix);
}

void stack_crash_arm(const struct stack *s, const char *point)
{
	char path[200];
	crash_path(s, point, "", path);
	int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
	assert_true(fd >= 0);
	(void)close(fd);
}

bool stack_crash_reached(const struct stack *s, const char *point)
{
	char path[200];
	crash_path(s, point, ".reached", path);
	int64_t deadline = clock_ms() + PATIENCE_MS;
	while (access(path, F_OK) != 0) {
		if (clock_ms() > deadline)
			return false;
		(void)poll(NULL, 0, 10);
	}
	return true;
}

void stack_crash_release(const struct stack *s, const char *point)
{
	char path[200];
	crash_path(s, point, ".reached", path);
	(void)unlink(path);
	crash_path(s, point, "", path);
	(void)unlink(path);
}

/* Lines of a file that name the stack's instance or directory. */
static int count_lines(const char *file, const char *a, const char *b, struct buf *what)
{
	auto_buf struct buf text = BUF(8 << 20);
	struct err e = { 0 };
	if (file_read(file, &text, &e) != 0)
		return 0;
	int n = 0;
	struct str rest = { buf_c(&text), text.n }, line;
	while (str_cut(&rest, '\n', &line)) {
		auto_buf struct buf l = BUF(1 << 20);
		(void)buf_add(&l, line.p, line.n);
		if (strstr(buf_c(&l), a) == NULL && strstr(buf_c(&l), b) == NULL)
			continue;
		n++;
		(void)buf_fmt(what, "%s: %s\n", file, buf_c(&l));
	}
	return n;
}

/* Its line of /proc, or "" when it is gone or a zombie: that one has ended and is the host's init's to reap. */
static const char *alive(const char *pid, struct buf *stat)
{
	char path[300];
	struct err e = { 0 };
	(void)snprintf(path, sizeof path, "/proc/%s/stat", pid);
	if (file_read(path, stat, &e) != 0)
		return "";
	const char *state = strrchr(buf_c(stat), ')');
	return state == NULL || str_starts(state, ") Z") ? "" : buf_c(stat);
}

static int count_processes(const char *box, struct buf *what)
{
	DIR *d = opendir("/proc");
	assert_non_null(d);
	int n = 0;
	for (struct dirent *de; (de = readdir(d)) != NULL;) {
		char path[300];
		if (!str_only(de->d_name, "0123456789"))
			continue;
		(void)snprintf(path, sizeof path, "/proc/%s/cgroup", de->d_name);
		auto_buf struct buf scratch = BUF(1 << 20), stat = BUF(4096);
		const char *line = count_lines(path, box, box, &scratch) > 0 ? alive(de->d_name, &stat) : "";
		if (line[0] != 0) {
			n++;
			(void)buf_fmt(what, "process in %s: %.60s\n", box, line);
		}
	}
	(void)closedir(d);
	return n;
}

static int count_cgroups(const char *dir, const char *box, int depth, struct buf *what)
{
	DIR *d = depth > 6 ? NULL : opendir(dir);
	if (d == NULL)
		return 0;
	int n = 0;
	for (struct dirent *de; (de = readdir(d)) != NULL;) {
		char path[4096];
		if (de->d_type != DT_DIR || de->d_name[0] == '.')
			continue;
		if (snprintf(path, sizeof path, "%s/%s", dir, de->d_name) >= (int)sizeof path)
			continue;
		if (strstr(de->d_name, "sbx") != NULL && strstr(path, box) != NULL) {
			n++;
			(void)buf_fmt(what, "cgroup %s\n", path);
		}
		n += count_cgroups(path, box, depth + 1, what);
	}
	(void)closedir(d);
	return n;
}

static int count_entries(const char *dir, struct buf *what)
{
	DIR *d = opendir(dir);
	if (d == NULL)
		return 0;
	int n = 0;
	for (struct dirent *de; (de = readdir(d)) != NULL;) {
		if (de->d_name[0] == '.')
			continue;
		n++;
		(void)buf_fmt(what, "left in %s: %s\n", dir, de->d_name);
	}
	(void)closedir(d);
	return n;
}

void stack_instance(const struct stack *s, char out[64])
{
	char path[96];
	auto_buf struct buf conf = BUF(4096);
	struct err e = { 0 };
	(void)snprintf(path, sizeof path, "%s/stack.conf", s->dir);
	assert_int_equal(file_read(path, &conf, &e), 0);
	const char *at = strstr(buf_c(&conf), "INSTANCE=");
	assert_non_null(at);
	(void)snprintf(out, 64, "gh%.*s", (int)strcspn(at + 9, "\n "), at + 9);
}

/* Loop devices of volumes. */
static int count_loops(const char *dir, struct buf *what)
{
	int n = 0;
	for (int i = 0; i < 256; i++) {
		char path[64];
		struct err none = { 0 };
		auto_buf struct buf file = BUF(4096);
		(void)snprintf(path, sizeof path, "/sys/block/loop%d/loop/backing_file", i);
		if (file_read(path, &file, &none) != 0 || !str_starts(buf_c(&file), dir))
			continue;
		(void)buf_fmt(what, "%s: %s", path, buf_c(&file));
		n++;
	}
	return n;
}

int stack_leaks(const struct stack *s, struct buf *what)
{
	char box[96], sock[96], volumes[96], instance[64];
	stack_instance(s, instance);
	(void)snprintf(box, sizeof box, "%s/sandboxes", s->dir);
	(void)snprintf(sock, sizeof sock, "%s/s", s->dir);
	(void)snprintf(volumes, sizeof volumes, "%s/volumes/", s->dir);
	int n = count_loops(volumes, what) + count_lines("/proc/self/mountinfo", box, sock, what) +
	    count_processes(instance, what) + count_cgroups("/sys/fs/cgroup", instance, 0, what) +
	    count_entries(sock, what);
	for (int i = 1; i <= s->nodes; i++) { /* bundles; a node's own root and lock stay */
		for (const char *part = "bpw"; *part != 0; part++) {
			(void)snprintf(box, sizeof box, "%s/sandboxes/node%d/%c", s->dir, i, *part);
			n += count_entries(box, what);
		}
	}
	return n;
}
