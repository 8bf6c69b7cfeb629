package settings

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/carrel-dev/carrel/internal/gitdir"
)

// repositories are git's repositories that the search found, and the protection of them. git
// outside obeys their configuration, so the box may change neither the configuration nor the
// programs named in it.
type repositories struct {
	dirs    []string // directories used as a repository, and .git files
	modules int      // number of submodules' directories seen
	configs map[string][]gitdir.Entry
}

// repositoryGuard is the part of a resolver that closes files that repositories take orders from.
type repositoryGuard struct{ *resolver }

// gitName reports whether a name in a directory is a sign that git may take the directory for a
// repository.
func gitName(name []byte) bool {
	switch string(name) {
	case ".git", "HEAD", "objects", "refs":
		return true
	}
	return false
}

// gitShape notices a directory that git would take for a repository.
type gitShape struct {
	dir                        string // the one that is looked at
	head, objects, refs, noted bool
}

// see looks at one name of a directory. It gets all names of one directory before those of the
// next.
func (s *gitShape) see(v *resolver, dir, name string) {
	if s.dir != dir {
		*s = gitShape{dir: dir}
	}
	switch name {
	case ".git":
		v.git.dirs = append(v.git.dirs, dir+"/.git")
	case "HEAD":
		s.head = true
	case "objects":
		s.objects = true
	case "refs":
		s.refs = true
	default:
		return
	}
	if s.head && s.objects && s.refs && !s.noted {
		s.noted = true
		v.git.dirs = append(v.git.dirs, dir)
	}
}

// maxModules bounds the total number of submodules' directories to look at. If there are more, all
// of them are closed.
const maxModules = 5000

// gitNames are the entries of a repository's directory that git takes orders from.
var gitNames = []string{"hooks", "config", "config.worktree", "commondir"}

// repositoryRule returns the rule for one of gitNames.
func repositoryRule(name string) string {
	if name == "hooks" {
		return "git hooks"
	}
	return "git configuration"
}

// guardRepositories closes the files that the found repositories take orders from, except those
// that a protected name closes already.
func (v repositoryGuard) guardRepositories() {
	found := slices.Clone(v.git.dirs)
	for _, dir := range found {
		info, err := os.Lstat(dir)
		if err != nil || !info.IsDir() {
			continue
		}
		if filepath.Base(dir) != ".git" {
			v.closeGit(dir) // a bare one
		}
		v.modules(dir, dir+"/modules", 0)
		for _, name := range v.entries(dir + "/worktrees") {
			v.git.dirs = append(v.git.dirs, dir+"/worktrees/"+name)
		}
	}
	if v.lifted(".git/config") {
		return // the box may choose its programs
	}
	for _, dir := range slices.Clone(v.git.dirs) {
		v.closeNamed(dir)
	}
}

// modules finds the repositories of submodules below a directory. A submodule's name may have any
// number of parts, and each may have submodules of its own. parts is the number of parts up to dir.
func (v repositoryGuard) modules(repository, dir string, parts int) {
	list, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, e := range list {
		if !e.IsDir() {
			continue
		}
		if v.git.modules++; v.git.modules > maxModules {
			v.closeBuiltIn(repository+"/modules", writeDeny, "git configuration", false)
			v.note("!%s holds too many submodules to look at each: all of them stay as they are", v.short(repository))
			return
		}
		sub := dir + "/" + e.Name()
		if !v.exists(sub + "/HEAD") {
			v.modules(repository, sub, parts+1)
			continue
		}
		v.git.dirs = append(v.git.dirs, sub)
		if parts >= 2 { // others are closed by name
			v.closeGit(sub)
		}
		v.modules(repository, sub+"/modules", parts+2)
	}
}

// closeGit closes the files in a repository's directory that git takes orders from.
func (v repositoryGuard) closeGit(dir string) {
	for _, name := range gitNames {
		if v.lifted(".git/" + name) {
			continue
		}
		rule := repositoryRule(name)
		v.guarded = append(v.guarded, Protected{Pattern: name, Dir: dir, Rule: "built-in: " + rule, Source: "built-in", Allow: "--write " + v.short(dir+"/"+name)})
		if v.exists(dir + "/" + name) {
			v.closeBuiltIn(dir+"/"+name, writeDeny, rule, false)
		}
	}
}

