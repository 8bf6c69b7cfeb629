#!/usr/bin/env bash
# need.sh [--list FILE]... TOOL... makes sure that tools are there. As root on Debian it installs what
# is missing; elsewhere it says exactly what to install and fails.
#
# FILE has lines of a program, its Debian package, and perhaps a script that succeeds where the program is there.
set -euo pipefail

declare -A package=(
	[gcc]="gcc libc6-dev" [git]=git [node]=nodejs [npm]=npm [python3]=python3 [venv]=python3-venv [pgrep]=procps
	[ssh]=openssh-client [curl]=curl [openssl]=openssl [pip]=python3-pip [bash]=bash [patch]=patch [rg]=ripgrep
	[chromium]=chromium [bwrap]=bubblewrap [runc]=runc [socat]=socat [mmdebstrap]=mmdebstrap [buildah]=buildah [fsck.ext4]=e2fsprogs
	[qemu-system-x86_64]="qemu-system-x86 seabios" [cpio]=cpio
	[libseccomp]="libseccomp-dev pkg-config" [busybox]=busybox-static [iptables]=iptables)
declare -A probe=(
	[gcc]="type -P gcc && test -e /usr/include/stdlib.h"
	[venv]="python3 -c 'import venv, ensurepip'"
	[libseccomp]="pkg-config --exists libseccomp"
	[pip]="/usr/bin/python3 -c 'import pip'") # the python3 that sandboxes have
tools=()

# Version 20 or newer: Debian 12 has 18, so it comes from npm.
node_min=20
probe[node]="(( \$(node -p 'process.versions.node.split(\".\")[0]') >= $node_min ))"

while [ $# -gt 0 ]; do
	case "$1" in
	--list)
		while read -r name pkg script; do
			case "$name" in "" | "#"*) continue ;; esac
			[ "$pkg" != - ] || continue # a name that no machine has
			tools+=("$name")
			[ -n "${package[$name]:-}" ] || package[$name]=$pkg
			[ -z "$script" ] || probe[$name]=$script
		done <"$2"
		shift ;;
	*) tools+=("$1") ;;
	esac
	shift
done

have() {
	local script='type -P -- "$0"'
	bash -c "${probe[$1]:-$script}" "$1" >/dev/null 2>&1
}

check_go() {
	local version
	version=$(go env GOVERSION 2>/dev/null | sed 's/^go//') || version=
	if [ "$(printf '%s\n1.26\n' "${version:-0}" | sort -V | head -1)" != 1.26 ]; then
		echo "need: Carrel needs Go 1.26 or newer; here is ${version:-none}" >&2
		echo "hint: install it from go.dev/dl" >&2
		exit 1
	fi
}

missing=()
packages=()
for tool in "${tools[@]}"; do
	if [ "$tool" = go ]; then
		check_go
	elif ! have "$tool"; then
		missing+=("$tool")
		packages+=(${package[$tool]})
	fi
done
[ ${#missing[@]} -gt 0 ] || exit 0

mapfile -t packages < <(printf '%s\n' "${packages[@]}" | sort -u)
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
	echo "need: missing: ${missing[*]}" >&2
	echo "hint: install them, on Debian with: sudo apt-get install ${packages[*]}" >&2
	case " ${missing[*]} " in *" node "*)
		echo "hint: Node.js has to be $node_min or newer; npm has it too: npm install --global node@$node_min" >&2 ;;
	esac
	exit 1
fi

echo "need: installing ${packages[*]}" >&2
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq >&2
apt-get install -y -qq --no-install-recommends "${packages[@]}" >&2
case " ${missing[*]} " in *" node "*)
	if ! have node; then
		echo "need: Debian's Node.js is too old; installing version $node_min from npm" >&2
		command -v npm >/dev/null || apt-get install -y -qq --no-install-recommends npm >&2
		npm install --global --silent "node@$node_min" >&2
		hash -r
	fi ;;
esac
for tool in "${missing[@]}"; do
	have "$tool" || { echo "need: $tool is still missing after the installation" >&2; exit 1; }
done
