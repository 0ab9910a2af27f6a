#!/bin/bash
# demo.sh - `make run`: bring the stack up in var/, do the main job once for real, and say how to go on.
set -euo pipefail
top=$(cd "$(dirname "$0")/../.." && pwd)
. "$top/tests/stack/lib.sh"
[ "$(id -u)" = 0 ] || die "run it as root: sudo make run"
cd "$top"
exec 9<"$top" && flock -n 9 || die "another \`make run\` is at work in this clone; wait until it has ended"
tests/stack/install.sh run
env -u MAKEFLAGS -u MFLAGS make --no-print-directory all
dir=$(state_dir "$top")
running=0
[ ! -f "$dir/pid/api1" ] || ! alive "$dir/pid/api1" || running=1

demo() ( # in a process of its own: a signal ends it once the command it is at has ended, and never what comes after it
  set -e
  trap 'exit 129' HUP
  trap 'exit 130' INT
  trap 'exit 143' TERM
  # What the environment names as a model provider may be in this network: whoever runs this is its operator.
  host_of() { local rest=${1#*://}; echo "${rest%%/*}"; }
  MODEL_HOSTS=$(for url in "${OPENAI_BASE_URL:-}" "${ANTHROPIC_BASE_URL:-}"; do [ -z "$url" ] || host_of "$url"; done | xargs)
  export ECHO=1 MODEL_HOSTS
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
    admin org credit "$org" 5.00usd --key make-run >/dev/null # play money, once
    key=$(admin key create --org "$org" --user "${SUDO_USER:-operator}" --name demo --admin)
  fi
  (
    umask 077
    e2b=http://127.0.0.1:$E2B_HTTP_PORT
    printf '%s\n' "GATEHOUSE_URL=$url" "GATEHOUSE_KEY=$key" "GATEHOUSE_CA=$dir/tls/cert.pem" "GATEHOUSE_ORG=$org" \
      "E2B_API_URL=$e2b" "E2B_SANDBOX_URL=$e2b" "E2B_API_KEY=$key" E2B_VALIDATE_API_KEY=false >"$dir/demo.env.new"
  )
  [ -z "${SUDO_UID:-}" ] || chown "$SUDO_UID:${SUDO_GID:-0}" "$dir/demo.env.new"
  mv "$dir/demo.env.new" "$dir/demo.env"
  export GATEHOUSE_URL=$url GATEHOUSE_KEY=$key GATEHOUSE_CA=$dir/tls/cert.pem
  call() { "$dir/bin/gatehouse" call "$@"; }

  git_at_forge() ( # git gets the credential as a header, through the environment, for this one URL
    export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0="http.$url/.extraHeader"
    export GIT_SSL_CAINFO=$dir/tls/cert.pem GIT_TERMINAL_PROMPT=0
    GIT_CONFIG_VALUE_0="Authorization: Basic $(printf 'key:%s' "$key" | base64 -w0)"
    export GIT_CONFIG_VALUE_0
    git "$@"
  )
  if ! git_at_forge ls-remote --exit-code "$url/v1/git/$org/$repo.git" refs/heads/main >/dev/null 2>&1; then
    call get_repo repo="$repo" >/dev/null 2>&1 || call create_repo name="$repo" >/dev/null
    call push_files repo="$repo" branch=main message='A first program' \
      files[0].path=README.md files[0].content=@tests/stack/hello/README.md \
      files[1].path=greet.py files[1].content=@tests/stack/hello/greet.py \
      files[2].path=check.py files[2].content=@tests/stack/hello/check.py \
      files[3].path=.gitignore files[3].content=__pycache__/ >/dev/null
  fi

  # The model gateway's providers: echo, which is none, and those of the environment, whose keys are in no argument.
  json() { python3 -c "import json, sys
d = json.load(sys.stdin)
$1" "${@:2}"; }
  provider() { # NAME WIRE URL KEY MODELS-AS-JSON; a known one keeps its models and prices, which may be yours by now
    local id change=() key=/dev/null
    [ -z "$4" ] || { key=$tmp/key && (umask 077 && printf %s "$4" >"$key"); }
    if call get_provider name="$1" >"$tmp/provider" 2>/dev/null; then
      if [ -n "$4" ]; then
        for id in $(json 'print(*[k["id"] for k in d["keys"]])' <"$tmp/provider"); do change+=("removeKeys[${#change[@]}]=$id"); done
        change+=("addKeys[0]=@$key")
      fi
      call update_provider name="$1" wire="$2" baseUrl="$3" ${change[@]+"${change[@]}"} >/dev/null
    else
      call create_provider name="$1" wire="$2" baseUrl="$3" models:="$5" ${4:+"keys[0]=@$key"} >/dev/null
    fi
    rm -f "$tmp/key"
  }
  vendor() { # NAME WIRE URL KEY HEADER: what models it has it says itself; their prices are not known to us
    local models
    if ! curl -sS --max-time 20 -H @<(printf '%s%s\nanthropic-version: 2023-06-01\n' "$5" "$4") "$3/models" >"$tmp/models" 2>"$tmp/why" ||
      ! models=$(json 'print(json.dumps([{"name": m["id"], "prices": {"input": 0, "output": 0}} for m in d["data"]][:400]))' <"$tmp/models" 2>/dev/null); then
      echo "gatehouse: $1 does not list its models: $(cat "$tmp/why" "$tmp/models" 2>/dev/null | tr -s '\n' ' ' | head -c 200)" >&2
      return
    fi
    provider "$1" "$2" "$3" "$4" "$models"
    target=$1/$(json 'import re
names = [m["id"] for m in d["data"]]
print(([n for n in names if re.match("gpt|claude|o[0-9]", n)] or names)[0])' <"$tmp/models")
  }
  target=echo/scripted
  provider echo openai-chat "http://127.0.0.1:$ECHO_PORT/v1" '' \
    '[{"name":"scripted","contextTokens":32000,"prices":{"input":100000,"output":400000}}]'
  anthropic=${ANTHROPIC_BASE_URL:-https://api.anthropic.com}
  [ -z "${ANTHROPIC_API_KEY:-}" ] || vendor anthropic anthropic "${anthropic%/}/v1" "$ANTHROPIC_API_KEY" 'x-api-key: '
  openai=${OPENAI_BASE_URL:-https://api.openai.com/v1}
  [ -z "${OPENAI_API_KEY:-}${OPENAI_BASE_URL:-}" ] ||
    vendor openai openai-chat "${openai%/}" "${OPENAI_API_KEY:-}" 'Authorization: Bearer '
  # `demo`, and no name at all, are the vendor of the environment, or at first echo; what else you have named stays.
  call set_model_routing aliases:="$(call get_model_routing | json 'a, to = d["aliases"], sys.argv[1]
new = {"demo": [to], "free": [to]}
print(json.dumps({**new, **a} if to == "echo/scripted" else {**a, **new}))' "$target")" >/dev/null

  echo
  echo "A coding run: python edits greet.py in a sandbox and runs check.py there."
  result=$tmp/result
  call start_coding_run tool=python repo="$repo" prompt=@tests/stack/hello/task.py | tee "$result" | call --render
  branch=$(sed -n 's/.*"branch":"\([^"]*\)".*/\1/p' "$result" | tail -1)
  [ -n "$branch" ] || die "the run pushed no branch; see $dir/log/runner1.log"

  echo
  echo "What it pushed to $branch:"
  git_at_forge clone -q "$url/v1/git/$org/$repo.git" "$tmp/clone" &&
    git -C "$tmp/clone" --no-pager diff --stat --patch "origin/main...origin/$branch" || die "the pushed branch could not be read back"
  echo
  echo "What a curl in a sandbox is told about a host that its policy does not name:"
  box=$(call lease_sandbox ttlSec=60 network.allowedHosts[0]=api.example.com | sed -n 's/.*"id":"\([^"]*\)".*/\1/p' | head -1)
  [ -n "$box" ] || die "no sandbox with a policy; see $dir/log/node1.log and $dir/log/egress1.log"
  call run_in_sandbox id="$box" command='curl -s http://example.com/; echo; curl -sS https://example.com/ 2>&1' |
    python3 -c 'import json, sys; print("  " + json.load(sys.stdin)["stdout"].strip().replace("\n", "\n  "))'
  call end_sandbox id="$box" >/dev/null
  echo
  echo "What the model $target says through the gateway, and what the call cost:"
  api() { curl -sS --max-time 60 --cacert "$dir/tls/cert.pem" -H @<(printf 'Authorization: Bearer %s' "$key") -H 'Content-Type: application/json' "$url$1" "${@:2}"; }
  api /v1/chat/completions -d '{"model":"demo","max_tokens":200,"messages":[{"role":"user","content":"Say hello to who runs you for the first time."}]}' |
    json 'print("  " + (d["choices"][0]["message"]["content"] if "choices" in d else d["error"]["message"]))'
  api /v1/billing/usage |
    json 'print("  today: %(calls)d calls, %(inputTokens)d tokens in, %(outputTokens)d out, %(costMillicents)d thousandths of a cent" % d["data"][0] if d["data"] else "  nothing yet")'
  cat <<EOT

gatehouse is running; its state is in var/. Go on with:
  . var/demo.env; curl --cacert "\$GATEHOUSE_CA" -H "Authorization: Bearer \$GATEHOUSE_KEY" "\$GATEHOUSE_URL/v1/bots"
  the branch's page (user: any, password: the key): $url/git/$org/$repo?ref=$branch
  make stop
EOT
)

# Ctrl-C, or a failure, leaves nothing running that was not running before.
interrupted=0
trap 'interrupted=129' HUP
trap 'interrupted=130' INT
trap 'interrupted=143' TERM
tmp=$(mktemp -d)
set +e
demo
status=$?
[ $interrupted = 0 ] || status=$interrupted
if [ $status != 0 ]; then
  trap '' HUP INT TERM # a second Ctrl-C does not stop the stopping
  [ $running = 1 ] || { echo "stopping what was started" >&2; tests/stack/stack.sh down "$dir"; }
fi
rm -rf "$tmp"
exit $status
