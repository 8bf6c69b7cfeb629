package front

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/access"
	"github.com/carrel-dev/carrel/internal/engine"
	"github.com/carrel-dev/carrel/internal/fleet"
	"github.com/carrel-dev/carrel/internal/quota"
	"github.com/carrel-dev/carrel/internal/state"
)

// core is the engine with what the fleet's nodes share: where sandboxes are, and templates. It
// checks nobody's rights.
type core struct {
	*engine.Engine
	carrel.NoChecks
	carrel.NoRegistries
	carrel.NoCatalog

	homes     *homes
	nodes     *nodes
	templates *templates
	events    state.Store
	vault     *vault
	shares    *shares
}

var _ access.Core = (*core)(nil)

// Create implements carrel.Sandboxes. The sandbox has its share of the quotas before it is made, and
// a home before the caller hears of it.
func (c *core) Create(ctx context.Context, opts carrel.CreateOptions) (sb carrel.Sandbox, err error) {
	const op = "create sandbox"
	// The node resolves the reference itself, for the same project: its template may have another ID.
	wanted := opts.Template
	if asked, ok := carrel.AskedIn(ctx); ok {
		opts.Template = asked
	}
	grant, err := c.shares.create(ctx, wanted, &opts)
	if err != nil {
		return carrel.Sandbox{}, err
	}
	defer func() { grant.end(ctx, err) }()
	sb, err = c.Engine.Create(ctx, opts)
	if carrel.KindOf(err) == carrel.NotFound && c.templates.fetch(ctx, opts.Template) {
		sb, err = c.Engine.Create(ctx, opts)
	}
	if err != nil {
		return sb, err
	}
	undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), moveWait)
	defer cancel()
	if err := c.shares.settle(ctx, grant, sb); err != nil {
		return carrel.Sandbox{}, errors.Join(err, c.takeBack(undo, sb.ID))
	}
	if err := c.claim(ctx, sb, grant.born()); err != nil && opts.IdempotencyKey != "" {
		// It may be the sandbox of an earlier request with the key, which somebody uses.
		return carrel.Sandbox{}, &carrel.Error{Op: op, Kind: carrel.Unavailable, ID: sb.ID, RetryAfter: time.Second,
			Err:  fmt.Errorf("the fleet's records don't take it: %w: %w", errLeftOver, err),
			Hint: "send the same request again, with its key: it makes no second sandbox"}
	} else if err != nil {
		return carrel.Sandbox{}, &carrel.Error{Op: op, Kind: carrel.Unavailable, ID: sb.ID, RetryAfter: time.Second,
			Err:  errors.Join(fmt.Errorf("the fleet's records don't take it: %w", err), c.takeBack(undo, sb.ID)),
			Hint: "the sandbox was ended again; look at the fleet's database"}
	}
	grant.spent()
	return sb, nil
}

// takeBack ends a new sandbox that has no home. Its node is asked itself, because the database can't
// say where it is.
func (c *core) takeBack(ctx context.Context, id carrel.ID) error {
	name, _ := c.Engine.Directory().Node(id)
	cl, err := c.nodes.client(name, "")
	if err == nil {
		err = cl.Kill(ctx, id)
	}
	if err != nil && carrel.KindOf(err) != carrel.NotFound {
		return fmt.Errorf("%w: %w", errLeftOver, err)
	}
	return nil
}

// claim records where a new sandbox is.
func (c *core) claim(ctx context.Context, sb carrel.Sandbox, born *fleet.Born) error {
	name, ok := c.Engine.Directory().Node(sb.ID)
	n, there := c.nodes.node(name)
	if !ok || !there {
		return fmt.Errorf("node %q has left the fleet", name)
	}
	wants := fleet.Home{Sandbox: sb.ID, Project: sb.Project, State: fleet.Running, Load: quota.LoadOf(sb), Born: born}
	list, err := c.homes.registry.Claim(ctx, fleet.Member{Name: n.Name, Token: n.Token}, wants)
	if errors.Is(err, fleet.ErrFenced) { // it joined anew just now: read its token again
		if err = c.nodes.read(ctx); err == nil {
			now, _ := c.nodes.node(name)
			if !bytes.Equal(now.Public, n.Public) {
				return fmt.Errorf("node %q is another machine now", name)
			}
			n = now
			list, err = c.homes.registry.Claim(ctx, fleet.Member{Name: n.Name, Token: n.Token}, wants)
		}
	}
	if err != nil {
		return err
	}
	home := list[0]
	home.Left = fleet.Lease
	c.homes.note(home)
	return nil
}

