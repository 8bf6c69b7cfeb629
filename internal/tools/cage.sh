#!/usr/bin/env bash
# cage.sh COMMAND… runs a command in a process namespace of its own, so that no process of it lives
# on, however it ends: sandboxes outlive what started them, and a killed test does not end its own.
set -euo pipefail

# The first process of the namespace collects orphans, and its end ends all others.
cage=(unshare --pid --fork --kill-child --mount-proc)
if ! "${cage[@]}" true 2>/dev/null; then # only root may
	exec "$@"
fi
exec "${cage[@]}" bash -c '"$@"; exit $?' cage "$@"
