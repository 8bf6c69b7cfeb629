package gvisor

import (
	"go/ast"
	"go/parser"
	"go/printer"
	"go/token"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/carrel-dev/carrel/internal/testenv"
)

// TestFastPathIsKnown fails when gVisor's state is not, or not where, we take it to be.
func TestFastPathIsKnown(t *testing.T) {
	if !fastPath.known() {
		t.Errorf("it is not: %d, %d, %d", fastPath.stubFPBackoff, fastPath.sentryFPBackoff, cap(fastPath.monitorWakeup))
	}
	dir, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "gvisor.dev/gvisor").Output()
	if err != nil {
		t.Fatal(err)
	}
	systrap := filepath.Join(strings.TrimSpace(string(dir)), "pkg/sentry/platform/systrap")
	theirs := parse(t, filepath.Join(systrap, "metrics.go"))
	ours := parse(t, "fastpath.go")
	if a, b := fields(theirs), fields(ours); len(a) < 20 || !slices.Equal(a, b) {
		t.Errorf("gVisor's fields:\n%s\nours:\n%s", strings.Join(a, "\n"), strings.Join(b, "\n"))
	}
	starts := "if !neverEnableFastPath { latencyMonitoring.Do(func() { go controlFastPath() }) }"
	if how := declared(parse(t, filepath.Join(systrap, "systrap.go")), "New"); !strings.Contains(how, starts) {
		t.Errorf("gVisor starts its monitor in another way than %s", starts)
	}
	for name, want := range map[string]string{
		"numLatencyBuckets": "80", "recordingPeriod": "400 * time.Microsecond", "fastPathBackoffMin": "2",
		"latencyBuckets":  "[numLatencyBuckets]atomicbitops.Uint64",
		"controlFastPath": "{ fastPathContextLimit = uint32(maxSysmsgThreads * 2) for { time.Sleep(recordingPeriod) fastpath.curState(&fastpath) fastpath.usedStubFastPath.Store(false) fastpath.usedSentryFastPath.Store(false) if !fastpath.recentActivity.Swap(false) { fastpath.park() } } }",
	} {
		if got := declared(theirs, name); got != want {
			t.Errorf("gVisor's %s is %q, and was %q", name, got, want)
		}
	}
}

// TestFastPathWaits has gVisor's own parking work on a state of ours.
func TestFastPathWaits(t *testing.T) {
	periods := make(chan [2]int)
	s := &fastPathState{stubFPBackoff: firstBackoff, sentryFPBackoff: 1 << 9, monitorWakeup: make(chan struct{}, 1)}
	s.curState = func(s *fastPathState) { periods <- [2]int{s.stubFPBackoff, s.sentryFPBackoff} }
	s.stubFastPathEnabled.Store(true)
	s.recentActivity.Store(true)
	go s.monitor()
	for range 2 { // one with work, one without
		if got := <-periods; got != [2]int{patience, 1 << 9} {
			t.Errorf("at first the fast path is put off for %d periods", got)
		}
	}
	testenv.Eventually(t, "the monitor parks", s.monitorParked.Load)
	if s.stubFastPathEnabled.Load() {
		t.Fatal("it parked, and the fast path is on")
	}
	s.stubFPBackoff, s.sentryFPBackoff = 0, 0 // as after a burst that had the fast path; curState is gVisor's by now, which would look for measurements
	done := make(chan struct{})
	s.curState = func(s *fastPathState) {
		if got := [2]int{s.stubFPBackoff, s.sentryFPBackoff}; got != [2]int{patience, patience} {
			t.Errorf("after a rest it is put off for %d periods", got)
		}
		close(done)
		select {}
	}
	s.recentActivity.Store(true)
	s.monitorWakeup <- struct{}{}
	<-done
}

func parse(t *testing.T, name string) *ast.File {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// text is a piece of a program without its comments, on one line.
func text(n ast.Node) string {
	var b strings.Builder
	_ = printer.Fprint(&b, token.NewFileSet(), n)
	return strings.Join(strings.Fields(b.String()), " ")
}

// fields are the names and types of the state's fields.
func fields(f *ast.File) (all []string) {
	ast.Inspect(f, func(n ast.Node) bool {
		if spec, ok := n.(*ast.TypeSpec); ok && spec.Name.Name == "fastPathState" {
			for _, field := range spec.Type.(*ast.StructType).Fields.List {
				all = append(all, field.Names[0].Name+" "+text(field.Type))
			}
		}
		return true
	})
	return all
}

// declared is what a constant, a type or a function of one file is.
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
