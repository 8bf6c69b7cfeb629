package settings_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/carrel-dev/carrel/internal/settings"
)

// TestSecrets shows that secrets in a home are not readable, and that other files are.
func TestSecrets(t *testing.T) {
	p := newPlace(t)
	secrets := []string{
		".ssh/id_ed25519", ".aws/credentials", ".gnupg/key", ".config/gcloud/x", ".azure/x", ".kube/config", ".docker/config.json", ".netrc", ".npmrc", ".pypirc", ".cargo/credentials.toml", ".gem/credentials",
		".git-credentials", ".config/gh/hosts.yml", ".config/hub", ".password-store/x", ".local/share/keyrings/x", ".config/google-chrome/Default/Cookies", ".mozilla/firefox/x", ".config/BraveSoftware/x", ".bash_history", ".zsh_history",
		".python_history", ".psql_history", ".pgpass", ".terraform.d/credentials.tfrc.json", ".config/op/x", ".bitcoin/wallet.dat", ".claude/.credentials.json", ".codex/auth.json", ".Xauthority", ".vault-token", ".local/share/atuin/x",
	}
	open := []string{".gitconfig", ".cargo/config.toml", ".docker/machine", ".config/other/x", ".bashrc", ".cache/x", "go/pkg/mod/x", ".terraform.d/plugins/x", ".claude/CLAUDE.md"}
	for _, s := range append(secrets, open...) {
		p.file(s, "x")
	}
	b := p.resolve()
	for _, s := range secrets {
		p.want(b, map[string]settings.Access{s: denied})
	}
	for _, s := range open {
		p.want(b, map[string]settings.Access{s: readable})
	}
}

// TestEnvironmentFiles shows which files of the working directory count as secrets.
func TestEnvironmentFiles(t *testing.T) {
	p := newPlace(t)
	want := map[string]settings.Access{}
	for name, a := range map[string]settings.Access{
		".env": denied, ".env.local": denied, ".env.production": denied, "a/b/.env": denied, "a/terraform.tfstate": denied, ".dev.vars": denied,
		".env.example": writable, ".env.sample": writable, ".env.template": writable, ".env.dist": writable, ".env.local.example": writable, "env": writable, "a/.envoy/x": writable, "x.env": writable, "id_rsa": writable,
	} {
		p.file("project/"+name, "x")
		want["project/"+name] = a
	}
	p.want(p.resolve(), want)
}

// TestRunLater checks the names that are never written in the working directory, both existing and
// missing ones.
func TestRunLater(t *testing.T) {
	names := []string{
		".gitconfig", ".gitmodules", ".bashrc", ".bash_profile", ".zshrc", ".zprofile", ".profile", ".ripgreprc", ".mcp.json", ".vscode/settings.json", ".idea/x", ".claude/commands/x.md", ".claude/agents/x.md", ".claude/settings.json",
		".git/hooks/pre-commit", ".git/config", ".git/commondir", ".git/modules/lib/hooks/x", ".git/modules/lib/config", ".cursor/mcp.json", ".zed/tasks.json", ".codex/config.toml", ".gemini/settings.json", ".aider.conf.yml", ".envrc", ".carrel.yaml", ".husky/pre-commit",
		".npmrc", ".yarnrc.yml", ".devcontainer/devcontainer.json",
	}
	free := []string{"main.go", ".git/objects/ab/cd", ".git/refs/heads/main", ".git/index", ".git/HEAD", ".git/logs/HEAD", ".git/info/exclude", ".git/COMMIT_EDITMSG", "Makefile", "package.json", ".github/workflows/ci.yml", ".gitignore", ".claude/notes.md", "CLAUDE.md", "vscode/x", "x.mcp.json"}
	for _, there := range []bool{true, false} {
		for _, dir := range []string{"project", "project/deep/er"} {
			t.Run(fmt.Sprint(there, " ", dir), func(t *testing.T) {
				p := newPlace(t)
				for _, n := range append(append([]string{}, names...), free...) {
					if there {
						p.file(filepath.Join(dir, n), "{}")
					}
				}
				b := p.resolve(func(r *settings.Request) { r.NoFiles = true })
				for _, n := range names {
					p.want(b, map[string]settings.Access{dir + "/" + n: readable})
				}
				for _, n := range free {
					p.want(b, map[string]settings.Access{dir + "/" + n: writable})
				}
				rules := map[string]bool{}
				for _, r := range b.Paths {
					rules[r.Path] = true
				}
				if there && (!rules[p.home+"/"+dir+"/.git/hooks"] || !rules[p.home+"/"+dir+"/.mcp.json"]) {
					t.Error("what is there and protected has no rule of its own")
				}
			})
		}
	}
}

