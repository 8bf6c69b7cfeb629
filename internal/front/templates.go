package front

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/client"
	"github.com/carrel-dev/carrel/internal/engine"
	"github.com/carrel-dev/carrel/internal/fleet"
	"github.com/carrel-dev/carrel/internal/image"
)

const (
	// resolved is how long this front remembers what a template's name means.
	resolved = 2 * time.Second
	// maxResolved bounds how many are remembered.
	maxResolved = 10_000
	// shareEvery is how often templates are brought to nodes that lack them.
	shareEvery = 20 * time.Second
	// tagsEvery is in how many of these rounds all tags of templates are looked at. Those of builds
	// and of moved tags are brought at once.
	tagsEvery = 15
	// tagsTime bounds the questions to one node about all tags.
	tagsTime = 30 * time.Second
	// adoptTime bounds the transfer of one template.
	adoptTime = 10 * time.Minute
)

// templates are the templates of all nodes. A node that lacks one gets it through the shared store.
// It is safe for concurrent use.
type templates struct {
	engine *engine.Engine
	nodes  *nodes
	log    *slog.Logger
	soon   chan struct{}

	mu    sync.Mutex
	names map[[2]string]meaning // by project and reference

	sharing sync.Mutex // one goroutine shares at a time
}

// meaning is what a reference means.
type meaning struct {
	template carrel.Template
	at       time.Time
}

func newTemplates(e *engine.Engine, n *nodes, log *slog.Logger) *templates {
	return &templates{engine: e, nodes: n, log: log, soon: make(chan struct{}, 1), names: map[[2]string]meaning{}}
}

// get finds a template, on any node.
func (t *templates) get(ctx context.Context, ref string) (carrel.Template, error) {
	c := carrel.CallerOf(ctx)
	key := [2]string{string(c.Role) + " " + c.Project, ref}
	t.mu.Lock()
	m, ok := t.names[key]
	t.mu.Unlock()
	if ok && time.Since(m.at) < resolved {
		return m.template, nil
	}
	got, err := t.engine.GetTemplate(ctx, ref)
	if err != nil {
		return got, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.names) >= maxResolved {
		clear(t.names)
	}
	t.names[key] = meaning{got, time.Now()}
	return got, nil
}

func (t *templates) forget() {
	t.mu.Lock()
	defer t.mu.Unlock()
	clear(t.names)
}

// service returns a node's service for the caller of a context.
func (t *templates) service(ctx context.Context, node string) (carrel.Service, error) {
	c := carrel.CallerOf(ctx)
	project := c.Project
	if c.Role == carrel.RoleAdmin {
		project = ""
	}
	return t.nodes.client(node, project)
}

// make makes a template on one node, and brings it to the others.
func (t *templates) make(ctx context.Context, op string,
	fn func(context.Context, carrel.Service) (carrel.Template, error)) (carrel.Template, error) {
	name, err := t.maker(op)
	if err != nil {
		return carrel.Template{}, err
	}
	s, err := t.service(ctx, name)
	if err != nil {
		return carrel.Template{}, err
	}
	got, err := fn(ctx, s)
	if err == nil {
		t.changed()
	}
	return got, err
}

// kernelName is the name by which every node gets the kernel of its virtual machines.
const kernelName = image.Kernel

// getKernel has every node get the kernel of virtual machines, one after the other. Each daemon
// keeps its own. It returns the last one's.
func (t *templates) getKernel(ctx context.Context, progress func(carrel.Progress)) (got carrel.Template, err error) {
	const op = "get kernel"
	ready, silent := t.nodes.ready()
	if len(silent) > 0 || len(ready) == 0 {
		return got, &carrel.Error{Op: op, Kind: carrel.Unavailable, RetryAfter: time.Second,
			Err:  fmt.Errorf("these nodes don't answer: %s", strings.Join(silent, ", ")),
			Hint: "try again when they are back, or remove them with carrel node rm; nodes that have the kernel keep it"}
	}
	for _, n := range ready {
		s, err := t.service(ctx, n.Name)
		if err == nil {
			got, err = s.PullTemplate(ctx, kernelName, "", progress)
		}
		if err != nil {
			return got, err
		}
	}
	return got, nil
}

// changed forgets what was known, and brings what is new to all nodes soon.
func (t *templates) changed() {
	t.forget()
	t.engine.Rebuild()
	select {
	case t.soon <- struct{}{}:
	default:
	}
}

// maker returns the node on which templates are made: the first that answers. So one cache of layers
// serves all builds.
func (t *templates) maker(op string) (string, error) {
	ready, _ := t.nodes.ready()
	for _, n := range ready {
		if !n.Draining {
			return n.Name, nil
		}
	}
	return "", &carrel.Error{Op: op, Kind: carrel.Unavailable, Err: errNoNodes, RetryAfter: time.Second, Hint: "carrel node ls shows the nodes"}
}

