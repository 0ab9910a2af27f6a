#!/bin/bash
# demo.sh - `make run`: bring the stack up in var/, do the main job once for real, and say how to go on.
set -euo pipefail
top=$(cd "$(dirname "$0")/../.." && pwd)
. "$top/tests/stack/lib.sh"
[ "$(id -u)" = 0 ] || die "run it as root: sudo make run"
cd "$top"
dir=$(state_dir "$top")
# Ctrl-C, or a failure, leaves nothing running that was not running before.
running=0
[ ! -f "$dir/pid/api1" ] || ! alive "$dir/pid/api1" || running=1
finished=$running
cleanup() {
  trap '' INT TERM # a second Ctrl-C does not stop the stopping
  [ $finished = 1 ] || { echo "stopping what was started" >&2; tests/stack/stack.sh down "$dir" || true; }
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

tests/stack/stack.sh up "$dir"
. "$dir/stack.conf"
url=https://127.0.0.1:${PORTS%% *}
org=demo repo=hello
admin() { (cd / && as_service env GATEHOUSE_CONFIG="$dir/gatehouse.conf" "$dir/bin/gatehouse" "$@"); }

key=
[ ! -s "$dir/demo.env" ] || key=$(sed -n 's/^GATEHOUSE_KEY=//p' "$dir/demo.env")
works() { # the key travels in a file descriptor, never in an argument
  [ -n "$1" ] && [ "$(curl -s -o /dev/null -w '%{http_code}' --max-time 5 --cacert "$dir/tls/cert.pem" \
    -H @<(printf 'Authorization: Bearer %s' "$1") "$url/v1/bots")" = 200 ]
}
if ! works "$key"; then
  admin org create "$org" --if-absent
  key=$(admin key create --org "$org" --user "${SUDO_USER:-operator}" --name demo --admin)
fi
(
  umask 077
  printf 'GATEHOUSE_URL=%s\nGATEHOUSE_KEY=%s\nGATEHOUSE_CA=%s\nGATEHOUSE_ORG=%s\n' "$url" "$key" "$dir/tls/cert.pem" "$org" >"$dir/demo.env.new"
)
[ -z "${SUDO_UID:-}" ] || chown "$SUDO_UID:${SUDO_GID:-0}" "$dir/demo.env.new"
mv "$dir/demo.env.new" "$dir/demo.env"
export GATEHOUSE_URL=$url GATEHOUSE_KEY=$key GATEHOUSE_CA=$dir/tls/cert.pem
call() { "$dir/bin/gatehouse" call "$@"; }

if ! call get_repo repo="$repo" >/dev/null 2>&1; then
  call create_repo name="$repo" >/dev/null
  call push_files repo="$repo" branch=main message='A first program' \
    files[0].path=README.md files[0].content=@tests/stack/hello/README.md \
    files[1].path=greet.py files[1].content=@tests/stack/hello/greet.py \
    files[2].path=check.py files[2].content=@tests/stack/hello/check.py \
    files[3].path=.gitignore files[3].content=__pycache__/ >/dev/null
fi
echo
echo "A coding run: python edits greet.py in a sandbox and runs check.py there."
result=$(mktemp)
call start_coding_run tool=python repo="$repo" prompt=@tests/stack/hello/task.py | tee "$result" | call --render
branch=$(sed -n 's/.*"branch":"\([^"]*\)".*/\1/p' "$result" | tail -1)
rm -f "$result"
[ -n "$branch" ] || die "the run pushed no branch; see $dir/log/runner1.log"

echo
echo "What it pushed to $branch:"
work=$(mktemp -d)
(
  # git gets the credential as a header, through the environment, for this one URL.
  export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0="http.$url/.extraHeader"
  export GIT_SSL_CAINFO=$dir/tls/cert.pem GIT_TERMINAL_PROMPT=0
  GIT_CONFIG_VALUE_0="Authorization: Basic $(printf 'key:%s' "$key" | base64 -w0)"
  export GIT_CONFIG_VALUE_0
  git clone -q "$url/v1/git/$org/$repo.git" "$work/clone" &&
    git -C "$work/clone" --no-pager diff --stat --patch "origin/main...origin/$branch"
) || { rm -rf "$work"; die "the pushed branch could not be read back"; }
rm -rf "$work"
finished=1
cat <<EOT

gatehouse is running; its state is in var/. Go on with:
  . var/demo.env; curl --cacert "\$GATEHOUSE_CA" -H "Authorization: Bearer \$GATEHOUSE_KEY" "\$GATEHOUSE_URL/v1/bots"
  the branch's page (user: any, password: the key): $url/git/$org/$repo?ref=$branch
  make stop
EOT
