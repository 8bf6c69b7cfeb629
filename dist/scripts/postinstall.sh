#!/bin/sh
# After the files are in place: Debian passes "configure OLDVERSION", RPM the number of versions installed.
set -e
case "$1" in
configure | 1 | 2) ;;
*) exit 0 ;;
esac
[ -d /run/systemd/system ] || exit 0
systemctl daemon-reload || true
# Debian names an old version also where the package was removed and comes back: the removal left a mark.
back=/var/lib/carrel/.removed
if { [ "$1" = 2 ] || [ -n "$2" ]; } && [ ! -e "$back" ]; then
	# An upgrade: the new daemon adopts the sandboxes of the old one. Where none ran, none is started.
	systemctl try-restart carrel.service || true
else
	systemctl enable carrel.service || true
	systemctl start carrel.service carrel-drain.service || true
fi
rm -f "$back"
