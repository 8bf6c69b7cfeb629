//go:build linux

package microvm_test

import (
	"context"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/driver/microvm"
	"github.com/carrel-dev/carrel/internal/testenv"
)

// shortAnswer is how long a driver of these tests waits for an answer of a VMM that gives none.
const shortAnswer = time.Second

// patience is the longest that a call may take whatever a VMM does: some waits of shortAnswer, and
// the undoing of everything on a busy machine.
const patience = 15 * time.Second

// bootSteps are the requests that start a machine.
var bootSteps = []string{"PUT /machine-config", "PUT /boot-source", "PUT /drives/root", "PUT /drives/guest", "PUT /drives/write",
	"PUT /network-interfaces/eth0", "PUT /actions"}

// answers are the ways in which a VMM misbehaves at a request.
func answers(at string) map[string]behaviour {
	return map[string]behaviour{
		"dies at " + at: {DieAt: at}, "hangs at " + at: {HangAt: at}, "answers garbage at " + at: {GarbageAt: at},
		"answers without end at " + at: {HugeAt: at}, "answers with an endless head at " + at: {HugeHeadAt: at},
		"refuses " + at: {RefuseAt: at}, "leads elsewhere at " + at: {RedirectAt: at},
	}
}

// few are the names of cases, in an order; in a short run some of them.
func few(cases map[string]behaviour) []string {
	return testenv.Few(6, slices.Sorted(maps.Keys(cases))...)
}

// plain fails unless an error can be shown to a person: a hostile VMM wrote a part of it.
func plain(t *testing.T, err error) {
	t.Helper()
	if text := err.Error(); len(text) > 4000 || strings.ContainsFunc(text, func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }) {
		t.Errorf("the error is %q", text)
	}
}

// openFiles counts this process's descriptors.
func openFiles(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// TestHostileFirecrackerBoots: whatever a VMM does instead of booting, the creation fails soon, and
// leaves nothing.
func TestHostileFirecrackerBoots(t *testing.T) {
	f := newFake(t)
	defer microvm.SetAPITime(shortAnswer)()
	cases := answers("PUT /boot-source")
	for _, step := range bootSteps {
		cases["dies at "+step] = behaviour{DieAt: step}
	}
	for _, start := range []string{"die", "hang", "symlink", "file", "foreign"} {
		cases["starts with "+start] = behaviour{Start: start}
	}
	before := openFiles(t)
	for _, name := range few(cases) {
		b := cases[name]
		t.Run(name, func(t *testing.T) {
			f.behave(t, b)
			spec := f.newSpec(t)
			began := time.Now()
			in, err := f.Create(t.Context(), spec)
			if err == nil {
				_ = in.Destroy(t.Context())
				t.Fatal("it was created")
			}
			plain(t, err)
			if took := time.Since(began); took > patience || carrel.KindOf(err) == "" {
				t.Errorf("after %v: %v (kind %s)", took, err, carrel.KindOf(err))
			}
			f.clean(t, spec)
		})
	}
	testenv.Eventually(t, "all files are closed", func() bool { return openFiles(t) <= before })
}

// TestHostileFirecrackerSaves: a snapshot of a VMM that misbehaves fails and leaves no file. The
// machine goes on if its VMM lives.
func TestHostileFirecrackerSaves(t *testing.T) {
	f := newFake(t)
	cases := answers("PUT /snapshot/create")
	for name, b := range answers("PATCH /vm") {
		cases[name] = b
	}
	for _, save := range []string{"short", "long", "empty state", "big state"} {
		cases["saves: "+save] = behaviour{Save: save}
	}
	for _, name := range few(cases) {
		b := cases[name]
		t.Run(name, func(t *testing.T) {
			f.behave(t, b)
			m := f.create(t)
			dir := t.TempDir()
			usual := microvm.SetAPITime(shortAnswer)
			defer usual()
			ctx, cancel := context.WithTimeout(t.Context(), 2*shortAnswer)
			defer cancel()
			began := time.Now()
			_, err := m.Instance.(driver.Snapshotter).Snapshot(ctx, dir, driver.SnapshotOptions{})
			if err == nil {
				t.Fatal("it was taken")
			}
			plain(t, err)
			if took := time.Since(began); took > patience {
				t.Errorf("after %v: %v", took, err)
			}
			if list, _ := os.ReadDir(dir); len(list) > 0 {
				t.Errorf("files are left: %v", list)
			}
			usual()
			if b.DieAt == "" && !strings.HasSuffix(name, "PATCH /vm") {
				m.expect(t, "GET", "/memory", "", "booted")
			}
			if err := m.Destroy(t.Context()); err != nil {
				t.Error(err)
			}
			f.clean(t, m.spec)
		})
	}
}

// TestFirecrackerWritesNoOtherFile: a VMM that was taken over can put nothing in the place of the files
// of a snapshot, and can't fill the host's disk.
func TestFirecrackerWritesNoOtherFile(t *testing.T) {
	f := newFake(t)
	for _, save := range []string{"links", "fill"} {
		f.behave(t, behaviour{Save: save})
		m := f.create(t)
		dir, info := m.snapshot(t, driver.SnapshotOptions{})
		m.expect(t, "GET", "/escaped", "", "null\n")
		f.restore(t, dir, info, driver.RestoreOptions{}).expect(t, "GET", "/memory", "", "booted")
	}
}

// TestHostileFirecrackerLoads: a VMM that does not load its memory leaves nothing, and the snapshot is
// as it was.
func TestHostileFirecrackerLoads(t *testing.T) {
	f := newFake(t)
	m := f.create(t)
	m.expect(t, "PUT", "/memory", "kept", "kept")
	dir, info := m.snapshot(t, driver.SnapshotOptions{})
	usual := microvm.SetAPITime(shortAnswer)
	defer usual()
	cases := answers("PUT /snapshot/load")
	for name, b := range answers("PATCH /vm") {
		cases[name] = b
	}
	cases["dies while it loads"] = behaviour{Load: "die"}
	cases["never listens"] = behaviour{Start: "hang"}
	for _, name := range few(cases) {
		b := cases[name]
		t.Run(name, func(t *testing.T) {
			f.behave(t, b)
			spec := f.newSpec(t)
			ctx, cancel := context.WithTimeout(t.Context(), 2*shortAnswer)
			defer cancel()
			began := time.Now()
			in, err := f.Restore(ctx, dir, info, spec, driver.RestoreOptions{})
			if err == nil {
				_ = in.Destroy(t.Context())
				t.Fatal("it was restored")
			}
			plain(t, err)
			if took := time.Since(began); took > patience {
				t.Errorf("after %v: %v", took, err)
			}
			f.clean(t, spec)
		})
	}
	usual()
	f.behave(t, behaviour{})
	f.restore(t, dir, info, driver.RestoreOptions{}).expect(t, "GET", "/memory", "", "kept")
}
