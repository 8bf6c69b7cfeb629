package service

import (
	"cmp"
	"context"
	"encoding/base64"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/state"
)

// GetSnapshot implements carrel.Moments.
func (s *Service) GetSnapshot(ctx context.Context, idOrName string) (carrel.Snapshot, error) {
	sr, err := s.findSnapshot("get snapshot", idOrName)
	if err != nil {
		return carrel.Snapshot{}, err
	}
	return s.withCost(ctx, sr.Snapshot), nil
}

// withCost fills in what a snapshot costs, as far as that is known by now, and makes
// it the caller's own.
func (s *Service) withCost(ctx context.Context, sn carrel.Snapshot) carrel.Snapshot {
	sn.Names = slices.Clone(sn.Names)
	sn.New = -1
	if s.opts.Snapshots == nil {
		return sn
	}
	if st, err := s.opts.Snapshots.Stat(ctx, sn.ID); err == nil {
		sn.New = st.New
	}
	return sn
}

const opListSnapshots = "list snapshots"

// moment is a place in the order of snapshots: by time, then by ID. It stays valid
// when the snapshot that it names has gone.
type moment struct {
	created time.Time
	id      carrel.SnapshotID
}

func momentOf(sn carrel.Snapshot) moment { return moment{sn.Created, sn.ID} }

func (m moment) compare(o moment) int {
	return cmp.Or(m.created.Compare(o.created), cmp.Compare(m.id, o.id))
}

// cursor writes a place as clients see it: opaque text.
func (m moment) cursor() string {
	return base64.RawURLEncoding.EncodeToString([]byte(strconv.FormatInt(m.created.UnixNano(), 10) + ":" + string(m.id)))
}

// parseMoment reads what cursor wrote.
func parseMoment(s string) (moment, error) {
	const longest = 128
	bad := invalid(opListSnapshots, "nextToken", "%s is not a token of this list", clip(s))
	if len(s) > longest {
		return moment{}, bad
	}
	raw, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil {
		return moment{}, bad
	}
	nanos, name, ok := strings.Cut(string(raw), ":")
	n, err := strconv.ParseInt(nanos, 10, 64)
	if !ok || err != nil {
		return moment{}, bad
	}
	id, err := carrel.ParseSnapshotID(name)
	if err != nil {
		return moment{}, bad
	}
	return moment{time.Unix(0, n), id}, nil
}

// ListSnapshots implements carrel.Moments. Paging is stable: snapshots that come or
// go between two pages shift none of the others.
func (s *Service) ListSnapshots(ctx context.Context, o carrel.SnapshotListOptions) (carrel.SnapshotPage, error) {
	if o.Limit < 0 || o.Limit > maxPage {
		return carrel.SnapshotPage{}, invalid(opListSnapshots, "limit", "%d is not between 1 and %d", o.Limit, maxPage)
	}
	if o.Limit == 0 {
		o.Limit = maxPage
	}
	if o.Sandbox != "" {
		if _, err := carrel.ParseID(string(o.Sandbox)); err != nil {
			return carrel.SnapshotPage{}, invalid(opListSnapshots, "sandboxID", "%s is not a sandbox ID", clip(string(o.Sandbox)))
		}
	}
	last := moment{}
	if o.Cursor != "" {
		var err error
		if last, err = parseMoment(o.Cursor); err != nil {
			return carrel.SnapshotPage{}, err
		}
	}
	all := s.snaps.public(o.Sandbox, func(sn carrel.Snapshot) bool {
		return (o.Auto || askedFor(sn)) && isCalled(sn, o.Name) && (o.Cursor == "" || momentOf(sn).compare(last) < 0)
	})
	slices.SortFunc(all, func(a, b carrel.Snapshot) int { return momentOf(b).compare(momentOf(a)) })
	var page carrel.SnapshotPage
	if len(all) > o.Limit {
		all = all[:o.Limit]
		page.Next = momentOf(all[o.Limit-1]).cursor()
	}
	for i := range all {
		all[i] = s.withCost(ctx, all[i])
	}
	page.Snapshots = all
	return page, nil
}

// askedFor reports whether somebody wanted a snapshot for its own sake. One that was
// taken for a pause may be made that later: it is Kept then.
func askedFor(sn carrel.Snapshot) bool {
	return sn.Cause == carrel.CauseRequest || sn.Cause == carrel.CauseGuest || sn.Kept || len(sn.Names) > 0
}

