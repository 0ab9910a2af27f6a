#include "../t.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../gittest.h"
#include "base/js.h"
#include "code/clone.h"

static struct gittest t;
static char main_tip[GITTEST_ID];
static char *clone_dir, remote_url[200];
static struct rgit_repo repo;
static struct rgit_remote remote;

static int setup(void **s)
{
	(void)s;
	gittest_start(&t);
	gittest_repo(&t, "box", main_tip);
	clone_dir = gittest_path(&t, "base.git");
	(void)snprintf(remote_url, sizeof remote_url, "file://%s/box.git", t.dir);
	repo = (struct rgit_repo){ .dir = clone_dir };
	remote = (struct rgit_remote){ .url = remote_url, .protocols = "file" };
	struct err e = { 0 };
	assert_int_equal(clone_init(&repo, &e), 0);
	return 0;
}
static int teardown(void **s)
{
	(void)s;
	gittest_end(&t);
	free(clone_dir);
	return 0;
}
static void path_in(char out[300], const char *name)
{
	(void)snprintf(out, 300, "%s/%s", t.dir, name);
}

static void the_base_is_fetched_at_depth_one_as_one_pack(void **s)
{
	(void)s;
	struct err e = { 0 };
	char tip[RGIT_ID_MAX];
	assert_int_equal(clone_fetch(&repo, &remote, "main", tip, &e), 0);
	assert_string_equal(tip, main_tip);
	auto_mem struct mem *m = mem_new();
	assert_non_null(clone_pack(&repo, m));
	auto_free char *commits = gittest_out(&t, "base.git", NULL, 0, "rev-list", "--count", tip, (char *)0);
	assert_string_equal(commits, "1");
	assert_int_equal(clone_fetch(&repo, &remote, NULL, tip, &e), 0); /* HEAD */
	assert_string_equal(tip, main_tip);
}

static void a_branch_that_does_not_exist_is_named(void **s)
{
	(void)s;
	struct err e = { 0 };
	char tip[RGIT_ID_MAX];
	assert_int_equal(clone_fetch(&repo, &remote, "nowhere", tip, &e), -1);
	assert_int_equal(e.code, ERR_NOT_FOUND);
	assert_string_equal(e.param, "base");
	assert_non_null(strstr(e.msg, "no branch nowhere"));
}

static void an_empty_repository_has_no_base(void **s)
{
	(void)s;
	gittest(&t, ".", "init", "-q", "--bare", "--initial-branch=main", "empty.git");
	(void)snprintf(remote_url, sizeof remote_url, "file://%s/empty.git", t.dir);
	struct err e = { 0 };
	char tip[RGIT_ID_MAX];
	assert_int_equal(clone_fetch(&repo, &remote, "main", tip, &e), 0);
	assert_string_equal(tip, "");
	assert_int_equal(clone_fetch(&repo, &remote, NULL, tip, &e), 0);
	assert_string_equal(tip, "");
	assert_int_equal(clone_remote_tip(&repo, &remote, "main", tip, &e), 0);
	assert_string_equal(tip, "");
}

/* COD-5: one full refspec, never forced; from a shallow clone, into a repository that has the rest. */
static void a_push_moves_one_ref_and_never_by_force(void **s)
{
	(void)s;
	struct err e = { 0 };
	char tip[RGIT_ID_MAX], stored[RGIT_ID_MAX];
	assert_int_equal(clone_fetch(&repo, &remote, "main", tip, &e), 0);
	auto_free char *one = gittest_out(
	    &t, "base.git", "one\n", 4, "commit-tree", "refs/gatehouse/base^{tree}", "-p", tip, (char *)0);
	auto_free char *two = gittest_out(
	    &t, "base.git", "two\n", 4, "commit-tree", "refs/gatehouse/base^{tree}", "-p", tip, (char *)0);
	assert_int_equal(clone_push(&repo, &remote, one, "agent/x", &e), 0);
	assert_int_equal(clone_remote_tip(&repo, &remote, "agent/x", stored, &e), 0);
	assert_string_equal(stored, one);
	assert_int_equal(clone_push(&repo, &remote, two, "agent/x", &e), -1);
	assert_int_equal(e.code, ERR_UPSTREAM);
	assert_non_null(strstr(e.msg, "rejected"));
	auto_free char *refs = gittest_out(
	    &t, "box.git", NULL, 0, "for-each-ref", "--format=%(refname)", (char *)0);
	assert_string_equal(refs, "refs/heads/agent/x\nrefs/heads/main");
}

