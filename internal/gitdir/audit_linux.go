package gitdir

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel"
)

// Audit examines the files that a hostile program could write to.
type Audit struct {
	// Roots are the directories that were writable. They are absolute, with links resolved.
	Roots []string
	// Closed reports whether a directory below a root was certainly not writable. Such a directory
	// is skipped. If Closed is nil, none is.
	Closed func(path string) bool
	// Lifted reports whether the user allowed writes to a file of a repository by naming the file.
	// Such a file is left as it is. If Lifted is nil, there is none.
	Lifted func(path string) bool
	// Since is the program's start, by the system's clock.
	Since unix.Timespec
	// Before holds the repositories' directories and .git files that existed at Since.
	Before Before
	// Hooks and Configs say that all hooks, or all configurations, were open for writing. They are
	// then left as they are.
	Hooks, Configs bool
	// Seize moves a file out of an open directory and returns its new place.
	Seize func(dir int, full string) (where string, err error)
	// Tell is called for each file that was removed, after the removal.
	Tell func(Finding)

	walked   map[string]bool // directories that may serve as a repository
	pointers []string        // .git that are no directories
	judged   map[string]bool
	errs     []error
	left     int // errors that are not in errs
}

// Finding is a file or setting that was removed from a repository.
type Finding struct {
	Path  string
	What  string // the kind of the finding, for a person
	Where string // where it is now
}

// identity identifies a file.
type identity struct{ dev, ino uint64 }

// Before holds the identities of files at the start, by path. See [Remember].
type Before map[string]identity

// Remember records repositories' directories, and .git files, before the program starts.
func Remember(paths []string) Before {
	b := make(Before, 2*len(paths))
	for _, p := range paths {
		for _, name := range []string{p, p + "/hooks"} {
			var st unix.Stat_t
			if unix.Lstat(name, &st) == nil {
				b[name] = identity{st.Dev, st.Ino}
			}
		}
	}
	return b
}

// same reports whether a path still is the same file.
func (b Before) same(path string) bool {
	id, ok := b[path]
	var st unix.Stat_t
	return ok && unix.Lstat(path, &st) == nil && id == identity{st.Dev, st.Ino}
}

// maxErrors bounds the number of reported errors; all are counted.
const maxErrors = 5

// fail records that a path could not be examined or removed.
func (a *Audit) fail(path string, err error) {
	if len(a.errs) < maxErrors {
		a.errs = append(a.errs, fmt.Errorf("%q: %w", path, err))
	} else {
		a.left++
	}
}

// Run examines everything and removes what would make git run a program. The error names the paths
// that could not be examined or removed: git must not be used there.
func (a *Audit) Run() error {
	a.walked, a.judged = map[string]bool{}, map[string]bool{}
	a.walk()
	for dir := range a.walked {
		a.judge(dir)
	}
	slices.Sort(a.pointers)
	for _, p := range a.pointers {
		a.pointer(p)
	}
	if len(a.errs) == 0 {
		return nil
	}
	if a.left > 0 {
		a.errs = append(a.errs, fmt.Errorf("and %d more", a.left))
	}
	return &carrel.Error{Op: "look for repositories that the command left", Kind: carrel.Internal, Err: errors.Join(a.errs...),
		Hint: "do not use git there before you have looked at it: a repository may run a program of the command's"}
}

// fresh reports whether a file's status changed since the program started.
func (a *Audit) fresh(st *unix.Stat_t) bool {
	return st.Ctim.Sec > a.Since.Sec || st.Ctim.Sec == a.Since.Sec && st.Ctim.Nsec >= a.Since.Nsec
}

// root returns the root that contains a path; "" for none.
func (a *Audit) root(path string) (found string) {
	for _, r := range a.Roots {
		if within(path, r) && len(r) > len(found) {
			found = r
		}
	}
	return found
}

// within reports whether a path is a directory or below it.
func within(path, dir string) bool {
	return path == dir || dir == "/" || strings.HasPrefix(path, dir+"/")
}

