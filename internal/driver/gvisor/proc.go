package gvisor

import (
	"os"
	"strconv"
	"strings"
)

// residentAnon reads from /proc/PID/status the private memory of a process, in bytes.
func residentAnon(pid int) int64 {
	b, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	for _, line := range strings.Split(string(b), "\n") {
		key, value, ok := strings.Cut(line, ":")
		if !ok {
			continue
		}
		if key == "RssAnon" {
			kb, _ := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(value, "kB")), 10, 64)
			return kb << 10
		}
	}
	return 0
}
