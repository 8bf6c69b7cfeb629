package run

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/carrel-dev/carrel/internal/box"
	"github.com/carrel-dev/carrel/internal/box/guard"
	"github.com/carrel-dev/carrel/internal/linux/landlock"
	"github.com/carrel-dev/carrel/internal/linux/seccomp"
	"github.com/carrel-dev/carrel/internal/settings"
)

// plan is a settings.Box in the form that the walls need.
type plan struct {
	spec   box.Spec
	rules  guard.Rules
	hidden []settings.PathRule // by index of spec.Hidden
}

// newPlan makes the plan. upper makes the directories of one overlay.
func newPlan(b *settings.Box, args, env []string, upper func(lower string) (layer, error)) (*plan, error) {
	p := &plan{spec: box.Spec{
		Args: args, Env: setEnv(env, marker, "1"), Dir: b.Dir, Light: b.Light,
		Root:    box.Root{Host: b.ReadDefault != settings.Denied},
		TmpSize: int64(b.TmpMB) << 20,
		Network: box.Closed,
		Seccomp: seccomp.Filter{
			Deny: seccomp.Dangerous(), Namespaces: true, UnixDatagram: true, Sockets: seccomp.DefaultSockets(), TTY: true, TCP: true, Personality: true, Setuid: true, Watch: true,
			WatchConnect: true, WatchBind: true, WatchWrites: true,
		},
		Limits: box.Limits{CPUs: b.CPUs, Memory: int64(b.MemoryMB) << 20, Pids: b.Pids, FileSize: int64(b.FileMB) << 20, OpenFiles: b.OpenFiles, Timeout: b.Timeout},
	}}
	switch {
	case b.Host:
		p.spec.Network = box.Host
	case !b.Closed:
		p.spec.Network = box.Wired
	case b.Light:
		p.spec.Seccomp.Network = true
	}
	if err := p.mounts(b, upper); err != nil {
		return nil, err
	}
	p.landlock(b)
	p.guard(b)
	return p, nil
}

// mounts turns the paths into mounts, parents first.
func (p *plan) mounts(b *settings.Box, upper func(string) (layer, error)) error {
	for _, dir := range b.Private {
		if dir == "/tmp" || within(dir, "/dev") { // of every box
			continue
		}
		p.spec.Mounts = append(p.spec.Mounts, box.Mount{Kind: box.Tmpfs, Target: dir, Size: 64 << 20, Optional: true})
	}
	rules := realPaths(b.Paths)
	slices.SortStableFunc(rules, func(a, b settings.PathRule) int { return strings.Compare(a.Path, b.Path) })
	for i, r := range rules {
		above := b.ReadDefault
		own := within(r.Path, b.Private...) // an empty directory lies there
		if parent, ok := nearest(rules[:i], r.Path); ok {
			above, own = parent.Access, own && !within(parent.Path, b.Private...)
		}
		if r.Access == settings.Denied {
			switch {
			case own: // nothing of the host is visible there
			case above != settings.Denied && hasBelow(rules[i+1:], r.Path):
				p.spec.Mounts = append(p.spec.Mounts, box.Mount{Kind: box.Tmpfs, Target: r.Path, Size: 1 << 20})
			case above != settings.Denied:
				p.spec.Hidden = append(p.spec.Hidden, box.Hidden{Path: r.Path, Rule: r.Rule, Blank: r.Blank})
				p.hidden = append(p.hidden, r)
			}
			continue
		}
		if r.Access == settings.Readable {
			if own || above != settings.Readable {
				p.spec.Mounts = append(p.spec.Mounts, box.Mount{Kind: box.ReadOnly, Source: r.Path, Target: r.Path, Optional: !own && above != settings.Denied})
			}
			continue
		}
		if above == settings.Writable && !own {
			continue
		}
		if b.Overlay && isDir(r.Path) {
			l, err := upper(r.Path)
			if err != nil {
				return err
			}
			if own || above == settings.Denied { // that place does not show the host's directory
				p.spec.Mounts = append(p.spec.Mounts, box.Mount{Kind: box.ReadOnly, Source: r.Path, Target: r.Path})
			}
			p.spec.Mounts = append(p.spec.Mounts, box.Mount{Kind: box.Overlay, Source: l.upper, Work: l.work, Target: r.Path})
			continue
		}
		p.spec.Mounts = append(p.spec.Mounts, box.Mount{Kind: box.Writable, Source: r.Path, Target: r.Path, Optional: !own && above != settings.Denied})
		p.repository(rules, filepath.Join(r.Path, ".git"))
	}
	// The next run executes files from here (package early), so no box may write them, whatever is
	// opened.
	for _, dir := range []string{"/run/carrel", filepath.Join(os.Getenv("XDG_RUNTIME_DIR"), "carrel")} {
		if access, _ := b.Access(dir); access == settings.Writable && isDir(dir) && !within(dir, b.Private...) {
			p.spec.Mounts = append(p.spec.Mounts, box.Mount{Kind: box.ReadOnly, Source: dir, Target: dir})
		}
	}
	return nil
}

