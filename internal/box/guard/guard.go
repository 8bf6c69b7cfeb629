//go:build linux

// Package guard answers the system calls that a box watches. It decides cases that mounts and
// Landlock can't decide, and reports refusals of theirs.
//
// # What it decides
//
// Connecting. A path may lead to a Unix socket of this machine, and no mount or Landlock rule stops
// that (a read-only mount doesn't). If the kernel went on with the call, it would read the address
// and the descriptor a second time, and a thread of the program may have changed both. So the guard
// never lets the kernel go on with a connect. It reads the address once and resolves the path below
// the box's root. Then it makes the connection itself, on a duplicate of the caller's socket, to
// the very file that it judged. The server sees this process as its peer: the same user, but a pid
// that is 0 in the box. Sockets that are not Unix sockets stay in their network namespace wherever
// they are connected.
//
// Protected names. These calls get EACCES: creating a protected name that does not exist yet
// (".mcp.json", ".git/hooks"), making a link in the place of a directory that leads to one, and
// moving a directory that holds one. Here the kernel does go on with allowed calls, so a program
// with threads can get past the check. That is why the directories are watched too (inotify). A
// protected file that still appears there is moved away at once, kept for the user, and reported. A
// directory that was moved away is moved back.
//
// # Where names are protected
//
// Names are protected at the top of the directory that a [Protected] names. If Deep is set, they
// are also protected at the top of every repository below it that existed before the box.
// Repositories that a box clones, unpacks or installs are its own, and so is node_modules. Names in
// .git are protected where a .git existed before: making a new repository is no attack on one. When
// the box has ended, the guard takes everything that would make git run a program outside (hooks,
// settings like core.fsmonitor) out of every repository that the box made, changed or moved: see
// [Guard.Audit] and package gitdir.
//
// # What it only reports
//
// The kernel refuses writes outside of the writable directories, and dangerous calls; the guard
// reports them. It does not report a write that the kernel would also refuse without a box (no such
// file, no permission).
package guard

import (
	"os"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel/internal/gitdir"
	"github.com/carrel-dev/carrel/internal/linux/seccomp"
	"github.com/carrel-dev/carrel/internal/refusal"
)

// Rules are the guard's rules. Paths are absolute, as seen inside, with links resolved.
type Rules struct {
	// Paths are directories and files. The most specific one decides. A path below none of them is
	// not writable.
	Paths []Path
	// Protected are names that must not be created or changed below a writable directory. Existing
	// ones are mounted read-only and are in Paths too. A writable Path at or below such a name
	// lifts the protection there.
	Protected []Protected
	// Sockets are allowed paths of Unix sockets outside. "*" stands for any text within one
	// element; "*" alone allows all. A path without a "*" is reached even if the box has another
	// directory in its place.
	Sockets []string
	// Own are directories whose sockets belong to the box: /tmp, /run, /dev/shm and so on. Sockets
	// below a writable Path belong to it if they were made after New. The most specific one
	// decides.
	Own []string
	// Closed is the reason why connections fail. It is "" when the wire decides (and reports).
	Closed string
	// Sealed says that no process of the box can change its user or its namespaces. The caller must
	// make sure of that by the box's filter and rights. A fact about one process then holds for
	// all, and the guard looks it up once.
	Sealed bool
	// NoBind forbids listening on ports.
	NoBind bool
	// Quarantine is the directory that protected files are moved to. It is made when it is needed.
	// If it is on another filesystem, or "", the files stay in their directory under a meaningless
	// name.
	Quarantine string
	// Roots are this machine's writable directories, which the Audit searches. Repositories are the
	// known repositories and .git files in them. Open says that no mounts keep the box from other
	// files.
	Roots, Repositories []string
	Open                bool
	// Replaced are files that are written and replaced by what is written beside them, in
	// directories that are otherwise not writable: see replaced.go.
	Replaced []string
	// Home is the user's, which no report suggests to open.
	Home string
	// Caches are directories that a profile would open, with its name, for the report.
	Caches map[string]string
}

// Path is one rule.
type Path struct {
	Path     string
	Writable bool
	Rule     string // for the report
	Allow    string // how to allow it
}

// Protected is one pattern.
type Protected struct {
	Dir     string // absolute: the directory it applies to
	Pattern string // relative: ".mcp.json", ".git/hooks"; "*" is any text in an element
	Deep    bool   // in repositories below Dir too
	Rule    string
	Allow   string // how to lift it
}

