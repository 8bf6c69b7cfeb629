package shortage

import (
	"os"

	"golang.org/x/sys/unix"
)

// enoughFiles is how many descriptors the largest operations need at once: the start of a sandbox
// takes about 25.
const enoughFiles = 32

// fewFiles reports whether this process can open only a few files more.
func fewFiles() bool {
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) != nil {
		return false
	}
	open, err := os.ReadDir("/proc/self/fd")
	return err == nil && uint64(len(open)+enoughFiles) > limit.Cur
}