// closeNamed closes the files that a repository's configuration names. It also does so for the
// person's configuration, as it applies to that repository.
func (v repositoryGuard) closeNamed(dir string) {
	info, err := os.Lstat(dir)
	if err != nil || !info.IsDir() {
		return
	}
	top, main := v.worktreeOf(dir)
	closed := map[string]bool{}
	for _, file := range append(v.ownConfigs(), main+"/config", dir+"/config.worktree") {
		for _, e := range v.config(file, 0) {
			v.closeProgram(e, top, closed)
		}
	}
	for _, e := range v.environmentConfig() {
		v.closeProgram(e, top, closed)
	}
	v.closeLinkedHooks(dir + "/hooks")
}

// worktreeOf returns the directory in which a repository's programs run, and the repository that
// has its configuration.
func (v repositoryGuard) worktreeOf(dir string) (top, main string) {
	if common := firstLine(dir + "/commondir"); common != "" {
		if main, err := realFrom(dir, common); err == nil {
			return filepath.Dir(firstLine(dir + "/gitdir")), main
		}
	}
	if top = dir; filepath.Base(dir) == ".git" {
		top = filepath.Dir(dir)
	}
	for _, name := range []string{"config", "config.worktree"} {
		for _, e := range v.config(dir+"/"+name, 0) {
			if e.Name() != "core.worktree" {
				continue
			}
			if tree, err := realFrom(dir, e.Value); err == nil {
				top = tree
			}
		}
	}
	return top, dir
}

// closeLinkedHooks closes the targets of hooks that are links.
func (v repositoryGuard) closeLinkedHooks(hooks string) {
	for _, name := range v.entries(hooks) {
		if to := v.linked(hooks + "/" + name); to != "" && !v.system(to) && v.written(to) {
			v.closeBuiltIn(to, writeDeny, "git hooks", false)
		}
	}
}

// ownConfigs returns the git configuration files of the machine and the person.
func (v repositoryGuard) ownConfigs() []string {
	var out []string
	if v.getenv("GIT_CONFIG_NOSYSTEM") == "" {
		out = append(out, "/etc/gitconfig", "/usr/local/etc/gitconfig", "/opt/homebrew/etc/gitconfig")
	}
	if system := v.getenv("GIT_CONFIG_SYSTEM"); system != "" {
		out = append(out, system)
	}
	if global := v.getenv("GIT_CONFIG_GLOBAL"); global != "" {
		return append(out, global)
	}
	xdg := v.getenv("XDG_CONFIG_HOME")
	if xdg == "" {
		xdg = v.home + "/.config"
	}
	return append(out, xdg+"/git/config", v.home+"/.gitconfig")
}

// environmentConfig returns the programs that variables name for git.
func (v repositoryGuard) environmentConfig() (out []gitdir.Entry) {
	for _, name := range []string{"GIT_EXTERNAL_DIFF", "GIT_SSH", "GIT_SSH_COMMAND", "GIT_EDITOR", "GIT_SEQUENCE_EDITOR", "GIT_PAGER", "GIT_ASKPASS", "GIT_PROXY_COMMAND"} {
		if value := v.getenv(name); value != "" {
			out = append(out, gitdir.Entry{Section: "environment", Key: strings.ToLower(name), Value: value})
		}
	}
	return out
}

