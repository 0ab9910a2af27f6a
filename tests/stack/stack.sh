#!/bin/bash
# stack.sh - a whole gatehouse in one directory, for `make run` and the flow tests: PostgreSQL cluster, nginx with a
# self-signed certificate, api, runner, egress and sandboxd processes. As root.
#
#   stack.sh up DIR              start what is not running (idempotent), wait until /ready
#   stack.sh down DIR            end everything, in the order of a shutdown
#   stack.sh start|stop|kill DIR NAME     one part: pg nginx api1 api2 runner1 egress1 node1 ...
#
# BIN: where the binaries are. NGINX_WORKERS, APIS, RUNNERS, NODES: how many of each. PORT: where to look for free ports.
# DIR/local.conf: settings that come last, for people; up starts the daemons again when what it configures has changed.
# ECHO=1: with the bundled model provider (echo.js). MODEL_HOSTS: further hosts of model providers that may be private or plain http.
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
# READY_S: how long a part may take to come up.
READY_S=${READY_S:-60} APIS=${APIS:-1} RUNNERS=${RUNNERS:-1} NODES=${NODES:-1} PORT=${PORT:-8443} BIN=${BIN:-$top/build/release}
run=$dir/run log=$dir/log pids=$dir/pid

prepare() {
  local i host ports=() next=$PORT
  if [ ! -f "$dir/stack.conf" ]; then
    for ((i = 1; i <= APIS; i++)); do
      next=$(free_port "$next")
      ports+=("$next")
      next=$((next + 1))
    done
    {
      printf 'APIS=%s RUNNERS=%s NODES=%s BIN=%q PORTS="%s" INSTANCE=%s\n' "$APIS" "$RUNNERS" "$NODES" "$BIN" "${ports[*]}" \
        "$(printf %s "$dir" | cksum | cut -d' ' -f1)"
      printf 'STACK_CONF=%q\n' "${STACK_CONF:-}" # a later up writes the same configuration
    } >"$dir/stack.conf.new"
    mv "$dir/stack.conf.new" "$dir/stack.conf"
    . "$dir/stack.conf"
  fi
  if [ -z "${E2B_HTTP_PORT:-}" ]; then # also in a state that an earlier version made
    E2B_PORT=$(free_port $((next + 3))) # behind what ECHO may take
    E2B_HTTP_PORT=$(free_port $((E2B_PORT + 1)))
    printf 'E2B_PORT=%s\nE2B_HTTP_PORT=%s\n' "$E2B_PORT" "$E2B_HTTP_PORT" >>"$dir/stack.conf"
  fi
  if [ -n "${ECHO:-}" ] && [ -z "${ECHO_PORT:-}" ]; then
    ECHO_PORT=$(free_port $((${PORTS##* } + 1)))
    echo "ECHO_PORT=$ECHO_PORT" >>"$dir/stack.conf"
  fi
  for host in ${MODEL_HOSTS:-}; do
    case " ${KNOWN_MODEL_HOSTS:-} " in *" $host "*) continue ;; esac
    KNOWN_MODEL_HOSTS="${KNOWN_MODEL_HOSTS:+$KNOWN_MODEL_HOSTS }$host"
    printf 'KNOWN_MODEL_HOSTS=%q\n' "$KNOWN_MODEL_HOSTS" >>"$dir/stack.conf"
  done
  install -d -m 755 "$dir" "$log" "$pids" "$dir/tls" "$dir/bin" "$dir/nginx"
  install -d -m 755 -o "$SERVICE_USER" -g "$SERVICE_USER" "$run" "$dir/forge" "$dir/runner"
  install -d -m 750 -o "$SERVICE_USER" -g "$SERVICE_USER" "$run/internal"
  install -d -m 711 "$dir/sandboxes" "$dir/s"
  for ((i = 1; i <= NODES; i++)); do install -d -m 755 -o "$EGRESS_USER" "$run/egress$i"; done
  if [ ! -s "$dir/secret.key" ]; then
    (umask 077 && openssl rand -hex 32 >"$dir/secret.key.new")
    chown "$SERVICE_USER" "$dir/secret.key.new"
    mv "$dir/secret.key.new" "$dir/secret.key"
  fi
  # cert.pem is what clients trust. It signs and does not serve: some refuse an authority's certificate as a server's.
  if [ ! -s "$dir/tls/server.pem" ]; then
    local ec=(-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes)
    printf 'subjectAltName=DNS:localhost,IP:127.0.0.1\nbasicConstraints=critical,CA:FALSE\nextendedKeyUsage=serverAuth\n' >"$dir/tls/server.ext"
    openssl req -x509 "${ec[@]}" -days 825 -subj "/CN=gatehouse $INSTANCE" -keyout "$dir/tls/key.pem" -out "$dir/tls/cert.pem" 2>/dev/null &&
      openssl req "${ec[@]}" -subj /CN=localhost -keyout "$dir/tls/server.key" -out "$dir/tls/server.req" 2>/dev/null &&
      openssl x509 -req -in "$dir/tls/server.req" -CA "$dir/tls/cert.pem" -CAkey "$dir/tls/key.pem" -CAcreateserial -days 825 \
        -extfile "$dir/tls/server.ext" -out "$dir/tls/server.pem.new" 2>/dev/null || die "openssl could not make a certificate"
    rm -f "$dir/tls/key.pem" "$dir/tls/server.req" "$dir/tls/server.ext" # nothing else is to be signed with it
    mv "$dir/tls/server.pem.new" "$dir/tls/server.pem"
  fi
}
copy_binaries() { # the service user may not reach the checkout; a running binary cannot be overwritten, so rename
  local b
  for b in gatehouse gatehouse-api gatehouse-runner gatehouse-egress gatehouse-sandboxd gatehouse-box; do
    cmp -s "$BIN/$b" "$dir/bin/$b" && continue
    install -m 755 "$BIN/$b" "$dir/bin/.$b.new" || die "$BIN/$b is not built"
    mv "$dir/bin/.$b.new" "$dir/bin/$b"
  done
  [ -z "${ECHO_PORT:-}" ] || install -m 644 "$top/tests/stack/echo.js" "$dir/bin/echo.js"
}
write_conf() {
  local first=${PORTS%% *}
  # The sockets are the first instance's, for `gatehouse doctor`; each daemon is told its own.
  cat >"$dir/gatehouse.conf.new" <<EOT
DATABASE_URL=host=$run/pg dbname=gatehouse user=gatehouse
SOCKET_GROUP=$SERVICE_USER
INTERNAL_SOCKET=$run/internal/door1.sock
API_SOCKET=$run/api1.sock
SANDBOXD_SOCKET=$run/sandboxd1.sock
EGRESS_SOCKET=$run/egress1/ctl.sock
PUBLIC_URL=https://127.0.0.1:$first
CA_FILE=$dir/tls/cert.pem
FORGE_ROOT=$dir/forge
RUNNER_DIR=$dir/runner
SECRET_KEY_FILE=$dir/secret.key
INSTANCE=gh$INSTANCE
SANDBOX_DIR=$dir/sandboxes
SANDBOX_SOCKET_DIR=$dir/s
VOLUME_DIR=$dir/volumes
BOX_BINARY=$dir/bin/gatehouse-box
BILLING_MODE=open
${SANDBOX_DRIVER:+SANDBOX_DRIVER=$SANDBOX_DRIVER}
${SANDBOX_ALLOW_UNISOLATED:+SANDBOX_ALLOW_UNISOLATED=$SANDBOX_ALLOW_UNISOLATED}
${ECHO_PORT:+MODEL_INWARD_HOSTS=127.0.0.1:$ECHO_PORT${KNOWN_MODEL_HOSTS:+ $KNOWN_MODEL_HOSTS}}
${STACK_CONF:-}
EOT
  # Hosts of your own come beside those of the stack, not instead of them. (In quotes, which the value's own may follow.)
  local hosts=${ECHO_PORT:+127.0.0.1:$ECHO_PORT${KNOWN_MODEL_HOSTS:+ $KNOWN_MODEL_HOSTS}}
  [ ! -f "$dir/local.conf" ] ||
    sed -E "s/^([[:space:]]*MODEL_INWARD_HOSTS[[:space:]]*=)/\1${hosts:+'$hosts '}/" "$dir/local.conf" >>"$dir/gatehouse.conf.new"
  # Who is older than this copy runs with another configuration. (A test may have edited the file itself.)
  cmp -s "$dir/gatehouse.conf.new" "$dir/gatehouse.conf.made" || cp "$dir/gatehouse.conf.new" "$dir/gatehouse.conf.made"
  mv "$dir/gatehouse.conf.new" "$dir/gatehouse.conf"
}
write_nginx() {
  local i port ports before
  read -ra ports <<<"$PORTS"
  before=$(cat "$dir"/nginx/*.conf 2>/dev/null | cksum || true)
  cp /etc/nginx/fastcgi_params "$dir/nginx/fastcgi_params"
  {
    cat <<EOT
user $SERVICE_USER;
worker_processes ${NGINX_WORKERS:-2};
worker_rlimit_nofile 20000;
pid $dir/nginx/nginx.pid;
error_log $log/nginx.log warn;
events { worker_connections 16000; }
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
      sed -e "s#/run/gatehouse/api.sock#$run/api$i.sock#; s#gatehouse-kept\*#kept$i#" "$top/nginx/gatehouse.conf" >"$dir/nginx/gatehouse$i.conf"
      sed -e "s#gatehouse_api;#gatehouse_api$i;#" "$top/nginx/gatehouse-kept.conf" >"$dir/nginx/kept$i.conf"
      sed -e "s#/run/gatehouse/api.sock#$run/api$i.sock#; s#gatehouse_api #gatehouse_api$i #" "$top/nginx/gatehouse-upstream.conf"
      sed -e "s#/run/gatehouse/api.sock#$run/api$i.sock#; s#include gatehouse.conf#include gatehouse$i.conf#" \
        -e "s#listen 443 #listen 127.0.0.1:$port #; /listen \[::\]/d; s#gatehouse.example#127.0.0.1 localhost#" \
        -e "s#/etc/ssl/certs/gatehouse.pem#$dir/tls/server.pem#; s#/etc/ssl/private/gatehouse.key#$dir/tls/server.key#" \
        "$top/nginx/example-server.conf"
    done
    for ((i = 1; i <= (APIS > NODES ? APIS : NODES); i++)); do
      sed -e "s#/run/gatehouse/internal/door.sock#$run/internal/door$i.sock#" \
        -e "s#/run/gatehouse/sandboxd.sock#$run/sandboxd$i.sock#" \
        -e "s#/run/gatehouse/api.sock#$run/api$((i <= APIS ? i : 1)).sock#" "$top/nginx/gatehouse-internal.conf"
    done
    # The door for the E2B SDK; without TLS, too, on loopback only: a script that uses the SDK need not be told of our certificate.
    sed -e "s#/run/gatehouse/api.sock#$run/api1.sock#" "$top/nginx/gatehouse-e2b.conf" >"$dir/nginx/gatehouse-e2b.conf"
    cat <<EOT
server {
  listen 127.0.0.1:$E2B_PORT ssl http2;
  listen 127.0.0.1:$E2B_HTTP_PORT;
  server_name 127.0.0.1 localhost;
  ssl_certificate $dir/tls/server.pem;
  ssl_certificate_key $dir/tls/server.key;
  ssl_protocols TLSv1.2 TLSv1.3;
  server_tokens off;
  include gatehouse-e2b.conf;
}
EOT
    echo "}"
  } >"$dir/nginx/nginx.conf"
  # One that runs already takes up what is new.
  if [ "$(cat "$dir"/nginx/*.conf | cksum)" != "$before" ] && alive "$pids/nginx"; then kill -HUP "$(pid_of "$pids/nginx")"; fi
}

start_pg() {
  local bin
  bin=$(pg_bin)
  install -d -m 755 -o postgres -g postgres "$run/pg"
  if [ ! -f "$dir/pg/PG_VERSION" ]; then
    rm -rf "$dir/pg" "$dir/pg.new" # in its place only once it is whole: this may be interrupted
    install -d -m 700 -o postgres -g postgres "$dir/pg.new"
    (cd / && as_postgres "$bin/initdb" -D "$dir/pg.new" -U postgres -A peer -E UTF8 --locale=C.UTF-8) >"$log/initdb.log" 2>&1 ||
      die "initdb failed: $(tail -1 "$log/initdb.log")"
    printf "listen_addresses = ''\nunix_socket_directories = '%s'\nmax_connections = 200\nshared_buffers = 64MB\n%s\n" \
      "$run/pg" "${STACK_PG_CONF:-}" >>"$dir/pg.new/postgresql.conf"
    mv "$dir/pg.new" "$dir/pg"
  fi
  # Peer authentication on the unix socket only: no password anywhere.
  printf 'local all all peer map=gatehouse\n' >"$dir/pg/pg_hba.conf"
  printf 'gatehouse %s gatehouse\n' "$SERVICE_USER" root >"$dir/pg/pg_ident.conf"
  printf 'gatehouse %s egress\n' "$EGRESS_USER" >>"$dir/pg/pg_ident.conf"
  printf 'gatehouse %s postgres\n' postgres root >>"$dir/pg/pg_ident.conf"
  # After a kill PostgreSQL takes its predecessor's zombie for alive; it goes when init gets to it.
  local stale deadline=$((SECONDS + 20))
  stale=$(head -1 "$dir/pg/postmaster.pid" 2>/dev/null || true)
  while [ -n "$stale" ] && kill -0 "$stale" 2>/dev/null && [ $SECONDS -lt $deadline ]; do nap 0.05; done
  rm -f "$run/pg/.s.PGSQL.5432" "$run/pg/.s.PGSQL.5432.lock"
  launch "$pids/pg" "$log/pg.log" setpriv --reuid=postgres --regid=postgres --clear-groups -- "$bin/postgres" -D "$dir/pg"
  deadline=$((SECONDS + READY_S))
  until "$bin/pg_isready" -q -h "$run/pg" -U postgres -d postgres -t 1; do
    alive "$pids/pg" || die "PostgreSQL ended at start: $(tail -1 "$log/pg.log")"
    [ $SECONDS -lt $deadline ] || die "PostgreSQL did not come up within $READY_S s: $(tail -1 "$log/pg.log")"
    nap 0.05
  done
  if [ ! -f "$dir/pg/gatehouse.made" ]; then
    psql -q -h "$run/pg" -U postgres -d postgres -v ON_ERROR_STOP=1 >/dev/null <<<"
      SELECT 'CREATE ROLE gatehouse LOGIN' WHERE NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'gatehouse') \gexec
      SELECT 'CREATE DATABASE gatehouse OWNER gatehouse' WHERE NOT EXISTS (SELECT FROM pg_database WHERE datname = 'gatehouse') \gexec" ||
      die "the database could not be made"
    touch "$dir/pg/gatehouse.made"
  fi
}
start_nginx() {
  local port deadline=$((SECONDS + READY_S))
  end_session "$pids/nginx" # workers whose master was killed hold the ports
  rm -f "$run"/internal/door*.sock
  launch "$pids/nginx" "$log/nginx.log" \
    /usr/sbin/nginx -p "$dir/nginx" -c "$dir/nginx/nginx.conf" -e "$log/nginx.log" -g 'daemon off;'
  for port in $PORTS $E2B_PORT $E2B_HTTP_PORT; do
    until port_taken "$port" && alive "$pids/nginx"; do
      alive "$pids/nginx" && [ $SECONDS -lt $deadline ] || die "nginx ended at start: $(tail -1 "$log/nginx.log")"
      nap 0.02
    done
  done
}
daemon() { # daemon NAME USER BINARY [KEY=value ...]
  local part=$1 user=$2 bin=$3 as=()
  shift 3
  [ "$user" = root ] || as=(setpriv "--reuid=$user" "--regid=$(id -g "$user")" --clear-groups --no-new-privs --)
  launch "$pids/$part" "$log/$part.log" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 GATEHOUSE_CONFIG="$dir/gatehouse.conf" \
    ${ASAN_OPTIONS:+ASAN_OPTIONS="$ASAN_OPTIONS"} ${GATEHOUSE_CRASH_DIR:+GATEHOUSE_CRASH_DIR="$GATEHOUSE_CRASH_DIR"} \
    "$@" "${as[@]}" "$dir/bin/$bin"
}
outdated() { # does it run a binary that has been replaced since, or with another configuration?
  case $(readlink "/proc/$(pid_of "$1")/exe") in
  "$dir/bin/"*' (deleted)') return 0 ;;
  "$dir/bin/"*) [ "$dir/gatehouse.conf.made" -nt "$1" ] ;;
  *) return 1 ;;
  esac
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
  egress*)
    # Its own copy of the key, as its user may not read the service's.
    install -m 400 -o "$EGRESS_USER" "$dir/secret.key" "$dir/egress.key"
    daemon "$part" "$EGRESS_USER" gatehouse-egress "EGRESS_SOCKET=$run/egress$i/ctl.sock" "SECRET_KEY_FILE=$dir/egress.key" \
      "DATABASE_URL=host=$run/pg dbname=gatehouse user=egress"
    ;;
  echo)
    launch "$pids/echo" "$log/echo.log" env -i PATH=/usr/bin:/bin \
      setpriv --reuid="$SERVICE_USER" --regid="$(id -g "$SERVICE_USER")" --clear-groups --no-new-privs -- \
      /usr/bin/node "$dir/bin/echo.js" "$ECHO_PORT" "$pids/echo"
    ;;
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
  for ((i = 1; i <= NODES; i++)); do printf 'egress%s\nnode%s\n' "$i" "$i"; done
  for ((i = 1; i <= APIS; i++)); do echo "api$i"; done
  for ((i = 1; i <= RUNNERS; i++)); do echo "runner$i"; done
  [ -z "${ECHO_PORT:-}" ] || echo echo
}
refusal() { # why no node offers sandboxes, when all of them have said so
  psql -X -At -h "$run/pg" -U postgres -d gatehouse -c "SELECT min(refusal) FROM nodes
    WHERE heartbeat_at > now() - interval '15 s' HAVING count(*) = $NODES AND bool_and(refusal <> '')" 2>/dev/null || true
}
wait_ready() {
  local port deadline=$((SECONDS + READY_S)) looked=$SECONDS
  for port in $PORTS; do
    until [ "$(curl -s -o /dev/null -w '%{http_code}' --max-time 10 --cacert "$dir/tls/cert.pem" "https://127.0.0.1:$port/ready")" = 200 ]; do
      [ $SECONDS = $looked ] || { looked=$SECONDS; look_for_reasons; }
      [ $SECONDS -lt $deadline ] || die "not ready within $READY_S s: $(curl -s --max-time 10 --cacert "$dir/tls/cert.pem" "https://127.0.0.1:$port/ready")"
      nap 0.1
    done
  done
}
look_for_reasons() { # why it will never be ready
  local p why
  for p in $(parts); do
    alive "$pids/$p" || die "$p ended at start: $(tail -1 "$log/$p.log")"
  done
  why=$(refusal)
  [ -z "$why" ] || die "no sandboxes on this host: $why"
}
up() {
  local p
  end_strays "$dir/bin"
  prepare
  copy_binaries
  write_conf
  write_nginx
  start_part pg
  (cd / && as_service env GATEHOUSE_CONFIG="$dir/gatehouse.conf" "$dir/bin/gatehouse" migrate >>"$log/migrate.log" 2>&1) ||
    if [ $? = 64 ]; then # EX_USAGE: a setting is wrong, and the database was not touched
      die "the configuration is wrong: $(tail -1 "$log/migrate.log" | sed 's/^gatehouse: //')"
    else
      die "the migration failed: $(tail -1 "$log/migrate.log" | sed 's/^gatehouse: //')"
    fi
  psql -q -h "$run/pg" -U postgres -d gatehouse -v ON_ERROR_STOP=1 >/dev/null \
    <<<"SELECT 'CREATE ROLE egress LOGIN' WHERE NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'egress') \gexec" &&
    psql -q -h "$run/pg" -U gatehouse -d gatehouse -v ON_ERROR_STOP=1 -v role=egress -f "$top/systemd/egress-role.sql" >>"$log/migrate.log" 2>&1 ||
    die "the role of egress was not made: $(tail -1 "$log/migrate.log")"
  for p in $(parts); do start_part "$p"; done
  wait_ready
}
node_env() { # what node I is told beside the file
  echo "SANDBOXD_SOCKET=$run/sandboxd$1.sock" "NODE_NAME=node$1" "NODE_ADDRESS=unix:$run/internal/door$1.sock" \
    "EGRESS_SOCKET=$run/egress$1/ctl.sock" "SANDBOX_UID_BASE=$((1000000000 + ($1 - 1) * 100000000))"
}
down() {
  local p
  [ -f "$dir/stack.conf" ] || return 0
  end_strays "$dir/bin"
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
up | down) exec 8<"$dir" && flock -w 300 8 || die "another stack.sh is at work on $dir" ;; # one after the other
esac
case $verb in
up | start) PATH=$(pg_bin):$PATH ;; # the programs themselves, not the wrappers that choose their version
esac
case $verb in
up) up ;;
down) down ;;
start) start_part "$name" ;;
stop) # of PostgreSQL a fast shutdown: TERM waits for its clients, who wait for nothing
  end_pid "$pids/$name" "$([ "$name" = pg ] && echo INT || echo TERM)" 30 ;;
kill) end_pid "$pids/$name" KILL ;;
*) die "unknown verb $verb" ;;
esac