// isCalled reports whether a snapshot has a name, given with or without its tag.
func isCalled(sn carrel.Snapshot, name string) bool {
	return name == "" || slices.ContainsFunc(sn.Names, func(n string) bool {
		base, _, _ := strings.Cut(n, ":")
		return n == name || base == name || sameName(n, name)
	})
}

// defaultTag is what a name without a tag means.
const defaultTag = ":default"

// sameName reports whether two names find the same snapshot.
func sameName(a, b string) bool {
	return a == b || a+defaultTag == b || a == b+defaultTag
}

// public lists what matches, of one sandbox or of all ("").
func (x *index) public(of carrel.ID, match func(carrel.Snapshot) bool) []carrel.Snapshot {
	x.mu.Lock()
	defer x.mu.Unlock()
	var out []carrel.Snapshot
	add := func(id carrel.SnapshotID) {
		if sn := x.byID[id].Snapshot; !hidden(sn) && match(sn) {
			out = append(out, sn)
		}
	}
	if of == "" {
		for id := range x.byID {
			add(id)
		}
		return out
	}
	for id := range x.of[of] {
		add(id)
	}
	return out
}

// UpdateSnapshot implements carrel.Moments.
func (s *Service) UpdateSnapshot(ctx context.Context, id carrel.SnapshotID, u carrel.SnapshotUpdate) (carrel.Snapshot, error) {
	const op = "update snapshot"
	if u.Names != nil {
		if err := checkNames(op, *u.Names); err != nil {
			return carrel.Snapshot{}, err
		}
	}
	if u.Label != nil {
		if err := checkLabel(op, *u.Label); err != nil {
			return carrel.Snapshot{}, err
		}
	}
	s.snaps.edit.Lock()
	defer s.snaps.edit.Unlock()
	sr, ok := s.snaps.get(id)
	if !ok || hidden(sr.Snapshot) {
		_, err := s.findSnapshot(op, string(id))
		if err == nil { // it is a name, which this method does not take
			err = &carrel.Error{Op: op, Kind: carrel.NotFound, Field: "snapshotID", Err: fmt.Errorf("no snapshot has the ID %s", clip(string(id)))}
		}
		return carrel.Snapshot{}, err
	}
	if u.Names != nil {
		if err := s.nameTaken(op, id, *u.Names); err != nil {
			return carrel.Snapshot{}, err
		}
		sr.Snapshot.Names = slices.Clone(*u.Names)
	}
	if u.Label != nil {
		sr.Snapshot.Label = *u.Label
	}
	if u.Kept != nil {
		sr.Snapshot.Kept = *u.Kept
	}
	if err := s.apply(ctx, state.Change{PutSnapshots: []state.SnapshotRecord{sr}}); err != nil {
		return carrel.Snapshot{}, &carrel.Error{Op: op, Kind: carrel.KindOf(err), Err: err, Hint: carrel.HintOf(err)}
	}
	return s.withCost(ctx, sr.Snapshot), nil
}

// checkNames checks the names that one snapshot is to have.
func checkNames(op string, names []string) error {
	if len(names) > maxNames {
		return invalid(op, "names", "%d names, at most %d may be", len(names), maxNames)
	}
	for i, n := range names {
		if n == "" {
			return invalid(op, "names", "a name is empty")
		}
		if err := checkSnapshotName(op, n); err != nil {
			return err
		}
		if slices.ContainsFunc(names[:i], func(o string) bool { return sameName(o, n) }) {
			return invalid(op, "names", "%s is given twice", clip(n))
		}
	}
	return nil
}

// nameTaken returns an error when another snapshot has one of the names.
func (s *Service) nameTaken(op string, id carrel.SnapshotID, names []string) error {
	for _, n := range names {
		for _, form := range []string{n, strings.TrimSuffix(n, defaultTag)} {
			had, ok := s.snaps.named(form)
			if ok && had.Snapshot.ID != id {
				return &carrel.Error{Op: op, Kind: carrel.AlreadyExists, Field: "names",
					Err:  fmt.Errorf("%s is the name of snapshot %s already", clip(n), had.Snapshot.ID),
					Hint: "take it away from that one first"}
			}
		}
	}
	return nil
}
