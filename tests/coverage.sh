#!/bin/bash
# coverage.sh BUILD [1] - lines executed by what ran since the counters were removed, of each folder under app/ (and of each file),
# from gcov's counters in BUILD. Below the domain folders' share (SEC-7) the exit status is not 0.
set -euo pipefail
build=$1 files=${2:-}
least=85
domain=' auth job session forge sandbox code egress '
find "$build/app" "$build/handlers" -name '*.gcno' | sort | while read -r notes; do
  gcov --no-output --object-directory "$(dirname "$notes")" "$notes" 2>/dev/null || true
done | awk -v files="$files" -v least=$least -v domain="$domain" '
  /^File / { name = substr($2, 2, length($2) - 2); next }
  /^Lines executed:/ && name ~ /^(app|handlers)\/.*\.c$/ {
    split($0, part, /[:% ]+/); # Lines executed 85.00 of 120
    count = part[5]; hit = part[3] * count / 100
    if (hit >= best[name]) { best[name] = hit; lines[name] = count } # an object that no program ran counts nothing
    name = ""
  }
  /^No executable/ { name = "" }
  END {
    for (name in lines) {
      folder = name; sub(/^app\//, "", folder); sub(/\/.*/, "", folder)
      all[folder] += lines[name]; ran[folder] += best[name]
      if (files) printf "%-36s %5d of %5d  %5.1f %%\n", name, best[name] + .5, lines[name], 100 * best[name] / lines[name] | "sort"
    }
    close("sort")
    for (folder in all) {
      share = 100 * ran[folder] / all[folder]
      low = index(domain, " " folder " ") && share < least
      printf "%-10s %6d of %6d  %5.1f %%%s\n", folder, ran[folder] + .5, all[folder], share, low ? "  below " least " %" : "" | "sort"
      bad += low
    }
    close("sort")
    exit bad > 0
  }'
