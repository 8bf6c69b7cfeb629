package run_test

import (
	"context"
	"errors"
	"io"
	"os"
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
		raw, err := link.SyscallConn()
		if err != nil {
			return err
		}
		lives := false
		if err := raw.Control(func(fd uintptr) { _, lives = tap.Header(int(fd)) }); err == nil && lives {
			return errors.New("the box goes on")
		}
		return nil
	})
	if over != nil {
		return over
	}
	return l.Wire.Attach(ctx, link)
}

// TestFasterThanItsLink runs commands that end before their box's link is attached, so that no link
// is left to attach. Their exit status must count.
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
