package oshost_test

import (
	"io"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/carrel-dev/carrel/internal/guest/agent"
	"github.com/carrel-dev/carrel/internal/guest/oshost"
)

// runProc runs a shell line to its end and returns both outputs.
func runProc(t *testing.T, s *oshost.System, line, input string, withInput bool) (out, errs string) {
	t.Helper()
	me, err := s.User("root")
	if err != nil {
		t.Fatal(err)
	}
	me.UID, me.GID = uint32(os.Getuid()), uint32(os.Getgid())
	p, err := s.Start(agent.Cmd{Path: "/bin/sh", Args: []string{"-c", line}, Env: []string{"PATH=/bin:/usr/bin"}, Dir: "/", User: me, Stdin: withInput})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Release()
	var texts [2]string
	var wg sync.WaitGroup
	for i, r := range []io.Reader{p.Stdout(), p.Stderr()} {
		wg.Go(func() {
			data, err := io.ReadAll(r)
			if err != nil {
				t.Error(err)
			}
			texts[i] = string(data)
		})
	}
	if w := p.Stdin(); w != nil {
		if _, err := io.WriteString(w, input); err != nil {
			t.Error(err)
		}
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	}
	wg.Wait()
	if e := p.Wait(); e.Code != 0 {
		t.Errorf("%s: %+v, %s", line, e, texts[1])
	}
	return texts[0], texts[1]
}

// openFiles counts the open descriptors of this process.
func openFiles(t *testing.T) int {
	t.Helper()
	names, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(names)
}

// TestPipesReady shows that each process has its own pipes and sees no others, whether they were
// ready or not, and whatever the process before it needed. None are left in the end.
func TestPipesReady(t *testing.T) {
	if err := oshost.CloseOnExec(); err != nil { // files that the tester's shell has open
		t.Fatal(err)
	}
	warm := oshost.New(oshost.Options{}) // the first pipe opens the poller's own descriptors
	runProc(t, warm, "true", "", true)
	if err := warm.Close(); err != nil {
		t.Fatal(err)
	}
	before := openFiles(t)
	s := oshost.New(oshost.Options{})
	for i, withInput := range []bool{true, true, false, false, true, false} {
		// ls also has the listed directory open.
		out, errs := runProc(t, s, `cat; echo of the first; echo of the second >&2; ls /proc/self/fd | tr "\n" " "`, "input\n", withInput)
		want := "of the first\n0 1 2 3 "
		if withInput {
			want = "input\n" + want
		}
		if out != want || errs != "of the second\n" {
			t.Errorf("process %d wrote %q and %q, want %q", i, out, errs, want)
		}
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 5 {
				if out, _ := runProc(t, s, "cat", "mine", true); out != "mine" {
					t.Errorf("one of many wrote %q", out)
				}
			}
		})
	}
	wg.Wait()
	if out, _ := runProc(t, s, "echo "+strings.Repeat("x", 100), "", false); len(out) != 101 {
		t.Errorf("%d bytes", len(out))
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if after := openFiles(t); after != before {
		t.Errorf("%d descriptors are open, %d were before", after, before)
	}
}
