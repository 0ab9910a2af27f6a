#include "forge/propose.h"

#include <string.h>

#include "io/http.h"

const char *propose(struct ctx *c, const struct repo *r, const char *head, struct err *e)
{
	if (branch_check(head, "head", e) != 0)
		return NULL;
	if (strcmp(head, r->default_branch) == 0) {
		err_field(e, ERR_BAD_REQUEST, "head",
		    "%s is the default branch: there is nothing to propose it to.", head);
		return NULL;
	}
	const char *page = repo_page_url(c, r);
	return page[0] == 0 ? page : mem_fmt(c->mem, "%s?ref=%s", page, http_escape(c->mem, head));
}
