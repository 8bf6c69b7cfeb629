package build

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/build/plan"
	"github.com/carrel-dev/carrel/internal/bundle"
	"github.com/carrel-dev/carrel/internal/failpoint"
)

// keyVersion changes when equal steps begin to give other files.
const keyVersion = "carrel-build-1"

// makeStage carries a stage out, from the last step whose layer is there.
func (r *run) makeStage(ctx context.Context, st *stage) (made, error) {
	now, err := r.stageBase(ctx, st)
	if err != nil {
		return made{}, at(stepBase, st.plan.Line, err)
	}
	keys, forced, err := r.stageKeys(ctx, st, now)
	if err != nil {
		return made{}, err
	}
	first := 0
	for i := forced - 1; i >= 0; i-- {
		if !changes(st.plan.Steps[i]) {
			continue
		}
		if layer, ok := r.cached(keys[i]); ok {
			now.layer, now.key, first = layer, keys[i], i+1
			break
		}
	}
	for i := range first {
		now.config = st.plan.Steps[i].Config
		r.mark(st, i, func(s *carrel.BuildStep) {
			s.State, s.Key, s.Cached = carrel.BuildReady, keys[i], changes(st.plan.Steps[i])
		})
		if text := st.plan.Steps[i].Text; text != "" && changes(st.plan.Steps[i]) {
			r.j.write(line(levelInfo, st.stepName(i), r.redact.Replace("CACHED "+text)))
		}
	}
	return r.steps(ctx, st, now, keys, first)
}

// steps carries out the steps from first on.
func (r *run) steps(ctx context.Context, st *stage, now made, keys []string,
	first int) (_ made, err error) {
	var w *workshop
	defer func() {
		if w != nil {
			w.close(ctx)
		}
	}()
	last := -1 // the last step that changes files
	for i := first; i < len(st.plan.Steps); i++ {
		if changes(st.plan.Steps[i]) {
			last = i
		}
	}
	for i := first; i < len(st.plan.Steps); i++ {
		s := st.plan.Steps[i]
		began := time.Now()
		if s.Text != "" {
			r.j.write(line(levelInfo, st.stepName(i), r.redact.Replace(s.Text)))
		}
		r.mark(st, i, func(b *carrel.BuildStep) { b.State, b.Key = carrel.BuildBuilding, keys[i] })
		if changes(s) {
			if w == nil {
				r.j.keep() // from here on it takes long
				if w, err = r.openWorkshop(ctx, now.image, now.layer); err != nil {
					return now, r.failed(ctx, st, i, err)
				}
			}
			if err := r.step(ctx, w, st, i); err != nil {
				return now, r.failed(ctx, st, i, w.explain(ctx, err))
			}
			_ = failpoint.Hit(pointStepped)
			if _, dir := s.Op.(*plan.Workdir); !dir || i == last {
				layer, release, err := w.keep(ctx, keys[i])
				if err != nil {
					return now, r.failed(ctx, st, i, w.explain(ctx, err))
				}
				r.holds.add(release)
				now.layer = layer.ID
				_ = failpoint.Hit(pointKept)
			}
		}
		now.key, now.config = keys[i], s.Config
		r.mark(st, i, func(b *carrel.BuildStep) {
			b.State, b.Took = carrel.BuildReady,
				time.Since(began)
		})
	}
	return now, nil
}

// failed marks a step as failed and names it.
func (r *run) failed(ctx context.Context, st *stage, i int, err error) error {
	r.mark(st, i, func(b *carrel.BuildStep) { b.State = carrel.BuildError })
	if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
		err = cause
	}
	return at(st.stepName(i), st.plan.Steps[i].Line, err)
}

// mark changes a step of the build's record, if the step is shown.
func (r *run) mark(st *stage, i int, change func(*carrel.BuildStep)) {
	if n := st.index[i]; n >= 0 {
		r.j.step(n, change)
	}
}

// changes reports whether a step changes files.
func changes(s plan.Step) bool { return s.Op != nil }

