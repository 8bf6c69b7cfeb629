#!/bin/sh
# install.sh installs Carrel from a release: it looks up this machine's program, checks it against the
# release's checksums, and puts it into place. Nothing is changed when a checksum is wrong.
#
#   sh install.sh [--from URL|DIR] [--version V] [--to DIR] [--sha256 HEX]
#
# --from is where the release's files lie. --sha256 is what SHA256SUMS itself must be: whoever got it by
# another way need not trust the place that the files come from.
set -eu

from=${CARREL_RELEASE:-} version=${CARREL_VERSION:-} to='' pin=''
usage() { echo "usage: install.sh [--from URL|DIR] [--version V] [--to DIR] [--sha256 HEX]" >&2; exit 2; }
fail() { echo "install.sh: $1" >&2; [ -z "${2:-}" ] || echo "hint: $2" >&2; exit 1; }
while [ $# -gt 0 ]; do
	[ $# -ge 2 ] || usage
	case "$1" in
	--from) from=$2 ;;
	--version) version=$2 ;;
	--to) to=$2 ;;
	--sha256) pin=$2 ;;
	*) usage ;;
	esac
	shift 2
done
if [ -z "$from" ]; then
	if [ -n "$version" ]; then
		from=https://github.com/carrel-dev/carrel/releases/download/v$version
	else
		from=https://github.com/carrel-dev/carrel/releases/latest/download
	fi
fi
if [ -z "$to" ]; then
	if [ "$(id -u)" = 0 ]; then to=/usr/local/bin; else to=$HOME/.local/bin; fi
fi

os=$(uname -s | tr '[:upper:]' '[:lower:]')
case "$(uname -m)" in
x86_64 | amd64) arch=amd64 ;;
aarch64 | arm64) arch=arm64 ;;
*) fail "there is no release for $(uname -m)" "build it from source: make build" ;;
esac

# Nobody is led from an encrypted connection to a plain one.
case "$from" in
http://*) protocols='=https,http' ;;
*) protocols='=https' ;;
esac

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

# get NAME fetches a file of the release into the working directory.
get() {
	case "$from" in
	*://*)
		if command -v curl >/dev/null; then
			curl --fail --silent --show-error --location --proto "$protocols" -o "$work/$1" "$from/$1" || fail "can't get $from/$1"
		elif command -v wget >/dev/null; then
			wget -q -O "$work/$1" "$from/$1" || fail "can't get $from/$1"
		else
			fail "neither curl nor wget is here" "install one, or give a directory: --from DIR"
		fi
		;;
	*) cp "$from/$1" "$work/$1" || fail "can't read $from/$1" ;;
	esac
}

# digest FILE prints its SHA-256.
digest() {
	if command -v sha256sum >/dev/null; then
		sha256sum "$1" | cut -d' ' -f1
	else
		shasum -a 256 "$1" | cut -d' ' -f1
	fi
}

get SHA256SUMS
if [ -n "$pin" ] && [ "$(digest "$work/SHA256SUMS")" != "$pin" ]; then
	fail "SHA256SUMS of $from is not the one that was asked for" "compare where you got the checksum from; nothing was installed"
fi
archive=$(sed -n "s/^[0-9a-f]\{64\}  \(carrel_[^/]*_${os}_$arch\.tar\.gz\)\$/\1/p" "$work/SHA256SUMS" | head -1)
[ -n "$archive" ] || fail "the release has nothing for $os on $arch" "build it from source: make build"
get "$archive"
want=$(sed -n "s/^\([0-9a-f]\{64\}\)  $archive\$/\1/p" "$work/SHA256SUMS")
if [ "$(digest "$work/$archive")" != "$want" ]; then
	fail "$archive is not what SHA256SUMS says: it is damaged or was changed" "nothing was installed; try again, or get it from elsewhere"
fi

tar -xzf "$work/$archive" -C "$work"
top=$work/${archive%.tar.gz}
mkdir -p "$to"
# A running program can't be written over, but its name can be given to another file.
cp "$top/carrel" "$to/.carrel.new"
chmod 755 "$to/.carrel.new"
mv -f "$to/.carrel.new" "$to/carrel"
echo "install.sh: $("$to/carrel" version) in $to"
case ":$PATH:" in *":$to:"*) ;; *) echo "hint: $to is not in your PATH" >&2 ;; esac
