package gvisor

import (
	"maps"
	"os"
	"runtime"
	"runtime/debug"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/runsc/cli"
	"gvisor.dev/gvisor/runsc/cmd/sentry/sentrycmd"
	"gvisor.dev/gvisor/runsc/cmd/util"

	"github.com/carrel-dev/carrel/internal/linux/spawn"
	"github.com/carrel-dev/carrel/internal/reexec"
	"github.com/carrel-dev/carrel/internal/rest"
)

// Names of the parts that our own binary plays.
const (
	sentryName  = "carrel-sentry"         // the kernel of one sandbox
	umountName  = "/proc/self/exe umount" // started by the sentry, before it gives up its rights
	filterName  = "carrel-filter"         // compiles the sentries' system call filter
	nsProbeName = "carrel-ns-probe"       // tries the namespaces, see Probe
	extractName = "carrel-extract"        // takes the files out of a memory, see extractPart
	tarName     = "carrel-tar"            // makes a tar stream of files, see tarPart
)

// Parts returns the parts of this driver for [reexec.Run].
func Parts() reexec.Parts {
	parts := reexec.Parts{
		sentryName: sentry, umountName: gvisorMain, filterName: filterPart, nsProbeName: nsProbe,
		extractName: confined(extractPart), tarName: confined(tarPart),
	}
	maps.Copy(parts, spawn.Parts())
	return parts
}

// sentry is the kernel of one sandbox.
func sentry() {
	runtime.MemProfileRate = 0 // nobody reads the profile
	// Hardly any memory of the start becomes garbage, so collecting it twice during the start only
	// costs time.
	debug.SetGCPercent(startPercent)
	skipPoints()
	go catchSignals()
	takeFilter()
	takePages()
	_ = keepCPUID()        // without it programs only start more slowly
	_ = registerPlatform() // gVisor reports a platform that it does not know
	if b := takeBlank(); b != nil {
		runGVisor(b)
	}
	go started()
	gvisorMain()
}

// For startTime after its start the sentry collects no garbage, unless it holds some 30 MB. A
// sandbox for a single command has ended by then.
const (
	startTime    = 3 * time.Second
	startPercent = 800
)

// started waits until the start is over. Then it lets the sentry's memory be collected and given
// back like that of other programs.
func started() {
	time.Sleep(startTime)
	debug.SetGCPercent(100)
	rest.Run(rest.Options{})
}

// gvisorMain runs gVisor's own command line with the two commands a sandbox needs.
// It does not return.
func gvisorMain() { runGVisor(new(sentrycmd.Boot)) }

// runGVisor is gvisorMain with another boot command.
func runGVisor(boot util.SubCommand) {
	cli.Run(nil, map[util.SubCommand]string{boot: "", new(sentrycmd.Umount): ""}, nil)
}

// nsProbe does the first steps of a sentry in its namespaces, and exits with 0 when the host allows
// them. It works only as process 1 and as nobody, so only in a new pid namespace: if something
// other than Probe starts it, it must not mount on the host.
func nsProbe() {
	if os.Getpid() != 1 || os.Getuid() != nobody {
		os.Stderr.WriteString("not in namespaces of its own")
		os.Exit(1)
	}
	if err := unix.Mount("carrel-probe", os.TempDir(), "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, ""); err != nil {
		os.Stderr.WriteString("mount in a new user namespace: " + err.Error())
		os.Exit(1)
	}
	os.Exit(0)
}
