package main

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"time"
)

// forks starts copies of itself that also start copies. It does so for SECONDS.
func forks(args []string) {
	seconds, err := strconv.Atoi(args[0])
	if err != nil {
		os.Exit(2)
	}
	end := time.Now().Add(time.Duration(seconds) * time.Second)
	started := 0
	for time.Now().Before(end) {
		left := int(time.Until(end).Seconds())
		c := exec.Command("/proc/self/exe", "forks", strconv.Itoa(left))
		if err := c.Start(); err != nil {
			report("forks", "refused", "after %d: %v", started, err)
			time.Sleep(100 * time.Millisecond)
			continue
		}
		started++
	}
	control("forks", "started %d", started)
}

// memory takes and touches memory until it is stopped, at most MIB.
func memory(args []string) {
	most, err := strconv.Atoi(args[0])
	if err != nil {
		os.Exit(2)
	}
	var held [][]byte
	for i := range most {
		b := make([]byte, 1<<20)
		for j := 0; j < len(b); j += 512 {
			b[j] = byte(i + j)
		}
		held = append(held, b)
		if i%64 == 0 {
			control("memory", "%d MiB", len(held))
		}
	}
	worked("memory", "took %d MiB", len(held))
}

// disk writes to FILE until a write fails, at most MIB.
func disk(args []string) {
	most, err := strconv.Atoi(args[1])
	if err != nil {
		os.Exit(2)
	}
	f, err := os.Create(args[0])
	if err != nil {
		report("disk", "refused", "%v", err)
		return
	}
	defer f.Close()
	b := make([]byte, 1<<20)
	for i := range b {
		b[i] = byte(i * 7)
	}
	for i := range most {
		if _, err := f.Write(b); err != nil {
			report("disk", "refused", "after %d MiB: %v", i, err)
			return
		}
	}
	worked("disk", "wrote %d MiB", most)
}

// files opens files until that fails, and holds them for SECONDS.
func files(args []string) {
	seconds, _ := strconv.Atoi(args[0])
	var held []*os.File
	for range 300_000 {
		f, err := os.Open("/dev/null")
		if err != nil {
			report("files", "refused", "after %d: %v", len(held), err)
			break
		}
		held = append(held, f)
	}
	time.Sleep(time.Duration(seconds) * time.Second)
	fmt.Fprintln(os.Stderr, len(held))
}
