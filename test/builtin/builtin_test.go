// Package builtin makes built-in templates of real Debian packages in real sandboxes.
package builtin

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/client"
	"github.com/carrel-dev/carrel/internal/assembly"
	"github.com/carrel-dev/carrel/internal/config"
	"github.com/carrel-dev/carrel/internal/reexec"
	"github.com/carrel-dev/carrel/internal/testenv"
	"github.com/carrel-dev/carrel/test/aptmirror"
	"github.com/carrel-dev/carrel/test/daemontest"
)

func TestMain(m *testing.M) {
	if reexec.Run(assembly.Parts()) {
		return
	}
	os.Exit(m.Run())
}

// open opens a service of its own, with no template made yet.
func open(t *testing.T, tier carrel.Tier, change func(*config.Config)) *assembly.Assembly {
	t.Helper()
	cfg := config.Default()
	cfg.DataDir, cfg.CacheDir, cfg.DefaultTier = "", t.TempDir(), tier
	change(&cfg)
	a, err := assembly.Open(t.Context(), assembly.Options{Config: cfg, Nobody: carrel.Local()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	})
	return a
}

// nowhere is a mirror at a port that nobody listens on.
const nowhere = "http://127.0.0.1:1/debian"

// TestMirrorAway asks for templates that can't be made.
func TestMirrorAway(t *testing.T) {
	for _, c := range []struct {
		name, hint string
		change     func(*config.Config)
	}{
		{"the mirror is away", "--debian-mirror", func(c *config.Config) { c.DebianMirror = nowhere }},
		{"not at first use", "carrel template get python",
			func(c *config.Config) { c.DebianMirror, c.NoFirstUse = nowhere, true }},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := open(t, carrel.Sim, c.change)
			_, err := a.Access.Create(t.Context(), carrel.CreateOptions{Template: "python",
				Tier: carrel.Sim})
			if carrel.KindOf(err) != carrel.Unavailable || !strings.Contains(carrel.HintOf(err), c.hint) {
				t.Errorf("%v, hint %q", err, carrel.HintOf(err))
			}
			if _, err := a.Access.PullTemplate(t.Context(), "cobol", "",
				nil); carrel.KindOf(err) != carrel.NotFound {
				t.Errorf("another name: %v", err)
			}
		})
	}
}

