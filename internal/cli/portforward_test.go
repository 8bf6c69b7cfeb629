package cli

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
)

// portBox is a service with one sandbox. Its ports are listeners of the test.
type portBox struct {
	fake
	mu    sync.Mutex
	ports map[uint16]string
}

func (b *portBox) Computer(ctx context.Context, id carrel.ID) (carrel.Computer, error) {
	if b.state() != carrel.Running {
		return nil, &carrel.Error{Op: "open computer", Kind: carrel.Conflict, ID: id}
	}
	return portComputer{box: b}, nil
}

func (b *portBox) state() carrel.State {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.box.State
}

func (b *portBox) Get(_ context.Context, id carrel.ID) (carrel.Sandbox, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.box, b.known(id)
}

func (b *portBox) Resume(context.Context, carrel.ID, carrel.ResumeOptions) (carrel.Sandbox, bool, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.box.State = carrel.Running
	return b.box, true, nil
}

type portComputer struct {
	carrel.Computer
	box *portBox
}

func (c portComputer) Dial(ctx context.Context, port uint16) (net.Conn, error) {
	addr, ok := c.box.ports[port]
	if !ok {
		return nil, fmt.Errorf("port %d: %w", port, syscall.ECONNREFUSED)
	}
	return (&net.Dialer{}).DialContext(ctx, "tcp", addr)
}

// lineWriter passes on complete lines.
type lineWriter struct {
	mu    sync.Mutex
	buf   bytes.Buffer
	lines chan string
}

func (w *lineWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.buf.Write(p)
	for {
		line, err := w.buf.ReadString('\n')
		if err != nil {
			w.buf.WriteString(line)
			return len(p), nil
		}
		w.lines <- strings.TrimSpace(line)
	}
}

func (w *lineWriter) next(t *testing.T) string {
	t.Helper()
	select {
	case l := <-w.lines:
		return l
	case <-time.After(time.Minute):
		t.Fatal("no line came")
		return ""
	}
}

// TestPortForward forwards several connections at once to a sandbox that the first one wakes. Each
// direction must close separately. For a closed port there must be a message and a reset.
func TestPortForward(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { // greets, reads to the end, then answers: works only with half-close
				defer c.Close()
				fmt.Fprintln(c, "hello")
				raw, _ := io.ReadAll(c)
				fmt.Fprintf(c, "%d bytes", len(raw))
			}()
		}
	}()
	box := &portBox{ports: map[uint16]string{3000: l.Addr().String()}}
	box.box = carrel.Sandbox{ID: boxID, State: carrel.Paused, Lifecycle: carrel.Lifecycle{AutoResume: true}}
	out, errs := &lineWriter{lines: make(chan string, 16)}, &lineWriter{lines: make(chan string, 16)}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	a := &app{out: out, err: errs, open: func(context.Context) (carrel.Service, error) { return box, nil }}
	done := make(chan int, 1)
	local := quietPort(t)
	go func() {
		done <- a.main(ctx, []string{"--json", "port-forward", string(boxID), fmt.Sprintf("%d:3000", local), "0:9999"})
	}()
	addrs := map[uint16]string{}
	for range 2 {
		var line struct {
			Event, Address string
			Remote         uint16
		}
		if text := out.next(t); json.Unmarshal([]byte(text), &line) != nil || line.Event != "listening" || !strings.HasPrefix(line.Address, "127.0.0.1:") {
			t.Fatalf("line %q", text)
		}
		addrs[line.Remote] = line.Address
	}
	var conns []net.Conn
	for range 8 {
		c, err := net.Dial("tcp", addrs[3000])
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(time.Minute))
		conns = append(conns, c)
	}
	for i, c := range conns {
		br := bufio.NewReader(c)
		if line, err := br.ReadString('\n'); line != "hello\n" {
			t.Fatalf("%q, %v", line, err)
		}
		if _, err := c.Write(make([]byte, 100_000+i)); err != nil {
			t.Fatal(err)
		}
		if err := c.(*net.TCPConn).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if raw, err := io.ReadAll(br); err != nil || string(raw) != fmt.Sprintf("%d bytes", 100_000+i) {
			t.Errorf("connection %d: %q, %v", i, raw, err)
		}
	}
	if box.state() != carrel.Running {
		t.Error("nobody woke it")
	}
	c, err := net.Dial("tcp", addrs[9999])
	if err == nil { // the reset may come before Dial returns
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(time.Minute))
		_, err = io.ReadAll(c)
	}
	if !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("a closed port: %v", err)
	}
	if text := out.next(t); !strings.Contains(text, `"event":"failed"`) || !strings.Contains(text, "nothing listens on port 9999") {
		t.Errorf("line %q", text)
	}
	cancel()
	select {
	case code := <-done:
		if code != 0 {
			t.Errorf("status %d", code)
		}
	case <-time.After(time.Minute):
		t.Fatal("it goes on")
	}
	if c, err := net.Dial("tcp", addrs[3000]); err == nil {
		c.Close()
		t.Error("it listens on")
	}
}

// quietPort returns a free loopback port that no program gets for port 0. So after a close, only
// the earlier listener could answer there.
func quietPort(t *testing.T) int {
	t.Helper()
	for range 1000 {
		port := 10_000 + rand.IntN(20_000) // below the ephemeral ports of Linux, macOS and Windows
		if l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
			_ = l.Close()
			return port
		}
	}
	t.Fatal("no free port from 10000 to 29999")
	return 0
}

func TestParseForward(t *testing.T) {
	for spec, want := range map[string][2]uint16{"3000": {3000, 3000}, "0:80": {0, 80}, "8080:80": {8080, 80}} {
		if l, r, err := parseForward(spec); err != nil || [2]uint16{l, r} != want {
			t.Errorf("%s: %d, %d, %v", spec, l, r, err)
		}
	}
	for _, spec := range []string{"", ":", "80:", ":80", "0", "1:0", "70000", "x", "1:2:3", "-1:80", "127.0.0.1:80:80"} {
		if _, _, err := parseForward(spec); carrel.KindOf(err) != carrel.Invalid {
			t.Errorf("%q: %v", spec, err)
		}
	}
	if _, _, err := parseForward("1:49983"); carrel.KindOf(err) != carrel.Forbidden {
		t.Errorf("the guest's port: %v", err)
	}
}
