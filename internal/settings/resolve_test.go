package settings_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/settings"
)

// place is a home with a project in it.
type place struct {
	t         testing.TB
	home, dir string
}

func newPlace(t testing.TB) place {
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	p := place{t, root + "/home/ann", root + "/home/ann/project"}
	if err := os.MkdirAll(p.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return p
}

// file makes a file below the home.
func (p place) file(name, text string) string {
	p.t.Helper()
	full := filepath.Join(p.home, name)
	if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
		p.t.Fatal(err)
	}
	if err := os.WriteFile(full, []byte(text), 0o644); err != nil {
		p.t.Fatal(err)
	}
	return full
}

func (p place) request() settings.Request {
	// The home is in /tmp, which is the box's own, so reading must be opened by name.
	return settings.Request{Dir: p.dir, Home: p.home, UID: os.Getuid(), Env: []string{"PATH=/bin", "HOME=" + p.home},
		Flags: settings.Settings{Read: settings.PathRules{Allow: []string{p.home}}}}
}

func (p place) resolve(change ...func(*settings.Request)) *settings.Box {
	p.t.Helper()
	r := p.request()
	for _, c := range change {
		c(&r)
	}
	b, err := settings.Resolve(r)
	if err != nil {
		p.t.Fatal(err)
	}
	return b
}

// link makes a symbolic link below the home.
func (p place) link(to, name string) {
	p.t.Helper()
	full := filepath.Join(p.home, name)
	if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
		p.t.Fatal(err)
	}
	if err := os.Symlink(to, full); err != nil {
		p.t.Fatal(err)
	}
}

// fails resolves, and returns the text of the expected error with its hint.
func (p place) fails(change ...func(*settings.Request)) string {
	p.t.Helper()
	r := p.request()
	for _, c := range change {
		c(&r)
	}
	b, err := settings.Resolve(r)
	if err == nil {
		p.t.Fatalf("no error: %+v", b)
	}
	var e *carrel.Error
	if !errors.As(err, &e) || e.Kind != carrel.Invalid || e.Field == "" {
		p.t.Fatalf("%#v is no Invalid with a field", err)
	}
	return err.Error() + " / " + e.Hint
}

// want checks the box's decisions about paths below the home, or absolute ones.
func (p place) want(b *settings.Box, want map[string]settings.Access) {
	p.t.Helper()
	for path, access := range want {
		full := path
		if !strings.HasPrefix(path, "/") {
			full = filepath.Join(p.home, path)
		}
		if got, r := b.Access(full); got != access {
			p.t.Errorf("%s is %s by %q of %s, want %s", path, got, r.Rule, r.Source, access)
		}
	}
}

// noted checks that a note contains a text.
func noted(t testing.TB, b *settings.Box, text string) {
	t.Helper()
	if !slices.ContainsFunc(b.Notes, func(n string) bool { return strings.Contains(n, text) }) {
		t.Errorf("no note has %q in it: %q", text, b.Notes)
	}
}

func flags(s settings.Settings) func(*settings.Request) {
	return func(r *settings.Request) {
		s.Read.Allow = append(s.Read.Allow, r.Home)
		r.Flags = s
	}
}

const (
	denied   = settings.Denied
	readable = settings.Readable
	writable = settings.Writable
)

func BenchmarkResolve(b *testing.B) {
	p := newPlace(b)
	p.file("project/main.go", "x")
	r := p.request()
	for b.Loop() {
		if _, err := settings.Resolve(r); err != nil {
			b.Fatal(err)
		}
	}
}
