#!/bin/sh
# layers.sh - who may include whom (app/README.md): one line per layer, a layer and what it may include besides itself. The
# lines below the table are the few named exceptions, and the libraries that only one file group may know.
set -eu
cd "$(dirname "$0")/.."
rules='
base:
box: base
io: base
op: base
auth: base io op sql
job: base io op sql
session: base io op sql auth job
forge: base io op sql auth job
sandbox: base io op sql auth job box
egress: base io op sql auth job
money: base io op sql auth job
model: base io op sql auth job session money
code: base io op sql auth job box session forge sandbox money model
handlers: base io op auth job session forge sandbox egress money model code
main: base io op sql auth job session forge sandbox egress money model code handlers
'
bad=0
complain() { echo "layers: $*" >&2; bad=1; }

for f in $(find app handlers -name '*.[ch]' | sort); do
  from=$(echo "$f" | sed -E 's#^app/([^/]+)/.*#\1#; s#^handlers/.*#handlers#')
  may=$(echo "$rules" | sed -n "s/^$from: *//p")
  echo "$rules" | grep -q "^$from:" || complain "$f: there is no layer $from in app/README.md"
  for header in $(sed -nE 's/^#include "([^"]+)".*/\1/p' "$f"); do
    to=${header%%/*}
    [ "$to" != "$header" ] || continue # its own folder
    case " $from $may " in *" $to "*) continue ;; esac
    case $f:$header in
    app/io/fcgi*:op/*) ;;                     # the server core serves ops
    app/io/pg*:sql/* | app/io/migrate*:sql/*) ;;
    *) complain "$f: $from must not include $header" ;;
    esac
  done
done

only() { # only HEADER FILES…: a library's header stands in these files alone
  header=$1; shift
  for f in $(grep -rlE "^#include <$header" app handlers || true); do
    ok=0
    for allowed in "$@"; do case $f in $allowed) ok=1 ;; esac; done
    [ $ok = 1 ] || complain "$f: only $* may include <$header>"
  done
}
only 'fcgi(app|io|_stdio|os)' 'app/io/fcgi*'
only curl/ 'app/io/http*'
only zlib 'app/io/http*'
only openssl/ssl 'app/io/tls.c'
only libpq 'app/io/pg*'
only seccomp 'app/sandbox/*'
only ares 'app/egress/resolve.c'
# SEC-4: SQL lives in sql/query; a handler has none, and nobody else calls the query function with text of its own.
for f in $(grep -rlE '"(SELECT|INSERT|UPDATE|DELETE) ' app handlers || true); do
  case $f in app/io/pg* | app/io/migrate*) ;; *) complain "$f: SQL belongs into sql/query" ;; esac
done
# io/proc is the only place that starts processes; the box is a world of its own.
for f in $(grep -rlE '\b(fork|vfork|posix_spawnp?|execv[pe]*|system|popen)\(' app handlers || true); do
  case $f in app/io/proc* | app/box/*) ;; *) complain "$f: children are started by io/proc only" ;; esac
done
exit $bad
