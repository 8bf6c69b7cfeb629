package store_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	goerofs "github.com/erofs/go-erofs"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/image/hostbase"
	"github.com/carrel-dev/carrel/internal/image/store"
	"github.com/carrel-dev/carrel/internal/testenv"
)

// plant writes a file that must not get into a base, and removes it when the test ends. It restores
// the times of the directory, because fingerprints look at them.
func plant(t *testing.T, path string, perm fs.FileMode, content string) {
	t.Helper()
	dir := filepath.Dir(path)
	before, err := os.Stat(dir)
	if err != nil {
		t.Logf("no %s on this machine", dir)
		return
	}
	if to, ok := strings.CutPrefix(content, "-> "); ok {
		err = os.Symlink(to, path)
	} else if err = os.WriteFile(path, []byte(content), 0o600); err == nil {
		err = os.Chmod(path, perm)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.Remove(path); err != nil {
			t.Error(err)
		}
		_ = os.Chtimes(dir, before.ModTime(), before.ModTime())
	})
}

// TestHostHoldsNoSecrets plants canaries all over this machine, makes its base and looks for the
// canaries in every byte of the image.
func TestHostHoldsNoSecrets(t *testing.T) {
	if os.Getuid() != 0 {
		testenv.Need(t, "root", errors.New("canaries in /root and /usr can be planted by root only"))
	}
	testenv.Long(t, "makes a whole base")
	var random [16]byte
	_, _ = rand.Read(random[:])
	token := "canary" + hex.EncodeToString(random[:])
	name := "carrel-" + token
	for _, dir := range []string{"/root", "/home", "/var", "/var/lib", "/run", "/tmp", "/etc", "/opt", "/srv", "/mnt",
		"/usr/local/etc", "/usr/local/src", "/etc/ssl", "/usr/local/share"} {
		plant(t, filepath.Join(dir, name), 0o644, token)
	}
	plant(t, "/usr/local/lib/"+name, 0o600, token)
	plant(t, "/usr/local/bin/"+name, 0o755, "#!/bin/sh\nPASSWORD="+token)
	plant(t, "/usr/lib/"+name, 0o640, token)
	plant(t, "/usr/share/"+name, 0o755, "-> /root/"+name)
	plant(t, "/usr/bin/"+name, 0o755, "-> ../../var/lib/"+name)

	s := open(t, store.Options{CacheDir: t.TempDir()})
	start := time.Now()
	img, err := s.Get(context.Background(), store.HostID)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("base of %d MB in %v", img.Size>>20, time.Since(start).Round(time.Millisecond))
	needles := append(realShadow(t), token)
	for _, found := range scan(t, img.Path, needles) {
		t.Errorf("the image holds %.12q…", found)
	}
	f, err := os.Open(img.Path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	fsys, err := goerofs.Open(f)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{"usr/bin", "etc/passwd", "home/user", "root", "tmp"} {
		if _, err := fs.Stat(fsys, p); err != nil {
			t.Error(err)
		}
	}
	for _, dir := range []string{"root", "tmp", "opt", "srv", "mnt", "dev", "proc", "sys"} {
		if entries, err := fs.ReadDir(fsys, dir); err != nil || len(entries) > 0 {
			t.Errorf("%s holds %v (%v)", dir, entries, err)
		}
	}
}

// realShadow returns the parts of this machine's shadow file that must not be in the image: hashes,
// and the whole lines of a few accounts.
func realShadow(t *testing.T) []string {
	raw, err := os.ReadFile("/etc/shadow")
	if err != nil {
		t.Logf("no shadow file to look for: %v", err)
		return nil
	}
	var out []string
	for line := range strings.Lines(string(raw)) {
		f := strings.Split(strings.TrimSpace(line), ":")
		switch {
		case len(f) < 3:
		case len(f[1]) > 8:
			out = append(out, f[1])
		case len(out) < 5:
			out = append(out, strings.TrimSpace(line))
		}
	}
	return out
}

// scan looks for needles in a file.
func scan(t *testing.T, path string, needles []string) (found []string) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	const overlap = 4096 // longer than any needle
	buf := make([]byte, overlap+8<<20)
	kept := 0
	for {
		n, err := io.ReadFull(f, buf[kept:])
		for _, needle := range needles {
			if bytes.Contains(buf[:kept+n], []byte(needle)) {
				found = append(found, needle)
			}
		}
		if err != nil {
			return found
		}
		kept = copy(buf, buf[len(buf)-overlap:])
	}
}

// builds counts by its log line how often a base was made.
type builds struct {
	slog.Handler
	n atomic.Int64
}

func (b *builds) Enabled(context.Context, slog.Level) bool { return true }
func (b *builds) Handle(_ context.Context, r slog.Record) error {
	if r.Message == "made the host template" {
		b.n.Add(1)
	}
	return nil
}

