package build

import (
	"context"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/build/plan"
)

// The defaults of templates that E2B's SDKs build.
const (
	sdkUser = "user"
	// sdkBase is the image that the SDKs name when their caller names none. The built-in template
	// base stands for it.
	sdkBase = "e2bdev/base"
)

// userForm is the form of a user's name or number, perhaps with a group.
var userForm = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.@-]*\$?(:[A-Za-z0-9_][A-Za-z0-9_.@-]*)?$`)

// shellArgs runs a line in a login shell: bash, as E2B does, or sh where there is no bash.
func shellArgs(text string) []string {
	return []string{"/bin/sh", "-c",
		`if [ -x /bin/bash ]; then exec /bin/bash -l -c "$0"; fi; exec /bin/sh -l -c "$0"`, text}
}

// checkInstructions checks E2B's instructions. The error names the step.
func (e *Engine) checkInstructions(ctx context.Context, all []carrel.BuildInstruction) error {
	if len(all) > maxSteps {
		return invalid(opBuild, "steps", "%d steps, at most %d may be", len(all), maxSteps)
	}
	for i, in := range all {
		field := "steps[" + strconv.Itoa(i) + "]"
		size := 0
		for _, a := range in.Args {
			size += len(a)
			if strings.ContainsRune(a, 0) {
				return invalid(opBuild, field, "an argument has a NUL byte")
			}
		}
		if size > maxStepText {
			return invalid(opBuild, field, "%d bytes, at most %d may be", size, maxStepText)
		}
		var wrong string
		switch strings.ToUpper(in.Type) {
		case "RUN":
			if len(in.Args) < 1 || in.Args[0] == "" {
				wrong = "a command"
			}
		case "ENV":
			if len(in.Args) == 0 || len(in.Args)%2 != 0 || slices.Contains(evenArgs(in.Args), "") {
				wrong = "names and their values"
			}
		case "WORKDIR", "USER":
			if len(in.Args) < 1 || in.Args[0] == "" {
				wrong = "one argument"
			}
		case "COPY":
			if len(in.Args) < 2 || in.Args[0] == "" || in.Args[1] == "" {
				wrong = "a source and a destination"
				break
			}
			if _, err := e.uploads.path(opBuild, carrel.CallerOf(ctx).Project, in.FilesHash); err != nil {
				return invalid(opBuild, field+".filesHash", "missing, or no SHA-256 sum")
			}
		default:
			return invalid(opBuild, field, "%.100q is no instruction: COPY, RUN, ENV, WORKDIR or USER",
				in.Type)
		}
		if wrong != "" {
			return invalid(opBuild, field, "%s needs %s", in.Type, wrong)
		}
	}
	return nil
}

// evenArgs returns every other argument, from the first on.
func evenArgs(args []string) (out []string) {
	for i := 0; i < len(args); i += 2 {
		out = append(out, args[i])
	}
	return out
}

// instructionsPlan makes a plan of E2B's instructions.
func instructionsPlan(spec carrel.BuildSpec, from plan.Source,
	base plan.Config) (plan.Plan, error) {
	c := base
	if from.Image != "" { // as in E2B, the image's own program does not run
		c.User, c.Workdir, c.Entrypoint, c.Cmd = sdkUser, "", nil, nil
	}
	if c.User == "" {
		c.User = sdkUser
	}
	st := plan.Stage{From: from, Config: c}
	for i, in := range spec.Instructions {
		s := plan.Step{Text: stepText(in), Force: in.Force}
		in, err := expanded(c, in)
		if err != nil {
			return plan.Plan{}, at(strconv.Itoa(i+1), 0, &carrel.Error{Op: opBuild,
				Field: "steps[" + strconv.Itoa(i) + "]", Kind: carrel.KindOf(err), Err: err,
				Hint: carrel.HintOf(err)})
		}
		arg := func(i int) string {
			if i < len(in.Args) {
				return in.Args[i]
			}
			return ""
		}
		switch strings.ToUpper(in.Type) {
		case "RUN":
			s.Op = &plan.Run{Args: shellArgs(in.Args[0])}
			if user := arg(1); user != "" {
				// The user is this step's only.
				own := c
				own.User = user
				s.Config = own
				st.Steps = append(st.Steps, s, plan.Step{Config: c})
				continue
			}
		case "ENV":
			c.Env = slices.Clone(c.Env)
			for i := 0; i < len(in.Args); i += 2 {
				c.Env = setVariable(c.Env, in.Args[i], in.Args[i+1])
			}
		case "USER":
			if c.User = in.Args[0]; !userForm.MatchString(c.User) {
				return plan.Plan{}, at(strconv.Itoa(i+1), 0, invalid(opBuild, "steps["+strconv.Itoa(i)+"]",
					"invalid username: %.100q", c.User))
			}
		case "WORKDIR":
			c.Workdir = absolute(c, in.Args[0])
			s.Op = &plan.Workdir{Path: c.Workdir, Owner: c.User}
		case "COPY":
			owner := c.User
			if u := arg(2); u != "" {
				owner = u
			}
			s.Op = &plan.Copy{Upload: in.FilesHash, Paths: []string{in.Args[0]},
				Target: target(c, in.Args[1]), Owner: ownGroup(owner), Mode: arg(3)}
		}
		s.Config = c
		st.Steps = append(st.Steps, s)
	}
	return plan.Plan{Stages: []plan.Stage{st}}, nil
}

// ownGroup names a user's own group where no group is named.
func ownGroup(owner string) string { return owner }

// setVariable sets a variable in a list.
func setVariable(env []plan.Variable, name, value string) []plan.Variable {
	for i := range env {
		if env[i].Name == name {
			env[i].Value = value
			return env
		}
	}
	return append(env, plan.Variable{Name: name, Value: value})
}

// absolute makes a path absolute. Relative ones begin at the working directory, and "~" at the
// user's home.
func absolute(c plan.Config, name string) string {
	if rest, ok := strings.CutPrefix(name, "~"); ok && (rest == "" || rest[0] == '/') {
		return path.Join(home(c.User), rest)
	}
	if path.IsAbs(name) {
		return path.Clean(name)
	}
	dir := c.Workdir
	if dir == "" {
		dir = home(c.User)
	}
	return path.Join(dir, name)
}

// target is absolute for the target of a COPY, which keeps a slash at its end.
func target(c plan.Config, name string) string {
	out := absolute(c, name)
	if (strings.HasSuffix(name, "/") || name == "." || strings.HasSuffix(name, "/.")) && out != "/" {
		out += "/"
	}
	return out
}

// home is the usual home of a user.
func home(user string) string {
	user, _, _ = strings.Cut(user, ":")
	if user == "" || user == "root" || user == "0" {
		return "/root"
	}
	return "/home/" + user
}

// stepText shows an instruction as its author wrote it.
func stepText(in carrel.BuildInstruction) string {
	args := in.Args
	kind := strings.ToUpper(in.Type)
	switch kind {
	case "RUN":
		args = args[:1]
	case "COPY":
		args = args[:2]
	case "ENV":
		args = nil
		for i := 0; i+1 < len(in.Args); i += 2 {
			args = append(args, in.Args[i]+"="+in.Args[i+1])
		}
	}
	text := fmt.Sprintf("%s %s", kind, strings.Join(args, " "))
	const most = 500
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "…"
	}
	return text
}
