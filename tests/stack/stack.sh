#!/bin/bash
# stack.sh - a whole gatehouse in one directory, for `make run` and the flow tests: PostgreSQL cluster, nginx with a
# self-signed certificate, api, runner and sandboxd processes. As root.
#
#   stack.sh up DIR              start what is not running (idempotent), wait until /ready
#   stack.sh down DIR            end everything, in the order of a shutdown
#   stack.sh start|stop|kill DIR NAME     one part: pg nginx api1 api2 runner1 node1 ...
#
# BIN: where the binaries are. APIS, RUNNERS, NODES: how many of each. PORT: where to look for free ports.
# Each api process has a server (port) of its own in nginx, as on hosts of its own; each node an internal door.
set -euo pipefail
top=$(cd "$(dirname "$0")/../.." && pwd)
. "$top/tests/stack/lib.sh"
[ $# -ge 2 ] || die "usage: stack.sh up|down DIR, or start|stop|kill DIR NAME"
[ "$(id -u)" = 0 ] || die "the stack needs root (sandboxes, and switching to service users): use sudo"
verb=$1 name=${3:-}
mkdir -p "$2"
dir=$(readlink -f "$2")
[ ! -f "$dir/stack.conf" ] || . "$dir/stack.conf"
APIS=${APIS:-1} RUNNERS=${RUNNERS:-1} NODES=${NODES:-1} PORT=${PORT:-8443} BIN=${BIN:-$top/build/release}
run=$dir/run log=$dir/log pids=$dir/pid

prepare() {
  local i ports=() next=$PORT
  if [ ! -f "$dir/stack.conf" ]; then
    for ((i = 1; i <= APIS; i++)); do
      next=$(free_port "$next")
      ports+=("$next")
      next=$((next + 1))
    done
    printf 'APIS=%s RUNNERS=%s NODES=%s BIN=%q PORTS="%s" INSTANCE=%s\n' "$APIS" "$RUNNERS" "$NODES" "$BIN" "${ports[*]}" \
      "$(printf %s "$dir" | cksum | cut -d' ' -f1)" >"$dir/stack.conf"
    printf 'STACK_CONF=%q\n' "${STACK_CONF:-}" >>"$dir/stack.conf" # a later up writes the same configuration
    . "$dir/stack.conf"
  fi
  install -d -m 755 "$dir" "$log" "$pids" "$dir/tls" "$dir/bin" "$dir/nginx"
  install -d -m 755 -o "$SERVICE_USER" -g "$SERVICE_USER" "$run" "$dir/forge" "$dir/runner"
  install -d -m 750 -o "$SERVICE_USER" -g "$SERVICE_USER" "$run/internal"
  install -d -m 711 "$dir/sandboxes" "$dir/s"
  if [ ! -s "$dir/secret.key" ]; then
    (umask 077 && openssl rand -hex 32 >"$dir/secret.key.new")
    chown "$SERVICE_USER" "$dir/secret.key.new"
    mv "$dir/secret.key.new" "$dir/secret.key"
  fi
  if [ ! -s "$dir/tls/cert.pem" ]; then
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 825 -subj /CN=localhost \
      -addext subjectAltName=DNS:localhost,IP:127.0.0.1 -keyout "$dir/tls/key.pem" -out "$dir/tls/cert.pem" 2>/dev/null ||
      die "openssl could not make a certificate"
  fi
}
copy_binaries() { # the service user may not reach the checkout; a running binary cannot be overwritten, so rename
  local b
  for b in gatehouse gatehouse-api gatehouse-runner gatehouse-sandboxd gatehouse-box; do
    cmp -s "$BIN/$b" "$dir/bin/$b" && continue
    install -m 755 "$BIN/$b" "$dir/bin/.$b.new" || die "$BIN/$b is not built"
    mv "$dir/bin/.$b.new" "$dir/bin/$b"
  done
}
write_conf() {
  local first=${PORTS%% *}
  cat >"$dir/gatehouse.conf" <<EOT
DATABASE_URL=host=$run/pg dbname=gatehouse user=gatehouse
SOCKET_GROUP=$SERVICE_USER
INTERNAL_SOCKET=$run/internal/door1.sock
PUBLIC_URL=https://127.0.0.1:$first
CA_FILE=$dir/tls/cert.pem
FORGE_ROOT=$dir/forge
RUNNER_DIR=$dir/runner
SECRET_KEY_FILE=$dir/secret.key
INSTANCE=gh$INSTANCE
SANDBOX_DIR=$dir/sandboxes
SANDBOX_SOCKET_DIR=$dir/s
BOX_BINARY=$dir/bin/gatehouse-box
${STACK_CONF:-}
EOT
}
write_nginx() {
  local i port ports
  read -ra ports <<<"$PORTS"
  cp /etc/nginx/fastcgi_params "$dir/nginx/fastcgi_params"
  {
    cat <<EOT
user $SERVICE_USER;
worker_processes 2;
worker_rlimit_nofile 20000;
pid $dir/nginx/nginx.pid;
error_log $log/nginx.log warn;
events { worker_connections 8000; }
http {
  access_log off;
  client_body_temp_path $dir/nginx/body;
  fastcgi_temp_path $dir/nginx/fastcgi;
  proxy_temp_path $dir/nginx/proxy;
  uwsgi_temp_path $dir/nginx/uwsgi;
  scgi_temp_path $dir/nginx/scgi;
EOT
    for ((i = 1; i <= APIS; i++)); do
      port=${ports[i - 1]}
      sed -e "s#/run/gatehouse/api.sock#$run/api$i.sock#" "$top/nginx/gatehouse.conf" >"$dir/nginx/gatehouse$i.conf"
      sed -e "s#/run/gatehouse/api.sock#$run/api$i.sock#; s#include gatehouse.conf#include gatehouse$i.conf#" \
        -e "s#listen 443 #listen 127.0.0.1:$port #; /listen \[::\]/d; s#gatehouse.example#127.0.0.1 localhost#" \
        -e "s#/etc/ssl/certs/gatehouse.pem#$dir/tls/cert.pem#; s#/etc/ssl/private/gatehouse.key#$dir/tls/key.pem#" \
        "$top/nginx/example-server.conf"
    done
    for ((i = 1; i <= (APIS > NODES ? APIS : NODES); i++)); do
      sed -e "s#/run/gatehouse/internal/door.sock#$run/internal/door$i.sock#" \
        -e "s#/run/gatehouse/sandboxd.sock#$run/sandboxd$i.sock#" \
        -e "s#/run/gatehouse/api.sock#$run/api$((i <= APIS ? i : 1)).sock#" "$top/nginx/gatehouse-internal.conf"
    done
    echo "}"
  } >"$dir/nginx/nginx.conf"
}

start_pg() {
  local bin
  bin=$(pg_bin)
  install -d -m 755 -o postgres -g postgres "$run/pg"
  if [ ! -f "$dir/pg/PG_VERSION" ]; then
    rm -rf "$dir/pg"
    install -d -m 700 -o postgres -g postgres "$dir/pg"
    (cd / && as_postgres "$bin/initdb" -D "$dir/pg" -U postgres -A peer -E UTF8 --locale=C.UTF-8) >"$log/initdb.log" 2>&1 ||
      die "initdb failed: $(tail -1 "$log/initdb.log")"
    # Peer authentication on the unix socket only: no password anywhere.
    printf 'local all all peer map=gatehouse\n' >"$dir/pg/pg_hba.conf"
    printf 'gatehouse %s gatehouse\ngatehouse root gatehouse\ngatehouse postgres postgres\ngatehouse root postgres\n' \
      "$SERVICE_USER" >"$dir/pg/pg_ident.conf"
    printf "listen_addresses = ''\nunix_socket_directories = '%s'\nmax_connections = 200\nshared_buffers = 64MB\n%s\n" \
      "$run/pg" "${STACK_PG_CONF:-}" >>"$dir/pg/postgresql.conf"
  fi
  # After a kill PostgreSQL takes its predecessor's zombie for alive; it goes when init gets to it.
  local stale deadline=$((SECONDS + 20))
  stale=$(head -1 "$dir/pg/postmaster.pid" 2>/dev/null || true)
  while [ -n "$stale" ] && kill -0 "$stale" 2>/dev/null && [ $SECONDS -lt $deadline ]; do sleep 0.05; done
  rm -f "$run/pg/.s.PGSQL.5432" "$run/pg/.s.PGSQL.5432.lock"
  (cd / && exec setsid setpriv --reuid=postgres --regid=postgres --clear-groups -- \
    "$bin/postgres" -D "$dir/pg" >>"$log/pg.log" 2>&1 </dev/null) &
  remember "$pids/pg" $!
  deadline=$((SECONDS + 60))
  until "$bin/pg_isready" -q -h "$run/pg" -U postgres -d postgres -t 1; do
    alive "$pids/pg" || die "PostgreSQL ended at start: $(tail -1 "$log/pg.log")"
    [ $SECONDS -lt $deadline ] || die "PostgreSQL did not come up within 60 s: $(tail -1 "$log/pg.log")"
    sleep 0.05
  done
  if [ ! -f "$dir/pg/gatehouse.made" ]; then
    psql -q -h "$run/pg" -U postgres -d postgres -c 'CREATE ROLE gatehouse LOGIN' -c 'CREATE DATABASE gatehouse OWNER gatehouse' ||
      die "the database could not be made"
    touch "$dir/pg/gatehouse.made"
  fi
}
start_nginx() {
  local port deadline=$((SECONDS + 10))
  end_session "$pids/nginx" # workers whose master was killed hold the ports
  rm -f "$run"/internal/door*.sock
  (cd / && exec setsid /usr/sbin/nginx -p "$dir/nginx" -c "$dir/nginx/nginx.conf" -e "$log/nginx.log" -g 'daemon off;' \
    >>"$log/nginx.log" 2>&1 </dev/null) &
  remember "$pids/nginx" $!
  for port in $PORTS; do
    until port_taken "$port" && alive "$pids/nginx"; do
      alive "$pids/nginx" && [ $SECONDS -lt $deadline ] || die "nginx ended at start: $(tail -1 "$log/nginx.log")"
      sleep 0.02
    done
  done
}
daemon() { # daemon NAME USER BINARY [KEY=value ...]
  local part=$1 user=$2 bin=$3 as=()
  shift 3
  [ "$user" = root ] || as=(setpriv "--reuid=$user" "--regid=$user" --clear-groups --no-new-privs --)
  (cd / && exec setsid env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 GATEHOUSE_CONFIG="$dir/gatehouse.conf" \
    ${ASAN_OPTIONS:+ASAN_OPTIONS="$ASAN_OPTIONS"} ${GATEHOUSE_CRASH_DIR:+GATEHOUSE_CRASH_DIR="$GATEHOUSE_CRASH_DIR"} \
    "$@" "${as[@]}" "$dir/bin/$bin" >>"$log/$part.log" 2>&1 </dev/null) &
  remember "$pids/$part" $!
}
outdated() { # does it run a binary that has been replaced since?
  case $(readlink "/proc/$(pid_of "$1")/exe") in "$dir/bin/"*' (deleted)') return 0 ;; *) return 1 ;; esac
}
start_part() {
  local part=$1 i=${1//[a-z]/}
  if alive "$pids/$part"; then
    outdated "$pids/$part" || return 0
    end_pid "$pids/$part" TERM 30
  fi
  case $part in
  pg) start_pg ;;
  nginx) start_nginx ;;
  api*) daemon "$part" "$SERVICE_USER" gatehouse-api "API_SOCKET=$run/api$i.sock" ;;
  runner*) daemon "$part" "$SERVICE_USER" gatehouse-runner ;;
  node*)
    # shellcheck disable=SC2046
    daemon "$part" root gatehouse-sandboxd $(node_env "$i")
    ;;
  *) die "no such part: $part" ;;
  esac
}
parts() {
  local i
  echo pg nginx
  for ((i = 1; i <= NODES; i++)); do echo "node$i"; done
  for ((i = 1; i <= APIS; i++)); do echo "api$i"; done
  for ((i = 1; i <= RUNNERS; i++)); do echo "runner$i"; done
}
wait_ready() {
  local port deadline=$((SECONDS + 60)) p
  for port in $PORTS; do
    until [ "$(curl -s -o /dev/null -w '%{http_code}' --max-time 3 --cacert "$dir/tls/cert.pem" "https://127.0.0.1:$port/ready")" = 200 ]; do
      for p in $(parts); do
        alive "$pids/$p" || die "$p ended at start: $(tail -1 "$log/$p.log")"
      done
      [ $SECONDS -lt $deadline ] || die "not ready within 60 s: $(curl -s --max-time 3 --cacert "$dir/tls/cert.pem" "https://127.0.0.1:$port/ready")"
      sleep 0.1
    done
  done
}
up() {
  local p
  prepare
  copy_binaries
  write_conf
  write_nginx
  start_part pg
  (cd / && as_service env GATEHOUSE_CONFIG="$dir/gatehouse.conf" "$dir/bin/gatehouse" migrate >>"$log/migrate.log" 2>&1) ||
    die "the migration failed: $(tail -1 "$log/migrate.log")"
  for p in $(parts); do start_part "$p"; done
  wait_ready
}
node_env() { # what node I is told beside the file
  echo "SANDBOXD_SOCKET=$run/sandboxd$1.sock" "NODE_NAME=node$1" "NODE_ADDRESS=unix:$run/internal/door$1.sock" \
    "SANDBOX_UID_BASE=$((1000000000 + ($1 - 1) * 100000000))"
}
down() {
  local p
  [ -f "$dir/stack.conf" ] || return 0
  for p in $(parts | tac); do
    case $p in
    node*)
      end_pid "$pids/$p" TERM 20
      # Sandboxes outlive their daemon; going down for good ends them.
      # shellcheck disable=SC2046
      env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 GATEHOUSE_CONFIG="$dir/gatehouse.conf" $(node_env "${p#node}") \
        ${ASAN_OPTIONS:+ASAN_OPTIONS="$ASAN_OPTIONS"} "$dir/bin/gatehouse-sandboxd" leave >>"$log/$p.log" 2>&1 </dev/null ||
        echo "gatehouse: sandboxes of $p could not be ended: $(tail -1 "$log/$p.log")" >&2
      ;;
    pg) end_pid "$pids/pg" INT 20 ;; # a fast shutdown
    *) end_pid "$pids/$p" TERM 20 ;;
    esac
  done
}
case $verb in
up) up ;;
down) down ;;
start) start_part "$name" ;;
stop) # of PostgreSQL a fast shutdown: TERM waits for its clients, who wait for nothing
  end_pid "$pids/$name" "$([ "$name" = pg ] && echo INT || echo TERM)" 30 ;;
kill) end_pid "$pids/$name" KILL ;;
*) die "unknown verb $verb" ;;
esac
