package front

import (
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/client"
	"github.com/carrel-dev/carrel/internal/access"
)

const (
	// settleWait is how long one question waits until a new template is on all nodes, and settleMost
	// how long the build counts as under way because of that.
	settleWait = time.Second
	settleMost = 2 * time.Minute
	// freshBuild is how old the end of a build may be whose template may not be on all nodes yet.
	freshBuild = 10 * time.Minute
	// moveTagWait is how long a moved tag waits for the nodes to hear of it.
	moveTagWait = 10 * time.Second
	// watchEvery is how often builds are compared with the list of nodes.
	watchEvery = time.Second
	// maxKnownBuilds bounds how many builds are remembered.
	maxKnownBuilds = 10_000
	// usualBuilds bounds a list that names no bound, as on one node.
	usualBuilds = 100
)

// builds are the builds of all nodes. A build is made on one node, which keeps its record, its log
// and the files for it. This front finds a build by asking, and remembers it, so any front answers
// for any build. It is safe for concurrent use.
type builds struct {
	nodes     *nodes
	templates *templates
	tolerates func(project, taint string) bool
	log       *slog.Logger

	mu    sync.Mutex
	known map[string]*knownBuild // by build
}

// knownBuild is what this front knows of a build. builds.mu guards it.
type knownBuild struct {
	node    string
	public  []byte       // of the machine that had the node's name
	last    carrel.Build // what it said last
	lost    bool         // its node died: last says so
	ended   bool         // a lost build that its node, which came back, does not go on with
	seen    time.Time    // when it was seen ready first
	spread  <-chan struct{}
	settled bool
}

var _ access.Builds = (*builds)(nil)

func newBuilds(n *nodes, t *templates, tolerates func(project, taint string) bool, log *slog.Logger) *builds {
	return &builds{nodes: n, templates: t, tolerates: tolerates, log: log, known: map[string]*knownBuild{}}
}

// NewBuild implements access.Builds.
func (b *builds) NewBuild(ctx context.Context, spec carrel.BuildSpec) (carrel.Build, error) {
	const op = "create template"
	node, err := b.place(ctx, op, spec.Name)
	if err != nil {
		return carrel.Build{}, err
	}
	cl, err := b.client(ctx, node)
	if err != nil {
		return carrel.Build{}, err
	}
	made, err := client.PreparationOf(cl).NewBuild(ctx, spec)
	return b.made(ctx, op, node, made, err)
}

// StartBuild implements carrel.Builder. The context streams through to the node.
func (b *builds) StartBuild(ctx context.Context, spec carrel.BuildSpec) (carrel.Build, error) {
	const op = "build template"
	node, err := "", error(nil)
	if spec.ID == "" {
		node, err = b.place(ctx, op, spec.Name)
	} else {
		var at at
		if at, err = b.find(ctx, op, spec.ID); err == nil && at.lost {
			err = &carrel.Error{Op: op, Kind: carrel.Conflict, Field: "buildID", Err: fmt.Errorf("node %s, which had it, is lost", at.node),
				Hint: "ask for a new build of the template"}
		}
		node = at.node
	}
	if err != nil {
		return carrel.Build{}, err
	}
	cl, err := b.client(ctx, node)
	if err != nil {
		return carrel.Build{}, err
	}
	if from := spec.FromTemplate; from != "" {
		// What was made elsewhere just now may not have come to this node yet.
		if _, err := cl.GetTemplate(ctx, from); carrel.KindOf(err) == carrel.NotFound {
			b.templates.fetch(ctx, from)
		}
	}
	made, err := cl.StartBuild(ctx, spec)
	return b.made(ctx, op, node, made, err)
}

// made notes a build that a node began for the caller of a context.
func (b *builds) made(ctx context.Context, op, node string, made carrel.Build, err error) (carrel.Build, error) {
	if err != nil {
		return carrel.Build{}, err
	}
	if made.Project != carrel.CallerOf(ctx).Project && !carrel.CallerOf(ctx).Sees(made.Project) {
		b.log.Warn("a node answers with another project's build", "node", node, "project", made.Project)
		return carrel.Build{}, notTheirs(op, node)
	}
	b.note(node, made)
	return made, nil
}

