/*
 * cli_doctor.c - `gatehouse doctor` (RUN-5): is this host set up as it must be? One line for each thing, with what to do about
 * it. Run it as the user of the services. Every line has a test that breaks what it looks at (tests/flow/flow_doctor.c).
 */
#include "cli_doctor.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "auth/seal.h"
#include "base/clock.h"
#include "base/log.h"
#include "cli.h"
#include "io/http.h"
#include "io/migrate.h"
#include "op/cli.h"
#include "sql/doctor.h"

enum { TAKE_MS = 5000, ASK_MS = 10000, SKEW_MS = 2000, WHAT_MAX = 1024 };

void doctor_say(struct doctor *d, enum verdict v, const char *name, const char *what, const char *remedy)
{
	static const char *const words[] = { "ok", "fail", "skip" };
	char *line = mem_str(d->mem, what);
	for (char *p = line; *p != 0; p++) /* last words have lines of their own */
		if ((unsigned char)*p < ' ')
			*p = ' ';
	d->failed += v == DOCTOR_FAIL;
	if (d->json) {
		js_push(d->lines,
		    js_pack("{s:s,s:s,s:s,s:s?}", "status", words[v], "name", name, "what", line, "remedy",
			v == DOCTOR_FAIL ? remedy : NULL));
		return;
	}
	(void)printf("%-4s %s: %s%s%s\n", words[v], name, line, v == DOCTOR_FAIL ? " -> " : "",
	    v == DOCTOR_FAIL ? remedy : "");
	(void)fflush(stdout);
}

/* ---- files and sockets of this host */

/* A look returns 0 with what it saw, -1 with e, or LOOK_SKIP with why in what. */
enum { LOOK_SKIP = 1 };

static int look_secret_key(struct doctor *d, struct buf *what, struct err *e)
{
	const char *path = conf_str(d->conf, "SECRET_KEY_FILE");
	struct stat st;
	if (stat(path, &st) != 0)
		return err_set(e, ERR_NOT_FOUND, "SECRET_KEY_FILE (%s): %s.", path, strerror(errno));
	if (!S_ISREG(st.st_mode) || (st.st_mode & 077) != 0)
		return err_set(e, ERR_FORBIDDEN,
		    "SECRET_KEY_FILE (%s) has mode %04o: others than its owner could read or change it.",
		    path, (unsigned)(st.st_mode & 07777));
	struct seal_key *key = seal_load(path, e);
	if (key == NULL)
		return -1;
	seal_free(key);
	return buf_fmt(what, "%s belongs to user id %u, who alone can read it", path, st.st_uid);
}

static int look_socket(const char *key, const char *path, struct buf *what, struct err *e)
{
	struct stat st;
	struct sockaddr_un to = { .sun_family = AF_UNIX };
	if (lstat(path, &st) != 0)
		return err_set(e, ERR_NOT_FOUND, "%s (%s): %s.", key, path, strerror(errno));
	if (!S_ISSOCK(st.st_mode))
		return err_set(e, ERR_CONFLICT, "%s (%s) is no socket.", key, path);
	if ((st.st_mode & 07) != 0)
		return err_set(e, ERR_FORBIDDEN,
		    "%s (%s) has mode %04o: every user of this host can pass for nginx.", key, path,
		    (unsigned)(st.st_mode & 07777));
	(void)snprintf(to.sun_path, sizeof to.sun_path, "%s", path);
	auto_fd int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0 || connect(fd, (const struct sockaddr *)&to, sizeof to) != 0)
		return err_set(e, ERR_UNAVAILABLE, "%s (%s): %s.", key, path, strerror(errno));
	return buf_fmt(what, "%s answers, mode %04o", path, (unsigned)(st.st_mode & 07777));
}

static int look_api_socket(struct doctor *d, struct buf *what, struct err *e)
{
	return look_socket("API_SOCKET", conf_str(d->conf, "API_SOCKET"), what, e);
}

static int look_sandboxd_socket(struct doctor *d, struct buf *what, struct err *e)
{
	return look_socket("SANDBOXD_SOCKET", conf_str(d->conf, "SANDBOXD_SOCKET"), what, e);
}

/* nginx makes its unix sockets writable for everybody: the directory is the lock. */
static int look_internal_directory(struct doctor *d, struct buf *what, struct err *e)
{
	char *dir = mem_str(d->mem, conf_str(d->conf, "INTERNAL_SOCKET"));
	char *slash = strrchr(dir, '/');
	struct stat st;
	if (slash == NULL || slash == dir)
		return err_set(e, ERR_CONFLICT, "INTERNAL_SOCKET has no directory of its own.");
	*slash = 0;
	if (stat(dir, &st) != 0)
		return err_set(
		    e, ERR_NOT_FOUND, "The directory of INTERNAL_SOCKET (%s): %s.", dir, strerror(errno));
	if ((st.st_mode & 07) != 0)
		return err_set(e, ERR_FORBIDDEN,
		    "The directory of INTERNAL_SOCKET (%s) has mode %04o: every user of this host reaches "
		    "the internal "
		    "door.",
		    dir, (unsigned)(st.st_mode & 07777));
	return buf_fmt(what, "%s has mode %04o", dir, (unsigned)(st.st_mode & 07777));
}

