package drivertest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand"
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/testenv"
)

func (s *suite) testInfo(t *testing.T) {
	d := s.open(t)
	if s.info.Name == "" || s.info.Tier == "" {
		t.Errorf("info is incomplete: %+v", s.info)
	}
	if err := d.Probe(t.Context()); err != nil {
		t.Fatalf("probe: %v (hint: %s)", err, carrel.HintOf(err))
	}
	b := s.box(t, d)
	if d.Info() != s.info {
		t.Errorf("info changed from %+v to %+v", s.info, d.Info())
	}
	if r, ok := driver.As[driver.Reporter](d); ok {
		for _, f := range r.Report(t.Context()) {
			if f.What == "" || f.Hint == "" {
				t.Errorf("a finding without what or hint: %+v", f)
			}
		}
	}
	s.testSnapshotInfo(t, b, d)
	h := b.in.Handle()
	if len(h) == 0 || len(h) > 4<<10 || !json.Valid(h) {
		t.Errorf("the handle is %d bytes: %.80q, want JSON of at most 4096", len(h), h)
	}
	if !bytes.Equal(h, b.in.Handle()) {
		t.Error("the handle changed")
	}
}

func (s *suite) testLife(t *testing.T) {
	d := s.open(t)
	b := s.box(t, d)
	t.Run("exec", func(t *testing.T) {
		if out := b.must(t, "echo hello $((40+2))"); out != "hello 42" {
			t.Errorf("echo gave %q", out)
		}
		if _, code, err := b.exec(t.Context(), "exit 7"); err != nil || code != 7 {
			t.Errorf("exit 7 gave %d, %v", code, err)
		}
	})
	t.Run("files", func(t *testing.T) { b.testFiles(t) })
	t.Run("private", func(t *testing.T) {
		if !s.info.Capabilities.Isolation {
			testenv.Inapplicable(t, "the driver does not isolate")
		}
		if out := b.must(t, "hostname"); out != string(b.spec.ID) {
			t.Errorf("the host name is %q, want the sandbox's ID", out)
		}
	})
	t.Run("stats", func(t *testing.T) { b.testStats(t) })
}

// testFiles moves a file of some size in and out.
func (b *box) testFiles(t *testing.T) {
	const size = 3<<20 + 17
	data := make([]byte, size)
	r := rand.New(rand.NewSource(1))
	_, _ = r.Read(data)
	f := b.conn.Files("root")
	info, err := f.Write(t.Context(), "/tmp/some/dir/data.bin", bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	if info.Path != "/tmp/some/dir/data.bin" {
		t.Errorf("written to %q", info.Path)
	}
	rc, err := f.Read(t.Context(), "/tmp/some/dir/data.bin")
	if err != nil {
		t.Fatal(err)
	}
	defer rc.Close()
	back, err := io.ReadAll(rc)
	if err != nil || sha256.Sum256(back) != sha256.Sum256(data) {
		t.Errorf("read %d bytes back, %v", len(back), err)
	}
	if out := b.must(t, "wc -c < /tmp/some/dir/data.bin"); strings.TrimSpace(out) != fmt.Sprint(size) {
		t.Errorf("the shell counts %s bytes", out)
	}
	if _, err := f.Read(t.Context(), "/tmp/absent"); carrel.KindOf(err) != carrel.NotFound {
		t.Errorf("reading nothing gave %v", err)
	}
}

func (b *box) testStats(t *testing.T) {
	st, err := b.in.Stats(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	c, l := b.s.info.Capabilities, b.spec.Limits
	if c.MemoryLimit && st.MemoryLimit != int64(l.MemoryMB)<<20 {
		t.Errorf("the memory limit is %d, want %d MiB", st.MemoryLimit, l.MemoryMB)
	}
	if c.DiskLimit && st.DiskLimit != int64(l.DiskMB)<<20 {
		t.Errorf("the disk limit is %d, want %d MiB", st.DiskLimit, l.DiskMB)
	}
	if st.CPU < 0 || st.Memory < 0 || st.MemoryCache > st.Memory || st.Disk < 0 || st.Pids < 0 {
		t.Errorf("impossible: %+v", st)
	}
	if c.RealProcesses && (st.Memory < 1<<20 || st.Memory > 8<<30 || st.Pids < 1 || st.CPU == 0) {
		t.Errorf("a running sandbox that uses %+v", st)
	}
	// Some hosts count processor time in ticks of 10 ms, and miss what runs between two of them.
	after := st
	for range 50 {
		b.must(t, "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done")
		if after, err = b.in.Stats(t.Context()); err != nil {
			t.Fatal(err)
		}
		if after.CPU > st.CPU {
			break
		}
	}
	if after.CPU < st.CPU || c.RealProcesses && after.CPU == st.CPU {
		t.Errorf("processor time went from %v to %v over a busy loop", st.CPU, after.CPU)
	}
}

func (s *suite) testPorts(t *testing.T) {
	d := s.open(t)
	b := s.box(t, d)
	t.Run("refused", func(t *testing.T) {
		c, err := b.in.Dial(t.Context(), 4)
		if c != nil {
			c.Close()
		}
		if !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("a closed port gave %v, want ECONNREFUSED", err)
		}
		wantError(t, err)
	})
	t.Run("context", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if c, err := b.in.Dial(ctx, carrel.GuestPort); err == nil {
			c.Close()
			t.Error("a dial with an ended context worked")
		}
	})
	t.Run("reverse", func(t *testing.T) { b.testReverse(t) })
	if s.attack == "" {
		return
	}
	b.upload(t)
	t.Run("own address", func(t *testing.T) {
		stop := b.background(t, "listen 0.0.0.0:8080 hello")
		defer stop()
		b.wantLine(t, b.in.Dial, 8080, "hello")
	})
	t.Run("loopback", func(t *testing.T) {
		stop := b.background(t, "listen 127.0.0.1:8081 tunnel")
		defer stop()
		b.wantLine(t, b.conn.Dial, 8081, "tunnel")
		if c, err := b.in.Dial(t.Context(), 8081); err == nil {
			c.Close()
			t.Error("a loopback listener answers on the sandbox's own address")
		}
	})
}

// wantLine dials a port until it answers with a line.
func (b *box) wantLine(t testing.TB, dial func(context.Context, uint16) (net.Conn, error), port uint16, want string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var c net.Conn
	testenv.EventuallyNil(t, fmt.Sprintf("port %d answers", port), func() (err error) { c, err = dial(ctx, port); return err })
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	if got, err := io.ReadAll(c); err != nil || string(got) != want+"\n" {
		t.Errorf("port %d said %q, %v", port, got, err)
	}
}

// background starts a part of the attack program and returns a function that stops it.
func (b *box) background(t testing.TB, part string) (stop func()) {
	t.Helper()
	p, err := b.conn.Start(t.Context(), carrel.Command{Args: append([]string{attackInside}, strings.Fields(part)...), User: "root", Dir: "/"})
	if err != nil {
		t.Fatalf("start %s: %v", part, err)
	}
	var once sync.Once
	return func() {
		once.Do(func() {
			_ = p.Signal(context.WithoutCancel(t.Context()), 9)
			_ = p.Close()
		})
	}
}
