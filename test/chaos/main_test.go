package chaos

import (
	"flag"
	"fmt"
	"os"
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
	if *seedFlag == 0 {
		*seedFlag = uint64(time.Now().Unix() % 1e6)
	}
	code := m.Run()
	removeHome()
	os.Exit(code)
}
