package service

import (
	"cmp"
	"context"
	"encoding/base64"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/carrel-dev/carrel"
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
func (p position) cursor() string {
	return base64.RawURLEncoding.EncodeToString([]byte(strconv.FormatInt(p.started.UnixNano(), 10) + ":" + string(p.id)))
}

// parseCursor reads what cursor wrote.
func parseCursor(s string) (position, error) {
	const longest = 128
	bad := invalid(opList, "nextToken", "%s is not a token of this list", clip(s))
	if len(s) > longest {
		return position{}, bad
	}
	raw, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil {
		return position{}, bad
	}
	nanos, name, ok := strings.Cut(string(raw), ":")
	n, err := strconv.ParseInt(nanos, 10, 64)
	if !ok || err != nil {
		return position{}, bad
	}
	id, err := carrel.ParseID(name)
	if err != nil {
		return position{}, bad
	}
	return position{time.Unix(0, n), id}, nil
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
	var matching []carrel.Sandbox
	var page carrel.Page
	for _, b := range s.snapshot() {
		sb := b.public()
		if !matches(sb, o) {
			continue
		}
		if sb.State == carrel.Running {
			page.Running++
		}
		matching = append(matching, sb)
	}
	order := func(a, b carrel.Sandbox) int {
		c := positionOf(a).compare(positionOf(b))
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
		last := carrel.Sandbox{Started: after.started, ID: after.id}
		i, found := slices.BinarySearchFunc(matching, last, order)
		if found {
			i++
		}
		matching = matching[i:]
	}
	if len(matching) > o.Limit {
		matching = matching[:o.Limit]
		page.Next = positionOf(matching[o.Limit-1]).cursor()
	}
	page.Sandboxes = matching
	return page, nil
}

func checkList(o carrel.ListOptions) error {
	if o.Limit < 0 || o.Limit > maxPage {
		return invalid(opList, "limit", "%d is not between 1 and %d", o.Limit, maxPage)
	}
	for _, st := range o.States {
		switch st {
		case carrel.Starting, carrel.Running, carrel.Paused, carrel.Stopping:
		default:
			return invalid(opList, "state", "%s is not a state", clip(string(st)))
		}
	}
	return nil
}

// matches reports whether a sandbox passes a list's filters.
func matches(sb carrel.Sandbox, o carrel.ListOptions) bool {
	if len(o.States) > 0 && !slices.Contains(o.States, sb.State) {
		return false
	}
	if o.Template != "" && o.Template != sb.Template && o.Template != sb.Alias {
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
