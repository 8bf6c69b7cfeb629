package build

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/carrel-dev/carrel"
)

const (
	opBuild  = "build template"
	opCreate = "create template"
)

// Bounds of a request.
const (
	maxSteps      = 1000
	maxText       = 1 << 20 // a Dockerfile
	maxStepText   = 128 << 10
	maxTags       = 50
	maxSecrets    = 100
	maxMemoryMB   = 1 << 20
	maxListed     = 100
	maxContext    = 32 << 30
	maxCtxEntries = 2_000_000
)

func invalid(op, field, format string, args ...any) error {
	return &carrel.Error{Op: op, Kind: carrel.Invalid, Field: field, Err: fmt.Errorf(format, args...)}
}

// NewBuild makes a build that waits for its start.
func (e *Engine) NewBuild(ctx context.Context, spec carrel.BuildSpec) (carrel.Build, error) {
	if spec.ID != "" {
		return carrel.Build{}, invalid(opCreate, "id", "a new build gets its ID here")
	}
	j, err := e.newBuild(ctx, opCreate, spec)
	if err != nil {
		return carrel.Build{}, err
	}
	if err := j.save(); err != nil {
		e.forget(j)
		return carrel.Build{}, &carrel.Error{Op: opCreate, Kind: carrel.Internal, Err: err}
	}
	return j.public(), nil
}

// StartBuild implements carrel.Builder.
func (e *Engine) StartBuild(ctx context.Context, spec carrel.BuildSpec) (carrel.Build, error) {
	if err := e.checkSpec(ctx, &spec); err != nil {
		return carrel.Build{}, err
	}
	var j *job
	var err error
	if spec.ID == "" {
		j, err = e.newBuild(ctx, opBuild, spec)
	} else {
		j, err = e.find(opBuild, spec.ID)
	}
	if err != nil {
		return carrel.Build{}, err
	}
	fail := func(err error) (carrel.Build, error) {
		if spec.ID == "" { // nobody knows it yet
			e.forget(j)
		}
		return carrel.Build{}, err
	}
	if spec.Context != nil {
		if err := keepContext(ctx, filepath.Join(j.dir, contextFile), spec.Context); err != nil {
			return fail(err)
		}
	}
	if err := j.begin(spec); err != nil {
		return fail(err)
	}
	if err := e.enqueue(opBuild, j); err != nil {
		if spec.ID != "" {
			j.end(carrel.BuildError, &carrel.BuildReason{Message: err.Error(), Hint: carrel.HintOf(err)})
		}
		return fail(err)
	}
	return j.public(), nil
}

// begin notes what a build is made of. Error: Conflict, if it has begun already.
func (j *job) begin(spec carrel.BuildSpec) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.rec.Begun || j.rec.Build.State != carrel.BuildWaiting {
		return &carrel.Error{Op: opBuild, Kind: carrel.Conflict, Field: "buildID",
			Err:  errors.New("the build was started before"),
			Hint: "ask for a new build of the template"}
	}
	j.secrets, j.registries = spec.Secrets, spec.Registries
	old := j.rec.Spec
	spec.Context, spec.Secrets, spec.Registries = nil, nil, nil
	spec.ID, spec.Name, spec.Tags, spec.Public = "", old.Name, old.Tags, old.Public
	if spec.CPUs == 0 {
		spec.CPUs = old.CPUs
	}
	if spec.MemoryMB == 0 {
		spec.MemoryMB = old.MemoryMB
	}
	if spec.DiskMB == 0 {
		spec.DiskMB = old.DiskMB
	}
	if spec.MinFreeDiskMB == 0 {
		spec.MinFreeDiskMB = old.MinFreeDiskMB
	}
	j.rec.Spec, j.rec.Begun, j.rec.Sealed = spec, true, len(j.secrets)+len(j.registries) > 0
	if err := j.save(); err != nil {
		return &carrel.Error{Op: opBuild, Kind: carrel.Internal, Err: err}
	}
	return nil
}