// stayed reports whether a directory or file has not moved since the program's start. Either it was
// seen there at the start, or neither it nor any directory above it has changed since.
func (a *Audit) stayed(path string) bool {
	if a.Before.same(path) {
		return true
	}
	root := a.root(path)
	for p := path; root != "" && p != root; p = filepath.Dir(p) {
		var st unix.Stat_t
		if unix.Lstat(p, &st) != nil || a.fresh(&st) {
			return false
		}
	}
	return true
}

// lifted reports whether a file must be left as it is.
func (a *Audit) lifted(path string) bool { return a.Lifted != nil && a.Lifted(path) }

// take removes a name and reports it.
func (a *Audit) take(dir int, full, what string) bool {
	where, err := a.Seize(dir, full)
	if err == unix.ENOENT {
		return true
	}
	if err != nil {
		a.fail(full, fmt.Errorf("%s can't be taken away: %w", what, err))
		return false
	}
	a.Tell(Finding{full, what, where})
	return true
}

// pointer judges a .git that is not a directory.
func (a *Audit) pointer(full string) {
	parent := filepath.Dir(full)
	dir, err := straight(parent)
	if err != nil {
		if err != unix.ENOENT {
			a.fail(full, err)
		}
		return
	}
	defer unix.Close(dir)
	var st unix.Stat_t
	name := filepath.Base(full)
	if unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil || a.lifted(full) {
		return
	}
	old := a.stayed(full) && !a.fresh(&st)
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFLNK:
		if !old {
			a.take(dir, full, "a link in place of a repository")
		}
	case unix.S_IFREG:
		target := a.target(dir, parent, name)
		if target != "" && a.root(target) != "" {
			a.judge(target)
			a.followCommon(target)
		}
		if !old && !a.own(target, full) {
			a.take(dir, full, "a .git file that leads to a repository which is not its own")
		}
	}
}

// target returns the directory that a .git file leads to, with links resolved; "" if it leads to
// none.
func (a *Audit) target(dir int, parent, name string) string {
	data, _, ok := readAt(dir, name)
	if !ok {
		return ""
	}
	text, is := strings.CutPrefix(string(data), "gitdir: ")
	if !is {
		return ""
	}
	text, _, _ = strings.Cut(strings.TrimRight(text, "\r\n"), "\x00")
	return resolve(parent, text)
}

// resolve follows a path in a file of dir; "" if nothing is there.
func resolve(dir, name string) string {
	if name == "" {
		return ""
	}
	if !filepath.IsAbs(name) {
		name = dir + "/" + name
	}
	real, err := filepath.EvalSymlinks(name)
	if err != nil {
		return ""
	}
	return real
}

// own reports whether a .git file leads to a repository that leads back to it and runs no program
// when it is used from there. Such repositories belong to worktrees and submodules.
func (a *Audit) own(target, full string) bool {
	if target == "" {
		return true // git refuses it
	}
	if a.root(target) == "" {
		return false
	}
	dir, err := straight(target)
	if err != nil {
		return false
	}
	defer unix.Close(dir)
	if back, _, ok := readAt(dir, "gitdir"); ok { // a worktree
		return resolve(target, strings.TrimRight(string(back), "\r\n")) == full && a.commonOf(dir, target) != "" && a.plain(a.commonOf(dir, target))
	}
	data, _, ok := readAt(dir, "config")
	if !ok {
		return false
	}
	entries, whole := Parse(data)
	i := slices.IndexFunc(entries, func(e Entry) bool { return e.Name() == "core.worktree" })
	return whole && i >= 0 && resolve(target, entries[i].Value) == filepath.Dir(full) && a.plain(target)
}

// plain reports whether a repository's present configuration is harmless.
func (a *Audit) plain(target string) bool {
	dir, err := straight(target)
	if err != nil {
		return false
	}
	defer unix.Close(dir)
	for _, name := range []string{"config", "config.worktree"} {
		data, exists, ok := readAt(dir, name)
		if !exists {
			continue
		}
		_, whole := Parse(data)
		if _, out := Sanitise(data, Options{Worktree: func(string) bool { return true }}); !ok || !whole || len(out) > 0 {
			return false
		}
	}
	return true
}