// repository makes a repository's .git a mount point. A mount point can't be renamed, so no program
// can replace it. A .git that is a file names the repository's place, and can't be written.
func (p *plan) repository(rules []settings.PathRule, git string) {
	info, err := os.Lstat(git)
	if err != nil || slices.ContainsFunc(rules, func(r settings.PathRule) bool { return r.Path == git }) {
		return
	}
	switch {
	case info.IsDir():
		p.spec.Mounts = append(p.spec.Mounts, box.Mount{Kind: box.Writable, Source: git, Target: git})
	case info.Mode().IsRegular():
		p.spec.Mounts = append(p.spec.Mounts, box.Mount{Kind: box.ReadOnly, Source: git, Target: git})
	}
}

// landlock sets up the second wall for writing. In a light box it is the only one.
func (p *plan) landlock(b *settings.Box) {
	l := landlock.Ruleset{Files: true, ScopeSockets: true, ScopeSignals: true}
	add := func(a landlock.Access, paths ...string) {
		for _, path := range paths {
			l.Rules = append(l.Rules, landlock.Rule{Path: path, Access: a})
		}
	}
	if b.Light {
		for _, path := range readableParts(b) {
			add(landlock.ReadExec, path)
		}
		add(landlock.WriteFile, "/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty", "/dev/ptmx", "/dev/pts")
	} else {
		l.Writing = true // the mounts decide what may be read, and a second check would cost time at each open
		add(landlock.WriteFile, "/dev", "/proc")
		add(landlock.ReadWrite, b.Private...)
	}
	for _, r := range b.Paths {
		switch {
		case r.Access != settings.Writable:
		case isDir(r.Path):
			add(landlock.ReadWrite, r.Path)
		default:
			add(landlock.WriteFile, r.Path)
		}
	}
	p.spec.Landlock = l
}

// guard tells the guard about the walls, and about the protected names.
func (p *plan) guard(b *settings.Box) {
	// The box has no right over anything, one user, and a filter against new namespaces.
	g := guard.Rules{Own: b.Private, Sockets: b.Sockets, NoBind: !b.Bind, Sealed: true}
	if b.Closed {
		g.Closed = "the network is closed"
	}
	for _, r := range b.Paths {
		if slices.ContainsFunc(b.Replaced, func(f settings.Replaced) bool { return f.Path == r.Path && r.Access == settings.Writable }) {
			continue // its mount goes with the first replacement: all writing is the guard's
		}
		g.Paths = append(g.Paths, guard.Path{Path: r.Path, Writable: r.Access == settings.Writable, Rule: r.Rule, Allow: writeFlag(r)})
	}
	g.Roots, g.Repositories, g.Open = writableDirs(b), b.Repositories, b.Light
	for _, r := range b.Replaced {
		g.Replaced = append(g.Replaced, r.Path)
		p.spec.Seccomp.WatchRemoves = true
	}
	g.Home, g.Caches = b.Home, map[string]string{}
	for dir, profile := range settings.CacheProfiles(b.Home) {
		if !slices.Contains(b.Profiles, profile) {
			g.Caches[dir] = profile
		}
	}
	for _, dir := range append(slices.Clone(b.Private), "/dev", "/proc") {
		g.Paths = append(g.Paths, guard.Path{Path: dir, Writable: true})
	}
	for _, n := range b.Protected {
		dirs := []string{n.Dir}
		pattern := n.Pattern
		switch {
		case filepath.IsAbs(pattern):
			if access, _ := b.Access(filepath.Dir(pattern)); access != settings.Writable {
				continue // the walls see to it
			}
			dirs, pattern = []string{filepath.Dir(pattern)}, filepath.Base(pattern)
		case n.Dir == "":
			dirs = nil
			for _, r := range b.Paths {
				if r.Access == settings.Writable {
					dirs = append(dirs, r.Path)
				}
			}
		}
		for _, path := range n.Except {
			g.Paths = append(g.Paths, guard.Path{Path: path, Writable: true, Rule: "named"})
		}
		for _, dir := range dirs {
			g.Protected = append(g.Protected, guard.Protected{Dir: dir, Pattern: pattern, Deep: n.Deep, Rule: n.Rule, Allow: n.Allow})
		}
	}
	p.rules = g
}

