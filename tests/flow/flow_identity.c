/* Who is asking, through nginx and on two api hosts: ID-1…6. */
#include "../span.h"
#include "../t.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "../../handlers/handlers.h"
#include "base/clock.h"
#include "base/js.h"
#include "base/mem.h"
#include "base/str.h"
#include "judge.h"
#include "session/event.h"
#include "stack.h"

enum { REVOKED_WITHIN_MS = 1000 };

static struct stack st;
static struct stack_org ours, theirs;

static void get_with(int api, const char *path, const char *key, const char *header, struct web *w)
{
	const char *const headers[] = { header, NULL };
	struct web_req q = { .method = "GET", .path = path, .key = key, .headers = headers, .api = api };
	web_do(&st, &q, w);
}

static long status_at(int api, const char *path, const char *key)
{
	auto_web struct web w = { 0 };
	get_with(api, path, key, NULL, &w);
	return w.status;
}

/* A key made over the API by our admin: its text and id. */
static void key_made(json_t *fields, char key[128], char id[64])
{
	auto_web struct web w = { 0 };
	web_json(&st, "POST", "/v1/keys", ours.key, fields, &w);
	assert_int_equal(w.status, 201);
	(void)snprintf(key, 128, "%s", js_str(w.json, "key"));
	(void)snprintf(id, 64, "%s", js_str(w.json, "id"));
}

static void key_revoked(const char *id)
{
	char path[128];
	auto_web struct web w = { 0 };
	(void)snprintf(path, sizeof path, "/v1/keys/%s", id);
	web_json(&st, "DELETE", path, ours.key, NULL, &w);
	assert_int_equal(w.status, 200);
}

/* ---- ID-1 */

static void every_bad_credential_gets_one_and_the_same_answer(void **s)
{
	(void)s;
	char revoked[128], id[64], expired[128], wrong[128], unknown[128], header[400], challenge[100];
	auto_buf struct buf sql = BUF(400);
	key_made(js_pack("{s:s}", "name", "gone"), revoked, id);
	key_revoked(id);
	key_made(js_pack("{s:s}", "name", "late"), expired, id);
	(void)buf_fmt(
	    &sql, "UPDATE credentials SET expires_at = now() - interval '1 second' WHERE id = '%s'", id);
	stack_sql(&st, buf_c(&sql), NULL);
	(void)snprintf(wrong, sizeof wrong, "%s", ours.key);
	wrong[strlen(wrong) - 2] = wrong[strlen(wrong) - 2] == 'a' ? 'b' : 'a';
	(void)snprintf(unknown, sizeof unknown, "%s", ours.key);
	unknown[5] = unknown[5] == '0' ? '1' : '0';
	const char *const bad[] = { revoked, expired, wrong, unknown, "gk_", "gk", "x", "gr_x", "gg_x",
		"null", "undefined",
		"gk_01jdvk2m8q4e6r8t0v2x4z6a8c_0123456789012345678901234567890123456789012", NULL };
	auto_web struct web none = { 0 };
	get_with(0, "/v1/agents/sessions", NULL, NULL, &none);
	judge_refusal(&st, &none, 401);
	assert_true(web_header(&none, "WWW-Authenticate", challenge, sizeof challenge));
	for (const char *const *b = bad; *b != NULL; b++) {
		auto_web struct web w = { 0 };
		get_with(0, "/v1/agents/sessions", *b, NULL, &w);
		judge_refusal(&st, &w, 401);
		judge_same(&none, &w);
	}
	/* The right key in a wrong place or scheme is none. */
	static const char *const shapes[] = { "Authorization: %s", "Authorization: Token %s",
		"Authorization: Basic %s", "X-Api-Key: %s", "Cookie: key=%s",
		"Proxy-Authorization: Bearer %s", NULL };
	for (const char *const *f = shapes; *f != NULL; f++) {
		auto_web struct web w = { 0 };
		const char *at = strstr(*f, "%s");
		(void)snprintf(header, sizeof header, "%.*s%s", (int)(at - *f), *f, ours.key);
		get_with(0, "/v1/agents/sessions", NULL, header, &w);
		judge_same(&none, &w);
	}
}

