package chaos

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/carrel-dev/carrel/internal/cli"
	"github.com/carrel-dev/carrel/internal/daemon"
	"github.com/carrel-dev/carrel/internal/failpoint"
	"github.com/carrel-dev/carrel/internal/reexec"
)

// With playVar this test binary is the carrel command, and pointsVar holds fail points. A built
// binary has no way to enable them.
const (
	playVar   = "CARREL_TEST_PLAY"
	pointsVar = "CARREL_TEST_POINTS"
)

var (
	duration = flag.Duration("duration", 0, "how long trials are started; 0: each trial once")
	seedFlag = flag.Uint64("seed", 0, "seed of the first trial; 0: by the clock")
	only     = flag.String("trials", "", "names of trials, with commas; empty: all")
	mutants  = flag.Bool("mutants", true, "also take fixes out and check that trials find it")
)

// alone starts this program again in a mount namespace of its own. Nobody else then keeps a trial's
// disk busy, and no mount outlives the program.
func alone() {
	const mark = "CARREL_TEST_ALONE"
	unshare, err := exec.LookPath("unshare")
	if os.Geteuid() != 0 || os.Getenv(mark) != "" || err != nil {
		return
	}
	if exec.Command(unshare, "-m", "true").Run() == nil {
		_ = syscall.Exec(unshare, append([]string{"unshare", "-m"}, os.Args...),
			append(os.Environ(), mark+"=1"))
	}
}

func TestMain(m *testing.M) {
	if reexec.Run(daemon.Reexec()) {
		return
	}
	if os.Getenv(playVar) != "" {
		if err := failpoint.Parse(os.Getenv(pointsVar)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
		os.Exit(cli.Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
	}
	flag.Parse()
	alone()
	if *seedFlag == 0 {
		*seedFlag = uint64(time.Now().Unix() % 1e6)
	}
	code := m.Run()
	removeShared()
	os.Exit(code)
}
