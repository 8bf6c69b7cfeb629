package tool

import (
	"fmt"
	"slices"
	"strings"
)

// Flag is one option from the command line.
type Flag struct {
	Letter byte   // its letter in the table, even if the long name was used
	Long   string // its long name if that was used
	Value  string // of an option with an argument
	Has    bool   // an optional argument was given
}

// Flags are the options of a call, in order.
type Flags struct {
	All  []Flag
	Args []string // what is no option
}

// Has reports whether an option was given.
func (f Flags) Has(letter byte) bool {
	return slices.ContainsFunc(f.All, func(o Flag) bool { return o.Letter == letter })
}

// Value returns the argument of the last option with this letter, or other if there is none.
func (f Flags) Value(letter byte, other string) string {
	for _, o := range slices.Backward(f.All) {
		if o.Letter == letter {
			return o.Value
		}
	}
	return other
}

// Values returns the arguments of all options with this letter.
func (f Flags) Values(letter byte) (out []string) {
	for _, o := range f.All {
		if o.Letter == letter {
			out = append(out, o.Value)
		}
	}
	return out
}

// Last returns the last given option of these letters, or 0 for none.
func (f Flags) Last(letters string) byte {
	for _, o := range slices.Backward(f.All) {
		if strings.IndexByte(letters, o.Letter) >= 0 {
			return o.Letter
		}
	}
	return 0
}

// Flags reads the options as getopt_long of glibc does. short lists letters. A letter followed by
// ':' takes an argument; one followed by '::' takes an optional, attached argument. With a leading
// '+', reading stops at the first argument that is not an option. long lists "name=l". It lists
// "name=l:" or "name=l::" where the letter itself takes its argument differently, or is above 0x7f
// and so has no short form. Long names may be abbreviated. When ok is false, it has written a
// message, and the caller returns its status for wrong usage.
func (c *Call) Flags(short string, long ...string) (f Flags, ok bool) {
	inOrder := strings.HasPrefix(short, "+")
	short = strings.TrimPrefix(short, "+")
	rest := c.Args
	for len(rest) > 0 {
		a := rest[0]
		rest = rest[1:]
		var err error
		switch {
		case a == "--":
			f.Args = append(f.Args, rest...)
			return f, true
		case strings.HasPrefix(a, "--"):
			rest, err = f.long(a[2:], rest, short, long)
		case len(a) > 1 && a[0] == '-':
			rest, err = f.short(a[1:], rest, short)
		default:
			f.Args = append(f.Args, a)
			if inOrder {
				f.Args = append(f.Args, rest...)
				return f, true
			}
		}
		if err != nil {
			c.Errorf(0, "%v", err)
			fmt.Fprintf(c.Err, "Try '%s --help' for more information.\n", c.Base())
			return f, false
		}
	}
	return f, true
}

// short reads a bundle of letters.
func (f *Flags) short(bundle string, rest []string, short string) ([]string, error) {
	for i := 0; i < len(bundle); i++ {
		l := bundle[i]
		takes, known := argument(short, l)
		if !known {
			return rest, fmt.Errorf("invalid option -- '%c'", l)
		}
		o := Flag{Letter: l}
		if takes > 0 {
			switch value := bundle[i+1:]; {
			case value != "":
				o.Value, o.Has = value, true
			case takes == 2:
			case len(rest) == 0:
				return rest, fmt.Errorf("option requires an argument -- '%c'", l)
			default:
				o.Value, o.Has, rest = rest[0], true, rest[1:]
			}
			i = len(bundle)
		}
		f.All = append(f.All, o)
	}
	return rest, nil
}

// long reads one long option.
func (f *Flags) long(a string, rest []string, short string, long []string) ([]string, error) {
	name, value, has := strings.Cut(a, "=")
	var found []string
	for _, entry := range long {
		n, _, _ := strings.Cut(entry, "=")
		if n == name {
			found = []string{entry}
			break
		}
		if strings.HasPrefix(n, name) {
			found = append(found, entry)
		}
	}
	switch {
	case len(found) == 0:
		return rest, fmt.Errorf("unrecognized option '--%s'", a)
	case len(found) > 1 && slices.ContainsFunc(found, func(e string) bool {
		_, l, _ := strings.Cut(e, "=")
		return l != found[0][strings.IndexByte(found[0], '=')+1:]
	}):
		return rest, fmt.Errorf("option '--%s' is ambiguous", name)
	}
	full, spec, _ := strings.Cut(found[0], "=")
	takes := strings.Count(spec[1:], ":")
	if len(spec) == 1 {
		takes, _ = argument(short, spec[0])
	}
	o := Flag{Letter: spec[0], Long: full, Value: value, Has: has}
	switch {
	case takes == 0 && has:
		return rest, fmt.Errorf("option '--%s' doesn't allow an argument", full)
	case takes == 1 && !has && len(rest) == 0:
		return rest, fmt.Errorf("option '--%s' requires an argument", full)
	case takes == 1 && !has:
		o.Value, o.Has, rest = rest[0], true, rest[1:]
	}
	f.All = append(f.All, o)
	return rest, nil
}

// argument reports whether a letter takes an argument: 0 never, 1 always, 2 optionally.
func argument(short string, l byte) (takes int, known bool) {
	if l == ':' {
		return 0, false
	}
	at := strings.IndexByte(short, l)
	if at < 0 {
		return 0, false
	}
	rest := short[at+1:]
	return len(rest[:min(len(rest), 2)]) - len(strings.TrimLeft(rest[:min(len(rest), 2)], ":")), true
}