// stageBase returns where a stage begins.
func (r *run) stageBase(ctx context.Context, st *stage) (made, error) {
	from := st.plan.From
	if from.Stage > 0 {
		m, err := r.result(ctx, from.Stage)
		m.config = st.plan.Config
		return m, err
	}
	b, err := r.base(ctx, from)
	if err != nil {
		return made{}, err
	}
	m := b.made
	m.config, m.key = st.plan.Config, keyOf(keyVersion, b.key, r.tier)
	return m, nil
}

// cached finds the newest layer with a key, in the build's project, and holds it.
func (r *run) cached(key string) (carrel.SnapshotID, bool) {
	layers := slices.DeleteFunc(r.e.opts.Sandboxes.Layers(), func(l carrel.Snapshot) bool {
		return l.Detail != key || l.Project != r.j.project || l.Tier != r.tier
	})
	slices.SortFunc(layers, func(x, y carrel.Snapshot) int { return y.Created.Compare(x.Created) })
	for _, l := range layers {
		if release, ok := r.e.opts.Sandboxes.HoldLayer(l.ID); ok {
			r.holds.add(release)
			return l.ID, true
		}
	}
	return "", false
}

// stageKeys makes the key of each step. forced is the first step that must run whatever the cache
// has.
func (r *run) stageKeys(ctx context.Context, st *stage,
	now made) (keys []string, forced int, err error) {
	forced = len(st.plan.Steps)
	if r.spec.NoCache {
		forced = 0
	}
	key := now.key
	for i, s := range st.plan.Steps {
		if s.Force && i < forced {
			forced = i
		}
		switch op := s.Op.(type) {
		case *plan.Run:
			key, err = r.runKey(ctx, key, s, op)
		case *plan.Copy:
			var fixed bool
			if key, fixed, err = r.copyKey(ctx, key, op); !fixed {
				forced = min(forced, i)
			}
		case *plan.Workdir:
			key = keyOf(key, "workdir", op.Path, op.Owner)
		}
		if err != nil {
			r.mark(st, i, func(b *carrel.BuildStep) { b.State = carrel.BuildError })
			return nil, 0, r.failed(ctx, st, i, err)
		}
		keys = append(keys, key)
	}
	return keys, forced, nil
}

// runKey is the key after a command. Secrets have no part in it.
func (r *run) runKey(ctx context.Context, parent string, s plan.Step,
	op *plan.Run) (string, error) {
	var mounts []any
	for _, m := range op.Mounts {
		sum := ""
		if m.Kind == plan.MountBind {
			var err error
			if sum, _, err = r.sum(ctx, m.From, "", bundle.Selection{Paths: []string{cmp.Or(m.Path, ".")},
				Follow: true}); err != nil {
				return "", err
			}
		}
		mounts = append(mounts, []any{m.Kind, m.ID, m.Target, m.Env, sum, m.Mode, m.UID, m.GID})
	}
	return keyOf(parent, "run", op.Args, op.Stdin, op.Env, mounts, op.Offline, s.Config.Env,
		s.Config.Workdir, s.Config.User), nil
}

// copyKey is the key after files were copied. fixed is false for files that may have changed
// meanwhile without a sign of it: those of a URL without a checksum.
func (r *run) copyKey(ctx context.Context, parent string,
	op *plan.Copy) (key string, fixed bool, err error) {
	sum, single := "", false
	if len(op.Paths) > 0 {
		if sum, single, err = r.sum(ctx, op.From, op.Upload, selection(op)); err != nil {
			return "", false, err
		}
	}
	key = keyOf(parent, "copy", sum, single, op.URLs, op.Checksum, op.Inline, op.Target, op.Owner,
		op.Mode, op.Unpack, op.Parents)
	return key, len(op.URLs) == 0 || op.Checksum != "", nil
}

// selection says which files a COPY takes.
func selection(op *plan.Copy) bundle.Selection {
	return bundle.Selection{Paths: op.Paths, Exclude: op.Exclude, Parents: op.Parents,
		Follow: op.Upload == ""}
}

