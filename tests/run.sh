#!/bin/bash
# run.sh SECONDS PROGRAM… [KEY=VALUE… PROGRAM…] - run test programs, TEST_JOBS (6) at a time since most only wait, fewer while the
# machine has more to do than it can (two at least): cmocka's closing lines of each, all of its output when it fails or takes longer.
# A setting is for the programs behind it. Every program is run; the exit status says whether all passed, and the last lines what
# did not: whoever keeps only the end of the output has the programs, the tests and the assertions.
set -uo pipefail
limit=$1 with=''; shift
failed=$(mktemp)
trap 'rm -f "$failed"' EXIT

# The log of a program, which runs again with other settings.
log_of() { echo "$1${with:+.${with##*[ =]}}.log"; }
one() {
  local log begin=$SECONDS status name=${1##*/}$with said
  log=$(log_of "$1")
  timeout --kill-after=10 "$limit" "$1" >"$log" 2>&1 </dev/null
  status=$?
  if [ $status = 0 ]; then
    said="$name ($((SECONDS - begin)) s)
$(grep -aE '^\[ *(=+|PASSED|SKIPPED) *\].* test' "$log" | grep -av Running)"
  else
    said=$(tr -d '\0' <"$log")
    if [ $status = 124 ] || [ $status = 137 ]; then said+="
$name took longer than $limit s"; fi
    echo "$status $log $name" >>"$failed"
  fi
  printf '%s\n' "$said" # in one piece, whatever the other one says
}
# Of a program that failed: what its assertions said, which tests failed, and the one that was under way when it ended too early.
verdict() { # STATUS LOG NAME
  local log=$2
  echo "failed: $3 (exit status $1)"
  {
    grep -aE -B6 '^\[ *(ERROR|FAILED) *\]|\[ *LINE *\]' "$log" | grep -avE '^\[ *(OK|RUN|PASSED|=+) *\]|^--$|^$'
    grep -aE 'ERROR: [A-Za-z]*Sanitizer|runtime error:|Assertion .* failed|^ +#[0-4] ' "$log"
  } | awk '!seen[$0]++' | cut -c1-400 | tail -40 | sed 's/^/  /'
  grep -aE '^\[ *(RUN|OK|FAILED|SKIPPED) *\]' "$log" | tail -1 | grep -a RUN | sed 's/^/  ended in /'
}
crowded() { # is there no room for one more?
  local load rest jobs
  jobs=$(jobs -rp | wc -l)
  read -r load rest </proc/loadavg
  [ "$jobs" -ge "${TEST_JOBS:-6}" ] || { [ "$jobs" -ge 2 ] && [ "${load%.*}" -ge $((2 * $(nproc))) ]; }
}
for program in "$@"; do
  case $program in *=*) export "$program"; with+=" $program"; continue ;; esac
  while crowded; do wait -n; done
  one "$program" &
done
wait
[ -s "$failed" ] || exit 0
{
  while read -r status log name; do verdict "$status" "$log" "$name"; done <"$failed"
  echo "failed: $(cut -d' ' -f3- "$failed" | paste -sd, | sed 's/,/, /g')"
} >&2
exit 1
