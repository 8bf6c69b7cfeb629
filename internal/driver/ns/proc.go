package ns

import (
	"os"
	"strconv"
	"strings"
)

// resident reads from /proc/PID/status the memory of a process, in bytes: its own, and what it shares
// of memory files.
func resident(pid int) int64 {
	b, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	var n int64
	for line := range strings.Lines(string(b)) {
		if key, value, ok := strings.Cut(line, ":"); ok && (key == "RssAnon" || key == "RssShmem") {
			kb, _ := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(value), "kB")), 10, 64)
			n += kb << 10
		}
	}
	return n
}
