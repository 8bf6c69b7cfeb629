package web_test

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/pki"
	"github.com/carrel-dev/carrel/internal/policy"
	"github.com/carrel-dev/carrel/internal/testenv"
	"github.com/carrel-dev/carrel/internal/wire/web"
)

// TestRefusesAmbiguity sends requests that two servers could read in two ways, and counts those
// that arrive outside.
func TestRefusesAmbiguity(t *testing.T) {
	for _, overTLS := range []bool{false, true} {
		var arrived atomic.Int64
		s, ca := outsideServer(t, overTLS, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { arrived.Add(1) }))
		r := newRig(t, s.Listener.Addr(), overTLS, ca)
		for i, c := range []struct{ request, want string }{
			{"POST / HTTP/1.1\r\nHost: " + host + "\r\nContent-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nG", "400 built-in: http carrel: "},
			{"GET / HTTP/1.1\r\nHost: " + host + "\nX: y\r\n\r\n", "400 built-in: http"},
			{"GET / HTTP/1.1\r\nHost: " + host + "\r\nX: y\r\n z\r\n\r\n", "400 built-in: http"},
			{"GET / HTTP/1.1\r\n\r\n", "400 built-in: http"},
			{"GET / HTTP/1.1\r\nHost: user@" + host + "\r\n\r\n", "400 built-in: http"},
			{"CONNECT " + host + ":443 HTTP/1.1\r\nHost: " + host + "\r\n\r\n", "405 built-in: http"},
			{"TRACE / HTTP/1.1\r\nHost: " + host + "\r\n\r\n", "405 built-in: http"},
			{"GET / HTTP/1.1\r\nHost: " + host + ":8080\r\n\r\n", "421 built-in: http"},
			{"GET / HTTP/1.1\r\nHost: 198.51.100.7\r\n\r\n", "421 built-in: http"},
			{"GET / HTTP/1.1\r\nHost: " + host + "\r\nX: " + strings.Repeat("y", 70_000) + "\r\n\r\n", "431 built-in: http"},
		} {
			if got := r.raw(c.request); !strings.HasPrefix(got, c.want) {
				t.Errorf("%q gets %q", c.request[:min(60, len(c.request))], got)
			}
			d := r.reported(i + 1)[i]
			if d.Allowed || d.Reason == "" || d.Rule != "built-in: http" {
				t.Errorf("%+v", d)
			}
		}
		if overTLS {
			if got := r.raw("GET / HTTP/1.1\r\nHost: evil.example.net\r\n\r\n"); !strings.HasPrefix(got, "421 ") {
				t.Errorf("another host than TLS was opened for: %q", got)
			}
		}
		if arrived.Load() != 0 {
			t.Errorf("%d requests arrived", arrived.Load())
		}
		if got := r.raw("GET / HTTP/1.1\r\nHost: " + host + "\r\nConnection: close\r\n\r\n"); !strings.HasPrefix(got, "200") || arrived.Load() != 1 {
			t.Errorf("a plain request gets %q", got)
		}
	}
}

// TestRefusesFronting sends one name in the hello and another in the request, over HTTP/2 too. This
// is refused.
func TestRefusesFronting(t *testing.T) {
	s, ca := outsideServer(t, true, http.HandlerFunc(echoHandler))
	r := newRig(t, s.Listener.Addr(), true, ca)
	for _, h2 := range []bool{false, true} {
		req, _ := http.NewRequest("GET", r.url("/"), nil)
		req.Host = "evil.example.net"
		res, err := r.client(h2).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != 421 || res.Header.Get("Carrel-Denied") == "" {
			t.Errorf("%s: %s", res.Proto, res.Status)
		}
	}
	if r.dials != 0 {
		t.Error("it was sent")
	}
}

