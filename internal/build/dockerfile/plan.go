package dockerfile

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sort"
	"strconv"
	"strings"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/shell"
	"golang.org/x/sync/errgroup"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/build/plan"
)

// TemplatePrefix marks a template where a Dockerfile names an image: FROM template://base.
const TemplatePrefix = "template://"

// maxResolves is how many bases are asked for at once: each may be a pull.
const maxResolves = 4

// Options are what a build says beside the file.
type Options struct {
	// Args are the values of the file's ARGs.
	Args map[string]string
	// Target is the name or number of the stage that becomes the template; "" is the last one.
	Target string
	// Platform is what the sandbox runs, as "linux/amd64"; "" is this machine's.
	Platform string
	// Force does every step again, whatever the cache has.
	Force bool
	// Warn hears advice; nil drops it.
	Warn func(Warning)
}

// Resolver returns the configuration of a base: an image or a template.
type Resolver func(ctx context.Context, base plan.Source) (plan.Config, error)

// Plan makes the plan of the file's target and of the stages that it needs. resolve is asked once
// for each base that these stages begin from, for some at the same time. Errors: Invalid,
// Unsupported, and what resolve returns.
func (f *File) Plan(ctx context.Context, o Options, resolve Resolver) (plan.Plan, error) {
	if o.Warn == nil {
		o.Warn = func(Warning) {}
	}
	t, err := f.parse(nil)
	if err != nil {
		return plan.Plan{}, err
	}
	p := &planner{
		tree: t, options: o, platform: platformOf(o.Platform),
		needed: make([]bool, len(t.stages)), configs: map[baseKey]plan.Config{},
	}
	p.setGlobals()
	if err := p.expandBases(); err != nil {
		return plan.Plan{}, err
	}
	target, err := p.target()
	if err != nil {
		return plan.Plan{}, err
	}
	p.needed[target] = true
	// An image's ONBUILD may need further stages, whose bases are asked for in the next round.
	for asked := 1; asked > 0; {
		if err := p.spread(); err != nil {
			return plan.Plan{}, err
		}
		if asked, err = p.resolveBases(ctx, resolve); err != nil {
			return plan.Plan{}, err
		}
	}
	p.arrange()
	result, err := p.stages()
	if err != nil {
		return plan.Plan{}, err
	}
	p.warnUnusedArgs()
	result.Result = p.places[target]
	return result, nil
}

// planner makes one plan.
type planner struct {
	tree     *tree
	options  Options
	platform platform
	globals  *variables // ARGs above the first FROM, and the platform's
	bases    []plan.Source
	needed   []bool
	places   []int // of a needed stage in the plan
	order    []int // needed stages, in the order of the file
	configs  map[baseKey]plan.Config
	used     map[string]bool // names of ARGs that the file declares
}

// baseKey names a base that is resolved: Source without what cannot be compared.
type baseKey struct{ image, template string }

func keyOf(s plan.Source) baseKey { return baseKey{s.Image, s.Template} }

// platform is what sandboxes run.
type platform struct{ os, arch, variant string }

// platformOf reads "linux/arm64/v8". The zero text is this machine: sandboxes are Linux on each.
func platformOf(text string) platform {
	if text == "" {
		return platform{os: "linux", arch: runtime.GOARCH}
	}
	parts := strings.SplitN(strings.ToLower(text), "/", 3)
	for len(parts) < 3 {
		parts = append(parts, "")
	}
	p := platform{os: parts[0], arch: parts[1], variant: parts[2]}
	switch p.arch {
	case "x86_64", "x86-64":
		p.arch = "amd64"
	case "aarch64":
		p.arch = "arm64"
	}
	if p.arch == "amd64" && p.variant == "v1" || p.arch == "arm64" && p.variant == "v8" {
		p.variant = "" // the names of each without a variant
	}
	return p
}

func (p platform) String() string {
	if p.variant != "" {
		return p.os + "/" + p.arch + "/" + p.variant
	}
	return p.os + "/" + p.arch
}

// setGlobals gives the variables that FROM lines see.
func (p *planner) setGlobals() {
	p.used = map[string]bool{}
	p.globals = newVariables()
	for _, side := range []string{"BUILD", "TARGET"} {
		p.globals.set(side+"PLATFORM", p.platform.String())
		p.globals.set(side+"OS", p.platform.os)
		p.globals.set(side+"ARCH", p.platform.arch)
		p.globals.set(side+"VARIANT", p.platform.variant)
	}
	stage := p.options.Target
	if stage == "" {
		stage = "default"
	}
	p.globals.set("TARGETSTAGE", stage)
}

