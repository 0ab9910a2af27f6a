#!/bin/bash
# run.sh SECONDS PROGRAM… - run test programs, TEST_JOBS (3) at a time since many only wait: cmocka's closing lines of each,
# all of its output when it fails or takes longer. Every program is run; the exit status says whether all passed.
set -uo pipefail
limit=$1; shift
failed=$(mktemp)
trap 'rm -f "$failed"' EXIT

one() {
  local log=$1.log begin=$SECONDS status name=${1##*/} said
  timeout --kill-after=10 "$limit" "$1" >"$log" 2>&1
  status=$?
  if [ $status = 0 ]; then
    said="$name ($((SECONDS - begin)) s)
$(grep -E '^\[ *(=+|PASSED|SKIPPED) *\].* test' "$log" | grep -v Running)"
  else
    said=$(cat "$log")
    if [ $status = 124 ] || [ $status = 137 ]; then said+="
$name took longer than $limit s"; fi
    echo "$name" >>"$failed"
  fi
  printf '%s\n' "$said" # in one piece, whatever the other one says
}
for program in "$@"; do
  while [ "$(jobs -rp | wc -l)" -ge "${TEST_JOBS:-3}" ]; do wait -n; done
  one "$program" &
done
wait
[ ! -s "$failed" ] || { echo "failed: $(paste -sd' ' "$failed")" >&2; exit 1; }
