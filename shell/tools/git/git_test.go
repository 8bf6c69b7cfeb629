package git_test

import (
	"context"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"net"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/carrel-dev/carrel/internal/testenv"
	"github.com/carrel-dev/carrel/shell/interp"
	"github.com/carrel-dev/carrel/shell/outside"
	"github.com/carrel-dev/carrel/shell/tool"
	"github.com/carrel-dev/carrel/shell/tools"
	"github.com/carrel-dev/carrel/shell/vfs"
)

// run runs a script on a new machine, and returns its status and its output, with both streams
// together.
func run(t *testing.T, way tool.HTTP, script string) (string, int) {
	t.Helper()
	disk := vfs.New(vfs.Options{Quota: 64 << 20})
	if err := interp.Install(disk, tools.Names()...); err != nil {
		t.Fatal(err)
	}
	if err := disk.Root().MkdirAll("/w", 0o777); err != nil {
		t.Fatal(err)
	}
	m := interp.New(interp.Config{FS: disk, Hostname: "box", Commands: tools.All(), HTTP: way, Limits: interp.Limits{Procs: 50, Memory: 128 << 20, Output: 16 << 20, Steps: 500 << 20}})
	defer m.Close()
	o := interp.NewPipe()
	p, err := m.Start(interp.Spec{Path: "bash", Args: []string{"-c", script}, Dir: "/w", Out: o, Err: o, Env: []string{"PATH=/usr/bin:/bin", "HOME=/root",
		"GIT_AUTHOR_NAME=Ann", "GIT_AUTHOR_EMAIL=ann@x.org", "GIT_COMMITTER_NAME=Ann", "GIT_COMMITTER_EMAIL=ann@x.org"}})
	if err != nil {
		t.Fatal(err)
	}
	b, _ := io.ReadAll(o)
	return string(b), p.Wait().Code
}

// server serves a repository with the real git.
func server(t *testing.T) (url, dir string, way tool.HTTP) {
	t.Helper()
	bin, err := exec.LookPath("git")
	testenv.Need(t, "git", err)
	dir = t.TempDir()
	hostGit(t, dir, "init", "-q", "--bare", "-b", "main", "repo.git")
	hostGit(t, dir+"/repo.git", "config", "http.receivepack", "true")
	hostGit(t, dir, "init", "-q", "-b", "main", "seed")
	if err := os.WriteFile(dir+"/seed/hello", []byte("hello\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for i := range 40 { // enough for deltas
		if err := os.WriteFile(dir+"/seed/big", []byte(strings.Repeat("some line of text that repeats\n", 200)+strings.Repeat("x", i)), 0o644); err != nil {
			t.Fatal(err)
		}
		hostGit(t, dir+"/seed", "add", ".")
		hostGit(t, dir+"/seed", "commit", "-q", "-m", "commit")
	}
	hostGit(t, dir+"/seed", "tag", "-a", "v1", "-m", "one")
	hostGit(t, dir+"/seed", "push", "-q", "../repo.git", "main", "v1")
	backend := &cgi.Handler{Path: bin, Args: []string{"http-backend"}, Env: []string{"GIT_PROJECT_ROOT=" + dir, "GIT_HTTP_EXPORT_ALL=1", "REMOTE_USER=u"}}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/private/") {
			if u, p, _ := r.BasicAuth(); u != "me" || p != "secret" {
				w.Header().Set("WWW-Authenticate", `Basic realm="git"`)
				w.WriteHeader(401)
				return
			}
			r.URL.Path = strings.TrimPrefix(r.URL.Path, "/private")
		}
		backend.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	dialer := &net.Dialer{}
	h := outside.New(outside.Options{Dial: dialer.DialContext})
	t.Cleanup(h.Close)
	return s.URL, dir, h
}

