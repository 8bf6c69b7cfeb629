package cases

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestRecordings writes outcomes with every kind of odd text and reads them back.
func TestRecordings(t *testing.T) {
	dir := t.TempDir()
	outs := []string{
		"", "\n", "\n\n", "a", "a\n", "a\n\nb\n", "-- a\n", "\n-- a\n", "exit 3\n", "+ f\n", "| a\n", "a \n", "\t\n",
		"\x00\xff\n", "é\n", "a\rb\n", "\\\"\n", "…\u2028\n", "\ufffd\n",
	}
	var all []Case
	written := Recordings{}
	for i, out := range outs {
		c := Case{Area: "odd", Name: strings.Repeat("n", i+1)}
		all = append(all, c)
		written[c.Name] = Outcome{Out: out, Code: i % 3, Files: []string{`f -rw-r--r-- "a\nb"`, "l -> f"}[:i%3]}
	}
	written["gone"] = Outcome{Out: "its case is gone"}
	if err := written.Write(dir, "odd", all); err != nil {
		t.Fatal(err)
	}
	read, err := ReadRecordings(dir, "odd")
	if err != nil {
		t.Fatal(err)
	}
	if len(read) != len(all) {
		t.Errorf("%d recordings of %d cases", len(read), len(all))
	}
	for _, c := range all {
		if diff := Differences(read[c.Name], written[c.Name]); diff != "" {
			t.Errorf("%q: %s", written[c.Name].Out, diff)
		}
	}
	if none, err := ReadRecordings(dir, "new"); err != nil || len(none) != 0 {
		t.Errorf("of an area without recordings: %v, %v", none, err)
	}
}

// TestRecorded shows the parts of an outcome that a recording keeps.
func TestRecorded(t *testing.T) {
	long := strings.Repeat("x", maxRecordedOut+1)
	for name, c := range map[string]struct{ give, want Outcome }{
		"root": {Outcome{Out: "/tmp/r/a/work\n", Files: []string{"l -> /tmp/r/b"}},
			Outcome{Out: Root + "/a/work\n", Files: []string{"l -> " + Root + "/b"}}},
		"order": {Outcome{Files: []string{"b", "a", "b"}}, Outcome{Files: []string{"a", "b"}}},
		"long output": {Outcome{Out: long},
			Outcome{Out: "8193 bytes, SHA-256 e5c8309afda18ec4ec225ada92dab2d5768f7d845d8cebf2b9968392a6bfd6de\n"}},
	} {
		if diff := Differences(c.give.Recorded("/tmp/r"), c.want); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	file := Outcome{Files: []string{Describe(`a "b`, 0o644, long)}}.Recorded("/tmp/r").Files[0]
	if !strings.HasPrefix(file, `"a \"b" -rw-r--r-- 8195 bytes, SHA-256 `) {
		t.Errorf("a long file: %s", file)
	}
}

// TestDifferences shows that each part of an outcome counts, except for messages.
func TestDifferences(t *testing.T) {
	same := Outcome{Out: "a", Code: 1, Files: []string{"f"}, Errs: "x"}
	for name, other := range map[string]Outcome{
		"output": {Out: "b", Code: 1, Files: []string{"f"}},
		"status": {Out: "a", Code: 2, Files: []string{"f"}},
		"files":  {Out: "a", Code: 1},
	} {
		if diff := Differences(other, same); !strings.HasPrefix(diff, name+":") {
			t.Errorf("%s: %q", name, diff)
		}
	}
	if diff := Differences(Outcome{Out: "a", Code: 1, Files: []string{"f"}, Errs: "y"}, same); diff != "" {
		t.Error(diff)
	}
}

// TestReadRefuses gives the readers files that they must refuse.
func TestReadRefuses(t *testing.T) {
	all := []Case{{Area: "a", Name: "one"}}
	for name, c := range map[string]struct {
		file, text string
		read       func(dir string) error
	}{
		"no cases":     {"x.txt", "", func(dir string) error { _, err := ReadAll(dir); return err }},
		"no name":      {"a.cases", "-- \ntrue\n", func(dir string) error { _, err := ReadAll(dir); return err }},
		"twice":        {"a.cases", "-- one\n:\n-- one\n:\n", func(dir string) error { _, err := ReadAll(dir); return err }},
		"odd line":     {"a.want", "-- one\nodd\n", func(dir string) error { _, err := ReadRecordings(dir, "a"); return err }},
		"bad quotes":   {"a.want", "-- one\n= \"x\n", func(dir string) error { _, err := ReadRecordings(dir, "a"); return err }},
		"no reason":    {"k", "a/one\n", func(dir string) error { _, err := ReadExceptions(filepath.Join(dir, "k"), all); return err }},
		"no such case": {"k", "a/two: why\n", func(dir string) error { _, err := ReadExceptions(filepath.Join(dir, "k"), all); return err }},
		"no list":      {"other", "", func(dir string) error { _, err := ReadExceptions(filepath.Join(dir, "k"), all); return err }},
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, c.file), []byte(c.text), 0o644); err != nil {
			t.Fatal(err)
		}
		if c.read(dir) == nil {
			t.Errorf("%s: %q is taken", name, c.text)
		}
	}
}
