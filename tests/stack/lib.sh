# shellcheck shell=bash
# lib.sh - sourced: where the state lives, and starting and ending processes by pid.
# A pid file holds "PID STARTTIME" (field 22 of /proc/PID/stat), so that a recycled pid is never signalled.

die() { echo "gatehouse: $*" >&2; exit 1; }

# All of these are asked very often, of every process there is: without a fork, which is dear on some virtual machines.
nap() { read -rt "$1" -u "$naps" || true; } # seconds
exec {naps}<> <(:)                         # open at both ends, and nobody writes
# look PID: of /proc/PID/stat: state, session and starttime, all empty when there is none. Some init processes reap a zombie seconds
# later: it counts as none.
look() {
  local line fields
  state='' session='' starttime=''
  { read -r line <"/proc/$1/stat"; } 2>/dev/null || return 0
  read -ra fields <<<"${line##*) }"
  [ "${fields[0]:-Z}" = Z ] || state=${fields[0]} session=${fields[3]} starttime=${fields[19]}
}
alive() { # alive FILE: is the process of that pid file running?
  local pid start
  [ -s "$1" ] && read -r pid start <"$1" && [ -n "$start" ] && look "$pid" && [ "$starttime" = "$start" ]
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
    exec 8>&- 9>&- {naps}>&- >>"$log" 2>&1 </dev/null # the locks are not its own
    look "$BASHPID"
    echo "$BASHPID $starttime" >"$file.new" && mv "$file.new" "$file"
    cd / && exec setsid "$@"
  ) &
  pid=$!
  while look "$pid" && [ -n "$state" ] && [ "$session" != "$pid" ] && [ $SECONDS -lt $deadline ]; do nap 0.01; done
  trap - INT TERM HUP
  [ -z "$interrupted" ] || exit 130
}
# end_strays DIR: daemons whose binary is in DIR and of which no pid file tells (this script was killed, a pid file was removed).
end_strays() {
  local pid start file known=' ' strays=() deadline=$((SECONDS + 20))
  for file in "$dir/pid/"*; do
    [ ! -s "$file" ] || { read -r pid start <"$file" && known+="$pid "; }
  done
  for pid in $(find /proc/[0-9]* -maxdepth 1 -name exe -lname "$1/gatehouse-*" ! -lname "$1/gatehouse-box*" -printf '%h ' 2>/dev/null); do
    pid=${pid#/proc/}
    case $known in *" $pid "*) continue ;; esac
    look "$pid"
    [ "$session" = "$pid" ] || continue # what a daemon has started is the daemon's to end
    strays+=("$pid:$starttime")
    kill -TERM "$pid" 2>/dev/null || true
  done
  for pid in ${strays[@]+"${strays[@]}"}; do
    while look "${pid%:*}" && [ "$starttime" = "${pid#*:}" ]; do
      [ $SECONDS -lt $deadline ] || kill -KILL "${pid%:*}" 2>/dev/null || true
      nap 0.05
    done
  done
}
end_session() { # what a killed process left in its session (nginx's workers): every part is started with setsid
  local leader rest p
  [ -s "$1" ] && read -r leader rest <"$1" && [ -n "$leader" ] || return 0
  for p in /proc/[0-9]*; do
    look "${p#/proc/}"
    [ "$session" != "$leader" ] || kill -KILL "${p#/proc/}" 2>/dev/null || true
  done
}
end_pid() { # end_pid FILE [SIGNAL] [SECONDS]: signal, wait, kill; the file is removed
  local file=$1 pid deadline
  if alive "$file"; then
    pid=$(pid_of "$file")
    kill "-${2:-TERM}" "$pid" 2>/dev/null || true
    deadline=$((SECONDS + ${3:-15}))
    while alive "$file" && [ $SECONDS -lt $deadline ]; do nap 0.02; done
    if alive "$file"; then kill -KILL "$pid" 2>/dev/null || true; fi
    while alive "$file"; do nap 0.02; done
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
