#!/bin/bash
# in-chroot.sh COMMAND… - run a command in a plain chroot of this host's own tree, where nobody may make namespaces. The mounts
# are in a mount namespace of the command's own and end with it.
set -euo pipefail
if [ -z "${IN_CHROOT:-}" ]; then IN_CHROOT=$(mktemp -d) exec unshare --mount --propagation private "$0" "$@"; fi
mount --rbind / "$IN_CHROOT"
status=0
here=$PWD
chroot "$IN_CHROOT" /bin/bash -c 'cd "$1" && shift && exec "$@"' - "$here" "$@" || status=$?
umount -l "$IN_CHROOT"
rmdir "$IN_CHROOT"
exit $status
