#!/bin/bash
# ids.sh - names that documents and tests share exist: spec ids (tests/spec-ids.txt), the tests that app/README.md and
# app/sandbox/README.md name as proof, crash points (app/README.md lists all), settings.
set -euo pipefail
cd "$(dirname "$0")/.."
bad=0
complain() { echo "ids: $*" >&2; bad=1; }

prefixes=$(cut -d- -f1 tests/spec-ids.txt | sort -u | paste -sd'|')
while IFS=: read -r file id; do
  grep -qxF "$id" tests/spec-ids.txt || complain "$file names $id, which the spec does not have"
done < <(grep -roE --include='*.[ch]' --include='*.sh' --include='*.sql' --include='*.md' --include='*.conf' \
  "\b($prefixes)-[0-9]+\b" app handlers tests sql nginx systemd | sort -u)

# Whoever reads all tests once for each name reads them four hundred times.
declare -A is_test
for name in $(grep -rhozE --include='*.c' "(cmocka_unit_test[a-z_]*|\bT|\bTEST)\(\s*[a-z0-9_]+\b" tests | tr '\0' '\n' | grep -oE '[a-z0-9_]{12,}'); do
  is_test[$name]=1
done
proofs() { # FILE HEADING: the tests that it names from that heading on, up to the next one
  local name
  for name in $(sed -n "/^## $2/,\$p" "$1" | sed '1!{/^## /,$d}' | grep -oE '`[a-z0-9_]{12,}`' | tr -d '`' | sort -u); do
    [ -n "${is_test[$name]:-}" ] || complain "$1 names $name, which is no test"
  done
}
proofs app/README.md Invariants
proofs app/sandbox/README.md 'Faults of others'
proofs app/model/README.md 'What upstreams and clients do'
faults=$(sed -n '/^## Faults of others/,$p' app/sandbox/README.md | grep -oE '^\| [0-9]+ ' | tr -dc '0-9\n')
[ "$faults" = "$(sort -nu <<<"$faults")" ] || complain "the faults in app/sandbox/README.md are not in order"
points=$(grep -rhoE --include='*.c' 'crash_point\("[^"]+"\)' app handlers | sed -E 's/.*"(.*)".*/\1/' | sort -u)
for p in $points; do
  grep -qF "\`$p\`" app/README.md || complain "crash point $p is not in app/README.md"
done
# RED-4: the secret key parts are one table in the code, listed in the documents.
parts=$(sed -n '/secret_parts\[\] = {/,/};/p' app/base/redact.c | grep -oE '"[a-z]+"' | tr -d '"' | sort)
listed=$(sed -n '/secret_parts; tests/,/^$/p' app/README.md | grep -oE '`[a-z]+`' | tr -d '`' | sort)
[ "$parts" = "$listed" ] || complain "the secret key parts of redact.c and app/README.md differ: $(comm -3 <(echo "$parts") <(echo "$listed") | xargs)"
# RUN-1: every setting of the table is read somewhere, and nothing else is.
settings=$(grep -oE -h '\.name = "[A-Z_]+"' app/io/conf_keys*.c | cut -d'"' -f2)
for s in $settings; do
  grep -rqF --include='*.c' --exclude='conf_keys*.c' "\"$s\"" app handlers || complain "nobody reads the setting $s"
done
for s in $(grep -rhoE --include='*.c' 'conf_(str|int|bool)\([a-z>.-]+, "[A-Z_]+"' app handlers | cut -d'"' -f2 | sort -u); do
  grep -qxF "$s" <<<"$settings" || complain "$s is not in app/io/conf_keys*.c"
done
exit $bad