/* ---- ID-2 */

static void identity_headers_of_a_client_have_no_effect(void **s)
{
	(void)s;
	static const char *const names[] = { "X-Org-Id", "X-Org", "X-Organization-Id", "X-Tenant-Id",
		"X-User-Id", "X-User", "X-User-Email", "X-User-IsAdmin", "X-User-Is-Admin", "X-Is-Admin",
		"X-Admin", "X-Role", "X-Roles", "X-Scopes", "X-Forwarded-User", "X-Forwarded-Email",
		"X-Forwarded-Groups", "X-Remote-User", "Remote-User", "X-Auth-Request-User", "X-Auth-User",
		"X-Principal", "X-Gatehouse-Org", "Gatehouse-Door", "X-Original-User", NULL };
	const char *const values[] = { theirs.slug, "admin", "boss", "true", "1", "internal", NULL };
	auto_web struct web mine = { 0 }, keys = { 0 }, nobody = { 0 }, door = { 0 };
	get_with(0, "/v1/agents/sessions", ours.member, NULL, &mine);
	get_with(0, "/v1/keys", ours.member, NULL, &keys);
	get_with(0, "/v1/keys", NULL, NULL, &nobody);
	get_with(0, "/v1/node/sandboxes", ours.member, NULL, &door);
	assert_int_equal(mine.status, 200);
	judge_refusal(&st, &keys, 403);
	judge_refusal(&st, &nobody, 401);
	judge_refusal(&st, &door, 404);
	for (const char *const *n = names; *n != NULL; n++)
		for (const char *const *v = values; *v != NULL; v++) {
			char header[200];
			auto_web struct web a = { 0 }, b = { 0 }, c = { 0 }, d = { 0 };
			(void)snprintf(header, sizeof header, "%s: %s", *n, *v);
			get_with(0, "/v1/agents/sessions", ours.member, header, &a);
			get_with(0, "/v1/keys", ours.member, header, &b);
			get_with(0, "/v1/keys", NULL, header, &c);
			get_with(0, "/v1/node/sandboxes", ours.member, header, &d);
			judge_same(&mine, &a);
			judge_same(&keys, &b);
			judge_same(&nobody, &c);
			judge_same(&door, &d);
		}
}

/* ---- ID-3 */

static void an_admin_of_one_org_is_nothing_in_another(void **s)
{
	(void)s;
	char key[128], id[64], path[128];
	key_made(js_pack("{s:s}", "name", "ours"), key, id);
	/* A member is no admin, at home neither. */
	auto_web struct web member = { 0 };
	get_with(0, "/v1/keys", ours.member, NULL, &member);
	judge_refusal(&st, &member, 403);
	/* Another org's admin sees no key of ours and revokes none. */
	auto_web struct web list = { 0 };
	get_with(0, "/v1/keys", theirs.key, NULL, &list);
	assert_null(strstr(list.body, id));
	auto_web struct web w = { 0 };
	(void)snprintf(path, sizeof path, "/v1/keys/%s", id);
	web_json(&st, "DELETE", path, theirs.key, NULL, &w);
	judge_refusal(&st, &w, 404);
	assert_int_equal(status_at(0, "/v1/agents/sessions", key), 200);
	/* A member of the reserved org without an admin key, and one with: still members of their org only. */
	char plain[128], super[128];
	stack_key(&st, "admin", "operator", false, NULL, plain);
	stack_key(&st, "admin", "operator", true, NULL, super);
	auto_web struct web p = { 0 }, q = { 0 };
	get_with(0, "/v1/keys", plain, NULL, &p);
	judge_refusal(&st, &p, 403);
	get_with(0, "/v1/keys", super, NULL, &q);
	assert_int_equal(q.status, 200);
	assert_null(strstr(q.body, id));
}

/* ---- ID-4 */

