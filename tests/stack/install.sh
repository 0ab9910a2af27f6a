#!/bin/bash
# install.sh run|test|bench|heavy - install from Debian what the named command needs and is missing. Services that a package starts
# and that were not running before are stopped again.
set -euo pipefail
cd "$(dirname "$0")/../.."
run=(gcc libc6-dev make pkg-config libfcgi-dev libpq-dev libcurl4-openssl-dev libjansson-dev libssl-dev libseccomp-dev libc-ares-dev zlib1g-dev
  postgresql nginx-light runc git python3-minimal nodejs curl openssl util-linux e2fsprogs iproute2 procps ca-certificates)
test=(libcmocka-dev clang libclang-rt-14-dev llvm-14 clang-tidy clang-format cppcheck runsc crun chromium npm universal-ctags strace systemd python3-pip python3-requests)
heavy=(golang-go default-jdk-headless) # clients whose runtimes are large
bench=(libcmocka-dev squid tinyproxy)
case ${1:-} in
run) want=("${run[@]}") ;;
test) want=("${run[@]}" "${test[@]}") ;;
bench) want=("${run[@]}" "${bench[@]}") ;;
heavy) want=("${run[@]}" "${test[@]}" "${heavy[@]}") ;;
*) echo "usage: install.sh run|test|bench|heavy" >&2; exit 64 ;;
esac

# What counts is the command or file, not which package brought it (nginx-light or nginx-full, Debian's node or another).
have() {
  case $1 in
  nginx-light) command -v nginx >/dev/null || [ -x /usr/sbin/nginx ] ;;
  nodejs) [ -x /usr/bin/node ] ;;
  systemd) command -v systemd-analyze >/dev/null ;;
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
  squid) [ -s /run/squid.pid ] && kill -0 "$(cat /run/squid.pid)" 2>/dev/null ;;
  tinyproxy) [ -s /run/tinyproxy/tinyproxy.pid ] && kill -0 "$(cat /run/tinyproxy/tinyproxy.pid)" 2>/dev/null ;;
  esac
}
services=(nginx postgresql squid tinyproxy)
were=' '
for s in "${services[@]}"; do if running "$s"; then were+="$s "; fi; done
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
for s in "${services[@]}"; do
  case $were in *" $s "*) continue ;; esac
  if running "$s"; then
    if [ -d /run/systemd/system ]; then systemctl stop $s; else service $s stop; fi >/dev/null 2>&1 || true
  fi
done