/* ---- the database */

static int look_database(struct doctor *d, struct buf *what, struct err *e)
{
	auto_pg struct pg *db = pg_take(d->db, TAKE_MS, e);
	auto_res struct pg_res *r = db == NULL ? NULL : PG0(db, &q_doctor_clock, e);
	d->db_answers = r != NULL;
	return r == NULL ? -1 : buf_str(what, "it answers");
}

static int look_migrations(struct doctor *d, struct buf *what, struct err *e)
{
	auto_pg struct pg *db = pg_take(d->db, TAKE_MS, e);
	int n = db == NULL ? -1 : migrate_pending(db, migrations, e);
	if (n > 0)
		return err_set(e, ERR_CONFLICT, "The database lacks %d migrations of this version.", n);
	return n < 0 ? -1 : buf_str(what, "all are applied");
}

static int look_clock(struct doctor *d, struct buf *what, struct err *e)
{
	auto_pg struct pg *db = pg_take(d->db, TAKE_MS, e);
	int64_t before = clock_wall_ms(), begin = clock_ms();
	auto_res struct pg_res *r = db == NULL ? NULL : PG0(db, &q_doctor_clock, e);
	if (r == NULL)
		return -1;
	int64_t took = clock_ms() - begin, off = pg_int(r, 0, 0) - (before + took / 2);
	if (off > SKEW_MS + took || off < -SKEW_MS - took)
		return err_set(e, ERR_CONFLICT, "The database's clock is %lld s %s this host's.",
		    (long long)(off < 0 ? -off : off) / 1000, off < 0 ? "behind" : "ahead of");
	return buf_fmt(what, "the database's and this host's differ by %lld ms", (long long)off);
}

/* ---- nginx */

static int ask(
    struct doctor *d, const char *socket, const char *url, int *status, struct buf *body, struct err *e)
{
	const char *ca = conf_str(d->conf, "CA_FILE");
	struct http_res res = { 0 };
	struct http_req q = { .method = "GET",
		.url = url,
		.unix_socket = socket,
		.ca_file = ca[0] == 0 ? NULL : ca,
		.connect_ms = ASK_MS,
		.total_ms = ASK_MS };
	int rc = http_do(&q, &res, e);
	*status = res.status;
	if (rc == 0 && body != NULL)
		rc = buf_add(body, buf_c(&res.body), res.body.n < WHAT_MAX / 2 ? res.body.n : WHAT_MAX / 2);
	http_res_free(&res);
	return rc;
}

/* Asked as clients do. What only the internal door has must not be there: then the include has not said which door it is. */
static int look_nginx_public(struct doctor *d, struct buf *what, struct err *e)
{
	const char *base = conf_str(d->conf, "PUBLIC_URL");
	auto_buf struct buf body = BUF(WHAT_MAX);
	int health, metrics;
	if (ask(d, NULL, mem_fmt(d->mem, "%s/health", base), &health, &body, e) != 0)
		return -1;
	if (health != 200 || strstr(buf_c(&body), "\"ok\"") == NULL)
		return err_set(
		    e, ERR_UPSTREAM, "%s/health answers %d, not gatehouse's own words.", base, health);
	if (ask(d, NULL, mem_fmt(d->mem, "%s/metrics", base), &metrics, NULL, e) != 0)
		return -1;
	if (metrics != 404)
		return err_set(e, ERR_FORBIDDEN,
		    "%s/metrics answers %d: the public server passes requests on as internal ones.", base,
		    metrics);
	return buf_fmt(what, "%s passes on to gatehouse, as the public door", base);
}

static int look_nginx_internal(struct doctor *d, struct buf *what, struct err *e)
{
	const char *door = conf_str(d->conf, "INTERNAL_SOCKET");
	int metrics;
	if (ask(d, door, "http://door/metrics", &metrics, NULL, e) != 0)
		return -1;
	if (metrics != 200)
		return err_set(e, ERR_UPSTREAM,
		    "INTERNAL_SOCKET (%s) answers %d where the internal door has its own ops.", door,
		    metrics);
	return buf_fmt(what, "%s is the internal door", door);
}

