package run_test

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/carrel-dev/carrel/internal/box"
	"github.com/carrel-dev/carrel/internal/linux/tap"
	"github.com/carrel-dev/carrel/internal/reexec"
	"github.com/carrel-dev/carrel/internal/run"
	"github.com/carrel-dev/carrel/internal/run/wired"
	"github.com/carrel-dev/carrel/internal/testenv"
)

func TestMain(m *testing.M) {
	if reexec.Run(box.Parts(), tap.Parts()) {
		return
	}
	os.Exit(m.Run())
}

// late is a wire that is attached only after the box has ended.
type late struct{ run.Wire }

func (l late) Attach(ctx context.Context, link *os.File) error {
	over := testenv.Within(ctx, time.Minute, func() error {
		children, err := filepath.Glob("/proc/self/task/*/children")
		for _, name := range children {
			if text, _ := os.ReadFile(name); len(text) > 0 {
				return errors.New("the box goes on")
			}
		}
		return err
	})
	if over != nil {
		return over
	}
	return l.Wire.Attach(ctx, link)
}

// TestFasterThanItsLink runs commands that have ended before their box's link is attached, at which
// nobody is any more: their exit status counts.
func TestFasterThanItsLink(t *testing.T) {
	testenv.Need(t, "box", box.Probe(t.Context()))
	wire := func(o run.WireOptions) (run.Wire, error) {
		w, err := wired.Open(o)
		return late{w}, err
	}
	for command, want := range map[string]int{"exit 0": 0, "exit 7": 7} {
		fs := pflag.NewFlagSet("run", pflag.ContinueOnError)
		fs.SetOutput(io.Discard)
		o := run.AddFlags(fs)
		if err := fs.Parse([]string{"--allow", "example.com", "-c", command}); err != nil {
			t.Fatal(err)
		}
		if code, err := run.Run(t.Context(), o, fs.Args(), run.Deps{Wire: wire}); err != nil || code != want {
			t.Errorf("%s: exit status %d, %v", command, code, err)
		}
	}
}
