package service

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/image"
	"github.com/carrel-dev/carrel/internal/service/timeline"
	"github.com/carrel-dev/carrel/internal/state"
	"github.com/carrel-dev/carrel/internal/state/memory"
	"github.com/carrel-dev/carrel/internal/testenv"
)

// newRoots returns the part alone, with records in memory. Unused images are not spared.
func newRoots(t *testing.T) *roots {
	t.Helper()
	o := &Options{Dir: filepath.Join(t.TempDir(), "sandboxes"), Store: memory.Open()}
	return &roots{opts: o, log: slog.New(slog.DiscardHandler), table: newTable(t.Context(), o),
		snaps: timeline.New(), lost: &lostAndFound{}}
}

// elsewhere makes a file on another filesystem than dir's.
func elsewhere(t *testing.T, dir string, content []byte) string {
	t.Helper()
	shm, err := os.MkdirTemp("/dev/shm", "carrel-test-")
	if err != nil {
		testenv.Need(t, "shm", err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(shm) })
	path := filepath.Join(shm, "image.erofs")
	if err := os.WriteFile(path, content, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Link(path, filepath.Join(dir, "probe")); !errors.Is(err, unix.EXDEV) {
		testenv.Need(t, "shm", errors.New("/dev/shm is not another filesystem"))
	}
	return path
}

// kept lists the names of kept images.
func kept(r *roots) []string {
	all, _ := filepath.Glob(r.rootFile("*"))
	hidden, _ := filepath.Glob(r.rootFile(".*"))
	return append(all, hidden...)
}

// TestRootOnAnotherFilesystem keeps an image that can't be linked. The image stays after its
// template is replaced and removed, for as long as a sandbox or a snapshot needs it, and no longer.
func TestRootOnAnotherFilesystem(t *testing.T) {
	r := newRoots(t)
	first := bytes.Repeat([]byte("one"), 3<<20)
	img := image.Image{Template: carrel.Template{ID: "t"}, Path: elsewhere(t, t.TempDir(), first)}
	var names sync.Map
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			name, path, err := r.keepRoot(img)
			if b, rerr := os.ReadFile(path); err != nil || rerr != nil || name == "" ||
				!bytes.Equal(b, first) {
				t.Errorf("%q, %v, %v", name, err, rerr)
			}
			names.Store(name, true)
		})
	}
	wg.Wait()
	if all := kept(r); len(all) != 1 {
		t.Fatalf("kept %v", all)
	}
	name := filepath.Base(kept(r)[0])
	if n := 0; !func() bool {
		names.Range(func(any,
			any) bool {
			n++
			return true
		})
		return n == 1
	}() {
		t.Error("one image has several names")
	}

	// Another image takes its place: the same inode, the same size.
	if err := os.WriteFile(img.Path, bytes.Repeat([]byte("two"), 3<<20), 0o644); err != nil {
		t.Fatal(err)
	}
	second, _, err := r.keepRoot(img)
	if err != nil || second == name {
		t.Fatalf("the replaced image is kept as %q (%v)", second, err)
	}
	if err := os.Remove(img.Path); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(r.rootFile(name)); err != nil || !bytes.Equal(b, first) {
		t.Fatalf("the first image: %v", err)
	}

	// The last user goes, and then the images.
	rec := state.Record{Sandbox: carrel.Sandbox{ID: carrel.NewID(), State: carrel.Paused}, Root: name}
	if err := r.opts.Store.PutSandbox(t.Context(), rec); err != nil {
		t.Fatal(err)
	}
	sr := state.SnapshotRecord{Snapshot: carrel.Snapshot{ID: carrel.NewSnapshotID()},
		Record: state.Record{Root: second}}
	r.snaps.Put(sr)
	if err := os.WriteFile(r.rootFile(partPrefix+"1"), nil, 0o600); err != nil { // of a crash
		t.Fatal(err)
	}
	time.Sleep(10 * time.Millisecond) // the kernel's clock for files ticks slower
	r.sweepRoots()
	if all := kept(r); len(all) != 2 {
		t.Fatalf("two are needed, kept %v", all)
	}
	if err := r.opts.Store.DeleteSandbox(t.Context(), rec.Sandbox.ID); err != nil {
		t.Fatal(err)
	}
	r.sweepRoots()
	if all := kept(r); len(all) != 1 || filepath.Base(all[0]) != second {
		t.Fatalf("one is needed, kept %v", all)
	}
	r.snaps.Drop(sr.Snapshot.ID)
	r.sweepRoots()
	if all := kept(r); len(all) != 0 {
		t.Fatalf("none is needed, kept %v", all)
	}
}

// TestForeignNameOfARoot keeps an image whose inode's number is in the name of another one. That
// happens in a copied directory.
func TestForeignNameOfARoot(t *testing.T) {
	r := newRoots(t)
	dir := t.TempDir()
	img := image.Image{Template: carrel.Template{ID: "t", BuiltIn: true}, Path: filepath.Join(dir, "image.erofs")}
	if err := os.WriteFile(img.Path, []byte("right"), 0o644); err != nil {
		t.Fatal(err)
	}
	name, path, err := r.keepRoot(img)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("wrong"), 0o644); err != nil {
		t.Fatal(err)
	}
	other, path, err := r.keepRoot(img)
	if b, rerr := os.ReadFile(path); err != nil || rerr != nil || string(b) != "right" {
		t.Fatalf("%s holds %q (%v, %v)", path, b, err, rerr)
	}
	if other == name {
		t.Error("two images have one name")
	}
}

// TestNoRoomForARoot refuses a creation whose image can't be kept: its sandbox could be paused, and
// never resumed.
func TestNoRoomForARoot(t *testing.T) {
	r := newRoots(t)
	img := image.Image{Template: carrel.Template{ID: "t"},
		Path: elsewhere(t, t.TempDir(), []byte("image"))}
	if err := os.MkdirAll(r.opts.Dir, 0o700); err != nil {
		t.Fatal(err)
	}
	// no directory
	if err := os.WriteFile(filepath.Join(r.opts.Dir, rootsDir), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, _, err := r.keepRoot(img)
	if err == nil || carrel.HintOf(err) == "" || !strings.Contains(err.Error(), "can't be kept") {
		t.Errorf("%v (hint %q)", err, carrel.HintOf(err))
	}
}