// writableDirs returns the directories of this machine that are open for writing, with links
// resolved.
func writableDirs(b *settings.Box) []string {
	var out []string
	for _, r := range realPaths(b.Paths) {
		if r.Access == settings.Writable && isDir(r.Path) {
			out = append(out, r.Path)
		}
	}
	return out
}

// writeFlag returns the flag that would open a path for writing.
func writeFlag(r settings.PathRule) string {
	if r.Access == settings.Readable {
		return "--write " + r.Path
	}
	return r.Allow
}

// realPaths returns the rules with links resolved. A rule hides or opens a link's target; the link
// itself stays as it is. If the target has a rule of its own, that rule counts.
func realPaths(rules []settings.PathRule) []settings.PathRule {
	out := slices.Clone(rules)
	for i, r := range out {
		if _, err := os.Readlink(r.Path); err != nil { // the directories above are already resolved
			continue
		}
		real, err := filepath.EvalSymlinks(r.Path)
		if err != nil {
			continue
		}
		if slices.ContainsFunc(rules, func(o settings.PathRule) bool { return o.Path == real }) {
			out[i].Path = ""
			continue
		}
		out[i].Path = real
	}
	return slices.DeleteFunc(out, func(r settings.PathRule) bool { return r.Path == "" })
}

// nearest returns the most specific rule for a directory above path.
func nearest(rules []settings.PathRule, path string) (best settings.PathRule, ok bool) {
	for _, r := range rules {
		if r.Path != path && within(path, r.Path) && len(r.Path) >= len(best.Path) {
			best, ok = r, true
		}
	}
	return best, ok
}

// hasBelow reports whether something below path is open.
func hasBelow(rules []settings.PathRule, path string) bool {
	return slices.ContainsFunc(rules, func(r settings.PathRule) bool {
		return r.Access != settings.Denied && r.Path != path && within(r.Path, path)
	})
}

// within reports whether path is one of dirs or below it.
func within(path string, dirs ...string) bool {
	return slices.ContainsFunc(dirs, func(dir string) bool {
		return path == dir || strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/")
	})
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// readableParts lists directories and files that together are everything readable, without denied
// paths, because Landlock can only allow. If something below a directory is denied, the list has
// the directory's entries instead of the directory.
func readableParts(b *settings.Box) []string {
	var out []string
	var walk func(dir string, depth int)
	walk = func(dir string, depth int) {
		access, _ := b.Access(dir)
		differs := slices.ContainsFunc(b.Paths, func(r settings.PathRule) bool {
			return r.Path != dir && within(r.Path, dir) && (r.Access == settings.Denied) != (access == settings.Denied)
		})
		if !differs {
			if access != settings.Denied {
				out = append(out, dir)
			}
			return
		}
		entries, err := os.ReadDir(dir)
		if err != nil || depth > 64 {
			return
		}
		for _, e := range entries {
			walk(filepath.Join(dir, e.Name()), depth+1)
		}
	}
	walk("/", 0)
	return out
}
