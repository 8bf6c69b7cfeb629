#!/usr/bin/env bash
# prometheus.sh DIR puts Debian's prometheus and promtool into DIR. It unpacks the package and installs
# nothing: the package would start a service.
set -euo pipefail

dir=$1
mkdir -p "$dir"
if command -v prometheus promtool >/dev/null; then
	ln -sf "$(command -v prometheus)" "$(command -v promtool)" "$dir"
	exit 0
fi
if ! command -v apt-get dpkg >/dev/null; then
	echo "prometheus: missing: prometheus, promtool" >&2
	echo "hint: install Prometheus, or run this on Debian" >&2
	exit 1
fi
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
cd "$tmp"
apt-get download -qq -o APT::Sandbox::User=root prometheus >&2 || {
	apt-get update -qq >&2
	apt-get download -qq -o APT::Sandbox::User=root prometheus >&2
}
dpkg -x prometheus_*.deb root
cd "$OLDPWD"
mv "$tmp"/root/usr/bin/prometheus "$tmp"/root/usr/bin/promtool "$dir"
