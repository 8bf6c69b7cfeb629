package engine

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/cursor"
)

// Lists of many nodes are merged by time and then by ID, the order in which each node lists. The
// text of a page's end is a place in that order. It is the same on every node, so pages are stable
// also when nodes come and go, and the text has one size for any number of nodes.

// maxPage is the most things on a page, and the default.
const maxPage = 100

// place is a place in a list.
type place struct {
	at time.Time
	id string
}

func (p place) compare(o place) int { return cmp.Or(p.at.Compare(o.at), cmp.Compare(p.id, o.id)) }

// placed is something at a place, and the node that listed it.
type placed[T any] struct {
	place
	m     *member
	value T
}

// part is one node's part of a page.
type part[T any] struct {
	items []T
	more  bool
	count int // running sandboxes
}

// page is a merged page.
type page[T any] struct {
	items   []placed[T]
	next    string
	count   int
	missing []string
}

// readPlace reads the text of a page's end. valid checks the ID in it.
func readPlace(op, text string, valid func(id string) error) (*place, error) {
	if text == "" {
		return nil, nil
	}
	at, id, ok := cursor.Read(text)
	if !ok || valid(id) != nil {
		if len(text) > 64 {
			text = text[:64] + "…"
		}
		return nil, &carrel.Error{Op: op, Kind: carrel.Invalid, Field: "nextToken",
			Err: fmt.Errorf("%q is not a token of this list", text)}
	}
	return &place{at, id}, nil
}

// merge asks all nodes for their part of a page, and merges the parts. Nodes that don't answer in
// time are named in the result.
func merge[T any](ctx context.Context, e *Engine, op string, limit int, after *place, oldest bool,
	where func(T) place,
	ask func(ctx context.Context, m *member, r Remote) (part[T], error)) (page[T], error) {
	var out page[T]
	if limit <= 0 || limit > maxPage {
		limit = maxPage // a node refuses a wrong one
	}
	order := func(a, b place) int {
		if oldest {
			return a.compare(b)
		}
		return b.compare(a)
	}
	members := e.all()
	answers := askAll(ctx, members, op, "", e.opts.AskWithin, ask)
	more, heard := false, false
	var last error
	for _, a := range answers {
		switch {
		case a.err != nil && ctx.Err() != nil, definite(a.err):
			return out, a.err
		case a.err != nil:
			out.missing, last = append(out.missing, a.m.name), a.err
			continue
		}
		heard = true
		out.count += max(0, a.out.count)
		// A node can't make a page longer, nor go back.
		if len(a.out.items) > limit {
			a.out.items, a.out.more = a.out.items[:limit], true
		}
		for _, v := range a.out.items {
			if p := (placed[T]{where(v), a.m, v}); after == nil || order(*after, p.place) < 0 {
				out.items = append(out.items, p)
			}
		}
		more = more || a.out.more
	}
	if !heard {
		if last == nil {
			last = &carrel.Error{Op: op, Kind: carrel.Unavailable, Err: errNoNodes}
		}
		return out, last
	}
	slices.SortStableFunc(out.items, func(a, b placed[T]) int { return order(a.place, b.place) })
	if len(out.items) > limit {
		out.items, more = out.items[:limit], true
	}
	if more && len(out.items) > 0 {
		end := out.items[len(out.items)-1].place
		out.next = cursor.Write(end.at, end.id)
	}
	return out, nil
}

// List implements carrel.Sandboxes. The page names the nodes that did not answer in time.
func (e *Engine) List(ctx context.Context, o carrel.ListOptions) (carrel.Page, error) {
	const op = "list sandboxes"
	project, err := projectOf(ctx, op)
	if err != nil {
		return carrel.Page{}, err
	}
	after, err := readPlace(op, o.Cursor, func(id string) error { _, err := carrel.ParseID(id); return err })
	if err != nil {
		return carrel.Page{}, err
	}
	p, err := merge(ctx, e, op, o.Limit, after, o.OldestFirst,
		func(sb carrel.Sandbox) place { return place{sb.Started, string(sb.ID)} },
		func(ctx context.Context, _ *member, r Remote) (part[carrel.Sandbox], error) {
			got, err := r.List(ctx, o)
			return part[carrel.Sandbox]{got.Sandboxes, got.Next != "", got.Running}, err
		})
	if err != nil {
		return carrel.Page{}, err
	}
	out := carrel.Page{Next: p.next, Running: p.count, Missing: p.missing}
	for _, it := range p.items {
		sb := it.value
		if _, err := carrel.ParseID(string(sb.ID)); err != nil || it.m.verify(op, sb.ID, project, sb) != nil {
			continue
		}
		if err := e.dir.claim(sb.ID, it.m.name, sb.Project, false); err != nil {
			e.log.Warn("a sandbox is claimed twice; the list leaves it out", "id", sb.ID,
				"node", it.m.name, "err", err)
			continue
		}
		out.Sandboxes = append(out.Sandboxes, sb)
	}
	return out, nil
}

// ListSnapshots implements carrel.Moments. The page names the nodes that did not answer in time.
func (e *Engine) ListSnapshots(ctx context.Context, o carrel.SnapshotListOptions) (carrel.SnapshotPage, error) {
	const op = "list snapshots"
	project, err := projectOf(ctx, op)
	if err != nil {
		return carrel.SnapshotPage{}, err
	}
	after, err := readPlace(op, o.Cursor, func(id string) error { _, err := carrel.ParseSnapshotID(id); return err })
	if err != nil {
		return carrel.SnapshotPage{}, err
	}
	p, err := merge(ctx, e, op, o.Limit, after, false,
		func(sn carrel.Snapshot) place { return place{sn.Created, string(sn.ID)} },
		func(ctx context.Context, _ *member, r Remote) (part[carrel.Snapshot], error) {
			got, err := r.ListSnapshots(ctx, o)
			return part[carrel.Snapshot]{got.Snapshots, got.Next != "", 0}, err
		})
	if err != nil {
		return carrel.SnapshotPage{}, err
	}
	out := carrel.SnapshotPage{Next: p.next, Missing: p.missing}
	for _, it := range p.items {
		if project == "" || it.value.Project == project {
			out.Snapshots = append(out.Snapshots, it.value)
		}
	}
	return out, nil
}
