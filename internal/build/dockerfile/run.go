package dockerfile

import (
	"path"
	"slices"
	"strings"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/parser"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/build/plan"
)

// secretsDir is where a secret lies that names no target.
const secretsDir = "/run/secrets/"

// scriptRunner runs the script that it reads, by the interpreter that the script names. The file is
// gone before the layer is kept, and the script's own input is empty.
const scriptRunner = `f=$(mktemp) && cat >"$f" && chmod 700 "$f" || exit; "$f" </dev/null; s=$?; rm -f "$f"; exit $s`

// checkCommand refuses what needs no variables to be seen as wrong.
func checkCommand(c instructions.Command) error {
	line := lineOf(c.Location())
	switch c := c.(type) {
	case *instructions.RunCommand:
		return checkRun(c, line)
	case *instructions.AddCommand:
		return checkPaths("ADD", c.SourcesAndDest, line)
	case *instructions.CopyCommand:
		return checkPaths("COPY", c.SourcesAndDest, line)
	case *instructions.OnbuildCommand:
		trigger, err := parseTrigger(c.Expression)
		if err != nil {
			return lineError(carrel.Invalid, line, "ONBUILD: %v", err)
		}
		if err := checkCommand(trigger); err != nil {
			return lineError(carrel.KindOf(err), line, "ONBUILD: %v", err)
		}
	case *instructions.ShellCommand:
		if len(c.Shell) == 0 {
			return lineError(carrel.Invalid, line, "SHELL names no program")
		}
	}
	return nil
}

// checkRun refuses what a build cannot give to a command.
func checkRun(c *instructions.RunCommand, line int) error {
	if len(c.CmdLine) == 0 || c.PrependShell && strings.TrimSpace(strings.Join(c.CmdLine, "")) == "" {
		return lineError(carrel.Invalid, line, "RUN names no command")
	}
	if instructions.GetNetwork(c) == instructions.NetworkHost {
		return hinted(lineError(carrel.Unsupported, line,
			"RUN --network=host: a step has no part in this machine's network"),
			"remove it: a step reaches what the build's policy allows, see --allow")
	}
	if mode := instructions.GetSecurity(c); mode != "" && mode != instructions.SecuritySandbox {
		return hinted(lineError(carrel.Unsupported, line, "RUN --security=%s: no step leaves its sandbox",
			mode),
			"remove it: a step is root in a sandbox of its own")
	}
	if len(instructions.GetDevices(c)) > 0 {
		return lineError(carrel.Unsupported, line, "RUN --device: a step sees no device of this machine")
	}
	return nil
}

// runCommand plans a RUN.
func (s *stage) runCommand(c *instructions.RunCommand, line int) (plan.Op, error) {
	run := &plan.Run{Env: s.runEnv(), Offline: instructions.GetNetwork(c) == instructions.NetworkNone}
	run.Args, run.Stdin = s.runArgs(c)
	for _, m := range instructions.GetMounts(c) {
		mount, err := s.mount(m, line)
		if err != nil {
			return nil, err
		}
		run.Mounts = append(run.Mounts, mount)
	}
	return run, nil
}

// runArgs returns the arguments and the input of a RUN. The shell reads heredocs itself, but for
// one that is the whole command: that one is a script.
func (s *stage) runArgs(c *instructions.RunCommand) (args []string, stdin string) {
	if len(c.Files) == 0 || !c.PrependShell {
		return s.commandLine(c.ShellDependantCmdLine), ""
	}
	text := strings.Join(c.CmdLine, " ")
	if doc, err := parser.ParseHeredoc(strings.TrimSpace(text)); err == nil && doc != nil &&
		len(c.Files) == 1 {
		script := c.Files[0].Data
		if c.Files[0].Chomp {
			script = parser.ChompHeredocContent(script)
		}
		if strings.HasPrefix(script, "#!") {
			return append(slices.Clone(defaultShell), scriptRunner), script
		}
		return append(slices.Clone(s.shell()), script), ""
	}
	for _, f := range c.Files {
		text += "\n" + f.Data + f.Name
	}
	return append(slices.Clone(s.shell()), text), ""
}

