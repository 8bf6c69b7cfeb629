package timeline

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/cursor"
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
func (p Place) Cursor() string { return cursor.Write(p.created, string(p.id)) }

// ParsePlace reads the text that Cursor wrote. ok is false for any other text.
func ParsePlace(text string) (_ Place, ok bool) {
	at, name, ok := cursor.Read(text)
	if !ok {
		return Place{}, false
	}
	id, err := carrel.ParseSnapshotID(name)
	if err != nil {
		return Place{}, false
	}
	return Place{at, id}, true
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
