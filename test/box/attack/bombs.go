package main

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

var _ = register(map[string]func(target){"nothing": func(target) {}, "fork": forkBomb, "memory": memoryBomb, "disk": diskBomb, "sleep": sleep, "daemon": daemonise, "open": openBomb})

// forkBomb starts processes up to "count".
func forkBomb(t target) {
	var pids []int
	for range t.number("count") {
		pid, err := syscall.ForkExec("/proc/self/exe", []string{"attack", "sleep"}, &syscall.ProcAttr{})
		if err != nil {
			fmt.Println("stopped by", err)
			break
		}
		pids = append(pids, pid)
	}
	if len(pids) >= t.number("count") {
		harm("%d processes", len(pids))
	}
	fmt.Println("processes", len(pids))
	for _, pid := range pids {
		_ = syscall.Kill(pid, syscall.SIGKILL)
		_, _ = syscall.Wait4(pid, nil, 0, nil)
	}
}

// memoryBomb uses "mb" megabytes, spread over "count" processes.
func memoryBomb(t target) {
	if n := t.number("count"); n > 0 {
		files := []uintptr{0, 1, 2}
		for range n {
			_, _ = syscall.ForkExec("/proc/self/exe", []string{"attack", "memory", fmt.Sprint("mb=", t.number("mb")/n), "hold=1"}, &syscall.ProcAttr{Files: files})
		}
		for range n {
			var st syscall.WaitStatus
			_, _ = syscall.Wait4(-1, &st, 0, nil)
			if st.Signaled() {
				fmt.Println("one was ended by", st.Signal())
				return
			}
		}
		harm("%d MB in %d processes", t.number("mb"), n)
		return
	}
	var all [][]byte
	for range t.number("mb") {
		b := make([]byte, 1<<20)
		for i := 0; i < len(b); i += 4096 {
			b[i] = 1
		}
		all = append(all, b)
	}
	if t["hold"] != "" {
		time.Sleep(2 * time.Second)
	} else {
		harm("%d MB", len(all))
	}
}

// diskBomb writes "mb" megabytes to each of "paths".
func diskBomb(t target) {
	for _, dir := range filepath.SplitList(t["paths"]) {
		f, err := os.CreateTemp(dir, "bomb-")
		if err != nil {
			fmt.Println("no file in", dir, err)
			continue
		}
		p := f.Name()
		n := 0
		for buf := make([]byte, 1<<20); n < t.number("mb") && err == nil; n++ {
			_, err = f.Write(buf)
		}
		fmt.Println(p, n, err)
		if err == nil {
			harm("%d MB in %s", n, p)
		}
		_ = f.Close()
		_ = os.Remove(p)
	}
}

// sleep sleeps.
func sleep(t target) {
	time.Sleep(time.Duration(max(t.number("seconds"), 1)) * time.Second)
}

// daemonise leaves a process behind that has its own session, no terminal, and a marked name.
func daemonise(t target) {
	pid, err := syscall.ForkExec("/proc/self/exe", []string{t["name"], "sleep", "seconds=60"}, &syscall.ProcAttr{Sys: &syscall.SysProcAttr{Setsid: true}})
	fmt.Println("left", pid, err)
}

// openBomb opens a file up to "count" times.
func openBomb(t target) {
	for n := range t.number("count") {
		if _, err := syscall.Open("/dev/null", syscall.O_RDONLY, 0); err != nil {
			fmt.Println("stopped at", n, err)
			return
		}
	}
	harm("%d files", t.number("count"))
}
