//go:build linux

package guard

import (
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// A repository that the box made is its own while it runs. Afterwards git is run in it outside, if only by a prompt, and does
// what its configuration says: so what can run a program is taken out of it at the end.

// maxFresh bounds how many repositories are remembered, and looked at.
const maxFresh = 200

// remember notes a directory in which a .git is made.
func (g *Guard) remember(dir string) {
	w := g.watch
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.fresh) < maxFresh {
		w.fresh[dir] = true
	}
}

// disarm looks at the repositories that the box made: those at the directories of the rules, and those that were seen.
func (g *Guard) disarm() {
	w := g.watch
	w.mu.Lock()
	defer w.mu.Unlock()
	for root, patterns := range g.names.top {
		var by *pattern
		for _, p := range patterns {
			if p.parts[0] == ".git" {
				by = p
				break
			}
		}
		if by == nil {
			continue
		}
		dirs := []string{root}
		for dir := range w.fresh {
			if below(dir, root) {
				dirs = append(dirs, dir)
			}
		}
		for _, dir := range dirs {
			if !g.names.repository[dir] && g.names.top[dir] == nil || dir == root && !g.names.repository[root] {
				g.disarmOne(dir, by)
			}
		}
	}
}

// disarmOne looks at a directory's .git, or at the directory itself where it looks like one.
func (g *Guard) disarmOne(dir string, by *pattern) {
	fd, err := straight(dir)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	switch err := unix.Fstatat(fd, ".git", &st, unix.AT_SYMLINK_NOFOLLOW); {
	case err != nil:
		if unix.Fstatat(fd, "HEAD", &st, unix.AT_SYMLINK_NOFOLLOW) == nil && unix.Fstatat(fd, "objects", &st, 0) == nil && unix.Fstatat(fd, "refs", &st, 0) == nil {
			g.disarmGit(dir, by, 0)
		}
	case st.Mode&unix.S_IFMT == unix.S_IFDIR:
		g.disarmGit(join(dir, ".git"), by, 0)
	case st.Mode&unix.S_IFMT == unix.S_IFLNK || by.Dir == dir:
		g.seize(fd, join(dir, ".git"), by) // it leads elsewhere
	}
}

// disarmGit takes from a repository's directory what makes git run a program.
func (g *Guard) disarmGit(dir string, by *pattern, depth int) {
	fd, err := straight(dir)
	if err != nil || depth > 2 {
		return
	}
	defer unix.Close(fd)
	for _, name := range []string{"config", "config.worktree"} {
		if data, exists, ok := readAt(fd, name); exists && (!ok || !harmless(data)) && !g.old(fd, name) {
			g.seize(fd, join(dir, name), by)
		}
	}
	var st unix.Stat_t
	if unix.Fstatat(fd, "commondir", &st, unix.AT_SYMLINK_NOFOLLOW) == nil && !g.old(fd, "commondir") {
		g.seize(fd, join(dir, "commondir"), by)
	}
	if unix.Fstatat(fd, "hooks", &st, unix.AT_SYMLINK_NOFOLLOW) == nil && st.Mode&unix.S_IFMT != unix.S_IFDIR {
		g.seize(fd, join(dir, "hooks"), by)
	}
	if hooks, err := straight(join(dir, "hooks")); err == nil {
		for _, name := range (listing{}).candidates(join(dir, "hooks"), "*") {
			if !strings.HasSuffix(name, ".sample") && !g.old(hooks, name) {
				g.seize(hooks, join(dir, "hooks/"+name), by)
			}
		}
		_ = unix.Close(hooks)
	}
	for i, name := range (listing{}).candidates(join(dir, "modules"), "*") {
		if i == maxFresh {
			break
		}
		g.disarmGit(join(dir, "modules/"+name), by, depth+1)
	}
}

