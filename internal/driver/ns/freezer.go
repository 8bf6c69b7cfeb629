package ns

import (
	"bufio"
	"errors"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel/internal/linux/cgroup"
)

// freezers is the place for groups whose processes can be stopped all at once.
type freezers struct {
	parent string // "" where none can be
	v2     bool
}

// freezer stops one sandbox: by its group or, without one, by signals.
type freezer struct {
	dir string // "" for none
	v2  bool
	own bool // this driver made the directory; it is not the sandbox's control group
}

// openFreezers finds a place for groups with this relative name.
func openFreezers(name string) *freezers {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return &freezers{}
	}
	defer f.Close()
	var v1, v2 string
	for sc := bufio.NewScanner(f); sc.Scan(); {
		before, after, ok := strings.Cut(sc.Text(), " - ")
		place, kind := strings.Fields(before), strings.Fields(after)
		if !ok || len(place) < 5 || len(kind) < 3 {
			continue
		}
		switch {
		case kind[0] == "cgroup" && strings.Contains(","+kind[2]+",", ",freezer,"):
			v1 = place[4]
		case kind[0] == "cgroup2":
			v2 = place[4]
		}
	}
	for _, at := range []struct {
		base string
		v2   bool
	}{{v1, false}, {v2, true}} {
		if at.base == "" {
			continue
		}
		dir := filepath.Join(at.base, name)
		if os.MkdirAll(dir, 0o755) == nil {
			return &freezers{parent: dir, v2: at.v2}
		}
	}
	return &freezers{}
}

// create makes the group of one sandbox. If that fails, the sandbox has none. In version 2 a
// process has only one group, so the freezer uses the group that bounds the process.
func (f *freezers) create(name string, g *cgroup.Group) *freezer {
	if dir := g.Paths().V2; dir != "" {
		return &freezer{dir: dir, v2: true}
	}
	if f.parent == "" {
		return &freezer{}
	}
	dir := filepath.Join(f.parent, name)
	if err := os.MkdirAll(dir, 0o755); err != nil { // another driver's Close may have removed the parent
		return &freezer{}
	}
	return &freezer{dir: dir, v2: f.v2, own: true}
}

// named returns the group that create makes for a sandbox. It need not exist.
func (f *freezers) named(name string) *freezer {
	if f.parent == "" {
		return &freezer{}
	}
	return &freezer{dir: filepath.Join(f.parent, name), v2: f.v2, own: true}
}

// sweep removes groups of sandboxes that are not in keep.
func (f *freezers) sweep(keep func(id string) bool) {
	if f.parent == "" {
		return
	}
	entries, _ := os.ReadDir(f.parent)
	for _, e := range entries {
		if e.IsDir() && !keep(e.Name()) {
			_ = unix.Rmdir(filepath.Join(f.parent, e.Name()))
		}
	}
}

// close removes the parent when it is empty.
func (f *freezers) close() {
	if f.parent != "" {
		_ = unix.Rmdir(f.parent)
	}
}

// path returns a text from which loadFreezer makes the same freezer.
func (f *freezer) path() string {
	switch {
	case f.dir == "":
		return ""
	case !f.v2:
		return "1" + f.dir
	case f.own:
		return "2" + f.dir
	}
	return "=" + f.dir
}

// loadFreezer makes a freezer again from the text that path returned.
func loadFreezer(path string) *freezer {
	if path == "" {
		return &freezer{}
	}
	return &freezer{dir: path[1:], v2: path[0] != '1', own: path[0] != '='}
}

// add puts a process into the group. The process has no children yet.
func (f *freezer) add(pid int) {
	if f.own && os.WriteFile(filepath.Join(f.dir, "cgroup.procs"), []byte(itoa(int64(pid))), 0) != nil {
		_ = unix.Rmdir(f.dir)
		f.dir = "" // by signals, then
	}
}

// remove removes the group of a sandbox that has ended.
func (f *freezer) remove() {
	if !f.own || f.dir == "" {
		return
	}
	for range 200 {
		if err := unix.Rmdir(f.dir); !errors.Is(err, unix.EBUSY) {
			return
		}
		pause()
	}
}

// set stops or continues the group, and reports whether all of it has obeyed.
func (f *freezer) set(frozen bool) (done bool, err error) {
	file, value := "freezer.state", "THAWED"
	if frozen {
		value = "FROZEN"
	}
	if f.v2 {
		file, value = "cgroup.freeze", "0"
		if frozen {
			value = "1"
		}
	}
	if err := os.WriteFile(filepath.Join(f.dir, file), []byte(value), 0); err != nil {
		return false, err
	}
	if f.v2 {
		b, err := os.ReadFile(filepath.Join(f.dir, "cgroup.events"))
		return strings.Contains(string(b), "frozen "+value), err
	}
	b, err := os.ReadFile(filepath.Join(f.dir, file))
	return strings.TrimSpace(string(b)) == value, err
}

// thaw continues a sandbox that is about to be killed. It does not check the result.
func (f *freezer) thaw() {
	if f.dir != "" {
		_, _ = f.set(false)
	}
}