// TestJudgesOverrides sends requests that tell a server to use another method or path than their
// own. Both are judged.
func TestJudgesOverrides(t *testing.T) {
	forms(t, http.HandlerFunc(echoHandler), func(t *testing.T, r *rig, c *http.Client) {
		r.verdict = func(f policy.Flow) policy.Verdict {
			return policy.Verdict{Allow: f.Method == "POST" && f.Path == "/open", ByName: host, Rule: "rule 1", Reason: "not that", Index: -1}
		}
		for _, h := range [][2]string{{"X-HTTP-Method-Override", "delete"}, {"x_http_method", "PUT"}, {"X-Original-URL", "/admin"}, {"X-Rewrite-Url", "/admin?x"}, {"X-Method-Override", "POST"}} {
			req, _ := http.NewRequest("POST", r.url("/open"), nil)
			req.Header[h[0]] = []string{h[1]}
			res, err := c.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			res.Body.Close()
			want := 403
			if h[1] == "POST" {
				want = 200
			}
			if res.StatusCode != want {
				t.Errorf("%v: %s", h, res.Status)
			}
		}
	})
}

// TestPolicyChanges shows that each request is judged by the policy at that moment.
func TestPolicyChanges(t *testing.T) {
	forms(t, http.HandlerFunc(echoHandler), func(t *testing.T, r *rig, c *http.Client) {
		for _, allow := range []bool{true, false, true} {
			r.mu.Lock()
			r.verdict = func(policy.Flow) policy.Verdict {
				return policy.Verdict{Allow: allow, ByName: host, Rule: "rule 1", Index: -1}
			}
			r.mu.Unlock()
			res, err := c.Get(r.url("/"))
			if err != nil {
				t.Fatal(err)
			}
			res.Body.Close()
			if (res.StatusCode == 200) != allow {
				t.Errorf("allowed %v: %s", allow, res.Status)
			}
		}
	})
}

// TestBadCredentials shows that a value that can't be put into a request stops it, and that no
// error contains the value.
func TestBadCredentials(t *testing.T) {
	var arrived atomic.Int64
	forms(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { arrived.Add(1) }), func(t *testing.T, r *rig, c *http.Client) {
		r.secrets["broken"] = "value-one\r\nX-Evil: value-two"
		r.secrets["nul"] = "value-one\x00value-two"
		r.secrets["wide"] = "value-one\u2028value-two"
		for i, in := range []struct {
			carrel.Injection
			want string
		}{
			{carrel.Injection{Bearer: "broken"}, "secret broken can't be put into a header"},
			{carrel.Injection{Headers: map[string]string{"X-Key": "a ${secrets.nul}"}}, "secret nul can't be put into a header"},
			{carrel.Injection{Headers: map[string]string{"X-Key": "${secrets.wide}"}}, "secret wide can't be put into a header"},
			{carrel.Injection{Bearer: "absent"}, "there is no secret absent"},
			{carrel.Injection{Headers: map[string]string{"X-Key": "${e2b.identity.tokens.absent}"}}, "there is no token absent"},
			{carrel.Injection{Headers: map[string]string{"Transfer-Encoding": "chunked"}}, "can't be put into a request"},
			{carrel.Injection{Headers: map[string]string{"X-A\r\nX-Evil": "b"}}, "can't be put into a request"},
		} {
			in.Cleartext = true
			r.inject(in.Injection)
			res, err := c.Get(r.url("/"))
			if err != nil {
				t.Fatal(err)
			}
			b, _ := io.ReadAll(res.Body)
			res.Body.Close()
			if res.StatusCode != 502 || !strings.Contains(string(b), in.want) || strings.Contains(string(b), "value") {
				t.Errorf("%s %q, not %q", res.Status, b, in.want)
			}
			if d := fmt.Sprintf("%+v", r.reported(i + 1)[i]); strings.Contains(d, "value") || !strings.Contains(d, in.want) {
				t.Errorf("%s", d)
			}
		}
		// In a query, every value can be escaped.
		r.inject(carrel.Injection{Query: map[string]string{"key": "${secrets.broken}"}, Cleartext: true})
		res, err := c.Get(r.url("/"))
		if err != nil || res.StatusCode != 200 {
			t.Error(res, err)
		}
		res.Body.Close()
	})
	if arrived.Load() != 4 {
		t.Errorf("%d requests arrived", arrived.Load())
	}
}

