package agent_test

import (
	"bytes"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"time"

	"github.com/carrel-dev/carrel/internal/guest/agent"
)

// countingListener counts the reads of its connections.
type countingListener struct {
	net.Listener
	reads atomic.Int64
}

type countingConn struct {
	*net.TCPConn
	reads *atomic.Int64
}

func (l *countingListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &countingConn{c.(*net.TCPConn), &l.reads}, nil
}

func (c *countingConn) Read(p []byte) (int, error) {
	c.reads.Add(1)
	return c.TCPConn.Read(p)
}

// serve serves the handler on a listener until the test's end.
func serve(t *testing.T, wrap func(net.Listener) net.Listener, h http.Handler) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	srv := &http.Server{Handler: h}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = srv.Serve(wrap(l)) // ends with Close
	}()
	t.Cleanup(func() { _ = srv.Close(); <-done })
	return "http://" + l.Addr().String()
}

// lastRead is a source that signals when its last bytes were read.
type lastRead struct {
	source
	over chan struct{}
}

func (s *lastRead) Read(p []byte) (int, error) {
	n, err := s.source.Read(p)
	if err == io.EOF {
		close(s.over)
	}
	return n, err
}

// TestReadAheadReadsMuchAtOnce uploads a body in the 32 KiB chunks that Go's client makes of a
// stream, and counts the reads. It starts to read only when the body has arrived; otherwise the
// count would depend on the speed of both sides.
func TestReadAheadReadsMuchAtOnce(t *testing.T) {
	const size = 1 << 20
	reads := func(ahead bool) int64 {
		var count *countingListener
		sent := make(chan struct{})
		url := serve(t, func(l net.Listener) net.Listener {
			count = &countingListener{Listener: l}
			if ahead {
				return agent.ReadAhead(count)
			}
			return count
		}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			select {
			case <-sent:
			case <-time.After(10 * time.Second): // the sockets can't hold all of it
			}
			if n, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, r.Body, make([]byte, 1<<20)); n != size || err != nil {
				t.Errorf("%d bytes arrived, %v", n, err)
			}
		}))
		resp, err := http.Post(url, "application/octet-stream", &lastRead{source{left: size}, sent})
		must(t, err)
		must(t, resp.Body.Close())
		return count.reads.Load()
	}
	plain, ahead := reads(false), reads(true)
	t.Logf("%d reads without, %d with", plain, ahead)
	if ahead*2 > plain {
		t.Errorf("%d reads ahead, %d without", ahead, plain)
	}
}

// TestReadAheadChangesNothing sends bytes in pieces of all sizes and reads them in
// pieces of all sizes.
func TestReadAheadChangesNothing(t *testing.T) {
	raw, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	l := agent.ReadAhead(raw)
	defer l.Close()
	want := make([]byte, 8<<20)
	for i := range want {
		want[i] = byte(rand.Uint32())
	}
	sent := make(chan error, 1)
	go func() {
		c, err := net.Dial("tcp", raw.Addr().String())
		if err != nil {
			sent <- err
			return
		}
		for rest := want; len(rest) > 0 && err == nil; {
			n := min(1+rand.IntN(1<<rand.IntN(20)), len(rest))
			_, err = c.Write(rest[:n])
			rest = rest[n:]
		}
		if err == nil {
			err = c.(*net.TCPConn).CloseWrite()
		}
		reply, rerr := io.ReadAll(c)
		if err == nil && rerr == nil && string(reply) != "thanks" {
			rerr = io.ErrUnexpectedEOF
		}
		if err == nil {
			err = rerr
		}
		_ = c.Close()
		sent <- err
	}()
	c, err := l.Accept()
	must(t, err)
	var got bytes.Buffer
	for {
		p := make([]byte, 1+rand.IntN(1<<rand.IntN(20)))
		n, err := c.Read(p)
		got.Write(p[:n])
		if err == io.EOF {
			break
		}
		must(t, err)
	}
	if !bytes.Equal(got.Bytes(), want) {
		t.Errorf("%d bytes came, not those sent", got.Len())
	}
	_, err = c.(io.ReaderFrom).ReadFrom(iotest.OneByteReader(strings.NewReader("thanks")))
	must(t, err)
	must(t, c.(interface{ CloseWrite() error }).CloseWrite())
	must(t, <-sent)
	must(t, c.Close())
}
