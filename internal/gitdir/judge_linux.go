package gitdir

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// judge examines a directory that serves as a repository, or could serve as one.
func (a *Audit) judge(dir string) {
	if a.judged[dir] {
		return
	}
	a.judged[dir] = true
	fd, err := straight(dir)
	if err != nil {
		if err != unix.ENOENT && err != unix.ENOTDIR && err != unix.ELOOP {
			a.fail(dir, err)
		}
		return
	}
	defer unix.Close(fd)
	r := &repository{Audit: a, dir: dir, fd: fd, stays: a.stayed(dir)}
	if !a.Configs {
		r.configs()
		r.common()
	}
	r.hooks()
	r.remotes("remotes")
	r.remotes("branches")
	for name := range stateFiles {
		r.state(fd, name)
	}
	for name := range stateDirs {
		r.stateDir(name)
	}
}

// repository is a repository under examination.
type repository struct {
	*Audit
	dir   string
	fd    int
	stays bool // it is where it was
}

// old reports whether a file in one of the repository's directories is unchanged. there says
// whether that directory is still in its place.
func (r *repository) old(dir int, name string, there bool) (st unix.Stat_t, exists, old bool) {
	if unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
		return st, false, false
	}
	return st, true, there && !r.fresh(&st)
}

// configs removes settings that may run a program from the configuration.
func (r *repository) configs() {
	o := Options{Worktree: func(value string) bool {
		tree := resolve(r.dir, value)
		return tree != "" && r.leadsHere(tree)
	}}
	for _, name := range []string{"config", "config.worktree"} {
		full := r.dir + "/" + name
		st, exists, old := r.old(r.fd, name, r.stays)
		if !exists || old || r.lifted(full) {
			continue
		}
		data, _, ok := readAt(r.fd, name)
		if ok && Harmless(data, o) {
			continue
		}
		clean, out := Sanitise(data, o)
		if ok && len(out) == 0 && name == "config" {
			if same, _ := Parse(clean); len(same) > 0 {
				r.replace(r.fd, full, clean, &st, "") // same settings, in the usual form
				continue
			}
		}
		what := "a git configuration that can't be read"
		if ok && len(out) > 0 {
			what = "git settings that may run a program: " + some(out)
		}
		r.replace(r.fd, full, clean, &st, what)
	}
}

// leadsHere reports whether a directory's .git file leads to this repository.
func (r *repository) leadsHere(tree string) bool {
	if r.root(tree) == "" {
		return false
	}
	dir, err := straight(tree)
	if err != nil {
		return false
	}
	defer unix.Close(dir)
	return r.target(dir, tree, ".git") == r.dir
}

// some lists a few names.
func some(names []string) string {
	const few = 4
	text := strings.Join(names[:min(few, len(names))], ", ")
	if n := len(names) - few; n > 0 {
		text += fmt.Sprintf(" and %d more", n)
	}
	return text
}

// replace removes a file and puts one with other content in its place. If what is "", it does not
// report that.
func (r *repository) replace(dir int, full string, data []byte, st *unix.Stat_t, what string) {
	name := ".carrel-new-" + rand.Text()[:10]
	if err := writeAt(dir, name, data, st); err != nil {
		r.fail(full, err)
		return
	}
	if what != "" && !r.take(dir, full, what) {
		_ = unix.Unlinkat(dir, name, 0)
		return
	}
	if err := unix.Renameat(dir, name, dir, filepath.Base(full)); err != nil {
		r.fail(full, err)
	}
}

