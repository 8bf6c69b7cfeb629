package sim_test

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/driver/sim"
	"github.com/carrel-dev/carrel/internal/guest"
)

// small are the limits of the sandboxes in these tests.
var small = carrel.Limits{MemoryMB: 16, DiskMB: 16, Pids: 32}

// snapshot takes one into a new directory.
func snapshot(t testing.TB, in driver.Instance, dir string) driver.SnapshotInfo {
	t.Helper()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	info, err := in.(driver.Snapshotter).Snapshot(context.WithoutCancel(t.Context()), dir, driver.SnapshotOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return info
}

// fork restores a snapshot as a new sandbox with a guest connection.
func fork(t testing.TB, dir string, info driver.SnapshotInfo, l carrel.Limits) (driver.Instance, *guest.Conn) {
	t.Helper()
	spec := driver.Spec{ID: carrel.NewID(), Limits: l}
	in, err := sim.New(sim.Options{}).Restore(context.WithoutCancel(t.Context()), dir, info, spec, driver.RestoreOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return in, guest.NewConn(in.Dial, guest.ConnOptions{ID: spec.ID})
}

// sh runs a line as root.
func sh(t testing.TB, c *guest.Conn, script string) string {
	t.Helper()
	res, err := c.Run(context.WithoutCancel(t.Context()), carrel.Command{Args: []string{"/bin/sh", "-c", script}, User: "root"})
	if err != nil || res.ExitCode != 0 {
		t.Fatalf("%s: %+v, %v", script, res, err)
	}
	return strings.TrimSpace(string(res.Stdout))
}

// TestSnapshotSize checks that the snapshot of an idle sandbox is very small.
func TestSnapshotSize(t *testing.T) {
	in, _ := box(t, small)
	dir := t.TempDir()
	info := snapshot(t, in, dir)
	if info.Memory || info.Driver != "sim" || info.Build == "" {
		t.Errorf("%+v", info)
	}
	fi, err := os.Stat(filepath.Join(dir, "files"))
	if err != nil || fi.Size() > 1<<10 || fi.Mode().Perm() != 0o600 {
		t.Errorf("an idle sandbox is %v, %v", fi, err)
	}
	other, c := fork(t, dir, info, small)
	defer other.Destroy(context.Background())
	defer c.Close()
	again := t.TempDir()
	snapshot(t, other, again)
	a, _ := os.ReadFile(filepath.Join(dir, "files"))
	b, _ := os.ReadFile(filepath.Join(again, "files"))
	if !bytes.Equal(a, b) {
		t.Errorf("restored and kept again it is %d bytes, was %d, or they differ", len(b), len(a))
	}
}

// TestSparseStream checks that a hole of a terabyte is not a terabyte of zeros.
func TestSparseStream(t *testing.T) {
	in, c := box(t, small)
	sh(t, c, `cd /tmp; printf begin > hole; truncate -s 1099511627776 hole
printf begin > mid; truncate -s 500000 mid; printf middle >> mid; truncate -s 900000 mid; touch -d '1969-12-31 23:59:58.25' mid; chown 4000000:5000000 mid`)
	dir := t.TempDir()
	info := snapshot(t, in, dir)
	rc, err := sim.New(sim.Options{}).SnapshotFiles(t.Context(), dir, info, driver.Spec{Limits: small})
	if err != nil {
		t.Fatal(err)
	}
	defer rc.Close()
	raw, err := io.ReadAll(io.LimitReader(rc, 10<<20))
	if err != nil || len(raw) > 100_000 {
		t.Fatalf("the stream has %d bytes, %v", len(raw), err)
	}
	tr, seen := tar.NewReader(bytes.NewReader(raw)), 0
	for {
		h, err := tr.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		switch h.Name {
		case "tmp/hole":
			seen++
			var b [8]byte
			if _, err := io.ReadFull(tr, b[:]); h.Size != 1<<40 || string(b[:]) != "begin\x00\x00\x00" || err != nil {
				t.Errorf("%+v %q, %v", h, b, err)
			}
		case "tmp/mid":
			seen++
			data, err := io.ReadAll(tr)
			want := append(append(append([]byte("begin"), make([]byte, 499_995)...), "middle"...), make([]byte, 399_994)...)
			if err != nil || !bytes.Equal(data, want) {
				t.Errorf("%d bytes, %v", len(data), err)
			}
			if h.Uid != 4000000 || h.Gid != 5000000 || h.Mode != 0o644 || h.ModTime.Unix() < -2 || h.ModTime.Unix() > 0 {
				t.Errorf("%+v", h)
			}
		}
	}
	if seen != 2 {
		t.Errorf("%d of 2 files", seen)
	}
}

// TestHostileSnapshot restores files with a right checksum and wrong content.
func TestHostileSnapshot(t *testing.T) {
	const magic = "carrel sim 1\n"
	signed := func(body string) []byte {
		all := magic + body
		sum := sha256.Sum256([]byte(all))
		return append([]byte(all), sum[:]...)
	}
	const root = "D\x00\xed\x83\x80\x80\x08\x00\x00\x00\x00\x00"
	info := driver.SnapshotInfo{Driver: "sim", Build: "sim 1"}
	d := sim.New(sim.Options{})
	try := func(dir string) (driver.Instance, error) {
		return d.Restore(t.Context(), dir, info, driver.Spec{ID: carrel.NewID(), Limits: small}, driver.RestoreOptions{})
	}
	for name, c := range map[string]struct {
		data []byte
		kind carrel.Kind
	}{
		"the control": {signed("E"), ""},
		"empty body":  {signed(""), carrel.Invalid},
		"climbs":      {signed(root + "F\x02..\xa4\x03\x00\x00\x00\x00\x00\x00\x00UE"), carrel.Invalid},
		"a path":      {signed(root + "F\x0b/etc/passwd\xa4\x03\x00\x00\x00\x00\x00\x00\x00UE"), carrel.Invalid},
		"goes on":     {signed("EE"), carrel.Invalid},
		"huge":        {signed(root + "F\x01f\xa4\x03\x00\x00\x00\x00\x00\x80\x80\x80\x80\x80\x20\x01\xff\xff\xff\x0fx\x00UE"), carrel.Exhausted},
		"no sum":      {[]byte(magic + "E"), carrel.Invalid},
		"wrong sum":   {append([]byte(magic+"E"), make([]byte, 32)...), carrel.Invalid},
		"next format": {bytes.Replace(signed("E"), []byte("sim 1"), []byte("sim 2"), 1), carrel.Invalid},
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "files"), c.data, 0o600); err != nil {
			t.Fatal(err)
		}
		in, err := try(dir)
		if carrel.KindOf(err) != c.kind || (in == nil) != (err != nil) {
			t.Errorf("%s: %v", name, err)
		}
		if in != nil {
			if err := in.Destroy(t.Context()); err != nil {
				t.Error(err)
			}
		}
	}
	// A file that is not a plain file must not be read, and must not block.
	for name, mk := range map[string]func(string) error{
		"pipe":   func(n string) error { return syscall.Mkfifo(n, 0o600) },
		"device": func(n string) error { return os.Symlink("/dev/zero", n) },
		"link": func(n string) error {
			real := n + ".real"
			return errors.Join(os.WriteFile(real, signed("E"), 0o600), os.Symlink(real, n))
		},
	} {
		dir := t.TempDir()
		if err := mk(filepath.Join(dir, "files")); err != nil {
			t.Fatal(err)
		}
		if _, err := try(dir); carrel.KindOf(err) != carrel.Invalid {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestDestroyEndsStreams destroys a sandbox while others read from it. Every reader must get an
// error and not hang.
func TestDestroyEndsStreams(t *testing.T) {
	in, c := box(t, small)
	var wg sync.WaitGroup
	var ready sync.WaitGroup
	end := func(name string, f func(started func()) error) {
		ready.Add(1)
		wg.Go(func() {
			err := f(sync.OnceFunc(ready.Done))
			if !errors.Is(err, carrel.Unavailable) {
				t.Errorf("%s ended with %v (%s), want Unavailable", name, err, carrel.KindOf(err))
			}
		})
	}
	start := func(cmd carrel.Command) func(func()) error {
		return func(started func()) error {
			cmd.Stdout = io.Discard
			p, err := c.Start(t.Context(), cmd)
			started()
			if err != nil {
				return err
			}
			defer p.Close()
			_, err = p.Wait(t.Context())
			return err
		}
	}
	end("a silent command", start(carrel.Command{Shell: "sleep 1000"}))
	end("a loud command", start(carrel.Command{Shell: "yes"}))
	end("a pipeline", start(carrel.Command{Shell: "while :; do echo x; done | cat | cat"}))
	end("one that reads", start(carrel.Command{Shell: "cat", OpenStdin: true}))
	end("a terminal", start(carrel.Command{Args: []string{"/bin/bash", "-i", "-l"}, TTY: &carrel.Size{Cols: 80, Rows: 24}}))
	end("a watch", func(started func()) error {
		time.AfterFunc(100*time.Millisecond, started)
		return c.Files("root").Watch(t.Context(), "/tmp", true, func(carrel.FileEvent) {})
	})
	end("a download", func(started func()) error {
		defer started()
		if _, err := c.Files("root").Write(t.Context(), "/tmp/big", bytes.NewReader(make([]byte, 8<<20))); err != nil {
			return err
		}
		rc, err := c.Files("root").Read(t.Context(), "/tmp/big")
		if err != nil {
			return err
		}
		defer rc.Close()
		if _, err := io.ReadFull(rc, make([]byte, 10)); err != nil {
			return err
		}
		started()
		if _, err := in.Wait(t.Context()); err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, rc)
		return err
	})
	ready.Wait()
	time.Sleep(20 * time.Millisecond)
	if err := in.Destroy(t.Context()); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
}

// TestSnapshotHammer takes snapshots, restores, uses and destroys sandboxes from many goroutines.
func TestSnapshotHammer(t *testing.T) {
	root, driverOne := t.TempDir(), sim.New(sim.Options{})
	var next atomic.Int64
	type moment struct {
		dir  string
		info driver.SnapshotInfo
		n    int // content of its /tmp/n
	}
	shared, c := box(t, small)
	sh(t, c, "echo 0 > /tmp/n")
	var mu sync.Mutex
	moments := []moment{}
	keep := func(in driver.Instance, n int) error {
		m := moment{dir: filepath.Join(root, fmt.Sprint(next.Add(1))), n: n}
		if err := os.Mkdir(m.dir, 0o700); err != nil {
			return err
		}
		var err error
		if m.info, err = in.(driver.Snapshotter).Snapshot(t.Context(), m.dir, driver.SnapshotOptions{}); err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		moments = append(moments, m)
		return nil
	}
	if err := keep(shared, 0); err != nil {
		t.Fatal(err)
	}
	rounds := 40
	if testing.Short() {
		rounds = 10
	}
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range rounds {
				mu.Lock()
				m := moments[(g*7+i*13)%len(moments)]
				mu.Unlock()
				if err := generation(t, driverOne, m.dir, m.info, m.n, keep); err != nil {
					t.Errorf("goroutine %d, round %d: %v", g, i, err)
					return
				}
				if err := keep(shared, 0); err != nil && carrel.KindOf(err) != carrel.Conflict {
					t.Error(err)
				}
			}
		})
	}
	wg.Go(func() { // writes to the original all the time
		for i := range 20 * rounds {
			if _, err := c.Files("root").Write(t.Context(), "/tmp/noise", strings.NewReader(strings.Repeat("x", i*100))); err != nil {
				t.Error(err)
			}
		}
	})
	wg.Wait()
	if got := sh(t, c, "cat /tmp/n"); got != "0" {
		t.Errorf("the original says %q", got)
	}
}

