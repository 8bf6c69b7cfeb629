#!/usr/bin/env bash
# microvm.sh DIR puts Debian's cloud kernel and the modules that the tier microvm loads into DIR. It
# unpacks the package and installs nothing.
set -euo pipefail

dir=$1
mkdir -p "$dir/modules"
if ! command -v apt-get dpkg >/dev/null; then
	echo "microvm: missing: Debian's package linux-image-cloud-amd64" >&2
	echo "hint: run this on Debian, or put a kernel into $dir/vmlinuz and its modules into $dir/modules" >&2
	exit 1
fi
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
cd "$tmp"
# The package of that name is empty and depends on the newest kernel's.
newest() { apt-cache depends linux-image-cloud-amd64 2>/dev/null | sed -n 's/^ *Depends: \(linux-image-[0-9].*-cloud-amd64\)$/\1/p' | head -1; }
fetch() { [ -n "$(newest)" ] && apt-get download -qq -o APT::Sandbox::User=root "$(newest)" >&2; }
fetch || {
	apt-get update -qq >&2
	fetch
}
dpkg -x linux-image-*.deb root
cd "$OLDPWD"
# What wantedModules in internal/driver/microvm names, and what those depend on.
for name in virtio virtio_ring virtio_mmio virtio_blk virtio_net net_failover failover erofs overlay libcrc32c inet_diag tcp_diag; do
	found=$(find "$tmp/root/lib/modules" -name "$name.ko")
	[ -n "$found" ] || { echo "microvm: the kernel has no module $name" >&2; exit 1; }
	cp "$found" "$dir/modules/"
done
cp "$tmp"/root/boot/vmlinuz-* "$dir/vmlinuz.tmp"
mv "$dir/vmlinuz.tmp" "$dir/vmlinuz"
