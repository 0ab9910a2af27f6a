/* conf_keys.h - the settings, a table for each part of the product; each is ended by a row without name. */
#pragma once

#include "io/conf.h"

enum { SOCKET_PATH_MAX = 107 }; /* sun_path without its NUL */

extern const struct conf_key conf_keys_service[], conf_keys_sandbox[], conf_keys_egress[], conf_keys_model[],
    conf_keys_trace[], conf_keys_money[];
