package timeline

import (
	"cmp"
	"encoding/base64"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/carrel-dev/carrel"
)

// Place is a place in the order of snapshots: by time, then by ID. It stays valid after its
// snapshot has gone.
type Place struct {
	created time.Time
	id      carrel.SnapshotID
}

// PlaceOf is the place of a snapshot.
func PlaceOf(sn carrel.Snapshot) Place { return Place{sn.Created, sn.ID} }

// Compare orders places: the older comes first.
func (p Place) Compare(o Place) int {
	return cmp.Or(p.created.Compare(o.created), cmp.Compare(p.id, o.id))
}

// Cursor writes a place as the opaque text that clients see.
func (p Place) Cursor() string { return WriteCursor(p.created, string(p.id)) }

// ParsePlace reads the text that Cursor wrote. ok is false for any other text.
func ParsePlace(cursor string) (_ Place, ok bool) {
	at, name, ok := ReadCursor(cursor)
	if !ok {
		return Place{}, false
	}
	id, err := carrel.ParseSnapshotID(name)
	if err != nil {
		return Place{}, false
	}
	return Place{at, id}, true
}

// WriteCursor writes a place in a list that is ordered by time and then by ID.
func WriteCursor(at time.Time, id string) string {
	return base64.RawURLEncoding.EncodeToString([]byte(strconv.FormatInt(at.UnixNano(), 10) + ":" + id))
}

// ReadCursor reads the text that [WriteCursor] wrote. ok is false for any other text. The caller
// checks the ID.
func ReadCursor(cursor string) (at time.Time, id string, ok bool) {
	const longest = 128
	if len(cursor) > longest {
		return time.Time{}, "", false
	}
	raw, err := base64.RawURLEncoding.DecodeString(cursor)
	if err != nil {
		return time.Time{}, "", false
	}
	nanos, id, found := strings.Cut(string(raw), ":")
	n, err := strconv.ParseInt(nanos, 10, 64)
	if !found || err != nil {
		return time.Time{}, "", false
	}
	return time.Unix(0, n), id, true
}

// AskedFor reports whether a snapshot was requested for its own sake. A pause's snapshot may become
// one later: it is Kept then.
func AskedFor(sn carrel.Snapshot) bool {
	return sn.Cause == carrel.CauseRequest || sn.Cause == carrel.CauseGuest || sn.Kept || len(sn.Names) > 0
}

// IsCalled reports whether a snapshot has a name. The name may be given with or without its tag.
func IsCalled(sn carrel.Snapshot, name string) bool {
	return name == "" || slices.ContainsFunc(sn.Names, func(n string) bool {
		base, _, _ := strings.Cut(n, ":")
		return n == name || base == name || SameName(n, name)
	})
}

// DefaultTag is the tag of a name without a tag.
const DefaultTag = ":default"

// SameName reports whether two names find the same snapshot.
func SameName(a, b string) bool {
	return a == b || a+DefaultTag == b || a == b+DefaultTag
}

// List lists the matching snapshots, of one sandbox or of all ("").
func (x *Index) List(of carrel.ID, match func(carrel.Snapshot) bool) []carrel.Snapshot {
	x.mu.Lock()
	defer x.mu.Unlock()
	var out []carrel.Snapshot
	add := func(id carrel.SnapshotID) {
		if sn := x.byID[id].Snapshot; !Hidden(sn) && match(sn) {
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
