package overlay

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel"
)

// Apply carries out the changes whose paths are not protected. It first writes new content whole to
// a directory ".carrel-apply-…" in the lower directory. Then it renames everything into place, and
// moves the replaced files into that directory. On an error it undoes all of it and leaves the
// lower directory as it was. Error: Conflict, naming the paths, when somebody changed the lower
// directory since; Exhausted when its disk is full. If this process is killed between the renames,
// the replaced files are still in that directory.
func Apply(ctx context.Context, lower, upper string, changes []Change, o Options) (_ []Skipped, err error) {
	a := &apply{ctx: ctx, o: o, left: map[string]string{}}
	if a.lower, err = openTree(lower, false); err != nil {
		return nil, applyError(err)
	}
	defer a.lower.Close()
	if a.upper, err = openTree(upper, true); err != nil {
		return nil, applyError(err)
	}
	defer a.upper.Close()
	if err := a.plan(changes); err != nil {
		return nil, applyError(err)
	}
	if err := a.conflicts(); err != nil {
		return nil, err
	}
	if len(a.steps) == 0 {
		return a.skipped, nil
	}
	defer a.dropStages()
	if err := a.stageAll(); err != nil {
		return nil, applyError(err)
	}
	if err := a.commit(); err != nil {
		return nil, applyError(err)
	}
	return a.skipped, nil
}

// applyError gives err its kind and a hint.
func applyError(err error) error {
	e := &carrel.Error{Op: "apply changes", Err: err}
	var ours *carrel.Error
	switch {
	case errors.As(err, &ours):
		return err
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		e.Kind, e.Hint = carrel.Exhausted, "nothing was changed; make room on that filesystem and apply again"
	case errors.Is(err, unix.EROFS), errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		e.Kind, e.Hint = carrel.Forbidden, "nothing was changed; the directory must be writable for you"
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	default:
		e.Kind = carrel.Internal
	}
	return e
}

// apply is one call of Apply.
type apply struct {
	ctx          context.Context
	o            Options
	lower, upper *tree
	steps        []*step
	skipped      []Skipped
	left         map[string]string // paths that were left out, with the reason
	stages       map[string]*stage
	linked       map[uint64]staged // staged content of an inode with several names
	undo, last   []func() error
	opened       map[string]bool // directories that were made writable
	modes        map[string]bool // directories that got the layer's permissions
	undone       bool
}

// step is one change that is carried out.
type step struct {
	Change
	low, up *node
	new     staged
}

// skip leaves a change out.
func (a *apply) skip(c Change, rule string) {
	a.left[c.Path] = rule
	a.skipped = append(a.skipped, Skipped{c, rule})
}

// plan decides which changes are carried out.
func (a *apply) plan(changes []Change) error {
	changes = slices.Clone(changes)
	slices.SortStableFunc(changes, func(x, y Change) int { return comparePaths(x.Path, y.Path) })
	for _, c := range changes {
		if !filepath.IsLocal(c.Path) || path.Clean(c.Path) != c.Path || c.Path == "." {
			return &carrel.Error{Op: "apply changes", Kind: carrel.Invalid, Err: fmt.Errorf("%s is no path of a change", quotePath(c.Path))}
		}
		if rule, yes := a.protected(c.Path); yes {
			a.skip(c, rule)
			continue
		}
		s := &step{Change: c}
		var err error
		if s.low, err = a.lower.stat(c.Path); errors.Is(err, unix.EXDEV) {
			a.skip(c, "another filesystem is mounted there")
			continue
		} else if err != nil {
			return err
		}
		if c.Kind != Removed {
			if s.up, err = a.upper.stat(c.Path); err != nil {
				return err
			}
			if s.up == nil {
				return fmt.Errorf("%s is not in the upper layer", quotePath(c.Path))
			}
			if what := s.up.special(); what != "" {
				a.skip(c, what+" is not carried over")
				continue
			}
		}
		a.steps = append(a.steps, s)
	}
	return a.settle()
}

// protected asks Options.Protected about a path and every directory above it.
func (a *apply) protected(p string) (string, bool) {
	if a.o.Protected == nil {
		return "", false
	}
	for i := 0; i <= len(p); i++ {
		if i == len(p) || p[i] == '/' {
			if rule, yes := a.o.Protected(p[:i]); yes {
				return rule, true
			}
		}
	}
	return "", false
}

