package gvisor

import (
	"os"
	"time"

	"gvisor.dev/gvisor/pkg/cpuid"
	"gvisor.dev/gvisor/pkg/log"

	"github.com/carrel-dev/carrel/internal/linux/cell"
)

// A part that reads what a sentry wrote must expect the worst: the sentry might
// have been taken over, and decoding its state is a lot of code. So the part runs
// in the namespaces and under the uid of a sandbox, and gives up the rest before it
// reads the first byte.

// What such a part may use up.
const (
	confinedCPU    = 10 * 60 // seconds
	confinedMemory = 4 << 30 // bytes
	confinedWrites = 1 << 40 // bytes in one file
	confinedFiles  = 64
)

// confinedCalls are for copying between the files that it has.
var confinedCalls = []string{"splice", "sendfile", "copy_file_range", "memfd_create"}

// confined is a part that confines itself and ends with what run returns.
func confined(run func() error) func() {
	return func() {
		log.SetLevel(log.Warning)
		time.Local = time.UTC // or the first line of the log looks for the host's time zone
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
