package debian_test

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/carrel-dev/carrel/internal/image/debian"
)

// TestPinned reads every file of pins.
func TestPinned(t *testing.T) {
	files, err := filepath.Glob("pins/*.pins")
	if err != nil || len(files) == 0 {
		t.Fatalf("%v %v", files, err)
	}
	for _, name := range files {
		raw, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		s, err := debian.ParseSet(raw)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if !bytes.Equal(s.Format(), raw) {
			t.Errorf("%s: Format gives another text", name)
		}
		if arch := strings.TrimSuffix(filepath.Base(name), ".pins"); s.Arch != arch {
			t.Errorf("%s is for %s", name, s.Arch)
		}
		var names []string
		for _, c := range s.Templates {
			names = append(names, c.Name)
			for _, need := range []string{"dpkg", "bash", "sudo", "passwd", "ca-certificates", "tar"} {
				if !slices.Contains(c.Packages, need) {
					t.Errorf("%s: template %s lacks %s", name, c.Name, need)
				}
			}
		}
		want := []string{"base", "debian", "python", "node", "go", "rust", "java",
			debian.CodeInterpreter}
		if !slices.Equal(names, want) {
			t.Errorf("%s: templates %v", name, names)
		}
	}
}

func TestBadPins(t *testing.T) {
	const head = "release trixie 13.0 amd64 1760000000\n"
	sum := strings.Repeat("ab", 32)
	for _, c := range []struct{ text, want string }{
		{"", "no release"},
		{head + "template x missing\n", "missing is not pinned"},
		{head + "package a 1 all debian pool/a.deb 5 zz\n", "SHA-256"},
		{head + "package a 1 all debian ../../a.deb 5 " + sum + "\n", "path"},
		{head + "package a 1 all debian /a.deb 5 " + sum + "\n", "path"},
		{head + "package a 1 all other pool/a.deb 5 " + sum + "\n", "archive"},
		{head + "package a/b 1 all debian pool/a.deb 5 " + sum + "\n", "name"},
		{head + "package a 1 all debian pool/a.deb -5 " + sum + "\n", "size"},
		{head + "package b 1 all debian pool/b.deb 5 " + sum + "\npackage a 1 all debian pool/a.deb 5 " +
			sum + "\n", "sorted"},
		{head + "what is this\n", "not understood"},
	} {
		if _, err := debian.ParseSet([]byte(c.text)); err == nil ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v", c.text, err)
		}
	}
}

func TestMirror(t *testing.T) {
	for _, c := range []struct{ address, main string }{
		{"http://mirror.example.com/debian/", "http://mirror.example.com/debian"},
		{"https://example.com/x/debian", "https://example.com/x/debian"},
		{"ftp://example.com/debian", ""}, {"/srv/debian", ""}, {"http://", ""},
		{"http://example.com/debian?x", ""}, {"http://a b", ""},
	} {
		m, err := debian.ParseMirror(c.address)
		if m.Main != c.main || (err == nil) != (c.main != "") || err == nil &&
			m.Security != c.main+"-security" {
			t.Errorf("%s: %+v %v", c.address, m, err)
		}
	}
}

// TestHostMirror reads both forms of apt's lists.
func TestHostMirror(t *testing.T) {
	for _, c := range []struct {
		name           string
		files          map[string]string
		main, security string
	}{
		{"lines", map[string]string{"sources.list": "# deb http://old.example.com/debian trixie main\n" +
			"deb-src http://src.example.com/debian trixie main\ndeb [arch=amd64 trusted=no] http://m.example.com/debian/ trixie main contrib\n" +
			"deb http://s.example.com/debian-security trixie-security main\n"},
			"http://m.example.com/debian", "http://s.example.com/debian-security"},
		{"paragraphs",
			map[string]string{"sources.list.d/debian.sources": "Types: deb deb-src\nURIs: http://m.example.com/debian\nSuites: trixie\nComponents: main\n\n" +
				"Types: deb\nURIs: http://off.example.com/debian\nComponents: main\nEnabled: no\n"},
			"http://m.example.com/debian", "http://m.example.com/debian-security"},
		{"another distribution",
			map[string]string{"sources.list": "deb http://m.example.com/ubuntu noble main\n"}, "", ""},
		{"other components",
			map[string]string{"sources.list": "deb http://m.example.com/debian trixie contrib\n"}, "", ""},
		{"nothing", nil, "", ""},
	} {
		root := t.TempDir()
		for name, text := range c.files {
			name = filepath.Join(root, "etc/apt", name)
			if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		m, err := debian.HostMirror(root)
		if (err == nil) != (c.main != "") || err == nil &&
			(m.Main != c.main || m.Security != c.security) {
			t.Errorf("%s: %+v %v", c.name, m, err)
		}
	}
}
