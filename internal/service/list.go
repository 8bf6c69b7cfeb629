package service

import (
	"context"
	"slices"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/cursor"
)

const (
	opList  = "list sandboxes"
	maxPage = 100
)

// cursor writes a position as the opaque text that clients see.
func (p position) cursor() string { return cursor.Write(p.started, string(p.id)) }

// parseCursor reads the text that cursor wrote.
func parseCursor(s string) (position, error) {
	at, name, ok := cursor.Read(s)
	id, err := carrel.ParseID(name)
	if !ok || err != nil {
		return position{}, invalid(opList, "nextToken", "%s is not a token of this list", clip(s))
	}
	return position{at, id}, nil
}

// List implements carrel.Sandboxes. Paging is stable: sandboxes that come or go between two pages
// do not shift the others.
func (s *Service) List(_ context.Context, o carrel.ListOptions) (carrel.Page, error) {
	if err := checkList(o); err != nil {
		return carrel.Page{}, err
	}
	if o.Limit == 0 {
		o.Limit = maxPage
	}
	var after *position
	if o.Cursor != "" {
		p, err := parseCursor(o.Cursor)
		if err != nil {
			return carrel.Page{}, err
		}
		after = &p
	}
	page := carrel.Page{Running: s.running(o)}
	found, more := s.matching(o, after)
	if more {
		page.Next = found[len(found)-1].position.cursor()
	}
	for _, l := range found {
		page.Sandboxes = append(page.Sandboxes, l.box.public())
	}
	return page, nil
}

// listBatch is how many sandboxes List takes from the roll at a time.
const listBatch = 2 * maxPage

// matching lists the sandboxes after a position that pass the filters, at most o.Limit of them.
// more says that others follow.
func (s *Service) matching(o carrel.ListOptions, after *position) (out []listed, more bool) {
	k := orderKey{o.Project, partFor(o.States)}
	for {
		batch := s.table.roll.after(k, after, o.OldestFirst, listBatch)
		for _, l := range batch {
			if !l.box.matches(&o) {
				continue
			}
			if len(out) == o.Limit {
				return out, true
			}
			out = append(out, l)
		}
		if len(batch) < listBatch {
			return out, false
		}
		after = &batch[len(batch)-1].position
	}
}

// partFor is the smallest part that holds all sandboxes in the given states. No states means any
// state.
func partFor(states []carrel.State) part {
	var parts [asleep + 1]bool
	for _, st := range states {
		parts[partOf(st)] = true
	}
	switch {
	case parts[awake] && !parts[asleep]:
		return awake
	case parts[asleep] && !parts[awake]:
		return asleep
	}
	return everybody
}

// running counts the running sandboxes that pass the filters.
func (s *Service) running(o carrel.ListOptions) (n int) {
	if len(o.States) > 0 && !slices.Contains(o.States, carrel.Running) {
		return 0
	}
	o.States = []carrel.State{carrel.Running}
	for _, b := range s.table.roll.all(orderKey{o.Project, awake}) {
		if b.matches(&o) {
			n++
		}
	}
	return n
}

// matches reports whether a sandbox passes a list's filters.
func (b *box) matches(o *carrel.ListOptions) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return matches(&b.rec.Sandbox, o)
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

// isMadeFrom reports whether text is the name or ID of a sandbox's template. It compares text with
// the sandbox's record, because the template may be gone.
func isMadeFrom(sb *carrel.Sandbox, text string) bool {
	ref, err := carrel.ParseTemplateRef(text)
	return err == nil && ref.Plain() && (ref.Name() == sb.Template || ref.Name() == sb.Alias ||
		ref.Name() == sb.TemplateOf)
}

// matches reports whether a sandbox passes a list's filters.
func matches(sb *carrel.Sandbox, o *carrel.ListOptions) bool {
	if len(o.States) > 0 && !slices.Contains(o.States, sb.State) {
		return false
	}
	if sb.Build != "" && !o.Builds {
		return false
	}
	if o.Match != "" && !sb.Means(o.Match) {
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
