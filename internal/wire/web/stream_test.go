package web_test

import (
	"bufio"
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/carrel-dev/carrel"
)

// serveEach serves each connection to a listener.
func serveEach(t testing.TB, l net.Listener, serve func(net.Conn)) {
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer c.Close()
				serve(c)
			})
		}
	})
	t.Cleanup(func() { _ = l.Close(); wg.Wait() })
}

// rawServer starts a server that answers each connection after the head of its first request.
func rawServer(t testing.TB, f func(c io.ReadWriter)) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	serveEach(t, l, func(c net.Conn) {
		r := bufio.NewReader(c)
		for {
			line, err := r.ReadString('\n')
			if err != nil {
				return
			}
			if line == "\r\n" {
				break
			}
		}
		f(struct {
			io.Reader
			io.Writer
		}{r, c})
	})
	return l
}

// TestEvents has a server that sends the next event only when the client has received the last one.
// A proxy that buffers would hang, with scrubbing and without.
func TestEvents(t *testing.T) {
	heard := make(chan struct{})
	forms(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		w.(http.Flusher).Flush()
		for i := range 20 {
			select {
			case <-heard:
			case <-r.Context().Done():
				return
			}
			fmt.Fprintf(w, "data: %d\n\n", i)
			w.(http.Flusher).Flush()
		}
	}), func(t *testing.T, r *rig, c *http.Client) {
		for _, inject := range []bool{false, true} {
			if inject {
				r.inject(carrel.Injection{Bearer: "key", Cleartext: true})
			}
			res, err := c.Get(r.url("/"))
			if err != nil {
				t.Fatal(err)
			}
			lines := bufio.NewReader(res.Body)
			for i := range 20 {
				heard <- struct{}{}
				line, err := lines.ReadString('\n')
				if err != nil || line != fmt.Sprintf("data: %d\n", i) {
					t.Fatalf("%q, %v", line, err)
				}
				_, _ = lines.ReadString('\n')
			}
			if _, err := lines.ReadByte(); err != io.EOF {
				t.Error(err)
			}
			res.Body.Close()
		}
	})
}

// TestBothWays uses HTTP/2 as gRPC does: messages both ways at once, each an answer to the one
// before, then trailers.
func TestBothWays(t *testing.T) {
	for _, overTLS := range []bool{false, true} {
		s, ca := outsideServer(t, overTLS, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.ProtoMajor != 2 || r.Header.Get("Te") != "trailers" || r.Header.Get("Grpc-Accept-Encoding") != "identity" {
				w.WriteHeader(500)
				return
			}
			w.Header().Set("Content-Type", "application/grpc")
			w.(http.Flusher).Flush()
			for {
				var head [5]byte
				if _, err := io.ReadFull(r.Body, head[:]); err != nil {
					break
				}
				b := make([]byte, binary.BigEndian.Uint32(head[1:]))
				_, _ = io.ReadFull(r.Body, b)
				_, _ = w.Write(append(head[:], b...))
				w.(http.Flusher).Flush()
			}
			w.Header().Set(http.TrailerPrefix+"Grpc-Status", "0")
			w.Header().Set(http.TrailerPrefix+"Grpc-Message", "said "+r.Header.Get("Authorization")+r.Trailer.Get("X-Sum"))
		}))
		r := newRig(t, s.Listener.Addr(), overTLS, ca)
		r.inject(carrel.Injection{Bearer: "key", Cleartext: true})
		pr, pw := io.Pipe()
		req, _ := http.NewRequest("POST", r.url("/pkg.Service/Talk"), pr)
		req.Header.Set("Content-Type", "application/grpc")
		req.Header.Set("Te", "trailers")
		req.Header.Set("Grpc-Accept-Encoding", "gzip")
		req.Trailer = http.Header{"X-Sum": {"!"}}
		res, err := r.client(true).Do(req)
		if err != nil || res.StatusCode != 200 {
			t.Fatal(res, err)
		}
		for i := range 20 {
			text := fmt.Sprintf("message %d %s", i, secret)
			b := append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(text))), text...)
			if _, err := pw.Write(b); err != nil {
				t.Fatal(err)
			}
			got := make([]byte, len(b))
			if _, err := io.ReadFull(res.Body, got); err != nil {
				t.Fatal(err)
			}
			if want := strings.ReplaceAll(string(b), secret, strings.Repeat("*", len(secret))); string(got) != want {
				t.Fatalf("%q, not %q", got, want)
			}
		}
		_ = pw.Close()
		if rest, err := io.ReadAll(res.Body); err != nil || len(rest) > 0 {
			t.Error(rest, err)
		}
		res.Body.Close()
		if res.Trailer.Get("Grpc-Status") != "0" || res.Trailer.Get("Grpc-Message") != "said Bearer "+strings.Repeat("*", len(secret))+"!" {
			t.Errorf("trailer %v", res.Trailer)
		}
		if d := r.reported(1)[0]; d.Path != "/pkg.Service/Talk" || d.Sent < 600 || d.Received < 600 {
			t.Errorf("%+v", d)
		}
	}
}

