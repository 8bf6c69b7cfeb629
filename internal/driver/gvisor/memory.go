package gvisor

import (
	"os"
	"strconv"
	"strings"

	"github.com/carrel-dev/carrel/internal/driver/hosted"
)

// All memory of the programs inside is one file in memory that the sentry made,
// whichever of its processes maps it; the sentry's own is its anonymous memory. So
// two cheap questions answer for any number of processes, where the driver has to look itself (see hosted.MemoryGuard).

// memfdName is what the sentry calls that file.
const memfdName = "runsc-memory"

// guardMemory ends the sandbox when it uses more than it may, until stop is called.
func (in *Instance) guardMemory() (stop func()) {
	if !hosted.GuardsMemory(in.d.groups) {
		return func() {}
	}
	use := memoryUse{pid: in.rec.PID}
	return in.memory.Watch(int64(in.rec.MemoryMB)<<20, use.now, in.Kill)
}

// outOfMemory reports whether the memory limit ended the sandbox. It must run
// while the control group exists.
func (in *Instance) outOfMemory() bool {
	return in.memory.Passed() || in.group.Events().OOMKills > 0
}

// memoryUse measures one sentry.
type memoryUse struct {
	pid  int
	file string // of the programs' memory, as /proc shows it; "" until it is found
}

// now is what the sandbox uses, in bytes.
func (m *memoryUse) now() int64 {
	n := hosted.StatusBytes(m.pid, "RssAnon")
	if m.file == "" {
		m.file = findMemfd(m.pid)
	}
	if m.file != "" {
		n += hosted.FileUse(m.file)
	}
	return n
}

// findMemfd finds the sentry's memory file among its descriptors. The daemon made
// the sentry's user namespace, so it may look.
func findMemfd(pid int) string {
	dir := "/proc/" + strconv.Itoa(pid) + "/fd/"
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if to, err := os.Readlink(dir + e.Name()); err == nil && strings.HasPrefix(to, "/memfd:"+memfdName) {
			return dir + e.Name()
		}
	}
	return ""
}
