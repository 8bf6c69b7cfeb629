package web_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/pki"
	"github.com/carrel-dev/carrel/internal/policy"
	"github.com/carrel-dev/carrel/internal/testenv"
	"github.com/carrel-dev/carrel/internal/wire/web"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	host   = "api.example.com"
	secret = "sk-live/+7f3a9c2e5d8b1&46"
)

// rig is a proxy between a client, as the sandbox, and a server outside.
type rig struct {
	t        testing.TB
	proxy    *web.Proxy
	inside   *pki.CA // the client trusts it
	outside  *pki.CA // the proxy trusts it
	listener net.Listener
	server   net.Addr // where Dial leads
	tls      bool
	quiet    bool          // remembers nothing
	closed   chan struct{} // gets a value when a server's connection is closed; may be nil

	mu        sync.Mutex
	verdict   func(policy.Flow) policy.Verdict
	request   func() error
	dialError error
	decisions []carrel.Decision
	flows     []policy.Flow
	dials     int

	secrets map[string]string
}

// newRig starts a proxy for connections to server, as https (the name is host) or as http.
func newRig(t testing.TB, server net.Addr, overTLS bool, outside *pki.CA) *rig {
	t.Helper()
	inside, err := pki.New("inside")
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, inside: inside, outside: outside, server: server, tls: overTLS, secrets: map[string]string{"key": secret}}
	r.verdict = func(f policy.Flow) policy.Verdict {
		return policy.Verdict{Allow: true, ByName: f.Name, Rule: "rule 1 (test)", Index: -1}
	}
	opts := web.Options{Authority: inside, Credentials: r}
	if outside != nil {
		opts.Roots = outside.Pool()
	}
	r.proxy = web.New(opts)
	r.listener, err = net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := r.listener.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer c.Close()
				r.mu.Lock()
				proxy := r.proxy
				r.mu.Unlock()
				proxy.Serve(ctx, c, r.session())
			})
		}
	})
	t.Cleanup(func() {
		_ = r.listener.Close()
		cancel()
		wg.Wait()
	})
	return r
}

func (r *rig) session() *web.Session {
	s := &web.Session{
		ID: "sbx1", Addr: netip.MustParseAddr("203.0.113.9"), Port: 80, Names: []string{host},
		Judge: func(f policy.Flow) policy.Verdict {
			r.mu.Lock()
			defer r.mu.Unlock()
			if !r.quiet {
				r.flows = append(r.flows, f)
			}
			return r.verdict(f)
		},
		Dial: func(ctx context.Context, _ policy.Flow, v policy.Verdict) (net.Conn, error) {
			r.mu.Lock()
			r.dials++
			err, closed := r.dialError, r.closed
			r.mu.Unlock()
			if err != nil {
				return nil, err
			}
			c, err := (&net.Dialer{}).DialContext(ctx, "tcp", r.server.String())
			if err == nil && closed != nil {
				c = &toldConn{Conn: c, closed: closed}
			}
			return c, err
		},
		Request: func(context.Context, policy.Verdict) error {
			r.mu.Lock()
			defer r.mu.Unlock()
			if r.request != nil {
				return r.request()
			}
			return nil
		},
		Report: func(_ context.Context, d carrel.Decision) {
			r.mu.Lock()
			defer r.mu.Unlock()
			if !r.quiet {
				r.decisions = append(r.decisions, d)
			}
		},
	}
	if r.tls {
		s.Port, s.TLS, s.ServerName = 443, true, host
	}
	return s
}

// toldConn reports when it is closed.
type toldConn struct {
	net.Conn
	once   sync.Once
	closed chan struct{}
}

// Close implements net.Conn.
func (c *toldConn) Close() error {
	err := c.Conn.Close()
	c.once.Do(func() { c.closed <- struct{}{} })
	return err
}

// Secret implements web.Credentials.
func (r *rig) Secret(_ context.Context, _ carrel.ID, name, to string) (string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	v, ok := r.secrets[name]
	if !ok {
		return "", &carrel.Error{Kind: carrel.NotFound}
	}
	if to != host {
		return "", &carrel.Error{Kind: carrel.Forbidden}
	}
	return v, nil
}

// Token implements web.Credentials.
func (r *rig) Token(_ context.Context, _ carrel.ID, name string) (string, error) {
	if name != "ci" {
		return "", &carrel.Error{Kind: carrel.NotFound}
	}
	return "eyJ0b2tlbiI6MX0.signed", nil
}

