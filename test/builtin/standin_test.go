package builtin

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/assembly"
	"github.com/carrel-dev/carrel/internal/config"
	"github.com/carrel-dev/carrel/internal/image/hostbase"
	"github.com/carrel-dev/carrel/internal/image/store"
	"github.com/carrel-dev/carrel/test/aptmirror"
	"github.com/carrel-dev/carrel/test/miniroot"
)

// smallHost is a machine with a few programs, from which the template host is quickly made.
func smallHost(t *testing.T) hostbase.Options {
	t.Helper()
	root := t.TempDir()
	script := `tar -xf "$1" && mkdir -p usr/lib && mv bin/* usr/bin/ && rmdir bin && ln -s usr/bin bin
		for d in lib lib64; do [ ! -d $d ] || { mkdir -p usr/$d; mv $d/* usr/$d/; rmdir $d; }
			[ ! -d usr/$d ] || ln -s usr/$d $d; done; echo host >usr/lib/is-host`
	cmd := exec.Command("sh", "-c", script, "sh", miniroot.Archive(t))
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return hostbase.Options{Root: root}
}

// openTiny opens a service with a small host, whose base is made of one small package.
func openTiny(t *testing.T, m *aptmirror.Tiny, host hostbase.Options, tier carrel.Tier, cache string,
	change func(*config.Config)) *assembly.Assembly {
	t.Helper()
	cfg := config.Default()
	cfg.DataDir, cfg.CacheDir, cfg.DefaultTier, cfg.DebianMirror = "", cache, tier, m.URL
	change(&cfg)
	a, err := assembly.Open(t.Context(), assembly.Options{Config: cfg, Nobody: carrel.Local(),
		Sources: assembly.Sources{Host: host, Packages: m.Set}})
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

// create makes a sandbox of a template, and checks on which one it lies.
func create(t *testing.T, a *assembly.Assembly, template, wantID string) carrel.ID {
	t.Helper()
	sb, err := a.Access.Create(t.Context(), carrel.CreateOptions{Template: template})
	if err != nil {
		t.Fatal(err)
	}
	if sb.Template != wantID || sb.Alias != template {
		t.Errorf("a sandbox of %s lies on %s (%s)", template, sb.Template, sb.Alias)
	}
	return sb.ID
}

// is checks what a sandbox is made of: host, tiny.
func is(t *testing.T, a *assembly.Assembly, id carrel.ID, want string) {
	t.Helper()
	const line = "cat /usr/lib/is-host " + aptmirror.TinyMark + " 2>/dev/null; true"
	if got := run(t, a.Access, id, "", line); got != want {
		t.Errorf("it is %q, want %q", got, want)
	}
}

// isBase checks base as the API shows it, and returns its digest.
func isBase(t *testing.T, a *assembly.Assembly, standIn string) string {
	t.Helper()
	tm, err := a.Access.GetTemplate(t.Context(), "base")
	if err != nil || tm.ID != store.BaseID || tm.Name != "base" || tm.StandIn != standIn ||
		(tm.Digest == "") != (standIn != "") {
		t.Errorf("base is %+v, %v", tm, err)
	}
	rows := a.Examine(t.Context())
	last := rows[len(rows)-1]
	if says := last.Findings[0].What + last.Findings[0].Why; last.Driver != "base" || last.Err != nil ||
		strings.Contains(says, "host") != (standIn != "") || !strings.Contains(says, tm.Digest) {
		t.Errorf("the doctor says %+v", last)
	}
	return tm.Digest
}

// TestStandIn makes sandboxes of base before and after base is made. The earlier ones, a paused one
// among them, stay on the image that they were made of.
func TestStandIn(t *testing.T) {
	m, host := aptmirror.ServeTiny(t), smallHost(t)
	var digests []string
	for _, tier := range []carrel.Tier{carrel.GVisor, carrel.NS} {
		t.Run(string(tier), func(t *testing.T) {
			cache, asked := t.TempDir(), m.Asked()
			a := openTiny(t, m, host, tier, cache, func(*config.Config) {})
			running, paused := create(t, a, "base", store.HostID), create(t, a, "base", store.HostID)
			is(t, a, running, "host")
			run(t, a.Access, paused, "", "echo kept >word")
			if _, err := a.Access.Pause(t.Context(), paused, carrel.PauseOptions{}); err != nil {
				t.Fatal(err)
			}
			isBase(t, a, "host")
			if n := m.Asked(); n != asked {
				t.Errorf("the use of base asked the mirror %d times", n-asked)
			}
			member := carrel.WithCaller(t.Context(), carrel.Caller{Key: "k", Project: "p",
				Role: carrel.RoleMember})
			if _, err := a.Access.PullTemplate(member, "base", "",
				nil); carrel.KindOf(err) != carrel.Forbidden || m.Asked() != asked {
				t.Errorf("a member makes base: %v", err)
			}

			made, err := a.Access.PullTemplate(t.Context(), "base", "", nil)
			if err != nil || made.ID != store.BaseID || made.StandIn != "" {
				t.Fatalf("%+v, %v", made, err)
			}
			digests = append(digests, isBase(t, a, ""))
			is(t, a, create(t, a, "base", store.BaseID), "tiny")
			is(t, a, create(t, a, "host", store.HostID), "host")
			is(t, a, running, "host")
			sb, _, err := a.Access.Resume(t.Context(), paused, carrel.ResumeOptions{})
			if err != nil || sb.Template != store.HostID {
				t.Fatalf("resume: %+v, %v", sb, err)
			}
			is(t, a, paused, "host")
			if got := run(t, a.Access, paused, "", "cat word"); got != "kept" {
				t.Errorf("its file holds %q", got)
			}

			later := openTiny(t, m, host, tier, cache, func(c *config.Config) { c.DebianMirror = nowhere })
			isBase(t, later, "")
			is(t, later, create(t, later, "base", store.BaseID), "tiny")
			always := openTiny(t, m, host, tier, cache,
				func(c *config.Config) { c.Base = config.BaseHost })
			isBase(t, always, "host")
			if _, err := always.Access.PullTemplate(t.Context(), "base", "",
				nil); carrel.KindOf(err) != carrel.Unsupported {
				t.Errorf("make base where host always is: %v", err)
			}
		})
	}
	if len(digests) == 2 && digests[0] != digests[1] {
		t.Errorf("two makings gave two images: %v", digests)
	}
}

// TestBaseDebian demands base before anything is served.
func TestBaseDebian(t *testing.T) {
	m, host, cache := aptmirror.ServeTiny(t), smallHost(t), t.TempDir()
	demand := func(mirror string) func(*config.Config) {
		return func(c *config.Config) { c.Base, c.DebianMirror = config.BaseDebian, mirror }
	}
	a := openTiny(t, m, host, carrel.NS, t.TempDir(), demand(nowhere))
	if err := a.PrepareBase(t.Context()); carrel.KindOf(err) != carrel.Unavailable ||
		!strings.Contains(carrel.HintOf(err), "--base auto") {
		t.Errorf("the mirror is away: %v, hint %q", err, carrel.HintOf(err))
	}
	for _, mirror := range []string{m.URL, nowhere} { // the second one needs none
		a = openTiny(t, m, host, carrel.NS, cache, demand(mirror))
		if err := a.PrepareBase(t.Context()); err != nil {
			t.Fatal(err)
		}
		isBase(t, a, "")
	}
	if left, err := filepath.Glob(filepath.Join(cache, "template-base-*", "part*")); err != nil ||
		len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
	if _, err := os.Stat(filepath.Join(cache, "debs")); err != nil {
		t.Error(err)
	}
}
