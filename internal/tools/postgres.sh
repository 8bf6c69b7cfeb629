#!/usr/bin/env bash
# postgres.sh DIR puts Debian's PostgreSQL 15 into DIR: its programs as DIR/bin, and libraries that this
# machine lacks as DIR/lib. It unpacks packages and installs nothing: the package would make a cluster and
# start a service. Where PostgreSQL is installed, DIR/bin is a link to it; UNPACK=1 unpacks even so.
set -euo pipefail

dir=$1
mkdir -p "$dir"
rm -rf "$dir/bin" "$dir/lib" "$dir/root"
if [ -z "${UNPACK:-}" ]; then
	for bin in /usr/lib/postgresql/*/bin; do
		if [ -x "$bin/initdb" ] && [ -x "$bin/postgres" ]; then
			ln -s "$bin" "$dir/bin"
			exit 0
		fi
	done
fi
if ! command -v apt-get dpkg >/dev/null; then
	echo "postgres: missing: initdb, postgres" >&2
	echo "hint: install PostgreSQL, or run this on Debian" >&2
	exit 1
fi
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

# fetch unpacks packages into the temporary root.
fetch() {
	(cd "$tmp" && apt-get download -qq -o APT::Sandbox::User=root "$@" >&2) || {
		apt-get update -qq >&2
		(cd "$tmp" && apt-get download -qq -o APT::Sandbox::User=root "$@" >&2)
	}
	for deb in "$tmp"/*.deb; do
		dpkg -x "$deb" "$tmp/root"
	done
	rm -f "$tmp"/*.deb
}

# lacking prints the libraries of the programs that are nowhere.
lacking() {
	LD_LIBRARY_PATH=$libs ldd "$tmp/root/usr/lib/postgresql/15/bin/"{initdb,postgres} | awk '/not found/ {print $1}' | sort -u
}

fetch postgresql-15 postgresql-client-15 libpq5
arch=$(cd "$tmp/root/usr/lib" && echo *-linux-gnu*)
libs=$tmp/root/usr/lib/$arch
if [ -n "$(lacking)" ]; then
	# What an installation would bring along. Of that, the libraries; LLVM's is for a compiler that tests do without.
	mapfile -t more < <(apt-get -s install --no-install-recommends postgresql-15 | awk '$1 == "Inst" && $2 ~ /^lib/ && $2 !~ /llvm|perl/ {print $2}')
	[ ${#more[@]} -eq 0 ] || fetch "${more[@]}"
fi
if [ -n "$(lacking)" ]; then
	echo "postgres: missing: $(lacking | tr '\n' ' ')" >&2
	echo "hint: apt-get install postgresql-15 installs them" >&2
	exit 1
fi
mv "$tmp/root" "$dir/root"
chmod 755 "$dir/root" # other users run it: it refuses root
ln -s "root/usr/lib/$arch" "$dir/lib"
ln -s root/usr/lib/postgresql/15/bin "$dir/bin" # last: make looks for it
