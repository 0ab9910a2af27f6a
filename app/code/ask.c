#include "code/ask.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/id.h"
#include "base/js.h"
#include "base/limits.h"
#include "base/str.h"
#include "forge/repo.h"

void ask_read(const json_t *in, struct ask *a)
{
	const json_t *cred = js_get(in, "credential");
	*a = (struct ask){
		.prompt = js_str(in, "prompt"),
		.tool = js_str_or(in, "tool", "dev"),
		.repo = js_str(in, "repo"),
		.project = js_str(in, "project"),
		.clone_url = js_str(in, "cloneUrl"),
		.base = js_str(in, "base"),
		.branch = js_str(in, "branch"),
		.session = js_str(in, "session"),
		.token = cred == NULL ? NULL : js_str_or(cred, "token", ""),
		.user = cred == NULL ? NULL : js_str_or(cred, "username", "x-access-token"),
		.desktop = js_bool(in, "desktop", false),
		.timeout_s = js_int(in, "timeoutSec", LIMIT_RUN_DEFAULT_S),
	};
}

void ask_branch(const char *session, char out[ASK_BRANCH_MAX])
{
	(void)snprintf(out, ASK_BRANCH_MAX, "agent/%s", id_tail(session));
}

#define BAD(e, param, ...) ((void)err_detail(e, ERR_BAD_REQUEST, param, __VA_ARGS__))

/* A judgement of another module becomes one of several details. */
static void add(struct err *e, const char *param, const struct err *one)
{
	if (one->code != ERR_NONE)
		BAD(e, param, "%s", one->msg);
}

bool ask_host_listed(const char *list, const struct ask_host *h)
{
	char with_port[sizeof h->name + 16];
	bool six = strchr(h->name, ':') != NULL;
	(void)snprintf(
	    with_port, sizeof with_port, "%s%s%s:%d", six ? "[" : "", h->name, six ? "]" : "", h->port);
	struct str rest = str_of(list), word;
	while (str_cut(&rest, ' ', &word))
		for (struct str one; str_cut(&word, ',', &one);) {
			char *port = memrchr(with_port, ':', strlen(with_port));
			size_t name = (size_t)(port - with_port);
			if ((one.n == name || one.n == strlen(with_port)) &&
			    strncasecmp(one.p, with_port, one.n) == 0)
				return true;
		}
	return false;
}

/* Split an authority; false when it is not host or host:port. */
static bool authority_ok(struct str a, struct ask_host *h)
{
	struct str host, rest;
	long long port;
	const char *letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._";
	if (a.n > 0 && a.p[0] == '[') {
		const char *end = memchr(a.p, ']', a.n);
		if (end == NULL)
			return false;
		host = (struct str){ a.p + 1, (size_t)(end - a.p - 1) };
		rest = (struct str){ end + 1, a.n - (size_t)(end + 1 - a.p) };
		letters = "0123456789abcdefABCDEF:.";
	} else {
		const char *colon = memchr(a.p, ':', a.n);
		host = (struct str){ a.p, colon == NULL ? a.n : (size_t)(colon - a.p) };
		rest = (struct str){ a.p + host.n, a.n - host.n };
	}
	if (host.n == 0 || host.n > 253 || host.p[0] == '-')
		return false;
	(void)snprintf(h->name, sizeof h->name, "%.*s", (int)host.n, host.p);
	if (!str_only(h->name, letters))
		return false;
	h->port = h->clear ? 80 : 443;
	if (rest.n == 0)
		return true;
	char digits[8];
	if (rest.p[0] != ':' || rest.n > 6)
		return false;
	(void)snprintf(digits, sizeof digits, "%.*s", (int)rest.n - 1, rest.p + 1);
	if (!str_int(digits, 1, 65535, &port))
		return false;
	h->port = (int)port;
	return true;
}

bool ask_host_of(const char *url, struct ask_host *h)
{
	struct str rest, authority;
	*h = (struct ask_host){ .clear = strncasecmp(url, "http://", 7) == 0 };
	if (!h->clear && strncasecmp(url, "https://", 8) != 0)
		return false;
	rest = str_of(url + (h->clear ? 7 : 8));
	return str_cut(&rest, '/', &authority) && authority_ok(authority, h);
}

static bool plain_url_chars(const char *s)
{
	for (; *s != 0; s++)
		if ((unsigned char)*s <= ' ' || (unsigned char)*s >= 0x7f ||
		    strchr("\"<>\\^`{|}?#", *s) != NULL)
			return false;
	return true;
}

