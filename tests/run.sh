#!/bin/bash
# run.sh SECONDS PROGRAM… - run test programs one after the other: cmocka's closing lines of each, all of its output when it
# fails or takes longer. Every program is run; the exit status says whether all passed.
set -uo pipefail
limit=$1; shift
failed=()
for program in "$@"; do
  log=$program.log
  begin=$SECONDS
  timeout --kill-after=10 "$limit" "$program" >"$log" 2>&1
  status=$?
  name=${program##*/}
  if [ $status = 0 ]; then
    echo "$name ($((SECONDS - begin)) s)"
    grep -E '^\[ *(=+|PASSED|SKIPPED) *\].* test' "$log" | grep -v Running
  else
    cat "$log"
    if [ $status = 124 ] || [ $status = 137 ]; then echo "$name took longer than $limit s"; fi
    failed+=("$name")
  fi
done
[ ${#failed[@]} = 0 ] || { echo "failed: ${failed[*]}" >&2; exit 1; }
