package carrel_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// sources returns the Go and assembly files that git tracks, and new ones that it does not ignore.
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
			continue // deleted, but not yet in git
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
	compileCall  = regexp.MustCompile(`\bpolicy\.Compile\(`)
	linknameHead = "## Names of gVisor's and Go's that are no API"
)

// TestLinknamesAreListed compares the names that this code links to inside other modules or Go's
// runtime with the list that says what breaks without them. Each side must have all names of the
// other.
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

// readsText are the files that branch on an error's text, because the code that makes the error
// gives it no type. Each file says so at that place.
var readsText = []string{
	"internal/driver/gvisor/call.go", // a sentry's answer is a text
	"internal/api/strict.go",         // encoding/json has no type for an unknown field
	"internal/state/statetest/snapshots.go",
}

// compiles are the files that may compile a policy. Each of them owns the policies that it
// compiles, and passes them on unchanged.
var compiles = []string{
	"internal/service/network.go", // a sandbox's policy, given or read from a record
	"internal/run/wired/wired.go", // a box's of "carrel run"
	"internal/cli/policy.go",      // policies that "carrel policy" explains
	"internal/bench/wire.go",      // the bench's own
}

// TestPoliciesAreCompiledOnce shows that rules are compiled only where they enter the program. All
// other code gets the compiled policy, so no two parts can judge by different rules.
func TestPoliciesAreCompiledOnce(t *testing.T) {
	found := map[string]int{}
	for name, text := range sources(t) {
		if strings.HasSuffix(name, "_test.go") || within(name, "internal/policy") {
			continue
		}
		for _, at := range compileCall.FindAllStringIndex(text, -1) {
			found[name]++
			if !slices.Contains(compiles, name) {
				t.Errorf("%s:%d compiles a policy: take a *policy.Policy from who has it", name, lineOf(text, at[0]))
			}
		}
	}
	for _, name := range compiles {
		switch n := found[name]; {
		case n == 0:
			t.Errorf("%s does not compile policies any more: take it off the list", name)
		case n > 1 && within(name, "internal/service"), n > 1 && within(name, "internal/run"):
			t.Errorf("%s compiles policies in %d places", name, n)
		}
	}
}

// TestErrorsAreNotRead shows that code branches on an error's kind or type, never on its text. The
// shell's house is left out: it prints the messages that programs print.
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

// TestSkipsAreNamed shows that tests are skipped only through package testenv. It gives the reason
// in one of three forms, so that CI can forbid skips for missing things.
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

// waiters are test functions with a loop that sleeps and ends by itself, with the reason why they
// do not use testenv.Eventually, EventuallyNil or Within.
var waiters = map[string]string{
	"internal/testenv/wait.go Within":                   "is the one",
	"shell/internal/patience/patience.go Until":         "is the one of the shell's house, which imports nothing of Carrel's",
	"internal/admission/machine_test.go run":            "plays a machine: its time is what is tested",
	"internal/admission/machine_test.go flood":          "sends requests at a rate",
	"internal/audit/follow_test.go TestFollowFromNow":   "writes until the test is over",
	"internal/audit/follow_test.go TestHammer":          "is a slow reader",
	"internal/driver/ns/bench_test.go BenchmarkCreate":  "measures: the steps are short",
	"internal/service/pause_test.go TestAutoPauseHolds": "lets time pass in a bubble",
	"internal/wire/hammer_test.go TestHammerPolicy":     "changes the policy while others use it",
	"internal/wire/world_test.go await":                 "is woken by what comes, and has no steps",
	"test/fulldisk/disk_test.go lowest":                 "watches a disk until the test has done its work",
	"test/crash/usage_test.go killAndMeter":             "lets time pass that is metered",
	"test/crash/crash_test.go load":                     "runs commands until the daemon is killed",
}

// TestWaitsAreOne shows that tests wait with one helper. It has one bound, ends before the test's
// own deadline, and says what it waited for. A loop counts as waiting if it sleeps or yields, and
// also looks at the clock or can be left.
func TestWaitsAreOne(t *testing.T) {
	loops, found := 0, map[string]bool{}
	for name, text := range sources(t) {
		if !strings.HasSuffix(name, ".go") || !strings.HasSuffix(name, "_test.go") && !strings.Contains(text, `"testing"`) {
			continue
		}
		at := token.NewFileSet()
		file, err := parser.ParseFile(at, name, text, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			who := name
			if f, ok := d.(*ast.FuncDecl); ok {
				who += " " + f.Name.Name
			}
			ast.Inspect(d, func(n ast.Node) bool {
				if !isLoop(n) {
					return true
				}
				loops++
				if !waits(n) {
					return true
				}
				found[who] = true
				if waiters[who] == "" {
					t.Errorf("%s waits in a loop of its own at line %d: use testenv.Eventually, EventuallyNil or Within (or say in waiters why not)", who, at.Position(n.Pos()).Line)
				}
				return true
			})
		}
	}
	for who := range waiters {
		if !found[who] {
			t.Errorf("%s has no loop that waits any more: take it off the list", who)
		}
	}
	if loops < 1000 {
		t.Errorf("%d loops: the tests were not found", loops)
	}
}

