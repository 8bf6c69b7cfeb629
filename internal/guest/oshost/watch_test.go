package oshost_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/carrel-dev/carrel/internal/guest/agent"
)

func TestWatchErrors(t *testing.T) {
	s, _ := newSystem(t)
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "f"), nil, 0o644))
	if _, err := s.Watch(filepath.Join(dir, "absent"), false); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("absent: %v", err)
	}
	if _, err := s.Watch(filepath.Join(dir, "f"), true); !errors.Is(err, syscall.ENOTDIR) {
		t.Errorf("a file: %v", err)
	}
}

func TestWatchThroughALink(t *testing.T) {
	s, _ := newSystem(t)
	dir := t.TempDir()
	must(t, os.Mkdir(filepath.Join(dir, "real"), 0o755))
	link := filepath.Join(dir, "link")
	must(t, os.Symlink("real", link))
	w, err := s.Watch(link, true)
	must(t, err)
	defer w.Close()
	must(t, os.WriteFile(filepath.Join(dir, "real", "f"), nil, 0o644))
	select {
	case c := <-w.C():
		if c != (agent.Change{Path: filepath.Join(link, "f"), Op: agent.OpCreate}) {
			t.Errorf("change: %+v", c)
		}
	case <-time.After(time.Minute):
		t.Fatal("no change")
	}
}

// TestWatchClose closes watchers from several goroutines while directories come and go below them,
// with and without a reader of the changes.
func TestWatchClose(t *testing.T) {
	s, _ := newSystem(t)
	dir := t.TempDir()
	stop := make(chan struct{})
	var churn sync.WaitGroup
	churn.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			d := filepath.Join(dir, fmt.Sprint(i%10))
			_ = os.MkdirAll(filepath.Join(d, "x/y"), 0o755)
			_ = os.Rename(d, d+"z")
			_ = os.RemoveAll(d + "z")
		}
	})
	for i := range 50 {
		w, err := s.Watch(dir, true)
		must(t, err)
		if i%2 == 0 {
			<-w.C()
		}
		var closing sync.WaitGroup
		for range 3 {
			closing.Go(func() {
				if err := w.Close(); err != nil {
					t.Error(err)
				}
			})
		}
		closing.Wait()
		for range w.C() { // it is closed
			t.Fatal("a change after Close")
		}
		if err := w.Err(); err != nil {
			t.Errorf("after Close: %v", err)
		}
	}
	close(stop)
	churn.Wait()
}

// TestWatchOverflow makes more changes than the kernel keeps, while nobody reads them. The watcher
// must end with that error.
func TestWatchOverflow(t *testing.T) {
	s, _ := newSystem(t)
	dir := t.TempDir()
	w, err := s.Watch(dir, false)
	must(t, err)
	defer w.Close()
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	must(t, os.WriteFile(a, nil, 0o644))
	for range 20_000 {
		must(t, os.Rename(a, b))
		must(t, os.Rename(b, a))
	}
	timeout := time.After(time.Minute)
	for {
		select {
		case _, ok := <-w.C():
			if ok {
				continue
			}
			if w.Err() == nil {
				t.Error("no reason")
			}
			return
		case <-timeout:
			t.Fatal("no end")
		}
	}
}