// expandBases evaluates the ARGs above the first FROM, and every FROM.
func (p *planner) expandBases() error {
	lex := shell.NewLex(p.tree.escape)
	for i := range p.tree.meta {
		arg := &p.tree.meta[i]
		if err := p.globalArg(lex, arg); err != nil {
			return err
		}
	}
	p.bases = make([]plan.Source, len(p.tree.stages))
	for i := range p.tree.stages {
		s := &p.tree.stages[i]
		line := lineOf(s.Location)
		name, err := expandWord(lex, s.BaseName, p.globals, line)
		if err != nil {
			return err
		}
		if name == "" {
			return hinted(lineError(carrel.Invalid, line,
				"FROM %s is empty after its variables are filled in", s.BaseName),
				"give the ARG a default above the first FROM, or use --build-arg")
		}
		if p.bases[i], err = p.source(name, i); err != nil {
			return hinted(lineError(carrel.Invalid, line, "FROM %s: %v", name, err), carrel.HintOf(err))
		}
		if s.Platform, err = expandWord(lex, s.Platform, p.globals, line); err != nil {
			return err
		}
	}
	return nil
}

// globalArg evaluates one ARG instruction above the first FROM.
func (p *planner) globalArg(lex *shell.Lex, arg *instructions.ArgCommand) error {
	line := lineOf(arg.Location())
	for _, kv := range arg.Args {
		p.used[kv.Key] = true
		if v, ok := p.options.Args[kv.Key]; ok {
			p.globals.set(kv.Key, v)
			continue
		}
		if kv.Value == nil {
			continue
		}
		v, err := expandWord(lex, *kv.Value, p.globals, line)
		if err != nil {
			return err
		}
		p.globals.set(kv.Key, v)
	}
	return nil
}

// source says what a name in FROM or --from stands for, seen from a stage: an earlier stage, a
// template, an image or nothing at all.
func (p *planner) source(name string, from int) (plan.Source, error) {
	if name == "scratch" {
		return plan.Source{Scratch: true}, nil
	}
	for i := from - 1; i >= 0; i-- {
		if s := p.tree.stages[i].Name; s != "" && strings.EqualFold(s, name) {
			return plan.Source{Stage: i + 1}, nil
		}
	}
	if ref, ok := strings.CutPrefix(name, TemplatePrefix); ok {
		if _, err := carrel.ParseTemplateRef(ref); err != nil {
			return plan.Source{}, err
		}
		return plan.Source{Template: ref}, nil
	}
	if strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return plan.Source{}, fmt.Errorf("%q is not the name of an image", name)
	}
	return plan.Source{Image: strings.TrimPrefix(name, "docker-image://")}, nil
}

// copySource is source for --from, which may also be the number of an earlier stage. A stage that
// is not made yet has no files.
func (p *planner) copySource(name string, from, line int) (plan.Source, error) {
	if n, err := strconv.Atoi(name); err == nil {
		switch {
		case n >= 0 && n < from:
			return plan.Source{Stage: n + 1}, nil
		case n == from:
			return plan.Source{}, lineError(carrel.Invalid, line, "--from=%s is this stage itself", name)
		}
		return plan.Source{}, lineError(carrel.Invalid, line,
			"--from=%s: there is no stage %d above this one", name, n)
	}
	for i := from; i < len(p.tree.stages); i++ {
		s := p.tree.stages[i].Name
		if s == "" || !strings.EqualFold(s, name) {
			continue
		}
		if _, earlier := instructions.HasStage(p.tree.stages[:from], name); earlier {
			break
		}
		return plan.Source{}, hinted(lineError(carrel.Invalid, line,
			"--from=%s: stage %s is not above this one", name, s),
			"move the stage up")
	}
	src, err := p.source(name, from)
	if err != nil {
		return plan.Source{}, hinted(lineError(carrel.Invalid, line, "--from=%s: %v", name, err),
			carrel.HintOf(err))
	}
	if src.Scratch {
		return plan.Source{}, lineError(carrel.Invalid, line, "--from=scratch: scratch has no files")
	}
	return src, nil
}

// target returns the index of the stage that becomes the template.
func (p *planner) target() (int, error) {
	name := p.options.Target
	if name == "" {
		return len(p.tree.stages) - 1, nil
	}
	for i, s := range slices.Backward(p.tree.stages) {
		if s.Name != "" && strings.EqualFold(s.Name, name) {
			return i, nil
		}
	}
	if n, err := strconv.Atoi(name); err == nil && n >= 0 && n < len(p.tree.stages) {
		return n, nil
	}
	var names []string
	for i := range p.tree.stages {
		names = append(names, stageName(p.tree.stages, i))
	}
	return 0, hinted(&carrel.Error{Op: "Dockerfile", Kind: carrel.Invalid, Field: "target",
		Err: fmt.Errorf("there is no stage %q", name)}, "the stages are "+strings.Join(names, ", "))
}

