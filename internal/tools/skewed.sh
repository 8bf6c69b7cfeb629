#!/usr/bin/env bash
# skewed.sh PROGRAM builds carrel with a wall clock that is wrong by CARREL_TEST_CLOCK seconds, for tests of
# a fleet whose machines don't agree on the time. Nothing in Carrel is another: the standard library's time
# package is built with one more line, by way of the compiler's -overlay.
set -euo pipefail

out=$1
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
source=$("${GO:-go}" env GOROOT)/src/time
sed '/^func Now() Time {$/,/^}$/ s/^\tsec, nsec, mono := runtimeNow()$/&\n\tsec += wrong/' "$source/time.go" >"$dir/time.go"
if cmp -s "$source/time.go" "$dir/time.go"; then
	echo "skewed: time.Now of this Go is another: mend internal/tools/skewed.sh" >&2
	exit 1
fi
cat >"$dir/wrong.go" <<'END'
package time

import "syscall"

// wrong is by how many seconds the clock is wrong.
var wrong = func() int64 {
	text, _ := syscall.Getenv("CARREL_TEST_CLOCK")
	sign, n := int64(1), int64(0)
	for _, c := range text {
		if c == '-' {
			sign = -1
		} else {
			n = 10*n + int64(c-'0')
		}
	}
	return sign * n
}()
END
printf '{"Replace": {"%s": "%s", "%s": "%s"}}\n' "$source/time.go" "$dir/time.go" "$source/wrong.go" "$dir/wrong.go" >"$dir/overlay.json"
"${GO:-go}" build -overlay "$dir/overlay.json" -ldflags '-s -w' -o "$out" ./cmd/carrel
