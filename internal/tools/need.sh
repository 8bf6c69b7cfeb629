#!/usr/bin/env bash
# need.sh TOOL… makes sure that tools are there. As root on Debian it installs what
# is missing; elsewhere it says exactly what to install and fails.
set -euo pipefail

declare -A package=([gcc]="gcc libc6-dev" [git]=git [node]=nodejs [npm]=npm [python3]=python3 [venv]=python3-venv [pgrep]=procps [go]=golang-go [ssh]=openssh-client [curl]=curl [openssl]=openssl [pip]=python3-pip [bash]=bash [gawk]=gawk [rg]=ripgrep [jq]=jq [sqlite3]=sqlite3
	[bc]=bc [dc]=dc [zip]=zip [unzip]=unzip [zstd]=zstd [xz]=xz-utils [bzip2]=bzip2 [patch]=patch [file]=file [column]=bsdextrautils [sponge]=moreutils [pv]=pv
	[dos2unix]=dos2unix [cal]=ncal [time]=time [uuidgen]=uuid-runtime [envsubst]=gettext-base [xxd]=xxd [tree]=tree [cpio]=cpio [ar]=binutils [chromium]=chromium
	[bwrap]=bubblewrap [runc]=runc [socat]=socat)
missing=()

have() {
	case "$1" in
	venv) python3 -c 'import venv, ensurepip' 2>/dev/null ;;
	pip) /usr/bin/python3 -c 'import pip' 2>/dev/null ;; # the one that sandboxes have
	time) [ -x /usr/bin/time ] ;; # not the shell's own
	*) command -v "$1" >/dev/null ;;
	esac
}

for tool in "$@"; do have "$tool" || missing+=("$tool"); done

if [ ${#missing[@]} -gt 0 ]; then
	packages=()
	for tool in "${missing[@]}"; do packages+=(${package[$tool]}); done
	if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
		echo "need: installing ${packages[*]}" >&2
		export DEBIAN_FRONTEND=noninteractive
		apt-get update -qq >&2
		apt-get install -y -qq --no-install-recommends "${packages[@]}" >&2
	else
		echo "need: missing: ${missing[*]}" >&2
		echo "hint: install them, on Debian with: sudo apt-get install ${packages[*]}" >&2
		exit 1
	fi
	for tool in "${missing[@]}"; do
		have "$tool" || { echo "need: $tool is still missing after the installation" >&2; exit 1; }
	done
fi

# Versions that matter.
for tool in "$@"; do
	case "$tool" in
	go)
		version=$(go env GOVERSION | sed 's/^go//')
		if [ "$(printf '%s\n1.26\n' "$version" | sort -V | head -1)" != 1.26 ]; then
			echo "need: Go $version is too old; Carrel needs 1.26 or newer" >&2
			echo "hint: install it from go.dev/dl" >&2
			exit 1
		fi ;;
	node)
		if [ "$(node -p 'process.versions.node.split(".")[0]')" -lt 20 ]; then
			echo "need: Node $(node --version) is too old; the E2B SDK needs 20 or newer" >&2
			echo "hint: install a newer Node.js, for instance: npm install --global node@20" >&2
			exit 1
		fi ;;
	esac
done
