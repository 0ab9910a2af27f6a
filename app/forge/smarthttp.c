#include "forge/smarthttp.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "auth/principal.h"
#include "base/buf.h"
#include "base/coding.h"
#include "base/log.h"
#include "base/str.h"
#include "forge/cgi.h"
#include "forge/git.h"
#include "forge/hook.h"
#include "forge/store.h"
#include "io/proc.h"

enum {
	SERVE_MS = 2 * 3600 *
	    1000, /* a whole transfer; silence of the client ends it earlier (nginx, io/fcgi) */
	PEEK_BYTES = 64 << 10,
	DRAIN_BYTES = 64 << 20,
	SMALL_PUSH_BYTES = 1 << 20,
};

/* Children being served by this process now. */
static atomic_int serving;

/* One request under way; the callbacks of its child. */
struct serve {
	struct ctx *c;
	const struct smart_req *q;
	struct buf peek; /* the start of the body, read before the child was started */
	size_t peek_done;
	bool body_ended, client_gone;
	struct buf head; /* the child's reply head, until it is complete */
	bool head_done;
	struct cgi_head cgi;
	struct err err;
};

static const char *service_name(const struct smart_req *q)
{
	return q->service == GIT_UPLOAD_PACK ? "git-upload-pack" : "git-receive-pack";
}

static bool writes(const struct smart_req *q)
{
	return q->service == GIT_RECEIVE_PACK && !q->advertise;
}

/* ---- what the child is told */

/* A protocol version as git's own clients send it: "version=2", perhaps more of the kind. */
static bool protocol_ok(const char *s)
{
	return s != NULL && strlen(s) <= 64 && str_only(s, "abcdefghijklmnopqrstuvwxyz0123456789=:.-");
}

static enum coding body_coding(struct ctx *c)
{
	return coding_of(str_of(reply_param(c, "HTTP_CONTENT_ENCODING")));
}

static int check_request(struct serve *s, struct err *e)
{
	struct ctx *c = s->c;
	if (s->q->advertise)
		return 0;
	const char *type = reply_param(c, "CONTENT_TYPE");
	enum coding coding = body_coding(c);
	const char *want = mem_fmt(c->mem, "application/x-%s-request", service_name(s->q));
	if (type == NULL || strcmp(type, want) != 0)
		return err_set(e, ERR_MEDIA, "The body must be %s.", want);
	if (coding != CODING_PLAIN && coding != CODING_GZIP)
		return err_set(e, ERR_MEDIA, "The body may be gzip'd or plain, not %.40s.",
		    reply_param(c, "HTTP_CONTENT_ENCODING"));
	return 0;
}

/* What the hook is to judge by (FRG-3). */
static void add_rights(struct git_env *v, struct serve *s)
{
	const struct principal *who = s->c->who;
	git_env_add(v, s->c->mem, HOOK_ENV_BY, who->kind == CRED_GRANT ? "grant" : "member");
	git_env_add(v, s->c->mem, HOOK_ENV_DEFAULT, s->q->repo->default_branch);
	if (who->kind == CRED_GRANT)
		git_env_add(v, s->c->mem, HOOK_ENV_REF, who->ref);
}

/* Known to be small: a body without a length is chunked, which git does from 1 MiB on. */
static bool is_small(struct serve *s)
{
	long long n;
	const char *length = reply_param(s->c, "CONTENT_LENGTH");
	return length != NULL && str_int(length, 0, SMALL_PUSH_BYTES, &n);
}

static void add_config(struct git_env *v, struct serve *s, const char *hooks)
{
	struct mem *m = s->c->mem;
	git_env_config(v, m, "safe.directory", s->q->repo->dir);
	git_env_config(v, m, "core.hooksPath", hooks);
	git_env_config(v, m, "http.uploadpack", "true");
	git_env_config(v, m, "http.receivepack", "true");
	git_env_config(v, m, "http.getanyfile", "false"); /* no dumb protocol */
	git_env_config(v, m, "uploadpack.allowFilter", "true");
	/* By itself git unpacks up to 100 objects, whatever their size; a large pack is kept as it is instead of compressed anew. */
	if (!is_small(s))
		git_env_config(v, m, "receive.unpackLimit", "1");
	long long max = conf_int(s->c->conf, "FORGE_MAX_PUSH_MIB");
	if (max > 0)
		git_env_config(v, m, "receive.maxInputSize", mem_fmt(m, "%lldm", max));
}

