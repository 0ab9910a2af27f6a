# shellcheck shell=bash
# lib.sh - sourced: where the state lives, and starting and ending processes by pid.
# A pid file holds "PID STARTTIME" (field 22 of /proc/PID/stat), so that a recycled pid is never signalled.

die() { echo "gatehouse: $*" >&2; exit 1; }

# Nothing for a zombie: some init processes reap seconds later.
starttime() { sed -E 's/.*\) //; /^Z/d' "/proc/$1/stat" 2>/dev/null | cut -d' ' -f20; }
alive() { # alive FILE: is the process of that pid file running?
  local pid start
  [ -s "$1" ] && read -r pid start <"$1" && [ -n "$start" ] && [ "$(starttime "$pid")" = "$start" ]
}
pid_of() { local pid rest; read -r pid rest <"$1" && echo "$pid"; }
# launch FILE LOG COMMAND…: in a session of its own. It writes its pid file itself, before it is the command, and a signal to this
# script waits until it has: there is no moment in which it runs and nobody knows. Once it leads its session, who kills this
# script's whole group does not kill it.
launch() {
  local file=$1 log=$2 interrupted='' deadline=$((SECONDS + 10)) pid
  shift 2
  trap 'interrupted=1' INT TERM HUP
  (
    exec 8>&- 9>&- >>"$log" 2>&1 </dev/null # the locks are not its own
    me=$BASHPID
    echo "$me $(starttime "$me")" >"$file.new" && mv "$file.new" "$file"
    cd / && exec setsid "$@"
  ) &
  pid=$!
  while [ -e "/proc/$pid" ] && [ "$(session_of "$pid")" != "$pid" ] && [ $SECONDS -lt $deadline ]; do sleep 0.01; done
  trap - INT TERM HUP
  [ -z "$interrupted" ] || exit 130
}
session_of() { sed -E 's/.*\) //' "/proc/$1/stat" 2>/dev/null | cut -d' ' -f4; }
# end_strays DIR: daemons whose binary is in DIR and of which no pid file tells (this script was killed, a pid file was removed).
end_strays() {
  local p pid exe known strays=() deadline=$((SECONDS + 20))
  known=" $(cat "$dir/pid/"* 2>/dev/null | cut -d' ' -f1 | tr '\n' ' ' || true)"
  for p in /proc/[0-9]*; do
    pid=${p#/proc/}
    exe=$(readlink "$p/exe" 2>/dev/null) || continue
    case $exe in "$1/gatehouse-box"*) continue ;; "$1/gatehouse-"*) ;; *) continue ;; esac
    case $known in *" $pid "*) continue ;; esac
    [ "$(session_of "$pid")" = "$pid" ] || continue # what a daemon has started is the daemon's to end
    strays+=("$pid:$(starttime "$pid")")
    kill -TERM "$pid" 2>/dev/null || true
  done
  for p in ${strays[@]+"${strays[@]}"}; do
    while [ "$(starttime "${p%:*}")" = "${p#*:}" ]; do
      [ $SECONDS -lt $deadline ] || kill -KILL "${p%:*}" 2>/dev/null || true
      sleep 0.05
    done
  done
}
end_session() { # what a killed process left in its session (nginx's workers): every part is started with setsid
  local pid rest p
  [ -s "$1" ] && read -r pid rest <"$1" && [ -n "$pid" ] || return 0
  for p in /proc/[0-9]*; do
    [ "$(session_of "${p#/proc/}")" = "$pid" ] && kill -KILL "${p#/proc/}" 2>/dev/null || true
  done
}
end_pid() { # end_pid FILE [SIGNAL] [SECONDS]: signal, wait, kill; the file is removed
  local file=$1 pid deadline
  if alive "$file"; then
    pid=$(pid_of "$file")
    kill "-${2:-TERM}" "$pid" 2>/dev/null || true
    deadline=$((SECONDS + ${3:-15}))
    while alive "$file" && [ $SECONDS -lt $deadline ]; do sleep 0.05; done
    if alive "$file"; then kill -KILL "$pid" 2>/dev/null || true; fi
    while alive "$file"; do sleep 0.02; done
  fi
  rm -f "$file"
}
port_taken() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }
free_port() { # the first free port from $1 on
  local p=$1
  while port_taken "$p"; do p=$((p + 1)); [ "$p" -lt 65000 ] || die "no free TCP port from $1 on"; done
  echo "$p"
}
SERVICE_USER=${SERVICE_USER:-www-data}
# Another one for the egress boundary: who breaks it open has nothing of the services' own.
EGRESS_USER=${EGRESS_USER:-nobody}
as_service() { setpriv --reuid="$SERVICE_USER" --regid="$SERVICE_USER" --clear-groups --no-new-privs -- "$@"; }
as_postgres() { setpriv --reuid=postgres --regid=postgres --clear-groups -- "$@"; }
pg_bin() {
  local d
  # shellcheck disable=SC2012
  d=$(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | sort -V | tail -1)
  [ -n "$d" ] || die "PostgreSQL is not installed"
  echo "$d"
}
# Service users must reach the state; unix socket paths have 107 bytes, the sandboxes' 60.
state_dir() { # state_dir CHECKOUT: the real directory behind CHECKOUT/var, made if needed
  local top=$1 dir
  if [ -e "$top/var" ]; then readlink -f "$top/var"; return; fi
  if [ ${#top} -le 40 ] && as_service test -x "$top" 2>/dev/null; then
    dir=$top/var
    mkdir -m 755 "$dir"
  else
    dir=/var/lib/gatehouse-$(printf %s "$top" | cksum | cut -d' ' -f1)
    mkdir -p "$dir"
    ln -s "$dir" "$top/var"
  fi
  echo "$dir"
}