/* Things of ours, by what names them in an op's input. */
static struct {
	const char *scope, *param; /* scope NULL: any */
	char id[64];
	const char *none; /* of the same shape, and nobody's */
} things[] = {
	{ "sessions", "id", "", "ses_00000000000000000000000000" },
	{ "sessions", "root", "", "ses_00000000000000000000000000" },
	{ "coding", "session", "", "ses_00000000000000000000000000" },
	{ "sandboxes", "session", "", "ses_00000000000000000000000000" },
	{ "sandboxes", "id", "", "sbx_00000000000000000000000000" },
	{ "coding", "run", "", "run_00000000000000000000000000" },
	{ "coding", "repo", "ours-only", "nobodys-1" },
	{ "git", "repo", "ours-only", "nobodys-1" },
	{ "keys", "id", "", "key_00000000000000000000000000" },
};
static char their_box[64]; /* theirs, so that only the session is ours */
enum { N_THINGS = sizeof things / sizeof things[0] };

static void thing_is(const char *scope, const char *param, const char *id)
{
	for (size_t i = 0; i < N_THINGS; i++)
		if (strcmp(things[i].scope, scope) == 0 && strcmp(things[i].param, param) == 0)
			(void)snprintf(things[i].id, sizeof things[i].id, "%s", id);
}

static void things_made(void)
{
	char key[128], id[64];
	key_made(js_pack("{s:s}", "name", "thing"), key, id);
	thing_is("keys", "id", id);
	auto_web struct web box = { 0 }, other = { 0 }, repo = { 0 }, run = { 0 }, runs = { 0 };
	web_json(&st, "POST", "/v1/sandboxes", theirs.member, js_pack("{s:s}", "class", "exec"), &other);
	assert_int_equal(other.status, 201);
	(void)snprintf(their_box, sizeof their_box, "%s", js_str(other.json, "id"));
	web_json(&st, "POST", "/v1/sandboxes", ours.member, js_pack("{s:s}", "class", "exec"), &box);
	assert_int_equal(box.status, 201);
	thing_is("sandboxes", "id", js_str(box.json, "id"));
	web_json(&st, "POST", "/v1/git/repos", ours.member, js_pack("{s:s}", "name", "ours-only"), &repo);
	assert_int_equal(repo.status, 201);
	static const char *const later[] = { "Prefer: respond-async", NULL };
	struct web_req q = { .method = "POST",
		.path = "/v1/coding-tasks",
		.key = ours.member,
		.headers = later,
		.body = "{\"tool\":\"python\",\"prompt\":\"print(1)\"}" };
	web_do(&st, &q, &run);
	assert_int_equal(run.status, 202);
	get_with(0, "/v1/bots", ours.member, NULL, &runs);
	const json_t *row = json_array_get(json_object_get(runs.json, "data"), 0);
	thing_is("coding", "run", js_str(row, "id"));
	thing_is("coding", "session", js_str(row, "session"));
	thing_is("sandboxes", "session", js_str(row, "session"));
	thing_is("sessions", "id", js_str(row, "session"));
	thing_is("sessions", "root", js_str(row, "session"));
}

/* Ask for it as the other org; the echo of the name that was asked for is taken out. */
static void ask(const struct op *op, const char *param, const char *id, struct web *w)
{
	struct err e = { 0 };
	auto_mem struct mem *m = mem_new();
	auto_json json_t *in = op_example(op);
	for (size_t i = 0; i < N_THINGS; i++)
		if (strcmp(things[i].scope, op->scope) == 0)
			(void)json_object_del(in, things[i].param);
	if (strcmp(param, "repo") != 0)
		(void)json_object_del(in, "base");
	if (strcmp(op->id, "run_in_sandbox") == 0)
		js_set_str(in, "id", their_box);
	js_set_str(in, param, id);
	struct op_request r;
	assert_int_equal(op_request(m, op, in, &r, &e), 0);
	struct web_req q = { .method = r.method,
		.path = r.target,
		.key = theirs.key,
		.body = (op->flags & OP_RAW_IN) != 0 ? "bytes" : r.body };
	web_do(&st, &q, w);
	for (char *at; (at = strstr(w->body, id)) != NULL;)
		memmove(at, at + strlen(id), strlen(at + strlen(id)) + 1);
}

