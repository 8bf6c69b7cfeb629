package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/carrel-dev/carrel"
)

// TestPolicyLearn writes what was learned, to the terminal and into a new file.
func TestPolicyLearn(t *testing.T) {
	f := &auditFake{log: decisions}
	got := f.run(t, "policy", "learn", string(boxID))
	want := `rules:
  # seen once, by curl
  - allow: [api.example.com]
    ports: ["443"]
    protocol: https
    methods: [POST]
    paths: [/v1/x]
`
	if got.code != 0 || !strings.HasSuffix(got.out, want) {
		t.Errorf("%+v", got)
	}
	if f.asked.ID != boxID || f.asked.Limit != mostLearned {
		t.Errorf("asked for %+v", f.asked)
	}
	if !strings.Contains(got.err, "the log lost decisions") || !strings.Contains(got.err, "--denied") {
		t.Errorf("the notes are %q", got.err)
	}
	if strings.ContainsAny(got.out+got.err, "\x1b\u202e\r") {
		t.Errorf("a terminal's cursor is moved: %q", got.out+got.err)
	}
	file := filepath.Join(t.TempDir(), "policy.yaml")
	for _, code := range []int{0, exitCodes[carrel.Conflict]} { // the second time it is there
		if got := f.run(t, "policy", "learn", "--denied", "--hosts", "-o", file, string(boxID)); got.code != code || got.out != "" {
			t.Errorf("%+v, want %d", got, code)
		}
	}
	text, err := os.ReadFile(file)
	if err != nil || !strings.Contains(string(text), "example.org") || strings.Contains(string(text), "methods") {
		t.Errorf("%s, %v", text, err)
	}
	if got := f.run(t, "policy", "check", file); got.code != 0 {
		t.Errorf("%+v", got)
	}
	if got := f.run(t, "policy", "learn", "--json", string(boxID)); got.code != 0 || !strings.Contains(got.out, `"paths":["/v1/x"]`) &&
		!strings.Contains(got.out, `"/v1/x"`) {
		t.Errorf("%+v", got)
	}
	if got := (&auditFake{}).run(t, "policy", "learn", string(boxID)); got.code != exitCodes[carrel.NotFound] || !strings.Contains(got.err, "hint: ") {
		t.Errorf("%+v", got)
	}
}
