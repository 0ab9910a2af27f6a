/* Names, pushes and diffs of the forge. */
#include <string.h>

#include "base/str.h"
#include "code/rgit.h"
#include "forge/html.h"
#include "forge/patch.h"
#include "forge/push.h"
#include "forge/refpolicy.h"
#include "forge/repo.h"
#include "fuzz.h"

enum { OUT_BYTES = 16 << 20 };

void fuzz_names(const uint8_t *p, size_t n)
{
	auto_mem struct mem *m = mem_new();
	const char *s = mem_strn(m, (const char *)p, n);
	struct err e = { 0 };
	char slug[64], id[RGIT_ID_MAX];
	if (repo_name_check(s, &e) == 0)
		HOLDS(strchr(s, '/') == NULL && strstr(s, "..") == NULL && s[0] != '.' && s[0] != '-');
	err_clear(&e);
	if (branch_check(s, "branch", &e) == 0)
		HOLDS(s[0] != '-' && strstr(s, "..") == NULL && strstr(s, "//") == NULL &&
		    strpbrk(s, " ~^:?*[\\\n") == NULL);
	err_clear(&e);
	if (push_path_check(s, &e) == 0)
		HOLDS(s[0] != '/' && strncmp(s, "../", 3) != 0 && strstr(s, "/../") == NULL &&
		    strcasecmp(s, ".git") != 0);
	if (str_slug(s, slug, sizeof slug))
		HOLDS(str_only(slug, "abcdefghijklmnopqrstuvwxyz0123456789-"));
	HOLDS(utf8_valid(s, strlen(s)) + utf8_tail(s, strlen(s)) <= strlen(s) + 3);
	HOLDS(!str_shows(s) || utf8_valid(s, strlen(s)) == strlen(s));
	if (rgit_id_line((const char *)p, n, id))
		HOLDS(rgit_id_ok(id, strlen(id)));
}

/* Lines "old new ref", as git gives them to its hook; a grant for agent/x. */
void fuzz_refs(const uint8_t *p, size_t n)
{
	enum { CHANGES = 8 };
	auto_mem struct mem *m = mem_new();
	struct ref_change changes[CHANGES];
	size_t count = 0;
	struct str rest = { (const char *)p, n }, line, a, b;
	while (count < CHANGES && str_cut(&rest, '\n', &line)) {
		if (!str_cut(&line, ' ', &a) || !str_cut(&line, ' ', &b))
			continue;
		changes[count++] = (struct ref_change){ mem_strn(m, line.p, line.n), mem_strn(m, a.p, a.n),
			mem_strn(m, b.p, b.n), a.n % 2 == 1 };
	}
	const struct ref_rights grant = { "refs/heads/agent/x", "main" }, org = { NULL, "main" };
	struct err e = { 0 };
	(void)refpolicy_judge(&org, changes, count, &e);
	err_clear(&e);
	if (count > 0 && refpolicy_judge(&grant, changes, count, &e) == 0)
		for (size_t i = 0; i < count; i++)
			HOLDS(strcmp(changes[i].ref, grant.grant_ref) == 0 && !changes[i].forced);
}

void fuzz_patch(const uint8_t *p, size_t n)
{
	struct str rest = { (const char *)p, n }, file;
	auto_buf struct buf out = BUF(OUT_BYTES);
	int budget = PATCH_LINES;
	while (patch_next(&rest, &file)) {
		(void)patch_has_lines(file);
		(void)patch_rows(&out, file, &budget);
	}
	HOLDS(budget >= 0);
}

/* What is put in closes no tag, quote or entity of ours: every '<' begins a tag of the escaper's own. */
void fuzz_html(const uint8_t *p, size_t n)
{
	auto_buf struct buf attr = BUF(OUT_BYTES), body = BUF(OUT_BYTES);
	html_attr(&attr, (const char *)p, n);
	html_esc(&body, (const char *)p, n);
	for (size_t i = 0; i < attr.n; i++)
		HOLDS(strchr("<>\"'", attr.p[i]) == NULL || attr.p[i] == 0);
	HOLDS(utf8_valid(buf_c(&attr), attr.n) == attr.n && utf8_valid(buf_c(&body), body.n) == body.n);
	for (size_t i = 0; i < body.n; i++)
		if (body.p[i] == '<')
			HOLDS(strncmp(body.p + i, "<span class=\"ctl\">", 18) == 0 ||
			    strncmp(body.p + i, "</span>", 7) == 0);
}