// generation restores a snapshot, changes it by one, and takes a new snapshot. Then it destroys the
// sandbox while a command runs in it and a snapshot may be under way.
func generation(t *testing.T, d *sim.Driver, dir string, info driver.SnapshotInfo, n int, keep func(driver.Instance, int) error) error {
	in, err := d.Restore(t.Context(), dir, info, driver.Spec{ID: carrel.NewID(), Limits: small}, driver.RestoreOptions{})
	if err != nil {
		return err
	}
	c := guest.NewConn(in.Dial, guest.ConnOptions{})
	defer c.Close()
	res, err := c.Run(t.Context(), carrel.Command{Args: []string{"/bin/sh", "-c", "n=$(cat /tmp/n); echo $n; echo $((n+1)) > /tmp/n"}, User: "root"})
	if err != nil || strings.TrimSpace(string(res.Stdout)) != fmt.Sprint(n) {
		return errors.Join(err, fmt.Errorf("generation %d says %+v", n, res))
	}
	if err := keep(in, n+1); err != nil {
		return err
	}
	var wg sync.WaitGroup
	wg.Go(func() { _, _ = c.Run(t.Context(), carrel.Command{Shell: "yes > /tmp/yes"}) })
	wg.Go(func() {
		if err := keep(in, n+1); err != nil && carrel.KindOf(err) != carrel.Unavailable && carrel.KindOf(err) != carrel.Conflict {
			t.Error(err)
		}
	})
	err = in.Destroy(t.Context())
	wg.Wait()
	return err
}

func BenchmarkSnapshotRestore(b *testing.B) {
	in, _ := box(b, small)
	d, root := sim.New(sim.Options{}), b.TempDir()
	i := 0
	for b.Loop() {
		dir := filepath.Join(root, fmt.Sprint(i))
		i++
		info := snapshot(b, in, dir)
		r, err := d.Restore(b.Context(), dir, info, driver.Spec{ID: carrel.NewID(), Limits: small}, driver.RestoreOptions{})
		if err != nil {
			b.Fatal(err)
		}
		_ = r.Destroy(b.Context())
	}
}