// newBuild makes a build's record, which is not on the disk yet.
func (e *Engine) newBuild(ctx context.Context, op string, spec carrel.BuildSpec) (*job, error) {
	project := carrel.CallerOf(ctx).Project
	name, tags, err := e.nameAndTags(op, spec)
	if err != nil {
		return nil, err
	}
	if err := checkSize(op, spec); err != nil {
		return nil, err
	}
	spec.Name, spec.Tags, spec.Context = name, tags, nil
	kept := spec
	kept.Secrets, kept.Registries, kept.Instructions, kept.Dockerfile = nil, nil, nil, ""
	b := carrel.Build{ID: newBuildID(), TemplateID: e.lastingID(project, name), Name: name, Tags: tags,
		Project: project, State: carrel.BuildWaiting,
		Created: time.Now().UTC(), CPUs: spec.CPUs, MemoryMB: spec.MemoryMB, DiskMB: spec.DiskMB}
	j, err := newJob(e.opts.Dir, record{Build: b, Spec: kept, KeyID: carrel.CallerOf(ctx).KeyID})
	if err != nil {
		return nil, &carrel.Error{Op: op, Kind: carrel.Internal, Err: err}
	}
	e.mu.Lock()
	e.jobs[b.ID] = j
	e.mu.Unlock()
	return j, nil
}

// lastingID returns the lasting ID of a template, and gives one to a new template.
func (e *Engine) lastingID(project, name string) string {
	e.mu.Lock()
	defer e.mu.Unlock()
	own := ownName{project, name}
	if t, ok := e.opts.Images.Named(project, name); ok && !t.BuiltIn {
		e.ids[own] = t.LastingID()
	}
	if e.ids[own] == "" {
		e.ids[own] = newTemplateID()
	}
	return e.ids[own]
}

// newTemplateID returns twenty random letters and digits.
func newTemplateID() string {
	const alphabet = "abcdefghijklmnopqrstuvwxyz0123456789"
	id := make([]byte, 0, 20)
	for len(id) < cap(id) {
		var b [32]byte
		_, _ = rand.Read(b[:]) // never fails: crypto/rand aborts the process instead
		for _, c := range b {
			if c < 252 && len(id) < cap(id) { // so that all are equally likely
				id = append(id, alphabet[c%36])
			}
		}
	}
	return string(id)
}

// forget removes a build that nobody knows.
func (e *Engine) forget(j *job) {
	e.mu.Lock()
	delete(e.jobs, j.public().ID)
	e.mu.Unlock()
	j.remove()
}

// nameAndTags checks a template's name, which may have a tag, and the tags. The result has no tag
// default: that is "".
func (e *Engine) nameAndTags(op string, spec carrel.BuildSpec) (string, []string, error) {
	name, tag, tagged := strings.Cut(spec.Name, ":")
	tags := slices.Clone(spec.Tags)
	if tagged {
		tags = append(tags, tag)
	}
	if err := e.opts.Images.CheckName(op, name); err != nil {
		return "", nil, err
	}
	if len(tags) == 0 {
		tags = []string{defaultTag}
	}
	if err := checkTags(op, tags); err != nil {
		return "", nil, err
	}
	slices.Sort(tags)
	return name, slices.Compact(tags), nil
}

// defaultTag is the tag that a name alone means.
const defaultTag = "default"

// checkTags checks tags of a template.
func checkTags(op string, tags []string) error {
	if len(tags) > maxTags {
		return invalid(op, "tags", "%d tags, at most %d may be", len(tags), maxTags)
	}
	for _, tag := range tags {
		ref, err := carrel.ParseTemplateRef("x:" + tag)
		if err != nil || ref.String() != "x:"+tag {
			return &carrel.Error{Op: op, Kind: carrel.Invalid, Field: "tags",
				Err:  fmt.Errorf("%.100q is no tag", tag),
				Hint: "a tag is of letters, digits and . _ -"}
		}
	}
	return nil
}