// old reports whether a file is surely older than the guard.
func (g *Guard) old(dir int, name string) bool {
	var st unix.Statx_t
	err := unix.Statx(dir, name, unix.AT_SYMLINK_NOFOLLOW, unix.STATX_BTIME|unix.STATX_CTIME, &st)
	return err == nil && st.Mask&unix.STATX_CTIME != 0 && (st.Ctime.Sec < g.start.Sec || st.Ctime.Sec == g.start.Sec && int64(st.Ctime.Nsec) < g.start.Nsec)
}

// readAt reads a small regular file.
func readAt(dir int, name string) (data []byte, exists, ok bool) {
	fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err != unix.ENOENT, false
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() {
		return nil, true, false
	}
	data, err = io.ReadAll(io.LimitReader(f, 1<<20))
	return data, true, err == nil && len(data) < 1<<20
}

// settled are the sections and keys of a repository's configuration that run nothing. Others may.
var settled = map[string]string{
	"core":       "repositoryformatversion filemode bare logallrefupdates ignorecase precomposeunicode symlinks autocrlf eol safecrlf quotepath compression sparsecheckout sparsecheckoutcone longpaths untrackedcache preloadindex",
	"extensions": "objectformat refstorage partialclone worktreeconfig noop",
	"remote":     "url pushurl fetch push tagopt prune mirror promisor partialclonefilter",
	"branch":     "remote merge rebase pushremote description",
	"user":       "name email signingkey useconfigonly",
	"author":     "name email",
	"committer":  "name email",
	"submodule":  "url active branch ignore fetchrecursesubmodules",
	"init":       "defaultbranch",
	"pull":       "rebase ff",
	"push":       "default autosetupremote followtags",
	"fetch":      "prune prunetags parallel",
	"merge":      "ff conflictstyle",
	"rebase":     "autostash autosquash",
	"commit":     "gpgsign verbose",
	"tag":        "gpgsign sort",
	"gc":         "auto autodetach",
	"rerere":     "enabled autoupdate",
	"diff":       "renames algorithm mnemonicprefix noprefix",
	"lfs":        "repositoryformatversion",
	"color":      "ui",
	"advice":     "detachedhead statushints skippedcherrypicks defaultbranchname",
}

// harmless reports whether a git configuration has nothing but what is known to run nothing. What it does not understand is not.
func harmless(data []byte) bool {
	section := ""
	for line := range strings.Lines(string(data)) {
		line = strings.Trim(line, " \t\r\n")
		for strings.HasPrefix(line, "[") {
			name, rest, ok := header(line[1:])
			if !ok {
				return false
			}
			section, line = name, strings.Trim(rest, " \t")
		}
		if line == "" || line[0] == '#' || line[0] == ';' {
			continue
		}
		if strings.HasSuffix(line, `\`) { // the value goes on in the next line
			return false
		}
		key, value, _ := strings.Cut(line, "=")
		key = strings.ToLower(strings.TrimRight(key, " \t"))
		known := false
		for k := range strings.FieldsSeq(settled[section]) {
			known = known || k == key
		}
		if !known || strings.HasSuffix(key, "url") && (strings.Contains(value, "::") || strings.ContainsAny(value, "\"\\")) { // a helper program, or hidden
			return false
		}
	}
	return true
}

// header parses what follows a "[": a name, perhaps a quoted one after it, and "]".
func header(s string) (name, rest string, ok bool) {
	end := strings.IndexAny(s, " \t\"]")
	if end < 0 {
		return "", "", false
	}
	name, _, _ = strings.Cut(strings.ToLower(s[:end]), ".")
	s = strings.TrimLeft(s[end:], " \t")
	if strings.HasPrefix(s, `"`) {
		i := 1
		for ; i < len(s) && s[i] != '"'; i++ {
			if s[i] == '\\' {
				i++
			}
		}
		if i >= len(s) {
			return "", "", false
		}
		s = s[i+1:]
	}
	rest, ok = strings.CutPrefix(s, "]")
	return name, rest, ok
}
