package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// world makes a module that imports another one with a licence file, and changes to its directory.
func world(t *testing.T, licence string) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":         "module example.com/program\n\ngo 1.26\n\nrequire example.com/dep v1.0.0\n\nreplace example.com/dep => ./dep\n",
		"main.go":        "package main\n\nimport _ \"example.com/dep/inner\"\n\nfunc main() {}\n",
		"dep/go.mod":     "module example.com/dep\n\ngo 1.26\n",
		"dep/LICENSE":    licence,
		"dep/NOTICE":     "Made by somebody.\n",
		"dep/inner/x.go": "// Package inner is imported.\npackage inner\n",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
}

// licenceText returns the text of a licence from Go's own distribution.
func licenceText(t *testing.T) string {
	t.Helper()
	_, root := standardLibrary()
	b, err := os.ReadFile(filepath.Join(root, "LICENSE"))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestGather(t *testing.T) {
	world(t, licenceText(t))
	if err := run("out", nil, []string{"."}); err != nil {
		t.Fatal(err)
	}
	long := time.Unix(1e9, 0)
	if err := os.Chtimes("out", long, long); err != nil {
		t.Fatal(err)
	}
	if err := run("out", nil, []string{"."}); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat("out"); err != nil || !info.ModTime().Equal(long) {
		t.Error("the same notices were written again", err)
	}
	all, err := modules([]string{"."})
	if err != nil || len(all) != 2 {
		t.Fatalf("%v %v", all, err)
	}
	for _, n := range all {
		if len(n.Licenses) != 1 || n.Licenses[0] != "BSD-3-Clause" || len(n.Texts) < 2 {
			t.Errorf("%s %s: %v, %d texts", n.Name, n.Version, n.Licenses, len(n.Texts))
		}
	}
}

func TestRefused(t *testing.T) {
	for name, c := range map[string]struct{ licence, want string }{
		"no known licence": {"You may look at this.\n", "example.com/dep v1.0.0: no known licence"},
		"none at all":      {"", "example.com/dep v1.0.0: no known licence"},
	} {
		t.Run(name, func(t *testing.T) {
			world(t, c.licence)
			err := run("out", nil, []string{"."})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
			if _, err := os.Stat("out"); err == nil {
				t.Error("notices were written all the same")
			}
		})
	}
	t.Run("outside the list", func(t *testing.T) {
		err := refused([]notice{{Name: "x", Version: "v1", Licenses: []string{"MIT", "AGPL-3.0"}}})
		if err == nil || !strings.Contains(err.Error(), "licence AGPL-3.0 is not allowed") || strings.Contains(err.Error(), "MIT") {
			t.Errorf("got %v", err)
		}
	})
}
