package gateway

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
)

// strictFront serves the gateway behind the strict listener, as the daemon does.
func strictFront(t *testing.T, w *world, cfg *tls.Config) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	g := New(Options{Sandboxes: w})
	srv := &http.Server{
		Handler:     StrictHandler(g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) }))),
		ConnContext: StrictContext, MaxHeaderBytes: 64 << 10, Protocols: new(http.Protocols),
	}
	srv.Protocols.SetHTTP1(true)
	srv.Protocols.SetHTTP2(true)
	srv.Protocols.SetUnencryptedHTTP2(true)
	if cfg != nil {
		cfg.NextProtos = []string{"h2", "http/1.1"}
		l = shaking{tls.NewListener(l, cfg)}
	}
	go func() { _ = srv.Serve(StrictListener(l)) }()
	t.Cleanup(func() { _ = srv.Close(); _ = g.Close() })
	return addr
}

// shaking is a TLS listener that completes the handshake in Accept.
type shaking struct{ net.Listener }

func (l shaking) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if c.(*tls.Conn).HandshakeContext(context.Background()) == nil {
			return c, nil
		}
		_ = c.Close()
	}
}

// TestSmuggling sends requests that two servers may read in two ways. Each is refused, its
// connection is closed, and no part of it reaches a sandbox.
func TestSmuggling(t *testing.T) {
	var reached atomic.Int32
	app := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		reached.Add(1)
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(w, "reached")
	})
	w := newWorld(t)
	id := string(w.add(t, carrel.Sandbox{}, map[uint16]http.Handler{3000: app}))
	ca, cert := wildcard(t, "example.com")
	host := "3000-" + id + ".example.com"
	plain, secure := strictFront(t, w, nil), strictFront(t, w, &tls.Config{Certificates: []tls.Certificate{cert}})
	dial := map[string]func() (net.Conn, error){
		"plain": func() (net.Conn, error) { return net.Dial("tcp", plain) },
		"tls": func() (net.Conn, error) {
			return tls.Dial("tcp", secure, &tls.Config{RootCAs: ca, ServerName: host, NextProtos: []string{"http/1.1"}})
		},
	}
	head := "POST /x HTTP/1.1\r\nHost: " + host + "\r\n"
	inner := "GET /smuggled HTTP/1.1\r\nHost: " + host + "\r\n\r\n"
	for _, c := range []struct {
		name, raw string
		status    string
		answers   int // of the sandbox, before
	}{
		{"length and chunks", head + "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + inner, "400", 0},
		{"chunks and length", head + "Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n" + inner, "400", 0},
		{"two lengths", head + "Content-Length: 0\r\nContent-Length: 44\r\n\r\n" + inner, "400", 0},
		{"two equal lengths", head + "Content-Length: 1\r\nContent-Length: 1\r\n\r\nx", "400", 0},
		{"a list of lengths", head + "Content-Length: 1, 1\r\n\r\nx", "400", 0},
		{"a signed length", head + "Content-Length: +1\r\n\r\nx", "400", 0},
		{"a hexadecimal length", head + "Content-Length: 0x1\r\n\r\nx", "400", 0},
		{"two codings", head + "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n", "400", 0},
		{"a list of codings", head + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", "400", 0},
		{"an unknown coding", head + "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", "400", 0},
		{"a coding behind a tab", head + "Transfer-Encoding:\x0bchunked\r\n\r\n0\r\n\r\n", "400", 0},
		{"a space before the colon", head + "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n", "400", 0},
		{"chunks in HTTP/1.0", "POST /x HTTP/1.0\r\nHost: " + host + "\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "400", 0},
		{"a folded header", head + "X: a\r\n Transfer-Encoding: chunked\r\n\r\n" + inner, "400", 0},
		{"a folded first header", "GET / HTTP/1.1\r\n Host: " + host + "\r\n\r\n", "400", 0},
		{"bare LF", strings.ReplaceAll(head, "\r\n", "\n") + "\n", "400", 0},
		{"one bare LF", head + "X: y\nContent-Length: 4\r\n\r\nxxxx", "400", 0},
		{"bare CR", head + "X: y\rContent-Length: 4\r\n\r\n", "400", 0},
		{"a NUL", head + "X: \x00\r\n\r\n", "400", 0},
		{"two hosts", head + "Host: api.example.com\r\n\r\n", "400", 0},
		{"no host", "GET / HTTP/1.1\r\n\r\n", "400", 0},
		{"another host in the target", "GET http://49983-" + id + ".example.com/ HTTP/1.1\r\nHost: " + host + "\r\n\r\n", "400", 0},
		{"user in the target", "GET http://" + host + "@api.example.com/ HTTP/1.1\r\nHost: api.example.com\r\n\r\n", "400", 0},
		{"CONNECT", "CONNECT " + host + ":443 HTTP/1.1\r\nHost: " + host + ":443\r\n\r\n", "400", 0},
		{"HTTP/1.2", "GET / HTTP/1.2\r\nHost: " + host + "\r\n\r\n", "400", 0},
		{"three spaces", "GET /a b HTTP/1.1\r\nHost: " + host + "\r\n\r\n", "400", 0},
		{"no header", head + "nonsense\r\n\r\n", "400", 0},
		{"an empty line first", "\r\n" + inner, "400", 0},
		{"an upgrade with a body", head + "Connection: upgrade\r\nUpgrade: websocket\r\nContent-Length: 3\r\n\r\nabc", "400", 0},
		{"a large header", head + "X: " + strings.Repeat("a", 100<<10) + "\r\n\r\n", "431", 0},
		{"an endless header", head + "X: " + strings.Repeat("a", 200<<10), "431", 0},
		{"behind a good one", inner + head + "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + inner, "400", 1},
		{"a chunk's bare LF", head + "Transfer-Encoding: chunked\r\n\r\n1\nx\r\n0\r\n\r\n", "400", -1},
		{"a chunk that is longer", head + "Transfer-Encoding: chunked\r\n\r\n1\r\nxx\r\n0\r\n\r\n", "400", -1},
		{"a length among the trailers", head + "Transfer-Encoding: chunked\r\n\r\n0\r\nContent-Length: 5\r\n\r\n", "400", -1},
	} {
		for kind, open := range dial {
			t.Run(c.name+"/"+kind, func(t *testing.T) {
				before := reached.Load()
				conn, err := open()
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
				_ = conn.SetDeadline(time.Now().Add(time.Minute))
				go func() { _, _ = io.WriteString(conn, c.raw) }() // it may be refused before its end
				br := bufio.NewReader(conn)
				for range max(c.answers, 0) {
					resp, err := http.ReadResponse(br, nil)
					if err != nil {
						t.Fatal(err)
					}
					if raw, _ := io.ReadAll(resp.Body); string(raw) != "reached" {
						t.Fatalf("%s %s", resp.Status, raw)
					}
				}
				resp, err := http.ReadResponse(br, nil)
				if err != nil {
					t.Fatalf("no answer: %v", err)
				}
				raw, _ := io.ReadAll(resp.Body)
				if !strings.HasPrefix(resp.Status, c.status) {
					t.Errorf("%s %s, want %s", resp.Status, raw, c.status)
				}
				if _, err := br.ReadByte(); err == nil {
					t.Error("the connection goes on")
				}
				if c.answers >= 0 && reached.Load()-before != int32(c.answers) {
					t.Errorf("%d requests reached the sandbox, want %d", reached.Load()-before, c.answers)
				}
			})
		}
	}
	if n := reached.Load(); n == 0 {
		t.Error("nothing reaches the sandbox at all")
	}
}

// TestStrictLetsPass shows that good requests pass, one after the other on one connection, in
// pieces of any size.
func TestStrictLetsPass(t *testing.T) {
	echo := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		raw, err := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s %s %q %v %v", r.Method, r.URL, raw, err, r.Trailer)
	})
	w := newWorld(t)
	id := string(w.add(t, carrel.Sandbox{}, map[uint16]http.Handler{3000: echo}))
	host := "3000-" + id + ".example.com"
	addr := strictFront(t, w, nil)
	requests := []struct{ raw, want string }{
		{"GET /a HTTP/1.1\r\nHost: " + host + "\r\n\r\n", `GET /a "" <nil> map[]`},
		{"POST /b HTTP/1.1\r\nHost: " + host + "\r\nContent-Length: 3\r\n\r\nabc", `POST /b "abc" <nil> map[]`},
		{"POST /c HTTP/1.1\r\nHost: " + host + "\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\nA \r\n0123456789\r\n0\r\n\r\n", `POST /c "abc0123456789" <nil> map[]`},
		{"POST /d HTTP/1.1\r\nHost: " + host + "\r\nTrailer: Sum\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\nSum: 7\r\n\r\n", `POST /d "x" <nil> map[Sum:[7]]`},
		{"PUT http://" + host + "/e HTTP/1.1\r\nHost: " + host + "\r\nContent-Length: 0\r\n\r\n", `PUT /e "" <nil> map[]`},
		{"GET /f HTTP/1.1\r\nHost: " + host + "\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n", `GET /f "" <nil> map[]`},
		{"DELETE /g HTTP/1.1\r\nHost: " + host + "\r\n\r\n", `DELETE /g "" <nil> map[]`},
	}
	for _, size := range []int{1, 7, 1 << 20} {
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(30 * time.Second))
		br := bufio.NewReader(conn)
		for _, r := range requests {
			for rest := []byte(r.raw); len(rest) > 0; {
				n := min(size, len(rest))
				if _, err := conn.Write(rest[:n]); err != nil {
					t.Fatal(err)
				}
				rest = rest[n:]
			}
			resp, err := http.ReadResponse(br, nil)
			if err != nil {
				t.Fatal(err)
			}
			if raw, _ := io.ReadAll(resp.Body); string(raw) != r.want {
				t.Errorf("pieces of %d: %s %s, want %s", size, resp.Status, raw, r.want)
			}
		}
	}
}