static void a_protocol_that_is_not_allowed_is_refused_by_git(void **s)
{
	(void)s;
	struct err e = { 0 };
	char tip[RGIT_ID_MAX];
	remote.protocols = "https";
	assert_int_equal(clone_fetch(&repo, &remote, "main", tip, &e), -1);
	assert_non_null(strstr(e.msg, "not allowed"));
	struct err ext = { 0 };
	char marker[300], cmd[400];
	path_in(marker, "ran");
	(void)snprintf(cmd, sizeof cmd, "ext::touch %s", marker);
	remote.url = cmd;
	remote.protocols = "https:http";
	assert_int_equal(clone_fetch(&repo, &remote, "main", tip, &ext), -1);
	assert_int_equal(access(marker, F_OK), -1);
}

/* COD-7: what the machine, the user or an inherited environment configures has no effect. */
static void planted_configuration_hooks_and_helpers_are_not_read(void **s)
{
	(void)s;
	char home[300], text[1400], marker[300];
	path_in(home, "home");
	path_in(marker, "ran");
	gittest_python(&t, "import os; os.mkdir('home'); os.makedirs('base.git/hooks')", NULL);
	(void)snprintf(text, sizeof text,
	    "[url \"file:///elsewhere/\"]\n\tinsteadOf = file:///\n[credential]\n\thelper = \"!touch "
	    "%s\"\n[core]\n\thooksPath = "
	    "%s\n\tfsmonitor = \"touch %s\"\n",
	    marker, home, marker);
	gittest_write(&t, "home/.gitconfig", text);
	(void)snprintf(text, sizeof text, "#!/bin/sh\ntouch %s\n", marker);
	gittest_write(&t, "base.git/hooks/pre-push", text);
	gittest_write(&t, "home/pre-push", text);
	gittest_python(&t,
	    "import os; os.chmod('base.git/hooks/pre-push', 0o755); os.chmod('home/pre-push', 0o755)", NULL);
	assert_int_equal(setenv("HOME", home, 1), 0);
	assert_int_equal(setenv("GIT_CONFIG_PARAMETERS", "'core.hooksPath=/tmp'", 1), 0);
	struct err e = { 0 };
	char tip[RGIT_ID_MAX];
	assert_int_equal(clone_fetch(&repo, &remote, "main", tip, &e), 0);
	assert_int_equal(clone_push(&repo, &remote, tip, "agent/y", &e), 0);
	assert_int_equal(access(marker, F_OK), -1);
	(void)unsetenv("GIT_CONFIG_PARAMETERS");
}

/* ---- what a remote sees, and what others on the machine see meanwhile */

struct server {
	int fd;
	char head[4096]; /* of the first request */
	bool in_argv;    /* the token stood in some command line while it was served */
	const char *answer;
	int requests;
};

static bool anywhere_in_argv(const char *needle)
{
	DIR *d = opendir("/proc");
	assert_non_null(d);
	bool found = false;
	for (const struct dirent *f; (f = readdir(d)) != NULL;) {
		char path[300], line[65536];
		(void)snprintf(path, sizeof path, "/proc/%s/cmdline", f->d_name);
		auto_fd int fd = f->d_name[0] >= '0' && f->d_name[0] <= '9' ? open(path, O_RDONLY | O_CLOEXEC)
									    : -1;
		ssize_t n = fd < 0 ? -1 : read(fd, line, sizeof line);
		if (n > 0 && memmem(line, (size_t)n, needle, strlen(needle)) != NULL)
			found = true;
	}
	(void)closedir(d);
	return found;
}

#define TOKEN     "s3cret-t0ken-value"
#define TOKEN_B64 "czNjcmV0LXQwa2VuLXZhbHVl"