// config reads a configuration with all files that it includes, whatever their condition is. It
// closes the included files.
func (v repositoryGuard) config(file string, depth int) []gitdir.Entry {
	const most = 10 // as git has it
	if known, ok := v.git.configs[file]; ok || depth > most {
		return known
	}
	v.git.configs[file] = nil // of a circle
	real, err := filepath.EvalSymlinks(file)
	if err != nil {
		return nil
	}
	own, _ := gitdir.Parse([]byte(small(real)))
	var all []gitdir.Entry
	for _, e := range own {
		if e.Key != "path" || e.Section != "include" && e.Section != "includeif" {
			all = append(all, e)
			continue
		}
		if p := v.expand(e.Value, filepath.Dir(real)); p != "" {
			v.closeTarget(p, "what git's configuration includes")
			all = append(all, v.config(p, depth+1)...)
		}
	}
	v.git.configs[file] = all
	return all
}

// expand makes a path from a configuration absolute.
func (v repositoryGuard) expand(p, dir string) string {
	switch {
	case p == "" || strings.ContainsRune(p, 0):
		return ""
	case strings.HasPrefix(p, "~/"):
		return filepath.Join(v.home, p[2:])
	case p[0] == '~' || strings.HasPrefix(p, "%("):
		return ""
	case filepath.IsAbs(p):
		return filepath.Clean(p)
	}
	return filepath.Join(dir, p)
}

// plainFiles are settings with names of files that git only reads and never runs.
var plainFiles = []string{"core.excludesfile", "core.attributesfile", "commit.template", "blame.ignorerevsfile", "mailmap.file", "diff.orderfile", "http.sslcainfo", "http.cookiefile", "gpg.ssh.allowedsignersfile", "gpg.ssh.revocationfile"}

// closeProgram closes the file that a setting names, if it is a program or may be one.
func (v repositoryGuard) closeProgram(e gitdir.Entry, top string, closed map[string]bool) {
	if e.Value == "" || slices.Contains(plainFiles, e.Name()) || gitdir.Settled(e) {
		return
	}
	if e.Name() == "core.hookspath" {
		if p := v.expand(e.Value, top); p != "" && !closed[p] {
			closed[p] = true
			v.closeTarget(p, "git hooks")
			v.closeLinkedHooks(p)
		}
		return
	}
	for _, p := range v.words(e.Value, top) {
		if closed[p] {
			continue
		}
		closed[p] = true
		if info, err := os.Stat(p); err == nil && info.IsDir() {
			continue // an argument
		}
		v.closeTarget(p, "what git is configured to run")
	}
}

// words returns the paths that a command line may name: words with a slash, and other words that
// exist as files. If the line changes its directory, words are searched there too.
func (v repositoryGuard) words(line, top string) (out []string) {
	words := strings.FieldsFunc(line, func(r rune) bool { return strings.ContainsRune(" \t\r\n'\"`;|&<>(){}$=,!\\", r) })
	dirs := []string{top}
	for _, w := range words {
		if p := v.expand(w, top); p != "" && p != top && strings.ContainsAny(line, "dC") && inside(p, top) {
			if info, err := os.Stat(p); err == nil && info.IsDir() {
				dirs = append(dirs, p)
			}
		}
	}
	for _, w := range words {
		if strings.HasPrefix(w, "-") || strings.Contains(w, "://") {
			continue
		}
		for i, dir := range dirs {
			p := v.expand(w, dir)
			if p == "" || p == dir || !v.exists(p) && (i > 0 || !strings.Contains(w, "/")) {
				continue
			}
			out = append(out, p)
		}
	}
	return out
}

// closeTarget closes a file or directory if the box could write to it or create it.
func (v repositoryGuard) closeTarget(p, rule string) {
	p = v.canonical(p)
	if v.exists(p) {
		if to := v.linked(p); v.written(p) || to != "" && v.written(to) {
			v.closeBuiltIn(p, writeDeny, rule, false)
		}
		return
	}
	dir := filepath.Dir(p)
	for dir != "/" && !v.exists(dir) {
		dir = filepath.Dir(dir)
	}
	rest := strings.TrimPrefix(p[len(dir):], "/")
	if !v.written(dir) || strings.ContainsAny(rest, meta) {
		return
	}
	v.guarded = append(v.guarded, Protected{Pattern: rest, Dir: dir, Rule: "built-in: " + rule, Source: "built-in", Allow: "--write " + v.short(p)})
}
