package crash

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"

	"github.com/carrel-dev/carrel/internal/cli"
	"github.com/carrel-dev/carrel/internal/daemon"
	"github.com/carrel-dev/carrel/internal/failpoint"
	"github.com/carrel-dev/carrel/internal/reexec"
)

// With these variables this test binary is carrel itself, so that its fail points can be enabled. A
// built binary has none.
const (
	playVar   = "CARREL_TEST_PLAY"   // set: it is the carrel command
	pointsVar = "CARREL_TEST_POINTS" // file with fail points; each SIGUSR1 reads and removes it
	traceSpec = "trace="             // in that file: the file that gets the names of the points passed
)

func TestMain(m *testing.M) {
	if reexec.Run(daemon.Reexec()) {
		return
	}
	if os.Getenv(playVar) != "" {
		if path := os.Getenv(pointsVar); path != "" {
			takePoints(path)
		}
		os.Exit(cli.Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

// takePoints enables the fail points of a file at each signal.
func takePoints(path string) {
	told := make(chan os.Signal, 1)
	signal.Notify(told, syscall.SIGUSR1)
	go func() {
		for range told {
			spec, err := os.ReadFile(path)
			if err == nil {
				failpoint.Reset()
				if into, ok := strings.CutPrefix(string(spec), traceSpec); ok {
					tracePoints(into)
				} else {
					err = failpoint.Parse(string(spec))
				}
			}
			if err != nil {
				fmt.Fprintln(os.Stderr, "fail points:", err)
			}
			_ = os.Remove(path)
		}
	}()
}

// tracePoints writes the name of each fail point that is passed to a file.
func tracePoints(path string) {
	for _, p := range points() {
		failpoint.Enable(p, func() error {
			f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(f, p)
			return errors.Join(err, f.Close())
		})
	}
}
