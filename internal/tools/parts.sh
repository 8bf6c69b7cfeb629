#!/usr/bin/env bash
# parts.sh PART… runs "make PART" for each, one after the other, and goes on when one fails.
# It ends with one line for each part, and with status 1 when one failed.
set -uo pipefail

summary=()
status=0

finish() {
	printf '\n%-12s %-7s %s\n' part result seconds
	[ ${#summary[@]} = 0 ] || printf '%s\n' "${summary[@]}"
	exit "$status"
}
trap 'status=130; exit' INT TERM
trap finish EXIT

for part in "$@"; do
	printf '\n== %s\n' "$part"
	began=$SECONDS
	result=ok
	"${MAKE:-make}" --no-print-directory "$part" || { result=FAILED; status=1; }
	summary+=("$(printf '%-12s %-7s %d' "$part" "$result" $((SECONDS - began)))")
done
