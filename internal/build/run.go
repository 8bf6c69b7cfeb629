package build

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/build/plan"
	"github.com/carrel-dev/carrel/internal/failpoint"
)

// The moments of a build at which tests kill the daemon.
const (
	pointBegun    = "build.begun"    // nothing is done yet
	pointBase     = "build.base"     // the bases are there
	pointStepped  = "build.stepped"  // a command has ended, its layer is not kept yet
	pointKept     = "build.kept"     // the layer is kept
	pointComposed = "build.composed" // the image is there, the record does not say so
	pointTagged   = "build.tagged"   // all tags point to it
)

// FailPoints lists the moments at which tests kill the daemon, by their names in package failpoint.
func FailPoints() []string {
	return []string{pointBegun, pointBase, pointStepped, pointKept, pointComposed, pointTagged}
}

// Names of steps that are in no file.
const (
	stepBase     = "base"
	stepFinalize = "finalize"
)

// stepError is an error of a step.
type stepError struct {
	step string
	line int
	err  error
}

func (e *stepError) Error() string { return e.err.Error() }
func (e *stepError) Unwrap() error { return e.err }

// at says in which step an error happened. An inner step stays.
func at(step string, line int, err error) error {
	var inner *stepError
	if err == nil || errors.As(err, &inner) {
		return err
	}
	return &stepError{step, line, err}
}

// run is one build under way.
type run struct {
	e      *Engine
	j      *job
	spec   carrel.BuildSpec
	tier   carrel.Tier
	redact *strings.Replacer

	plan   plan.Plan
	stages []*stage
	holds  holds // of everything that the build goes on from

	mu      sync.Mutex
	bases   map[string]*base
	context *archiveTree // nil until it is needed
}

// stage is one stage under way.
type stage struct {
	plan  plan.Stage
	name  string
	index []int // of each step in the build's Steps; −1 for one that is not shown
	done  chan struct{}
	made  made
	err   error
}

// made is the result of a stage, or of a part of it.
type made struct {
	image  string            // ID of the image below
	layer  carrel.SnapshotID // "" for the image itself
	key    string
	config plan.Config
}

// make runs a build to its end.
func (e *Engine) make(j *job) {
	spec := j.spec()
	timeout := min(cmp.Or(spec.Timeout, e.opts.Timeout), e.opts.Timeout)
	ctx, stop := context.WithTimeoutCause(e.ctx, timeout,
		fmt.Errorf("the build did not end within %v", timeout))
	defer stop()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	ctx = carrel.WithCaller(ctx, carrel.Caller{Key: "build", Project: j.project,
		Role: carrel.RoleMember})
	j.mu.Lock()
	if j.cancel = cancel; j.wanted {
		cancel(errCancelled)
	}
	j.mu.Unlock()
	defer j.close()
	j.set(func(b *carrel.Build) {
		b.State = carrel.BuildBuilding
		if b.Started.IsZero() {
			b.Started = time.Now().UTC()
		}
	})
	r := &run{e: e, j: j, spec: spec, bases: map[string]*base{}, redact: redactor(j)}
	err := r.build(ctx)
	r.holds.release()
	if r.context != nil {
		_ = r.context.Close() // it was only read
	}
	switch {
	case err == nil:
		j.end(carrel.BuildReady, nil)
	case errors.Is(context.Cause(ctx), errCancelled):
		j.end(carrel.BuildCancelled, nil)
	case e.ctx.Err() != nil: // the next engine goes on
	default:
		j.end(carrel.BuildError, r.reason(ctx, err))
	}
	e.trimLayers()
}

// reason explains a failure.
func (r *run) reason(ctx context.Context, err error) *carrel.BuildReason {
	out := &carrel.BuildReason{Hint: carrel.HintOf(err)}
	var se *stepError
	if errors.As(err, &se) {
		out.Step, out.Line = se.step, se.line
	}
	var file interface{ FileLine() int } // of a planner
	if out.Line == 0 && errors.As(err, &file) {
		out.Line = file.FileLine()
	}
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	out.Message = r.redact.Replace(strings.ToValidUTF8(err.Error(), "�"))
	return out
}

// redactor returns the replacer that takes a build's secrets out of texts.
func redactor(j *job) *strings.Replacer {
	var pairs []string
	add := func(values ...string) {
		for _, v := range values {
			for _, l := range append(strings.Split(v, "\n"), v) {
				if l = strings.TrimSpace(l); len(l) >= 4 {
					pairs = append(pairs, l, "***")
				}
			}
		}
	}
	add(slices.Collect(maps.Values(j.secrets))...)
	for _, c := range j.registries {
		add(c.Password, c.AWSSecretAccessKey, c.ServiceAccountJSON)
	}
	return strings.NewReplacer(pairs...)
}

// diskMB is the disk of the build's sandboxes.
func (r *run) diskMB() int { return max(r.spec.DiskMB, r.spec.MinFreeDiskMB) }

// network is the policy of the build's sandboxes.
func (r *run) network() carrel.Network {
	if r.spec.Network != nil {
		return *r.spec.Network
	}
	return r.e.opts.Network
}

