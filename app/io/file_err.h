/* file_err.h - errno of the last call as an error; shared by file.c and rmtree.c. */
#pragma once

#include "base/err.h"

int file_failed(const char *act, struct err *e); /* returns -1 */
