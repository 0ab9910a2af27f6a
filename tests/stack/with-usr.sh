#!/bin/bash
# with-usr.sh DIR COMMAND… - run a command to which the files in DIR stand in /usr as well, before those of the same name. Only the
# command and what it starts see them. One mount in the place of /usr: sandboxes are given /usr, and could not have a mount below it.
set -euo pipefail
if [ -z "${WITH_USR:-}" ]; then WITH_USR=1 exec unshare --mount --propagation private "$0" "$@"; fi
mount -t overlay overlay -o "lowerdir=$1:/usr" /usr
shift
exec "$@"