// hostGit runs the real git.
func hostGit(t *testing.T, dir string, args ...string) string {
	t.Helper()
	c := exec.Command("git", args...)
	c.Dir = dir
	c.Env = append(os.Environ(), "HOME="+t.TempDir(), "GIT_CONFIG_NOSYSTEM=1", "GIT_AUTHOR_NAME=R", "GIT_AUTHOR_EMAIL=r@x", "GIT_COMMITTER_NAME=R", "GIT_COMMITTER_EMAIL=r@x")
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("git %v: %v\n%s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

func TestOverHTTP(t *testing.T) {
	url, dir, way := server(t)
	head := hostGit(t, dir+"/seed", "rev-parse", "HEAD")
	out, code := run(t, way, `set -e; U=`+url+`
git clone $U/repo.git r; cd r
git rev-parse HEAD; git log --oneline | wc -l; git status -sb; git tag; cat hello; wc -c < big; git describe
echo more >> hello; git commit -qam more; git push
git checkout -q -b topic; echo t > t; git add t; git commit -q -m topic; git push -q -u origin topic; git status -sb
git ls-remote --heads $U/repo.git | cut -f2
git clone -q --depth 1 $U/repo.git ../s; git -C ../s log --oneline | wc -l; git -C ../s rev-parse --is-shallow-repository`)
	want := "Cloning into 'r'...\n" + head + "\n40\n## main...origin/main\nv1\nhello\n6239\nv1\n"
	if code != 0 || !strings.HasPrefix(out, want) || !strings.HasSuffix(out, "## topic...origin/topic\nrefs/heads/main\nrefs/heads/topic\n1\ntrue\n") {
		t.Errorf("status %d, output\n%s\nwant\n%s", code, out, want)
	}
	if got := hostGit(t, dir+"/repo.git", "log", "-1", "--format=%an %s", "main"); got != "Ann more" {
		t.Errorf("pushed %q", got)
	}
	hostGit(t, dir+"/repo.git", "fsck", "--strict")
	// Fetch and pull get the commits that others have pushed.
	out, code = run(t, way, `set -e; U=`+url+`
git clone -q $U/repo.git r; cd r; git reset -q --hard HEAD~3; git pull -q; git log -1 --format=%s
git checkout -q topic; git log -1 --format=%s; git push -q origin --delete topic; git ls-remote --heads origin | cut -f2`)
	if code != 0 || out != "more\ntopic\nrefs/heads/main\n" {
		t.Errorf("status %d, output\n%s", code, out)
	}
}

func TestCredentials(t *testing.T) {
	url, _, way := server(t)
	for script, want := range map[string]string{
		"git clone -q " + url + "/private/repo.git r":                                                               "fatal: could not read Username for '" + url + "/private/repo.git': terminal prompts disabled\n",
		"git clone -q " + strings.Replace(url, "//", "//me:secret@", 1) + "/private/repo.git r; ls r":               "big\nhello\n",
		"git -c http.extraHeader='Authorization: Basic bWU6c2VjcmV0' clone -q " + url + "/private/repo.git r; ls r": "big\nhello\n",
		"git clone -q " + url + "/nothing.git r":                                                                    "fatal: repository '" + url + "/nothing.git/' not found\n",
		"git clone -q git@host:x/y.git":                                                                             "fatal: ssh is not available on this machine; use https:// (git@host:x/y.git)\n",
		"git clone -q ssh://host/x":                                                                                 "fatal: ssh is not available on this machine; use https:// (ssh://host/x)\n",
		"git clone -q git://host/x":                                                                                 "fatal: unable to connect: git:// is not available on this machine; use https://\n",
		"git clone -q http://127.0.0.1:1/x 2>&1 | cut -d: -f1-3 ":                                                   "fatal: unable to access 'http://127.0.0.1\n",
	} {
		if out, _ := run(t, way, script); !strings.HasSuffix(out, want) && !strings.HasPrefix(out, strings.TrimSpace(want)) {
			t.Errorf("%s\n got %q\nwant %q", script, out, want)
		}
	}
	if out, code := run(t, nil, "git clone -q https://x.example/y"); code != 128 || !strings.Contains(out, "this machine has no way out") {
		t.Errorf("without a network: %d %q", code, out)
	}
	denied := deny{}
	if out, code := run(t, denied, "git clone -q https://x.example/y"); code != 128 || out != "fatal: unable to access 'https://x.example/y/': denied by the sandbox's policy: no rule\n" {
		t.Errorf("denied: %d %q", code, out)
	}
}

type deny struct{}

// Do implements tool.HTTP.
func (deny) Do(context.Context, *tool.Request) (*tool.Response, error) {
	return nil, &tool.Denied{Host: "x.example", Reason: "no rule"}
}

// TestHostIsNotRead shows that the host's configuration, home and repositories are not read.
func TestHostIsNotRead(t *testing.T) {
	home := t.TempDir()
	config := "[user]\n\tname = Host\n\temail = host@host\n[init]\n\tdefaultBranch = hostbranch\n[core]\n\texcludesFile = " + home + "/ignore\n[url \"https://evil/\"]\n\tinsteadOf = https://\n"
	for name, text := range map[string]string{".gitconfig": config, "ignore": "*\n", ".git-credentials": "https://a:b@x.example\n", "config/git/config": config} {
		if err := os.MkdirAll(filepath.Dir(home+"/"+name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(home+"/"+name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for k, v := range map[string]string{"HOME": home, "XDG_CONFIG_HOME": home + "/config", "GIT_DIR": home, "GIT_CONFIG_GLOBAL": home + "/.gitconfig", "GIT_AUTHOR_NAME": "Host", "USER": "host"} {
		t.Setenv(k, v)
	}
	out, code := run(t, nil, `unset GIT_AUTHOR_NAME GIT_AUTHOR_EMAIL GIT_COMMITTER_NAME GIT_COMMITTER_EMAIL
git init -q r 2>/dev/null; cd r; git config -l | grep -c -i host; git branch --show-current; touch f; git status -s; git add f; git commit -q -m x 2>&1 | tail -1
git tag -a -m x v 2>&1 | tail -1; git -C `+home+` status 2>&1; ls `+home+` 2>&1`)
	want := "0\nmaster\n?? f\nfatal: unable to auto-detect email address (got 'root@box.(none)')\nfatal: Failed to resolve 'HEAD' as a valid ref.\n" +
		"fatal: cannot change to '" + home + "': No such file or directory\nls: cannot access '" + home + "': No such file or directory\n"
	if out != want {
		t.Errorf("status %d\n got %s\nwant %s", code, out, want)
	}
}

// TestOnlyNames checks that this package uses only flags and type names of package os, as it says.
func TestOnlyNames(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	banned := map[string]bool{"PlainOpen": true, "PlainOpenWithOptions": true, "PlainClone": true, "PlainCloneContext": true, "PlainInit": true, "ConfigScoped": true, "LoadConfig": true,
		"LoadGlobalPatterns": true, "LoadSystemPatterns": true, "CreateTag": true}
	allowed := map[string]bool{"O_RDONLY": true, "O_RDWR": true, "O_WRONLY": true, "O_CREATE": true, "O_EXCL": true, "O_TRUNC": true, "O_APPEND": true, "FileMode": true, "FileInfo": true, "IsNotExist": true}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			s, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			if banned[s.Sel.Name] {
				t.Errorf("%s uses %s, which reads the host", name, s.Sel.Name)
			}
			if x, ok := s.X.(*ast.Ident); ok && x.Name == "os" && !allowed[s.Sel.Name] {
				t.Errorf("%s uses os.%s", name, s.Sel.Name)
			}
			return true
		})
	}
}