// Fork implements carrel.Moments. Each fork has a share of the quotas and a home.
func (c *core) Fork(ctx context.Context, id carrel.ID, opts carrel.ForkOptions) (list []carrel.ForkResult, err error) {
	grant, err := c.shares.fork(ctx, id, opts)
	if err != nil {
		return nil, err
	}
	left := error(nil)
	defer func() { grant.end(ctx, left) }()
	list, err = c.Engine.Fork(ctx, id, opts)
	if carrel.KindOf(err) == carrel.Unavailable { // some may have been made
		left = errLeftOver
	}
	for i, r := range list {
		if r.Err == nil {
			share := grant.one()
			if cerr := c.claim(ctx, r.Sandbox, share.born()); cerr != nil {
				back := c.takeBack(context.WithoutCancel(ctx), r.Sandbox.ID)
				if back != nil {
					left = back
				}
				list[i] = carrel.ForkResult{Err: errors.Join(cerr, back)}
				continue
			}
			grant.used(share)
		}
	}
	return list, err
}

// Pause implements carrel.Moments. From the answer on, nobody resumes an earlier checkpoint instead.
func (c *core) Pause(ctx context.Context, id carrel.ID, opts carrel.PauseOptions) (carrel.Sandbox, error) {
	home, herr := c.homes.registry.Home(ctx, id)
	sb, err := c.Engine.Pause(ctx, id, opts)
	if err != nil || herr != nil {
		return sb, err
	}
	if n, ok := c.nodes.node(home.Node); ok {
		home.State = fleet.Paused
		_, err = c.homes.registry.Claim(ctx, fleet.Member{Name: n.Name, Token: n.Token}, home)
	}
	if err != nil {
		return sb, &carrel.Error{Op: "pause sandbox", Kind: carrel.Unavailable, ID: id, RetryAfter: time.Second,
			Err: fmt.Errorf("it is paused, and the fleet's records don't say so yet: %w", err), Hint: "pause it again: that is no error"}
	}
	return sb, nil
}

// Kill implements carrel.Sandboxes. A sandbox whose node is away ends when the node is back, and
// nobody sees it any more.
func (c *core) Kill(ctx context.Context, id carrel.ID) error {
	home, err := c.homes.registry.Home(ctx, id)
	if err == nil && home.Left <= 0 {
		c.homes.forget(id)
		return c.homes.registry.Kill(ctx, id, home.Token)
	}
	if err := c.Engine.Kill(ctx, id); err != nil {
		return err
	}
	c.homes.forget(id)
	if err == nil {
		return c.homes.registry.End(ctx, fleet.Member{Name: home.Node}, id)
	}
	return nil
}

// Project implements access.Core.
func (c *core) Project(id carrel.ID) (string, bool) {
	ctx, cancel := context.WithTimeout(context.Background(), projectTime)
	defer cancel()
	project, ok, err := c.PastProject(ctx, id)
	return project, ok && err == nil
}

// projectTime bounds the question whose sandbox it is.
const projectTime = 3 * time.Second

// PastProject implements access.Core.
func (c *core) PastProject(ctx context.Context, id carrel.ID) (string, bool, error) {
	if _, err := carrel.ParseID(string(id)); err != nil {
		return "", false, nil
	}
	if project, ok, err := c.homes.project(ctx, id); ok || err != nil {
		return project, ok, err
	}
	// A sandbox that has no home any more, or not yet: its node can still tell.
	sb, err := c.Engine.Get(carrel.WithCaller(ctx, carrel.Local()), id)
	switch {
	case carrel.KindOf(err) == carrel.NotFound:
		return "", false, nil
	case err != nil:
		return "", false, err
	}
	return sb.Project, true, nil
}

// SnapshotProject implements access.Core.
func (c *core) SnapshotProject(ctx context.Context, id carrel.SnapshotID) (string, bool) {
	s, err := c.Engine.GetSnapshot(carrel.WithCaller(ctx, carrel.Local()), string(id))
	return s.Project, err == nil
}

