package service

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/service/timeline"
)

const (
	opList  = "list sandboxes"
	maxPage = 100
)

// position is a place in the order of a list: by start, then by ID. It stays
// valid when the sandbox that it names has gone.
type position struct {
	started time.Time
	id      carrel.ID
}

func (p position) compare(q position) int {
	return cmp.Or(p.started.Compare(q.started), cmp.Compare(p.id, q.id))
}

func positionOf(sb carrel.Sandbox) position { return position{sb.Started, sb.ID} }

// cursor writes a position as clients see it: opaque text.
func (p position) cursor() string { return timeline.WriteCursor(p.started, string(p.id)) }

// parseCursor reads what cursor wrote.
func parseCursor(s string) (position, error) {
	at, name, ok := timeline.ReadCursor(s)
	id, err := carrel.ParseID(name)
	if !ok || err != nil {
		return position{}, invalid(opList, "nextToken", "%s is not a token of this list", clip(s))
	}
	return position{at, id}, nil
}

// List implements carrel.Sandboxes. Paging is stable: sandboxes that come or go
// between two pages shift none of the others.
func (s *Service) List(_ context.Context, o carrel.ListOptions) (carrel.Page, error) {
	if err := checkList(o); err != nil {
		return carrel.Page{}, err
	}
	if o.Limit == 0 {
		o.Limit = maxPage
	}
	matching, running := s.matching(o)
	page := carrel.Page{Running: running}
	order := func(a, b listed) int {
		c := a.position.compare(b.position)
		if !o.OldestFirst {
			c = -c
		}
		return c
	}
	slices.SortFunc(matching, order)
	if o.Cursor != "" {
		after, err := parseCursor(o.Cursor)
		if err != nil {
			return carrel.Page{}, err
		}
		i, found := slices.BinarySearchFunc(matching, listed{position: after}, order)
		if found {
			i++
		}
		matching = matching[i:]
	}
	if len(matching) > o.Limit {
		matching = matching[:o.Limit]
		page.Next = matching[o.Limit-1].position.cursor()
	}
	for _, l := range matching {
		page.Sandboxes = append(page.Sandboxes, l.box.public())
	}
	return page, nil
}

// listed is a sandbox and its place in a list. Only those of the page that is asked
// for are copied: there may be very many.
type listed struct {
	position
	box *box
}

// matching lists those that pass the filters, in no order, and counts the running.
func (s *Service) matching(o carrel.ListOptions) (out []listed, running int) {
	all := s.table.snapshot()
	out = make([]listed, 0, len(all))
	for _, b := range all {
		b.mu.Lock()
		sb := &b.rec.Sandbox
		if matches(sb, &o) {
			out = append(out, listed{positionOf(*sb), b})
			if sb.State == carrel.Running {
				running++
			}
		}
		b.mu.Unlock()
	}
	return out, running
}

func checkList(o carrel.ListOptions) error {
	if o.Limit < 0 || o.Limit > maxPage {
		return invalid(opList, "limit", "%d is not between 1 and %d", o.Limit, maxPage)
	}
	for _, st := range o.States {
		switch st {
		case carrel.Starting, carrel.Running, carrel.Pausing, carrel.Paused, carrel.Resuming, carrel.Stopping:
		default:
			return invalid(opList, "state", "%s is not a state", clip(string(st)))
		}
	}
	return nil
}

// isMadeFrom reports whether a text is the name or ID of a sandbox's template. It is
// compared with what the sandbox's record says: the template may be gone.
func isMadeFrom(sb *carrel.Sandbox, text string) bool {
	ref, err := carrel.ParseTemplateRef(text)
	return err == nil && ref.Plain() && (ref.Name() == sb.Template || ref.Name() == sb.Alias)
}

// matches reports whether a sandbox passes a list's filters.
func matches(sb *carrel.Sandbox, o *carrel.ListOptions) bool {
	if len(o.States) > 0 && !slices.Contains(o.States, sb.State) {
		return false
	}
	if o.Project != "" && o.Project != sb.Project {
		return false
	}
	if o.Template != "" && !isMadeFrom(sb, o.Template) {
		return false
	}
	if !o.StartedAfter.IsZero() && !sb.Started.After(o.StartedAfter) {
		return false
	}
	for k, v := range o.Metadata {
		if got, ok := sb.Metadata[k]; !ok || got != v {
			return false
		}
	}
	return true
}
