//go:build linux

package guard

import (
	"crypto/rand"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel/internal/refusal"
)

// sweep checks all protected names once, and reports whether it moved a file. names may limit it:
// in the directories at the top, which may be large, patterns with a "*" are then compared only
// with these names.
func (g *Guard) sweep(names []string) bool {
	w := g.watch
	w.mu.Lock()
	defer w.mu.Unlock()
	before := w.moved
	w.round++
	defer w.forget()
	for _, h := range w.held {
		g.restore(h)
	}
	for dir, patterns := range g.names.top {
		list := listing{}
		if names != nil {
			list[dir] = names
		}
		for _, p := range patterns {
			if p.parts[0] == ".git" && !g.names.repository[dir] {
				continue
			}
			g.inspect(list, dir, dir, p, p.parts)
		}
	}
	return w.moved != before
}

// inspect looks for files that a pattern names below a directory.
func (g *Guard) inspect(list listing, holder, at string, p *pattern, parts []string) {
	dir, err := straight(at)
	if err != nil {
		return
	}
	defer unix.Close(dir)
	for _, name := range list.candidates(at, parts[0]) {
		full := join(at, name)
		var st unix.Stat_t
		if unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
			continue
		}
		kind := st.Mode & unix.S_IFMT
		if len(parts) > 1 && kind == unix.S_IFDIR {
			g.watch.add(full, false, parts[1] == "*")
			g.inspect(list, holder, full, p, parts[1:])
			continue
		}
		if len(parts) > 1 && kind != unix.S_IFLNK {
			continue // a file leads nowhere
		}
		if was, ok := g.names.before[full]; ok && was == identity(&st) || g.lifted(full, holder, len(p.parts)) {
			continue
		}
		g.seize(dir, full, p)
	}
}

// straight opens a directory whose path has no links. At any moment the box may put a link anywhere
// below its writable directories. So all moves work in directories that straight opened. Otherwise
// a link could make the guard move a file that is not the box's.
func straight(dir string) (int, error) {
	return openat2(unix.AT_FDCWD, dir, unix.O_DIRECTORY, unix.RESOLVE_NO_SYMLINKS|unix.RESOLVE_NO_MAGICLINKS)
}

// seize takes a name out of dir. It first renames it within the directory, which nothing can delay,
// and then moves it to the quarantine.
func (g *Guard) seize(dir int, full string, p *pattern) {
	aside := ".carrel-moved-" + rand.Text()[:10]
	if err := unix.Renameat2(dir, last(full), dir, aside, unix.RENAME_NOREPLACE); err != nil {
		return // it is gone again, or a mount is on it; the next check decides
	}
	g.watch.moved++
	where := g.keep(dir, aside, full)
	g.log.Add(refusal.Refusal{
		Kind: refusal.Write, What: full, Operation: "moved away", Rule: p.Rule, Allow: p.Allow, Certain: true,
		Reason: p.Pattern + " is protected and appeared all the same: it was moved to " + where,
	})
}

// keep moves a file to the quarantine, if that is on the same filesystem, and returns its place.
func (g *Guard) keep(dir int, aside, full string) string {
	here := join(parent(full), aside)
	q := g.rules.Quarantine
	if q == "" || os.MkdirAll(q, 0o700) != nil {
		return here
	}
	into, err := straight(q) // with a link on the way, the box would choose the file's new place
	if err != nil {
		return here
	}
	defer unix.Close(into)
	name := strings.TrimPrefix(aside, ".carrel-moved-") + "-" + last(full)
	if unix.Renameat2(dir, aside, into, name, unix.RENAME_NOREPLACE) != nil {
		return here
	}
	return filepath.Join(q, name)
}

// restore moves a directory that holds protected names back to its place.
func (g *Guard) restore(h *held) {
	place, err := straight(parent(h.path))
	if err != nil {
		return // the directory above is held too, and was checked before
	}
	defer unix.Close(place)
	var st unix.Stat_t
	missing := unix.Fstatat(place, last(h.path), &st, unix.AT_SYMLINK_NOFOLLOW)
	if missing == nil && identity(&st) == h.id {
		return
	}
	now, err := readlink(self(int(h.file.Fd())))
	if err != nil || strings.HasSuffix(now, " (deleted)") {
		return
	}
	from, err := straight(parent(now))
	if err != nil {
		return
	}
	defer unix.Close(from)
	if unix.Fstatat(from, last(now), &st, unix.AT_SYMLINK_NOFOLLOW) != nil || identity(&st) != h.id {
		return // it was moved again; so the next check tries again
	}
	if missing == nil {
		g.seize(place, h.path, h.by)
	}
	if unix.Renameat2(from, last(now), place, last(h.path), unix.RENAME_NOREPLACE) != nil {
		return
	}
	g.watch.moved++
	g.log.Add(refusal.Refusal{
		Kind: refusal.Write, What: h.path, Operation: "moved back", Rule: h.by.Rule, Certain: true,
		Reason: "it holds " + h.by.Pattern + ", which is protected; it had been moved to " + now,
	})
}
