/* conf_rules.h - what a setting must be beyond its type: NULL when the value is fine, otherwise what is allowed. */
#pragma once

const char *rule_no_password(const char *v);
const char *rule_origin(const char *v);
const char *rule_http_url(const char *v);
const char *rule_slug(const char *v);
const char *rule_host_name(const char *v);
const char *rule_group_name(const char *v);
const char *rule_unix_address(const char *v);
const char *rule_runtime_names(const char *v);
const char *rule_host_list(const char *v);
const char *rule_address_list(const char *v);
const char *rule_resolver(const char *v);
const char *rule_port_list(const char *v);
const char *rule_mount_roots(const char *v);
const char *rule_tool_rows(const char *v);
