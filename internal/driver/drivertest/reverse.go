package drivertest

import (
	"errors"
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/testenv"
)

// testReverse listens in the sandbox for a client outside. The guest itself connects as the program
// inside: a connection through the host's tunnel arrives on the loopback there.
func (b *box) testReverse(t *testing.T) {
	l, err := b.conn.Listen(t.Context(), 0)
	if !b.s.info.Capabilities.RealProcesses {
		if carrel.KindOf(err) != carrel.Unsupported || carrel.HintOf(err) == "" {
			t.Errorf("listening gave %v, want a clear refusal", err)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	port := uint16(l.Addr().(*net.TCPAddr).Port)
	if _, err := b.conn.Listen(t.Context(), port); carrel.KindOf(err) != carrel.Conflict {
		t.Errorf("listening twice gave %v", err)
	}
	if c, err := b.in.Dial(t.Context(), port); err == nil {
		_ = c.Close()
		t.Error("it listens on the sandbox's own address too")
	}
	for _, text := range []string{"one", "another"} {
		inside, err := b.conn.Dial(t.Context(), port)
		if err != nil {
			t.Fatal(err)
		}
		_ = inside.SetDeadline(time.Now().Add(time.Minute))
		if _, err := io.WriteString(inside, text); err != nil {
			t.Fatal(err)
		}
		_ = inside.(interface{ CloseWrite() error }).CloseWrite()
		out, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		_ = out.SetDeadline(time.Now().Add(time.Minute))
		if got, err := io.ReadAll(out); err != nil || string(got) != text {
			t.Errorf("out came %q, %v", got, err)
		}
		if _, err := io.WriteString(out, "back "+text); err != nil {
			t.Error(err)
		}
		_ = out.(interface{ CloseWrite() error }).CloseWrite()
		if got, err := io.ReadAll(inside); err != nil || string(got) != "back "+text {
			t.Errorf("back came %q, %v", got, err)
		}
		_, _ = out.Close(), inside.Close()
	}
	// When the listener ends, its connections end, too.
	inside, err := b.conn.Dial(t.Context(), port)
	if err != nil {
		t.Fatal(err)
	}
	defer inside.Close()
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	_ = inside.SetDeadline(time.Now().Add(time.Minute))
	if _, err := inside.Read(make([]byte, 1)); err == nil {
		t.Error("a connection outlived its listener")
	}
	testenv.Eventually(t, "nothing listens any more", func() bool {
		c, err := b.conn.Dial(t.Context(), port)
		if err == nil {
			_ = c.Close()
		}
		return errors.Is(err, syscall.ECONNREFUSED)
	})
	if _, err := l.Accept(); err == nil {
		t.Error("a closed listener accepts")
	}
}
