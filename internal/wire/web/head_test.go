package web

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// memConn is a connection that gives its bytes in pieces of one size.
type memConn struct {
	net.Conn
	data []byte
	step int
}

func (c *memConn) Read(b []byte) (int, error) {
	if len(c.data) == 0 {
		return 0, io.EOF
	}
	n := copy(b[:min(len(b), c.step)], c.data)
	c.data = c.data[n:]
	return n, nil
}
func (c *memConn) SetReadDeadline(time.Time) error { return nil }

// readAll reads requests from data as a session does. It returns the method, target, host and body
// of each.
func readAll(data []byte, step int, overTLS bool) (out []string, bad bool) {
	r := newReader(&memConn{data: bytes.Clone(data), step: step})
	defer r.release()
	for {
		b, err := r.requestHead()
		if err != nil {
			return out, err != io.EOF
		}
		var h head
		if h.parseRequest(b) != nil {
			return out, true
		}
		var q http1Request
		if q.read(&h, overTLS) != nil {
			return out, true
		}
		target := q.path
		if q.hasQuery {
			target += "?" + q.query
		}
		s := q.method + " " + target + " " + q.authority()
		body := body{r: r, how: q.how, left: q.length}
		text, err := io.ReadAll(&body)
		if err != nil {
			return append(out, s), true
		}
		out = append(out, s+" "+string(text))
	}
}