static void *serve(void *arg)
{
	struct server *v = arg;
	for (;;) {
		int c = accept(v->fd, NULL, NULL);
		if (c < 0)
			return NULL;
		char buf[4096];
		size_t n = 0;
		while (n < sizeof buf - 1 && (n < 4 || memmem(buf, n, "\r\n\r\n", 4) == NULL)) {
			ssize_t got = read(c, buf + n, sizeof buf - 1 - n);
			if (got <= 0)
				break;
			n += (size_t)got;
		}
		buf[n] = 0;
		if (v->requests++ == 0)
			memcpy(v->head, buf, n + 1);
		v->in_argv = v->in_argv || anywhere_in_argv(TOKEN) || anywhere_in_argv(TOKEN_B64);
		(void)!write(c, v->answer, strlen(v->answer));
		(void)close(c);
	}
}

static int listen_on(char *url, size_t size)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof a;
	assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof a), 0);
	assert_int_equal(listen(fd, 8), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &len), 0);
	(void)snprintf(url, size, "http://127.0.0.1:%d/org/repo.git", ntohs(a.sin_port));
	return fd;
}

static void talk(struct server *v, struct err *e)
{
	char url[100], tip[RGIT_ID_MAX];
	v->fd = listen_on(url, sizeof url);
	pthread_t thread;
	assert_int_equal(pthread_create(&thread, NULL, serve, v), 0);
	auto_secret struct secret *token = secret_new(TOKEN, strlen(TOKEN));
	const struct rgit_remote http = {
		.url = url, .protocols = "http", .user = "x-access-token", .token = token
	};
	assert_int_equal(clone_fetch(&repo, &http, "main", tip, e), -1);
	(void)shutdown(v->fd, SHUT_RDWR);
	assert_int_equal(pthread_join(thread, NULL), 0);
	(void)close(v->fd);
	assert_null(strstr(e->msg, TOKEN));
}

/* COD-7, COD-8 */
static void the_credential_is_a_header_of_the_first_request_and_in_no_argv(void **s)
{
	(void)s;
	struct server v = {
		.answer = "HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
	};
	struct err e = { 0 };
	talk(&v, &e);
	assert_int_equal(e.code, ERR_UPSTREAM);
	assert_non_null(strstr(v.head, "GET /org/repo.git/info/refs?service=git-upload-pack"));
	/* x-access-token:TOKEN */
	assert_non_null(
	    strstr(v.head, "Authorization: Basic eC1hY2Nlc3MtdG9rZW46czNjcmV0LXQwa2VuLXZhbHVl\r\n"));
	assert_false(v.in_argv);
	/* And nothing of it was written down. */
	gittest_python(&t,
	    "import os, sys\n"
	    "for d, _, fs in os.walk('base.git'):\n"
	    "    for f in fs:\n"
	    "        assert b't0ken' not in open(os.path.join(d, f), 'rb').read(), f\n",
	    NULL);
}

static void the_credential_does_not_follow_a_redirect(void **s)
{
	(void)s;
	char url[100], answer[300];
	struct server other = {
		.answer = "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
	};
	other.fd = listen_on(url, sizeof url);
	pthread_t thread;
	assert_int_equal(pthread_create(&thread, NULL, serve, &other), 0);
	(void)snprintf(answer, sizeof answer,
	    "HTTP/1.1 302 Found\r\nLocation: %s/info/refs?service=git-upload-pack\r\nContent-Length: "
	    "0\r\nConnection: close\r\n\r\n",
	    url);
	struct server v = { .answer = answer };
	struct err e = { 0 };
	talk(&v, &e);
	(void)shutdown(other.fd, SHUT_RDWR);
	assert_int_equal(pthread_join(thread, NULL), 0);
	(void)close(other.fd);
	assert_int_equal(other.requests, 0);
}

/* What was judged is what is connected to: no second look-up of the name. */
static void a_pinned_name_is_not_resolved_again(void **s)
{
	(void)s;
	struct server v = {
		.answer = "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
	};
	struct err e = { 0 };
	char url[100], there[120], pin[120], tip[RGIT_ID_MAX];
	v.fd = listen_on(url, sizeof url);
	int port = 0;
	assert_int_equal(sscanf(url, "http://127.0.0.1:%d", &port), 1);
	(void)snprintf(there, sizeof there, "http://no-such-host.invalid:%d/org/repo.git", port);
	(void)snprintf(pin, sizeof pin, "no-such-host.invalid:%d:127.0.0.1", port);
	pthread_t thread;
	assert_int_equal(pthread_create(&thread, NULL, serve, &v), 0);
	const struct rgit_remote http = { .url = there, .protocols = "http", .pin = pin };
	assert_int_equal(clone_fetch(&repo, &http, "main", tip, &e), -1);
	(void)shutdown(v.fd, SHUT_RDWR);
	assert_int_equal(pthread_join(thread, NULL), 0);
	(void)close(v.fd);
	assert_int_equal(v.requests, 1);
	assert_non_null(strstr(v.head, "Host: no-such-host.invalid"));
}

