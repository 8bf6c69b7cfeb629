package kernel

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// bashStart makes the shell ready. The shell is an interactive one, because only such a shell ends a
// whole line at an interrupt and goes on with the next one.
const bashStart = `set +H +m +o history 2>/dev/null; PS1= PS2=; unset PROMPT_COMMAND; exec 3<&-
__carrel_done() {
  local s=$?
  if [ "$s" -ne 0 ]; then
    printf '{"type":"error","name":"ExitStatus","value":"%d","traceback":"the last command ended with status %d"}\n' "$s" "$s" >&4
  fi
  printf '{"type":"done","id":%d}\n' "$1" >&4
}
printf '{"type":"ready"}\n' >&4
`

// bash starts a shell that takes its commands from its input.
func (f Finder) bash(ctx context.Context, o Options, dir string) (Kernel, error) {
	exe, err := f.program(Bash, "bash")
	if err != nil {
		return nil, err
	}
	cmd := f.command(o, exe, "--norc", "--noprofile", "--noediting", "-i")
	cmd.Env = append(cmd.Env, "PS1=", "PS2=", "TERM=dumb")
	r, err := startRunner(cmd, dir, true)
	if err != nil {
		return nil, err
	}
	b := &shell{runner: r}
	r.encode = b.encode
	if _, err := r.requests.Write([]byte(bashStart)); err != nil {
		<-r.done
		return nil, r.failure(o.Language)
	}
	if _, err := r.hello(ctx, o.Language); err != nil {
		return nil, err
	}
	r.err.drain() // its complaints that it has no terminal
	return b, nil
}

// shell is bash as a kernel.
type shell struct {
	*runner
	base map[string]string // as last set
}

// Run counts the cell, which bash itself does not, and runs it.
func (s *shell) Run(ctx context.Context, c Cell, out Sink) error {
	if err := out(Event{Type: Count, N: s.id + 1}); err != nil {
		return err
	}
	return s.runner.Run(ctx, c, out)
}

// encode writes a cell as commands of the shell. Variables of one cell are put back after it, by
// lines that run even if the cell was interrupted.
func (s *shell) encode(r request) ([]byte, error) {
	var b strings.Builder
	if !maps.Equal(s.base, r.Base) {
		s.base = r.Base
		for _, k := range slices.Sorted(maps.Keys(r.Base)) {
			if err := export(&b, k, r.Base[k]); err != nil {
				return nil, err
			}
		}
	}
	names := slices.Sorted(maps.Keys(r.Env))
	for _, k := range names {
		fmt.Fprintf(&b, "__carrel_is_%s=${%s+x} __carrel_was_%s=$%s\n", k, k, k, k)
		if err := export(&b, k, r.Env[k]); err != nil {
			return nil, err
		}
	}
	// The code is one word of one line, so that nothing in it ends the command early.
	fmt.Fprintf(&b, "eval %s </dev/null 4>&-\n__carrel_s=$?\n", quoteBash(r.Code))
	for _, k := range names {
		fmt.Fprintf(&b, "if [ -n \"$__carrel_is_%s\" ]; then export %s=\"$__carrel_was_%s\"; "+
			"else unset %s; fi; unset __carrel_is_%s __carrel_was_%s\n", k, k, k, k, k, k)
	}
	fmt.Fprintf(&b, "(exit $__carrel_s)\n__carrel_done %d\n(exit $__carrel_s)\n", r.ID)
	return []byte(b.String()), nil
}

// export writes the export of a variable.
func export(b *strings.Builder, name, value string) error {
	if !isName(name) {
		return fmt.Errorf("env_vars: %q is not a name of a variable", name)
	}
	fmt.Fprintf(b, "export %s=%s\n", name, quoteBash(value))
	return nil
}

// isName reports whether a shell takes s for a variable's name.
func isName(s string) bool {
	for i, c := range s {
		switch {
		case c == '_', 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z':
		case '0' <= c && c <= '9' && i > 0:
		default:
			return false
		}
	}
	return s != ""
}

// quoteBash quotes a string as one word on one line.
func quoteBash(s string) string {
	var b strings.Builder
	b.WriteString("$'")
	for i := range len(s) {
		switch c := s[i]; {
		case c == '\'' || c == '\\':
			b.WriteByte('\\')
			b.WriteByte(c)
		case c < ' ' || c == 0x7f:
			fmt.Fprintf(&b, `\%03o`, c)
		default:
			b.WriteByte(c)
		}
	}
	b.WriteByte('\'')
	return b.String()
}
