package zmtp_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/carrel-dev/carrel/internal/guest/interpreter/zmtp"
)

// greeting is a peer's: 3.1, NULL.
func greeting() []byte {
	g := make([]byte, 64)
	g[0], g[9], g[10], g[11] = 0xff, 0x7f, 3, 1
	copy(g[12:], "NULL")
	return g
}

// ready is the READY command of a socket of a type.
func ready(typ string) []byte {
	body := append([]byte{5}, "READY"...)
	body = append(append(body, 11), "Socket-Type"...)
	body = binary.BigEndian.AppendUint32(body, uint32(len(typ)))
	body = append(body, typ...)
	return append([]byte{4, byte(len(body))}, body...)
}

// peer returns a connection whose far end has written raw, and the far end.
func peer(t testing.TB, raw []byte, opts zmtp.Options) (*zmtp.Conn, net.Conn, error) {
	t.Helper()
	near, far := net.Pipe()
	t.Cleanup(func() { _ = near.Close(); _ = far.Close() })
	go func() { _, _ = far.Write(raw) }()
	seen := make([]byte, 64)
	go func() { _, _ = io.ReadFull(far, seen); _, _ = io.CopyN(io.Discard, far, 2+28) }()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	c, err := zmtp.New(ctx, near, opts)
	return c, far, err
}

func TestHandshake(t *testing.T) {
	bad := greeting()
	bad[10] = 1
	plain := greeting()
	copy(plain[12:], "PLAIN")
	for _, c := range []struct {
		name string
		raw  []byte
		fail bool
	}{
		{"router", append(greeting(), ready("ROUTER")...), false},
		{"publisher", append(greeting(), ready("PUB")...), true},
		{"old version", append(bad, ready("ROUTER")...), true},
		{"other mechanism", append(plain, ready("ROUTER")...), true},
		{"message for a command", append(greeting(), 0, 1, 'x'), true},
		{"HTTP", bytes.Repeat([]byte("GET / HTTP/1.1\r\n"), 8), true},
		{"cut property", append(greeting(), 4, 8, 5, 'R', 'E', 'A', 'D', 'Y', 200, 'x'), true},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, _, err := peer(t, c.raw, zmtp.Options{Type: zmtp.Dealer, MaxMessage: 100})
			if (err != nil) != c.fail {
				t.Errorf("error %v, want one: %v", err, c.fail)
			}
		})
	}
}

func TestReceive(t *testing.T) {
	long := append([]byte{2}, binary.BigEndian.AppendUint64(nil, 300)...)
	long = append(long, bytes.Repeat([]byte("x"), 300)...)
	raw := append(greeting(), ready("ROUTER")...)
	raw = append(raw, 1, 1, 'a', 0, 2, 'b', 'c') // a message of two frames
	raw = append(append(raw, 1, 1, 'd'), long...)
	raw = append(raw, 0, 1, 'e')
	c, _, err := peer(t, raw, zmtp.Options{Type: zmtp.Dealer, MaxMessage: 100})
	if err != nil {
		t.Fatal(err)
	}
	m, err := c.Receive()
	if err != nil || len(m.Frames) != 2 || string(m.Frames[1]) != "bc" {
		t.Fatalf("%q, %v", m.Frames, err)
	}
	m, err = c.Receive()
	if err != nil || string(m.Frames[0]) != "d" || len(m.Frames[1]) != 0 || m.Lost != 300 {
		t.Fatalf("a message that is too long: %q, lost %d, %v", m.Frames, m.Lost, err)
	}
	if m, err = c.Receive(); err != nil || string(m.Frames[0]) != "e" {
		t.Fatalf("the message after it: %q, %v", m.Frames, err)
	}
}

// TestHostileLength has a peer announce a frame that no memory could hold.
func TestHostileLength(t *testing.T) {
	raw := append(greeting(), ready("ROUTER")...)
	raw = append(append(raw, 2), binary.BigEndian.AppendUint64(nil, 1<<63)...)
	c, _, err := peer(t, raw, zmtp.Options{Type: zmtp.Dealer, MaxMessage: 1 << 40})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Receive(); !errors.Is(err, zmtp.ErrProtocol) {
		t.Errorf("error %v", err)
	}
}

func FuzzReceive(f *testing.F) {
	f.Add([]byte{1, 1, 'a', 0, 1, 'b'})
	f.Add([]byte{4, 7, 4, 'P', 'I', 'N', 'G', 0, 0})
	f.Add([]byte{2, 0, 0, 0, 0, 0, 0, 1, 0, 'x'})
	f.Fuzz(func(t *testing.T, raw []byte) {
		near, far := net.Pipe()
		defer near.Close()
		shaken := make(chan struct{}) // the handshake is over: what is left may be cut off
		go func() { _, _ = io.Copy(io.Discard, far) }()
		go func() {
			_, _ = far.Write(append(append(greeting(), ready("ROUTER")...), raw...))
			<-shaken
			_ = far.Close()
		}()
		c, err := zmtp.New(t.Context(), near, zmtp.Options{Type: zmtp.Dealer, MaxMessage: 64})
		if err != nil {
			t.Fatal(err)
		}
		close(shaken)
		for {
			m, err := c.Receive()
			if err != nil {
				return
			}
			total := 0
			for _, f := range m.Frames {
				total += len(f)
			}
			if total > 64 {
				t.Fatalf("%d bytes kept", total)
			}
		}
	})
}
