package gvisor

import (
	"crypto/sha256"
	"debug/dwarf"
	"debug/elf"
	"fmt"
	"go/ast"
	"go/parser"
	"go/printer"
	"go/token"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"unsafe"

	"github.com/carrel-dev/carrel/internal/testenv"
)

// TestFastPathPlaces fails when a field of gVisor's state is missing or not at the offset that we
// assume. It compares them with a program's debug information.
func TestFastPathPlaces(t *testing.T) {
	t.Parallel() // it waits for a build
	if !fastPath.known() {
		t.Errorf("the state looks different: %d, %d", fastPath.waits, cap(fastPath.wake))
	}
	var s fastPathState
	flag := unsafe.Sizeof(s.on[0])
	want := map[string]uintptr{
		"stubFPBackoff": unsafe.Offsetof(s.waits), "sentryFPBackoff": unsafe.Offsetof(s.waits) + unsafe.Sizeof(s.waits[0]),
		"stubFastPathEnabled": unsafe.Offsetof(s.on), "sentryFastPathEnabled": unsafe.Offsetof(s.on) + flag,
		"usedStubFastPath": unsafe.Offsetof(s.used), "usedSentryFastPath": unsafe.Offsetof(s.used) + flag,
		"curState": unsafe.Offsetof(s.decide), "recentActivity": unsafe.Offsetof(s.worked),
		"monitorParked": unsafe.Offsetof(s.parked), "monitorWakeup": unsafe.Offsetof(s.wake),
	}
	theirs, size := placesIn(t, buildSentry(t), "gvisor.dev/gvisor/pkg/sentry/platform/systrap.fastPathState")
	got := map[string]uintptr{}
	for name := range want {
		if at, ok := theirs[name]; ok {
			got[name] = at
		}
	}
	if !maps.Equal(got, want) || size != unsafe.Sizeof(s) {
		t.Errorf("gVisor's, %d bytes: %v\nours, %d bytes: %v", size, got, unsafe.Sizeof(s), want)
	}
}

// TestFastPathMonitorIsKnown fails when gVisor's monitor, or the code that starts it, has changed
// since our monitor was tested against it. Then measure again whether our monitor still helps. The
// test compares a fingerprint of the source text.
func TestFastPathMonitorIsKnown(t *testing.T) {
	dir, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "gvisor.dev/gvisor").Output()
	if err != nil {
		t.Fatal(err)
	}
	systrap := filepath.Join(strings.TrimSpace(string(dir)), "pkg/sentry/platform/systrap")
	for name, want := range map[string]struct{ file, sum string }{
		"controlFastPath":    {"metrics.go", "bcd71aae7dbedaad"},
		"recordingPeriod":    {"metrics.go", "3e761b20de952743"},
		"fastPathBackoffMin": {"metrics.go", "d4735e3a265e16ee"},
		"New":                {"systrap.go", "9483132489583f64"},
	} {
		text := declared(parse(t, filepath.Join(systrap, want.file)), name)
		if got := fmt.Sprintf("%x", sha256.Sum256([]byte(text)))[:16]; text == "" || got != want.sum {
			t.Errorf("gVisor's %s has the fingerprint %s, and had %s", name, got, want.sum)
		}
	}
}

// TestFastPathWaits runs gVisor's own parking code on a state of ours.
func TestFastPathWaits(t *testing.T) {
	periods := make(chan [2]int)
	s := &fastPathState{waits: [2]int{firstWait, 1 << 9}, wake: make(chan struct{}, 1)}
	s.decide = func(s *fastPathState) { periods <- s.waits }
	s.on[0].Store(true)
	s.worked.Store(true)
	go s.monitor()
	for range 2 { // one with work, one without
		if got := <-periods; got != [2]int{patience, 1 << 9} {
			t.Errorf("at first the fast path is put off for %d periods", got)
		}
	}
	testenv.Eventually(t, "the monitor parks", func() bool { return s.parked.Load() })
	if s.on[0].Load() {
		t.Error("it parked with the fast path on")
	}
	s.waits = [2]int{} // as after a burst; decide, now gVisor's, needs measurements
	done := make(chan struct{})
	s.used[0].Store(true)
	s.used[1].Store(true)
	decided := 0
	s.decide = func(s *fastPathState) {
		if decided++; decided == 1 {
			if s.waits != [2]int{patience, patience} {
				t.Errorf("after a rest it is put off for %d periods", s.waits)
			}
			s.worked.Store(true)
			return
		}
		if s.used[0].Load() || s.used[1].Load() {
			t.Error("a period begins with what was used in the last one")
		}
		close(done)
		select {}
	}
	s.worked.Store(true)
	s.wake <- struct{}{}
	<-done
}

// buildSentry builds a program with debug information, which a test binary lacks.
func buildSentry(t *testing.T) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), "sentry")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-ldflags=-w=0", "-o", out, "./testdata/sentry")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return out
}

// placesIn reads the offsets of a type's fields, and its size, from a program's debug information.
func placesIn(t *testing.T, program, name string) (places map[string]uintptr, size uintptr) {
	t.Helper()
	f, err := elf.Open(program)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	info, err := f.DWARF()
	if err != nil {
		t.Fatal(err)
	}
	for r := info.Reader(); ; {
		e, err := r.Next()
		if err != nil || e == nil {
			t.Fatalf("no type %s: %v", name, err)
		}
		if e.Tag == dwarf.TagStructType && e.Val(dwarf.AttrName) == name {
			found, err := info.Type(e.Offset)
			if err != nil {
				t.Fatal(err)
			}
			places = map[string]uintptr{}
			for _, field := range found.(*dwarf.StructType).Field {
				places[field.Name] = uintptr(field.ByteOffset)
			}
			return places, uintptr(found.Size())
		}
		if e.Tag != dwarf.TagCompileUnit {
			r.SkipChildren()
		}
	}
}

func parse(t *testing.T, name string) *ast.File {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// text prints a piece of a program on one line, without its comments.
func text(n ast.Node) string {
	var b strings.Builder
	_ = printer.Fprint(&b, token.NewFileSet(), n)
	return strings.Join(strings.Fields(b.String()), " ")
}

// declared returns the text of the constant, type or function that a file declares under a name.
func declared(f *ast.File, name string) (is string) {
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ValueSpec:
			if n.Names[0].Name == name && len(n.Values) > 0 {
				is = text(n.Values[0])
			}
		case *ast.TypeSpec:
			if n.Name.Name == name {
				is = text(n.Type)
			}
		case *ast.FuncDecl:
			if n.Recv == nil && n.Name.Name == name {
				is = text(n.Body)
			}
		}
		return true
	})
	return is
}