// TestInformational checks status 100, when the server wants the body, and status 103.
func TestInformational(t *testing.T) {
	forms(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/no" {
			w.WriteHeader(413)
			return
		}
		w.Header().Set("Link", "</a>; rel=preload; x="+r.Header.Get("Authorization"))
		w.WriteHeader(103)
		b, _ := io.ReadAll(r.Body)
		_, _ = w.Write(b)
	}), func(t *testing.T, r *rig, c *http.Client) {
		r.inject(carrel.Injection{Bearer: "key", Cleartext: true})
		c.Transport.(*http.Transport).ExpectContinueTimeout = time.Minute
		for _, path := range []string{"/yes", "/no", "/hints"} {
			var got []int
			var link string
			ctx := httptrace.WithClientTrace(context.Background(), &httptrace.ClientTrace{Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
				got = append(got, code)
				link += h.Get("Link")
				return nil
			}})
			req, _ := http.NewRequestWithContext(ctx, "POST", r.url(path), strings.NewReader("the body"))
			req.Header.Set("Expect", "100-continue")
			if path == "/hints" {
				req, _ = http.NewRequestWithContext(ctx, "GET", r.url(path), nil)
			}
			res, err := c.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			b, _ := io.ReadAll(res.Body)
			res.Body.Close()
			if path == "/no" {
				if res.StatusCode != 413 {
					t.Error(res.Status)
				}
				continue
			}
			if path == "/yes" && string(b) != "the body" {
				t.Errorf("%q", b)
			}
			if path == "/hints" && (!strings.Contains(fmt.Sprint(got), "103") || link != "</a>; rel=preload; x=Bearer "+strings.Repeat("*", len(secret))) {
				t.Errorf("%v %q", got, link)
			}
		}
	})
}

// TestEncoded has a server that encodes although it was asked not to.
func TestEncoded(t *testing.T) {
	text := "before " + secret + " after"
	encode := map[string]func() []byte{
		"gzip": func() []byte {
			var b bytes.Buffer
			w := gzip.NewWriter(&b)
			_, _ = io.WriteString(w, text)
			_ = w.Close()
			return b.Bytes()
		},
		"deflate": func() []byte {
			var b bytes.Buffer
			w := zlib.NewWriter(&b)
			_, _ = io.WriteString(w, text)
			_ = w.Close()
			return b.Bytes()
		},
		"Deflate ": func() []byte {
			var b bytes.Buffer
			w, _ := flate.NewWriter(&b, 5)
			_, _ = io.WriteString(w, text)
			_ = w.Close()
			return b.Bytes()
		},
		"zstd": func() []byte { w, _ := zstd.NewWriter(nil); return w.EncodeAll([]byte(text), nil) },
		"br":   func() []byte { return []byte("whatever") },
	}
	forms(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := r.URL.Query().Get("as")
		w.Header().Set("Content-Encoding", name)
		_, _ = w.Write(encode[name]())
	}), func(t *testing.T, r *rig, c *http.Client) {
		for name := range encode {
			r.inject(carrel.Injection{Bearer: "key", Cleartext: true})
			res, err := c.Get(r.url("/?as=" + strings.ReplaceAll(name, " ", "%20")))
			if err != nil {
				t.Fatal(err)
			}
			b, err := io.ReadAll(res.Body)
			res.Body.Close()
			if name == "br" {
				if res.StatusCode != 502 || strings.Contains(string(b), "whatever") {
					t.Errorf("%s %q", res.Status, b)
				}
				continue
			}
			if want := "before " + strings.Repeat("*", len(secret)) + " after"; string(b) != want || err != nil || res.Header.Get("Content-Encoding") != "" {
				t.Errorf("%s: %q %v %v", name, b, err, res.Header)
			}
			// Where no secret is removed, the encoding stays.
			r.inject(carrel.Injection{Bearer: "key", Cleartext: true, KeepEchoes: true})
			res, err = c.Get(r.url("/?as=" + strings.ReplaceAll(name, " ", "%20")))
			if err != nil {
				t.Fatal(err)
			}
			b, _ = io.ReadAll(res.Body)
			res.Body.Close()
			if !bytes.Equal(b, encode[name]()) {
				t.Errorf("%s: it was changed", name)
			}
		}
	})
}

