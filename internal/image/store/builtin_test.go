package store_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/image"
	"github.com/carrel-dev/carrel/internal/image/archive"
	"github.com/carrel-dev/carrel/internal/image/store"
)

const pyID = "carrelpython00000000"

// workbench makes the built-in template "python" of a test.
type workbench struct {
	made  atomic.Int32
	begun chan struct{} // gets one when a making begins; nil
	go_   chan struct{} // a making goes on after it is closed; nil
	err   error
}

func (b *workbench) builtIn() image.BuiltIn {
	return image.BuiltIn{
		Template: carrel.Template{ID: pyID, Name: "python", Source: "test", BuiltIn: true},
		Print:    strings.Repeat("ab", 10),
		Make: func(ctx context.Context, dir string, meter *image.Meter) (*os.File, carrel.Template,
			error) {
			b.made.Add(1)
			meter.Stage("fetch", 10)
			meter.Flush()
			if err := os.WriteFile(filepath.Join(dir, "part-first"), []byte("x"), 0o600); err != nil {
				return nil, carrel.Template{}, err
			}
			if b.begun != nil {
				b.begun <- struct{}{}
				select {
				case <-b.go_:
				case <-ctx.Done():
					return nil, carrel.Template{}, ctx.Err()
				}
			}
			if b.err != nil {
				return nil, carrel.Template{}, b.err
			}
			imp := archive.Importer{NewFile: func() (*os.File,
				error) {
				return os.CreateTemp(dir, "part-*")
			}}
			f, _, err := imp.Stream(ctx, smallRoot())
			return f, carrel.Template{ID: pyID, Name: "python", Source: "test", Digest: "sha256:x",
				User: "user", BuiltIn: true}, err
		},
	}
}

// smallRoot is a small root filesystem as a tar stream.
func smallRoot() io.Reader {
	var b bytes.Buffer
	tw := tar.NewWriter(&b)
	const text = "ID=test\n"
	// Writing to memory does not fail.
	_ = tw.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "etc/os-release", Mode: 0o644,
		Size: int64(len(text))})
	_, _ = tw.Write([]byte(text))
	_ = tw.Close()
	return &b
}

func named(t *testing.T, s *store.Store, project string) carrel.Template {
	t.Helper()
	tm, ok := s.Named(project, "python")
	if !ok {
		t.Fatalf("no python in %s", project)
	}
	return tm
}

// TestBuiltInFirstUse makes a template once for many callers, and finds it again in a later store.
func TestBuiltInFirstUse(t *testing.T) {
	b, cache := &workbench{}, t.TempDir()
	s := open(t, store.Options{CacheDir: cache, BuiltIns: []image.BuiltIn{b.builtIn()}})
	if tm := named(t, s, "p"); tm.ID != pyID || tm.Digest != "" {
		t.Errorf("before: %+v", tm)
	}
	if all, _ := s.List(t.Context()); slices.ContainsFunc(all,
		func(i image.Image) bool { return i.Name == "python" }) {
		t.Error("it is listed before it is made")
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if img, err := s.Get(t.Context(), pyID); err != nil || img.Digest != "sha256:x" ||
				img.Size == 0 {
				t.Errorf("%+v %v", img, err)
			}
		})
	}
	wg.Wait()
	if n := b.made.Load(); n != 1 {
		t.Errorf("made %d times", n)
	}
	if all, _ := s.List(t.Context()); !slices.ContainsFunc(all,
		func(i image.Image) bool { return i.Name == "python" && i.BuiltIn }) {
		t.Error("it is not listed after it is made")
	}
	dir := filepath.Join(cache, "template-python-"+strings.Repeat("ab", 10))
	// the image, its sums, the manifest
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 3 {
		t.Errorf("the directory holds %v, %v", entries, err)
	}
	if err := s.Delete(t.Context(), pyID); carrel.KindOf(err) != carrel.Forbidden {
		t.Errorf("delete: %v", err)
	}
	later := &workbench{err: errors.New("not again")}
	s = open(t, store.Options{CacheDir: cache, NoFirstUse: true,
		BuiltIns: []image.BuiltIn{later.builtIn()}})
	if img, err := s.Get(t.Context(), pyID); err != nil || img.Digest != "sha256:x" {
		t.Errorf("a later store: %+v %v", img, err)
	}
}

// TestBuiltInAhead makes a template only on request.
func TestBuiltInAhead(t *testing.T) {
	b := &workbench{}
	s := open(t, store.Options{CacheDir: t.TempDir(), NoFirstUse: true,
		BuiltIns: []image.BuiltIn{b.builtIn()}})
	_, err := s.Get(t.Context(), pyID)
	if carrel.KindOf(err) != carrel.Unavailable ||
		!strings.Contains(carrel.HintOf(err), "carrel template get python") || b.made.Load() != 0 {
		t.Fatalf("first use: %v, hint %q", err, carrel.HintOf(err))
	}
	var stages []string
	img, err := s.Make(t.Context(), "python:latest",
		func(p carrel.Progress) { stages = append(stages, p.Stage) })
	if err != nil || img.ID != pyID || !slices.Contains(stages, "fetch") {
		t.Fatalf("%+v %v %v", img, err, stages)
	}
	if _, err := s.Get(t.Context(), pyID); err != nil {
		t.Error(err)
	}
	if _, err := s.Make(t.Context(), "pithon", nil); carrel.KindOf(err) != carrel.NotFound ||
		!strings.Contains(carrel.HintOf(err), "host, python") {
		t.Errorf("%v, hint %q", err, carrel.HintOf(err))
	}
}

