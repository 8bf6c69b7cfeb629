package gvisor

import (
	"os"
	"time"

	"gvisor.dev/gvisor/pkg/cpuid"
	"gvisor.dev/gvisor/pkg/log"

	"github.com/carrel-dev/carrel/internal/linux/cell"
)

// A part is a process of our own that plays one role (see parts.go). A part that reads a sentry's
// files must expect the worst: the sentry might have been taken over, and a lot of code decodes its
// state. So the part runs in the namespaces and under the uid of a sandbox. It gives up all other
// rights before it reads the first byte.

// Limits of a confined part.
const (
	confinedCPU    = 10 * 60 // seconds
	confinedMemory = 4 << 30 // bytes
	confinedWrites = 1 << 40 // bytes in one file
	confinedFiles  = 64
)

// confinedCalls copy data between files that the confined process has open.
var confinedCalls = []string{"splice", "sendfile", "copy_file_range", "memfd_create"}

// confined returns a part that confines itself, calls run, and ends with the result of run.
func confined(run func() error) func() {
	return func() {
		log.SetLevel(log.Warning)
		time.Local = time.UTC // else the log's first line reads the host's time zone file
		cpuid.Initialize()    // reads /proc
		err := cell.Enter(cell.Limits{CPU: confinedCPU, Memory: confinedMemory, FileSize: confinedWrites, Files: confinedFiles, Also: confinedCalls})
		if err == nil {
			err = run()
		}
		if err != nil {
			os.Stderr.WriteString(err.Error())
			os.Exit(1)
		}
		os.Exit(0)
	}
}