// HasUpload implements access.Builds.
func (b *builds) HasUpload(ctx context.Context, template, name string) (bool, error) {
	p, err := b.preparation(ctx, "look for files", template, name)
	if err != nil {
		return false, err
	}
	return p.HasUpload(ctx, template, name)
}

// PutUpload implements access.Builds. The archive streams through to the node of the template's
// builds.
func (b *builds) PutUpload(ctx context.Context, template, name string, r io.Reader) error {
	p, err := b.preparation(ctx, "upload files", template, name)
	if err != nil {
		return err
	}
	return p.PutUpload(ctx, template, name, r)
}

// preparation returns the first steps of builds at the node that makes the builds of a template. It
// checks the name of the files here: it becomes a part of a path.
func (b *builds) preparation(ctx context.Context, op, template, name string) (client.Preparation, error) {
	if raw, err := hex.DecodeString(name); err != nil || len(raw) != 32 {
		return client.Preparation{}, &carrel.Error{Op: op, Kind: carrel.Invalid, Field: "filesHash", Err: fmt.Errorf("%.100q is no SHA-256 sum", name)}
	}
	node, err := b.having(ctx, op, template)
	if err == nil && node == "" {
		node, err = b.place(ctx, op, template)
	}
	if err != nil {
		return client.Preparation{}, err
	}
	cl, err := b.client(ctx, node)
	return client.PreparationOf(cl), err
}

// GetBuild implements carrel.Builder.
func (b *builds) GetBuild(ctx context.Context, id string) (carrel.Build, error) {
	got, err := b.find(ctx, "get build", id)
	if err != nil || got.lost {
		return got.build, err
	}
	return b.settle(ctx, got.build), nil
}

// ListBuilds implements carrel.Builder: the builds of the nodes that answer, and those that this
// front saw lost.
func (b *builds) ListBuilds(ctx context.Context, opts carrel.BuildListOptions) ([]carrel.Build, error) {
	all, err := b.list(ctx, "list builds", opts)
	if err != nil {
		return nil, err
	}
	out, have := []carrel.Build{}, map[string]bool{}
	add := func(next carrel.Build) {
		if !have[next.ID] {
			have[next.ID] = true
			out = append(out, next)
		}
	}
	for _, lost := range b.lostOnes(ctx, opts) {
		add(lost)
	}
	for _, one := range all {
		add(one.build)
	}
	slices.SortStableFunc(out, func(x, y carrel.Build) int { return y.Created.Compare(x.Created) })
	if opts.Limit <= 0 {
		opts.Limit = usualBuilds
	}
	return out[:min(len(out), opts.Limit)], nil
}

// CancelBuild implements carrel.Builder.
func (b *builds) CancelBuild(ctx context.Context, id string) (carrel.Build, error) {
	const op = "cancel build"
	got, err := b.find(ctx, op, id)
	if err != nil || got.lost {
		return got.build, err
	}
	cl, err := b.client(ctx, got.node)
	if err != nil {
		return carrel.Build{}, err
	}
	next, err := cl.CancelBuild(ctx, id)
	if err == nil && (next.ID != id || next.Project != got.build.Project) {
		err = notTheirs(op, got.node)
	}
	if err == nil {
		b.note(got.node, next)
	}
	return next, err
}

// BuildLogs implements carrel.Builder. A log that is followed ends with a line that says so if the
// build is lost; and after a build that succeeded, when its template is on all nodes.
func (b *builds) BuildLogs(ctx context.Context, id string, opts carrel.BuildLogOptions) iter.Seq2[carrel.BuildLog, error] {
	return func(yield func(carrel.BuildLog, error) bool) {
		got, err := b.find(ctx, "read build log", id)
		if err == nil && got.lost {
			if opts.Follow && got.build.Reason != nil {
				yield(farewell(got.build), nil)
			}
			return // its lines are on the node
		}
		var cl *client.Client
		if err == nil {
			cl, err = b.client(ctx, got.node)
		}
		if err != nil {
			yield(carrel.BuildLog{}, err)
			return
		}
		inner, cancel := context.WithCancel(ctx)
		defer cancel()
		if opts.Follow {
			go b.untilLost(inner, cancel, id)
		}
		for l, err := range cl.BuildLogs(inner, id, opts) {
			switch kind := carrel.KindOf(err); {
			case err == nil && yield(l, nil):
			case err == nil:
				return
			case ctx.Err() == nil && (kind == carrel.Unavailable || kind == carrel.TimedOut):
				b.quiet(ctx, id, opts, yield) // a poll comes again, and hears of the build's state
				return
			default:
				yield(l, err)
				return
			}
		}
		b.quiet(ctx, id, opts, yield)
	}
}