// smuggled are requests that two servers could understand in two ways. None may pass.
var smuggled = []struct{ name, text string }{
	{"both lengths", "POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"},
	{"encoding in another spelling", "POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 4\r\nTransfer_Encoding: chunked\r\n\r\n0\r\n\r\n"},
	{"two lengths", "POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 4\r\nContent-Length: 5\r\n\r\nabcde"},
	{"equal lengths", "POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 4\r\nContent-Length: 4\r\n\r\nabcd"},
	{"list of lengths", "POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 4, 4\r\n\r\nabcd"},
	{"signed length", "POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: +4\r\n\r\nabcd"},
	{"negative length", "POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: -1\r\n\r\n"},
	{"huge length", "POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 18446744073709551616\r\n\r\n"},
	{"hexadecimal length", "POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 0x4\r\n\r\nabcd"},
	{"empty length", "POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length:\r\n\r\n"},
	{"another encoding", "POST / HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"},
	{"chunked twice", "POST / HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"},
	{"chunked, sort of", "POST / HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n"},
	{"chunked in HTTP/1.0", "POST / HTTP/1.0\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"},
	{"tab before the encoding's colon", "POST / HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding\t: chunked\r\n\r\n0\r\n\r\n"},
	{"space before a colon", "GET / HTTP/1.1\r\nHost : a.example\r\n\r\n"},
	{"space before a name", "GET / HTTP/1.1\r\n Host: a.example\r\n\r\n"},
	{"folded", "GET / HTTP/1.1\r\nHost: a.example\r\nX-A: b\r\n c\r\n\r\n"},
	{"folded with a tab", "GET / HTTP/1.1\r\nHost: a.example\r\nX-A: b\r\n\tc\r\n\r\n"},
	{"bare line feed", "GET / HTTP/1.1\r\nHost: a.example\nX-A: b\r\n\r\n"},
	{"bare line feeds", "GET / HTTP/1.1\nHost: a.example\n\n"},
	{"bare line feed at the end", "GET / HTTP/1.1\r\nHost: a.example\r\n\n"},
	{"bare carriage return", "GET / HTTP/1.1\r\nHost: a.example\r\nX-A: b\rTransfer-Encoding: chunked\r\n\r\n"},
	{"NUL", "GET / HTTP/1.1\r\nHost: a.example\r\nX-A: b\x00c\r\n\r\n"},
	{"no host", "GET / HTTP/1.1\r\nX-A: b\r\n\r\n"},
	{"no host in HTTP/1.0", "GET / HTTP/1.0\r\n\r\n"},
	{"two hosts", "GET / HTTP/1.1\r\nHost: a.example\r\nHost: b.example\r\n\r\n"},
	{"equal hosts", "GET / HTTP/1.1\r\nHost: a.example\r\nhost: a.example\r\n\r\n"},
	{"empty host", "GET / HTTP/1.1\r\nHost:\r\n\r\n"},
	{"host with a user", "GET / HTTP/1.1\r\nHost: a.example@b.example\r\n\r\n"},
	{"host with a path", "GET / HTTP/1.1\r\nHost: a.example/b\r\n\r\n"},
	{"host list", "GET / HTTP/1.1\r\nHost: a.example, b.example\r\n\r\n"},
	{"host with two ports", "GET / HTTP/1.1\r\nHost: a.example:80:80\r\n\r\n"},
	{"host with no number", "GET / HTTP/1.1\r\nHost: a.example:x\r\n\r\n"},
	{"host with a space", "GET / HTTP/1.1\r\nHost: a.example b\r\n\r\n"},
	{"another target", "GET http://b.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n"},
	{"another port in the target", "GET http://a.example:81/ HTTP/1.1\r\nHost: a.example\r\n\r\n"},
	{"a user in the target", "GET http://u:p@a.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n"},
	{"another scheme", "GET https://a.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n"},
	{"an unknown scheme", "GET ftp://a.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n"},
	{"a target without a slash", "GET a.example HTTP/1.1\r\nHost: a.example\r\n\r\n"},
	{"a star", "GET * HTTP/1.1\r\nHost: a.example\r\n\r\n"},
	{"a fragment", "GET /a#b HTTP/1.1\r\nHost: a.example\r\n\r\n"},
	{"a space in the target", "GET /a b HTTP/1.1\r\nHost: a.example\r\n\r\n"},
	{"a tab in the target", "GET /a\tb HTTP/1.1\r\nHost: a.example\r\n\r\n"},
	{"bytes in the target", "GET /\xff HTTP/1.1\r\nHost: a.example\r\n\r\n"},
	{"no version", "GET /\r\nHost: a.example\r\n\r\n"},
	{"another version", "GET / HTTP/1.2\r\nHost: a.example\r\n\r\n"},
	{"version 2", "GET / HTTP/2.0\r\nHost: a.example\r\n\r\n"},
	{"lower version", "GET / http/1.1\r\nHost: a.example\r\n\r\n"},
	{"an empty line first", "\r\nGET / HTTP/1.1\r\nHost: a.example\r\n\r\n"},
	{"a method with a bracket", "G(T / HTTP/1.1\r\nHost: a.example\r\n\r\n"},
	{"CONNECT", "CONNECT b.example:443 HTTP/1.1\r\nHost: b.example:443\r\n\r\n"},
	{"TRACE", "TRACE / HTTP/1.1\r\nHost: a.example\r\n\r\n"},
	{"two overriding methods", "POST / HTTP/1.1\r\nHost: a.example\r\nX-HTTP-Method-Override: PUT\r\nX-Method-Override: DELETE\r\n\r\n"},
	{"expectation", "POST / HTTP/1.1\r\nHost: a.example\r\nExpect: 200-ok\r\n\r\n"},
	{"chunk ends in a line feed", "POST / HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n1\na\r\n0\r\n\r\n"},
	{"chunk size with a sign", "POST / HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n+1\r\na\r\n0\r\n\r\n"},
	{"chunk size with 0x", "POST / HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n0x1\r\na\r\n0\r\n\r\n"},
	{"chunk size with a space", "POST / HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n1 \r\na\r\n0\r\n\r\n"},
	{"chunk size too large", "POST / HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n10000000000000001\r\na\r\n0\r\n\r\n"},
	{"chunk too long", "POST / HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n0\r\n\r\n"},
	{"line feed in a chunk's extension", "POST / HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n1;a\nb\r\na\r\n0\r\n\r\n"},
	{"carriage return in a chunk's extension", "POST / HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n1;a\rb\r\na\r\n0\r\n\r\n"},
	{"folded trailer", "POST / HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nA: b\r\n c\r\n\r\n"},
	{"too many fields", "GET / HTTP/1.1\r\nHost: a.example\r\n" + strings.Repeat("A: b\r\n", 300) + "\r\n"},
	{"too large", "GET / HTTP/1.1\r\nHost: a.example\r\nA: " + strings.Repeat("b", maxHead) + "\r\n\r\n"},
}