// ResolveTemplate implements access.Core.
func (c *core) ResolveTemplate(ctx context.Context, op string, ref carrel.TemplateRef) (carrel.Template, carrel.SnapshotID, error) {
	if id, ok := ref.SnapshotID(); ok {
		return carrel.Template{}, id, nil
	}
	t, err := c.templates.get(ctx, ref.String())
	if carrel.KindOf(err) == carrel.NotFound {
		if s, serr := c.Engine.GetSnapshot(ctx, ref.String()); serr == nil {
			return carrel.Template{}, s.ID, nil
		}
	}
	return t, "", err
}

// ProjectMetrics implements access.Core. Nodes count their own.
func (c *core) ProjectMetrics(string, time.Time, time.Time) []carrel.ProjectMetric { return nil }

// TemplateUses implements access.Core.
func (c *core) TemplateUses(ctx context.Context, _ string) ([]carrel.TemplateUse, error) {
	return c.NoCatalog.TemplateUses(ctx)
}

// CollectTemplates implements access.Core.
func (c *core) CollectTemplates(ctx context.Context, _ string, o carrel.CollectOptions) (carrel.Collected, error) {
	return c.NoCatalog.CollectTemplates(ctx, o)
}

// TemplatePackages implements access.Core.
func (c *core) TemplatePackages(ctx context.Context, nameOrID string) (carrel.TemplatePackages, error) {
	return c.NoCatalog.TemplatePackages(ctx, nameOrID)
}

// TemplateChanges implements access.Core.
func (c *core) TemplateChanges(ctx context.Context, from, to string) ([]carrel.FileChange, error) {
	return c.NoCatalog.TemplateChanges(ctx, from, to)
}

// GetTemplate implements carrel.Templates.
func (c *core) GetTemplate(ctx context.Context, nameOrID string) (carrel.Template, error) {
	return c.templates.get(ctx, nameOrID)
}

// ImportTemplate implements carrel.Templates: one node imports it, and the others get it from there.
func (c *core) ImportTemplate(ctx context.Context, name string, archive io.Reader, progress func(carrel.Progress)) (carrel.Template, error) {
	return c.templates.make(ctx, "import template", func(ctx context.Context, s carrel.Service) (carrel.Template, error) {
		return s.ImportTemplate(ctx, name, archive, progress)
	})
}

// PullTemplate implements carrel.Templates, as ImportTemplate. Every node gets the kernel.
func (c *core) PullTemplate(ctx context.Context, name, image string, progress func(carrel.Progress)) (carrel.Template, error) {
	if image == "" && name == kernelName {
		return c.templates.getKernel(ctx, progress)
	}
	return c.templates.make(ctx, "pull template", func(ctx context.Context, s carrel.Service) (carrel.Template, error) {
		return s.PullTemplate(ctx, name, image, progress)
	})
}

// UpdateTemplate implements carrel.Templates, on all nodes that have it.
func (c *core) UpdateTemplate(ctx context.Context, nameOrID string, u carrel.TemplateUpdate) (t carrel.Template, err error) {
	err = c.templates.everywhere(ctx, "update template", func(ctx context.Context, s carrel.Service) error {
		got, err := s.UpdateTemplate(ctx, nameOrID, u)
		if err == nil {
			t = got
		}
		return err
	})
	return t, err
}

// DeleteTemplate implements carrel.Templates, on all nodes that have it.
func (c *core) DeleteTemplate(ctx context.Context, nameOrID string) error {
	return c.templates.everywhere(ctx, "delete template", func(ctx context.Context, s carrel.Service) error {
		return s.DeleteTemplate(ctx, nameOrID)
	})
}

// passportOf has a node put a paused sandbox into the shared store.
func (c *core) passportOf(ctx context.Context, home fleet.Home) ([]byte, error) {
	cl, err := c.nodes.client(home.Node, "")
	if err != nil {
		return nil, err
	}
	p, err := cl.Movement().Publish(ctx, string(home.Sandbox))
	if err != nil {
		return nil, err
	}
	return json.Marshal(p)
}

// Computer implements carrel.Sandboxes. Where the sandbox is, is read anew: its connections stay at
// that node.
func (c *core) Computer(ctx context.Context, id carrel.ID) (carrel.Computer, error) {
	c.homes.forget(id)
	box, err := c.Engine.Computer(ctx, id)
	if node, ok := c.Engine.Directory().Node(id); ok && err == nil {
		if home, herr := c.homes.find(ctx, id); herr == nil {
			node = home.Node
		}
		box = boundComputer{box, &c.homes.lives, id, node}
	}
	return box, err
}
