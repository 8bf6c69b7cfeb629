package git

import (
	"errors"
	"io/fs"
	"path"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/format/gitignore"
	"github.com/go-git/go-git/v5/plumbing/format/index"

	"github.com/carrel-dev/carrel/shell/tool"
	"github.com/carrel-dev/carrel/shell/vfs"
)

// abs returns the path on the disk for a path of the work tree.
func (r *repo) abs(name string) string { return path.Join(r.top, name) }

// lstat describes a file of the work tree. ok is false when the file is missing or is behind a
// symbolic link.
func (r *repo) lstat(name string) (vfs.Info, bool) {
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		if i, err := r.FS().Lstat(r.abs(dir)); err != nil || !i.Mode.IsDir() {
			return vfs.Info{}, false
		}
	}
	i, err := r.FS().Lstat(r.abs(name))
	return i, err == nil
}

// modeOf returns the mode that git records for a file.
func modeOf(i vfs.Info) filemode.FileMode {
	switch {
	case i.Mode&fs.ModeSymlink != 0:
		return filemode.Symlink
	case i.Mode&0o100 != 0:
		return filemode.Executable
	}
	return filemode.Regular
}

// content reads a file of the work tree. For a symbolic link it returns the target.
func (r *repo) content(name string, i vfs.Info) ([]byte, error) {
	if i.Mode&fs.ModeSymlink != 0 {
		return []byte(i.Target), nil
	}
	if i.Size > maxBlob {
		return nil, fatalf("%s is too large", name)
	}
	if err := r.Pay(i.Size); err != nil {
		return nil, err
	}
	defer func() { _ = r.Pay(-i.Size) }()
	if !r.Step(10 + int(i.Size>>8)) {
		return nil, tool.ErrStop
	}
	return r.FS().ReadFile(r.abs(name))
}

// hashOf returns the hash of a file of the work tree. If the index has the same size and time, it
// uses the index's hash.
func (r *repo) hashOf(name string, i vfs.Info, e *index.Entry) (plumbing.Hash, error) {
	if e != nil && e.Size == uint32(i.Size) && i.Mode&fs.ModeSymlink == 0 && e.ModifiedAt.Equal(i.Modified) && e.Inode == uint32(i.Ino) &&
		i.Modified.Before(r.indexTime()) {
		return e.Hash, nil
	}
	b, err := r.content(name, i)
	if err != nil {
		return plumbing.ZeroHash, err
	}
	return plumbing.ComputeHash(plumbing.BlobObject, b), nil
}

func (r *repo) indexTime() (t time.Time) {
	if i, err := r.FS().Stat(path.Join(r.git_, "index")); err == nil {
		return i.Modified
	}
	return t
}

// entryFor makes the index entry of a file whose contents are already stored.
func entryFor(name string, i vfs.Info, h plumbing.Hash) *index.Entry {
	return &index.Entry{Hash: h, Name: name, ModifiedAt: i.Modified, CreatedAt: i.Modified, Inode: uint32(i.Ino), Mode: modeOf(i), UID: i.UID, GID: i.GID, Size: uint32(i.Size)}
}

// ignorer decides which paths are ignored.
type ignorer struct {
	r     *repo
	base  []gitignore.Pattern
	byDir map[string][]gitignore.Pattern
}

func (r *repo) ignores() *ignorer {
	g := &ignorer{r: r, byDir: map[string][]gitignore.Pattern{}}
	file := r.conf.get("core.excludesfile")
	switch {
	case file == "":
		file = path.Join(r.home(), ".config/git/ignore")
	case strings.HasPrefix(file, "~/"):
		file = path.Join(r.home(), file[2:])
	}
	g.base = append(g.patterns(r.path(file), nil), g.patterns(path.Join(r.git_, "info/exclude"), nil)...)
	return g
}

func (g *ignorer) patterns(file string, domain []string) (out []gitignore.Pattern) {
	b, err := g.r.FS().ReadFile(file)
	if err != nil || len(b) > 1<<20 {
		return nil
	}
	for _, line := range strings.Split(string(b), "\n") {
		line = strings.TrimSuffix(line, "\r")
		if strings.HasPrefix(line, "#") || strings.TrimSpace(line) == "" || len(line) > 4096 {
			continue
		}
		out = append(out, gitignore.ParsePattern(line, domain))
	}
	return out
}

// of returns the patterns in one directory.
func (g *ignorer) of(dir string) []gitignore.Pattern {
	ps, ok := g.byDir[dir]
	if !ok {
		var domain []string
		if dir != "" {
			domain = strings.Split(dir, "/")
		}
		ps = g.patterns(path.Join(g.r.top, dir, ".gitignore"), domain)
		g.byDir[dir] = ps
	}
	return ps
}

// match reports whether a path is ignored. It does not check the directories above.
func (g *ignorer) match(name string, dir bool) bool {
	parts := strings.Split(name, "/")
	check := func(ps []gitignore.Pattern) (bool, bool) {
		for _, p := range slices.Backward(ps) {
			g.r.Step(2)
			switch p.Match(parts, dir) {
			case gitignore.Exclude:
				return true, true
			case gitignore.Include:
				return false, true
			}
		}
		return false, false
	}
	for i := len(parts) - 1; i >= 0; i-- {
		if yes, ok := check(g.of(strings.Join(parts[:i], "/"))); ok {
			return yes
		}
	}
	yes, _ := check(g.base)
	return yes
}

