package bench

import (
	"context"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// leaks runs a thousand boxes in a row and counts what is left of them.
func (b *runBench) leaks(ctx context.Context) ([]row, error) {
	// A process that a box leaves becomes this process's child. So it is counted, and other
	// programs' processes are not.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return nil, err
	}
	ours := &contestant{name: "carrel run", prefix: []string{b.carrel, "run", "--memory", "1G", "--pids", "100", "--"}}
	if _, err := b.once(ctx, ours, "true"); err != nil {
		ours.prefix = []string{b.carrel, "run", "--"} // no cgroups for us here
		if _, err := b.once(ctx, ours, "true"); err != nil {
			return nil, err
		}
	}
	before := b.inventory()
	spaces := netNamespaces()
	n := b.o.samples(1000)
	var times []float64
	for range n {
		took, err := b.once(ctx, ours, "sh", "-c", "sleep 100 & touch /tmp/x; exit 0")
		if err != nil {
			return nil, err
		}
		times = append(times, ms(took))
	}
	after := b.inventory()
	for range 50 { // the kernel needs time to end processes and empty cgroups
		if maps.Equal(before, after) {
			break
		}
		time.Sleep(100 * time.Millisecond)
		after = b.inventory()
	}
	left := 0.0
	for what := range after {
		if _, was := before[what]; !was {
			left++
			fmt.Fprintf(os.Stderr, "bench: left behind: %s\n", what)
		}
	}
	label := fmt.Sprintf("%d boxes in a row: ", n)
	rows := []row{
		fewer(label+"processes, mounts, cgroups and files left", "", []float64{left}, 0),
		summarise(label+"a shell that leaves a process behind, each", "ms", times),
	}
	if spaces >= 0 {
		time.Sleep(time.Second) // the kernel frees them in the background
		rows = append(rows, summarise(label+"more network namespaces in the kernel (all users of this machine)", "", []float64{float64(netNamespaces() - spaces)}))
	}
	return rows, nil
}

// inventory lists things that boxes could leave behind.
func (b *runBench) inventory() map[string]bool {
	found := map[string]bool{}
	if tasks, err := filepath.Glob("/proc/self/task/*/children"); err == nil {
		for _, t := range tasks {
			raw, _ := os.ReadFile(t)
			for _, pid := range strings.Fields(string(raw)) {
				name, _ := os.ReadFile("/proc/" + pid + "/comm")
				found["process "+pid+" "+strings.TrimSpace(string(name))] = true
			}
		}
	}
	raw, _ := os.ReadFile("/proc/self/mountinfo")
	for line := range strings.Lines(string(raw)) {
		if f := strings.Fields(line); len(f) > 4 && (strings.Contains(line, "carrel") || strings.Contains(line, b.dir)) {
			found["mount "+f[4]] = true
		}
	}
	for _, root := range []string{"/sys/fs/cgroup", "/dev/shm", "/run/user/" + strconv.Itoa(os.Getuid()), filepath.Join(b.dir, "tmp"), filepath.Join(b.dir, "home"), os.TempDir()} {
		_ = filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
			if err != nil || p == root {
				return nil
			}
			mine := strings.HasPrefix(p, b.dir)
			if mine || d.IsDir() && strings.Contains(p, "carrel/run") || strings.Contains(d.Name(), "carrel-run") || strings.Contains(d.Name(), "carrel-box") {
				found["file "+p] = true
			}
			if d.IsDir() && root == os.TempDir() && !mine {
				return fs.SkipDir // others' directories
			}
			return nil
		})
	}
	return found
}

// netNamespaces returns the number of network namespaces in the kernel; -1 if the kernel does not
// tell.
func netNamespaces() int {
	raw, err := os.ReadFile("/proc/slabinfo")
	if err != nil {
		return -1
	}
	for line := range strings.Lines(string(raw)) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == "net_namespace" {
			n, err := strconv.Atoi(f[1])
			if err != nil {
				return -1
			}
			return n
		}
	}
	return -1
}

// pairs runs a command in turns outside and inside and returns both sets of times. Before each run
// it calls before, untimed.
func (b *runBench) pairs(ctx context.Context, n int, before func(i int) error, line ...string) (outside, inside []float64, err error) {
	bare := &contestant{name: "bare"}
	ours := &contestant{name: "carrel run", prefix: []string{b.carrel, "run", "--"}}
	for i := range 2 * (n + 1) {
		c := []*contestant{bare, ours}[(i+i/2)%2] // out in in out out in …
		if err := before(i); err != nil {
			return nil, nil, err
		}
		took, err := b.once(ctx, c, line...)
		if err != nil {
			return nil, nil, err
		}
		switch {
		case i < 2: // warms up
		case c == bare:
			outside = append(outside, ms(took))
		default:
			inside = append(inside, ms(took))
		}
	}
	return slices.Clip(outside), slices.Clip(inside), nil
}
