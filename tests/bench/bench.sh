#!/bin/bash
# bench.sh NAME… - run benches one after the other (never two at once: they would measure each other) and print their tables.
# A bench that could not measure is shown with all it said, and makes the exit status 1; slow is never a failure.
set -uo pipefail
cd "$(dirname "$0")/../.."
[ "$(id -u)" = 0 ] || { echo "gatehouse: benches start sandboxes and services: use sudo" >&2; exit 1; }
mkdir -p build/bench
bad=0
echo "$(nproc) × $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1), $(uname -sr), $(date -u +%F)"
for name in "$@"; do
  begin=$SECONDS
  [ "$name" != gateway ] || BENCH_PORTKEY=$(tests/clients/install.sh portkey)/node_modules/@portkey-ai/gateway/build/start-server.js
  export BENCH_PORTKEY=${BENCH_PORTKEY:-}
  timeout --kill-after=10 600 build/release/bench/bench_"$name" >build/bench/"$name".log 2>&1
  status=$?
  echo
  cat build/bench/"$name".md
  echo "(${name}: $((SECONDS - begin)) s)"
  [ $status = 0 ] || for conf in /tmp/ghf.*/stack.conf; do # what a killed bench left running
    grep -qsF "BIN=$PWD/build/release" "$conf" && tests/stack/stack.sh down "${conf%/*}" && rm -rf "${conf%/*}"
  done
  [ $status = 0 ] || { cat build/bench/"$name".log >&2; echo "gatehouse: bench $name could not measure (status $status)" >&2; bad=1; }
done
exit $bad
