#include "sandbox/boundary.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

/* SBX-10 */
const struct boundary_row boundary_table[] = {
	{ "runc", .kernel = false, .shares = true },
	{ "gvisor", .kernel = true, .shares = true },
	{ "kata-clh", .kernel = true, .shares = true },
	{ "kata-fc", .kernel = true, .shares = false },
	{ NULL },
};
static const char fallback[] = "gvisor"; /* what a preference that does not fit is derived down to (SBX-13) */

const struct boundary_row *boundary_find(const char *name)
{
	for (const struct boundary_row *r = boundary_table; r->name != NULL; r++)
		if (name != NULL && strcmp(r->name, name) == 0)
			return r;
	return NULL;
}

static bool offers(const struct boundary_ask *ask, const char *name)
{
	for (const char *const *o = ask->offered; *o != NULL; o++)
		if (strcmp(*o, name) == 0)
			return true;
	return false;
}

/* SBX-11: exactly this slug; "Admin", "admin " or "platform" are somebody else's code. */
static bool ours(const struct boundary_ask *ask)
{
	return strcmp(ask->org, "admin") == 0;
}

enum fit { FITS, FOREIGN_CODE, NOT_CONTAINED, CANNOT_SHARE };

static enum fit fit(const struct boundary_ask *ask, const struct boundary_row *r)
{
	if (!r->kernel && !ours(ask))
		return FOREIGN_CODE;
	if (!r->kernel && !ask->contained)
		return NOT_CONTAINED;
	if (ask->volume && !r->shares)
		return CANNOT_SHARE;
	return FITS;
}

static int give(struct boundary *got, const struct boundary_row *r)
{
	(void)snprintf(got->runtime, sizeof got->runtime, "%s", r->name);
	got->kernel = r->kernel;
	return 0;
}

/* The end of a refusal: what this caller could ask for with success. */
static void advice(const struct boundary_ask *ask, char *out, size_t size)
{
	for (const struct boundary_row *r = boundary_table; r->name != NULL; r++)
		if (fit(ask, r) == FITS && offers(ask, r->name)) {
			(void)snprintf(out, size, "ask for \"%s\" or leave runtime out", r->name);
			return;
		}
	(void)snprintf(out, size, "leave runtime out");
}

/* SBX-12: what was asked for, or a refusal; never something else. */
static int requested(const struct boundary_ask *ask, struct boundary *got, struct err *e)
{
	const struct boundary_row *r = boundary_find(ask->requested);
	char instead[64];
	advice(ask, instead, sizeof instead);
	if (r == NULL)
		return err_field(
		    e, ERR_BAD_REQUEST, "runtime", "There is no runtime of that name; %s.", instead);
	switch (fit(ask, r)) {
	case FOREIGN_CODE:
		return err_field(e, ERR_BAD_REQUEST, "runtime",
		    "Runtime \"%s\" has no kernel of its own and is not given to this org; %s.", r->name,
		    instead);
	case NOT_CONTAINED:
		return err_field(e, ERR_BAD_REQUEST, "runtime",
		    "Runtime \"%s\" has no kernel of its own and no node contains it; %s.", r->name, instead);
	case CANNOT_SHARE:
		return err_field(e, ERR_BAD_REQUEST, "runtime",
		    "Runtime \"%s\" cannot mount the project's volume; %s.", r->name, instead);
	case FITS:
		break;
	}
	if (!offers(ask, r->name))
		return err_field(
		    e, ERR_BAD_REQUEST, "runtime", "No node offers runtime \"%s\"; %s.", r->name, instead);
	return give(got, r);
}

/* SBX-13: the deployment's preference, derived down where it does not fit this code. One that fits but that
 * no node offers is an outage to be told about, not a reason to give a weaker boundary in silence. */
static int preferred(
    const struct boundary_ask *ask, const struct boundary_row *r, struct boundary *got, struct err *e)
{
	if (fit(ask, r) != FITS)
		r = boundary_find(fallback);
	if (r == NULL || !offers(ask, r->name))
		return err_set(e, ERR_UNAVAILABLE,
		    "No node offers the runtime that this code must run in (%s); nothing is leased until one "
		    "does.",
		    r == NULL ? fallback : r->name);
	return give(got, r);
}

int boundary_derive(const struct boundary_ask *ask, struct boundary *got, struct err *e)
{
	const struct boundary_row *pref = boundary_find(ask->preference);
	*got = (struct boundary){ 0 };
	if (ask->preference[0] != '\0' && pref == NULL)
		return err_set(e, ERR_UNAVAILABLE,
		    "SANDBOX_RUNTIME_CLASS names no known runtime (\"%.40s\"); nothing is leased until it "
		    "does.",
		    ask->preference);
	if (ask->requested != NULL)
		return requested(ask, got, e);
	/* SBX-17: our own code where the host contains it. */
	for (const struct boundary_row *r = boundary_table; r->name != NULL; r++)
		if (!r->kernel && fit(ask, r) == FITS && offers(ask, r->name))
			return give(got, r);
	if (pref != NULL)
		return preferred(ask, pref, got, e);
	if (!offers(ask, ""))
		return err_set(e, ERR_UNAVAILABLE,
		    "No node has a default runtime that works; nothing is leased until one does.");
	return 0; /* "": the host's default, reported as such */
}