// sum names the content of the files that a selection takes. The files of another stage are named
// by the stage's key.
func (r *run) sum(ctx context.Context, from plan.Source, upload string,
	sel bundle.Selection) (sum string, single bool, err error) {
	if from.Stage > 0 {
		m, err := r.result(ctx, from.Stage)
		return keyOf(m.key, sel), false, err
	}
	if from.Image != "" || from.Template != "" {
		b, err := r.base(ctx, from)
		if err != nil {
			return "", false, err
		}
		return keyOf(b.key, sel), false, nil
	}
	var packed bundle.Packed
	err = r.tree(from, upload, func(t bundle.Tree) (err error) {
		packed, err = bundle.Pack(ctx, nil, t, sel)
		return err
	})
	return packed.Sum, packed.Single, err
}

// tree opens the files of a context or an upload.
func (r *run) tree(from plan.Source, upload string, use func(bundle.Tree) error) error {
	if upload == "" {
		t, err := r.contextTree()
		if err != nil {
			return err
		}
		return use(t)
	}
	file, err := r.e.uploads.path(opBuild, r.j.project, upload)
	if err != nil {
		return err
	}
	t, err := openArchive(file)
	if err != nil {
		return &carrel.Error{Op: opBuild, Kind: carrel.NotFound, Field: "filesHash",
			Err:  fmt.Errorf("the files %.16s… were not uploaded", upload),
			Hint: "ask for the upload's URL: GET /templates/{templateID}/files/{hash}"}
	}
	defer t.Close()
	return use(t)
}

