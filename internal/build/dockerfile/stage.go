package dockerfile

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/parser"
	"github.com/moby/buildkit/frontend/dockerfile/shell"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/build/plan"
)

// defaultShell runs commands that are written as plain text.
var defaultShell = []string{"/bin/sh", "-c"}

// stages plans each needed stage.
func (p *planner) stages() (plan.Plan, error) {
	var result plan.Plan
	for _, i := range p.order {
		s := newStage(p, i, result.Stages)
		if err := s.run(); err != nil {
			return plan.Plan{}, err
		}
		result.Stages = append(result.Stages, s.out)
		if len(result.Stages) == len(p.order) {
			finish(&result.Stages[len(result.Stages)-1])
		}
	}
	return result, nil
}

// stage plans one stage.
type stage struct {
	planner *planner
	index   int // in the file
	out     plan.Stage
	config  plan.Config // after the last step
	env     *variables
	args    *variables
	lex     *shell.Lex
	cmdSet  bool // CMD stands in this very stage
}

// newStage prepares a stage from its base. done are the stages before it.
func newStage(p *planner, index int, done []plan.Stage) *stage {
	s := &stage{planner: p, index: index, args: newVariables(), lex: shell.NewLex(p.tree.escape)}
	from := &p.tree.stages[index]
	base := p.bases[index]
	switch {
	case base.Stage > 0:
		below := &done[p.places[base.Stage-1]]
		s.config = lastConfig(below)
		s.config.OnBuild = nil
	case base.Scratch:
	default:
		s.config = p.configs[keyOf(base)]
		s.config.OnBuild = nil
	}
	s.config = cloneConfig(s.config)
	s.env = variablesOf(s.config.Env)
	if _, ok := s.env.Get("PATH"); !ok {
		s.env.set("PATH", plan.DefaultPath)
		s.config.Env = s.env.list()
	}
	s.out = plan.Stage{Name: strings.ToLower(from.Name), Line: lineOf(from.Location),
		From: p.inPlan(base), Config: cloneConfig(s.config)}
	return s
}

// inPlan returns a source with the place of its stage in the plan, from which stages that nobody
// needs are missing.
func (p *planner) inPlan(src plan.Source) plan.Source {
	if src.Stage > 0 {
		src.Stage = p.places[src.Stage-1] + 1
	}
	return src
}

// lastConfig returns the configuration with which a stage ends.
func lastConfig(s *plan.Stage) plan.Config {
	if len(s.Steps) == 0 {
		return s.Config
	}
	return s.Steps[len(s.Steps)-1].Config
}

// cloneConfig copies a configuration, so that two steps share no list.
func cloneConfig(c plan.Config) plan.Config {
	c.Env = slices.Clone(c.Env)
	c.Shell = slices.Clone(c.Shell)
	c.Entrypoint = slices.Clone(c.Entrypoint)
	c.Cmd = slices.Clone(c.Cmd)
	c.Labels = slices.Clone(c.Labels)
	c.Expose = slices.Clone(c.Expose)
	c.Volumes = slices.Clone(c.Volumes)
	c.OnBuild = slices.Clone(c.OnBuild)
	if c.Ready != nil {
		ready := *c.Ready
		c.Ready = &ready
	}
	return c
}

// run plans the triggers of the base, then the stage's own instructions.
func (s *stage) run() error {
	for _, text := range s.planner.triggersOf(s.index) {
		c, err := parseTrigger(text)
		if err == nil {
			err = checkCommand(c)
		}
		if err != nil {
			return hinted(lineError(carrel.Invalid, s.out.Line, "ONBUILD %s of the base: %v",
				sourceText(text), err),
				carrel.HintOf(err))
		}
		if err := s.do(c, s.out.Line, "ONBUILD "+text); err != nil {
			return err
		}
	}
	for _, c := range s.planner.tree.stages[s.index].Commands {
		if err := s.do(c, lineOf(c.Location()), fmt.Sprint(c)); err != nil {
			return err
		}
	}
	return nil
}

