#!/bin/sh
# After the files went. Only Debian's "purge" takes the data along.
set -e
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload || true
fi
if [ "$1" = purge ]; then
	rm -rf /var/lib/carrel
fi