// TestRefusedUpgradeEnds sends a request for another protocol, which is refused. The bytes after it
// are not judged, so they must not be taken for requests.
func TestRefusedUpgradeEnds(t *testing.T) {
	var reached atomic.Int32
	w := newWorld(t)
	sb := carrel.Sandbox{Network: carrel.Network{PrivateTraffic: true}, TrafficToken: "secret"}
	id := string(w.add(t, sb, map[uint16]http.Handler{3000: http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached.Add(1) })}))
	addr := strictFront(t, w, nil)
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: 3000-%[1]s.x.example\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"+
		"GET / HTTP/1.1\nHost: 3000-%[1]s.x.example\nE2b-Traffic-Access-Token: secret\n\n", id)
	raw, _ := io.ReadAll(conn)
	if !strings.HasPrefix(string(raw), "HTTP/1.1 403") || strings.Count(string(raw), "HTTP/1.1") != 1 || reached.Load() != 0 {
		t.Errorf("%s, %d reached", raw, reached.Load())
	}
}

// TestH2CIsNotPassedOn shows that an upgrade to HTTP/2 is not forwarded. Otherwise requests that
// nobody judged could follow it.
func TestH2CIsNotPassedOn(t *testing.T) {
	w := newWorld(t)
	id := string(w.add(t, carrel.Sandbox{}, map[uint16]http.Handler{3000: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if len(r.Header["Upgrade"])+len(r.Header["Http2-Settings"])+len(r.Header["Connection"]) > 0 {
			w.WriteHeader(http.StatusSwitchingProtocols)
		}
	})}))
	addr := strictFront(t, w, nil)
	resp, _ := ask(t, "GET", "http://"+addr+"/", nil, headerID, id, headerPort, "3000", "Connection", "Upgrade, HTTP2-Settings", "Upgrade", "h2c", "HTTP2-Settings", "AAMAAABkAAQAAP__")
	if resp.StatusCode != 200 {
		t.Errorf("%s", resp.Status)
	}
}

