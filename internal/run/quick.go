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

// Quick runs "carrel run" for args (those after "run") if the small program can do it, and reports
// whether it did. stage and whole open the program of the stage and the whole program. Quick leaves
// everything else to the command line, wrong flags and --help included.
func Quick(args []string, stage, whole func() (*os.File, error)) (code int, done bool) {
	fs := pflag.NewFlagSet("run", pflag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.Usage = func() {}
	o := AddFlags(fs)
	if err := fs.Parse(args); err != nil {
		return 0, false
	}
	code, err := Run(context.Background(), o, fs.Args(), Deps{Stage: stage, Whole: whole, Last: true})
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