static int compare_op(const struct op *op)
{
	int n = 0;
	for (size_t i = 0; i < N_THINGS; i++) {
		bool has = false;
		for (const struct param *p = op->in; p != NULL && p->name != NULL; p++)
			has = has || strcmp(p->name, things[i].param) == 0;
		if (op->scope == NULL || strcmp(op->scope, things[i].scope) != 0 || !has ||
		    strcmp(op->id, "create_repo") == 0)
			continue;
		auto_web struct web of_ours = { 0 }, of_nobody = { 0 };
		ask(op, things[i].param, things[i].id, &of_ours);
		ask(op, things[i].param, things[i].none, &of_nobody);
		n++;
		/* SBX-3: naming a sandbox that one does not have leases a new one. */
		if (strcmp(op->id, "lease_sandbox") == 0 && strcmp(things[i].param, "id") == 0) {
			assert_int_equal(of_ours.status, 201);
			assert_int_equal(of_nobody.status, 201);
			assert_string_not_equal(js_str(of_ours.json, "id"), things[i].id);
			continue;
		}
		if (strncmp(op->id, "list_", 5) != 0)
			judge_refusal(&st, &of_ours, 404);
		judge_same(&of_ours, &of_nobody);
	}
	return n;
}

/* Every op, every way to name a thing. */
static void another_orgs_things_answer_like_those_that_do_not_exist(void **s)
{
	(void)s;
	int n = 0;
	things_made();
	for (const struct op *const *t = handlers_all; *t != NULL; t++)
		for (const struct op *op = *t; op->id != NULL; op++)
			if ((op->flags & (OP_INTERNAL | OP_HIDDEN)) == 0)
				n += compare_op(op);
	assert_true(n > 15);
	/* And all of it is still there for its own org. */
	char path[128];
	(void)snprintf(path, sizeof path, "/v1/sandboxes/%s", things[4].id);
	assert_int_equal(status_at(0, path, ours.member), 200);
	assert_int_equal(status_at(0, "/v1/git/repos/ours-only", ours.member), 200);
}

/* What PostgreSQL was asked about `id` by the other org, in order: the names of the statements, from its log. */
static void asked_about(const char *id, long from, struct buf *names)
{
	char path[128];
	(void)snprintf(path, sizeof path, "%s/log/pg.log", st.dir);
	FILE *f = fopen(path, "re");
	assert_non_null(f);
	assert_int_equal(fseek(f, from, SEEK_SET), 0);
	char *line = NULL, name[80] = "";
	size_t room = 0;
	while (getline(&line, &room, f) > 0) {
		const char *at = strstr(line, "execute ");
		if (at != NULL && strstr(line, "LOG:") != NULL)
			(void)snprintf(name, sizeof name, "%.*s", (int)strcspn(at + 8, ":"), at + 8);
		else if (strstr(line, "DETAIL:") != NULL && strstr(line, id) != NULL &&
		    strstr(line, theirs.slug) != NULL)
			(void)buf_fmt(names, "%s ", name);
	}
	free(line);
	assert_int_equal(fclose(f), 0);
}

static long log_end(void)
{
	char path[128];
	struct stat s;
	(void)snprintf(path, sizeof path, "%s/log/pg.log", st.dir);
	assert_int_equal(stat(path, &s), 0);
	return s.st_size;
}

static int compare_path(const struct op *op, const char *param, const char *ours_id, const char *none)
{
	auto_web struct web a = { 0 }, b = { 0 };
	auto_buf struct buf of_ours = BUF(4096), of_nobody = BUF(4096);
	long from = log_end();
	ask(op, param, ours_id, &a);
	asked_about(ours_id, from, &of_ours);
	from = log_end();
	ask(op, param, none, &b);
	asked_about(none, from, &of_nobody);
	if (strcmp(buf_c(&of_ours), buf_c(&of_nobody)) != 0)
		fail_msg("%s, %s: asked %s for ours and %s for nobody's", op->id, param, buf_c(&of_ours),
		    buf_c(&of_nobody));
	return of_ours.n > 0;
}

