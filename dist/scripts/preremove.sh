#!/bin/sh
# Before the files go: Debian passes "remove" or "upgrade", RPM the number of versions that stay.
set -e
case "$1" in
remove | 0) ;;
*) exit 0 ;;
esac
# Without its daemon nothing looks after a sandbox, so what runs is paused. Its state stays in
# /var/lib/carrel, and an installation later finds it there.
if [ -e /var/lib/carrel/daemon.json ]; then
	/usr/bin/carrel --data-dir /var/lib/carrel drain >/dev/null || true
fi
[ -d /run/systemd/system ] || exit 0
if systemctl is-enabled --quiet carrel.service; then
	touch /var/lib/carrel/.removed # an installation later starts it again
fi
systemctl disable --now carrel-drain.service carrel.socket carrel.service || true