static const char *const *child_env(struct serve *s, struct git_env *v, const char *hooks)
{
	struct ctx *c = s->c;
	const struct repo *r = s->q->repo;
	const char *service = service_name(s->q), *proto = reply_param(c, "HTTP_GIT_PROTOCOL");
	git_env_init(v);
	git_env_add(v, c->mem, "GIT_PROJECT_ROOT", conf_str(c->conf, "FORGE_ROOT"));
	git_env_add(v, c->mem, "GIT_HTTP_EXPORT_ALL", "1");
	git_env_add(v, c->mem, "REQUEST_METHOD", s->q->advertise ? "GET" : "POST");
	git_env_add(v, c->mem, "PATH_INFO",
	    mem_fmt(c->mem, "/%s/%s.git/%s", r->org, r->name, s->q->advertise ? "info/refs" : service));
	git_env_add(v, c->mem, "QUERY_STRING", s->q->advertise ? mem_fmt(c->mem, "service=%s", service) : "");
	/* git writes it into reflogs and its own committer identity; it decides nothing. */
	git_env_add(v, c->mem, "REMOTE_USER", c->who->cred_id);
	if (!s->q->advertise) {
		git_env_add(v, c->mem, "CONTENT_TYPE", mem_fmt(c->mem, "application/x-%s-request", service));
		if (body_coding(c) == CODING_GZIP)
			git_env_add(v, c->mem, "HTTP_CONTENT_ENCODING", "gzip");
	}
	if (protocol_ok(proto))
		git_env_add(v, c->mem, "GIT_PROTOCOL", proto);
	if (s->q->service == GIT_RECEIVE_PACK)
		add_rights(v, s);
	add_config(v, s, hooks);
	return git_env_done(v, c->mem);
}

/* ---- the body */

/* Read at least n bytes of the body ahead, or all of it. */
static int peek(struct serve *s, size_t n)
{
	while (s->peek.n < n && !s->body_ended) {
		char *room = buf_room(&s->peek, 4096);
		ssize_t got = room != NULL ? reply_read(s->c, room, 4096) : 0;
		if (got < 0) {
			s->client_gone = true;
			return -1;
		}
		if (room == NULL)
			return 0;
		s->body_ended = got == 0;
		buf_grew(&s->peek, (size_t)got);
	}
	return 0;
}

/*
 * A grant writes exactly one ref, so a push that names none is refused (FRG-3), here because git runs no hook for it. The four
 * bytes that git sends to find out whether it may push are no push. (A gzip'd body is not looked into: git itself sends none,
 * and without a command nothing is written anyway.)
 */
static int refuse_empty_push(struct serve *s, struct err *e)
{
	if (!writes(s->q) || s->c->who->kind != CRED_GRANT || body_coding(s->c) == CODING_GZIP)
		return 0;
	size_t used = 0;
	enum push_start start = PUSH_MORE;
	for (size_t want = 5; start == PUSH_MORE && want <= PEEK_BYTES && !s->body_ended;
	     want = s->peek.n + 1) {
		if (peek(s, want) != 0)
			return err_set(e, ERR_BAD_REQUEST, "The push was cut off.");
		start = push_start(s->peek.p, s->peek.n, &used);
	}
	bool probe = s->body_ended && s->peek.n == 4 && start == PUSH_NOTHING;
	if (probe || start == PUSH_COMMANDS)
		return 0;
	return err_set(e, ERR_FORBIDDEN,
	    "A grant pushes exactly one branch, and this push names none: push only %s.", s->c->who->ref);
}

static ssize_t serve_in(void *arg, void *p, size_t n)
{
	struct serve *s = arg;
	size_t left = s->peek.n - s->peek_done, take = left < n ? left : n;
	if (take > 0) {
		memcpy(p, s->peek.p + s->peek_done, take);
		s->peek_done += take;
		return (ssize_t)take;
	}
	if (s->body_ended)
		return 0;
	ssize_t got = reply_read(s->c, p, n);
	s->body_ended = got == 0;
	s->client_gone = s->client_gone || got < 0;
	return got;
}

/* git may end before the body does (a pack over the limit): a client that is still sending would not read our answer. */
static void drain_body(struct serve *s)
{
	auto_free char *p = xcalloc(1, PEEK_BYTES);
	for (size_t sum = 0; sum < DRAIN_BYTES && !s->body_ended && !s->client_gone;) {
		ssize_t n = reply_read(s->c, p, PEEK_BYTES);
		s->body_ended = n == 0;
		s->client_gone = n < 0;
		sum += n > 0 ? (size_t)n : 0;
	}
}

/* ---- the answer */

/* The services answer 200; anything else is git's own trouble, told in our own words. The head waits for the first byte of
 * the body: git has its head ready before it looks at the request. */
static int begin(struct serve *s)
{
	if (s->cgi.status != 200 || s->c->reply->begun)
		return 0;
	reply_header(s->c, "Cache-Control", "no-cache, max-age=0, must-revalidate");
	if (reply_begin(s->c, 200, s->cgi.content_type) == 0)
		return 0;
	s->client_gone = true;
	return -1;
}

