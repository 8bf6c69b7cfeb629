# Configures the unpacked packages of a new template. It runs as root in a sandbox without a network.
set -eu
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
export HOME=/root LANG=C.UTF-8 LC_ALL=C.UTF-8 TZ=UTC TERM=dumb
export DEBIAN_FRONTEND=noninteractive DEBCONF_NONINTERACTIVE_SEEN=true PYTHONHASHSEED=0
umask 022
cd /

# No package may start a service.
printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d
chmod 755 /usr/sbin/policy-rc.d

# The package base-passwd makes these, if they are missing.
rm -f /etc/passwd /etc/group /etc/shadow /etc/gshadow

# dpkg would have run these before it unpacked each package.
preinst() {
	pkg=${1##*/}; pkg=${pkg%.preinst}; name=${pkg%%:*}
	if ! DPKG_MAINTSCRIPT_PACKAGE=$name DPKG_MAINTSCRIPT_PACKAGE_REFCOUNT=1 DPKG_MAINTSCRIPT_ARCH=$ARCH \
		DPKG_MAINTSCRIPT_NAME=preinst DPKG_RUNNING_VERSION=1.22.0 DPKG_ADMINDIR=/var/lib/dpkg DPKG_ROOT= \
		"$1" install </dev/null; then
		echo "the preinst script of $name failed" >&2
		exit 1
	fi
}
# That of python3-debugpy removes what an earlier installation left. Here that is the package itself.
for script in /var/lib/dpkg/info/base-passwd.preinst /var/lib/dpkg/info/*.preinst; do
	case $script in */python3-debugpy.preinst) continue ;; esac
	[ ! -x "$script" ] || preinst "$script"
done

dpkg --force-unsafe-io --force-confnew --configure -a </dev/null

# Files were unpacked before dpkg could see for whom they are interesting.
while read -r trigger pkg; do
	dpkg-trigger --by-package=dpkg --no-await "$trigger"
done </var/lib/dpkg/triggers/File
dpkg --force-unsafe-io --triggers-only -a </dev/null

left=$(dpkg-query -W -f '${db:Status-Abbrev} ${binary:Package}\n' | grep -v '^ii' || true)
if [ -n "$left" ]; then
	echo "not configured: $left" >&2
	exit 1
fi

# The account of agents, as in every template.
rm -rf /home/user
groupadd -g 1000 user
useradd -u 1000 -g 1000 -G sudo -m -s /bin/bash -c user user
if [ -d /etc/sudoers.d ]; then
	printf 'user ALL=(ALL:ALL) NOPASSWD:ALL\n' >/etc/sudoers.d/user
	chmod 440 /etc/sudoers.d/user
fi

# Where apt finds more packages: the list that Debian gives as an example for this release.
example=/usr/share/doc/apt/examples/debian.sources
if [ -r "$example" ] && grep -qw "$SUITE" "$example"; then
	cp "$example" /etc/apt/sources.list.d/debian.sources
fi
rm -f /usr/sbin/policy-rc.d
