#include "session/place.h"

#include <stdio.h>
#include <string.h>

#include "base/str.h"

long long places_seq(const struct places *p, const char *session)
{
	for (int i = 0; i < p->n; i++)
		if (strcmp(p->at[i].session, session) == 0)
			return p->at[i].seq;
	return 0;
}

static bool take(struct str one, struct places *p)
{
	struct str id;
	char seq[24];
	if (!str_cut(&one, ':', &id) || id.n >= ID_MAX || one.n >= sizeof seq || p->n == PLACES_MAX)
		return false;
	(void)snprintf(p->at[p->n].session, ID_MAX, "%.*s", (int)id.n, id.p);
	(void)snprintf(seq, sizeof seq, "%.*s", (int)one.n, one.p);
	bool fine = id_is("ses", p->at[p->n].session) && places_seq(p, p->at[p->n].session) == 0 &&
	    str_int(seq, 1, 1LL << 53, &p->at[p->n].seq);
	p->n += fine;
	return fine;
}

int places_parse(const char *text, const char *field, struct places *p, struct err *e)
{
	struct str rest = str_of(text), one;
	p->n = 0;
	while (str_cut(&rest, ',', &one))
		if (!take(one, p))
			return err_field(e, ERR_BAD_REQUEST, field,
			    "`%s` must be a list like ses_...:12,ses_...:7, at most %d sessions and each "
			    "once.",
			    field, PLACES_MAX);
	return 0;
}
