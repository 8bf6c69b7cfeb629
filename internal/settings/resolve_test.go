package settings_test

import (
	"os"
	"path/filepath"
	"testing"

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
	return settings.Request{Dir: p.dir, Home: p.home, UID: os.Getuid(), Env: []string{"PATH=/bin", "HOME=" + p.home}}
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

func TestSmoke(t *testing.T) {
	p := newPlace(t)
	p.file(".ssh/id", "x")
	p.file("project/.env", "x")
	p.file("project/.git/config", "x")
	p.file("project/.git/hooks/pre-commit", "x")
	b := p.resolve()
	for _, r := range b.Paths {
		t.Logf("%+v", r)
	}
	t.Log(b.Notes)
	for path, want := range map[string]settings.Access{
		p.dir: settings.Writable, p.dir + "/.env": settings.Denied, p.dir + "/.git/config": settings.Readable, p.dir + "/sub/.mcp.json": settings.Readable,
		p.dir + "/.git/index": settings.Writable, "/usr/bin": settings.Readable,
	} {
		if got, r := b.Access(path); got != want {
			t.Errorf("%s: %s, want %s (%+v)", path, got, want, r)
		}
	}
}

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
