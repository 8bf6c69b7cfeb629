package settings_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/carrel-dev/carrel/internal/settings"
	"github.com/carrel-dev/carrel/internal/testenv"
)

// git runs git in a directory of the place, without the person's configuration.
func (p place) git(dir string, args ...string) {
	p.t.Helper()
	c := exec.Command("git", args...)
	c.Dir = filepath.Join(p.home, dir)
	c.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + p.home, "GIT_CONFIG_NOSYSTEM=1", "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.com"}
	if out, err := c.CombinedOutput(); err != nil {
		p.t.Fatalf("git %q: %v\n%s", args, err, out)
	}
}

func needGit(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		testenv.Need(t, "git", err)
	}
}

// TestWorktree opens the files that a commit in a worktree writes, and none that git takes orders
// from.
func TestWorktree(t *testing.T) {
	needGit(t)
	p := newPlace(t)
	p.file("main/f", "x")
	p.git("main", "init", "-q", "-b", "main")
	p.git("main", "add", ".")
	p.git("main", "commit", "-q", "-m", "one")
	p.git("main", "worktree", "add", "-q", "../tree", "-b", "side")
	b := p.resolve(func(r *settings.Request) { r.Dir = p.home + "/tree" })
	p.want(b, map[string]settings.Access{
		"tree/f": writable, "tree/.git": readable, "main/f": readable, "main/.git/objects/aa/bb": writable, "main/.git/refs/heads/side": writable, "main/.git/logs/refs/heads/side": writable,
		"main/.git/worktrees/tree/index": writable, "main/.git/worktrees/tree/HEAD": writable, "main/.git/worktrees/tree/commondir": readable, "main/.git/worktrees/tree/gitdir": readable, "main/.git/worktrees/tree/config.worktree": readable,
		"main/.git/config": readable, "main/.git/hooks/pre-commit": readable, "main/.git/HEAD": readable, "main/.git/commondir": readable,
	})
	// A repository inside the working directory: its worktrees' own files are protected there.
	b = p.resolve(func(r *settings.Request) { r.Dir = p.home + "/main" })
	p.want(b, map[string]settings.Access{"main/.git/worktrees/tree/commondir": readable, "main/.git/index": writable, "main/.git/commondir": readable})
	// A subdirectory of a repository: the repository stays closed, with a note.
	p.file("main/sub/x", "x")
	b = p.resolve(func(r *settings.Request) { r.Dir = p.home + "/main/sub" })
	p.want(b, map[string]settings.Access{"main/.git/index": readable, "main/sub/x": writable})
	noted(t, b, "git commits nothing")
}

// TestSubmodule does the same for a submodule, whose repository is inside that of the whole
// project.
func TestSubmodule(t *testing.T) {
	needGit(t)
	p := newPlace(t)
	p.file("lib/f", "x")
	p.git("lib", "init", "-q")
	p.git("lib", "add", ".")
	p.git("lib", "commit", "-q", "-m", "one")
	p.file("main/f", "x")
	p.git("main", "init", "-q")
	p.git("main", "-c", "protocol.file.allow=always", "submodule", "add", "-q", p.home+"/lib", "lib")
	b := p.resolve(func(r *settings.Request) { r.Dir = p.home + "/main/lib" })
	p.want(b, map[string]settings.Access{"main/lib/f": writable, "main/lib/.git": readable, "main/.git/modules/lib/index": writable, "main/.git/modules/lib/config": readable, "main/.git/modules/lib/hooks/x": readable, "main/.git/modules/lib/commondir": readable, "main/.git/index": readable})
	b = p.resolve(func(r *settings.Request) { r.Dir = p.home + "/main" })
	p.want(b, map[string]settings.Access{"main/lib/.git": readable, "main/.git/modules/lib/config": readable, "main/.git/modules/lib/hooks/x": readable, "main/.git/modules/lib/index": writable})
}

// TestForgedPointer shows that a .git file opens no directory that does not point back.
func TestForgedPointer(t *testing.T) {
	p := newPlace(t)
	// Another repository of the person, and directories that only look like repositories.
	p.file("other/.git/config", "[core]\n\tworktree = ../other\n")
	p.file("other/.git/objects/x", "x")
	p.file("fake/commondir", "../other/.git\n")
	p.file("fake/gitdir", p.dir+"/.git\n")
	p.file("plain/objects/x", "x")
	for _, to := range []string{p.home + "/other/.git", p.home + "/fake", p.home + "/plain", "../plain", p.home, "/etc", "/", "../../../../../etc", ".", "missing"} {
		p.file("project/.git", "gitdir: "+to+"\n")
		b := p.resolve()
		p.want(b, map[string]settings.Access{"project/.git": readable, "other/.git/objects/x": readable, "plain/objects/x": readable, "fake/x": readable, "fake/commondir": readable, "x": readable, "/etc/passwd": readable, "project/f": writable})
	}
	// Pointers that are invalid: two lines, a huge one, an empty one.
	for _, text := range []string{"gitdir: " + p.home + "/plain\nmore\n", "gitdir:", "gitdir: \n", "gitdir: a\x00b\n", string(make([]byte, 100_000))} {
		p.file("project/.git", text)
		p.want(p.resolve(), map[string]settings.Access{"plain/objects/x": readable, "project/f": writable})
	}
}
