package ns

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/carrel-dev/carrel/internal/driver/hosted"
	"github.com/carrel-dev/carrel/internal/linux/cgroup"
	"github.com/carrel-dev/carrel/internal/linux/proc"
	"github.com/carrel-dev/carrel/internal/testenv"
)

// TestFreezers tries each way to stop processes that this host has: a group of each version, and
// signals.
func TestFreezers(t *testing.T) {
	ways := map[string]*freezer{"signals": {}}
	for name, f := range map[string]*freezers{
		"version 1": {parent: "/sys/fs/cgroup/freezer"},
		"version 2": {parent: "/sys/fs/cgroup/unified", v2: true},
	} {
		if made := f.create("carrel-test-"+strconv.Itoa(os.Getpid()), cgroup.Load(cgroup.Paths{})); made.dir != "" && os.Geteuid() == 0 {
			ways[name] = made
			t.Cleanup(made.remove)
		}
	}
	if os.Geteuid() == 0 && len(ways) == 1 {
		testenv.Need(t, "cgroup", os.ErrNotExist)
	}
	for name, f := range ways {
		t.Run(name, func(t *testing.T) {
			ticks := filepath.Join(t.TempDir(), "ticks")
			cmd := exec.Command("/bin/sh", "-c", "(while :; do echo x >> "+ticks+"; sleep 0.01; done) & (while :; do echo x >> "+ticks+"; sleep 0.01; done) & wait")
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			pid := cmd.Process.Pid
			defer func() {
				for _, p := range proc.Tree(pid) {
					if victim, err := os.FindProcess(p); err == nil {
						_ = victim.Kill()
					}
				}
				f.thaw()
				_ = cmd.Wait()
			}()
			in := &Instance{rec: record{Record: hosted.Record{Process: hosted.Process{PID: pid}}}, ice: loadFreezer(f.path())}
			size := func() int64 {
				info, err := os.Stat(ticks)
				if err != nil {
					return 0
				}
				return info.Size()
			}
			testenv.Eventually(t, "something ticks", func() bool { return size() > 0 })
			for range 5 { // processes that they start are born in the group
				for _, p := range proc.Tree(pid) {
					if f.dir != "" {
						_ = os.WriteFile(filepath.Join(f.dir, "cgroup.procs"), []byte(strconv.Itoa(p)), 0)
					}
				}
			}
			for range 2 {
				testenv.Eventually(t, "it is frozen", func() bool { done, err := in.step(true); return err == nil && done })
			}
			if !in.isFrozen() {
				t.Error("it is frozen and does not look so")
			}
			before := size()
			time.Sleep(200 * time.Millisecond)
			if after := size(); after != before {
				t.Errorf("it ticked %d times while frozen", after-before)
			}
			for range 2 {
				testenv.Eventually(t, "it is thawed", func() bool { done, err := in.step(false); return err == nil && done })
			}
			if in.isFrozen() {
				t.Error("it is thawed and does not look so")
			}
			testenv.Eventually(t, "it goes on", func() bool { return size() > before })
		})
	}
}

// TestFreezeMeetsVfork freezes shells that start programs all the time. Sooner or later one is
// stopped between vfork and exec.
func TestFreezeMeetsVfork(t *testing.T) {
	cmd := exec.Command("/bin/sh", "-c", "for i in 1 2 3 4; do (while :; do /bin/true; done) & done; wait")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	in := &Instance{rec: record{Record: hosted.Record{Process: hosted.Process{PID: cmd.Process.Pid}}}, ice: &freezer{}}
	defer func() {
		for _, p := range proc.Tree(in.rec.PID) {
			if victim, err := os.FindProcess(p); err == nil {
				_ = victim.Kill()
			}
		}
		_ = cmd.Wait()
	}()
	for range 60 {
		for _, frozen := range []bool{true, false} {
			testenv.EventuallyNil(t, fmt.Sprintf("frozen is %v", frozen), func() error {
				done, err := in.step(frozen)
				if err == nil && !done {
					err = errors.New("not all of it is")
				}
				return err
			})
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// TestFreezerPath checks that the text in a handle gives the same freezer.
func TestFreezerPath(t *testing.T) {
	for _, f := range []freezer{{}, {dir: "/a/b", own: true}, {dir: "/a/b", v2: true, own: true}, {dir: "/a/b", v2: true}} {
		if got := loadFreezer(f.path()); *got != f {
			t.Errorf("%+v became %+v by %q", f, *got, f.path())
		}
		if strings.Contains(f.path(), "\x00") {
			t.Errorf("%q", f.path())
		}
	}
}