// TestBoxOwnDirectories shows that nothing is protected in the box's own /tmp.
func TestBoxOwnDirectories(t *testing.T) {
	p := newPlace(t)
	b := p.resolve()
	p.want(b, map[string]settings.Access{"/tmp/clone/.git/config": writable, "/tmp/.bashrc": writable, "/var/tmp/x": writable, "/usr/bin/x": readable, "/etc/passwd": readable})
	b = p.resolve(flags(settings.Settings{Write: settings.PathRules{Allow: []string{"/tmp"}}}))
	p.want(b, map[string]settings.Access{"/tmp/x": writable, "/tmp/.bashrc": readable})
	for _, d := range b.Private {
		if d == "/tmp" {
			t.Error("/tmp was opened by name and is still the box's own")
		}
	}
}

// TestNamingOpens shows that naming a path lifts its protection, and that naming a directory above
// it does not.
func TestNamingOpens(t *testing.T) {
	p := newPlace(t)
	p.file("project/.mcp.json", "{}")
	p.file("project/sub/.mcp.json", "{}")
	p.file("project/.git/config", "x")
	p.file(".ssh/config", "x")
	p.file(".ssh/id", "x")
	write := func(names ...string) func(*settings.Request) {
		return flags(settings.Settings{Write: settings.PathRules{Allow: names}})
	}
	p.want(p.resolve(write(".")), map[string]settings.Access{"project/.mcp.json": readable})
	p.want(p.resolve(write("~")), map[string]settings.Access{"project/.mcp.json": readable, ".bashrc": readable, ".ssh/id": denied, ".config/autostart/x": readable, "bin/x": readable, ".local/share/x": writable})
	b := p.resolve(write(".mcp.json", ".vscode", ".git/config"))
	p.want(b, map[string]settings.Access{"project/.mcp.json": writable, "project/sub/.mcp.json": readable, "project/.vscode/tasks.json": writable, "project/sub/.vscode/x": readable, "project/.git/config": writable, "project/.git/hooks/x": readable})
	p.want(p.resolve(flags(settings.Settings{Write: settings.PathRules{Unprotect: []string{".git"}}})), map[string]settings.Access{"project/.git/config": writable, "project/new/.git/hooks/x": writable, "project/.mcp.json": readable})
	b = p.resolve(flags(settings.Settings{Read: settings.PathRules{Allow: []string{"~/.ssh/config"}}}))
	p.want(b, map[string]settings.Access{".ssh/config": readable, ".ssh/id": denied})
	b = p.resolve(flags(settings.Settings{Write: settings.PathRules{Unprotect: []string{".mcp.jsn"}}}))
	noted(t, b, "did you mean .mcp.json?")
	b = p.resolve(flags(settings.Settings{Write: settings.PathRules{Protect: []string{"secrets", "lib/*.so"}}}))
	p.want(b, map[string]settings.Access{"project/a/secrets/x": readable, "project/lib/a.so": readable, "project/b/lib/c.so": readable, "project/lib/a.c": writable})
}

// TestLinks shows that the target of a closed link is closed too, and that a link in a project
// closes no path of the system.
func TestLinks(t *testing.T) {
	p := newPlace(t)
	p.file("vault/keys/id", "x")
	p.link(p.home+"/vault/keys", ".ssh")
	p.file("elsewhere/prod.env", "x")
	p.link(p.home+"/elsewhere/prod.env", "project/.env")
	p.link("/usr/bin/env", "project/a/.env")
	p.link("/", "project/b/.env")
	p.link("../..", "project/c/.git")
	p.file("project/hooks/pre-commit", "x")
	p.file("project/.git/HEAD", "x")
	p.link("../hooks", "project/.git/hooks")
	b := p.resolve()
	p.want(b, map[string]settings.Access{
		".ssh/id": denied, "vault/keys/id": denied, "elsewhere/prod.env": denied, "project/.env": denied, "/usr/bin/env": readable, "/usr": readable, "project/main.go": writable, "project/.git/hooks": readable, "project/hooks/pre-commit": readable, "project/c/.git": readable,
	})
	// The test reaches the working directory and the home through links.
	p.link(p.dir, "short")
	p.link(p.home, "../me")
	b = p.resolve(func(r *settings.Request) { r.Dir, r.Home = p.home+"/short", filepath.Dir(p.home)+"/me" })
	if b.Dir != p.dir || b.Home != p.home {
		t.Errorf("%s, %s", b.Dir, b.Home)
	}
	p.want(b, map[string]settings.Access{".ssh/id": denied, "project/x": writable})
	// Opening a link opens its target.
	p.file("data/x", "x")
	p.link(p.home+"/data", "project/data")
	p.want(p.resolve(flags(settings.Settings{Write: settings.PathRules{Allow: []string{"data"}}})), map[string]settings.Access{"data/x": writable})
}