static int look_ready(struct doctor *d, struct buf *what, struct err *e)
{
	auto_buf struct buf body = BUF(WHAT_MAX);
	struct err bad = { 0 };
	int status;
	if (ask(d, NULL, mem_fmt(d->mem, "%s/ready", conf_str(d->conf, "PUBLIC_URL")), &status, &body, e) !=
	    0)
		return -1;
	auto_json json_t *j = js_parse(buf_c(&body), body.n, &bad);
	if (status == 200 && strcmp(js_str_or(j, "egress", ""), "away") == 0)
		return err_set(e, ERR_UNAVAILABLE,
		    "Requests are served, but the egress boundary is away: start gatehouse-egress.");
	if (status == 200)
		return buf_str(what, "requests are served");
	return err_set(e, ERR_UNAVAILABLE, "It answers %d: %s", status,
	    js_str_or(js_get(j, "error"), "message", "nothing more"));
}

/* ---- the table: a line each, in the order in which they build on each other */

static const struct check {
	const char *name;
	bool needs_db;
	int (*look)(struct doctor *d, struct buf *what, struct err *e);
	const char *remedy;
} checks[] = {
	{ "secret-key", false, look_secret_key,
	    "make one with `openssl rand -hex 32`, owned by the services' user, mode 0600" },
	{ "socket.api", false, look_api_socket,
	    "start gatehouse-api; its socket is 0660, its group nginx's" },
	{ "socket.sandboxd", false, look_sandboxd_socket,
	    "start gatehouse-sandboxd; its socket is 0660, its group nginx's" },
	{ "socket.internal", false, look_internal_directory,
	    "make it 0750 and the services' own: systemd-tmpfiles --create" },
	{ "database", false, look_database,
	    "start PostgreSQL, check DATABASE_URL, and run this as the user of the services" },
	{ "migrations", true, look_migrations, "gatehouse migrate" },
	{ "clock", true, look_clock, "let both hosts keep time (chrony or systemd-timesyncd)" },
	{ "nginx.public", false, look_nginx_public,
	    "`include gatehouse.conf;` in the server of PUBLIC_URL, check CA_FILE, nginx -t && nginx -s "
	    "reload" },
	{ "nginx.internal", false, look_nginx_internal,
	    "install nginx/gatehouse-internal.conf into /etc/nginx/conf.d, nginx -t && nginx -s reload" },
	{ "ready", true, look_ready, "see the lines above and the log of gatehouse-api" },
};

static void look(struct doctor *d, const struct check *c)
{
	struct err e = { 0 };
	auto_buf struct buf what = BUF(WHAT_MAX);
	if (c->needs_db && !d->db_answers) {
		doctor_say(d, DOCTOR_SKIP, c->name, "the database does not answer", NULL);
		return;
	}
	int rc = c->look(d, &what, &e);
	doctor_say(d, rc < 0 ? DOCTOR_FAIL : DOCTOR_OK, c->name, rc < 0 ? e.msg : buf_c(&what), c->remedy);
}

static void look_at_all(struct doctor *d)
{
	for (size_t i = 0; i < sizeof checks / sizeof checks[0]; i++)
		look(d, &checks[i]);
	if (!d->db_answers) {
		doctor_say(d, DOCTOR_SKIP, "billing", "the database does not answer", NULL);
		doctor_say(d, DOCTOR_SKIP, "sandboxes", "the database does not answer", NULL);
		return;
	}
	doctor_money(d);
	doctor_sandboxes(d);
	doctor_egress(d);
}

int cli_doctor(char **args, struct err *e)
{
	bool json = false;
	const struct cli_option all[] = { { "json", NULL, &json }, { 0 } };
	if (cli_options(args, all, NULL, 0, e) != 0)
		return -1;
	auto_mem struct mem *m = mem_new();
	struct doctor d = { .mem = m, .json = json, .lines = json_array() };
	struct err bad = { 0 };
	struct conf *conf = conf_load(NULL, &bad);
	if (conf == NULL) {
		doctor_say(&d, DOCTOR_FAIL, "configuration", bad.msg,
		    "correct the line, or take it out for its default");
	} else {
		/* The lines say it all; what PostgreSQL said comes before, from the pool. */
		log_setup("gatehouse", LOG_ERROR_, LOG_LOGFMT);
		doctor_say(&d, DOCTOR_OK, "configuration", "it can be read, every value is allowed", NULL);
		d.conf = conf;
		d.db = pg_pool_new(conf_str(conf, "DATABASE_URL"), 2, TAKE_MS);
		look_at_all(&d);
		pg_pool_free(d.db);
		conf_free(conf);
	}
	auto_json json_t *report = js_pack("{s:b,s:o}", "ok", d.failed == 0, "lines", d.lines);
	if (json)
		(void)printf("%s\n", js_dump(m, report));
	return d.failed == 0 ? 0 : 1;
}