// spread marks the stages that the marked ones need. A stage refers to earlier ones only, so one
// pass is enough.
func (p *planner) spread() error {
	for i := len(p.needed) - 1; i >= 0; i-- {
		if !p.needed[i] {
			continue
		}
		if err := p.checkPlatform(i); err != nil {
			return err
		}
		for _, src := range append(p.filesOf(i), p.bases[i]) {
			if src.Stage > 0 {
				p.needed[src.Stage-1] = true
			}
		}
	}
	return nil
}

// arrange gives the needed stages their places in the plan.
func (p *planner) arrange() {
	p.places = make([]int, len(p.needed))
	for i, yes := range p.needed {
		if yes {
			p.places[i] = len(p.order)
			p.order = append(p.order, i)
		}
	}
}

// filesOf lists the sources that the steps of a stage copy or mount from. Wrong ones are left
// out: the step itself reports them.
func (p *planner) filesOf(stage int) []plan.Source {
	var all []plan.Source
	add := func(name string) {
		if name == "" {
			return
		}
		if src, err := p.copySource(name, stage, 0); err == nil {
			all = append(all, src)
		}
	}
	commands := p.tree.stages[stage].Commands
	for _, t := range p.triggersOf(stage) {
		if c, err := parseTrigger(t); err == nil {
			commands = append(slices.Clone(commands), c)
		}
	}
	for _, c := range commands {
		switch c := c.(type) {
		case *instructions.CopyCommand:
			add(c.From)
		case *instructions.RunCommand:
			for _, m := range instructions.GetMounts(c) {
				add(m.From)
			}
		}
	}
	return all
}

// triggersOf lists the ONBUILD instructions of a stage's base. Those of an image are known once
// it is resolved.
func (p *planner) triggersOf(stage int) []string {
	base := p.bases[stage]
	if base.Stage == 0 {
		return p.configs[keyOf(base)].OnBuild
	}
	var all []string
	for _, c := range p.tree.stages[base.Stage-1].Commands {
		if c, ok := c.(*instructions.OnbuildCommand); ok {
			all = append(all, c.Expression)
		}
	}
	return all
}

// checkPlatform refuses a stage that is for another kind of machine.
func (p *planner) checkPlatform(stage int) error {
	s := &p.tree.stages[stage]
	if s.Platform == "" || platformOf(s.Platform) == p.platform {
		return nil
	}
	return hinted(lineError(carrel.Unsupported, lineOf(s.Location),
		"FROM --platform=%s: this machine builds and runs %s only",
		s.Platform, p.platform), "remove --platform, or build on a machine of that kind")
}

// resolveBases asks for the configurations of the needed bases outside this file, each once. It
// returns how many it asked for.
func (p *planner) resolveBases(ctx context.Context, resolve Resolver) (int, error) {
	lines := map[baseKey]int{}
	var keys []baseKey
	for i, needed := range p.needed {
		key := keyOf(p.bases[i])
		_, known := p.configs[key]
		_, seen := lines[key]
		if needed && !known && !seen && key != (baseKey{}) {
			lines[key] = lineOf(p.tree.stages[i].Location)
			keys = append(keys, key)
		}
	}
	configs := make([]plan.Config, len(keys))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(maxResolves)
	for n, key := range keys {
		group.Go(func() (err error) {
			configs[n], err = resolve(ctx, plan.Source{Image: key.image, Template: key.template})
			if err != nil {
				return baseError(lines[key], key, err)
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return 0, err
	}
	for n, key := range keys {
		p.configs[key] = configs[n]
	}
	return len(keys), nil
}

// baseError says which FROM a failure belongs to.
func baseError(line int, key baseKey, err error) error {
	name := key.image
	if key.template != "" {
		name = TemplatePrefix + key.template
	}
	where := &located{line: line, text: fmt.Sprintf("FROM %s: %v", name, err), cause: err}
	return &carrel.Error{Op: "Dockerfile", Kind: carrel.KindOf(err), Err: where,
		Hint: carrel.HintOf(err)}
}

// ignoredArg reports whether an argument needs no ARG: tools set it, or every RUN gets it.
func ignoredArg(name string) bool {
	return strings.HasPrefix(name, "BUILDKIT_") || name == "SOURCE_DATE_EPOCH" ||
		slices.Contains(proxyArgs, name)
}

// warnUnusedArgs names the arguments that no ARG asks for: usually a slip of the pen.
func (p *planner) warnUnusedArgs() {
	var unused []string
	for name := range p.options.Args {
		if !p.used[name] && !ignoredArg(name) {
			unused = append(unused, name)
		}
	}
	sort.Strings(unused)
	for _, name := range unused {
		p.options.Warn(Warning{Text: fmt.Sprintf("no ARG %s takes the build argument %s", name, name)})
	}
}