// plain are requests that may pass, with the expected reading.
var plain = []struct{ name, text, want string }{
	{"plain", "GET / HTTP/1.1\r\nHost: a.example\r\n\r\n", "GET / a.example "},
	{"query", "GET /a%20b?c=d?e HTTP/1.1\r\nHost: A.example.:80\r\n\r\n", "GET /a%20b?c=d?e a.example:80 "},
	{"address", "GET / HTTP/1.1\r\nHost: [2001:db8::0:1]:80\r\n\r\n", "GET / [2001:db8::1]:80 "},
	{"absolute", "GET HTTP://A.example/x HTTP/1.1\r\nHost: a.example\r\n\r\n", "GET /x a.example "},
	{"absolute without a path", "GET http://a.example?x HTTP/1.1\r\nHost: a.example\r\n\r\n", "GET /?x a.example "},
	{"options", "OPTIONS * HTTP/1.1\r\nHost: a.example\r\n\r\n", "OPTIONS * a.example "},
	{"length", "POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 3\r\n\r\nabc", "POST / a.example abc"},
	{"chunks", "POST / HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: Chunked\r\n\r\n2;x=y\r\nab\r\n01\r\nc\r\n0\r\nT: u\r\n\r\n", "POST / a.example abc"},
	{"old", "GET / HTTP/1.0\r\nHost: a.example\r\n\r\n", "GET / a.example "},
	{"method of its own", "M-SEARCH /x HTTP/1.1\r\nHost: a.example\r\n\r\n", "M-SEARCH /x a.example "},
}

func TestHeads(t *testing.T) {
	for _, step := range []int{1, 7, 1 << 20} {
		for _, c := range smuggled {
			if got, bad := readAll([]byte(c.text+"GET /next HTTP/1.1\r\nHost: a.example\r\n\r\n"), step, false); !bad || (len(got) > 0 && !strings.HasPrefix(got[0], "POST / a.example")) || len(got) > 1 {
				t.Errorf("%s passes in steps of %d: %q", c.name, step, got)
			}
		}
		for _, c := range plain {
			got, bad := readAll([]byte(c.text+"GET /next HTTP/1.1\r\nHost: a.example\r\n\r\n"), step, false)
			if bad || len(got) != 2 || got[0] != c.want || got[1] != "GET /next a.example " {
				t.Errorf("%s in steps of %d: %q, %v", c.name, step, got, bad)
			}
		}
	}
}

// FuzzRequestHead shows that a request that passes is one request for package net/http too, with
// the same content, and that it is read in pieces as it is at once.
func FuzzRequestHead(f *testing.F) {
	for _, c := range smuggled {
		if len(c.text) < 4096 {
			f.Add([]byte(c.text))
		}
	}
	for _, c := range plain {
		f.Add([]byte(c.text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		got, bad := readAll(data, 1<<20, false)
		inPieces, badInPieces := readAll(data, 3, false)
		if strings.Join(got, "\n") != strings.Join(inPieces, "\n") || bad != badInPieces {
			t.Fatalf("at once %q %v, in pieces %q %v", got, bad, inPieces, badInPieces)
		}
		if len(got) == 0 {
			return
		}
		r, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(data)))
		if err != nil {
			return // stricter still
		}
		method, rest, _ := strings.Cut(got[0], " ")
		target, rest, _ := strings.Cut(rest, " ")
		host, text, _ := strings.Cut(rest, " ")
		if r.Method != method || !strings.EqualFold(strings.TrimSuffix(r.URL.RequestURI(), "?"), strings.TrimSuffix(target, "?")) && !strings.HasPrefix(r.RequestURI, "http") && r.RequestURI != target {
			t.Fatalf("%q and %q are different requests", got[0], r.Method+" "+r.RequestURI)
		}
		if !bad {
			theirs, err := io.ReadAll(r.Body)
			if err == nil && string(theirs) != text {
				t.Fatalf("bodies %q and %q of %q", text, theirs, host)
			}
		}
	})
}

// FuzzResponseHead shows that no answer of a server crashes the reader.
func FuzzResponseHead(f *testing.F) {
	f.Add([]byte("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nab"), "GET")
	f.Add([]byte("HTTP/1.1 200\nTransfer-Encoding: chunked\n\n1 \na\n0\n\n"), "GET")
	f.Add([]byte("HTTP/1.0 304 \r\nContent-Length: 5\r\n\r\n"), "HEAD")
	f.Fuzz(func(t *testing.T, data []byte, method string) {
		r := newReader(&memConn{data: data, step: 5})
		defer r.release()
		b, err := r.head(true)
		if err != nil {
			return
		}
		var h head
		var a answer
		if h.parseResponse(b) != nil || a.read(&h, method) != nil {
			return
		}
		if h.status < 100 || h.status > 999 || a.length < 0 {
			t.Fatalf("%+v %+v", h, a)
		}
		if n, err := io.Copy(io.Discard, &body{r: r, how: a.how, left: a.length, lenient: true}); err == nil && a.how == byLength && n != a.length {
			t.Fatalf("%d bytes of %d", n, a.length)
		}
	})
}
