#!/bin/bash
# install.sh run|test - install from Debian what the named command needs and is missing. Services that a package starts
# and that were not running before are stopped again.
set -euo pipefail
cd "$(dirname "$0")/../.."
run=(gcc libc6-dev make pkg-config libfcgi-dev libpq-dev libcurl4-openssl-dev libjansson-dev libssl-dev libseccomp-dev
  postgresql nginx-light runc git python3-minimal nodejs curl openssl util-linux iproute2 procps ca-certificates)
test=(libcmocka-dev clang clang-tidy clang-format cppcheck runsc chromium npm universal-ctags)
case ${1:-} in
run) want=("${run[@]}") ;;
test) want=("${run[@]}" "${test[@]}") ;;
*) echo "usage: install.sh run|test" >&2; exit 64 ;;
esac

# What counts is the command or file, not which package brought it (nginx-light or nginx-full, Debian's node or another).
have() {
  case $1 in
  nginx-light) command -v nginx >/dev/null || [ -x /usr/sbin/nginx ] ;;
  nodejs) [ -x /usr/bin/node ] ;;
  npm) command -v npm >/dev/null ;;
  python3-minimal) [ -x /usr/bin/python3 ] ;;
  universal-ctags) command -v ctags >/dev/null ;;
  *) dpkg-query -W -f '${db:Status-Abbrev}' "$1" 2>/dev/null | grep -q '^ii' ;;
  esac
}
missing=()
for p in "${want[@]}"; do have "$p" || missing+=("$p"); done
[ ${#missing[@]} -gt 0 ] || exit 0
[ "$(id -u)" = 0 ] || { echo "gatehouse: ${missing[*]} must be installed: run this with sudo" >&2; exit 1; }

running() { # is a distribution service up? By its own pid file: neither systemd nor sysvinit is assumed.
  case $1 in
  nginx) [ -s /run/nginx.pid ] && kill -0 "$(cat /run/nginx.pid)" 2>/dev/null ;;
  postgresql) compgen -G '/run/postgresql/*.pid' >/dev/null ;;
  esac
}
was_nginx=0 was_postgresql=0
running nginx && was_nginx=1
running postgresql && was_postgresql=1
log=$(mktemp)
trap 'rm -f "$log"' EXIT
echo "installing ${missing[*]}"
apt=(apt-get -y -q --no-install-recommends -o DPkg::Lock::Timeout=180)
export DEBIAN_FRONTEND=noninteractive
if ! { "${apt[@]}" update && "${apt[@]}" install "${missing[@]}"; } >"$log" 2>&1 </dev/null; then
  grep -E '^(E|W): ' "$log" | head -3 >&2 || true
  echo "gatehouse: apt-get could not install ${missing[*]}" >&2
  exit 1
fi
for s in nginx postgresql; do
  was=was_$s
  if [ "${!was}" = 0 ] && running $s; then
    if [ -d /run/systemd/system ]; then systemctl stop $s; else service $s stop; fi >/dev/null 2>&1 || true
  fi
done
