package drivertest

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/testenv"
)

// remains lists what a sandbox left on the host: processes, cgroups, mounts, and
// files in its directory.
func remains(spec driver.Spec) []string {
	var left []string
	for _, p := range processesOf(spec) {
		left = append(left, "process "+strconv.Itoa(p))
	}
	id := string(spec.ID)
	_ = filepath.WalkDir("/sys/fs/cgroup", func(p string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && strings.Contains(d.Name(), id) {
			left = append(left, "cgroup "+p)
			return filepath.SkipDir
		}
		return nil
	})
	if b, err := os.ReadFile("/proc/self/mountinfo"); err == nil {
		for _, line := range strings.Split(string(b), "\n") {
			if strings.Contains(line, id) || strings.Contains(line, spec.Dir+"/") {
				left = append(left, "mount "+line)
			}
		}
	}
	if list, err := os.ReadDir(spec.Dir); err == nil {
		for _, e := range list {
			left = append(left, "file "+filepath.Join(spec.Dir, e.Name()))
		}
	}
	return left
}

// processesOf finds the host's processes that name a sandbox in their arguments or cgroup. It
// leaves out this process.
func processesOf(spec driver.Spec) []int {
	var out []int
	all, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range all {
		pid, _ := strconv.Atoi(filepath.Base(dir))
		if pid == os.Getpid() {
			continue
		}
		for _, f := range []string{"cmdline", "cgroup"} {
			b, err := os.ReadFile(filepath.Join(dir, f))
			if err == nil && (bytes.Contains(b, []byte(spec.ID)) || f == "cmdline" && bytes.Contains(b, []byte(spec.Dir))) {
				out = append(out, pid)
				break
			}
		}
	}
	return out
}

// hostProcesses are the host's processes that belong to the sandbox.
func (b *box) hostProcesses() []int { return processesOf(b.spec) }

// trace counts the resources that this process and its children hold.
type trace struct {
	goroutines, files, children int
}

// trace counts when the driver's own background work is done.
func (s *suite) trace(t testing.TB, d driver.Driver) trace {
	t.Helper()
	if s.Settle != nil {
		s.Settle(t, d)
	}
	return takeTrace()
}

func takeTrace() trace {
	var tr trace
	tr.goroutines = runtime.NumGoroutine()
	if list, err := os.ReadDir("/proc/self/fd"); err == nil {
		tr.files = len(list)
	}
	tr.children = len(children(os.Getpid()))
	return tr
}

// children lists the children of a process, zombies too.
func children(pid int) []int {
	var out []int
	all, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, f := range all {
		b, err := os.ReadFile(f)
		if err != nil {
			continue
		}
		// The name may hold any characters. The state and the parent follow it.
		rest := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
		if len(rest) > 1 && rest[1] == strconv.Itoa(pid) {
			p, _ := strconv.Atoi(strings.Split(f, "/")[2])
			out = append(out, p)
		}
	}
	return out
}

// wantSame checks that no more resources are held than before. Caches and pools may add a little;
// the leftovers of a sandbox would be more than that.
func (tr trace) wantSame(t testing.TB) {
	t.Helper()
	const slack = 4
	var now trace
	err := testenv.Within(t.Context(), time.Minute, func() error {
		now = takeTrace()
		if now.goroutines > tr.goroutines+slack || now.files > tr.files+slack || now.children > tr.children {
			return fmt.Errorf("left behind: before %s, after %s", tr, now)
		}
		return nil
	})
	if err == nil {
		return
	}
	detail := ""
	if now.goroutines > tr.goroutines+slack {
		buf := make([]byte, 1<<20)
		detail = string(buf[:runtime.Stack(buf, true)])
	}
	t.Errorf("%v\n%s", err, detail)
}

func (tr trace) String() string {
	return fmt.Sprintf("%d goroutines, %d files, %d children", tr.goroutines, tr.files, tr.children)
}