static int pass_on(struct serve *s, const char *p, size_t n)
{
	if (n == 0 || s->cgi.status != 200)
		return 0;
	if (begin(s) == 0 && reply_write(s->c, p, n) == 0)
		return 0;
	s->client_gone = true;
	return -1;
}

static int serve_out(void *arg, const char *p, size_t n)
{
	struct serve *s = arg;
	if (s->head_done)
		return pass_on(s, p, n);
	size_t room = CGI_HEAD_MAX - s->head.n, take = n < room ? n : room;
	(void)buf_add(&s->head, p, take);
	int used = cgi_head_parse(s->head.p, s->head.n, &s->cgi, &s->err);
	if (used <= 0)
		return used;
	s->head_done = true;
	if (pass_on(s, s->head.p + used, s->head.n - (size_t)used) != 0)
		return -1;
	return pass_on(s, p + take, n - take);
}

static bool serve_cancelled(void *arg)
{
	struct serve *s = arg;
	s->client_gone = s->client_gone || reply_gone(s->c);
	return s->client_gone;
}

static int finish(struct serve *s, const struct proc_result *r, struct err *e)
{
	if (s->client_gone)
		return s->c->reply->begun ? 0 : err_set(e, ERR_BAD_REQUEST, "The request was cut off.");
	/* A body that cannot be inflated ends git without a word to the client and with status 0. */
	bool empty = !s->c->reply->begun, served = s->head_done && s->cgi.status == 200 && !r->timed_out;
	const char *theirs = served && !s->q->advertise && (empty || r->exit_code != 0)
	    ? cgi_client_fault(buf_c(&r->errout))
	    : NULL;
	if (theirs != NULL)
		return err_set(e, ERR_BAD_REQUEST, "%s", theirs);
	if (s->err.code != ERR_NONE)
		*e = s->err;
	else if (r->timed_out)
		err_set(e, ERR_TIMEOUT, "The transfer took too long.");
	else if (!served || r->exit_code != 0)
		err_set(e, ERR_INTERNAL, "git could not serve this repository.");
	if (e->code == ERR_NONE)
		return begin(s) == 0 || s->c->reply->begun /* nothing to say is an answer, too */
		    ? 0
		    : err_set(e, ERR_BAD_REQUEST, "The request was cut off.");
	/* What git said may name paths of the server: it goes to the log, the client is told the fact. */
	log_error("git http-backend failed", "request", s->c->request_id, "exit",
	    mem_fmt(s->c->mem, "%d", r->exit_code), "status", mem_fmt(s->c->mem, "%d", s->cgi.status),
	    "stderr", buf_c(&r->errout));
	return -1;
}

static int run(struct serve *s, struct err *e)
{
	/* Without the hook nothing is written; reading does without it. */
	const char *hooks = writes(s->q) ? store_hooks(s->c->mem, s->c->conf, e) : "/dev/null";
	if (hooks == NULL)
		return -1;
	struct git_env v;
	static const char *const argv[] = { "git", "http-backend", NULL };
	const struct proc_opts o = { .argv = argv,
		.env = child_env(s, &v, hooks),
		.stdin_fd = -1,
		.stdout_fd = -1,
		.stderr_fd = -1,
		.in_read = s->q->advertise ? NULL : serve_in,
		.on_out = serve_out,
		.cancelled = serve_cancelled,
		.arg = s,
		.timeout_ms = SERVE_MS };
	auto_proc struct proc_result r = { 0 };
	if (proc_run(&o, &r, e) != 0)
		return -1;
	int rc = finish(s, &r, e);
	if (!s->q->advertise)
		drain_body(s);
	return rc;
}

static int run_push(struct serve *s, struct err *e)
{
	struct mem *m = s->c->mem;
	int lock = store_push_begin(m, s->q->repo->dir, e);
	if (lock < 0)
		return -1;
	int rc = run(s, e);
	store_push_end(m, s->q->repo->dir, lock);
	return rc;
}

json_t *smarthttp_serve(struct ctx *c, const struct smart_req *q, struct err *e)
{
	struct serve s = { .c = c, .q = q, .peek = BUF(2 * PEEK_BYTES), .head = BUF(CGI_HEAD_MAX) };
	if (check_request(&s, e) != 0)
		return NULL;
	int rc = -1;
	if (atomic_fetch_add(&serving, 1) >= conf_int(c->conf, "FORGE_MAX_TRANSFERS")) {
		e->retry_s = 5;
		err_set(e, ERR_UNAVAILABLE,
		    "Too many git transfers are under way on this server: try again shortly.");
	} else if (refuse_empty_push(&s, e) == 0) {
		rc = writes(q) ? run_push(&s, e) : run(&s, e);
	}
	(void)atomic_fetch_sub(&serving, 1);
	buf_free(&s.peek);
	buf_free(&s.head);
	return rc == 0 ? REPLIED : NULL;
}