// everywhere makes a change on all nodes that have the template. All nodes must answer: a node that
// is away would bring the old state back.
func (t *templates) everywhere(ctx context.Context, op string, fn func(context.Context, carrel.Service) error) error {
	ready, err := t.nodes.every(op, "template")
	if err != nil {
		return err
	}
	t.sharing.Lock() // or it would be brought back from a node that has it still
	defer t.sharing.Unlock()
	var missing error
	found := false
	for _, n := range ready {
		s, err := t.service(ctx, n.Name)
		if err == nil {
			err = fn(ctx, s)
		}
		switch {
		case err == nil:
			found = true
		case carrel.KindOf(err) == carrel.NotFound:
			missing = err
		default:
			return err
		}
	}
	t.changed()
	if !found {
		return missing
	}
	return nil
}

// run brings templates to nodes that lack them, until ctx ends.
func (t *templates) run(ctx context.Context) {
	tick := time.NewTicker(shareEvery)
	defer tick.Stop()
	for n := 0; ; n++ {
		select {
		case <-tick.C:
		case <-t.soon:
		case <-ctx.Done():
			return
		}
		t.share(carrel.WithCaller(ctx, carrel.Local()), n%tagsEvery == 0)
	}
}

// share brings each template to each node, with one of its tags or with all of them. Templates that a
// node makes for itself (the built-in ones) are left alone.
func (t *templates) share(ctx context.Context, tags bool) {
	t.sharing.Lock()
	defer t.sharing.Unlock()
	ready, _ := t.nodes.ready()
	at := map[string][]string{} // nodes by template
	of := map[string]carrel.Template{}
	has := map[[2]string]bool{}
	for _, n := range ready {
		c, err := t.nodes.client(n.Name, "")
		if err != nil {
			continue
		}
		actx, cancel := context.WithTimeout(ctx, callTime)
		list, err := c.ListTemplates(actx)
		cancel()
		if err == nil && tags {
			list, err = withTags(ctx, c, list)
		}
		if err != nil {
			return // who has what is not known
		}
		for _, tpl := range list {
			if !movable(tpl) {
				continue
			}
			at[tpl.ID] = append(at[tpl.ID], n.Name)
			of[tpl.ID] = tpl
			has[[2]string{n.Name, tpl.ID}] = true
		}
	}
	for id, from := range at {
		for _, n := range ready {
			if has[[2]string{n.Name, id}] {
				continue
			}
			err := t.bring(ctx, id, from[0], n)
			if carrel.KindOf(err) == carrel.AlreadyExists {
				continue // it is an older one, and goes from its node, too
			}
			if err != nil && ctx.Err() == nil {
				t.log.Warn("bring a template to a node", "template", of[id].FullName(), "node", n.Name, "err", err)
			}
		}
	}
}

// withTags adds what the other tags of a node's templates point to: a list has each template once.
func withTags(ctx context.Context, c *client.Client, list []carrel.Template) ([]carrel.Template, error) {
	ctx, cancel := context.WithTimeout(ctx, tagsTime)
	defer cancel()
	out := list
	for _, t := range list {
		if !movable(t) || t.Of == "" {
			continue
		}
		tags, err := c.TemplateTags(ctx, t.ID)
		if err != nil && carrel.KindOf(err) != carrel.NotFound {
			return nil, err
		}
		for _, tag := range tags {
			if tag.Tag == cmp.Or(t.Tag, "default") {
				continue
			}
			got, err := c.GetTemplate(ctx, t.Of+":"+tag.Tag)
			if err != nil && carrel.KindOf(err) != carrel.NotFound {
				return nil, err
			}
			if err == nil && got.Of == t.Of && got.Project == t.Project {
				out = append(out, got)
			}
		}
	}
	return out, nil
}

// callTime bounds a question to a node.
const callTime = 5 * time.Second

// movable reports whether a template is one that somebody made.
func movable(t carrel.Template) bool { return t.Project != "" && !t.BuiltIn }

// bring has a node adopt a template of another.
func (t *templates) bring(ctx context.Context, id, from string, to fleet.Node) error {
	ctx, cancel := context.WithTimeout(ctx, adoptTime)
	defer cancel()
	a, err := t.nodes.client(from, "")
	if err != nil {
		return err
	}
	p, err := a.Movement().PublishTemplate(ctx, id)
	if err != nil {
		return err
	}
	b, err := t.nodes.client(to.Name, "")
	if err != nil {
		return err
	}
	if _, err = b.Movement().AdoptTemplate(ctx, p); err != nil {
		return err
	}
	t.log.Info("a node got a template", "template", p.Template.FullName(), "node", to.Name)
	return nil
}

// fetch brings one template to all nodes now, because a creation needs it. It reports whether there
// is such a template.
func (t *templates) fetch(ctx context.Context, ref string) bool {
	got, err := t.get(ctx, ref)
	if err != nil || !movable(got) {
		return false
	}
	t.share(carrel.WithCaller(context.WithoutCancel(ctx), carrel.Local()), true)
	return true
}
