//go:build linux

// Package guard answers the system calls that a box watches: it decides what mounts and
// Landlock can't, and turns what they refuse into reports.
//
// # What it decides
//
// Connecting. A path may lead to a Unix socket of this machine, and no mount or Landlock rule stops that (a read-only mount
// doesn't). The kernel, told to go on, would read the address and the descriptor a second time, and a
// thread of the program may have changed both: so nobody is ever told to go on with a connect. The address is read
// once, the path is resolved below the box's root, and the connection is made here, on a
// duplicate of the caller's socket, to the very file that was judged. The server then sees this process as its peer: the same user, but a
// pid that is 0 in the box. Other sockets keep their namespace wherever they are connected.
//
// Protected names. The creation of a name that is protected and does not exist yet (".mcp.json", ".git/hooks"), a link in the place of a directory that
// leads there, and moving what holds a protected file: EACCES. Here the kernel does go on with what is allowed, so a program
// with threads can get past the look. That is why the directories are watched too (inotify): what appears
// there all the same is moved away at once, kept for the person, and reported; what was moved away is moved back.
//
// # Where names are protected
//
// At the top of the directory that a [Protected] names, and, if Deep, at the top of every repository below it that
// was there before the box: what a box clones, unpacks or installs is its own, and so is node_modules. Names
// in .git are protected where there was a .git before: making a new repository is no attack on one. What would make git run a program
// outside (hooks, settings like core.fsmonitor) is taken out of every repository that the box made, changed or moved, when it has
// ended: see [Guard.Audit] and package gitdir.
//
// # What it only reports
//
// The kernel refuses, and the guard says so: writes outside of the writable directories, dangerous
// calls. A write that the kernel would have refused without a box too (no such file, no permission) is no report.
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

// Rules are what the guard goes by. Paths are absolute and as they are inside, links resolved.
type Rules struct {
	// Paths are directories and files; the most specific one decides. What none names is not writable.
	Paths []Path
	// Protected are names that must not be created or changed below a writable directory: those
	// that exist are mounted read-only and are in Paths too. A writable Path at such a name, or below, lifts it there.
	Protected []Protected
	// Sockets are allowed paths of Unix sockets outside, "*" standing for anything in one element; "*" alone allows all. One that
	// is named whole is reached even where the box has another directory in its place.
	Sockets []string
	// Own are directories whose sockets are the box's own: /tmp, /run, /dev/shm and so on. Sockets below a writable Path
	// are its own if they were made since New. The most specific one decides.
	Own []string
	// Closed is why connections fail: "" when the wire decides (and reports).
	Closed string
	// Sealed: no process of the box can get another user, or other namespaces; whoever makes its filter and rights sees to that. What is
	// true of one process is then true of all, and is looked up once.
	Sealed bool
	// NoBind: ports may not be listened on.
	NoBind bool
	// Quarantine is the directory that protected files are moved to, made when needed. On another filesystem, or without it,
	// they stay in their directory under a name that means nothing.
	Quarantine string
	// Roots are this machine's directories that are writable, for the look at repositories when the box has ended; and Repositories those that are there,
	// with .git files, as far as they are known. Open: no mounts keep what is not writable from the box.
	Roots, Repositories []string
	Open                bool
	// Replaced are files that are written and replaced by what is written beside them, in directories that are otherwise not
	// writable: see replaced.go.
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
	Dir     string // absolute: where it holds
	Pattern string // relative: ".mcp.json", ".git/hooks"; "*" stands for anything in one element
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
	start   unix.Timespec // of this clock are the times of new files
	watch   *watcher
	sockets sync.Map // of socketFile: made by the box
	known   atomic.Int64
	alike   alike

	began        clocks
	wrote        atomic.Bool // something was written, or may have been
	repositories gitdir.Before
	replaced     []*replaced
}

// New makes a guard of a box whose root is root; call it before the command runs. It is closed after the box's end. root may
// return nil until the first call, and is then not used.
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

// opensOnly reports whether a call opens files.
func opensOnly(name string) bool { return name == "open" || name == "openat" || name == "creat" }

// goOn lets the kernel go on.
var goOn = seccomp.Answer{Continue: true}

// refuse is the answer of a decision.
var refuse = seccomp.Answer{Errno: unix.EACCES}

// rule is the most specific Path of a path, nil if none names it.
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

// writable reports whether the rules let a path be written.
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

// parent is the directory of a clean absolute path; "/" of "/".
func parent(full string) string {
	for i := len(full) - 1; i > 0; i-- {
		if full[i] == '/' {
			return full[:i]
		}
	}
	return "/"
}

// last is the last element of a path, as written, without slashes at its end.
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

// join puts an element below a directory.
func join(dir, base string) string {
	if dir == "/" {
		return "/" + base
	}
	return dir + "/" + base
}