// ignored is match, and also checks the directories above.
func (g *ignorer) ignored(name string, dir bool) bool {
	for i, c := range name {
		if c == '/' && g.match(name[:i], true) {
			return true
		}
	}
	return g.match(name, dir)
}

// walk calls fn with the files below a directory of the work tree, in order. It leaves out ignored
// files, and directories for which skip is true. It names other repositories as directories.
func (r *repo) walk(dir string, skip func(name string, isDir bool) bool, fn func(name string, i vfs.Info) error) error {
	return r.walkDir(dir, 0, skip, fn)
}

func (r *repo) walkDir(dir string, depth int, skip func(name string, isDir bool) bool, fn func(name string, i vfs.Info) error) error {
	if depth > maxTreeDepth {
		return fatalf("directories are nested too deeply")
	}
	all, err := r.FS().ReadDir(r.abs(dir))
	if errors.Is(err, syscall.EACCES) {
		r.warnf("warning: could not open directory '%s/': Permission denied", dir)
		return nil
	}
	if err != nil {
		return err
	}
	// In git's order, a directory sorts as if its name ended in a slash.
	key := func(i vfs.Info) string {
		if i.Mode.IsDir() {
			return i.Name + "/"
		}
		return i.Name
	}
	slices.SortFunc(all, func(a, b vfs.Info) int { return strings.Compare(key(a), key(b)) })
	for _, i := range all {
		name := path.Join(dir, i.Name)
		if !r.Step(4) {
			return tool.ErrStop
		}
		switch {
		case i.Name == ".git":
			continue
		case skip != nil && skip(name, i.Mode.IsDir()):
			continue
		case i.Mode.IsDir() && r.isRepo(r.abs(name+"/.git")):
			if err := fn(name+"/", i); err != nil {
				return err
			}
		case i.Mode.IsDir():
			if err := r.walkDir(name, depth+1, skip, fn); err != nil {
				return err
			}
		case i.Mode.IsRegular() || i.Mode&fs.ModeSymlink != 0:
			if err := fn(name, i); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkoutFile writes a file of a tree into the work tree.
func (r *repo) checkoutFile(name string, e entry) (*index.Entry, error) {
	for _, p := range strings.Split(name, "/") {
		if !goodName(p) {
			return nil, fatalf("invalid path '%s'", name)
		}
	}
	if err := r.makeParents(name); err != nil {
		return nil, err
	}
	at := r.abs(name)
	if i, err := r.FS().Lstat(at); err == nil && (i.Mode.IsDir() || i.Mode&fs.ModeSymlink != 0 || e.mode == filemode.Symlink) {
		if err := r.FS().Remove(at); err != nil {
			return nil, err
		}
	}
	if e.mode == filemode.Submodule {
		if err := r.FS().MkdirAll(at, 0o777&^r.Umask()); err != nil {
			return nil, err
		}
		i, err := r.FS().Lstat(at)
		x := entryFor(name, i, e.hash)
		x.Mode = filemode.Submodule
		return x, err
	}
	b, err := r.blob(e.hash)
	if err != nil {
		return nil, err
	}
	if e.mode == filemode.Symlink {
		if err := r.FS().Symlink(string(b), at); err != nil {
			return nil, err
		}
	} else {
		perm := fs.FileMode(0o666)
		if e.mode == filemode.Executable {
			perm = 0o777
		}
		perm &^= r.Umask()
		if old, err := r.FS().Lstat(at); err == nil && (old.Mode&0o100 != 0) != (perm&0o100 != 0) {
			_ = r.FS().Remove(at) // so that the new file's mode applies
		}
		if err := r.FS().WriteFile(at, b, perm); err != nil {
			return nil, err
		}
	}
	i, err := r.FS().Lstat(at)
	if err != nil {
		return nil, err
	}
	x := entryFor(name, i, e.hash)
	x.Mode = e.mode
	return x, nil
}

// makeParents makes the directories of a path. It removes a file or link that is in the way.
func (r *repo) makeParents(name string) error {
	for i, c := range name {
		if c != '/' {
			continue
		}
		at := r.abs(name[:i])
		info, err := r.FS().Lstat(at)
		if err == nil && info.Mode.IsDir() {
			continue
		}
		if err == nil {
			if err := r.FS().Remove(at); err != nil {
				return err
			}
		}
		if err := r.FS().Mkdir(at, 0o777&^r.Umask()); err != nil {
			return err
		}
	}
	return nil
}

// removeFile removes a file from the work tree, and directories that are then empty.
func (r *repo) removeFile(name string) error {
	if _, ok := r.lstat(name); !ok {
		return nil
	}
	if err := r.FS().Remove(r.abs(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		if r.abs(dir) == r.dir || r.FS().Remove(r.abs(dir)) != nil {
			break
		}
	}
	return nil
}
