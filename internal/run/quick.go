package run

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/pflag"

	"github.com/carrel-dev/carrel"
)

// Quick runs "carrel run" for args (the arguments after "run"), if the fast path is enough, and
// reports whether it did. It leaves everything else to the command line, wrong flags and --help
// included.
func Quick(args []string, stage func() (*os.File, error)) (code int, done bool) {
	fs := pflag.NewFlagSet("run", pflag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.Usage = func() {}
	o := AddFlags(fs)
	if err := fs.Parse(args); err != nil {
		return 0, false
	}
	code, err := Run(context.Background(), o, fs.Args(), Deps{Stage: stage, Last: true})
	if errors.Is(err, ErrLater) {
		return 0, false
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "carrel: %s\n", printableLines(err.Error()))
		if hint := carrel.HintOf(err); hint != "" {
			fmt.Fprintf(os.Stderr, "hint: %s\n", printable(hint))
		}
	}
	return code, true
}
