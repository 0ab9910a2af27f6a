#include "nginxtest.h"

#include <assert.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "t.h"

enum { WAIT_S = 60 };

struct nginxtest {
	char dir[64];
	char sockets[3][96]; /* by enum nginxtest_door */
	pid_t pid;
};

static const char conf[] =
    "daemon off; master_process off; pid %1$s/pid; error_log %1$s/error.log warn;\n"
    "events { worker_connections 200; }\n"
    "http {\n"
    "access_log off; server_tokens off;\n"
    "client_body_temp_path %1$s/body; fastcgi_temp_path %1$s/fcgi; proxy_temp_path %1$s/proxy;\n"
    "uwsgi_temp_path %1$s/uwsgi; scgi_temp_path %1$s/scgi;\n"
    "include /etc/nginx/fastcgi_params;\n"
    "upstream app { server unix:%1$s/app.sock; %2$s }\n"
    "fastcgi_keep_conn %3$s; client_max_body_size 8m; fastcgi_read_timeout 60s;\n"
    "server { listen unix:%1$s/public.sock; fastcgi_param GATEHOUSE_DOOR public;\n"
    "  include /etc/nginx/fastcgi_params;\n"
    "  location / { fastcgi_pass app; }\n"
    "  location /v1/upload/ { fastcgi_request_buffering off; fastcgi_keep_conn off; fastcgi_pass "
    "unix:%1$s/app.sock; } }\n"
    "server { listen unix:%1$s/internal.sock; fastcgi_param GATEHOUSE_DOOR internal;\n"
    "  include /etc/nginx/fastcgi_params;\n"
    "  location / { fastcgi_pass app; } }\n"
    "}\n";

static void write_conf(const struct nginxtest *t, bool kept, char *path, size_t size)
{
	(void)snprintf(path, size, "%s/nginx.conf", t->dir);
	FILE *f = fopen(path, "we");
	assert_non_null(f);
	assert_true(fprintf(f, conf, t->dir, kept ? "keepalive 16;" : "", kept ? "on" : "off") > 0);
	assert_int_equal(fclose(f), 0);
}

static int try_connect(const char *path)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	struct timeval limit = { .tv_sec = WAIT_S };
	(void)snprintf(a.sun_path, sizeof a.sun_path, "%s", path);
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_true(fd >= 0);
	(void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
	(void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
	if (connect(fd, (struct sockaddr *)&a, sizeof a) == 0)
		return fd;
	(void)close(fd);
	return -1;
}

static struct nginxtest *begin(bool kept)
{
	struct nginxtest *t = calloc(1, sizeof *t);
	assert_non_null(t);
	char dir[] = "/tmp/ghn.XXXXXX";
	assert_non_null(mkdtemp(dir));
	memcpy(t->dir, dir, sizeof dir);
	static const char *const names[] = { "public.sock", "internal.sock", "app.sock" };
	for (int i = 0; i < 3; i++)
		(void)snprintf(t->sockets[i], sizeof t->sockets[i], "%s/%s", dir, names[i]);
	char path[96], error_log[96];
	write_conf(t, kept, path, sizeof path);
	(void)snprintf(error_log, sizeof error_log, "%s/error.log", dir);
	pid_t self = getpid();
	t->pid = fork();
	assert_true(t->pid >= 0);
	if (t->pid == 0) {
		/* However the test ends, nginx ends with it. */
		sigset_t none;
		(void)sigemptyset(&none);
		(void)sigprocmask(SIG_SETMASK, &none, NULL);
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() == self)
			(void)execl("/usr/sbin/nginx", "nginx", "-e", error_log, "-c", path, (char *)0);
		_exit(127);
	}
	int64_t deadline = clock_ms() + (int64_t)WAIT_S * 1000;
	int fd;
	while ((fd = try_connect(t->sockets[NGINX_INTERNAL])) < 0) {
		assert_true(clock_ms() < deadline);
		(void)nanosleep(&(struct timespec){ .tv_nsec = 10000000 }, NULL);
	}
	(void)close(fd);
	return t;
}

