#!/bin/sh
# check.sh FILE - judge an OpenAPI document with the pinned packages of package-lock.json; they are fetched once. Without a
# reachable registry it says so and passes: the document's own tests (tests/unit/test_openapi.c) have run by then.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
if [ ! -d "$here/node_modules" ] && ! npm --prefix "$here" ci --silent --no-audit --no-fund --ignore-scripts >/dev/null 2>&1; then
	rm -rf "$here/node_modules"
	if npm ping --silent >/dev/null 2>&1; then
		echo "openapi: npm could not install the validator" >&2
		exit 1
	fi
	echo "openapi: SKIPPED, the npm registry cannot be reached"
	exit 0
fi
exec node "$here/check.mjs" "$1"
