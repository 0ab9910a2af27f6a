#!/bin/sh
# lengths.sh - no file over 600 lines (clang-tidy has the limit for functions), no trailing blanks, no unfinished words.
set -eu
cd "$(dirname "$0")/.."
bad=0
complain() { echo "lengths: $*" >&2; bad=1; }
files=$(find Makefile app handlers sql nginx systemd tests .ci -type f \( -name '*.[ch]' -o -name '*.sh' -o -name '*.sql' -o \
  -name '*.awk' -o -name '*.md' -o -name '*.conf' -o -name '*.py' -o -name '*.js' -o -name Makefile -o -name run \) | sort)
for f in $files; do
  n=$(wc -l <"$f")
  [ "$n" -le 600 ] || complain "$f has $n lines; 600 is the limit"
done
# shellcheck disable=SC2086
if grep -nE '[[:blank:]]+$' $files; then complain "blanks at the end of these lines"; fi
for f in $files; do
  case $f in *.[ch] | *.sh | *.sql) ;; *) continue ;; esac
  [ "$f" != tests/lengths.sh ] || continue
  if grep -nwE 'TODO|FIXME|XXX|HACK|stub|placeholder' "$f" /dev/null; then complain "unfinished words in $f"; fi
done
top=$(git ls-files -co --exclude-standard 2>/dev/null | cut -d/ -f1 | sort -u | grep -vxE 'Makefile|README.md|LICENSE|app|handlers|sql|nginx|systemd|tests|\..*' || true)
[ -z "$top" ] || complain "the top level holds $top"
exit $bad
