//go:build linux

package box

import (
	"bytes"
	"os"
	"strconv"
)

// memoryOf is a process's own memory: pages that belong to no file.
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