// parseTrigger parses the instruction of an ONBUILD.
func parseTrigger(text string) (instructions.Command, error) {
	read, err := parser.Parse(strings.NewReader(text))
	if err != nil {
		return nil, err
	}
	if len(read.AST.Children) != 1 {
		return nil, fmt.Errorf("it is not one instruction")
	}
	return instructions.ParseCommand(read.AST.Children[0])
}

// do plans one instruction.
func (s *stage) do(c instructions.Command, line int, text string) error {
	if arg, ok := c.(*instructions.ArgCommand); ok {
		return s.arg(arg, line)
	}
	if err := s.expand(c, line); err != nil {
		return err
	}
	step := plan.Step{Line: line, Text: sourceText(text), Force: s.planner.options.Force}
	op, err := s.op(c, line)
	if err != nil {
		return err
	}
	step.Op = op
	step.Config = cloneConfig(s.config)
	s.out.Steps = append(s.out.Steps, step)
	return nil
}

// op carries out what an instruction does to the configuration, and returns what it does to files.
func (s *stage) op(c instructions.Command, line int) (plan.Op, error) {
	switch c := c.(type) {
	case *instructions.RunCommand:
		return s.runCommand(c, line)
	case *instructions.CopyCommand:
		return s.copyCommand(c, line)
	case *instructions.AddCommand:
		return s.addCommand(c, line)
	case *instructions.WorkdirCommand:
		return s.workdir(c, line)
	case *instructions.ExposeCommand:
		return nil, s.expose(c, line)
	case *instructions.EnvCommand:
		for _, kv := range c.Env {
			s.env.set(kv.Key, kv.Value)
		}
		s.config.Env = s.env.list()
	case *instructions.LabelCommand:
		labels := variablesOf(s.config.Labels)
		for _, kv := range c.Labels {
			labels.set(kv.Key, kv.Value)
		}
		s.config.Labels = labels.list()
	case *instructions.MaintainerCommand:
		labels := variablesOf(s.config.Labels)
		labels.set("maintainer", c.Maintainer)
		s.config.Labels = labels.list()
	case *instructions.UserCommand:
		s.config.User = c.User
	case *instructions.ShellCommand:
		s.config.Shell = slices.Clone(c.Shell)
	case *instructions.StopSignalCommand:
		s.config.StopSignal = c.Signal
	case *instructions.VolumeCommand:
		for _, v := range c.Volumes {
			if !slices.Contains(s.config.Volumes, v) {
				s.config.Volumes = append(s.config.Volumes, v)
			}
		}
	case *instructions.OnbuildCommand:
		s.config.OnBuild = append(s.config.OnBuild, c.Expression)
	case *instructions.CmdCommand:
		s.config.Cmd = s.commandLine(c.ShellDependantCmdLine)
		s.cmdSet = true
	case *instructions.EntrypointCommand:
		s.config.Entrypoint = s.commandLine(c.ShellDependantCmdLine)
		if !s.cmdSet {
			s.config.Cmd = nil // the base's arguments were for the base's program
		}
	case *instructions.HealthCheckCommand:
		s.config.Ready = readyOf(c, s.shell())
	default:
		return nil, lineError(carrel.Unsupported, line, "%s is not known", c.Name())
	}
	return nil, nil
}

// arg declares a variable of the build. It changes no file and is no step.
func (s *stage) arg(c *instructions.ArgCommand, line int) error {
	// A default sees the variables before it, those of the same instruction too.
	for _, kv := range c.Args {
		s.planner.used[kv.Key] = true
		switch given, ok := s.planner.options.Args[kv.Key]; {
		case ok:
			s.args.set(kv.Key, given)
		case kv.Value != nil:
			v, err := s.word(*kv.Value, line)
			if err != nil {
				return err
			}
			s.args.set(kv.Key, v)
		default:
			if v, ok := s.planner.globals.Get(kv.Key); ok {
				s.args.set(kv.Key, v)
			}
		}
	}
	return nil
}

// scope is what the words of the next instruction see.
func (s *stage) scope() scope { return scope{env: s.env, args: s.args} }

// word fills in the variables of one word.
func (s *stage) word(word string, line int) (string, error) {
	return expandWord(s.lex, word, s.scope(), line)
}

