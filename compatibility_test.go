package carrel_test

import (
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// pin is one client, and the file because of which a test installs it.
type pin struct{ client, file string }

// pins reads the exact version of each client from the files that tests install from.
func pins(t *testing.T) map[pin]string {
	t.Helper()
	all := map[pin]string{}
	requirement := regexp.MustCompile(`(?m)^([\w.-]+)(?:\[[\w,]+\])?==(\S+)$`)
	err := filepath.WalkDir("test", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "node_modules" || d.Name() == ".venv" || d.Name() == "testdata"):
			return filepath.SkipDir
		case d.Name() != "package.json" && d.Name() != "requirements.txt":
			return nil
		}
		raw, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if d.Name() == "requirements.txt" {
			for _, m := range requirement.FindAllStringSubmatch(string(raw), -1) {
				all[pin{m[1], path}] = m[2]
			}
			return nil
		}
		var file struct{ Dependencies map[string]string }
		if err := json.Unmarshal(raw, &file); err != nil {
			return err
		}
		for name, version := range file.Dependencies { // "npm:e2b@2.45.0" is another name for a version
			all[pin{name, path}] = version[strings.LastIndex(version, "@")+1:]
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	mod, err := os.ReadFile("go.mod")
	if err != nil {
		t.Fatal(err)
	}
	const mcp = "github.com/modelcontextprotocol/go-sdk"
	m := regexp.MustCompile(`(?m)^\s*` + regexp.QuoteMeta(mcp) + ` (\S+)`).FindStringSubmatch(string(mod))
	if m == nil {
		t.Fatalf("%s is not in go.mod", mcp)
	}
	all[pin{mcp, "go.mod"}] = m[1]
	return all
}

// TestCompatibility compares docs/compatibility.md with what tests install: each client is there
// with its version, and no other is. The tests that the page names exist.
func TestCompatibility(t *testing.T) {
	page, err := os.ReadFile("docs/compatibility.md")
	if err != nil {
		t.Fatal(err)
	}
	want, seen := pins(t), map[pin]bool{}
	if len(want) < 9 {
		t.Fatalf("only %d clients are found", len(want))
	}
	quoted := regexp.MustCompile("`([^`]+)`")
	for line := range strings.Lines(string(page)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), " | ")
		if len(cells) < 3 || strings.HasPrefix(cells[0], " client") {
			continue
		}
		testsExist(t, cells[len(cells)-1])
		if len(cells) != 4 {
			continue
		}
		names, file := quoted.FindAllStringSubmatch(cells[0], -1), quoted.FindStringSubmatch(cells[2])
		if len(names) != 1 || file == nil {
			t.Errorf("a line names no single client and its file: %s", line)
			continue
		}
		p := pin{names[0][1], file[1]}
		if seen[p] = true; want[p] != strings.TrimSpace(cells[1]) {
			t.Errorf("docs/compatibility.md: %s is %q in %s, not %s", p.client, want[p], p.file, cells[1])
		}
	}
	for p, version := range want {
		if !seen[p] {
			t.Errorf("docs/compatibility.md has no line for %s %s of %s", p.client, version, p.file)
		}
	}
}

// testsExist checks a cell such as "`TestA` `TestB` in `test/x`": each test that it names must
// exist.
func testsExist(t *testing.T, cell string) {
	t.Helper()
	tests, dir, ok := strings.Cut(cell, " in ")
	if !ok {
		return // "the same"
	}
	files, err := filepath.Glob(strings.Trim(strings.TrimSpace(dir), "`") + "/*_test.go")
	if err != nil || len(files) == 0 {
		t.Errorf("there are no tests in %s: %v", dir, err)
		return
	}
	var source strings.Builder
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		source.Write(raw)
	}
	for _, name := range strings.Fields(tests) {
		if name = strings.Trim(name, "`"); !strings.Contains(source.String(), "func "+name+"(") {
			t.Errorf("there is no test %s in %s", name, dir)
		}
	}
}