// step carries out one step that changes files.
func (r *run) step(ctx context.Context, w *workshop, st *stage, i int) error {
	s := st.plan.Steps[i]
	limit := min(cmp.Or(r.spec.StepTimeout, r.e.opts.StepTimeout), r.e.opts.StepTimeout)
	ctx, cancel := context.WithTimeoutCause(ctx, limit,
		&carrel.Error{Op: opBuild, Kind: carrel.TimedOut,
			Err:  fmt.Errorf("the step did not end within %v", limit),
			Hint: "does it wait for input, or run a server? a server is the template's start command"})
	defer cancel()
	var err error
	switch op := s.Op.(type) {
	case *plan.Run:
		err = r.runCommand(ctx, w, st, i, op)
	case *plan.Copy:
		err = r.copyFiles(ctx, w, op)
	case *plan.Workdir:
		_, err = w.order(ctx, bundle.Order{Mkdir: &bundle.MkdirOrder{Target: op.Path, Owner: op.Owner}})
	}
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// runCommand runs the command of a RUN.
func (r *run) runCommand(ctx context.Context, w *workshop, st *stage, i int,
	op *plan.Run) (err error) {
	s := st.plan.Steps[i]
	env := map[string]string{}
	for _, v := range slices.Concat(s.Config.Env, op.Env) {
		env[v.Name] = v.Value
	}
	if op.Offline {
		if err := w.cut(ctx); err != nil {
			return err
		}
	}
	unmount, err := r.mount(ctx, w, op.Mounts, env)
	if err == nil {
		err = r.command(ctx, w, st, i, op, env)
	}
	if ctx.Err() != nil { // the workshop ends, and nothing of it stays
		return err
	}
	err = errors.Join(err, w.settle(ctx))
	err = errors.Join(err, unmount(ctx, err == nil))
	if op.Offline {
		err = errors.Join(err, w.join(ctx))
	}
	return err
}

// command runs a command and writes its output into the log.
func (r *run) command(ctx context.Context, w *workshop, st *stage, i int, op *plan.Run,
	env map[string]string) error {
	s := st.plan.Steps[i]
	end := &tail{}
	stdout := &logWriter{j: r.j, level: levelInfo, source: "stdout", step: st.stepName(i),
		redact: r.redact, tail: end}
	stderr := &logWriter{j: r.j, level: levelWarn, source: "stderr", step: st.stepName(i),
		redact: r.redact, tail: end}
	cmd := carrel.Command{Args: op.Args, Env: env, Dir: s.Config.Workdir, User: userOf(s.Config),
		Stdout: stdout, Stderr: stderr}
	if op.Stdin != "" {
		cmd.Stdin = strings.NewReader(op.Stdin)
	}
	res, err := w.inside.Run(ctx, cmd)
	stdout.flush()
	stderr.flush()
	switch {
	case carrel.KindOf(err) == carrel.Unauthenticated: // E2B's text: its clients look for it
		return &carrel.Error{Kind: carrel.Invalid, Err: fmt.Errorf("failed to run command '%s': "+
			"command failed: unauthenticated: invalid username: '%s'", op.Args[len(op.Args)-1], cmd.User),
			Hint: "make the user in an earlier step, or name another"}
	case err != nil:
		return err
	case res.ExitCode == 0:
		return nil
	}
	text := fmt.Sprintf("the command failed: %s", res.Status)
	if said := end.last(); said != "" {
		text += ": " + said
	}
	return &carrel.Error{Kind: carrel.Invalid, Err: errors.New(text)}
}

// copyFiles carries out a COPY.
func (r *run) copyFiles(ctx context.Context, w *workshop, op *plan.Copy) error {
	at := bundle.Placement{Target: op.Target, Owner: cmp.Or(op.Owner, "0:0"), Mode: op.Mode}
	if op.Upload != "" {
		at.Parent = op.Owner
	}
	for _, url := range op.URLs {
		if _, err := w.order(ctx, bundle.Order{Fetch: &bundle.FetchOrder{Placement: at, URL: url,
			Checksum: op.Checksum}}); err != nil {
			return err
		}
	}
	if len(op.Inline) > 0 {
		if err := r.copyInline(ctx, w, op, at); err != nil {
			return err
		}
	}
	if len(op.Paths) == 0 {
		return nil
	}
	if op.Unpack && isContext(op.From) {
		return r.addFiles(ctx, w, op, at)
	}
	return r.packed(ctx, op.From, op.Upload, selection(op),
		func(p bundle.Packed, stream io.Reader) error {
			at.Single = p.Single
			return w.unpack(ctx, stream, at)
		})
}

// isContext reports whether files come from the build's context.
func isContext(from plan.Source) bool { return from == plan.Source{} }

// packed hands the stream of a selection to use.
func (r *run) packed(ctx context.Context, from plan.Source, upload string, sel bundle.Selection,
	use func(bundle.Packed, io.Reader) error) error {
	if from.Stage > 0 {
		m, err := r.result(ctx, from.Stage)
		if err != nil {
			return err
		}
		other, err := r.openWorkshop(ctx, m.image, m.layer)
		if err != nil {
			return err
		}
		defer other.close(ctx)
		return other.pack(ctx, sel, false, use)
	}
	if from.Image != "" || from.Template != "" {
		b, err := r.base(ctx, from)
		if err != nil {
			return err
		}
		img, err := r.e.opts.Images.Get(ctx, b.image)
		if err != nil {
			return err
		}
		files, err := r.e.opts.Images.Files(ctx, img.Path)
		if err != nil {
			return err
		}
		defer files.Close()
		return stream(ctx, files, sel, use)
	}
	return r.tree(from, upload, func(t bundle.Tree) error { return stream(ctx, t, sel, use) })
}

// stream hands the stream of files on this machine to use. It reads them twice, because use must
// know first what comes.
func stream(ctx context.Context, t bundle.Tree, sel bundle.Selection,
	use func(bundle.Packed, io.Reader) error) error {
	p, err := bundle.Pack(ctx, nil, t, sel)
	if err != nil {
		return err
	}
	pr, pw := io.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, err := bundle.Pack(ctx, pw, t, sel)
		pw.CloseWithError(err)
	}()
	err = use(p, pr)
	_ = pr.Close()
	<-done
	return err
}

// copyInline writes files whose content is in the plan.
func (r *run) copyInline(ctx context.Context, w *workshop, op *plan.Copy,
	at bundle.Placement) error {
	var sel bundle.Selection
	inline := inlineTree{}
	for _, f := range op.Inline {
		name := path.Base(f.Name)
		inline[name] = f.Content
		sel.Paths = append(sel.Paths, name)
	}
	return stream(ctx, inline, sel, func(p bundle.Packed, stream io.Reader) error {
		at.Single = p.Single
		return w.unpack(ctx, stream, at)
	})
}
