package cli

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/settings"
)

// near is how many letters a word may differ from the intended one.
const near = 2

// usage marks an error as a mistake on the command line.
func usage(err error) error {
	return &carrel.Error{Kind: carrel.Invalid, Err: err, Hint: hintHelp}
}

// hintHelp is the hint of a usage error until the command is known.
const hintHelp = "see carrel help"

// pointToHelp adds the command's name to a hint without one.
func pointToHelp(c *cobra.Command, err error) {
	if e, ok := errors.AsType[*carrel.Error](err); ok && e.Hint == hintHelp && c.HasParent() {
		e.Hint = "see " + c.CommandPath() + " --help"
	}
}

// valueForms describe the values of flags with pflag's own types, because pflag's errors name Go's
// functions.
var valueForms = map[string]string{
	"int": "write a whole number", "float64": "write a number", "duration": "write a time such as 30s, 5m or 12h", "bool": "write true or false",
}

// valueError returns an error that explains an invalid flag value.
func valueError(e *pflag.InvalidValueError) error {
	why := errors.Unwrap(e)
	if form, ok := valueForms[e.GetFlag().Value.Type()]; ok {
		why = errors.New(form)
	}
	if known, ok := errors.AsType[*carrel.Error](why); ok && known.Err != nil {
		why = known.Err // the flag is named already
	}
	return fmt.Errorf("--%s %q: %w", e.GetFlag().Name, e.GetValue(), why)
}

// flagError returns an error about a flag, with a similar flag if there is one.
func flagError(c *cobra.Command, err error) error {
	if value, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		return usage(valueError(value))
	}
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) || unknown.GetSpecifiedShortnames() != "" {
		return usage(err)
	}
	var names []string
	c.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			names = append(names, f.Name)
		}
	})
	if meant := nearest(unknown.GetSpecifiedName(), names); meant != "" {
		return &carrel.Error{Kind: carrel.Invalid, Err: err, Hint: "did you mean --" + meant + "? See " + c.CommandPath() + " --help"}
	}
	return &carrel.Error{Kind: carrel.Invalid, Err: err, Hint: "see " + c.CommandPath() + " --help"}
}

// argsError returns an error about a command's arguments, with a similar command if there is one.
func argsError(c *cobra.Command, args []string, err error) error {
	wrong := &carrel.Error{Kind: carrel.Invalid, Err: fmt.Errorf("%w\nusage: %s", err, c.UseLine()), Hint: hintHelp}
	if len(args) > 0 && c.HasAvailableSubCommands() {
		if meant := nearest(args[0], commandNames(c)); meant != "" {
			wrong.Hint = "did you mean " + c.CommandPath() + " " + meant + "?"
		}
	}
	return wrong
}

// commandNames returns the names of the commands under c.
func commandNames(c *cobra.Command) []string {
	var names []string
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() {
			names = append(append(names, sub.Name()), sub.Aliases...)
		}
	}
	return names
}

// helpCommand is "carrel help". An unknown command there is an error.
func (a *app) helpCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND…]",
		Short: "Say what a command does",
		RunE: func(c *cobra.Command, args []string) error {
			about, rest, err := c.Root().Find(args)
			if err == nil && len(rest) > 0 && about.HasAvailableSubCommands() {
				err = fmt.Errorf("unknown command %q for %q", rest[0], about.CommandPath())
			}
			if err != nil {
				if about == nil {
					about, rest = c.Root(), args
				}
				return argsError(about, rest, err)
			}
			about.InitDefaultHelpFlag()
			return about.Help()
		},
	}
}

// nearest returns the name that a word may mean: one that begins with it, or differs in few
// letters. It is "" for none.
func nearest(word string, names []string) string {
	best, least := "", near+1
	for _, name := range names {
		d := distance(word, name)
		if len(word) > 2 && strings.HasPrefix(name, word) {
			d = min(d, 1)
		}
		if d < least && d < len(name) && d < len(word) {
			best, least = name, d
		}
	}
	return best
}

// distance returns how many letters to insert, remove or change to turn one word into another
// (Levenshtein, 1965).
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		corner := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := corner
			if a[i] != b[j] {
				change++
			}
			corner = row[j+1]
			row[j+1] = min(change, corner+1, row[j]+1)
		}
	}
	return row[len(b)]
}

// mebibytes is a flag for memory or disk: "512M" or "4GiB", or a number of MiB. It can't be 0;
// without the flag the daemon chooses.
type mebibytes int

// Set implements pflag.Value.
func (m *mebibytes) Set(text string) error {
	n, err := strconv.Atoi(text)
	if err != nil {
		if n, err = settings.ParseSize(text); err != nil {
			return fmt.Errorf("write 512M or 4GiB, or a number of MiB")
		}
	}
	if n <= 0 {
		return fmt.Errorf("it must be more than 0; without the flag the daemon chooses")
	}
	*m = mebibytes(n)
	return nil
}

// Type implements pflag.Value.
func (m *mebibytes) Type() string { return "SIZE" }

// String implements pflag.Value.
func (m *mebibytes) String() string {
	if *m == 0 {
		return ""
	}
	return strconv.Itoa(int(*m)) + "MiB"
}

// cores is a flag for processors. It can't be 0: without the flag the daemon chooses.
type cores float64

// Set implements pflag.Value.
func (n *cores) Set(text string) error {
	f, err := strconv.ParseFloat(text, 64)
	if err != nil || !(f > 0) || f > 1e6 {
		return fmt.Errorf("write a number of processors such as 2 or 0.5; without the flag the daemon chooses")
	}
	*n = cores(f)
	return nil
}

// Type implements pflag.Value.
func (n *cores) Type() string { return "N" }

// String implements pflag.Value.
func (n *cores) String() string {
	if *n == 0 {
		return ""
	}
	return strconv.FormatFloat(float64(*n), 'g', -1, 64)
}