// smallHost is a small machine whose base is quickly made.
func smallHost(t testing.TB) hostbase.Options {
	t.Helper()
	root := t.TempDir()
	for _, dir := range []string{"usr/bin", "usr/lib", "etc"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(root, "usr/bin/sh"), []byte("\x7fELF"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("usr/bin", filepath.Join(root, "bin")); err != nil {
		t.Fatal(err)
	}
	return hostbase.Options{Root: root}
}

func TestHostIsMadeOnce(t *testing.T) {
	host, cache := smallHost(t), t.TempDir()
	count := &builds{Handler: slog.DiscardHandler}
	var stores []*store.Store
	for range 3 { // each like a process of its own: locks belong to open files
		stores = append(stores, open(t, store.Options{CacheDir: cache, Host: host,
			Logger: slog.New(count)}))
	}
	var wg sync.WaitGroup
	for i := range 12 {
		wg.Go(func() {
			img, err := stores[i%3].Get(context.Background(), store.HostID)
			if err != nil || img.ID != store.HostID || img.Name != "host" || !img.BuiltIn ||
				img.User != "user" {
				t.Errorf("%+v, %v", img, err)
			}
			if _, err := os.Stat(img.Path); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := count.n.Load(); n != 1 {
		t.Errorf("made %d times", n)
	}
}

func TestHostFollowsTheMachine(t *testing.T) {
	host, cache := smallHost(t), t.TempDir()
	ctx := context.Background()
	first := open(t, store.Options{CacheDir: cache, Host: host})
	before, err := first.Get(ctx, store.HostID)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(host.Root, "usr/bin/new"), []byte("\x7fELF"), 0o755); err != nil {
		t.Fatal(err)
	}
	if img, err := first.Get(ctx, store.HostID); err != nil || img.Path != before.Path {
		t.Errorf("a running store made its base again: %v %v", img.Path, err)
	}
	second := open(t, store.Options{CacheDir: cache, Host: host})
	after, err := second.Get(ctx, store.HostID)
	if err != nil || after.Path == before.Path {
		t.Fatalf("a new program did not give a new base: %v, %v", after.Path, err)
	}
	if _, err := os.Stat(before.Path); err != nil {
		t.Errorf("a base in use was removed: %v", err)
	}
	var stages []carrel.Progress
	if err := first.Prepare(ctx, func(p carrel.Progress) { stages = append(stages, p) }); err != nil {
		t.Fatal(err)
	}
	if img, err := first.Get(ctx, store.HostID); err != nil || img.Path != after.Path || len(stages) != 0 {
		t.Errorf("Prepare gave %v, %v, progress %v (the other store had made it)", img.Path, err, stages)
	}
	if err := errors.Join(first.Close(), second.Close()); err != nil {
		t.Fatal(err)
	}
	third := open(t, store.Options{CacheDir: cache, Host: smallHost(t)})
	if err := third.Prepare(ctx, func(p carrel.Progress) { stages = append(stages, p) }); err != nil {
		t.Fatal(err)
	}
	if len(stages) == 0 {
		t.Error("no progress")
	}
	for _, old := range []string{before.Path, after.Path} {
		if _, err := os.Stat(old); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("an old base nobody holds is still there: %v", err)
		}
	}
}

// TestHostAfterACrash makes a base in a directory where an earlier attempt died half way.
func TestHostAfterACrash(t *testing.T) {
	host, cache := smallHost(t), t.TempDir()
	fp, err := hostbase.Fingerprint(host)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(cache, "host-"+fp)
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, f := range []string{"part", "image.erofs"} {
		if err := os.WriteFile(filepath.Join(dir, f), []byte("half"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	s := open(t, store.Options{CacheDir: cache, Host: host})
	img, err := s.Get(context.Background(), store.HostID)
	if err != nil {
		t.Fatal(err)
	}
	if st, err := os.Stat(img.Path); err != nil || st.Size() < 4096 || st.Mode().Perm() != 0o644 {
		t.Errorf("%v %v", st, err)
	}
	if _, err := os.Stat(filepath.Join(dir, "part")); !errors.Is(err, fs.ErrNotExist) {
		t.Error("the half image is still there")
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	other := open(t, store.Options{CacheDir: t.TempDir(), Host: host})
	if _, err := other.Get(ctx, store.HostID); carrel.KindOf(err) != carrel.TimedOut {
		t.Errorf("a cancelled Get gave %v", err)
	}
}

// TestForeignCache checks that a cache directory is refused if others can write to it.
func TestForeignCache(t *testing.T) {
	cache := t.TempDir()
	if err := os.Chmod(cache, 0o777); err != nil {
		t.Fatal(err)
	}
	s := open(t, store.Options{CacheDir: cache, Host: smallHost(t)})
	_, err := s.Get(context.Background(), store.HostID)
	wantKind(t, err, carrel.Forbidden, "CacheDir")
}
