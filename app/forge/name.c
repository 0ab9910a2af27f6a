/* name.c - what a repository and a branch may be called (declared in repo.h: judged here and nowhere else).
 */
#include <ctype.h>
#include <string.h>
#include <strings.h>

#include "base/limits.h"
#include "base/str.h"
#include "forge/repo.h"

#define ALNUM "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"

static bool ends_nocase(const char *s, const char *suffix)
{
	size_t n = strlen(s), k = strlen(suffix);
	return n >= k && strcasecmp(s + n - k, suffix) == 0;
}

static const char *repo_name_fault(const char *s)
{
	if (s[0] == 0)
		return "is empty";
	if (strlen(s) > LIMIT_REPO_NAME)
		return "is longer than 100 bytes";
	if (!str_only(s, ALNUM "._-"))
		return "may only hold letters, digits, '.', '_' and '-'";
	if (!isalnum((unsigned char)s[0]))
		return "must begin with a letter or a digit";
	if (strstr(s, "..") != NULL)
		return "must not hold '..'";
	if (s[strlen(s) - 1] == '.')
		return "must not end with '.'";
	if (ends_nocase(s, ".git") || ends_nocase(s, ".lock"))
		return "must not end in .git or .lock";
	/* /v1/git/repos is the collection itself. */
	if (strcasecmp(s, "repos") == 0)
		return "is reserved: choose another name than repos";
	return NULL;
}

int repo_name_check(const char *name, struct err *e)
{
	const char *fault = repo_name_fault(name);
	return fault == NULL ? 0 : err_field(e, ERR_BAD_REQUEST, "name", "The repository name %s.", fault);
}

/* One component between slashes. */
static const char *component_fault(const char *s, size_t n)
{
	if (n == 0)
		return "must not begin or end with '/' or hold '//'";
	if (s[0] == '.')
		return "must not have a part that begins with '.'";
	if (n >= 5 && strncasecmp(s + n - 5, ".lock", 5) == 0)
		return "must not have a part that ends in .lock";
	return NULL;
}

static const char *branch_fault(const char *s)
{
	if (s[0] == 0)
		return "is empty";
	if (strlen(s) > LIMIT_REF_NAME)
		return "is longer than 200 bytes";
	if (s[0] == '-')
		return "must not begin with '-'";
	if (!str_only(s, ALNUM "._-/+@#%=,!()"))
		return "may only hold letters, digits and ._-/+@#%=,!()";
	if (strcasecmp(s, "HEAD") == 0 || strcmp(s, "@") == 0)
		return "must not be HEAD or @";
	if (str_starts(s, "refs/"))
		return "is a branch name, so without refs/heads/ before it";
	if (strstr(s, "..") != NULL)
		return "must not hold '..'";
	if (s[strlen(s) - 1] == '.')
		return "must not end with '.'";
	for (const char *p = s;; p++) {
		size_t n = strcspn(p, "/");
		const char *fault = component_fault(p, n);
		if (fault != NULL || p[n] == 0)
			return fault;
		p += n;
	}
}

int branch_check(const char *name, const char *param, struct err *e)
{
	const char *fault = branch_fault(name);
	return fault == NULL ? 0 : err_field(e, ERR_BAD_REQUEST, param, "The branch name %s.", fault);
}