// run runs a line in a sandbox and returns its output.
func run(t *testing.T, svc carrel.Service, id carrel.ID, user, line string) string {
	t.Helper()
	c, err := svc.Computer(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	res, err := c.Run(t.Context(), carrel.Command{Shell: line, User: user})
	if err != nil {
		t.Fatalf("%s: %v", line, err)
	}
	if res.ExitCode != 0 {
		t.Errorf("%s: %s\n%s", line, res.Status, res.Stderr)
	}
	return strings.TrimSpace(string(res.Stdout))
}

// TestPython makes the template python in two tiers, with nothing shared between them. Both are the
// same image, and it is a whole Debian.
func TestPython(t *testing.T) {
	testenv.Long(t, "makes a template of 160 packages twice")
	mirror := aptmirror.Serve(t, "python")
	var digests []string
	for _, tier := range []carrel.Tier{carrel.GVisor, carrel.NS} {
		a := open(t, tier, func(c *config.Config) { c.DebianMirror = mirror })
		var stages []string
		tm, err := a.Access.PullTemplate(t.Context(), "python", "", func(p carrel.Progress) {
			if len(stages) == 0 || stages[len(stages)-1] != p.Stage {
				stages = append(stages, p.Stage)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: %d MB, %s, stages %v", tier, tm.Size>>20, tm.Digest, stages)
		digests = append(digests, tm.Digest)
		page, err := a.Service.List(t.Context(), carrel.ListOptions{})
		if err != nil || len(page.Sandboxes) != 0 {
			t.Errorf("sandboxes are left: %v %v", page.Sandboxes, err)
		}
		sb, err := a.Access.Create(t.Context(), carrel.CreateOptions{Template: "python", Tier: tier})
		if err != nil {
			t.Fatal(err)
		}
		for line, want := range map[string]string{
			"id":                                 "uid=1000(user) gid=1000(user) groups=1000(user),27(sudo)",
			"pwd":                                "/home/user",
			"sudo id -u":                         "0",
			"dpkg --audit":                       "",
			"sudo apt-get check -qq":             "",
			"dpkg-query -S /usr/bin/python3":     "python3-minimal: /usr/bin/python3",
			"python -c 'import ssl; print(6*7)'": "42",
			"python3 -m venv v && v/bin/pip list --format=freeze 2>/dev/null | cut -d= -f1": "pip",
			"git init -q r && cd r && git status --porcelain":                               "",
			"find / -xdev -name '*.dpkg-new' 2>/dev/null; true":                             "",
			"cat /etc/machine-id":               "",
			"jq -n '1+1'; awk 'BEGIN{print 3}'": "2\n3",
			// The C library's own program reads the archive of languages.
			"localedef --list-archive":                              "C.utf8",
			"ls /var/log/dpkg.log /etc/passwd- 2>/dev/null | wc -l": "0",
		} {
			if got := run(t, a.Access, sb.ID, "", line); got != want {
				t.Errorf("%s: %s: %q, want %q", tier, line, got, want)
			}
		}
	}
	if digests[0] != digests[1] {
		t.Errorf("two makings gave two images: %v", digests)
	}
}

// TestBase makes the template base in two tiers, with nothing shared between them. Both are the same
// image, with everything that it promises.
func TestBase(t *testing.T) {
	testenv.Long(t, "makes a template of 610 packages twice")
	mirror := aptmirror.Serve(t, "base")
	var digests []string
	for _, tier := range []carrel.Tier{carrel.GVisor, carrel.NS} {
		a := open(t, tier, func(c *config.Config) { c.DebianMirror, c.Base = mirror, config.BaseDebian })
		if err := a.PrepareBase(t.Context()); err != nil {
			t.Fatal(err)
		}
		tm, err := a.Access.GetTemplate(t.Context(), "base")
		if err != nil || tm.StandIn != "" {
			t.Fatalf("%+v, %v", tm, err)
		}
		t.Logf("%s: %d MB, %s", tier, tm.Size>>20, tm.Digest)
		digests = append(digests, tm.Digest)
		sb, err := a.Access.Create(t.Context(), carrel.CreateOptions{}) // the default
		if err != nil {
			t.Fatal(err)
		}
		for line, want := range map[string]string{
			"id":                     "uid=1000(user) gid=1000(user) groups=1000(user),27(sudo)",
			"pwd":                    "/home/user",
			"sudo id -u":             "0",
			"dpkg --audit":           "",
			"sudo apt-get check -qq": "",
			"python3 -m venv v && v/bin/python -c 'import ssl; print(6*7)'":                         "42",
			"pip list >/dev/null 2>&1 && ls /usr/lib/python3*/EXTERNALLY-MANAGED 2>/dev/null; true": "",
			"npm --version >/dev/null && node -e 'console.log(6*7)'":                                "42",
			"git init -q r && cd r && git status --porcelain":                                       "",
			"echo '#include <Python.h>\nint main() { return 42; }' >a.c && " +
				"gcc $(python3-config --includes) a.c -o a && ./a || echo $?": "42",
			"curl --version >/dev/null && jq -n 6*7": "42",
			"sqlite3 :memory: 'select 6*7'":          "42",
			"for p in rg socat ssh rsync zip make lsof ip nano tree zstd; do command -v $p >/dev/null || echo $p; done": "",
		} {
			if got := run(t, a.Access, sb.ID, "", line); got != want {
				t.Errorf("%s: %s: %q, want %q", tier, line, got, want)
			}
		}
	}
	if digests[0] != digests[1] {
		t.Errorf("two makings gave two images: %v", digests)
	}
}

// TestJava makes the template java. Java's own programs read the key store that was written anew.
func TestJava(t *testing.T) {
	testenv.Long(t, "makes a template of 190 packages")
	mirror := aptmirror.Serve(t, "java")
	a := open(t, carrel.GVisor, func(c *config.Config) { c.DebianMirror = mirror })
	sb, err := a.Access.Create(t.Context(), carrel.CreateOptions{Template: "java"}) // its first use
	if err != nil {
		t.Fatal(err)
	}
	if got := run(t, a.Access, sb.ID, "",
		"keytool -list -cacerts -storepass changeit 2>/dev/null | grep -c trustedCertEntry"); len(
		got) < 2 {
		t.Errorf("%q certificates", got)
	}
	if got := run(t, a.Access, sb.ID, "",
		"keytool -list -cacerts -storepass changeit 2>/dev/null | grep -o ', 20[0-9][0-9],' | sort -u | wc -l"); got != "1" {
		t.Errorf("certificates of %s years", got)
	}
}

// TestLanguages makes the other templates, each at its first use, and runs a program in them.
func TestLanguages(t *testing.T) {
	testenv.Long(t, "makes templates of 200 and 500 packages")
	for name, line := range map[string]string{
		"go":   "printf 'package main\nfunc main() { println(6*7) }' >a.go && go run a.go 2>&1",
		"rust": "echo 'fn main() { println!(\"{}\", 6*7) }' >a.rs && rustc a.rs && ./a && cargo --version >/dev/null",
		"node": "npm --version >/dev/null && node -e 'console.log(6*7)'",
	} {
		t.Run(name, func(t *testing.T) {
			mirror := aptmirror.Serve(t, name)
			a := open(t, carrel.NS, func(c *config.Config) { c.DebianMirror = mirror })
			sb, err := a.Access.Create(t.Context(), carrel.CreateOptions{Template: name})
			if err != nil {
				t.Fatal(err)
			}
			if got := run(t, a.Access, sb.ID, "", line); got != "42" {
				t.Errorf("%q", got)
			}
		})
	}
}

// TestKilledMaking kills the daemon while a template's packages are configured. The next daemon
// ends the sandbox, and nothing else of the making is left. Then the template can be made.
func TestKilledMaking(t *testing.T) {
	testenv.Long(t, "makes a template of 100 packages twice")
	mirror, cache := aptmirror.Serve(t, "debian"), t.TempDir()
	d := daemontest.Start(t, "--debian-mirror", mirror, "--cache-dir", cache)
	get := d.CLI("template", "get", "debian")
	if err := get.Start(); err != nil {
		t.Fatal(err)
	}
	svc := connect(t, d)
	daemontest.Eventually(t, 4*time.Minute, "the sandbox of the making", func() bool {
		page, err := svc.List(t.Context(), carrel.ListOptions{})
		return err == nil && len(page.Sandboxes) == 1
	})
	d.Kill9()
	_ = get.Wait() // it lost its daemon
	d.Restart()
	svc = connect(t, d)
	if page, err := svc.List(t.Context(), carrel.ListOptions{}); err != nil ||
		len(page.Sandboxes) != 0 {
		t.Errorf("sandboxes after the restart: %+v %v", page.Sandboxes, err)
	}
	if left, err := filepath.Glob(filepath.Join(cache, "template-*")); err != nil || len(left) > 0 {
		t.Errorf("left of the making: %v %v", left, err)
	}
	if left, err := os.ReadDir(filepath.Join(d.Dir, "sandboxes")); err == nil {
		for _, e := range left {
			if e.Name() != ".roots" {
				t.Errorf("left of its sandbox: %s", e.Name())
			}
		}
	}
	out, err := d.CLI("template", "get", "debian").CombinedOutput()
	if err != nil || !strings.HasPrefix(string(out), "debian sha256:") {
		t.Errorf("%s %v", out, err)
	}
	if out, err := d.CLI("template", "ls").CombinedOutput(); err != nil ||
		!strings.Contains(string(out), "carreldebian00000000") {
		t.Errorf("%s %v", out, err)
	}
}

func connect(t *testing.T, d *daemontest.Daemon) carrel.Service {
	t.Helper()
	svc, err := client.New(d.URL, d.Key)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = svc.Close() })
	return svc
}