// TestSharesNoConnection shows that requests with different credentials, or to different names,
// never share a connection.
func TestSharesNoConnection(t *testing.T) {
	from := func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.RemoteAddr) }
	forms(t, http.HandlerFunc(from), func(t *testing.T, r *rig, c *http.Client) {
		get := func() string {
			res, err := c.Get(r.url("/"))
			if err != nil {
				t.Fatal(err)
			}
			b, _ := io.ReadAll(res.Body)
			res.Body.Close()
			return string(b)
		}
		r.secrets["other"] = "another value"
		r.inject(carrel.Injection{Bearer: "key", Cleartext: true})
		first, again := get(), get()
		r.inject(carrel.Injection{Bearer: "key", Cleartext: true}) // compiled anew, but the same
		same := get()
		r.inject(carrel.Injection{Bearer: "other", Cleartext: true})
		other := get()
		if first != again || first != same || first == other {
			t.Errorf("%s %s %s %s", first, again, same, other)
		}
	})
}

// TestVerifiesServers shows that a server that can't prove its name gets no credentials.
func TestVerifiesServers(t *testing.T) {
	var arrived atomic.Int64
	s, ca := outsideServer(t, true, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { arrived.Add(1) }))
	stranger, err := pki.New("stranger")
	if err != nil {
		t.Fatal(err)
	}
	wrongName, err := ca.Leaf("other.example.com")
	if err != nil {
		t.Fatal(err)
	}
	for _, h2 := range []bool{false, true} {
		r := newRig(t, s.Listener.Addr(), true, stranger)
		r.inject(carrel.Injection{Bearer: "key"})
		res, err := r.client(h2).Get(r.url("/"))
		if err != nil || res.StatusCode != 502 {
			t.Fatal(res, err)
		}
		b, _ := io.ReadAll(res.Body)
		res.Body.Close()
		if !strings.Contains(string(b), "the certificate of "+host+" is not to be trusted") {
			t.Errorf("%q", b)
		}
	}
	s.TLS.Certificates[0] = *wrongName
	r := newRig(t, s.Listener.Addr(), true, ca)
	res, err := r.client(false).Get(r.url("/"))
	if err != nil || res.StatusCode != 502 {
		t.Fatal(res, err)
	}
	res.Body.Close()
	if arrived.Load() != 0 {
		t.Error("a request arrived")
	}
}

// TestDistrustIsTold shows that the audit log reports a program that does not trust the authority.
func TestDistrustIsTold(t *testing.T) {
	s, ca := outsideServer(t, true, http.HandlerFunc(echoHandler))
	r := newRig(t, s.Listener.Addr(), true, ca)
	r.inside, _ = pki.New("another")
	if _, err := r.client(false).Get(r.url("/")); err == nil {
		t.Fatal("it is trusted")
	}
	if d := r.reported(1)[0]; d.Allowed || d.Rule != "built-in: tls" || !strings.Contains(d.Hint, "/run/carrel/ca.pem") {
		t.Errorf("%+v", d)
	}
}

// TestLimitsOfServers shows that an answer that can't be understood is refused.
func TestLimitsOfServers(t *testing.T) {
	for name, answer := range map[string]string{
		"no HTTP":        "SSH-2.0-x\r\n\r\n",
		"endless 1xx":    strings.Repeat("HTTP/1.1 103 Early Hints\r\n\r\n", 100),
		"huge head":      "HTTP/1.1 200 OK\r\nX: " + strings.Repeat("y", 100_000) + "\r\n\r\n",
		"two lengths":    "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
		"other encoding": "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
		"a switch":       "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
		"nothing":        "",
	} {
		l := rawServer(t, func(c io.ReadWriter) { _, _ = io.WriteString(c, answer) })
		r := newRig(t, l.Addr(), false, nil)
		res, err := r.client(false).Get(r.url("/"))
		if err != nil || res.StatusCode != 502 {
			t.Errorf("%s: %v %v", name, res, err)
			continue
		}
		res.Body.Close()
	}
}

// rawTLSServer starts a TLS server that offers HTTP/1.1. serve handles its connections.
func rawTLSServer(t *testing.T, leaf *tls.Certificate, serve func(*tls.Conn)) net.Listener {
	t.Helper()
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{*leaf}, NextProtos: []string{"http/1.1"}})
	if err != nil {
		t.Fatal(err)
	}
	serveEach(t, l, func(c net.Conn) { serve(c.(*tls.Conn)) })
	return l
}