/*
 * The time of an answer says nothing where the work is the same: the same statements in the same order, whether the other
 * org's thing is there or not. Times themselves are not judged, they would be noise.
 */
static void another_orgs_things_take_the_same_path_as_those_that_do_not_exist(void **s) /* ID-4 */
{
	(void)s;
	int n = 0;
	stack_sql(&st, "ALTER SYSTEM SET log_statement = 'all'", NULL);
	stack_sql(&st, "SELECT pg_reload_conf()", NULL);
	auto_buf struct buf on = BUF(100);
	for (int64_t deadline = clock_ms() + 60000; strcmp(buf_c(&on), "all") != 0;) {
		assert_true(clock_ms() < deadline);
		buf_reset(&on);
		stack_sql(&st, "SHOW log_statement", &on);
	}
	for (const struct op *const *t = handlers_all; *t != NULL; t++)
		for (const struct op *op = *t; op->id != NULL; op++)
			for (size_t i = 0; i < N_THINGS; i++) {
				bool has = false;
				for (const struct param *p = op->in; p != NULL && p->name != NULL; p++)
					has = has || strcmp(p->name, things[i].param) == 0;
				/* These make a new thing, of that name or beside it: not the same question. */
				if ((op->flags & (OP_INTERNAL | OP_HIDDEN)) == 0 && op->scope != NULL &&
				    has && strcmp(op->scope, things[i].scope) == 0 &&
				    strcmp(op->id, "create_repo") != 0 &&
				    strcmp(op->id, "lease_sandbox") != 0)
					n += compare_path(op, things[i].param, things[i].id, things[i].none);
			}
	assert_true(n > 12); /* it was seen in the log at all */
	stack_sql(&st, "ALTER SYSTEM RESET log_statement", NULL);
	stack_sql(&st, "SELECT pg_reload_conf()", NULL);
}

/* ---- ID-6 */

static void a_key_works_everywhere_at_once_and_stops_everywhere_at_once(void **s)
{
	(void)s;
	char key[128], id[64];
	key_made(js_pack("{s:s}", "name", "short"), key, id);
	for (int api = 0; api < 2; api++)
		assert_int_equal(status_at(api, "/v1/agents/sessions", key), 200);
	auto_web struct web list = { 0 };
	get_with(1, "/v1/keys", ours.key, NULL, &list);
	assert_non_null(strstr(list.body, id));
	assert_null(strstr(list.body, strrchr(key, '_') + 1));
	key_revoked(id); /* at the first host, which forgets it at once */
	struct span since = span_begin();
	assert_int_equal(status_at(0, "/v1/agents/sessions", key), 401);
	while (status_at(1, "/v1/agents/sessions", key) != 401)
		assert_true(span_ms(&since) < REVOKED_WITHIN_MS);
	/* By the operator's command, of which no host is told. */
	key_made(js_pack("{s:s}", "name", "shorter"), key, id);
	for (int api = 0; api < 2; api++)
		assert_int_equal(status_at(api, "/v1/agents/sessions", key), 200);
	const char *const args[] = { "key", "revoke", id, "--org", ours.slug, NULL };
	stack_cli(&st, args, NULL);
	since = span_begin();
	for (int api = 0; api < 2; api++)
		while (status_at(api, "/v1/agents/sessions", key) != 401)
			assert_true(span_ms(&since) < REVOKED_WITHIN_MS);
}

static void rotated(const char *id, int grace_s, char key[128])
{
	char path[128];
	auto_web struct web w = { 0 };
	(void)snprintf(path, sizeof path, "/v1/keys/%s/rotate", id);
	web_json(&st, "POST", path, ours.key, js_pack("{s:i}", "graceSec", grace_s), &w);
	assert_int_equal(w.status, 200);
	(void)snprintf(key, 128, "%s", js_str(w.json, "key"));
}