// TestWebSocket checks an upgrade, frames both ways, and the removal of secrets from the server's
// frames.
func TestWebSocket(t *testing.T) {
	for _, inject := range []bool{false, true} {
		l := rawServer(t, func(c io.ReadWriter) {
			_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: x\r\n\r\n")
			b := make([]byte, 5)
			if _, err := io.ReadFull(c, b); err != nil {
				return
			}
			half := len(secret) / 2
			// Send one message in three frames with a ping between, and then one in a single frame.
			_, _ = c.Write(append([]byte{0x01, byte(4 + half)}, "say "+secret[:half]...))
			_, _ = c.Write([]byte("\x89\x02pi"))
			_, _ = c.Write(append([]byte{0x80, byte(len(secret) - half + 1)}, secret[half:]+"."...))
			_, _ = c.Write(append([]byte{0x82, 5}, b...))
			_, _ = io.Copy(io.Discard, c)
		})
		r := newRig(t, l.Addr(), false, nil)
		want := secret
		if inject {
			r.inject(carrel.Injection{Bearer: "key", Cleartext: true})
			want = strings.Repeat("*", len(secret))
		}
		c := r.dial()
		_, _ = io.WriteString(c, "GET /chat HTTP/1.1\r\nHost: "+host+"\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: k\r\nSec-WebSocket-Extensions: permessage-deflate\r\n\r\nhello")
		in := bufio.NewReader(c)
		res, err := http.ReadResponse(in, nil)
		if err != nil || res.StatusCode != 101 || res.Header.Get("Upgrade") != "websocket" {
			t.Fatal(res, err)
		}
		var text strings.Builder
		var messages []string
		for len(messages) < 2 {
			var head [2]byte
			if _, err := io.ReadFull(in, head[:]); err != nil {
				t.Fatal(err)
			}
			b := make([]byte, head[1])
			if _, err := io.ReadFull(in, b); err != nil {
				t.Fatal(err)
			}
			if head[0]&8 != 0 {
				continue
			}
			if text.Write(b); head[0]&0x80 != 0 {
				messages = append(messages, text.String())
				text.Reset()
			}
		}
		if messages[0] != "say "+want+"." || messages[1] != "hello" {
			t.Errorf("%q", messages)
		}
		_ = c.Close()
		if d := r.reported(1)[0]; d.Status != 101 || d.Path != "/chat" {
			t.Errorf("%+v", d)
		}
	}
}

// TestOtherUpgrades shows that requests for other upgrades are not forwarded.
func TestOtherUpgrades(t *testing.T) {
	s, _ := outsideServer(t, false, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%q %q %q", r.Header.Get("Upgrade"), r.Header.Get("Http2-Settings"), r.Header.Get("X-Hop"))
	}))
	r := newRig(t, s.Listener.Addr(), false, nil)
	got := r.raw("GET / HTTP/1.1\r\nHost: " + host + "\r\nConnection: Upgrade, HTTP2-Settings, X-Hop, close\r\nX-Hop: 1\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n")
	if got != `200  "" "" ""` {
		t.Errorf("%q", got)
	}
}

// TestIdleServers has a server end its connection between two requests. The second request must
// still work, whatever its method.
func TestIdleServers(t *testing.T) {
	l := rawServer(t, func(c io.ReadWriter) {
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
	})
	r := newRig(t, l.Addr(), false, nil)
	r.mu.Lock()
	r.closed = make(chan struct{}, 100)
	r.mu.Unlock()
	c := r.client(false)
	for i := range 3 {
		res, err := c.Post(r.url("/"), "text/plain", nil)
		if err != nil || res.StatusCode != 200 {
			t.Fatal(i, res, err)
		}
		res.Body.Close()
		<-r.closed // the server ended the connection between two requests
	}
	for range 10 {
		res, err := c.Get(r.url("/"))
		if err != nil || res.StatusCode != 200 {
			t.Fatal(res, err)
		}
		res.Body.Close()
	}
}

// TestGoneClients shows that a server notices when the client no longer waits.
func TestGoneClients(t *testing.T) {
	asked, gone := make(chan struct{}), make(chan struct{})
	forms(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- struct{}{}
		<-r.Context().Done()
		gone <- struct{}{}
	}), func(t *testing.T, r *rig, c *http.Client) {
		ctx, cancel := context.WithCancel(context.Background())
		req, _ := http.NewRequestWithContext(ctx, "GET", r.url("/"), nil)
		done := make(chan error)
		go func() { _, err := c.Do(req); done <- err }()
		<-asked
		cancel()
		if err := <-done; err == nil {
			t.Error("no error")
		}
		<-gone
		if d := r.reported(1)[0]; d.Status != 499 {
			t.Errorf("%+v", d)
		}
	})
}

// TestManyAtOnce hammers one proxy.
func TestManyAtOnce(t *testing.T) {
	forms(t, http.HandlerFunc(echoHandler), func(t *testing.T, r *rig, c *http.Client) {
		r.inject(carrel.Injection{Bearer: "key", Cleartext: true})
		var wg sync.WaitGroup
		for i := range 16 {
			wg.Go(func() {
				for j := range 20 {
					body := strings.Repeat(fmt.Sprintf("%d/%d ", i, j), 1+j*j*50)
					res, err := c.Post(r.url("/"), "text/plain", strings.NewReader(body))
					if err != nil {
						t.Error(err)
						return
					}
					b, err := io.ReadAll(res.Body)
					res.Body.Close()
					if want := fmt.Sprintf("POST %s / %q", host, body); err != nil || string(b) != want || res.Header.Get("X-Echo-Authorization") != "Bearer "+strings.Repeat("*", len(secret)) {
						t.Errorf("%d/%d: %.100q %v", i, j, b, err)
						return
					}
				}
			})
		}
		wg.Wait()
		r.reported(320)
	})
}