// TestSecretInOurWords has a server that was given a secret repeat it in every part of an answer
// that can be wrong. The secret must not be in the sandbox's answer, nor in the report, in upper or
// lower case.
func TestSecretInOurWords(t *testing.T) {
	const echo = "echoed-5ec2e7-of-the-server"
	answers := map[string]string{
		"no HTTP":             echo + "\r\n\r\n",
		"a version":           "HTTP/" + echo + " 200 OK\r\n\r\n",
		"a status":            "HTTP/1.1 " + echo + "\r\n\r\n",
		"a reason":            "HTTP/1.1 999999 " + echo + "\r\n\r\n",
		"a line without name": "HTTP/1.1 200 OK\r\n" + echo + "\r\n\r\n",
		"a name":              "HTTP/1.1 200 OK\r\n" + echo + " : x\r\n\r\n",
		"a folded line":       "HTTP/1.1 200 OK\r\nX: y\r\n " + echo + "\x00\r\n\r\n",
		"a value":             "HTTP/1.1 200 OK\r\nX: " + echo + "\x01\r\n\r\n",
		"a length":            "HTTP/1.1 200 OK\r\nContent-Length: " + echo + "\r\n\r\n",
		"a transfer encoding": "HTTP/1.1 200 OK\r\nTransfer-Encoding: " + echo + "\r\n\r\n",
		"an encoding":         "HTTP/1.1 200 OK\r\nContent-Encoding: " + echo + "\r\nContent-Length: 1\r\n\r\nx",
		"two encodings":       "HTTP/1.1 200 OK\r\nContent-Encoding: gzip, " + echo + "\r\nContent-Length: 1\r\n\r\nx",
		"a chunk's size":      "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + echo + "\r\n",
		"a trailer":           "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n" + echo + "\r\n\r\n",
		"a switch":            "HTTP/1.1 101 X\r\nUpgrade: " + echo + "\r\nConnection: Upgrade\r\n\r\n",
	}
	outside, err := pki.New("outside")
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := outside.Leaf(host)
	if err != nil {
		t.Fatal(err)
	}
	for _, h2 := range []bool{false, true} {
		for name, answer := range answers {
			t.Run(fmt.Sprintf("%s/h2=%v", name, h2), func(t *testing.T) {
				l := rawTLSServer(t, leaf, func(c *tls.Conn) {
					if _, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
						_, _ = io.WriteString(c, answer)
						_ = c.CloseWrite()
					}
				})
				r := newRig(t, l.Addr(), true, outside)
				r.secrets["key"] = echo
				r.inject(carrel.Injection{Bearer: "key"})
				var got bytes.Buffer
				res, err := r.client(h2).Get(r.url("/"))
				if err != nil {
					fmt.Fprint(&got, err)
				} else {
					_ = res.Header.Write(&got)
					_, _ = io.Copy(&got, res.Body)
					_ = res.Trailer.Write(&got)
					res.Body.Close()
				}
				for _, text := range []string{got.String(), fmt.Sprintf("%+v", r.reported(1))} {
					if strings.Contains(strings.ToLower(text), echo) {
						t.Errorf("it is in %q", text)
					}
				}
			})
		}
		// A certificate comes before the request, but the server may know the secret from an
		// earlier request.
		spoilt, err := outside.Leaf(echo + ".example.net")
		if err != nil {
			t.Fatal(err)
		}
		s, _ := outsideServer(t, true, http.HandlerFunc(echoHandler))
		s.TLS.Certificates[0] = *spoilt
		r := newRig(t, s.Listener.Addr(), true, outside)
		res, err := r.client(h2).Get(r.url("/"))
		if err != nil || res.StatusCode != 502 {
			t.Fatal(res, err)
		}
		b, _ := io.ReadAll(res.Body)
		res.Body.Close()
		if text := fmt.Sprintf("%s %+v", b, r.reported(1)); strings.Contains(text, echo) || !strings.Contains(text, "it is for other names") {
			t.Error(text)
		}
	}
}

// TestTruncation shows that an answer that breaks off does not look complete.
func TestTruncation(t *testing.T) {
	for _, answer := range []string{
		"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\npart",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\npart\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\npart\r\nzz\r\n",
	} {
		l := rawServer(t, func(c io.ReadWriter) { _, _ = io.WriteString(c, answer) })
		r := newRig(t, l.Addr(), false, nil)
		res, err := r.client(false).Get(r.url("/"))
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(res.Body)
		res.Body.Close()
		if string(b) != "part" || err == nil {
			t.Errorf("%q: %q, %v", answer, b, err)
		}
	}
}