/* What git has been seen to say when nginx or the api behind it were killed, and when they only said no. REL-1 */
static void a_remote_that_was_cut_off_is_away_and_one_that_refuses_is_not(void **s)
{
	(void)s;
	static const struct {
		const char *said;
		enum err_code code;
	} rows[] = {
		{ "fatal: unable to access 'https://h/x.git/': GnuTLS recv error (-110): The TLS connection "
		  "was "
		  "non-properly terminated.",
		    ERR_UNAVAILABLE },
		{ "fatal: unable to access 'https://h/x.git/': The requested URL returned error: 503",
		    ERR_UNAVAILABLE },
		{ "error: RPC failed; curl 56 Recv failure\nfatal: expected flush after ref listing",
		    ERR_UNAVAILABLE },
		{ "error: RPC failed; HTTP 502 curl 22 The requested URL returned error: 502",
		    ERR_UNAVAILABLE },
		{ "fatal: unable to access 'https://h/x.git/': getpeername() failed with errno 107: "
		  "Transport "
		  "endpoint is not connected",
		    ERR_UNAVAILABLE },
		{ "fatal: unable to access 'https://h/x.git/': Could not resolve host: h", ERR_UNAVAILABLE },
		{ "fatal: unable to access 'https://h/x.git/': HTTP/2 stream 1 was not closed cleanly",
		    ERR_UNAVAILABLE },
		{ "send-pack: unexpected disconnect while reading sideband packet\nfatal: the remote end "
		  "hung "
		  "up unexpectedly",
		    ERR_UNAVAILABLE },
		{ "remote: error: cannot lock ref 'refs/heads/x': reference already exists\n ! [remote "
		  "rejected] x -> x (failed to update ref)",
		    ERR_UNAVAILABLE },
		{ "remote: error: cannot lock ref 'refs/heads/x': Unable to create '/d/refs/heads/x.lock': "
		  "File "
		  "exists.\n ! [remote rejected] x -> x (failed to update ref)",
		    ERR_UNAVAILABLE },
		{ "fatal: unable to access 'https://h/x.git/': The requested URL returned error: 403",
		    ERR_UPSTREAM },
		{ "fatal: unable to access 'https://h/x.git/': server certificate verification failed.",
		    ERR_UPSTREAM },
		{ "fatal: unable to access 'https://h/x.git/': The requested URL returned error: 302",
		    ERR_UPSTREAM },
		{ "error: RPC failed; HTTP 413 curl 22 The requested URL returned error: 413", ERR_UPSTREAM },
		{ " ! [remote rejected] main (hook declined)", ERR_UPSTREAM },
	};
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		static const char *const args[] = { "fetch", NULL };
		const struct rgit_call c = { .args = args, .remote = &remote };
		struct proc_result r = { .exit_code = 128, .errout = BUF(1000) };
		struct err e = { 0 };
		(void)buf_str(&r.errout, rows[i].said);
		assert_int_equal(rgit_failed(&repo, &c, &r, "Fetching", &e), -1);
		if (e.code != rows[i].code)
			fail_msg("%s: %s", rows[i].said, err_name(e.code));
		buf_free(&r.errout);
	}
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(the_base_is_fetched_at_depth_one_as_one_pack),
		T(a_branch_that_does_not_exist_is_named),
		T(an_empty_repository_has_no_base),
		T(a_push_moves_one_ref_and_never_by_force),
		T(a_protocol_that_is_not_allowed_is_refused_by_git),
		T(planted_configuration_hooks_and_helpers_are_not_read),
		T(the_credential_is_a_header_of_the_first_request_and_in_no_argv),
		T(the_credential_does_not_follow_a_redirect),
		T(a_remote_that_was_cut_off_is_away_and_one_that_refuses_is_not),
		T(a_pinned_name_is_not_resolved_again),
	};
	return cmocka_run_group_tests_name("clone", tests, NULL, NULL);
}
