package audit

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
)

// childDir makes the test binary a daemon that writes to a log until it is killed.
const childDir = "CARREL_AUDIT_TEST_DIR"

// crashing has small files, so that some kills hit a rotation.
var crashing = Options{MaxFile: 16 << 10, MaxFiles: 1000, bytes: 1 << 40, Rate: 1 << 30, SyncEvery: 10 * time.Millisecond}

func TestMain(m *testing.M) {
	if dir := os.Getenv(childDir); dir != "" {
		writeUntilKilled(dir)
	}
	os.Exit(m.Run())
}

// writeUntilKilled writes decisions. It prints how many are certainly on the disk.
func writeUntilKilled(dir string) {
	l, err := Open(dir, crashing)
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	var synced atomic.Int64
	var wg sync.WaitGroup
	for from := l.files.lastSeq(); ; {
		for range 20 {
			from++
			l.Write(refusal(boxA, int(from)))
		}
		wg.Wait()
		wg.Go(func() {
			n := from
			if err := l.ask(nilContext{}, true); err == nil && n > synced.Load() {
				synced.Store(n)
				fmt.Println(n)
			}
		})
	}
}

// TestKill shows that, after kill -9, all synced decisions are there, each once, and the numbering
// continues.
func TestKill(t *testing.T) {
	dir := t.TempDir()
	for round := range 8 {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), childDir+"="+dir)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		var synced int64
		sc := bufio.NewScanner(out)
		for n := 0; n < 5+7*round && sc.Scan(); n++ {
			if synced, err = strconv.ParseInt(sc.Text(), 10, 64); err != nil {
				t.Fatal(sc.Text())
			}
		}
		_ = cmd.Process.Kill()
		for sc.Scan() { // its last output before the kill counts too
			if n, err := strconv.ParseInt(sc.Text(), 10, 64); err == nil {
				synced = n
			}
		}
		_ = cmd.Wait() // it was killed
		l := open(t, dir, crashing)
		next := int64(0)
		for _, d := range all(t, l, carrel.AuditOptions{Limit: 1 << 30}) {
			if d.Seq != next+1 || d.Name != fmt.Sprintf("h%d.example.com", d.Seq) {
				t.Fatalf("round %d: after %d comes %+v", round, next, d)
			}
			next = d.Seq
		}
		if next < synced || synced == 0 {
			t.Errorf("round %d: %d were synced, %d are there", round, synced, next)
		}
		mustClose(t, l)
	}
	if names := fileNames(t, dir); len(names) < 3 {
		t.Errorf("no rotation was hit: %v", names)
	}
}

// nilContext never ends.
type nilContext struct{}

func (nilContext) Deadline() (time.Time, bool) { return time.Time{}, false }
func (nilContext) Done() <-chan struct{}       { return nil }
func (nilContext) Err() error                  { return nil }
func (nilContext) Value(any) any               { return nil }

// disk is a disk of limited size. Writes beyond it are cut short, as by write(2).
type disk struct {
	mu   sync.Mutex
	room int
	stop chan struct{} // writes wait until it is closed; nil for no wait
	fail bool          // truncation fails too
}

func (d *disk) set(room int, fail bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.room, d.fail = room, fail
}

func (d *disk) open(name string) (logFile, error) {
	f, err := openLogFile(name)
	return &diskFile{f, d}, err
}

type diskFile struct {
	logFile
	d *disk
}

func (f *diskFile) Write(p []byte) (int, error) {
	if f.d.stop != nil {
		<-f.d.stop
	}
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	n := min(len(p), f.d.room)
	f.d.room -= n
	n, err := f.logFile.Write(p[:n])
	if err == nil && n < len(p) {
		err = syscall.ENOSPC
	}
	return n, err
}

func (f *diskFile) Truncate(size int64) error {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	if f.d.fail {
		return syscall.EIO
	}
	return f.logFile.Truncate(size)
}

// TestDiskFull shows that decisions wait while the disk is full. No decision is written in part,
// and only allowed ones may be lost.
func TestDiskFull(t *testing.T) {
	for _, cutFails := range []bool{false, true} {
		t.Run(fmt.Sprintf("truncation fails %v", cutFails), func(t *testing.T) {
			dir := t.TempDir()
			d := &disk{room: 1 << 20}
			l := open(t, dir, Options{open: d.open, SyncEvery: 5 * time.Millisecond})
			l.Write(refusal(boxA, 1))
			if err := l.Sync(t.Context()); err != nil {
				t.Fatal(err)
			}
			d.set(300, cutFails)
			for i := 2; i <= 20; i++ {
				l.Write(refusal(boxA, i))
			}
			// The log may have tried by itself. Then the next try begins with the truncation.
			err := l.Sync(t.Context())
			if !errors.Is(err, syscall.ENOSPC) && !(cutFails && errors.Is(err, syscall.EIO)) {
				t.Errorf("on a full disk: %v", err)
			}
			if got := all(t, l, carrel.AuditOptions{}); len(got) != 1 {
				t.Errorf("it can be read meanwhile: %+v", got)
			}
			d.set(1<<20, false)
			if err := l.Sync(t.Context()); err != nil {
				t.Error(err)
			}
			mustClose(t, l)
			raw, err := os.ReadFile(filepath.Join(dir, activeName))
			if err != nil || strings.Count(string(raw), "\n") != 20 {
				t.Errorf("%q, %v", raw, err)
			}
			l = open(t, dir, Options{})
			for i, d := range all(t, l, carrel.AuditOptions{}) {
				if d.Seq != int64(i+1) || d.Name != fmt.Sprintf("h%d.example.com", i+1) {
					t.Errorf("%d is %+v", i, d)
				}
			}
		})
	}
}

// TestDiskFullAtTheEnd shows that Close reports what could not be written.
func TestDiskFullAtTheEnd(t *testing.T) {
	d := &disk{}
	l := open(t, t.TempDir(), Options{open: d.open})
	l.Write(refusal(boxA, 1))
	if err := l.Close(); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("got %v", err)
	}
}

// TestRotationFails shows that a failed new file is tried again.
func TestRotationFails(t *testing.T) {
	dir := t.TempDir()
	var broken atomic.Bool
	opts := Options{MaxFile: 1 << 10, MaxFiles: 100, bytes: 1 << 40, open: func(name string) (logFile, error) {
		if broken.Load() {
			return nil, syscall.EMFILE
		}
		return openLogFile(name)
	}}
	l := open(t, dir, opts)
	for i := range 3 {
		l.Write(refusal(boxA, i))
	}
	if err := l.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	broken.Store(true)
	for i := 3; i < 10; i++ {
		l.Write(refusal(boxA, i))
		if err := l.Sync(t.Context()); i > 6 && !errors.Is(err, syscall.EMFILE) {
			t.Errorf("%d: %v", i, err)
		}
	}
	if got := seqs(all(t, l, carrel.AuditOptions{})); len(got) < 3 || len(got) > 7 {
		t.Errorf("meanwhile: %v", got)
	}
	broken.Store(false)
	if got := seqs(all(t, l, carrel.AuditOptions{})); len(got) != 10 || got[9] != 10 {
		t.Errorf("afterwards: %v", got)
	}
}