// checkSize checks the size of a template's sandboxes.
func checkSize(op string, spec carrel.BuildSpec) error {
	for field, n := range map[string]float64{"cpus": spec.CPUs, "memoryMB": float64(spec.MemoryMB),
		"diskMB":        float64(spec.DiskMB),
		"minFreeDiskMB": float64(spec.MinFreeDiskMB), "timeout": float64(spec.Timeout),
		"stepTimeout": float64(spec.StepTimeout)} {
		if n < 0 {
			return invalid(op, field, "it is negative")
		}
	}
	if spec.CPUs > 1024 || spec.MemoryMB > maxMemoryMB {
		return invalid(op, "memoryMB", "more than any machine has")
	}
	return nil
}

// checkSpec checks everything that can be checked before the build runs.
func (e *Engine) checkSpec(ctx context.Context, spec *carrel.BuildSpec) error {
	steps := spec.FromImage != "" || spec.FromTemplate != "" || len(spec.Instructions) > 0
	switch {
	case spec.Dockerfile == "" && !steps:
		return invalid(opBuild, "dockerfile",
			"missing, and fromImage and fromTemplate too: nothing to build")
	case spec.Dockerfile != "" && steps:
		return invalid(opBuild, "dockerfile", "given beside fromImage, fromTemplate or instructions")
	case spec.FromImage != "" && spec.FromTemplate != "":
		return invalid(opBuild, "fromTemplate", "given beside fromImage")
	case len(spec.Dockerfile) > maxText:
		return invalid(opBuild, "dockerfile", "%d bytes, at most %d may be", len(spec.Dockerfile),
			maxText)
	case spec.Dockerfile != "" && e.opts.Planner == nil:
		return &carrel.Error{Op: opBuild, Kind: carrel.Unsupported, Field: "dockerfile",
			Err: errors.New("this service reads no Dockerfiles")}
	case len(spec.Secrets) > maxSecrets:
		return invalid(opBuild, "secrets", "%d secrets, at most %d may be", len(spec.Secrets), maxSecrets)
	case spec.Dockerfile == "" && (spec.Target != "" || len(spec.Args) > 0 || len(spec.Secrets) > 0):
		return invalid(opBuild, "target", "targets, arguments and secrets are of a Dockerfile")
	}
	if _, err := e.tier(ctx, spec.Tier); err != nil {
		return err
	}
	if err := checkSize(opBuild, *spec); err != nil {
		return err
	}
	return e.checkInstructions(ctx, spec.Instructions)
}

// tier chooses the tier of a build's sandboxes.
func (e *Engine) tier(ctx context.Context, asked carrel.Tier) (carrel.Tier, error) {
	tiers := e.tiers.get(ctx, asked, e.opts.Tiers)
	switch {
	case asked == carrel.Sim:
		return "", &carrel.Error{Op: opBuild, Kind: carrel.Unsupported, Field: "tier",
			Err:  errors.New("simulated sandboxes run no real programs, so nothing can be built in them"),
			Hint: "leave the tier out: the best one of this machine is taken"}
	case asked == "" && len(tiers) == 0:
		return "", &carrel.Error{Op: opBuild, Kind: carrel.Unsupported, Field: "tier",
			Err:  errors.New("no tier of real sandboxes works on this machine"),
			Hint: "see: carrel doctor"}
	case asked == "":
		return tiers[0], nil
	case !slices.Contains(tiers, asked):
		return "", &carrel.Error{Op: opBuild, Kind: carrel.Unsupported, Field: "tier",
			Err:  fmt.Errorf("sandboxes of tier %q do not work on this machine", asked),
			Hint: "see: carrel doctor"}
	}
	return asked, nil
}

// find finds a build.
func (e *Engine) find(op, id string) (*job, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	j := e.jobs[id]
	if j == nil {
		return nil, &carrel.Error{Op: op, Kind: carrel.NotFound, Field: "buildID",
			Err: fmt.Errorf("no build %.100q", id), Hint: "'carrel build ls' lists them"}
	}
	return j, nil
}

// GetBuild implements carrel.Builder.
func (e *Engine) GetBuild(_ context.Context, id string) (carrel.Build, error) {
	j, err := e.find("get build", id)
	if err != nil {
		return carrel.Build{}, err
	}
	return j.public(), nil
}

