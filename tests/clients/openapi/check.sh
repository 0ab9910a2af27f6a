#!/bin/sh
# check.sh FILE - judge an OpenAPI document with the pinned packages of package-lock.json.
set -eu
there=$("$(dirname "$0")/../install.sh" openapi)
exec node "$there/check.mjs" "$1"
