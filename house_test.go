package carrel_test

import (
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// sources are the Go and assembly files that git tracks, or will.
func sources(t *testing.T) map[string]string {
	t.Helper()
	out, err := exec.Command("git", "ls-files", "-co", "--exclude-standard", "*.go", "*.s").Output()
	if err != nil {
		t.Fatalf("git ls-files: %v", err)
	}
	files := map[string]string{}
	for name := range strings.Lines(string(out)) {
		name = strings.TrimSpace(name)
		b, err := os.ReadFile(name)
		if os.IsNotExist(err) {
			continue // deleted, and git has not been told
		}
		if err != nil {
			t.Fatal(err)
		}
		files[name] = string(b)
	}
	if len(files) < 100 {
		t.Fatalf("%d files: this is not the tree", len(files))
	}
	return files
}

// lineOf is the number of the line at an offset.
func lineOf(text string, at int) int { return 1 + strings.Count(text[:at], "\n") }

var (
	linkname     = regexp.MustCompile(`(?m)^\s*//go:linkname (\w+) (\S+)`)
	listedName   = regexp.MustCompile("(?m)^\\| `([^`]+)` \\|")
	bareSkip     = regexp.MustCompile(`\b\w+\.Skip(f|Now)?\(`)
	readError    = regexp.MustCompile(`strings\.(Contains|HasPrefix|HasSuffix|Index|EqualFold|Cut)\w*\(\w+\.Error\(\)|MatchString\(\w+\.Error\(\)|\.Error\(\) [!=]= "[^"]|switch \w+\.Error\(\)`)
	linknameHead = "## Names of gVisor's and Go's that are no API"
)

// TestLinknamesAreListed: each name that this code takes from inside another module or Go's runtime is in the list that says what breaks
// without it, and the list has no others.
func TestLinknamesAreListed(t *testing.T) {
	b, err := os.ReadFile("docs/RATIONALE.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, ok := strings.Cut(string(b), linknameHead+"\n")
	if !ok {
		t.Fatalf("docs/RATIONALE.md has no heading %q", linknameHead)
	}
	section, _, _ = strings.Cut(section, "\n## ")
	listed := map[string]bool{}
	for _, m := range listedName.FindAllStringSubmatch(section, -1) {
		listed[m[1]] = false
	}
	for name, text := range sources(t) {
		for _, m := range linkname.FindAllStringSubmatch(text, -1) {
			if _, ok := listed[m[2]]; !ok {
				t.Errorf("%s takes %s: say in docs/RATIONALE.md (%s) what breaks when it is gone", name, m[2], linknameHead)
			}
			listed[m[2]] = true
		}
	}
	for name, used := range listed {
		if !used {
			t.Errorf("docs/RATIONALE.md lists %s, which nobody takes any more", name)
		}
	}
}

// readsText are the files that branch on the text of an error, because who made it gives no type. Each says so where it does.
var readsText = []string{
	"internal/driver/gvisor/call.go",      // a sentry's answer is a text
	"internal/api/strict.go",              // encoding/json has no type for an unknown field
	"internal/image/registry/registry.go", // the registry library has none for two failures
	"internal/state/statetest/snapshots.go",
}

// TestErrorsAreNotRead: code branches on an error's kind or type, never on its text. The shell's house prints what programs print,
// and stands aside.
func TestErrorsAreNotRead(t *testing.T) {
	found := map[string]bool{}
	for name, text := range sources(t) {
		if strings.HasSuffix(name, "_test.go") || within(name, "shell") || within(name, "bench") || strings.Contains(name, "testdata/") {
			continue
		}
		for _, at := range readError.FindAllStringIndex(text, -1) {
			found[name] = true
			if !slices.Contains(readsText, name) {
				t.Errorf("%s:%d branches on the text of an error: %s", name, lineOf(text, at[0]), text[at[0]:at[1]])
			}
		}
	}
	for _, name := range readsText {
		if !found[name] {
			t.Errorf("%s does not read errors any more: take it off the list", name)
		}
	}
}

// TestSkipsAreNamed: a test is skipped by package testenv, which says why in one of three ways, so that CI can forbid what is
// missing there.
func TestSkipsAreNamed(t *testing.T) {
	for name, text := range sources(t) {
		if within(name, "internal/testenv") || name == "house_test.go" || !strings.Contains(text, `"testing"`) {
			continue
		}
		for _, at := range bareSkip.FindAllStringIndex(text, -1) {
			t.Errorf("%s:%d: %s…): use testenv.Need, testenv.Long or testenv.Inapplicable", name, lineOf(text, at[0]), text[at[0]:at[1]])
		}
	}
}
