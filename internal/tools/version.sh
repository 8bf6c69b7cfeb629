#!/usr/bin/env bash
# version.sh prints the version of this commit as packages take it: 1.2.3 where the commit has the tag
# v1.2.3, and otherwise one that comes before the next release and after every earlier commit.
set -euo pipefail
cd "$(dirname "$0")/../.."
tag=$(git describe --tags --match 'v[0-9]*.[0-9]*.[0-9]*' --abbrev=0 2>/dev/null || echo v0.0.0)
if [ "$(git describe --tags --exact-match 2>/dev/null || true)" = "$tag" ]; then
	echo "${tag#v}"
	exit
fi
IFS=. read -r major minor _ <<<"${tag#v}"
echo "$major.$((minor + 1)).0~dev.$(TZ=UTC git log -1 --date=format-local:%Y%m%d%H%M%S --format=%cd).g$(git rev-parse --short=8 HEAD)"
