package git

import (
	"path"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
)

// create makes an empty repository.
func (g *git) create(dir string, bare bool, branch string) (*repo, bool, error) {
	at := path.Join(dir, ".git")
	if bare {
		at = dir
	}
	again := g.isRepo(at)
	for _, d := range []string{"branches", "hooks", "info", "objects/info", "objects/pack", "refs/heads", "refs/tags"} {
		if err := g.FS().MkdirAll(path.Join(at, d), 0o777&^g.Umask()); err != nil {
			return nil, false, fatalf("cannot mkdir %s: %v", at, err)
		}
	}
	top := dir
	if bare {
		top = ""
	}
	if again {
		return g.at(at, top), true, nil
	}
	if branch == "" {
		if branch = g.config(nil).get("init.defaultBranch"); branch == "" {
			branch = "master"
			g.warnf("hint: the first branch is called master, since init.defaultBranch is not set; git branch -m <name> calls it otherwise")
		}
	}
	if !goodBranch(branch) {
		return nil, false, fatalf("invalid initial branch name: '%s'", branch)
	}
	r := &repo{git: g, git_: at, top: top}
	config := "[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = false\n\tlogallrefupdates = true\n"
	if bare {
		config = "[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = true\n"
	}
	for _, f := range [][2]string{
		{"config", config},
		{"description", "Unnamed repository; edit this file 'description' to name the repository.\n"},
		{"info/exclude", "# Patterns of files that git leaves out here, as in .gitignore, and that no commit holds.\n"},
		{"HEAD", "ref: refs/heads/" + branch + "\n"},
	} {
		if err := r.write(f[0], f[1]); err != nil {
			return nil, false, err
		}
	}
	return g.at(at, top), false, nil
}

// goodBranch reports whether a name can be a branch name.
func goodBranch(s string) bool {
	return s != "" && s != "@" && !strings.HasPrefix(s, "-") && !strings.HasPrefix(s, "/") && !strings.HasSuffix(s, "/") && !strings.HasSuffix(s, ".lock") &&
		!strings.HasSuffix(s, ".") && !strings.ContainsAny(s, " ~^:?*[\\\x7f") && !strings.Contains(s, "..") && !strings.Contains(s, "//") && !strings.Contains(s, "@{") &&
		!strings.ContainsFunc(s, func(r rune) bool { return r < ' ' }) && !strings.Contains("/"+s, "/.")
}

// cmdInit is git init.
func cmdInit(g *git, _ *repo) error {
	f, err := g.flags("qb:", "quiet=q", "bare=\x80", "initial-branch=b", "template=\x81:", "shared=\x82::", "object-format=\x83:", "separate-git-dir=\x84:")
	if err != nil {
		return err
	}
	if f.Has(0x84) || f.Value(0x83, "sha1") != "sha1" {
		return fatalf("that kind of repository is not available here")
	}
	dir := g.dir
	if len(f.Args) > 0 {
		dir = g.path(f.Args[0])
	}
	call := g
	if f.Has('q') {
		quiet := *g
		c := *g.Call
		c.Err = discard{}
		quiet.Call = &c
		call = &quiet
	}
	r, again, err := call.create(dir, f.Has(0x80), f.Value('b', ""))
	if err != nil {
		return err
	}
	if !f.Has('q') {
		kind := "Initialized empty"
		if again {
			kind = "Reinitialized existing"
		}
		g.printf("%s Git repository in %s/\n", kind, r.git_)
	}
	return nil
}

type discard struct{}

// Write implements io.Writer.
func (discard) Write(b []byte) (int, error) { return len(b), nil }

// cmdSymbolicRef is git symbolic-ref.
func cmdSymbolicRef(g *git, r *repo) error {
	f, err := g.flags("qd", "short=\x80", "quiet=q", "delete=d")
	if err != nil {
		return err
	}
	if len(f.Args) == 0 {
		return fatalf("usage: git symbolic-ref [--short] <name> [<ref>]")
	}
	name := plumbing.ReferenceName(f.Args[0])
	if len(f.Args) > 1 {
		return r.store.SetReference(plumbing.NewSymbolicReference(name, plumbing.ReferenceName(f.Args[1])))
	}
	ref, err := r.store.Reference(name)
	if err != nil || ref.Type() != plumbing.SymbolicReference {
		if f.Has('q') {
			return exit(1)
		}
		return fatalf("ref %s is not a symbolic ref", name)
	}
	target := string(ref.Target())
	if f.Has(0x80) {
		target = ref.Target().Short()
	}
	g.printf("%s\n", target)
	return nil
}
