package drivertest

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/testenv"
)

// testNeighbours checks that two sandboxes can't see each other.
func (s *suite) testNeighbours(t *testing.T) {
	d := s.open(t)
	a, b := s.box(t, d), s.box(t, d)
	a.must(t, "echo secret > /tmp/of-a")
	if out, code, err := b.exec(t.Context(), "cat /tmp/of-a"); err == nil && code == 0 {
		t.Errorf("a file of one is read in the other: %q", out)
	}
	if !s.info.Capabilities.Isolation || s.attack == "" {
		return
	}
	a.upload(t)
	b.upload(t)
	marker := "marker" + string(a.spec.ID)
	p, err := a.conn.Start(t.Context(), carrel.Command{Args: []string{attackInside, "listen", "0.0.0.0:8080", marker}, User: "root"})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	a.wantLine(t, a.in.Dial, 8080, marker)
	// The marker is among the arguments of a's process. b looks at every process that it sees.
	if out, _, _ := b.exec(t.Context(), "cat /proc/[0-9]*/cmdline"); strings.Contains(out, marker) {
		t.Error("a process of one is seen in the other")
	} else if !strings.Contains(out, "cat") {
		t.Error("no process is seen at all: this proves nothing")
	}
	var to []string
	for _, host := range []string{driver.GuestIPv4, driver.GatewayIPv4, "10.73.0.0", "10.73.0.3", "10.73.0.6", "[" + driver.GuestIPv6 + "]", "[" + driver.GatewayIPv6 + "]"} {
		to = append(to, host+":8080")
	}
	b.run(t, time.Minute, nil, append([]string{"connect"}, to...)...).wantRefused(t, "connect", "tcp")
}

// testBombs checks that a sandbox that takes all the resources it can harms only itself.
func (s *suite) testBombs(t *testing.T) {
	if s.attack == "" || !s.info.Capabilities.Isolation {
		testenv.Inapplicable(t, "the driver runs no code that could take anything")
	}
	s.heavy(t)
	d := s.open(t)
	neighbour := s.box(t, d)
	healthy := func(t testing.TB) {
		t.Helper()
		start := time.Now()
		if out := neighbour.must(t, "echo fine"); out != "fine" {
			t.Errorf("the neighbour says %q", out)
		}
		if d := time.Since(start); d > time.Minute {
			t.Errorf("the neighbour took %v to answer", d)
		}
		s.box(t, d)
	}
	// over checks that a bombed sandbox still lives. It may also have ended, with a reason.
	over := func(t testing.TB, b *box) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for { // the rest of the bomb may hold everything for a while
			out, _, err := b.exec(ctx, "echo alive")
			if err == nil && out == "alive\n" {
				return
			}
			e, ended := waitShort(b.in, time.Second)
			if ended == nil && e.Reason != "" && e.Message != "" {
				return
			}
			if ended == nil || ctx.Err() != nil {
				t.Errorf("the sandbox neither answers nor ended with a reason: %q, %v; %+v, %v", out, err, e, ended)
				return
			}
		}
	}
	t.Run("forks", func(t *testing.T) {
		if !s.info.Capabilities.PidLimit {
			testenv.Inapplicable(t, "the number of processes is not limited on this host")
		}
		b := s.box(t, d)
		b.upload(t)
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
		defer cancel()
		done := make(chan string, 1)
		go func() {
			out, _, _ := b.exec(ctx, attackInside+" forks 5")
			done <- out
		}()
		time.Sleep(2 * time.Second)
		if st, err := b.in.Stats(t.Context()); err == nil && st.Pids > 50*s.Limits.Pids {
			t.Errorf("%d tasks on the host for a limit of %d", st.Pids, s.Limits.Pids)
		}
		healthy(t)
		if out := <-done; strings.Count(out, "\n") == 0 {
			t.Log("the bomb ended without a word")
		}
		time.Sleep(time.Second)
		over(t, b)
	})
	t.Run("disk", func(t *testing.T) {
		if !s.info.Capabilities.DiskLimit {
			testenv.Inapplicable(t, "the disk is not limited on this host")
		}
		b := s.box(t, d)
		b.upload(t)
		before := free(t)
		a := b.run(t, 2*time.Minute, nil, "disk", "/fill", fmt.Sprint(4*s.Limits.DiskMB))
		if len(a.worked("disk")) != 0 {
			t.Errorf("wrote four times the limit: %v", a)
		}
		if len(a) == 0 || !strings.Contains(a[0].detail, "no space left") {
			t.Errorf("want ENOSPC, got %v", a)
		}
		if used := before - free(t); used > int64(s.Limits.DiskMB)*2<<20+512<<20 {
			t.Errorf("the host lost %d MiB", used>>20)
		}
		b.must(t, "rm /fill && echo again > /again && cat /again")
		healthy(t)
	})
	t.Run("files", func(t *testing.T) {
		b := s.box(t, d)
		b.upload(t)
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
		defer cancel()
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, _, _ = b.exec(ctx, "ulimit -n unlimited 2>/dev/null; "+attackInside+" files 2")
		}()
		time.Sleep(time.Second)
		healthy(t)
		<-done
		over(t, b)
	})
	t.Run("memory beside a neighbour", func(t *testing.T) {
		if !s.info.Capabilities.MemoryLimit {
			testenv.Inapplicable(t, "memory is not limited on this host")
		}
		b := s.box(t, d)
		b.upload(t)
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
		defer cancel()
		_, _, _ = b.exec(ctx, fmt.Sprintf("%s memory %d", attackInside, 3*s.Limits.MemoryMB))
		healthy(t)
		over(t, b)
	})
}

// free is the free space of the filesystem that holds the test's files.
func free(t testing.TB) int64 {
	t.Helper()
	var st unix.Statfs_t
	if err := unix.Statfs(t.TempDir(), &st); err != nil {
		t.Fatal(err)
	}
	return int64(st.Bavail) * st.Bsize
}
