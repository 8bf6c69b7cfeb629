package assembly

import (
	"context"

	"github.com/carrel-dev/carrel/internal/datadir"
	"github.com/carrel-dev/carrel/internal/service"
	"github.com/carrel-dev/carrel/internal/snapshot"
	"github.com/carrel-dev/carrel/internal/snapshot/apart"
	snapshots "github.com/carrel-dev/carrel/internal/snapshot/store"
)

// identify finds out whether the data directory is itself, or a copy.
func (a *Assembly) identify() (err error) {
	if a.keeperless { // Examine: nothing runs there
		return nil
	}
	if a.home, err = datadir.Open(a.dir, a.cfg.AdoptCopy); err != nil {
		return err
	}
	h := a.home
	switch {
	case h.Claimed:
		a.log.Warn("this data directory is a copy, and owns everything in it from now on", "original",
			h.Original(), "identity", h.ID)
	case h.Copy():
		problem, hint := h.State()
		a.log.Warn("this data directory is not the original: "+problem, "identity", h.ID, "hint", hint)
	case a.cfg.AdoptCopy:
		a.log.Warn("--adopt-copy has no effect: this data directory is no copy", "hint",
			"leave it out: a later copy of this machine would adopt itself")
	}
	return nil
}

// ownPart keeps a copy from changing anything in a store of packs that its original uses, too.
func (a *Assembly) ownPart(dir string, blobs snapshot.Blobs, shared bool) (snapshot.Blobs, error) {
	if a.home == nil || !shared {
		return blobs, nil
	}
	a.home.KeepApart()
	if len(a.home.Parts) > 0 {
		return apart.New(blobs, a.home.Parts), nil
	}
	if a.home.Verdict == datadir.Copied {
		return blobs, snapshots.Separate(dir)
	}
	return blobs, nil
}

// takeOver makes the records of a copy its own. Then it makes the directory's identity durable.
func (a *Assembly) takeOver(ctx context.Context) error {
	if a.home == nil {
		return nil
	}
	h := a.home
	t := service.Takeover{Original: h.Original(), Disown: h.Verdict == datadir.Copied}
	if h.Claimed {
		t.Back = h.Renamed
	} else {
		t.Rename = h.Verdict == datadir.Copied && !h.Restored
	}
	if t.Disown || len(t.Back) > 0 {
		renamed, err := t.TakeOver(ctx, a.state)
		if err != nil {
			return err
		}
		if h.Claimed {
			h.Renamed = nil
		}
		h.Rename(renamed)
		if t.Disown {
			a.lost = "it belongs to " + h.Original() +
				", of which this one is a copy, and has no snapshot here"
		}
		a.log.Warn("the records of the copy are its own now", "original", h.Original(), "renamed",
			len(renamed))
	}
	err := h.Commit()
	if err != nil && h.Verdict == datadir.Same && !h.Claimed {
		// Only the boot is not up to date, and the disk may be full. The next start tries again.
		a.log.Warn("where this data directory is can't be written down", "err", err)
		return nil
	}
	return err
}

// Copy says, for a person, that the data directory is a copy that owns nothing of its original's;
// "" when it is none.
func (a *Assembly) Copy() (problem, hint string) {
	if a.home == nil {
		return "", ""
	}
	return a.home.State()
}