// writeAt makes a file with the owner and permissions of another one.
func writeAt(dir int, name string, data []byte, st *unix.Stat_t) error {
	fd, err := unix.Openat(dir, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	mode := uint32(0o644)
	if st.Mode&unix.S_IFMT == unix.S_IFREG {
		mode = st.Mode&0o666 | 0o600
	}
	if os.Geteuid() == 0 {
		if err := unix.Fchown(fd, int(st.Uid), int(st.Gid)); err != nil {
			return err
		}
	}
	if err := unix.Fchmod(fd, mode); err != nil {
		return err
	}
	_, err = f.Write(data)
	return err
}

// common judges the repository that holds a worktree's configuration.
func (r *repository) common() {
	full := r.dir + "/commondir"
	_, exists, old := r.old(r.fd, "commondir", r.stays)
	if !exists || r.lifted(full) {
		return
	}
	main := r.commonOf(r.fd, r.dir)
	if main != "" && r.root(main) != "" {
		r.judge(main)
	}
	if !old && (main == "" || r.root(main) == "" || filepath.Dir(r.dir) != main+"/worktrees") {
		r.take(r.fd, full, "a link to the configuration of another repository")
	}
}

// commonOf returns the directory in a repository's commondir file; "" if there is none.
func (a *Audit) commonOf(fd int, dir string) string {
	data, _, ok := readAt(fd, "commondir")
	if !ok {
		return ""
	}
	text, _, _ := strings.Cut(strings.TrimRight(string(data), "\r\n"), "\x00")
	return resolve(dir, text)
}

// followCommon judges the repository that holds the configuration for the target of a .git file.
func (a *Audit) followCommon(target string) {
	fd, err := straight(target)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	if main := a.commonOf(fd, target); main != "" && a.root(main) != "" {
		a.judge(main)
	}
}

// hooks removes hooks.
func (r *repository) hooks() {
	if r.Hooks {
		return
	}
	full := r.dir + "/hooks"
	dir, old, ok := r.directory("hooks", "a link in place of hooks")
	if !ok {
		return
	}
	defer unix.Close(dir)
	there := r.stays && (old || r.Before.same(full))
	for _, name := range r.list(dir, full) {
		st, exists, old := r.old(dir, name, there)
		if exists && !old && st.Mode&unix.S_IFMT != unix.S_IFDIR && !strings.HasSuffix(name, ".sample") && !r.lifted(full+"/"+name) {
			r.take(dir, full+"/"+name, "a git hook")
		}
	}
}

// directory opens a directory of the repository, and reports whether it was there before the
// command. Something else in its place is taken, with this reason, if the command put it there. ok
// is false if there is nothing to look through.
func (r *repository) directory(name, reason string) (fd int, old, ok bool) {
	full := r.dir + "/" + name
	st, exists, old := r.old(r.fd, name, r.stays)
	if !exists || r.lifted(full) {
		return -1, old, false
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		if !old {
			r.take(r.fd, full, reason)
		}
		return -1, old, false
	}
	fd, err := straight(full)
	if err != nil {
		r.fail(full, err)
		return -1, old, false
	}
	return fd, old, true
}

// list lists a directory.
func (r *repository) list(dir int, full string) []string {
	fd, err := unix.Openat(dir, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		r.fail(full, err)
		return nil
	}
	f := os.NewFile(uintptr(fd), full)
	defer f.Close()
	names, err := f.Readdirnames(-1)
	if err != nil {
		r.fail(full, err)
	}
	slices.Sort(names)
	return names
}

// remotes examines files that describe remotes. Git used them before remotes were in the
// configuration, and still obeys them.
func (r *repository) remotes(name string) {
	full := r.dir + "/" + name
	st, exists, old := r.old(r.fd, name, r.stays)
	switch {
	case !exists:
		return
	case st.Mode&unix.S_IFMT == unix.S_IFLNK && !old:
		r.take(r.fd, full, "a link in place of descriptions of remotes")
		return
	case st.Mode&unix.S_IFMT != unix.S_IFDIR:
		return
	}
	dir, err := straight(full)
	if err != nil {
		r.fail(full, err)
		return
	}
	defer unix.Close(dir)
	for _, n := range r.list(dir, full) {
		st, exists, was := r.old(dir, n, r.stays && old)
		if !exists || was || st.Mode&unix.S_IFMT == unix.S_IFDIR {
			continue
		}
		if data, _, ok := readAt(dir, n); !ok || bytes.Contains(data, []byte("::")) {
			r.take(dir, full+"/"+n, "a remote that is reached by a program")
		}
	}
}

// stateDir examines the state of a stopped operation.
func (r *repository) stateDir(name string) {
	full := r.dir + "/" + name
	dir, old, ok := r.directory(name, "a link in place of what git was doing")
	if !ok {
		return
	}
	defer unix.Close(dir)
	in := &repository{Audit: r.Audit, dir: r.dir, fd: dir, stays: r.stays && old}
	for _, n := range r.list(dir, full) {
		in.state(dir, name+"/"+n)
	}
}

// state examines one file of a stopped operation. name is relative to the repository.
func (r *repository) state(dir int, name string) {
	st, exists, old := r.old(dir, filepath.Base(name), r.stays)
	if !exists || old {
		return
	}
	full := r.dir + "/" + name
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		return // git reads it only if it is a file
	}
	data, _, ok := readAt(dir, filepath.Base(name))
	if !ok {
		r.take(dir, full, "what git was doing, which can't be read")
		return
	}
	clean, known, fine := State(name, data)
	switch {
	case !known || fine && bytes.Equal(clean, data):
	case !fine:
		r.take(dir, full, "what git was doing, which may run a program when it goes on")
	default:
		r.replace(dir, full, clean, &st, "lines to execute in what git was doing")
	}
}

// itoa writes a descriptor's number.
func itoa(fd int) string { return strconv.Itoa(fd) }