// TestSlowHeads shows that a head that does not end in time ends the connection.
func TestSlowHeads(t *testing.T) {
	for _, overTLS := range []bool{false, true} {
		s, ca := outsideServer(t, overTLS, http.HandlerFunc(echoHandler))
		r := newRig(t, s.Listener.Addr(), overTLS, ca)
		r.mu.Lock()
		r.proxy.SetHeadTimeout(200 * time.Millisecond)
		r.mu.Unlock()
		for _, begun := range []string{"GET / HTTP/1.1\r\nHost: " + host + "\r\nX-Slow: ", "G"} {
			if got := r.raw(begun); !strings.HasPrefix(got, "408 ") {
				t.Errorf("%q gets %q", begun, got)
			}
		}
	}
}

// TestNoAuthority shows that TLS is not opened without an authority.
func TestNoAuthority(t *testing.T) {
	s, ca := outsideServer(t, true, http.HandlerFunc(echoHandler))
	r := newRig(t, s.Listener.Addr(), true, ca)
	r.mu.Lock()
	r.proxy = web.New(web.Options{})
	r.mu.Unlock()
	if _, err := r.client(false).Get(r.url("/")); err == nil {
		t.Error("it was opened")
	}
	r.reported(1)
}

// TestOldClients shows that old clients get answers that they can read.
func TestOldClients(t *testing.T) {
	s, _ := outsideServer(t, false, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for range 3 {
			_, _ = io.WriteString(w, "piece ")
			w.(http.Flusher).Flush()
		}
	}))
	r := newRig(t, s.Listener.Addr(), false, nil)
	c := r.dial()
	if _, err := io.WriteString(c, "GET / HTTP/1.0\r\nHost: "+host+"\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(bufio.NewReader(c))
	if err != nil || !strings.HasSuffix(string(b), "\r\n\r\npiece piece piece ") || strings.Contains(string(b), "chunked") {
		t.Errorf("%q, %v", b, err)
	}
}

// TestDialDenied asks for a name that leads to a forbidden address.
func TestDialDenied(t *testing.T) {
	s, _ := outsideServer(t, false, http.HandlerFunc(echoHandler))
	r := newRig(t, s.Listener.Addr(), false, nil)
	r.dialError = &carrel.Error{Kind: carrel.Exhausted, Err: errors.New("100 connections are open")}
	if got := r.raw("GET / HTTP/1.1\r\nHost: " + host + "\r\nConnection: close\r\n\r\n"); !strings.HasPrefix(got, "429 ") || !strings.Contains(got, "100 connections") {
		t.Errorf("%q", got)
	}
}

// TestCrowds shows the bound on a sandbox's open requests.
func TestCrowds(t *testing.T) {
	forms(t, http.HandlerFunc(echoHandler), func(t *testing.T, r *rig, c *http.Client) {
		for _, full := range []bool{true, false} {
			r.proxy.Fill("sbx1", full)
			res, err := c.Get(r.url("/"))
			if err != nil {
				t.Fatal(err)
			}
			res.Body.Close()
			if (res.StatusCode == 429) != full {
				t.Errorf("full %v: %s", full, res.Status)
			}
		}
		r.reported(2)
		testenv.EventuallyNil(t, "no request is open", func() error {
			if n := r.proxy.Open(); n > 0 {
				return fmt.Errorf("%d are", n)
			}
			return nil
		})
	})
}

// TestNamesOfEchoes has a server answer with a secret in a field's name, and with a forged
// Carrel-Denied field. Both must be removed.
func TestNamesOfEchoes(t *testing.T) {
	forms(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header()["X-Plainsecret"] = []string{"v"}
		w.Header().Set("Carrel-Denied", "a lie")
	}), func(t *testing.T, r *rig, c *http.Client) {
		r.secrets["name"] = "Plainsecret"
		r.inject(carrel.Injection{Bearer: "name", Cleartext: true})
		res, err := c.Get(r.url("/"))
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != 200 || strings.Contains(fmt.Sprint(res.Header), "Plainsecret") || res.Header.Get("Carrel-Denied") != "" {
			t.Errorf("%v", res.Header)
		}
	})
}