// TestWaitsAreFound tries the rule on sample loops.
func TestWaitsAreFound(t *testing.T) {
	for loop, want := range map[string]bool{
		`for end := time.Now().Add(x); !ok(); time.Sleep(y) { if time.Now().After(end) { t.Fatal() } }`: true,
		`for time.Now().Before(end) { if ok() { return }; time.Sleep(y) }`:                              true,
		`for range 100 { if ok() { break }; time.Sleep(y) }`:                                            true,
		`for !ok() { time.Sleep(y) }`:                                                                   true,
		`for { if ok() { return }; select { case <-ctx.Done(): case <-time.After(y): } }`:               true,
		`for !ok() { runtime.Gosched() }`:                                                               true,
		`for { if ok() { break }; <-time.Tick(y) }`:                                                     true,
		`for range 10 { time.Sleep(y); check() }`:                                                       false, // lets time pass
		`for range 10 { go func() { time.Sleep(y); return }() }`:                                        false, // each on its own
		`for _, c := range cases { for !ok() { next() }; time.Sleep(y) }`:                               false, // the inner one does not sleep
		`for { if time.Now().After(end) { return } }`:                                                   false,
	} {
		file, err := parser.ParseFile(token.NewFileSet(), "", "package p\nfunc f() { "+loop+" }", 0)
		if err != nil {
			t.Fatal(err)
		}
		if got := waits(file.Decls[0].(*ast.FuncDecl).Body.List[0]); got != want {
			t.Errorf("%s: waits is %v, want %v", loop, got, want)
		}
	}
}

func isLoop(n ast.Node) bool {
	switch n.(type) {
	case *ast.ForStmt, *ast.RangeStmt:
		return true
	}
	return false
}

// waits reports whether a loop sleeps or yields, and also looks at the clock or can be left.
// Statements in an inner loop or function do not count for the outer loop.
func waits(loop ast.Node) bool {
	sleeps, ends := false, false
	if l, ok := loop.(*ast.ForStmt); ok {
		ends = l.Cond != nil
	}
	ast.Inspect(loop, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ForStmt, *ast.RangeStmt, *ast.FuncLit:
			return n == loop
		case *ast.ReturnStmt:
			ends = true
		case *ast.BranchStmt:
			ends = ends || n.Tok == token.BREAK
		case *ast.SelectorExpr:
			if x, ok := n.X.(*ast.Ident); ok {
				call := x.Name + "." + n.Sel.Name
				sleeps = sleeps || slices.Contains([]string{"time.Sleep", "time.After", "time.Tick", "runtime.Gosched"}, call)
				ends = ends || slices.Contains([]string{"time.Now", "time.Until", "time.Since"}, call)
			}
		}
		return true
	})
	return sleeps && ends
}

// TestNothingIsLarge fails if git tracks a file of more than a megabyte: a program that somebody
// built in the checkout, say.
func TestNothingIsLarge(t *testing.T) {
	out, err := exec.Command("git", "ls-files", "-z").Output()
	if err != nil {
		t.Fatalf("git ls-files: %v", err)
	}
	for name := range strings.SplitSeq(strings.TrimSuffix(string(out), "\x00"), "\x00") {
		if fi, err := os.Lstat(name); err == nil && fi.Size() > 1<<20 {
			t.Errorf("%s has %d bytes", name, fi.Size())
		}
	}
}

// TestRationaleIndex shows that the index of docs/RATIONALE.md lists each heading, in the same
// order, with a working link.
func TestRationaleIndex(t *testing.T) {
	page, err := os.ReadFile("docs/RATIONALE.md")
	if err != nil {
		t.Fatal(err)
	}
	var headings, index []string
	for line := range strings.Lines(string(page)) {
		line = strings.TrimSpace(line)
		if h, ok := strings.CutPrefix(line, "## "); ok && h != "Index" {
			index = append(index, fmt.Sprintf("* [%s](#%s)", h, anchor(h)))
		}
		if strings.HasPrefix(line, "* [") && strings.Contains(line, "](#") {
			headings = append(headings, line)
		}
	}
	for i := range max(len(index), len(headings)) {
		switch {
		case i >= len(headings):
			t.Fatalf("the index ends before\n%s", index[i])
		case i >= len(index):
			t.Fatalf("the index has more than there is:\n%s", headings[i])
		case index[i] != headings[i]:
			t.Fatalf("line %d of the index is\n%s\nwant\n%s", i+1, headings[i], index[i])
		}
	}
}

// anchor returns the link target of a heading.
func anchor(heading string) string {
	var b strings.Builder
	for _, r := range strings.ToLower(heading) {
		switch {
		case r == ' ':
			b.WriteByte('-')
		case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
			b.WriteRune(r)
		}
	}
	return b.String()
}
