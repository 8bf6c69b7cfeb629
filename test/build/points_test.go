package build

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	engine "github.com/carrel-dev/carrel/internal/build"
	"github.com/carrel-dev/carrel/internal/testenv"
	"github.com/carrel-dev/carrel/test/daemontest"
)

// TestKilledAtEachStep kills the daemon at each step of a build. The next daemon goes on with the
// build. In the end the template is whole and no sandbox is left.
func TestKilledAtEachStep(t *testing.T) {
	t.Parallel()
	testenv.Need(t, "gvisor", tierWorks(t, carrel.GVisor))
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "points")
	d := daemontest.StartBin(t, self, []string{playVar + "=1", pointsVar + "=" + file},
		"--default-tier", "gvisor")
	b := newBenchOn(t, d, carrel.GVisor)
	points := engine.FailPoints()
	if testing.Short() {
		points = slices.Clip(points[3:5])
	}
	for i, point := range points {
		t.Run(point, func(t *testing.T) {
			b.t = t
			if err := os.WriteFile(file, []byte(point+"=kill"), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := syscall.Kill(d.PID(), syscall.SIGUSR1); err != nil {
				t.Fatal(err)
			}
			daemontest.Eventually(t, 30*time.Second, "the point is taken",
				func() bool { _, err := os.Stat(file); return err != nil })
			name := fmt.Sprintf("killed-%d", i)
			build := b.start(carrel.BuildSpec{Name: name,
				Instructions: steps("RUN echo one >> /home/user/steps",
					fmt.Sprintf("RUN echo two %d >> /home/user/steps", i))})
			daemontest.Eventually(t, 2*time.Minute, "the daemon dies",
				func() bool { return isDead(d.PID()) })
			d.Kill9() // it is dead: this collects it
			d.Restart()
			ended, logs := b.wait(build.ID)
			if ended.State != carrel.BuildReady {
				t.Fatalf("the build is %s: %+v\n%s", ended.State, ended.Reason, text(logs))
			}
			if got, want := b.run(name, "cat ~/steps"), fmt.Sprintf("one\ntwo %d", i); got != want {
				t.Errorf("the template has %q, not %q", got, want)
			}
			b.nothingLeft()
			drafts, err := filepath.Glob(filepath.Join(d.Dir, "templates", "*", "template.json"))
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range drafts {
				raw, err := os.ReadFile(f)
				if err != nil {
					t.Fatal(err)
				}
				if strings.Contains(string(raw), `"~build-`) {
					t.Errorf("%s is left of a build:\n%s", f, raw)
				}
			}
		})
	}
}

// isDead reports whether a process has ended, even if nobody has collected it.
func isDead(pid int) bool {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || strings.Contains(string(raw), ") Z ")
}