// runEnv returns the arguments of the build as a RUN sees them: where ENV sets the same name, that
// one counts.
func (s *stage) runEnv() []plan.Variable {
	env := newVariables()
	for _, name := range proxyArgs {
		if v, ok := s.planner.options.Args[name]; ok {
			env.set(name, v)
		}
	}
	for _, name := range s.args.names {
		env.set(name, s.args.values[name])
	}
	for _, name := range s.env.names {
		env.unset(name)
	}
	return env.list()
}

// mount plans one --mount.
func (s *stage) mount(m *instructions.Mount, line int) (plan.Mount, error) {
	out := plan.Mount{ReadOnly: m.ReadOnly, Required: m.Required, Size: m.SizeLimit, Path: m.Source}
	if m.Mode != nil {
		out.Mode = uint32(*m.Mode & 0o7777)
	}
	for _, id := range []struct {
		from *uint64
		to   *uint32
	}{{m.UID, &out.UID}, {m.GID, &out.GID}} {
		if id.from == nil {
			continue
		}
		if *id.from > 1<<32-2 {
			return plan.Mount{}, lineError(carrel.Invalid, line, "RUN --mount: %d is no user or group",
				*id.from)
		}
		*id.to = uint32(*id.from)
	}
	if m.From != "" {
		src, err := s.planner.copySource(m.From, s.index, line)
		if err != nil {
			return plan.Mount{}, err
		}
		if out.From, err = s.ready(src, m.From, line); err != nil {
			return plan.Mount{}, err
		}
	}
	if m.Target != "" {
		out.Target = strings.TrimSuffix(s.absolute(m.Target), "/")
	}
	switch m.Type {
	case instructions.MountTypeBind:
		out.Kind = plan.MountBind
	case instructions.MountTypeTmpfs:
		out.Kind = plan.MountTmpfs
	case instructions.MountTypeCache:
		out.Kind, out.ID = plan.MountCache, m.CacheID
		if out.ID == "" {
			out.ID = out.Target
		}
		if m.CacheSharing != instructions.MountSharingShared {
			out.Sharing = plan.CacheSharing(m.CacheSharing)
		}
	case instructions.MountTypeSecret:
		out.Kind, out.ID = plan.MountSecret, m.CacheID
		return secretMount(out, m, line)
	case instructions.MountTypeSSH:
		return plan.Mount{}, hinted(lineError(carrel.Unsupported, line,
			"RUN --mount=type=ssh: no agent is forwarded into a build"),
			"use a token: RUN --mount=type=secret,id=NAME and --secret id=NAME,src=FILE")
	default:
		return plan.Mount{}, lineError(carrel.Unsupported, line, "RUN --mount=type=%s can't be mounted",
			m.Type)
	}
	if out.Target == "" {
		return plan.Mount{}, lineError(carrel.Invalid, line,
			"RUN --mount=type=%s needs a target that is not /", m.Type)
	}
	return out, nil
}

// secretMount fills in the names that a secret's mount leaves out.
func secretMount(out plan.Mount, m *instructions.Mount, line int) (plan.Mount, error) {
	if m.Source != "" && out.ID == "" {
		out.ID = m.Source // another word for it
	}
	out.Path = ""
	if out.ID == "" && out.Target != "" {
		out.ID = path.Base(out.Target)
	}
	if out.ID == "" {
		return plan.Mount{}, hinted(lineError(carrel.Invalid, line,
			"RUN --mount=type=secret names no secret"),
			"write id=NAME, and give it with --secret id=NAME,src=FILE")
	}
	switch {
	case m.Env != nil && *m.Env == "":
		out.Env = path.Base(out.ID)
	case m.Env != nil:
		out.Env = *m.Env
	}
	if out.Env == "" && out.Target == "" {
		out.Target = secretsDir + path.Base(out.ID)
	}
	return out, nil
}

// ready returns a source with its place in the plan. Only the ONBUILD of an image can name a stage
// that the plan does not have.
func (s *stage) ready(src plan.Source, name string, line int) (plan.Source, error) {
	if src.Stage > 0 && !s.planner.needed[src.Stage-1] {
		return plan.Source{}, lineError(carrel.Unsupported, line,
			"--from=%s: this stage is not made before this line", name)
	}
	return s.planner.inPlan(src), nil
}