// inject adds an injection to every request.
func (r *rig) inject(in carrel.Injection) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.verdict = func(f policy.Flow) policy.Verdict {
		return policy.Verdict{Allow: true, ByName: f.Name, Rule: "rule 1 (test)", Index: -1, Inject: &in}
	}
}

// dial opens a connection as the sandbox would.
func (r *rig) dial(protos ...string) net.Conn {
	r.t.Helper()
	c, err := net.Dial("tcp", r.listener.Addr().String())
	if err != nil {
		r.t.Fatal(err)
	}
	if r.tls {
		c = tls.Client(c, &tls.Config{ServerName: host, RootCAs: r.inside.Pool(), NextProtos: protos})
	}
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	r.t.Cleanup(func() { _ = c.Close() })
	return c
}

// client is an HTTP client inside.
func (r *rig) client(h2 bool) *http.Client {
	var protocols http.Protocols
	switch {
	case h2 && r.tls:
		protocols.SetHTTP2(true)
	case h2:
		protocols.SetUnencryptedHTTP2(true)
	default:
		protocols.SetHTTP1(true)
	}
	to := r.listener.Addr().String()
	tr := &http.Transport{
		Protocols: &protocols, TLSClientConfig: &tls.Config{RootCAs: r.inside.Pool()}, DisableCompression: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", to)
		},
	}
	r.t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }, Timeout: time.Minute}
}

// url returns a URL on the server.
func (r *rig) url(path string) string {
	if r.tls {
		return "https://" + host + path
	}
	return "http://" + host + path
}

// reported waits for n decisions.
func (r *rig) reported(n int) []carrel.Decision {
	r.t.Helper()
	var d []carrel.Decision
	testenv.EventuallyNil(r.t, fmt.Sprintf("%d decisions come", n), func() error {
		r.mu.Lock()
		defer r.mu.Unlock()
		if d = slices.Clone(r.decisions); len(d) < n {
			return fmt.Errorf("so far %v", d)
		}
		return nil
	})
	return d
}

// raw sends bytes and returns the answer's status, Carrel-Denied field and body.
func (r *rig) raw(request string) string {
	r.t.Helper()
	c := r.dial("http/1.1")
	if _, err := io.WriteString(c, request); err != nil {
		r.t.Fatal(err)
	}
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return "no answer: " + err.Error()
	}
	b, _ := io.ReadAll(res.Body)
	return fmt.Sprintf("%d %s %s", res.StatusCode, res.Header.Get("Carrel-Denied"), b)
}

// outsideServer starts a server for host that speaks HTTP/1 and HTTP/2.
func outsideServer(t testing.TB, overTLS bool, h http.Handler) (*httptest.Server, *pki.CA) {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	if !overTLS {
		s.Config.Protocols = new(http.Protocols)
		s.Config.Protocols.SetHTTP1(true)
		s.Config.Protocols.SetUnencryptedHTTP2(true)
		s.Start()
		t.Cleanup(s.Close)
		return s, nil
	}
	ca, err := pki.New("outside")
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := ca.Leaf(host)
	if err != nil {
		t.Fatal(err)
	}
	s.TLS = &tls.Config{Certificates: []tls.Certificate{*leaf}}
	s.EnableHTTP2 = true
	s.StartTLS()
	t.Cleanup(s.Close)
	return s, ca
}

// forms runs a test for each form in which HTTP can arrive.
func forms(t *testing.T, handler http.Handler, f func(t *testing.T, r *rig, c *http.Client)) {
	for _, form := range []struct {
		name    string
		tls, h2 bool
	}{{"http1", false, false}, {"http2", false, true}, {"tls-http1", true, false}, {"tls-http2", true, true}} {
		t.Run(form.name, func(t *testing.T) {
			s, ca := outsideServer(t, form.tls, handler)
			r := newRig(t, s.Listener.Addr(), form.tls, ca)
			f(t, r, r.client(form.h2))
		})
	}
}

func echoHandler(w http.ResponseWriter, r *http.Request) {
	b, _ := io.ReadAll(r.Body)
	for k, v := range r.Header {
		w.Header()["X-Echo-"+k] = v
	}
	w.Header().Set("X-Proto", r.Proto)
	fmt.Fprintf(w, "%s %s %s %q", r.Method, r.Host, r.RequestURI, b)
}