struct nginxtest *nginxtest_start(void)
{
	return begin(false);
}

struct nginxtest *nginxtest_start_kept(void)
{
	return begin(true);
}

static void rm_rf(const char *dir)
{
	pid_t pid;
	char *argv[] = { strdup("rm"), strdup("-rf"), strdup("--"), strdup(dir), NULL };
	if (posix_spawnp(&pid, "rm", NULL, NULL, argv, NULL) == 0)
		(void)waitpid(pid, NULL, 0);
	for (int i = 0; i < 4; i++)
		free(argv[i]);
}

void nginxtest_end(struct nginxtest *t)
{
	(void)kill(t->pid, SIGKILL);
	(void)waitpid(t->pid, NULL, 0);
	rm_rf(t->dir);
	free(t);
}

const char *nginxtest_dir(const struct nginxtest *t)
{
	return t->dir;
}

const char *nginxtest_fcgi(const struct nginxtest *t)
{
	return t->sockets[NGINX_FCGI];
}

int nginxtest_connect(const struct nginxtest *t, enum nginxtest_door door)
{
	int fd = try_connect(t->sockets[door]);
	assert_true(fd >= 0);
	return fd;
}

void nginxtest_send(int fd, const char *p, size_t n)
{
	while (n > 0) {
		ssize_t some = send(fd, p, n, MSG_NOSIGNAL);
		if (some <= 0)
			return; /* a server may answer and close before it has everything */
		p += some;
		n -= (size_t)some;
	}
}

void nginxtest_read(int fd, struct buf *to)
{
	for (;;) {
		char *room = buf_room(to, 4096);
		assert_non_null(room);
		ssize_t n = recv(fd, room, 4096, 0);
		if (n <= 0)
			return;
		buf_grew(to, (size_t)n);
	}
}

bool nginxtest_line(int fd, struct buf *line)
{
	char c = 0;
	buf_reset(line);
	while (c != '\n' && recv(fd, &c, 1, 0) == 1)
		assert_int_equal(buf_chr(line, c), 0);
	return c == '\n';
}

void nginxtest_do(const struct nginxtest *t, enum nginxtest_door door, const char *method, const char *target,
    const char *extra, const char *body, struct answer *a)
{
	struct buf head = BUF(64 * 1024);
	*a = (struct answer){ .text = BUF(8 << 20) };
	/* HTTP/1.0: the reply is not chunked and ends with the connection. */
	(void)buf_fmt(&head, "%s %s HTTP/1.0\r\nHost: x\r\n%s", method, target, extra);
	if (body != NULL)
		(void)buf_fmt(&head, "Content-Length: %zu\r\n", strlen(body));
	assert_int_equal(buf_str(&head, "\r\n"), 0);
	int fd = nginxtest_connect(t, door);
	nginxtest_send(fd, head.p, head.n);
	if (body != NULL)
		nginxtest_send(fd, body, strlen(body));
	nginxtest_read(fd, &a->text);
	(void)close(fd);
	buf_free(&head);
	assert_true(sscanf(buf_c(&a->text), "HTTP/1.%*c %d", &a->status) == 1);
	a->body = strstr(a->text.p, "\r\n\r\n");
	assert_non_null(a->body);
	a->body += 4;
}

const char *answer_header(const struct answer *a, const char *name, char *out, size_t size)
{
	size_t n = strlen(name);
	for (const char *line = a->text.p; line < a->body; line = strchr(line, '\n') + 1)
		if (strncasecmp(line, name, n) == 0 && line[n] == ':') {
			line += n + 1;
			line += strspn(line, " ");
			(void)snprintf(out, size, "%.*s", (int)strcspn(line, "\r\n"), line);
			return out;
		}
	return NULL;
}

void answer_free(struct answer *a)
{
	buf_free(&a->text);
}