// FuzzStrict sends any bytes, in any pieces. In the bytes that pass, net/http must find requests
// exactly where the strict connection does. No request may pass that net/http accepts and other
// servers might read in another way.
func FuzzStrict(f *testing.F) {
	for _, s := range []string{
		"GET / HTTP/1.1\r\nHost: a\r\n\r\nGET /2 HTTP/1.1\r\nHost: a\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabcGET / HTTP/1.1\r\nHost: a\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3;x\r\nabc\r\n0\r\nA: b\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n",
		"GET / HTTP/1.1\nHost: a\n\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\nxx", "GET http://b/ HTTP/1.1\r\nHost: a\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\nabc", "POST / HTTP/1.0\r\n\r\n", "\r\nGET / HTTP/1.1\r\n\r\n",
	} {
		f.Add([]byte(s), 3)
	}
	f.Fuzz(func(t *testing.T, data []byte, size int) {
		size = 1 + (size&0x7fffffff)%4096
		c := &strictConn{Conn: &pieces{data: data, size: size}}
		out, err := io.ReadAll(c)
		if err != nil && !errors.Is(err, errMalformed) {
			t.Fatal(err)
		}
		passed := bytes.TrimSuffix(out, []byte(cannedRequest))
		if !bytes.HasPrefix(data, passed) {
			t.Fatalf("%q became %q", data, out)
		}
		if c.frame.state == opaque {
			return
		}
		// Read the same bytes in one piece: heads must lie where net/http finds them.
		var fr framing
		br := bufio.NewReaderSize(bytes.NewReader(passed), 64<<10)
		for at := 0; at < len(passed); {
			start := at
			n, reason, err := fr.next(passed[at:])
			if n == 0 || reason != "" || err != nil {
				t.Fatalf("passed what is refused: %q: %q, %v", passed[at:], reason, err)
			}
			r, rerr := http.ReadRequest(br)
			if rerr != nil {
				return // net/http refuses it with 400 and ends the connection
			}
			body := []byte{}
			for at += n; fr.state != inHead && at < len(passed); at += n {
				was := fr.state
				if n, _, err = fr.next(passed[at:]); n == 0 || err != nil {
					return // cut off
				}
				if was == inChunk || was == inBody {
					body = append(body, passed[at:at+n]...)
				}
			}
			got, berr := io.ReadAll(r.Body)
			if fr.state == inHead && (berr != nil || !bytes.Equal(got, body)) {
				if berr != nil {
					return // net/http is the stricter one
				}
				t.Fatalf("request at %d of %q: body %q, net/http has %q", start, passed, body, got)
			}
			if rest := br.Buffered(); fr.state == inHead && rest != len(passed)-at {
				t.Fatalf("the next request of %q is at %d for us, at %d for net/http", passed, at, len(passed)-rest)
			}
		}
	})
}

