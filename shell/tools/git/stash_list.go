package git

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
)

// stashed is one entry of the stash.
type stashed struct {
	at   plumbing.Hash
	line string // of the log
}

const stashLog = "logs/refs/stash"

// stashes lists the stash, newest first.
func (r *repo) stashes() []stashed {
	var out []stashed
	for _, l := range strings.Split(r.read(stashLog), "\n") {
		if f := strings.Fields(l); len(f) > 2 && len(f[1]) == 40 {
			out = append(out, stashed{plumbing.NewHash(f[1]), l})
		}
	}
	slices.Reverse(out)
	return out
}

func (r *repo) stashHead() plumbing.Hash {
	h, _ := r.ref("refs/stash")
	return h
}

// keepStashes writes the list to the disk.
func (r *repo) keepStashes(all []stashed) error {
	if len(all) == 0 {
		r.forget(stashLog)
		return r.store.RemoveReference("refs/stash")
	}
	var b strings.Builder
	old := plumbing.ZeroHash
	for _, s := range slices.Backward(all) {
		f := strings.SplitN(s.line, " ", 3)
		fmt.Fprintf(&b, "%s %s %s\n", old, s.at, f[2])
		old = s.at
	}
	if err := r.FS().MkdirAll(path.Dir(path.Join(r.git_, stashLog)), 0o777&^r.Umask()); err != nil {
		return err
	}
	if err := r.write(stashLog, b.String()); err != nil {
		return err
	}
	return r.setRef("refs/stash", all[0].at)
}