// build makes the template.
func (r *run) build(ctx context.Context) (err error) {
	if r.tier, err = r.e.tier(ctx, r.spec.Tier); err != nil {
		return err
	}
	if err := failpoint.Hit(pointBegun); err != nil {
		return err
	}
	if r.plan, err = r.makePlan(ctx); err != nil {
		return err
	}
	if err := r.checkPlan(); err != nil {
		return err
	}
	_ = failpoint.Hit(pointBase)
	needed := r.needed()
	r.show(needed)
	g, gctx := errgroup.WithContext(ctx)
	for i := range r.stages {
		if !needed[i] {
			continue
		}
		g.Go(func() error {
			st := r.stages[i]
			defer close(st.done)
			st.made, st.err = r.makeStage(gctx, st)
			return st.err
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	return at(stepFinalize, 0, r.finish(ctx, r.stages[r.plan.Result].made))
}

// makePlan makes the plan.
func (r *run) makePlan(ctx context.Context) (plan.Plan, error) {
	spec := r.spec
	if spec.Dockerfile != "" {
		return r.e.opts.Planner(ctx, PlanRequest{Dockerfile: spec.Dockerfile, Args: spec.Args,
			Target:  spec.Target,
			Secrets: slices.Sorted(maps.Keys(r.j.secrets)),
			Warn:    func(text string) { r.j.write(line(levelWarn, "", r.redact.Replace(text))) },
			Resolve: func(ctx context.Context, from plan.Source) (plan.Config, error) {
				b, err := r.base(ctx, from)
				return b.config, err
			}})
	}
	from := plan.Source{Image: spec.FromImage, Template: spec.FromTemplate}
	if spec.FromImage == "" && spec.FromTemplate == "" {
		from.Template = "base"
	}
	b, err := r.base(ctx, from)
	if err != nil {
		return plan.Plan{}, at(stepBase, 0, err)
	}
	return instructionsPlan(spec, from, b.config)
}

// checkPlan checks that a plan refers to what is there.
func (r *run) checkPlan() error {
	n := len(r.plan.Stages)
	if n == 0 || r.plan.Result < 0 || r.plan.Result >= n {
		return &carrel.Error{Op: opBuild, Kind: carrel.Internal,
			Err: errors.New("the plan has no result")}
	}
	for i, st := range r.plan.Stages {
		for _, from := range sources(st) {
			if from.Stage < 0 || from.Stage > i {
				return at(stepBase, st.Line, &carrel.Error{Op: opBuild, Kind: carrel.Invalid,
					Err: fmt.Errorf("stage %d refers to a stage that is not before it", i+1)})
			}
		}
	}
	return nil
}

// sources lists everything that a stage takes files from.
func sources(st plan.Stage) []plan.Source {
	out := []plan.Source{st.From}
	for _, s := range st.Steps {
		switch op := s.Op.(type) {
		case *plan.Copy:
			out = append(out, op.From)
		case *plan.Run:
			for _, m := range op.Mounts {
				out = append(out, m.From)
			}
		}
	}
	return out
}

// needed marks the stages that the result needs.
func (r *run) needed() []bool {
	out := make([]bool, len(r.plan.Stages))
	var mark func(i int)
	mark = func(i int) {
		if out[i] {
			return
		}
		out[i] = true
		for _, from := range sources(r.plan.Stages[i]) {
			if from.Stage > 0 {
				mark(from.Stage - 1)
			}
		}
	}
	mark(r.plan.Result)
	return out
}

// show lists the steps in the build's record.
func (r *run) show(needed []bool) {
	var steps []carrel.BuildStep
	for i, p := range r.plan.Stages {
		st := &stage{plan: p, name: p.Name, done: make(chan struct{})}
		for _, s := range p.Steps {
			if s.Text == "" {
				st.index = append(st.index, -1)
				continue
			}
			if needed[i] {
				st.index = append(st.index, len(steps))
				steps = append(steps, carrel.BuildStep{Text: r.redact.Replace(s.Text), Stage: p.Name,
					Line: s.Line, State: carrel.BuildWaiting})
			} else {
				st.index = append(st.index, -1)
			}
		}
		r.stages = append(r.stages, st)
	}
	r.j.set(func(b *carrel.Build) { b.Steps = steps })
}

// stepName is the number of a step, for people and for E2B's SDKs.
func (st *stage) stepName(i int) string {
	for ; i >= 0; i-- {
		if st.index[i] >= 0 {
			return strconv.Itoa(st.index[i] + 1)
		}
	}
	return stepBase
}

// result waits for another stage.
func (r *run) result(ctx context.Context, stageNumber int) (made, error) {
	st := r.stages[stageNumber-1]
	select {
	case <-st.done:
		return st.made, st.err
	case <-ctx.Done():
		return made{}, context.Cause(ctx)
	}
}

// contextTree opens the build's context.
func (r *run) contextTree() (*archiveTree, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.context != nil {
		return r.context, nil
	}
	name := filepath.Join(r.j.dir, contextFile)
	if _, err := os.Stat(name); errors.Is(err, os.ErrNotExist) {
		return nil, &carrel.Error{Op: opBuild, Kind: carrel.Invalid, Field: "context",
			Err: errors.New("the build has no context: no files were sent with it")}
	}
	t, err := openArchive(name)
	if err == nil {
		r.context = t
	}
	return t, err
}