// pieces is a connection that gives its data in pieces.
type pieces struct {
	net.Conn
	data []byte
	size int
}

func (p *pieces) Read(b []byte) (int, error) {
	if len(p.data) == 0 {
		return 0, io.EOF
	}
	n := copy(b[:min(len(b), p.size)], p.data)
	p.data = p.data[n:]
	return n, nil
}

// TestAuthority shows that an HTTP/2 request whose Host differs from its :authority is refused, and
// so is CONNECT.
func TestAuthority(t *testing.T) {
	called := false
	h := StrictHandler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { called = true }))
	for _, c := range []struct {
		method, host string
		header       []string
		status       int
	}{
		{"GET", "a.example", nil, 200}, {"GET", "a.example", []string{"A.example"}, 200},
		{"GET", "a.example", []string{"b.example"}, 400}, {"GET", "a.example", []string{"a.example", "b.example"}, 400}, {"CONNECT", "a.example", nil, 405},
	} {
		called = false
		r := httptest.NewRequest(c.method, "https://a.example/", nil)
		r.Host, r.ProtoMajor = c.host, 2
		if c.header != nil {
			r.Header["Host"] = c.header
		}
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, r)
		if rec.Code != c.status || called != (c.status == 200) {
			t.Errorf("%s %s %v: %d", c.method, c.host, c.header, rec.Code)
		}
	}
}