// TestBuiltInGoesOn has a caller that leaves. The making goes on for the next one.
func TestBuiltInGoesOn(t *testing.T) {
	b := &workbench{begun: make(chan struct{}, 1), go_: make(chan struct{})}
	s := open(t, store.Options{CacheDir: t.TempDir(), BuiltIns: []image.BuiltIn{b.builtIn()}})
	ctx, cancel := context.WithCancel(t.Context())
	left := make(chan error)
	go func() {
		_, err := s.Get(ctx, pyID)
		left <- err
	}()
	<-b.begun
	cancel()
	if err := <-left; carrel.KindOf(err) != carrel.TimedOut ||
		!strings.Contains(err.Error(), "still being made") {
		t.Errorf("%v", err)
	}
	close(b.go_)
	if _, err := s.Get(t.Context(), pyID); err != nil || b.made.Load() != 1 {
		t.Errorf("%v, made %d times", err, b.made.Load())
	}
}

// TestBuiltInFails tells the callers why, and tries again for the next one.
func TestBuiltInFails(t *testing.T) {
	b, cache := &workbench{err: &carrel.Error{Kind: carrel.Unavailable,
		Err: errors.New("the mirror is away"), Hint: "wait"}}, t.TempDir()
	s := open(t, store.Options{CacheDir: cache, BuiltIns: []image.BuiltIn{b.builtIn()}})
	if _, err := s.Get(t.Context(), pyID); carrel.KindOf(err) != carrel.Unavailable ||
		carrel.HintOf(err) != "wait" {
		t.Errorf("%v", err)
	}
	if parts, _ := filepath.Glob(filepath.Join(cache, "*", "part*")); len(parts) > 0 {
		t.Errorf("left: %v", parts)
	}
	b.err = nil
	if _, err := s.Get(t.Context(), pyID); err != nil {
		t.Error(err)
	}
}

// TestBuiltInClose closes the store in the middle of a making.
func TestBuiltInClose(t *testing.T) {
	b := &workbench{begun: make(chan struct{}, 1), go_: make(chan struct{})}
	s := open(t, store.Options{CacheDir: t.TempDir(), BuiltIns: []image.BuiltIn{b.builtIn()}})
	failed := make(chan error)
	go func() {
		_, err := s.Get(context.Background(), pyID)
		failed <- err
	}()
	<-b.begun
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if err := <-failed; carrel.KindOf(err) != carrel.Unavailable {
		t.Errorf("%v", err)
	}
}

// TestBuiltInSweep opens a store after a process died while it made a template. A directory that a
// living process holds stays.
func TestBuiltInSweep(t *testing.T) {
	cache := t.TempDir()
	dead := filepath.Join(cache, "template-python-"+strings.Repeat("cd", 10))
	others := []string{filepath.Join(cache, "template-python-mine"),
		filepath.Join(cache, "template-python-x-"+strings.Repeat("cd", 10))}
	for _, dir := range append(others, dead) {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "part-1"), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	b := &workbench{begun: make(chan struct{}, 1), go_: make(chan struct{})}
	first := open(t, store.Options{CacheDir: cache, BuiltIns: []image.BuiltIn{b.builtIn()}})
	if _, err := os.Stat(dead); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a half-made template stayed: %v", err)
	}
	for _, dir := range others {
		if _, err := os.Stat(dir); err != nil {
			t.Errorf("another directory went: %v", err)
		}
	}
	done := make(chan error)
	go func() {
		_, err := first.Get(context.Background(), pyID)
		done <- err
	}()
	<-b.begun
	// must not sweep what is being made
	open(t, store.Options{CacheDir: cache, BuiltIns: []image.BuiltIn{(&workbench{}).builtIn()}})
	close(b.go_)
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestOwnNameFirst keeps the meaning of a name that a project gave to a template of its own.
func TestOwnNameFirst(t *testing.T) {
	b := &workbench{}
	s := open(t, store.Options{CacheDir: t.TempDir(), BuiltIns: []image.BuiltIn{b.builtIn()}})
	ctx := carrel.WithCaller(t.Context(), carrel.Caller{Project: "mine", Role: carrel.RoleMember})
	own, err := s.Import(ctx, "python", smallRoot(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if tm := named(t, s, "mine"); tm.ID != own.ID {
		t.Errorf("in its project: %+v", tm)
	}
	if tm := named(t, s, "other"); tm.ID != pyID {
		t.Errorf("in another project: %+v", tm)
	}
	if err := s.Delete(ctx, own.ID); err != nil {
		t.Fatal(err)
	}
	if tm := named(t, s, "mine"); tm.ID != pyID {
		t.Errorf("after it was deleted: %+v", tm)
	}
	if tm, ok := s.Named("mine", image.Host); !ok || tm.ID != store.HostID {
		t.Errorf("host: %+v %v", tm, ok)
	}
}

// TestLend gives an image an ID for a while.
func TestLend(t *testing.T) {
	s := open(t, store.Options{CacheDir: t.TempDir()})
	id, release := s.Lend(image.Image{Path: "/x", Template: carrel.Template{User: "root"}})
	img, err := s.Get(t.Context(), id)
	if tm, ok := s.ByID(id); err != nil || !ok || !img.Lent || img.Path != "/x" || !tm.BuiltIn {
		t.Errorf("%+v %v %v", img, err, ok)
	}
	if all, _ := s.List(t.Context()); slices.ContainsFunc(all,
		func(i image.Image) bool { return i.ID == id }) {
		t.Error("it is listed")
	}
	release()
	if _, err := s.Get(t.Context(), id); carrel.KindOf(err) != carrel.NotFound {
		t.Errorf("after release: %v", err)
	}
	if _, ok := s.ByID(id); ok {
		t.Error("the ID is known after release")
	}
}