// settle leaves out changes that depend on a change left out before. A directory stays while a file
// in it stays, and nothing is put into a directory that is not made.
func (a *apply) settle() error {
	goes := map[string]bool{}
	for _, s := range a.steps {
		if s.Kind == Removed {
			goes[s.Path] = true
		}
	}
	kept := a.steps[:0:0]
	for _, s := range slices.Backward(a.steps) {
		if s.low.isDir() && !s.up.isDir() {
			names, err := a.lower.list(s.Path)
			if err != nil {
				return err
			}
			if i := slices.IndexFunc(names, func(n string) bool { return !goes[path.Join(s.Path, n)] }); i >= 0 {
				delete(goes, s.Path)
				a.skip(s.Change, "holds "+quotePath(names[i])+", which stays")
				continue
			}
		}
		kept = append(kept, s)
	}
	slices.Reverse(kept)
	a.steps = kept[:0]
	for _, s := range kept {
		if rule, out := a.leftAbove(s.Path); out && s.Kind != Removed {
			a.skip(s.Change, rule)
			continue
		}
		if s.Kind != Removed || s.low != nil {
			a.steps = append(a.steps, s)
		}
	}
	slices.SortStableFunc(a.skipped, func(x, y Skipped) int { return comparePaths(x.Path, y.Path) })
	return nil
}

// leftAbove reports whether a directory above p was left out and does not exist. Then p has no
// place.
func (a *apply) leftAbove(p string) (string, bool) {
	for dir := path.Dir(p); dir != "."; dir = path.Dir(dir) {
		if rule, out := a.left[dir]; out {
			if low, err := a.lower.stat(dir); err != nil || !low.isDir() {
				return rule, true
			}
		}
	}
	return "", false
}

// conflicts looks for files that somebody else changed since the program started.
func (a *apply) conflicts() error {
	if a.o.Force {
		return nil
	}
	var paths []string
	steps := a.steps[:0:0]
	for _, s := range a.steps {
		bad, err := a.conflict(s)
		if err != nil {
			return applyError(err)
		}
		if bad {
			if done, err := a.done(s); err != nil {
				return applyError(err)
			} else if done {
				continue // both have the same result
			}
			paths = append(paths, quotePath(s.Path))
		}
		steps = append(steps, s)
	}
	a.steps = steps
	return conflictError(paths)
}

// conflictError names the first few paths.
func conflictError(paths []string) error {
	if len(paths) == 0 {
		return nil
	}
	text := strings.Join(paths[:min(len(paths), 10)], ", ")
	if n := len(paths) - 10; n > 0 {
		text += fmt.Sprintf(" and %d more", n)
	}
	return &carrel.Error{Op: "apply changes", Kind: carrel.Conflict, Err: fmt.Errorf("changed outside meanwhile: %s", text),
		Hint: "nothing was changed; compare with the diff, or force it to overwrite them"}
}

// conflict reports whether the lower file has changed since the program started.
func (a *apply) conflict(s *step) (bool, error) {
	switch {
	case s.Kind == Added && s.low != nil, (s.Kind == Modified || s.Kind == Mode) && s.low == nil:
		return true, nil // since the changes were listed
	}
	if !a.o.Since.IsZero() && s.low != nil && !s.low.isDir() && !s.low.changed().Before(a.o.Since) {
		return true, nil
	}
	if a.o.Base == nil {
		return false, nil
	}
	was, ok := a.o.Base(s.Path)
	if !ok || s.low == nil {
		return ok != (s.low != nil), nil
	}
	return !sameState(was, s.low), nil
}

// sameState reports whether n is still the file that was describes.
func sameState(was fs.FileInfo, n *node) bool {
	mode := fileMode(n.Mode)
	if was.Mode().Type() != mode.Type() {
		return false
	}
	if mode.IsDir() {
		return true
	}
	if st, ok := was.Sys().(*syscall.Stat_t); ok && (st.Ino != n.Ino || st.Ctim != syscall.Timespec(n.Ctim)) {
		return false
	}
	return was.Size() == n.Size && was.Mode() == mode && was.ModTime().UnixNano() == n.Mtim.Nano()
}

// done reports whether the lower directory already has the result of the change.
func (a *apply) done(s *step) (bool, error) {
	if s.Kind == Removed || s.low.typ() != s.up.typ() {
		return s.Kind == Removed && s.low == nil, nil
	}
	w := &walk{ctx: a.ctx, lower: a.lower, upper: a.upper}
	same, err := w.same(s.Path, s.up, s.low)
	return same && (s.up.isLink() || newMode(s.up, s.low) == s.low.Mode), err
}