// expand fills in the variables of an instruction that has any.
func (s *stage) expand(c instructions.Command, line int) error {
	total := 0
	fill := func(lex *shell.Lex) instructions.SingleWordExpander {
		return func(word string) (string, error) {
			result, err := lex.ProcessWordWithMatches(word, s.scope())
			if err != nil {
				return "", err
			}
			for name := range result.Unmatched {
				s.planner.options.Warn(Warning{Line: line,
					Text: fmt.Sprintf("no variable %s is set here: it is left empty", name)})
			}
			if total += len(result.Result); total > maxWordBytes {
				return "", fmt.Errorf("it is longer than %d bytes once its variables are filled in",
					maxWordBytes)
			}
			return result.Result, nil
		}
	}
	if c, ok := c.(instructions.SupportsSingleWordExpansion); ok {
		if err := c.Expand(fill(s.lex)); err != nil {
			return lineError(carrel.Invalid, line, "%v", err)
		}
	}
	if c, ok := c.(instructions.SupportsSingleWordExpansionRaw); ok {
		raw := shell.NewLex(s.planner.tree.escape)
		raw.RawQuotes, raw.RawEscapes = true, true
		if err := c.ExpandRaw(fill(raw)); err != nil {
			return lineError(carrel.Invalid, line, "%v", err)
		}
	}
	return nil
}

// shell returns what runs commands that are written as plain text.
func (s *stage) shell() []string {
	if len(s.config.Shell) > 0 {
		return s.config.Shell
	}
	return defaultShell
}

// commandLine returns the arguments of CMD, ENTRYPOINT or RUN without heredocs.
func (s *stage) commandLine(c instructions.ShellDependantCmdLine) []string {
	if !c.PrependShell {
		return slices.Clone(c.CmdLine)
	}
	if len(c.CmdLine) == 0 {
		return nil
	}
	return append(slices.Clone(s.shell()), strings.Join(c.CmdLine, " "))
}

// workdir changes the directory, which is made if it is missing and then belongs to the user.
func (s *stage) workdir(c *instructions.WorkdirCommand, line int) (plan.Op, error) {
	if c.Path == "" {
		return nil, lineError(carrel.Invalid, line, "WORKDIR is empty once its variables are filled in")
	}
	s.config.Workdir = s.absolute(c.Path)
	return &plan.Workdir{Path: s.config.Workdir, Owner: s.config.User}, nil
}

// absolute returns a path inside the stage, as seen from its directory. A "/" at the end stays.
func (s *stage) absolute(name string) string {
	slash := strings.HasSuffix(name, "/") || strings.HasSuffix(name, "/.") || name == "."
	if !path.IsAbs(name) {
		name = path.Join("/", s.config.Workdir, name)
	}
	if name = path.Clean(name); slash && name != "/" {
		return name + "/"
	}
	return name
}

// portPattern is a port or a range of ports with an optional protocol.
var portPattern = regexp.MustCompile(`^(\d{1,5})(?:-(\d{1,5}))?(?:/(?i:(tcp|udp|sctp)))?$`)

// expose notes ports. Every port of a sandbox can be reached, so this is a note for people.
func (s *stage) expose(c *instructions.ExposeCommand, line int) error {
	for _, word := range c.Ports {
		ports, err := s.lex.ProcessWords(word, s.scope())
		if err != nil {
			return lineError(carrel.Invalid, line, "%v", err)
		}
		for _, port := range ports {
			m := portPattern.FindStringSubmatch(port)
			if m == nil || !validPort(m[1]) || m[2] != "" && !validPort(m[2]) {
				return hinted(lineError(carrel.Invalid, line, "EXPOSE %s: this is no port", port),
					"write a number from 1 to 65535, as in 8080, 8080/udp or 8000-8010")
			}
			port = m[1]
			if m[2] != "" {
				port += "-" + m[2]
			}
			if m[3] == "" {
				m[3] = "tcp"
			}
			if port += "/" + strings.ToLower(m[3]); !slices.Contains(s.config.Expose, port) {
				s.config.Expose = append(s.config.Expose, port)
			}
		}
	}
	return nil
}

func validPort(text string) bool {
	n, err := strconv.Atoi(text)
	return err == nil && n > 0 && n < 1<<16
}
