package postgres_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/state"
	"github.com/carrel-dev/carrel/internal/state/postgres"
	"github.com/carrel-dev/carrel/internal/state/postgres/postgrestest"
)

// loss is what a line does to the next commit.
type loss int32

const (
	nothing    loss = iota
	loseAnswer      // the server commits, and the connection ends before the answer
	loseCommit      // the connection ends before the server has the commit
	silence         // the server commits, and the answer never comes
	cutOff          // loseAnswer, and no connection is possible until the line is whole again
)

// line is a socket between a store and its server that can break in a commit.
type line struct {
	dir    string
	server string
	next   atomic.Int32 // the loss
	cut    atomic.Bool
	lost   atomic.Int32 // how many commits met a loss
	wg     sync.WaitGroup
	mu     sync.Mutex
	conns  []net.Conn
}

// newLine lays a line to a server.
func newLine(t *testing.T, server *postgrestest.Server) *line {
	t.Helper()
	dir, err := os.MkdirTemp("", "carrel-line-") // t.TempDir may be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	l := &line{dir: dir, server: server.Socket()}
	listener, err := net.Listen("unix", filepath.Join(dir, filepath.Base(l.server)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		l.mu.Lock()
		for _, c := range l.conns {
			_ = c.Close()
		}
		l.mu.Unlock()
		if err := errors.Join(listener.Close(), os.RemoveAll(dir)); err != nil {
			t.Error(err)
		}
		l.wg.Wait()
	})
	l.wg.Go(func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			l.wg.Go(func() { l.serve(c) })
		}
	})
	return l
}

// serve joins a client with the server.
func (l *line) serve(client net.Conn) {
	defer client.Close()
	if l.cut.Load() {
		return
	}
	server, err := net.Dial("unix", l.server)
	if err != nil {
		return
	}
	defer server.Close()
	l.mu.Lock()
	l.conns = append(l.conns, client, server)
	l.mu.Unlock()
	answers := make(chan struct{})
	var deaf atomic.Bool // the client hears nothing any more
	defer func() { <-answers }()
	defer server.Close()
	go func() {
		defer close(answers)
		buf := make([]byte, 32<<10)
		for {
			n, err := server.Read(buf)
			if n > 0 && !deaf.Load() {
				_, _ = client.Write(buf[:n])
			} else if n > 0 && l.afterCommit(client) {
				return
			}
			if err != nil {
				_ = client.Close()
				return
			}
		}
	}()
	for first := true; ; first = false {
		msg, err := message(client, first)
		if err != nil {
			return
		}
		if string(msg[min(len(msg), 5):]) == "commit\x00" && loss(l.next.Load()) != nothing {
			l.lost.Add(1)
			if l.next.CompareAndSwap(int32(loseCommit), int32(nothing)) {
				return
			}
			l.cut.Store(loss(l.next.Load()) == cutOff)
			deaf.Store(true)
		}
		if _, err := server.Write(msg); err != nil {
			return
		}
	}
}

// afterCommit is called when the answer to a commit has come that the client does not get. It
// reports whether the connection ends.
func (l *line) afterCommit(client net.Conn) bool {
	if l.next.Swap(int32(nothing)) == int32(silence) {
		return false
	}
	_ = client.Close()
	return true
}

// message reads one message of a client. The first one has no type.
func message(r io.Reader, first bool) ([]byte, error) {
	head := make([]byte, 5)
	if first {
		head = head[:4]
	}
	if _, err := io.ReadFull(r, head); err != nil {
		return nil, err
	}
	size := int(binary.BigEndian.Uint32(head[len(head)-4:])) - 4
	if size < 0 || size > 1<<26 {
		return nil, errors.New("no message of a client")
	}
	body := make([]byte, size)
	_, err := io.ReadFull(r, body)
	return append(head, body...), err
}

// testLostCommit breaks the connection in a commit: before the server has it, after, and without a
// word. The store finds out what happened: each write happens exactly once, and has no error.
func testLostCommit(t *testing.T, server *postgrestest.Server) {
	l := newLine(t, server)
	s := open(t, postgres.Options{URL: server.URLAt(l.dir, server.Database(t)), Timeout: 3 * time.Second})
	n := 0
	for _, how := range []loss{nothing, loseAnswer, loseCommit, loseAnswer, loseCommit, silence, nothing} {
		l.next.Store(int32(how))
		writers := 5
		if how == silence {
			writers = 1 // others would wait for too long behind it
		}
		var wg sync.WaitGroup
		for i := range writers {
			wg.Go(func() {
				e := carrel.Event{Time: time.Now(), Type: "x", Message: fmt.Sprint(n, "/", i)}
				if _, err := s.AppendEvent(t.Context(), e); err != nil {
					t.Errorf("loss %d: %v", how, err)
				}
			})
		}
		wg.Wait()
		n += writers
		numbered(t, s, n)
	}
	if got := l.lost.Load(); got != 5 {
		t.Errorf("%d commits were lost, want 5", got)
	}
}

// testLostServer breaks the connection in a commit, and lets no other through. Then the store can't
// know what happened, and says so. Later it works again, and the write happened once.
func testLostServer(t *testing.T, server *postgrestest.Server) {
	l := newLine(t, server)
	s := open(t, postgres.Options{URL: server.URLAt(l.dir, server.Database(t)), Timeout: hasty})
	c := one()
	l.next.Store(int32(cutOff))
	err := unavailable(t, "Apply", func() error { return s.Apply(t.Context(), c) })
	if !errors.Is(err, state.ErrUnknown) {
		t.Errorf("the caller can't tell that it may have happened: %v", err)
	}
	err = unavailable(t, "the next write", func() error { return s.Apply(t.Context(), one()) })
	if errors.Is(err, state.ErrUnknown) {
		t.Errorf("the next write did not begin: %v", err)
	}
	l.cut.Store(false)
	if err := s.Apply(t.Context(), one()); err != nil {
		t.Errorf("with the line whole again: %v", err)
	}
	if found := whole(t, s); len(found) != 2 || !found[c.Put[0].Sandbox.ID] {
		t.Errorf("%v", found)
	}
}
