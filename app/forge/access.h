/* access.h - who may enter a repository (FRG-2): the same answer for the git wire and for the page. */
#pragma once

#include "forge/repo.h"

/*
 * The repository org/name for whoever asks. Nobody, or a credential that is not valid: ERR_UNAUTHORIZED (io/fcgi adds the
 * Basic challenge for an OP_HIDDEN op), whether or not the repository exists. A valid principal without the right
 * to it: the ERR_NOT_FOUND of one that does not exist.
 */
int access_repo(struct ctx *c, const char *org, const char *name, struct repo *r, struct err *e);
