package gvisor

import (
	"os"
	"strconv"
	"strings"

	"github.com/carrel-dev/carrel/internal/driver/hosted"
)

// All memory of the programs inside is one memory file that the sentry made and that several of its
// processes map. The sentry's own memory is anonymous. So two cheap measurements are enough for any
// number of processes, when the driver has to watch the memory itself (see hosted.MemoryGuard).

// memfdName is the sentry's name for that file.
const memfdName = "runsc-memory"

// guardMemory ends the sandbox when it uses more memory than its limit, until the caller calls
// stop.
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
	file string // /proc's name of the programs' memory; "" until found
}

// now is the sandbox's present memory use, in bytes.
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

// findMemfd finds the sentry's memory file among its descriptors. The daemon may look there because
// it made the sentry's user namespace.
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