/* The URL itself may hold a secret, so it is never repeated. */
static void check_url(const struct ask *a, const char *http_hosts, struct err *e)
{
	const char *url = a->clone_url;
	bool clear = strncasecmp(url, "http://", 7) == 0;
	if (!clear && strncasecmp(url, "https://", 8) != 0) {
		BAD(e, "cloneUrl", "cloneUrl must begin with https:// (or http://, without a credential).");
		return;
	}
	struct str rest = str_of(url + (clear ? 7 : 8)), authority;
	struct ask_host host;
	if (!str_cut(&rest, '/', &authority) || rest.n == 0 || !plain_url_chars(url)) {
		BAD(e, "cloneUrl", "cloneUrl must name a host and a path, without spaces, `?` or `#`.");
		return;
	}
	if (memchr(authority.p, '@', authority.n) != NULL) {
		BAD(e, "cloneUrl", "cloneUrl must not hold a user or password; send them as credential.");
		return;
	}
	if (!ask_host_of(url, &host)) {
		BAD(e, "cloneUrl",
		    "The host of cloneUrl is not a host name or address with an optional port.");
		return;
	}
	if (clear && a->token != NULL && !ask_host_listed(http_hosts, &host))
		BAD(e, "cloneUrl",
		    "A credential is not sent over http://; use https://, or have the host allowed here.");
}

/* It becomes a header of one line. */
static bool header_text(const char *s, bool colon)
{
	for (; *s != 0; s++)
		if ((unsigned char)*s < ' ' || *s == 0x7f || (*s == ':' && !colon))
			return false;
	return true;
}

static void check_credential(const struct ask *a, struct err *e)
{
	if (a->repo != NULL)
		BAD(e, "credential", "A repository of this forge takes no credential; leave it out.");
	else if (a->clone_url == NULL)
		BAD(e, "credential",
		    "A credential needs a repository: say cloneUrl, or leave the credential out.");
	if (a->token[0] == 0 || !header_text(a->token, true))
		BAD(e, "credential.token", "The token must be printable text of one line.");
	if (a->user[0] == 0 || !header_text(a->user, false))
		BAD(e, "credential.username",
		    "The user name must be printable text of one line without a colon.");
}

static void check_repository(const struct ask *a, const char *http_hosts, struct err *e)
{
	struct err one = { 0 };
	if (a->repo != NULL && a->clone_url != NULL)
		BAD(e, "cloneUrl", "Say repo (of this forge) or cloneUrl (elsewhere), not both.");
	if (a->project != NULL && a->repo == NULL)
		BAD(e, "project", "project says which project the repository belongs to; say repo too.");
	if (a->repo != NULL && repo_name_check(a->repo, &one) != 0)
		add(e, "repo", &one);
	if (a->clone_url != NULL)
		check_url(a, http_hosts, e);
	if (a->base == NULL)
		return;
	if (a->repo == NULL && a->clone_url == NULL)
		BAD(e, "base", "base names a branch of a repository; say repo or cloneUrl too.");
	one = (struct err){ 0 };
	if (branch_check(a->base, "base", &one) != 0)
		add(e, "base", &one);
}

static void check_session(const struct ask *a, struct err *e)
{
	char own[ASK_BRANCH_MAX];
	bool ok = a->session != NULL && id_is("ses", a->session);
	if (a->session != NULL && !ok)
		BAD(e, "session", "session must be the id of an open session (ses_ and 26 characters).");
	if (a->branch == NULL)
		return;
	if (ok)
		ask_branch(a->session, own);
	if (!ok || strcmp(own, a->branch) != 0)
		BAD(e, "branch", "The branch is agent/<tail of the session id>; leave branch out.");
}

int ask_check(const struct ask *a, const json_t *in, const char *http_hosts, struct err *e)
{
	if (a->prompt == NULL || a->prompt[0] == 0)
		BAD(e, "prompt", "The prompt is empty; say what is to be done.");
	else if (strlen(a->prompt) > LIMIT_PROMPT_BYTES)
		BAD(e, "prompt", "The prompt is longer than %d bytes.", LIMIT_PROMPT_BYTES);
	check_repository(a, http_hosts, e);
	if (a->token != NULL)
		check_credential(a, e);
	check_session(a, e);
	if (a->timeout_s < 1 || a->timeout_s > LIMIT_RUN_S)
		BAD(e, "timeoutSec", "timeoutSec is from 1 to %d.", LIMIT_RUN_S);
	/* COD-13: unwired means refused, never "run it here instead". */
	if (js_get(in, "target") != NULL)
		BAD(e, "target", "No machine of the org is registered as a target; leave target out.");
	if (a->desktop)
		BAD(e, "desktop", "Sandboxes with a desktop are not offered here; leave desktop out.");
	return e->code == ERR_NONE ? 0 : -1;
}