// quiet ends a log: one that is followed waits for the build's end as callers see it.
func (b *builds) quiet(ctx context.Context, id string, opts carrel.BuildLogOptions, yield func(carrel.BuildLog, error) bool) {
	if !opts.Follow {
		return
	}
	tick := time.NewTicker(settleWait / 4)
	defer tick.Stop()
	for {
		got, err := b.GetBuild(ctx, id)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			yield(carrel.BuildLog{}, err)
			return
		case b.isLost(id):
			yield(farewell(got), nil)
			return
		case got.State.Final():
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// farewell is the last line of a lost build's log.
func farewell(lost carrel.Build) carrel.BuildLog {
	return carrel.BuildLog{Time: lost.Ended, Level: "error", Source: "build", Message: lost.Reason.Message + " (" + lost.Reason.Hint + ")"}
}

// TagTemplate implements carrel.Builder: one node that has the template makes the tags, and the others
// get them from there.
func (b *builds) TagTemplate(ctx context.Context, target string, tags []string) (carrel.TemplateTag, error) {
	const op = "tag template"
	ready, silent := b.nodes.ready()
	missing := error(&carrel.Error{Op: op, Kind: carrel.Unavailable, RetryAfter: time.Second, Err: errNoNodes})
	for _, n := range ready {
		cl, err := b.client(ctx, n.Name)
		if err != nil {
			return carrel.TemplateTag{}, err
		}
		t, err := cl.TagTemplate(ctx, target, tags)
		if carrel.KindOf(err) == carrel.NotFound {
			missing = err
			continue
		}
		if err == nil {
			within(ctx, b.spread(ctx, ""), moveTagWait)
		}
		return t, err
	}
	if len(silent) > 0 {
		return carrel.TemplateTag{}, unheard(op, "the template", silent)
	}
	return carrel.TemplateTag{}, missing
}

// UntagTemplate implements carrel.Builder, on all nodes that have the tags.
func (b *builds) UntagTemplate(ctx context.Context, nameOrID string, tags []string) error {
	return b.templates.everywhere(ctx, "remove tag", func(ctx context.Context, s carrel.Service) error {
		return s.UntagTemplate(ctx, nameOrID, tags)
	})
}

// TemplateTags implements carrel.Builder: those of all nodes. Where two differ, the newer one is right.
func (b *builds) TemplateTags(ctx context.Context, nameOrID string) ([]carrel.TemplateTag, error) {
	const op = "list tags"
	newest := map[string]carrel.TemplateTag{}
	var missing error
	found := false
	ready, silent := b.nodes.ready()
	for _, a := range askNodes(ctx, ready, func(ctx context.Context, node string) ([]carrel.TemplateTag, error) {
		cl, err := b.client(ctx, node)
		if err != nil {
			return nil, err
		}
		return cl.TemplateTags(ctx, nameOrID)
	}) {
		switch carrel.KindOf(a.err) {
		case "":
			found = true
			for _, t := range a.out {
				if have, ok := newest[t.Tag]; !ok || have.Created.Before(t.Created) {
					newest[t.Tag] = t
				}
			}
		case carrel.NotFound:
			missing = a.err
		default:
			silent = append(silent, a.node)
		}
	}
	switch {
	case !found && len(silent) > 0:
		return nil, unheard(op, "the template", silent)
	case !found:
		return nil, missing
	}
	out := []carrel.TemplateTag{}
	for _, t := range newest {
		out = append(out, t)
	}
	slices.SortFunc(out, func(x, y carrel.TemplateTag) int { return strings.Compare(x.Tag, y.Tag) })
	return out, nil
}
