package settings

import (
	"io"
	"os"
	"path/filepath"
	"strings"
)

// gitDirs opens the directories that a commit writes to if the repository is outside the working
// directory. That is so in a worktree or a submodule: its .git is a file that points to the
// repository. The pointer alone is not enough, because anyone who can write it could open another
// directory of the person's. The repository must point back, and this pointer must be outside the
// writable directories.
func (v *resolver) gitDirs() {
	pointer := v.dir + "/.git"
	if v.Exists != nil || !v.written(v.dir) {
		return
	}
	target, ok := strings.CutPrefix(firstLine(pointer), "gitdir: ")
	if !ok {
		v.repositoryAbove(pointer)
		return
	}
	dir, err := realFrom(v.dir, target)
	if err != nil || inside(dir, v.dir) {
		return
	}
	if common := firstLine(dir + "/commondir"); common != "" {
		v.worktree(pointer, dir, common)
		return
	}
	if back, err := realFrom(dir, configured(dir+"/config", "worktree")); err != nil || back != v.dir {
		v.note("!%s points to %s, which does not point back: the repository stays closed for writing", v.short(pointer), v.short(dir))
		return
	}
	v.openGit(dir, "")
}

// worktree opens the repository of a worktree.
func (v *resolver) worktree(pointer, dir, common string) {
	main, err := realFrom(dir, common)
	back, err2 := realFrom(dir, firstLine(dir+"/gitdir"))
	if err != nil || err2 != nil || back != pointer || filepath.Dir(dir) != main+"/worktrees" {
		v.note("!%s points to %s, which does not point back: the repository stays closed for writing", v.short(pointer), v.short(dir))
		return
	}
	v.openGit(dir, main)
}

// openGit opens a repository's directory, except the files that git takes orders from. Of the main
// repository it opens only the places that a commit adds to.
func (v *resolver) openGit(dir, main string) {
	v.git.dirs = append(v.git.dirs, dir)
	if main != "" {
		v.git.dirs = append(v.git.dirs, main)
	}
	v.tree.add(&decision{path: dir, op: writeAllow, rule: "built-in: the worktree's repository", source: "built-in"})
	for _, name := range []string{"hooks", "config", "config.worktree", "commondir", "gitdir", "modules", "worktrees"} {
		p := dir + "/" + name
		v.guarded = append(v.guarded, Protected{Pattern: p, Rule: "built-in: git configuration", Source: "built-in", Allow: "--write " + v.short(p)})
		if v.exists(p) {
			v.closeBuiltIn(p, writeDeny, "git configuration", false)
		}
	}
	if main == "" {
		return
	}
	for _, name := range []string{"objects", "refs", "logs"} {
		if p := main + "/" + name; v.exists(p) && v.linked(p) == "" {
			v.tree.add(&decision{path: p, op: writeAllow, rule: "built-in: the worktree's repository", source: "built-in"})
		}
	}
}

// repositoryAbove notes that commits will not work if only a part of a repository is open.
func (v *resolver) repositoryAbove(pointer string) {
	if v.exists(pointer) {
		return
	}
	for dir := filepath.Dir(v.dir); dir != "/" && dir != v.home; dir = filepath.Dir(dir) {
		if v.exists(dir + "/.git") {
			if !v.written(dir) {
				v.note("the repository in %s stays read-only, so git commits nothing: start there, or say --write %s", v.short(dir), v.short(dir))
			}
			return
		}
	}
}

// written reports whether a directory is open for writing up to now.
func (v *resolver) written(dir string) bool {
	a, _ := v.tree.access(dir)
	return a == Writable
}

// realFrom resolves a path that is written in a file in dir.
func realFrom(dir, name string) (string, error) {
	if name == "" {
		return "", os.ErrNotExist
	}
	if !filepath.IsAbs(name) {
		name = dir + "/" + name
	}
	return filepath.EvalSymlinks(name)
}

// firstLine reads the first line of a small regular file; for anything else it returns "".
func firstLine(name string) string {
	text := small(name)
	line, rest, _ := strings.Cut(text, "\n")
	if rest != "" && strings.HasPrefix(line, "gitdir: ") {
		return "" // git writes one line
	}
	return strings.TrimSuffix(line, "\r")
}

// small reads a regular file of some kilobytes.
func small(name string) string {
	if info, err := os.Lstat(name); err != nil || !info.Mode().IsRegular() || info.Size() > 64<<10 {
		return ""
	}
	f, err := openNoWait(name)
	if err != nil {
		return ""
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, 64<<10))
	if err != nil {
		return ""
	}
	return string(data)
}

// configured reads a value of [core] from a git configuration.
func configured(file, key string) string {
	section := ""
	for line := range strings.SplitSeq(small(file), "\n") {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "[") {
			section = strings.ToLower(line)
			continue
		}
		if name, value, ok := strings.Cut(line, "="); ok && section == "[core]" && strings.EqualFold(strings.TrimSpace(name), key) {
			return strings.Trim(strings.TrimSpace(value), `"`)
		}
	}
	return ""
}
