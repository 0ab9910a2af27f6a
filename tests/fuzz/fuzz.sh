#!/bin/bash
# fuzz.sh PROGRAM SECONDS SEED [TARGET…] - each target for so long, from its seeds and what earlier runs found (build/fuzz/corpus). One
# line a target, then what was found: its inputs are kept, and the exit status is not 0. The same SEED and corpus are the same search.
set -uo pipefail
program=$1 seconds=$2 seed=$3; shift 3
dir=$(dirname "$program")
export LLVM_PROFILE_FILE=/dev/null
table=$(env -u FUZZ_TARGET "$program")
targets=${*:-$(cut -d" " -f1 <<<"$table")}
failed=
# The values that are compared steer the search, and addresses are among them; so would files that are read again as time passes.
fixed=$(setarch -R true 2>/dev/null && echo setarch -R)
echo "seed $seed"
printf '%-9s %8s %11s %8s %9s  %s\n' target seconds executions edges features 'lines of its sources that were reached'

lines() { # lines PROFILE SOURCE…: of those sources together
  llvm-profdata-14 merge -o "$1.data" "$1" 2>/dev/null || return
  llvm-cov-14 export -summary-only -instr-profile="$1.data" "$program" "${@:2}" 2>/dev/null |
    grep -oE '"totals":.*"lines":\{"count":[0-9]+,"covered":[0-9]+' |
    sed -E 's/.*"count":([0-9]+),"covered":([0-9]+)/\2 \1/' | awk '{ printf "%d of %d (%.0f %%)", $1, $2, 100 * $1 / $2 }'
}

for t in $targets; do
  sources=$(sed -n "s/^$t //p" <<<"$table")
  [ -n "$sources" ] || { echo "there is no target $t" >&2; exit 2; }
  mkdir -p "$dir/corpus/$t" "$dir/seeds/$t" "$dir/found"
  export FUZZ_TARGET=$t LLVM_PROFILE_FILE=$dir/$t.profile
  FUZZ_SEEDS_TO=$dir/seeds/$t "$program" || exit 2
  log=$dir/$t.log
  $fixed "$program" -seed="$seed" -reload=0 -max_total_time="$seconds" -timeout=10 -rss_limit_mb=1500 \
    -max_len="$([ "$t" = hello ] && echo 70000 || echo 4096)" -len_control=20 -artifact_prefix="$dir/found/$t-" \
    -print_final_stats=1 "$dir/corpus/$t" "$dir/seeds/$t" >"$log" 2>&1
  status=$?
  edges=$(grep -oE 'cov: [0-9]+ ft: [0-9]+' "$log" | tail -1)
  # shellcheck disable=SC2086
  printf '%-9s %8s %11s %8s %9s  %s\n' "$t" "$seconds" \
    "$(sed -nE 's/^stat::number_of_executed_units: *//p' "$log")" "$(echo "$edges" | cut -d' ' -f2)" "$(echo "$edges" | cut -d' ' -f4)" \
    "$(lines "$LLVM_PROFILE_FILE" $sources)"
  [ $status = 0 ] || failed+=" $t"
done
for t in $failed; do # at the end, where a log that is cut still has it
  echo "$t:"
  grep -vE '^#|^INFO|^stat::|NEW_FUNC|^  (0x|[A-Z])|^=>|^Shadow' "$dir/$t.log" | cut -c -2000 | head -40
done
[ -z "$failed" ] || { echo "findings in:$failed" >&2; exit 1; }
