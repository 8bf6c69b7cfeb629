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
# What wantedModules in internal/driver/microvm names, what the kernel asks for when somebody makes networks or packet
# filters as Docker does, mounts filesystems or opens devices, and what those depend on.
wanted="virtio_mmio virtio_blk virtio_net erofs overlay tcp_diag
	bridge br_netfilter 8021q veth tun tap dummy macvlan macvtap ipvlan vxlan ifb wireguard ipip ip_gre sit ip6_tunnel
	fuse loop binfmt_misc autofs4 squashfs isofs vfat nls_ascii nls_cp437 nls_utf8 nls_iso8859_1
	tcp_bbr udp_diag unix_diag netlink_diag sch_ingress sch_htb sch_netem sch_tbf sch_fq cls_bpf act_bpf cls_u32 act_mirred"
cd "$tmp"/root/lib/modules/*/kernel
declare -A file=()
while read -r path; do
	name=$(basename "$path" .ko)
	file[${name//-/_}]=$PWD/$path
	case "$path" in # the helpers of single protocols are large
	*_sip.ko | *_h323.ko | *_amanda.ko | *_pptp.ko | *_irc.ko | *_sane.ko | *_snmp*.ko | *_netbios_ns.ko | */xt_ipvs.ko) ;;
	./net/netfilter/nf* | ./net/netfilter/x* | ./net/ipv[46]/netfilter/*) wanted+=" ${name//-/_}" ;;
	esac
done < <(find . -name '*.ko')
cd "$OLDPWD"
rm -f "$dir"/modules/*.ko
add() {
	local name=${1//-/_} need
	[ -n "${file[$name]:-}" ] || { echo "microvm: the kernel has no module $name" >&2; exit 1; }
	[ ! -e "$dir/modules/$name.ko" ] || return 0
	cp "${file[$name]}" "$dir/modules/$name.ko"
	for need in $(tr '\0' '\n' <"${file[$name]}" | sed -n 's/^depends=//p' | head -1 | tr ',' ' '); do add "$need"; done
}
for name in $wanted; do add "$name"; done
cp "$tmp"/root/boot/vmlinuz-* "$dir/vmlinuz.tmp"
mv "$dir/vmlinuz.tmp" "$dir/vmlinuz"
