#!/bin/sh
# install.sh NAME - the pinned npm packages of tests/clients/NAME, by the hashes of its package-lock.json, into build/clients/NAME, once.
# Its directory on standard output. No script of a package runs. The registry is not what is tested: who cannot be reached is asked
# again for some minutes.
set -eu
here=$(cd "$(dirname "$0")/$1" && pwd)
there=${B:-build}/clients/$1
mkdir -p "$there"
exec 9>"$there/.lock"
flock 9 # programs that begin together want the same one
for f in "$here"/* "${here%/*}/shared.mjs"; do
	name=${f##*/}
	cmp -s "$f" "$there/$name" && continue
	case $name in package*.json) rm -rf "$there/node_modules" ;; esac
	cp "$f" "$there/$name"
done
fetch() { npm --prefix "$there" ci --silent --no-audit --no-fund --ignore-scripts >/dev/null 2>&1 </dev/null 9>&-; }
whole=$there/node_modules/.whole # not of one that was interrupted
until=$(($(date +%s) + 240))
while [ ! -e "$whole" ]; do
	if fetch; then
		mkdir -p "${whole%/*}" && : >"$whole"
	elif [ "$(date +%s)" -ge $until ]; then
		rm -rf "$there/node_modules"
		echo "clients: npm could not install the packages of $1 (is the npm registry reachable?)" >&2
		exit 1
	else
		sleep 5
	fi
done
cd "$there" && pwd
