#!/usr/bin/env bash
# debianroot.sh DIR PACKAGE... makes a minimal Debian 12 with these packages in DIR. Mirrors, and how they are
# reached, are those that apt uses on this machine.
set -euo pipefail
[ $# -gt 0 ] || { echo "usage: debianroot.sh DIR PACKAGE..." >&2; exit 2; }
"$(dirname "$0")/need.sh" mmdebstrap
dir=$1
shift

sources=()
if grep -qs '^VERSION_CODENAME=bookworm' /etc/os-release; then
	shopt -s nullglob
	sources=(/etc/apt/sources.list /etc/apt/sources.list.d/*.list /etc/apt/sources.list.d/*.sources)
	shopt -u nullglob
	[ -s "${sources[0]}" ] || sources=("${sources[@]:1}")
fi
options=$(mktemp)
trap 'rm -f "$options"' EXIT
apt-config dump | grep '^Acquire::' >"$options" || true
IFS=,
mmdebstrap --quiet --variant=minbase --include="$*" --aptopt="$options" bookworm "$dir" "${sources[@]}"
