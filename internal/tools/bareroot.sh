#!/usr/bin/env bash
# bareroot.sh TARGET... runs "make TARGET..." in a Debian 12 that has only what README.md asks for, so that no program which
# somebody once installed by hand can hide a step. It needs root.
#
# The root is made by mmdebstrap and deleted at the end. Everything is mounted in a mount namespace of its own, which takes
# its mounts along when it ends: nothing is ever mounted outside. What is run is the last commit. Go is this machine's,
# mounted read-only, because Debian's is too old; its caches are not, so that all modules are downloaded. Package registries
# are reached as from here: with the same name servers, certificates, proxies and mirrors.
set -euo pipefail
cd "$(dirname "$0")/../.."
[ $# -gt 0 ] || { echo "usage: bareroot.sh TARGET..." >&2; exit 2; }
[ "$(id -u)" = 0 ] || { echo "bareroot: needs root" >&2; exit 1; }
internal/tools/need.sh go git

goroot=$(go env GOROOT)
# The root is not below /tmp: the kernel of sandboxes and boxes treat /tmp in their own way.
root=$(mktemp -d "${BAREROOT_DIR:-/var/tmp}/carrel-bareroot.XXXXXX")
finish() {
	status=$?
	if [ "${BAREROOT_KEEP:-}" = 1 ]; then
		echo "bareroot: kept $root" >&2
	else
		rm -rf --one-file-system "$root"
	fi
	exit "$status"
}
trap finish EXIT
trap 'exit 130' INT TERM

echo "bareroot: Debian 12 in $root"
internal/tools/debianroot.sh "$root" ca-certificates make git python3

# The same names, addresses and authorities.
cp /etc/resolv.conf /etc/hosts "$root/etc/"
mkdir -p "$root/usr/local/share/ca-certificates" "$root/usr/local/go" "$root/old"
cp -a /usr/local/share/ca-certificates/. "$root/usr/local/share/ca-certificates/" 2>/dev/null || true
cp -L /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/ca-certificates.crt"
[ ! -e /etc/pip.conf ] || cp /etc/pip.conf "$root/etc/"
git clone --quiet --no-local . "$root/src"

# The environment names registries, proxies and certificates, and nothing else of this machine.
environment=(HOME=/root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/go/bin LANG=C.UTF-8 TERM=dumb)
if registry=$(npm config get registry 2>/dev/null); then environment+=("npm_config_registry=$registry"); fi
while IFS= read -r variable; do environment+=("$variable"); done < <(
	env | grep -E '^(SSL_CERT_FILE|NODE_EXTRA_CA_CERTS|REQUESTS_CA_BUNDLE|CURL_CA_BUNDLE|GIT_SSL_CAINFO|PIP_CERT|PIP_INDEX_URL|[A-Za-z]+_(proxy|PROXY)|CI|CARREL_REQUIRE)=' || true
)
for name in GOPROXY GOSUMDB GONOSUMDB GOPRIVATE GONOPROXY GOINSECURE; do
	value=$(go env "$name")
	[ -z "$value" ] || environment+=("$name=$value")
done

# A root is left only by one that has a root of its own: programs in a chroot may not make user namespaces.
unshare --mount --pid --ipc --uts --fork --kill-child --propagation private bash -euo pipefail -c '
	root=$1 goroot=$2
	shift 2
	mount --bind "$root" "$root"
	cd "$root"
	mount -t proc proc proc
	mount --rbind /sys sys
	mount --rbind /dev dev
	mount -t tmpfs tmpfs run
	mount --bind "$goroot" usr/local/go
	mount -o remount,bind,ro usr/local/go
	hostname bare
	pivot_root . old
	cd /
	umount --lazy old
	exec env --ignore-environment --chdir=/src "$@"
' bareroot "$root" "$goroot" "${environment[@]}" bash -c 'status=0; for target; do make "$target" || status=1; done; exit $status' make "$@"
