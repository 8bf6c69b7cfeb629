package cgroup

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// Start runs start so that the process it starts is born inside the group. start must start exactly
// one process, on the goroutine that calls it, with attr as its attributes. Start completes attr.
//
// Version 2 places the child with clone3. Version 1 has no such call. There a thread joins the
// group and starts the child, which inherits the group. Then the thread ends. It is never used for
// anything else and never moved back, which would cost as much again.
func (g *Group) Start(attr *syscall.SysProcAttr, start func() error) error {
	if g.paths.V2 != "" {
		dir, err := os.Open(g.paths.V2)
		if err != nil {
			return fmt.Errorf("open cgroup: %w", err)
		}
		defer dir.Close()
		attr.UseCgroupFD, attr.CgroupFD = true, int(dir.Fd())
	}
	if len(g.paths.V1) == 0 {
		return start()
	}
	done := make(chan error, 1)
	go g.startV1(start, done)
	return <-done
}

// startV1 joins the version 1 groups with a thread that ends afterwards.
func (g *Group) startV1(start func() error, done chan<- error) {
	// No unlock: a locked goroutine that ends takes its thread with it.
	runtime.LockOSThread()
	if unix.Gettid() == unix.Getpid() {
		// The main thread can't end, and the kernel counts the memory of the whole process for the
		// main thread's group. So the main thread must not join. This goroutine holds it while
		// another goroutine tries again on another thread.
		again := make(chan error, 1)
		go g.startV1(start, again)
		done <- <-again
		runtime.UnlockOSThread()
		return
	}
	// 0 means the thread that writes. A thread named by its number may end in between, so the
	// kernel first stops all forks and exits of the machine. That takes a grace period, some 10 ms.
	self := []byte("0")
	var joined []string
	for _, c := range controllers {
		d := g.paths.V1[c]
		if d == "" || contains(joined, d) {
			continue
		}
		if err := os.WriteFile(filepath.Join(d, "tasks"), self, 0); err != nil {
			done <- fmt.Errorf("join cgroup: %w", err)
			return
		}
		joined = append(joined, d)
	}
	done <- start()
}

// contains reports whether list holds s.
func contains(list []string, s string) bool {
	for _, x := range list {
		if x == s {
			return true
		}
	}
	return false
}

// Add moves a process with all its threads into the group. Memory that it already used stays
// accounted in its old group.
func (g *Group) Add(pid int) error {
	text := []byte(strconv.Itoa(pid))
	var joined []string
	if g.paths.V2 != "" {
		joined = append(joined, g.paths.V2)
	}
	for _, c := range controllers {
		if d := g.paths.V1[c]; d != "" && !contains(joined, d) {
			joined = append(joined, d)
		}
	}
	for _, d := range joined {
		if err := os.WriteFile(filepath.Join(d, "cgroup.procs"), text, 0); err != nil {
			return fmt.Errorf("join cgroup: %w", err)
		}
	}
	return nil
}
