package fulldisk

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/testenv"
	"github.com/carrel-dev/carrel/test/daemontest"
	"github.com/carrel-dev/carrel/test/miniroot"
)

// TestFewDescriptors leaves a daemon a few descriptors, one more each time, so that each of its
// steps is the one that finds none. No answer may be an internal error, every sandbox runs on, and
// the daemon works as before when there are descriptors again.
func TestFewDescriptors(t *testing.T) {
	t.Parallel()
	d := daemontest.StartOn(t, t.TempDir(), miniroot.Archive(t))
	for _, tier := range testenv.Few(2, tiers...) {
		t.Run(string(tier), func(t *testing.T) { withFewDescriptors(t, d, tier) })
	}
}

func withFewDescriptors(t *testing.T, d *daemontest.Daemon, tier carrel.Tier) {
	ctx := t.Context()
	svc := connect(t, d)
	var sb carrel.Sandbox
	// the daemon measures now and then
	testenv.EventuallyNil(t, "a sandbox is made", func() (err error) {
		sb, err = svc.Create(ctx, options(tier))
		return err
	})
	refused, step := 0, 1
	if testing.Short() {
		step = 3
	}
	for spare := 0; spare < 24; spare += step {
		restore := leaveFiles(t, d.PID(), spare)
		made, err := svc.Create(ctx, options(tier))
		refused += checkLack(t, "create", spare, err)
		paused := sb
		_, err = svc.Pause(ctx, paused.ID, carrel.PauseOptions{})
		refused += checkLack(t, "pause", spare, err)
		if err == nil {
			_, _, err = svc.Resume(ctx, paused.ID, carrel.ResumeOptions{})
			refused += checkLack(t, "resume", spare, err)
		}
		restore()
		if err != nil {
			testenv.EventuallyNil(t, fmt.Sprintf("it resumes, with %d spare descriptors before", spare),
				func() error {
					_, _, err := svc.Resume(ctx, paused.ID, carrel.ResumeOptions{})
					return err
				})
		}
		if made.ID != "" {
			if err := svc.Kill(ctx, made.ID); err != nil {
				t.Error(err)
			}
		}
		other := connect(t, d) // new connections are accepted
		c, err := other.Computer(ctx, sb.ID)
		if err != nil {
			t.Fatal(err)
		}
		if res, err := c.Run(ctx, carrel.Command{Shell: "echo alive"}); err != nil ||
			string(res.Stdout) != "alive\n" {
			t.Fatalf("with %d spare descriptors before: %+v, %v", spare, res, err)
		}
	}
	if refused == 0 {
		t.Error("nothing was refused: the test took no descriptors")
	}
	if err := svc.Kill(ctx, sb.ID); err != nil {
		t.Error(err)
	}
}

// checkLack checks that an error says that something is missing, and how to get it. It returns the
// number of errors.
func checkLack(t *testing.T, what string, spare int, err error) int {
	t.Helper()
	if err == nil {
		return 0
	}
	var ce *carrel.Error
	if !errors.As(err, &ce) || ce.Kind != carrel.Exhausted && ce.Kind != carrel.Unavailable ||
		carrel.HintOf(err) == "" {
		t.Errorf("%s with %d spare descriptors: %v, hint %q", what, spare, err, carrel.HintOf(err))
	}
	return 1
}

// leaveFiles lets a process open only so many files more, until restore is called.
func leaveFiles(t *testing.T, pid, spare int) (restore func()) {
	t.Helper()
	names, err := os.ReadDir("/proc/" + strconv.Itoa(pid) + "/fd")
	if err != nil {
		t.Fatal(err)
	}
	highest := 0
	for _, n := range names {
		if fd, err := strconv.Atoi(n.Name()); err == nil {
			highest = max(highest, fd)
		}
	}
	free := highest + 1 - len(names) // numbers below the highest that are free
	var was unix.Rlimit
	if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, nil, &was); err != nil {
		t.Fatal(err)
	}
	low := unix.Rlimit{Cur: uint64(max(highest+1+spare-free, 3)), Max: was.Max}
	if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, &low, nil); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, &was, nil); err != nil {
			t.Fatal(err)
		}
	}
}
