package build

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/moby/buildkit/frontend/dockerfile/shell"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/build/plan"
)

// expand fills the variables of a configuration into a value of an instruction: $X, ${X}, ${X:-x}
// and the other forms that a Dockerfile has. HOME is the user's home, and an unset variable is
// empty. Values come from JSON and not from a shell's line. So a quote is a character like any
// other, and a backslash is one, too, unless a dollar sign or a backslash follows it.
func expand(c plan.Config, value string) (string, error) {
	if !strings.ContainsAny(value, `$\`) {
		return value, nil
	}
	env := []string{"PATH=" + plan.DefaultPath, "HOME=" + home(c.User)}
	for _, v := range c.Env {
		env = append(env, v.Name+"="+v.Value)
	}
	out, _, err := shell.NewLex('\\').ProcessWord(quoted(value), shell.EnvsFromSlice(env))
	if err != nil {
		return "", &carrel.Error{Kind: carrel.Invalid, Err: fmt.Errorf("%.100q: %w", value, err),
			Hint: `a dollar sign that begins no variable is written as \$`}
	}
	if len(out) > maxStepText {
		return "", &carrel.Error{Kind: carrel.Exhausted,
			Err: errors.New("it is too long once its variables are filled in")}
	}
	return out, nil
}

// expanded is an instruction with its variables filled in. The command of a RUN keeps them for its
// shell. The source of a COPY has none: the SDK found files of just that name.
func expanded(c plan.Config, in carrel.BuildInstruction) (carrel.BuildInstruction, error) {
	in.Args = slices.Clone(in.Args)
	fill := func(i int) (err error) {
		in.Args[i], err = expand(c, in.Args[i])
		return err
	}
	kind := strings.ToUpper(in.Type)
	switch kind {
	case "ENV":
		for i := 1; i < len(in.Args); i += 2 {
			if err := fill(i); err != nil {
				return in, err
			}
		}
	case "WORKDIR", "USER", "COPY":
		i := 0
		if kind == "COPY" {
			i = 1 // its target
		}
		given := in.Args[i]
		if err := fill(i); err != nil {
			return in, err
		}
		if in.Args[i] == "" {
			return in, &carrel.Error{Kind: carrel.Invalid,
				Err:  fmt.Errorf("%.100q is empty once its variables are filled in", given),
				Hint: "set the variable in an ENV before this step"}
		}
	}
	return in, nil
}

// quoted is a value in double quotes, for a lexer of shell words.
func quoted(value string) string {
	var b strings.Builder
	b.WriteByte('"')
	for i := 0; i < len(value); i++ {
		switch next := value[min(i+1, len(value)-1)]; {
		case value[i] == '"':
			b.WriteByte('\\')
		case value[i] == '\\' && i+1 < len(value) && (next == '\\' || next == '$'):
			b.WriteByte('\\')
			i++
		case value[i] == '\\':
			b.WriteByte('\\')
		}
		b.WriteByte(value[i])
	}
	b.WriteByte('"')
	return b.String()
}