func TestForwards(t *testing.T) {
	forms(t, http.HandlerFunc(echoHandler), func(t *testing.T, r *rig, c *http.Client) {
		for i, body := range []string{"", "hello", strings.Repeat("0123456789", 100_000)} {
			method := "POST"
			if body == "" {
				method = "GET"
			}
			for _, chunked := range []bool{false, true} {
				var src io.Reader = strings.NewReader(body)
				if chunked {
					src = io.MultiReader(src)
				}
				req, _ := http.NewRequest(method, r.url("/a%2Fb/c?x=1&y=%20"), src)
				if body == "" {
					req.Body = nil
				}
				req.Header.Set("X-Some", "thing")
				res, err := c.Do(req)
				if err != nil {
					t.Fatal(i, err)
				}
				b, err := io.ReadAll(res.Body)
				res.Body.Close()
				want := fmt.Sprintf("%s %s /a%%2Fb/c?x=1&y=%%20 %q", method, host, body)
				if err != nil || string(b) != want {
					t.Fatalf("%d: got %.200q, %v", i, b, err)
				}
				if res.Header.Get("X-Echo-X-Some") != "thing" || res.Header.Get("X-Echo-Accept-Encoding") != "" {
					t.Errorf("headers: %v", res.Header)
				}
			}
		}
		d := r.reported(6)[0]
		if !d.Allowed || d.Method != "GET" || d.Path != "/a%2Fb/c" || d.Status != 200 || d.Rule != "rule 1 (test)" || d.Name != host || d.Received == 0 || d.Duration == 0 {
			t.Errorf("decision %+v", d)
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.dials != 1 {
			t.Errorf("%d connections were made for one", r.dials)
		}
		if f := r.flows[0]; f.Path != "/a%2Fb/c" || f.Method != "GET" || f.Name != host || f.Opened != r.tls || f.App != policy.AppHTTP {
			t.Errorf("flow %+v", f)
		}
	})
}

func TestRefuses(t *testing.T) {
	forms(t, http.HandlerFunc(echoHandler), func(t *testing.T, r *rig, c *http.Client) {
		r.verdict = func(f policy.Flow) policy.Verdict {
			if f.Method == "GET" {
				return policy.Verdict{Allow: true, ByName: f.Name, Rule: "rule 1", Index: -1}
			}
			return policy.Verdict{Rule: "rule 2 (reads)", Reason: "the method POST is not allowed", Hint: "ask for POST", Index: -1}
		}
		res, err := c.Post(r.url("/x"), "text/plain", strings.NewReader("data"))
		if err != nil {
			t.Fatal(err)
		}
		b, _ := io.ReadAll(res.Body)
		res.Body.Close()
		if res.StatusCode != 403 || res.Header.Get("Carrel-Denied") != "rule 2 (reads)" ||
			!strings.Contains(string(b), "the method POST is not allowed") || !strings.Contains(string(b), "ask for POST") || strings.Count(string(b), "\n") != 1 {
			t.Errorf("%d %v %q", res.StatusCode, res.Header, b)
		}
		req, _ := http.NewRequest("DELETE", r.url("/x"), nil)
		req.Header.Set("Accept", "application/json")
		res, err = c.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		b, _ = io.ReadAll(res.Body)
		res.Body.Close()
		if !strings.HasPrefix(res.Header.Get("Content-Type"), "application/json") || !strings.Contains(string(b), `"rule":"rule 2 (reads)"`) {
			t.Errorf("%v %q", res.Header, b)
		}
		if res, err = c.Get(r.url("/fine")); err != nil || res.StatusCode != 200 {
			t.Fatal(res, err)
		}
		res.Body.Close()
		d := r.reported(3)
		if d[0].Allowed || d[0].Rule != "rule 2 (reads)" || d[0].Reason == "" || d[0].Status != 403 {
			t.Errorf("%+v", d[0])
		}
		if r.mu.Lock(); r.dials != 1 {
			t.Errorf("%d dials", r.dials)
		}
		r.mu.Unlock()
		// Next: an unreachable server, and a limit.
		r.mu.Lock()
		r.dialError = errors.New("connection refused")
		r.mu.Unlock()
		c.CloseIdleConnections()
		if res, err = c.Get(r.url("/fine")); err != nil || res.StatusCode != 502 {
			t.Fatal(res, err)
		}
		b, _ = io.ReadAll(res.Body)
		res.Body.Close()
		if !strings.Contains(string(b), "connection refused") {
			t.Errorf("%q", b)
		}
		r.mu.Lock()
		r.request = func() error { return &carrel.Error{Kind: carrel.Exhausted, Err: errors.New("5 requests per second")} }
		r.mu.Unlock()
		if res, err = c.Get(r.url("/fine")); err != nil || res.StatusCode != 429 || res.Header.Get("Retry-After") == "" {
			t.Fatal(res, err)
		}
		res.Body.Close()
	})
}

func TestInjects(t *testing.T) {
	forms(t, http.HandlerFunc(echoHandler), func(t *testing.T, r *rig, c *http.Client) {
		in := carrel.Injection{Bearer: "key", Cleartext: true, KeepEchoes: true,
			Headers: map[string]string{"X-Api-Key": "k ${secrets.key} ${e2b.identity.tokens.ci}"},
			Query:   map[string]string{"key": "${e2b.secrets.key}"}}
		r.inject(in)
		req, _ := http.NewRequest("GET", r.url("/v1?a=1&%6bey=placeholder&Key=x;key=y&b=2"), nil)
		req.Header["AUTHORIZATION"] = []string{"Bearer placeholder"}
		req.Header["X_Api_Key"] = []string{"placeholder"}
		res, err := c.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		b, _ := io.ReadAll(res.Body)
		res.Body.Close()
		if !strings.Contains(string(b), "/v1?a=1&b=2&key=sk-live%2F%2B7f3a9c2e5d8b1%2646 ") {
			t.Errorf("query: %q", b)
		}
		if got := res.Header.Values("X-Echo-Authorization"); !slices.Equal(got, []string{"Bearer " + secret}) {
			t.Errorf("authorization: %q", got)
		}
		if got := res.Header.Values("X-Echo-X-Api-Key"); !slices.Equal(got, []string{"k " + secret + " eyJ0b2tlbiI6MX0.signed"}) || res.Header.Get("X-Echo-X_api_key") != "" {
			t.Errorf("x-api-key: %q", res.Header)
		}
		if d := r.reported(1)[0]; !slices.Equal(d.Secrets, []string{"ci", "key"}) || strings.Contains(fmt.Sprint(d), secret) {
			t.Errorf("%+v", d)
		}
		// Without TLS, credentials are used only if the injection allows that.
		in.Cleartext = false
		r.inject(in)
		res, err = c.Get(r.url("/"))
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if got := res.Header.Get("X-Echo-Authorization"); (got != "") != r.tls {
			t.Errorf("over TLS %v: %q", r.tls, got)
		}
	})
}

func TestScrubs(t *testing.T) {
	handler := func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Proto", r.Proto)
		w.Header().Set("Location", "https://example.org/?"+r.URL.RawQuery)
		w.Header().Set("X-Encoding", r.Header.Get("Accept-Encoding"))
		w.Header().Set("X-Range", r.Header.Get("Range"))
		w.Header().Set("Trailer", "X-Late")
		w.WriteHeader(302)
		// In pieces of every size.
		text := r.Header.Get("Authorization") + "|" + r.URL.RawQuery + "|" + r.URL.Query().Get("key")
		for i := 0; i < len(text); i += 1 + i%7 {
			_, _ = io.WriteString(w, text[i:min(len(text), i+1+i%7)])
			w.(http.Flusher).Flush()
		}
		w.Header().Set("X-Late", r.Header.Get("Authorization"))
	}
	forms(t, http.HandlerFunc(handler), func(t *testing.T, r *rig, c *http.Client) {
		r.inject(carrel.Injection{Basic: &carrel.BasicAuth{User: "me", Secret: "key"}, Query: map[string]string{"key": "${secrets.key}"}, Cleartext: true})
		req, _ := http.NewRequest("GET", r.url("/"), nil)
		req.Header.Set("Accept-Encoding", "gzip, br")
		req.Header.Set("Range", "bytes=0-1")
		res, err := c.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(res.Body)
		res.Body.Close()
		if err != nil || res.StatusCode != 302 {
			t.Fatal(res.Status, err)
		}
		if !strings.HasPrefix(string(b), "Basic ****") || !strings.HasSuffix(string(b), "|"+strings.Repeat("*", len(secret))) || strings.Contains(string(b), "7f3a9c") {
			t.Errorf("body %q", b)
		}
		if l := res.Header.Get("Location"); !strings.HasPrefix(l, "https://example.org/?key=***") || strings.Contains(l, "7f3a9c") {
			t.Errorf("location %q", l)
		}
		if res.Header.Get("X-Encoding") != "identity" || res.Header.Get("X-Range") != "" {
			t.Errorf("asked for %q, %q", res.Header.Get("X-Encoding"), res.Header.Get("X-Range"))
		}
		if late := res.Trailer.Get("X-Late"); !strings.HasPrefix(late, "Basic ***") {
			t.Errorf("trailer %q", late)
		}
	})
}