// Guard answers calls. It is safe for concurrent use.
type Guard struct {
	rules   Rules
	paths   map[string]*Path
	own     map[string]bool
	names   *names
	log     *refusal.Log
	root    func() *os.File
	start   unix.Timespec // by the clock that new files get their times from
	watch   *watcher
	sockets sync.Map // set of socketFile: those that the box made
	known   atomic.Int64
	alike   alike

	began        clocks
	wrote        atomic.Bool // the box has written, or may have
	repositories gitdir.Before
	replaced     []*replaced
}

// New makes the guard of a box. root returns the box's root. Call New before the command runs, and
// Close after the box's end. Before the first call root may return nil; it is then not used.
func New(r Rules, log *refusal.Log, root func() *os.File) (*Guard, error) {
	g := &Guard{rules: r, paths: map[string]*Path{}, own: map[string]bool{}, log: log, root: root, watch: &watcher{events: -1, stop: make(chan struct{}), watches: map[int32]*watched{}}, began: readClocks()}
	if err := unix.ClockGettime(unix.CLOCK_REALTIME_COARSE, &g.start); err != nil {
		return nil, err
	}
	for i := range r.Paths {
		p := &r.Paths[i]
		if old := g.paths[p.Path]; old == nil || !p.Writable {
			g.paths[p.Path] = p
		}
	}
	for _, dir := range r.Own {
		g.own[dir] = true
	}
	g.names = g.compile()
	g.openReplaced()
	known := slices.Clone(r.Repositories)
	for dir := range g.names.repository {
		known = append(known, join(dir, ".git"))
	}
	g.repositories = gitdir.Remember(known)
	return g, nil
}

// Answer implements box.Options.Watch.
func (g *Guard) Answer(c seccomp.Call) seccomp.Answer {
	if c.Denied != 0 {
		g.denied(c)
		return seccomp.Answer{Errno: c.Denied}
	}
	switch c.Name {
	case "connect":
		return g.connect(c)
	}
	if s, ok := removing(c.Name); ok {
		return g.remove(c, s)
	}
	g.wrote.Store(true)
	if _, _, flags := openShape(c.Name, c.Args); !opensOnly(c.Name) || flags&unix.O_CREAT != 0 {
		g.begin() // it could make a name
	}
	switch c.Name {
	case "bind":
		return g.bind(c)
	case "open", "openat", "creat":
		return g.open(c)
	case "rename", "renameat", "renameat2":
		return g.rename(c)
	}
	if s, ok := shapeOf(c.Name); ok {
		return g.change(c, s)
	}
	return goOn
}

// opensOnly reports whether a call only opens files.
func opensOnly(name string) bool { return name == "open" || name == "openat" || name == "creat" }

// goOn lets the kernel go on.
var goOn = seccomp.Answer{Continue: true}

// refuse is the answer to a forbidden call.
var refuse = seccomp.Answer{Errno: unix.EACCES}

// rule returns the most specific Path for a path; nil if there is none.
func (g *Guard) rule(full string) *Path {
	for dir := full; ; dir = parent(dir) {
		if p := g.paths[dir]; p != nil {
			return p
		}
		if dir == "/" || dir == "" {
			return nil
		}
	}
}

// writable reports whether the rules allow writes to a path.
func (g *Guard) writable(full string) bool {
	for dir := full; ; dir = parent(dir) {
		if p := g.paths[dir]; p != nil {
			return p.Writable
		}
		if g.own[dir] {
			return true
		}
		if dir == "/" || dir == "" {
			return false
		}
	}
}

// parent returns the directory of a clean absolute path. The parent of "/" is "/".
func parent(full string) string {
	for i := len(full) - 1; i > 0; i-- {
		if full[i] == '/' {
			return full[:i]
		}
	}
	return "/"
}

// last returns the last element of a path as written, without slashes at its end.
func last(name string) string {
	end := len(name)
	for end > 0 && name[end-1] == '/' {
		end--
	}
	for i := end - 1; i >= 0; i-- {
		if name[i] == '/' {
			return name[i+1 : end]
		}
	}
	return name[:end]
}

// join appends an element to a directory's path.
func join(dir, base string) string {
	if dir == "/" {
		return "/" + base
	}
	return dir + "/" + base
}
