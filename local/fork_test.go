package local_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/testenv"
)

// watcher is a Python program that draws random numbers from its kernel and from a generator of its
// own. Each time it sees a new generation, it draws again and writes the numbers to a file.
const watcher = `
import ctypes, os, random, struct
libc = ctypes.CDLL(None, use_errno=True)
fd = libc.inotify_init()
assert libc.inotify_add_watch(fd, b"/run/carrel", 0x80) > 0  # moved into it
random.seed(7)
open("/tmp/watches", "w").close()
while True:
    events, names = os.read(fd, 4096), []
    while events:
        size = struct.unpack_from("iIII", events)[3]
        names.append(events[16:16 + size].rstrip(b"\0").decode())
        events = events[16 + size:]
    if "generation" in names:
        with open("/run/carrel/generation") as f: generation = f.read().strip()
        with open("/tmp/told.new", "w") as f: print(generation, os.getrandom(16).hex(), random.random(), file=f)
        os.rename("/tmp/told.new", "/tmp/told")
`

// TestForksAreTold shows that a running program sees the generation change in each fork and after a
// rollback. Its kernel then gives different random numbers. A generator that the program seeded
// before gives the same ones, as SECURITY.md says.
func TestForksAreTold(t *testing.T) {
	testenv.Long(t, "makes the base template")
	s, err := carrel.Open(t.Context(), carrel.Config{Tier: carrel.GVisor})
	if errors.Is(err, carrel.Unsupported) {
		testenv.Need(t, "gvisor", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	parent, err := s.Create(t.Context(), carrel.CreateOptions{})
	if err != nil {
		t.Fatalf("%v (hint: %s)", err, carrel.HintOf(err))
	}
	run := func(id carrel.ID, line string) string {
		pc, err := s.Computer(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		res, err := pc.Run(t.Context(), carrel.Command{User: "root", Shell: line})
		if err != nil || res.ExitCode != 0 {
			t.Fatalf("%s: %v, %+v %s", line, err, res, res.Stderr)
		}
		return strings.TrimSpace(string(res.Stdout))
	}
	run(parent.ID, "cat >/tmp/watcher.py <<'END'"+watcher+"END\nsetsid /usr/bin/python3 /tmp/watcher.py >/tmp/log 2>&1 </dev/null &\n"+
		"for i in $(seq 100); do test -e /tmp/watches && exit; sleep 0.1; done; cat /tmp/log >&2; exit 1")
	// told returns the program's output after a restore.
	told := func(id carrel.ID) (generation, kernel, own string) {
		var words []string
		testenv.Eventually(t, fmt.Sprintf("%s is told", id), func() bool {
			words = strings.Fields(run(id, "cat /tmp/told 2>/dev/null || true"))
			return len(words) == 3
		})
		return words[0], words[1], words[2]
	}
	forks, err := s.Fork(t.Context(), parent.ID, carrel.ForkOptions{Count: 2})
	if err != nil {
		t.Fatal(err)
	}
	if out := run(parent.ID, "cat /tmp/told /run/carrel/generation 2>&1 || true"); strings.Count(out, "No such file") != 2 {
		t.Errorf("the parent, which went on, was told: %s", out)
	}
	var kernels, owns []string
	for _, f := range forks {
		if f.Err != nil {
			t.Fatal(f.Err)
		}
		generation, kernel, own := told(f.Sandbox.ID)
		if now := run(f.Sandbox.ID, "cat /run/carrel/generation"); now != generation {
			t.Errorf("%s has generation %s, its program was told of %s", f.Sandbox.ID, now, generation)
		}
		kernels, owns = append(kernels, kernel), append(owns, own)
	}
	const boot = "cat /proc/sys/kernel/random/boot_id"
	boots := []string{run(parent.ID, boot), run(forks[0].Sandbox.ID, boot), run(forks[1].Sandbox.ID, boot)}
	if slices.Sort(boots); len(slices.Compact(boots)) != 3 || len(boots[0]) != 36 {
		t.Errorf("the boots of a sandbox and its forks are %v", boots)
	}
	was := run(parent.ID, boot)
	if _, err := s.Pause(t.Context(), parent.ID, carrel.PauseOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.Resume(t.Context(), parent.ID, carrel.ResumeOptions{}); err != nil {
		t.Fatal(err)
	}
	if now := run(parent.ID, boot); now != was {
		t.Errorf("what was paused goes on in the boot %s, it was %s", now, was)
	}
	if kernels[0] == kernels[1] || owns[0] != owns[1] {
		t.Errorf("drawn in two forks: %v from the kernel, %v from a generator that was seeded before", kernels, owns)
	}
	moment, err := s.Snapshot(t.Context(), parent.ID, carrel.SnapshotOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Rollback(t.Context(), parent.ID, moment.ID, carrel.RollbackOptions{}); err != nil {
		t.Fatalf("%v (hint: %s)", err, carrel.HintOf(err))
	}
	if now := run(parent.ID, boot); slices.Contains(boots, now) {
		t.Errorf("after a rollback the boot is %s, one of those before: %v", now, boots)
	}
	if generation, kernel, _ := told(parent.ID); generation != run(parent.ID, "cat /run/carrel/generation") || kernel == kernels[0] {
		t.Errorf("after a rollback the program was told of %s and drew %s", generation, kernel)
	}
}
