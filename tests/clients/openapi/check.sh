#!/bin/sh
# check.sh FILE - judge an OpenAPI document with the pinned packages of package-lock.json; they are fetched once, into
# build/.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
there=${B:-build}/clients/openapi
mkdir -p "$there"
for f in package.json package-lock.json check.mjs; do
	cmp -s "$here/$f" "$there/$f" && continue
	cp "$here/$f" "$there/$f"
	[ "$f" = check.mjs ] || rm -rf "$there/node_modules"
done
if [ ! -d "$there/node_modules" ] && ! npm --prefix "$there" ci --silent --no-audit --no-fund --ignore-scripts >/dev/null 2>&1; then
	rm -rf "$there/node_modules"
	echo "openapi: npm could not install the validator (is the npm registry reachable?)" >&2
	exit 1
fi
exec node "$there/check.mjs" "$1"