static void a_rotated_secret_works_and_the_one_before_stops_everywhere_at_once(void **s)
{
	(void)s;
	char first[128], second[128], third[128], id[64];
	key_made(js_pack("{s:s}", "name", "turning"), first, id);
	for (int api = 0; api < 2; api++)
		assert_int_equal(status_at(api, "/v1/agents/sessions", first), 200);
	rotated(id, 0, second); /* at the first host */
	assert_int_equal(status_at(0, "/v1/agents/sessions", first), 401);
	struct span since = span_begin();
	while (status_at(1, "/v1/agents/sessions", first) != 401)
		assert_true(span_ms(&since) < REVOKED_WITHIN_MS);
	for (int api = 0; api < 2; api++)
		assert_int_equal(status_at(api, "/v1/agents/sessions", second), 200);
	/* With a grace both work, until it is over. */
	rotated(id, 3 + span_room_ms(200) / 1000, third);
	for (int api = 0; api < 2; api++) {
		assert_int_equal(status_at(api, "/v1/agents/sessions", second), 200);
		assert_int_equal(status_at(api, "/v1/agents/sessions", third), 200);
	}
	int64_t deadline = clock_ms() + PATIENCE_MS;
	while (status_at(1, "/v1/agents/sessions", second) != 401)
		assert_true(clock_ms() < deadline);
	assert_int_equal(status_at(0, "/v1/agents/sessions", third), 200);
	/* The operator's command does the same. */
	const char *const args[] = { "key", "rotate", id, "--org", ours.slug, NULL };
	auto_buf struct buf out = BUF(1024);
	stack_cli(&st, args, &out);
	(void)snprintf(first, sizeof first, "%.*s", (int)strcspn(buf_c(&out), "\n"), buf_c(&out));
	assert_int_equal(status_at(1, "/v1/agents/sessions", third), 401);
	assert_int_equal(status_at(1, "/v1/agents/sessions", first), 200);
}

static void a_key_reaches_the_op_groups_it_holds_and_no_other(void **s)
{
	(void)s;
	char key[128], id[64];
	key_made(js_pack("{s:s, s:[s], s:b}", "name", "narrow", "scopes", "sessions", "admin", 1), key, id);
	assert_int_equal(status_at(0, "/v1/agents/sessions", key), 200);
	static const char *const others[] = { "/v1/keys", "/v1/sandboxes", "/v1/git/repos", "/v1/bots",
		NULL };
	for (const char *const *p = others; *p != NULL; p++) {
		auto_web struct web w = { 0 };
		get_with(0, *p, key, NULL, &w);
		judge_refusal(&st, &w, 403);
	}
}

static void a_key_ends_when_it_says(void **s)
{
	(void)s;
	char key[128], id[64], soon[CLOCK_TEXT];
	clock_rfc3339(clock_wall_ms() + 5000 + span_room_ms(200), soon);
	key_made(js_pack("{s:s, s:s}", "name", "soon", "expiresAt", soon), key, id);
	assert_int_equal(status_at(0, "/v1/agents/sessions", key), 200);
	int64_t deadline = clock_ms() + 60000;
	while (status_at(1, "/v1/agents/sessions", key) != 401)
		assert_true(clock_ms() < deadline);
}

static int setup(void **s)
{
	(void)s;
	stack_up(&st, 2, 1, 1, NULL);
	stack_org(&st, &ours);
	stack_org(&st, &theirs);
	return 0;
}

static int teardown(void **s)
{
	(void)s;
	stack_down(&st);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_bad_credential_gets_one_and_the_same_answer),
		cmocka_unit_test(identity_headers_of_a_client_have_no_effect),
		cmocka_unit_test(an_admin_of_one_org_is_nothing_in_another),
		cmocka_unit_test(another_orgs_things_answer_like_those_that_do_not_exist),
		cmocka_unit_test(another_orgs_things_take_the_same_path_as_those_that_do_not_exist),
		cmocka_unit_test(a_key_works_everywhere_at_once_and_stops_everywhere_at_once),
		cmocka_unit_test(a_rotated_secret_works_and_the_one_before_stops_everywhere_at_once),
		cmocka_unit_test(a_key_reaches_the_op_groups_it_holds_and_no_other),
		cmocka_unit_test(a_key_ends_when_it_says),
	};
	return cmocka_run_group_tests(tests, setup, teardown);
}