// TestWorkingDirectory shows which working directories are not opened.
func TestWorkingDirectory(t *testing.T) {
	p := newPlace(t)
	for _, dir := range []string{p.home, filepath.Dir(p.home), "/", "/etc", "/usr/bin", "/tmp"} {
		b := p.resolve(func(r *settings.Request) { r.Dir = dir })
		if a, r := b.Access(dir); a == writable && r.Rule == "built-in: the working directory" {
			t.Errorf("%s is written", dir)
		}
		if len(b.Notes) == 0 || !strings.HasPrefix(b.Notes[0], "!") {
			t.Errorf("%s: %q", dir, b.Notes)
		}
	}
	b := p.resolve(func(r *settings.Request) {
		r.Dir, r.Flags.Write.Allow = p.home, []string{"."}
		r.Flags.Read = settings.PathRules{}
	})
	p.want(b, map[string]settings.Access{"x": writable, ".bashrc": readable, ".config/systemd/user/x.service": readable})
	for _, dir := range []string{"relative", "", p.home + "/missing"} {
		if text := p.fails(func(r *settings.Request) { r.Dir = dir }); !strings.Contains(text, "working directory") {
			t.Error(text)
		}
	}
}

// TestLargeDirectory finds secrets in any number of directories, at any depth, and protects names
// in their places.
func TestLargeDirectory(t *testing.T) {
	p := newPlace(t)
	p.file("project/.env", "x")
	for i := range 250 {
		dir := fmt.Sprintf("%s/big%02d", p.dir, i)
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		for j := range 100 {
			if err := os.WriteFile(fmt.Sprintf("%s/%d", dir, j), nil, 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	deep := "project/" + strings.Repeat("d/", 60) + ".env"
	p.file("project/node_modules/x/.env", "x")
	p.file(deep, "x")
	p.want(p.resolve(), map[string]settings.Access{"project/.env": denied, "project/node_modules/x/.env": denied, deep: denied, "project/big00/.mcp.json": readable, "project/big99/x": writable})
}

// TestElsewhere searches for secrets outside of the working directory, for a limited time.
// Directories that it did not reach are closed, and named in a note.
func TestElsewhere(t *testing.T) {
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("TMPDIR", here) // a box has its own /tmp, so there is nothing to search
	p := newPlace(t)
	for _, f := range []string{"other/.env", "other/.env.example", "other/a/b/.env.local", "mine/.env", "many/.env"} {
		p.file(f, "x")
	}
	for i := range 100 {
		p.file(fmt.Sprintf("many/%d/x/file", i), "x")
	}
	long := p.resolve(func(r *settings.Request) { r.Elsewhere = time.Hour })
	p.want(long, map[string]settings.Access{"other/.env": denied, "other/.env.example": readable, "other/a/b/.env.local": denied, "mine/.env": denied, "many/1/x/file": readable})
	short := func(read ...string) *settings.Box {
		return p.resolve(func(r *settings.Request) { r.Elsewhere, r.Flags.Read.Allow = 1, read })
	}
	b := short()
	p.want(b, map[string]settings.Access{"other/.env": denied, "other/a/b/.env.local": denied, "mine/.env": denied, "many/1/x/file": denied, "project/x": writable})
	noted(t, b, "not searched for secrets within 1ns")
	p.want(short(p.home+"/many"), map[string]settings.Access{"many/.env": denied, "many/1/x/file": readable, "other/.env": denied})
	p.want(short(p.home+"/mine/.env"), map[string]settings.Access{"mine/.env": readable, "other/.env": denied})
}

// TestCutPattern shows that a directory is closed if the search for a pattern that closes reading
// stopped early in it.
func TestCutPattern(t *testing.T) {
	settings.LowerSearch(t, 50)
	p := newPlace(t)
	for i := range 100 {
		p.file(fmt.Sprintf("project/many/%d/x/a.pem", i), "x")
	}
	b := p.resolve(func(r *settings.Request) { r.Flags.Read.Deny = []string{"many/*/x/*.pem"} })
	p.want(b, map[string]settings.Access{"project/many/99/x/a.pem": denied, "project/many/5/x/y": denied, "project/x": writable})
	noted(t, b, "so all of that is closed")
}

// TestOtherSystems checks macOS's lists, with a made-up filesystem.
func TestOtherSystems(t *testing.T) {
	b, err := settings.Resolve(settings.Request{Dir: "/Users/ann/project", Home: "/Users/ann", OS: "darwin", NoFiles: true, Exists: func(string) bool { return true }})
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]settings.Access{
		"/Users/ann/Library/Keychains/login.keychain-db": denied, "/Users/ann/Library/Safari/x": denied, "/Users/ann/.ssh/id": denied, "/Users/ann/Library/Application Support/Google/Chrome/x": denied,
		"/Users/ann/project/x": writable, "/Users/ann/project/.vscode/x": readable, "/private/etc/master.passwd": denied, "/usr/bin/x": readable, "/Users/ann/Documents": readable,
	} {
		if got, r := b.Access(path); got != want {
			t.Errorf("%s is %s by %q, want %s", path, got, r.Rule, want)
		}
	}
	if len(b.Private) > 0 {
		t.Errorf("%q", b.Private)
	}
}