// ListBuilds implements carrel.Builder. It lists those that the caller may see.
func (e *Engine) ListBuilds(ctx context.Context,
	opts carrel.BuildListOptions) ([]carrel.Build, error) {
	c := carrel.CallerOf(ctx)
	var out []carrel.Build
	for _, j := range e.all() {
		if !c.Sees(j.project) {
			continue
		}
		b := j.public()
		if opts.Template != "" && opts.Template != b.Name && opts.Template != b.TemplateID &&
			opts.Template != b.Image {
			continue
		}
		if len(opts.States) > 0 && !slices.Contains(opts.States, b.State) {
			continue
		}
		out = append(out, b)
	}
	slices.SortFunc(out, func(x, y carrel.Build) int { return y.Created.Compare(x.Created) })
	if opts.Limit <= 0 {
		opts.Limit = maxListed
	}
	return out[:min(len(out), opts.Limit)], nil
}

// errCancelled is why a cancelled build ends.
var errCancelled = errors.New("somebody cancelled it")

// CancelBuild implements carrel.Builder.
func (e *Engine) CancelBuild(ctx context.Context, id string) (carrel.Build, error) {
	j, err := e.find("cancel build", id)
	if err != nil {
		return carrel.Build{}, err
	}
	e.mu.Lock()
	at := slices.Index(e.queue, j)
	if at >= 0 {
		e.queue = slices.Delete(e.queue, at, at+1)
	}
	e.mu.Unlock()
	if at >= 0 || !j.begun() {
		j.end(carrel.BuildCancelled, nil)
		return j.public(), nil
	}
	j.mu.Lock()
	j.wanted = true
	if j.cancel != nil {
		j.cancel(errCancelled)
	}
	j.mu.Unlock()
	select {
	case <-j.over:
		return j.public(), nil
	case <-ctx.Done():
		return j.public(), &carrel.Error{Op: "cancel build", Kind: carrel.TimedOut,
			Err: context.Cause(ctx)}
	}
}

// BuildLogs implements carrel.Builder.
func (e *Engine) BuildLogs(ctx context.Context, id string,
	opts carrel.BuildLogOptions) iter.Seq2[carrel.BuildLog, error] {
	return func(yield func(carrel.BuildLog, error) bool) {
		j, err := e.find("read build log", id)
		if err == nil && levels[opts.MinLevel] == 0 && opts.MinLevel != "" &&
			opts.MinLevel != levelDebug {
			err = invalid("read build log", "level", "%.100q is no level: debug, info, warn or error",
				opts.MinLevel)
		}
		if err != nil {
			yield(carrel.BuildLog{}, err)
			return
		}
		var at int64
		left := opts.Limit
		for {
			changed := j.changed()
			over := false
			select {
			case <-j.over:
				over = true
			default:
			}
			next, more, err := j.lines(at, func(l carrel.BuildLog) bool {
				if levels[l.Level] < levels[opts.MinLevel] {
					return true
				}
				if opts.Offset > 0 {
					opts.Offset--
					return true
				}
				left--
				return yield(l, nil) && left != 0
			})
			at = next
			switch {
			case err != nil:
				yield(carrel.BuildLog{}, &carrel.Error{Op: "read build log", Kind: carrel.Internal, Err: err})
				return
			case !more, !opts.Follow, over:
				return
			}
			select {
			case <-changed:
			case <-ctx.Done():
				return
			case <-e.ctx.Done():
				yield(carrel.BuildLog{}, &carrel.Error{Op: "read build log", Kind: carrel.Unavailable,
					Err: errors.New("the service is closing")})
				return
			}
		}
	}
}

// keepContext writes a context's archive into a file, as a plain tar stream.
func keepContext(ctx context.Context, name string, r io.Reader) (err error) {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return &carrel.Error{Op: opBuild, Kind: carrel.Internal, Err: err}
	}
	defer func() {
		if err = errors.Join(err, f.Close()); err != nil {
			_ = os.Remove(name)
		}
	}()
	return normalize(ctx, f, r)
}
