//go:build linux

package box

import (
	"bytes"
	"os"
	"strconv"
)

// children are the processes that a process has started or inherited.
func children(pid int) []int {
	dir := "/proc/" + strconv.Itoa(pid) + "/task/"
	f, err := os.Open(dir)
	if err != nil {
		return nil
	}
	threads, _ := f.Readdirnames(-1)
	_ = f.Close()
	var out []int
	for _, t := range threads {
		b, err := os.ReadFile(dir + t + "/children")
		if err != nil {
			continue
		}
		for _, w := range bytes.Fields(b) {
			if n, err := strconv.Atoi(string(w)); err == nil {
				out = append(out, n)
			}
		}
	}
	return out
}

// tree is a process with all that descend from it.
func tree(pid int) []int {
	out := []int{pid}
	for i := 0; i < len(out); i++ {
		out = append(out, children(out[i])...)
	}
	return out
}

// memoryOf is what a process has for itself: pages that belong to no file.
func memoryOf(pid int) int64 {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/statm")
	if err != nil {
		return 0
	}
	w := bytes.Fields(b)
	if len(w) < 3 {
		return 0
	}
	resident, _ := strconv.ParseInt(string(w[1]), 10, 64)
	shared, _ := strconv.ParseInt(string(w[2]), 10, 64)
	return (resident - shared) * int64(os.Getpagesize())
}
