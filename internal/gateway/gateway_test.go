package gateway

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/access"
	"github.com/carrel-dev/carrel/internal/guest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a fake service. Its sandboxes' ports are real listeners on loopback.
type world struct {
	mu    sync.Mutex
	boxes map[carrel.ID]carrel.Sandbox
	ports map[carrel.ID]map[uint16]string // address of the listener
	conns map[carrel.ID]*guest.Conn

	onVisit              func(ctx context.Context, id carrel.ID) error // nil lets everybody in at once
	visits, dones, lists atomic.Int32
}

func newWorld(t *testing.T) *world {
	w := &world{boxes: map[carrel.ID]carrel.Sandbox{}, ports: map[carrel.ID]map[uint16]string{}, conns: map[carrel.ID]*guest.Conn{}}
	t.Cleanup(func() {
		for _, c := range w.conns {
			c.Close()
		}
	})
	return w
}

// add makes a running sandbox with these handlers on its ports.
func (w *world) add(t *testing.T, sb carrel.Sandbox, ports map[uint16]http.Handler) carrel.ID {
	t.Helper()
	sb.ID = carrel.NewID()
	if sb.State == "" {
		sb.State = carrel.Running
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.boxes[sb.ID], w.ports[sb.ID] = sb, map[uint16]string{}
	for p, h := range ports {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if p == carrel.GuestPort && strings.HasPrefix(r.URL.Path, guest.TunnelPath) {
				w.WriteHeader(http.StatusBadGateway) // no listener on loopback
				return
			}
			h.ServeHTTP(w, r)
		}))
		t.Cleanup(srv.Close)
		w.ports[sb.ID][p] = srv.Listener.Addr().String()
	}
	w.conns[sb.ID] = w.conn(sb.ID, w.ports[sb.ID])
	return sb.ID
}

// conn makes a connection to the ports of one life.
func (w *world) conn(id carrel.ID, ports map[uint16]string) *guest.Conn {
	return guest.NewConn(func(ctx context.Context, port uint16) (net.Conn, error) {
		w.mu.Lock()
		addr, ok := ports[port]
		w.mu.Unlock()
		if !ok {
			return nil, syscall.ECONNREFUSED
		}
		return (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	}, guest.ConnOptions{ID: id})
}

func (w *world) Get(_ context.Context, id carrel.ID) (carrel.Sandbox, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if sb, ok := w.boxes[id]; ok {
		return sb, nil
	}
	return carrel.Sandbox{}, &carrel.Error{Op: "get sandbox", Kind: carrel.NotFound, ID: id}
}

func (w *world) List(context.Context, carrel.ListOptions) (carrel.Page, error) {
	w.lists.Add(1)
	w.mu.Lock()
	defer w.mu.Unlock()
	var p carrel.Page
	for _, sb := range w.boxes {
		p.Sandboxes = append(p.Sandboxes, sb)
	}
	return p, nil
}

func (w *world) Visit(ctx context.Context, id carrel.ID) (*guest.Conn, func(), error) {
	if w.onVisit != nil {
		if err := w.onVisit(ctx, id); err != nil {
			return nil, nil, err
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if c, ok := w.conns[id]; ok {
		w.visits.Add(1)
		return c, func() { w.dones.Add(1) }, nil
	}
	return nil, nil, &carrel.Error{Op: "visit sandbox", Kind: carrel.NotFound, ID: id}
}

func (w *world) forget(id carrel.ID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.boxes, id)
}

// front serves the gateway. A teapot answers requests that are for no sandbox.
func front(t *testing.T, w *world, opts Options) *httptest.Server {
	t.Helper()
	opts.Sandboxes = w
	g := New(opts)
	srv := httptest.NewServer(g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) })))
	t.Cleanup(func() { srv.Close(); g.Close() })
	return srv
}

// begin sends a request with headers given as pairs. The caller reads the answer's body.
func begin(t *testing.T, method, target string, body io.Reader, headers ...string) *http.Response {
	t.Helper()
	req, err := http.NewRequest(method, target, body)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		if headers[i] == "Host" {
			req.Host = headers[i+1]
			continue
		}
		req.Header.Set(headers[i], headers[i+1])
	}
	tr := &http.Transport{}
	t.Cleanup(tr.CloseIdleConnections)
	resp, err := (&http.Client{Transport: tr, Timeout: time.Minute}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	return resp
}

// ask sends a request with headers given as pairs and returns the whole answer.
func ask(t *testing.T, method, target string, body io.Reader, headers ...string) (*http.Response, string) {
	t.Helper()
	resp := begin(t, method, target, body, headers...)
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(raw)
}

func say(text string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprintf(w, "%s %s", text, r.URL.RequestURI()) })
}

func TestRouting(t *testing.T) {
	w := newWorld(t)
	id := string(w.add(t, carrel.Sandbox{}, map[uint16]http.Handler{carrel.GuestPort: say("guest"), 3000: say("app")}))
	srv := front(t, w, Options{})
	for _, c := range []struct {
		name    string
		headers []string
		status  int
		body    string
	}{
		{"no sandbox", nil, 418, ""},
		{"id only means the guest", []string{"E2b-Sandbox-Id", id}, 200, "guest /x?y=1"},
		{"id and port", []string{"E2b-Sandbox-Id", id, "E2b-Sandbox-Port", "3000"}, 200, "app /x?y=1"},
		{"host", []string{"Host", "3000-" + id + ".e2b.localhost:8443"}, 200, "app /x?y=1"},
		{"host in capitals", []string{"Host", "3000-" + strings.ToUpper(id) + ".E2B.LocalHost"}, 200, "app /x?y=1"},
		{"headers on the shared host", []string{"Host", "sandbox.example.com", "E2b-Sandbox-Id", id}, 200, "guest /x?y=1"},
		{"headers on the API's host", []string{"Host", "api.example.com", "E2b-Sandbox-Id", id}, 200, "guest /x?y=1"},
		{"headers don't count on a sandbox's host", []string{"Host", "3000-" + id + ".example.com", "E2b-Sandbox-Port", "49983", "E2b-Sandbox-Id", id}, 200, "app /x?y=1"},
		{"bad id", []string{"E2b-Sandbox-Id", "nope"}, 400, `{"sandboxId":"nope","message":"Invalid sandbox ID","code":400}`},
		{"bad port", []string{"E2b-Sandbox-Id", id, "E2b-Sandbox-Port", "99999"}, 400, `{"sandboxId":"` + id + `","message":"Invalid sandbox port","code":400}`},
		{"port 0", []string{"Host", "0-" + id + ".example.com"}, 400, `{"sandboxId":"` + id + `","message":"Invalid sandbox port","code":400}`},
		{"port without id", []string{"E2b-Sandbox-Port", "3000"}, 400, `{"message":"missing header: E2b-Sandbox-Id","code":400}`},
		{"unknown", []string{"E2b-Sandbox-Id", "i00000000000000000000"}, 502, `{"sandboxId":"i00000000000000000000","message":"The sandbox was not found","code":502}`},
		{"closed port", []string{"E2b-Sandbox-Id", id, "E2b-Sandbox-Port", "8080"}, 502,
			`{"sandboxId":"` + id + `","message":"The sandbox is running but port is not open","port":8080,"code":502}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			resp, body := ask(t, "GET", srv.URL+"/x?y=1", nil, c.headers...)
			if resp.StatusCode != c.status || strings.TrimSpace(body) != c.body {
				t.Errorf("got %d %s, want %d %s", resp.StatusCode, body, c.status, c.body)
			}
			if c.status >= 400 && c.status != 418 && !strings.HasPrefix(resp.Header.Get("Content-Type"), "application/json") {
				t.Errorf("content type %q", resp.Header.Get("Content-Type"))
			}
		})
	}
}

func TestStatesAndPages(t *testing.T) {
	w := newWorld(t)
	paused := string(w.add(t, carrel.Sandbox{State: carrel.Paused}, nil))
	starting := string(w.add(t, carrel.Sandbox{State: carrel.Starting}, nil))
	srv := front(t, w, Options{})
	if resp, _ := ask(t, "GET", srv.URL, nil, "E2b-Sandbox-Id", paused); resp.StatusCode != 502 {
		t.Errorf("paused: %d", resp.StatusCode)
	}
	if resp, _ := ask(t, "GET", srv.URL, nil, "E2b-Sandbox-Id", starting); resp.StatusCode != 409 {
		t.Errorf("starting: %d", resp.StatusCode)
	}
	resp, body := ask(t, "GET", srv.URL, nil, "E2b-Sandbox-Id", paused, "Accept", "text/html,*/*", "Origin", "https://example.com")
	if resp.StatusCode != 502 || !strings.Contains(body, "<h1>The sandbox was not found</h1>") {
		t.Errorf("page: %d %s", resp.StatusCode, body)
	}
	browser := "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/130.0.0.0 Safari/537.36"
	running := string(w.add(t, carrel.Sandbox{}, nil))
	for id, title := range map[string]string{paused: "Sandbox Not Found", running: "Closed Port Error"} {
		if _, body := ask(t, "GET", srv.URL, nil, "E2b-Sandbox-Id", id, "E2b-Sandbox-Port", "3000", "User-Agent", browser); !strings.Contains(body, "<title>"+title+"</title>") {
			t.Errorf("a browser that accepts anything gets %s", body)
		}
	}
	if _, body := ask(t, "GET", srv.URL, nil, "E2b-Sandbox-Id", running, "E2b-Sandbox-Port", "3000", "User-Agent", browser, "Origin", "https://example.com"); !strings.HasPrefix(body, "{") {
		t.Errorf("a browser's script gets %s", body)
	}
	if resp.Header.Get("Access-Control-Allow-Origin") != "*" {
		t.Error("an error answer can't be read by a page")
	}
	resp, _ = ask(t, "OPTIONS", srv.URL, nil, "E2b-Sandbox-Id", paused, "Origin", "https://example.com", "Access-Control-Request-Method", "POST")
	if resp.StatusCode != 204 || resp.Header.Get("Access-Control-Allow-Headers") == "" {
		t.Errorf("preflight: %d %v", resp.StatusCode, resp.Header)
	}
}

func TestInternalRoutes(t *testing.T) {
	w := newWorld(t)
	id := string(w.add(t, carrel.Sandbox{}, map[uint16]http.Handler{carrel.GuestPort: say("guest"), 3000: say("app")}))
	srv := front(t, w, Options{})
	for _, p := range []string{"/init", "//init", "/x/../init", "/%69nit", "/freeze", "/carrel/tunnel/22", "/./carrel/x"} {
		if resp, body := ask(t, "POST", srv.URL+p, nil, "E2b-Sandbox-Id", id); resp.StatusCode != 404 || strings.Contains(body, "guest") {
			t.Errorf("%s: %d %s", p, resp.StatusCode, body)
		}
	}
	if _, body := ask(t, "GET", srv.URL+"/init", nil, "E2b-Sandbox-Id", id, "E2b-Sandbox-Port", "3000"); body != "app /init" {
		t.Errorf("another port's /init: %s", body)
	}
}

func TestTrafficToken(t *testing.T) {
	w := newWorld(t)
	sb := carrel.Sandbox{Network: carrel.Network{PrivateTraffic: true}, TrafficToken: "secret"}
	id := string(w.add(t, sb, map[uint16]http.Handler{carrel.GuestPort: say("guest"), 3000: say("app")}))
	srv := front(t, w, Options{})
	at := []string{"E2b-Sandbox-Id", id, "E2b-Sandbox-Port", "3000"}
	for _, c := range []struct {
		token  string
		status int
		text   string
	}{
		{"", 403, `{"sandboxId":"` + id + `","message":"Sandbox is secured with traffic access token. Token header 'e2b-traffic-access-token' is missing","code":403}`},
		{"wrong", 403, `{"sandboxId":"` + id + `","message":"Sandbox is secured with traffic access token. Provided token is invalid.","code":403}`},
		{"secret", 200, "app /"},
	} {
		resp, body := ask(t, "GET", srv.URL+"/", nil, append(at, "e2b-traffic-access-token", c.token)...)
		if resp.StatusCode != c.status || strings.TrimSpace(body) != c.text {
			t.Errorf("%q: %d %s", c.token, resp.StatusCode, body)
		}
	}
	if _, body := ask(t, "GET", srv.URL+"/", nil, "E2b-Sandbox-Id", id); body != "guest /" {
		t.Errorf("the guest's port asks for the traffic token: %s", body)
	}
}

// TestPortOptions shows that servers with TLS are reached over TLS, and that a sandbox may get
// another host name than the requested one.
func TestPortOptions(t *testing.T) {
	w := newWorld(t)
	id := w.add(t, carrel.Sandbox{Network: carrel.Network{MaskHost: "app.example.com:${PORT}", HTTPSPorts: []uint16{8443}}},
		map[uint16]http.Handler{3000: echoHost(), carrel.GuestPort: echoHost()})
	secure := httptest.NewTLSServer(echoHost())
	t.Cleanup(secure.Close)
	w.mu.Lock()
	w.ports[id][8443] = secure.Listener.Addr().String()
	w.mu.Unlock()
	srv := front(t, w, Options{})
	own := strings.TrimPrefix(srv.URL, "http://")
	for port, want := range map[string]string{"3000": "app.example.com:3000 false", "8443": "app.example.com:8443 true", "49983": own + " false"} {
		if resp, body := ask(t, "GET", srv.URL+"/", nil, "E2b-Sandbox-Id", string(id), "E2b-Sandbox-Port", port); resp.StatusCode != 200 || body != want {
			t.Errorf("port %s: %d %s, want %s", port, resp.StatusCode, body, want)
		}
	}
}

// echoHost answers with the request's host, and whether it came over TLS.
func echoHost() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Host, " ", r.TLS != nil) })
}

func TestHeadersInside(t *testing.T) {
	var mu sync.Mutex
	var got http.Header
	var host string
	see := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		got, host = r.Header.Clone(), r.Host
	})
	w := newWorld(t)
	id := string(w.add(t, carrel.Sandbox{AccessToken: "tok"}, map[uint16]http.Handler{carrel.GuestPort: see, 3000: see}))
	srv := front(t, w, Options{Callers: access.NewAuthenticator(access.Key{Secret: "e2b_key"})})
	send := func(port string, extra ...string) {
		ask(t, "GET", srv.URL+"/", nil, append([]string{"E2b-Sandbox-Id", id, "E2b-Sandbox-Port", port, "X-API-KEY", "e2b_key",
			"e2b-traffic-access-token", "x", "X-Forwarded-For", "6.6.6.6", "Host", "sandbox.example.com"}, extra...)...)
	}
	send("3000", "X-Access-Token", "tok")
	for _, h := range []string{"E2b-Sandbox-Id", "E2b-Sandbox-Port", "E2b-Traffic-Access-Token", "X-Api-Key", "X-Access-Token"} {
		if got.Get(h) != "" {
			t.Errorf("%s reached the program: %q", h, got.Get(h))
		}
	}
	if got.Get("X-Forwarded-For") != "127.0.0.1" || got.Get("X-Forwarded-Proto") != "http" || got.Get("X-Forwarded-Host") != "sandbox.example.com" || host != "sandbox.example.com" {
		t.Errorf("forwarded: %v, host %s", got, host)
	}
	send("3000", "X-Access-Token", "its own", "X-API-KEY", "its own")
	if got.Get("X-Access-Token") != "its own" || got.Get("X-Api-Key") != "its own" {
		t.Errorf("the program's own headers are gone: %v", got)
	}
	send("49983", "X-Access-Token", "tok")
	if got.Get("X-Access-Token") != "tok" {
		t.Error("the guest does not get its token")
	}
}

func TestSignature(t *testing.T) {
	w := newWorld(t)
	w.add(t, carrel.Sandbox{AccessToken: "other"}, map[uint16]http.Handler{carrel.GuestPort: say("other")})
	w.add(t, carrel.Sandbox{AccessToken: "mine"}, map[uint16]http.Handler{carrel.GuestPort: say("mine")})
	w.add(t, carrel.Sandbox{}, map[uint16]http.Handler{carrel.GuestPort: say("open")})
	srv := front(t, w, Options{})
	sign := func(s string) string {
		sum := sha256.Sum256([]byte(s))
		return url.QueryEscape("v1_" + strings.TrimRight(base64.StdEncoding.EncodeToString(sum[:]), "="))
	}
	q := "/files?path=a.txt&username=user&signature=" + sign("a.txt:read:user:mine:99") + "&signature_expiration=99"
	if resp, body := ask(t, "GET", srv.URL+q, nil); resp.StatusCode != 200 || !strings.HasPrefix(body, "mine /files") {
		t.Errorf("read: %d %s", resp.StatusCode, body)
	}
	if resp, body := ask(t, "POST", srv.URL+"/files?signature="+sign(":write::mine"), nil); resp.StatusCode != 200 || !strings.HasPrefix(body, "mine") {
		t.Errorf("write: %d %s", resp.StatusCode, body)
	}
	for _, bad := range []string{sign("a.txt:write:user:mine"), sign("a.txt:read:user:"), "v1_x"} {
		resp, body := ask(t, "GET", srv.URL+"/files?path=a.txt&username=user&signature="+bad, nil)
		if resp.StatusCode != 401 || strings.TrimSpace(body) != `{"message":"invalid signature","code":401}` {
			t.Errorf("bad signature: %d %s", resp.StatusCode, body)
		}
	}
}

// TestSignedFileIsNoPage shows that a file which somebody opens with a signed link can't act as a page
// of the daemon: its script has another origin, and it sets no cookie.
func TestSignedFileIsNoPage(t *testing.T) {
	w := newWorld(t)
	w.add(t, carrel.Sandbox{AccessToken: "mine"}, map[uint16]http.Handler{carrel.GuestPort: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		w.Header().Set("Content-Security-Policy", "script-src *")
		w.Header().Set("Set-Cookie", "carrel_session=theirs")
		w.Header().Set("Clear-Site-Data", `"cookies"`)
		w.Header().Set("Service-Worker-Allowed", "/")
	})})
	srv := front(t, w, Options{})
	sum := sha256.Sum256([]byte("a.html:read::mine"))
	link := srv.URL + "/files?path=a.html&signature=" + url.QueryEscape("v1_"+base64.RawStdEncoding.EncodeToString(sum[:]))
	resp, _ := ask(t, "GET", link, nil)
	h := resp.Header
	if resp.StatusCode != 200 || h.Get("Content-Security-Policy") != "sandbox; frame-ancestors 'none'" || h.Get("X-Content-Type-Options") != "nosniff" ||
		h.Get("Set-Cookie")+h.Get("Clear-Site-Data")+h.Get("Service-Worker-Allowed") != "" {
		t.Errorf("%d %v", resp.StatusCode, h)
	}
}

// TestSignatureBounds shows that a path, a user or a time that is too long is refused by name
// before any sandbox is looked at. So is a text that can't be a signature.
func TestSignatureBounds(t *testing.T) {
	w := newWorld(t)
	w.add(t, carrel.Sandbox{AccessToken: "mine"}, map[uint16]http.Handler{carrel.GuestPort: say("mine")})
	srv := front(t, w, Options{})
	sum := sha256.Sum256([]byte("a"))
	shaped := url.QueryEscape("v1_" + base64.RawStdEncoding.EncodeToString(sum[:]))
	for _, c := range []struct {
		query string
		code  int
		says  string
	}{
		{"path=" + strings.Repeat("p", 4096) + "&signature=" + shaped, 400, "path is 4096 bytes long, more than 4095"},
		{"path=" + strings.Repeat("%2E", 4096) + "&signature=" + shaped, 400, "path is 4096 bytes long"},
		{"path=a&username=" + strings.Repeat("u", 257) + "&signature=" + shaped, 400, "username is 257 bytes long"},
		{"path=a&signature_expiration=" + strings.Repeat("9", 21) + "&signature=" + shaped, 400, "signature_expiration is 21 bytes long"},
		{"path=" + strings.Repeat("p", 4095) + "&signature=" + shaped, 401, "invalid signature"},
		{"path=a&signature=v1_" + strings.Repeat("A", 1<<10), 401, "invalid signature"},
	} {
		before := w.lists.Load()
		resp, body := ask(t, "GET", srv.URL+"/files?"+c.query, nil)
		if resp.StatusCode != c.code || !strings.Contains(body, c.says) {
			t.Errorf("%.80s…: %d %s", c.query, resp.StatusCode, body)
		}
		if looked := w.lists.Load() != before; looked != (c.code == 401 && strings.HasSuffix(c.query, shaped)) {
			t.Errorf("%.80s…: sandboxes were looked at: %v", c.query, looked)
		}
	}
}

// BenchmarkSignature measures a request without any right among 10,000 sandboxes.
func BenchmarkSignature(b *testing.B) {
	sum := sha256.Sum256([]byte("a"))
	r := httptest.NewRequest("GET", "/files?path="+strings.Repeat("p", 4095)+"&signature="+url.QueryEscape("v1_"+base64.RawStdEncoding.EncodeToString(sum[:])), nil)
	for b.Loop() {
		sig, err := signatureOf(r)
		if err != nil {
			b.Fatal(err)
		}
		for range 10000 {
			if sig.madeWith("e2b_0123456789abcdef0123456789abcdef") {
				b.Fatal("made with it")
			}
		}
	}
}

// TestStreaming reads each piece of an answer as soon as it is written, while the request itself is
// still being sent.
func TestStreaming(t *testing.T) {
	echo := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).EnableFullDuplex()
		w.Header().Set("Trailer", "X-Sum")
		w.WriteHeader(200)
		_ = http.NewResponseController(w).Flush()
		sc := bufio.NewScanner(r.Body)
		for sc.Scan() {
			fmt.Fprintf(w, "got %s\n", sc.Text())
			_ = http.NewResponseController(w).Flush()
		}
		w.Header().Set("X-Sum", "done")
	})
	w := newWorld(t)
	id := w.add(t, carrel.Sandbox{}, map[uint16]http.Handler{carrel.GuestPort: echo})
	g := New(Options{Sandboxes: w})
	defer g.Close()
	for _, proto := range []string{"h1", "h2c", "h2"} {
		t.Run(proto, func(t *testing.T) {
			srv := httptest.NewUnstartedServer(g.Wrap(http.NotFoundHandler()))
			tr := &http.Transport{Protocols: new(http.Protocols)}
			defer tr.CloseIdleConnections()
			switch proto {
			case "h1":
				tr.Protocols.SetHTTP1(true)
				srv.Start()
			case "h2c":
				tr.Protocols.SetUnencryptedHTTP2(true)
				srv.Config.Protocols = new(http.Protocols)
				srv.Config.Protocols.SetUnencryptedHTTP2(true)
				srv.Start()
			case "h2":
				tr.Protocols.SetHTTP2(true)
				srv.EnableHTTP2 = true
				srv.StartTLS()
				tr.TLSClientConfig = srv.Client().Transport.(*http.Transport).TLSClientConfig
			}
			defer srv.Close()
			pr, pw := io.Pipe()
			req, _ := http.NewRequest("POST", srv.URL+"/", pr)
			req.Header.Set("E2b-Sandbox-Id", string(id))
			resp, err := tr.RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			br := bufio.NewReader(resp.Body)
			for i := range 3 {
				fmt.Fprintf(pw, "line %d\n", i)
				line, err := br.ReadString('\n')
				if err != nil || line != fmt.Sprintf("got line %d\n", i) {
					t.Fatalf("%q %v", line, err)
				}
			}
			pw.Close()
			if _, err := br.ReadByte(); !errors.Is(err, io.EOF) {
				t.Fatalf("after the end: %v", err)
			}
			if resp.Trailer.Get("X-Sum") != "done" {
				t.Errorf("trailer: %v", resp.Trailer)
			}
		})
	}
}

// TestDeathMidStream shows that a guest's death breaks the client's stream off at once, and that
// this does not look like a normal end.
func TestDeathMidStream(t *testing.T) {
	die := make(chan struct{})
	half := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, "first")
		_ = http.NewResponseController(w).Flush()
		<-die
		c, _, _ := http.NewResponseController(w).Hijack()
		_ = c.(*net.TCPConn).SetLinger(0)
		c.Close()
	})
	w := newWorld(t)
	id := w.add(t, carrel.Sandbox{}, map[uint16]http.Handler{carrel.GuestPort: half})
	srv := front(t, w, Options{})
	br := bufio.NewReader(begin(t, "GET", srv.URL, nil, headerID, string(id)).Body)
	if line, err := br.ReadString('\n'); line != "first\n" {
		t.Fatal(line, err)
	}
	w.forget(id)
	close(die)
	if _, err := io.ReadAll(br); err == nil {
		t.Error("the stream ended as if nothing had happened")
	}
	if resp, body := ask(t, "GET", srv.URL+"/health", nil, "E2b-Sandbox-Id", string(id)); resp.StatusCode != 502 || !strings.Contains(body, "The sandbox was not found") {
		t.Errorf("afterwards: %d %s", resp.StatusCode, body)
	}
}

// TestWebSocket uses just enough of RFC 6455 to see frames go both ways.
func TestWebSocket(t *testing.T) {
	ws := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		sum := sha1.Sum([]byte(r.Header.Get("Sec-WebSocket-Key") + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
		c, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer c.Close()
		fmt.Fprintf(rw, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: %s\r\n\r\n", base64.StdEncoding.EncodeToString(sum[:]))
		rw.Flush()
		_, _ = io.Copy(c, rw) // echoes the masked frame: enough to see that bytes pass
	})
	w := newWorld(t)
	id := w.add(t, carrel.Sandbox{}, map[uint16]http.Handler{8765: ws})
	srv := front(t, w, Options{})
	c, err := net.Dial("tcp", srv.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	fmt.Fprintf(c, "GET /socket HTTP/1.1\r\nHost: 8765-%s.example.com\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n", id)
	br := bufio.NewReader(c)
	resp, err := http.ReadResponse(br, nil)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != 101 || resp.Header.Get("Sec-WebSocket-Accept") != "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" {
		t.Fatalf("%d %v", resp.StatusCode, resp.Header)
	}
	frame := []byte{0x81, 0x82, 1, 2, 3, 4, 'h' ^ 1, 'i' ^ 2}
	for range 3 {
		if _, err := c.Write(frame); err != nil {
			t.Fatal(err)
		}
		back := make([]byte, len(frame))
		if _, err := io.ReadFull(br, back); err != nil || !bytes.Equal(back, frame) {
			t.Fatalf("%x %v", back, err)
		}
	}
}

func TestTooManyRequests(t *testing.T) {
	release := make(chan struct{})
	started := make(chan struct{}, 8)
	slow := http.HandlerFunc(func(_ http.ResponseWriter, _ *http.Request) { started <- struct{}{}; <-release })
	w := newWorld(t)
	id := string(w.add(t, carrel.Sandbox{}, map[uint16]http.Handler{carrel.GuestPort: slow}))
	srv := front(t, w, Options{MaxPerSandbox: 2})
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			req, _ := http.NewRequest("GET", srv.URL, nil)
			req.Header.Set("E2b-Sandbox-Id", id)
			tr := &http.Transport{}
			defer tr.CloseIdleConnections()
			if resp, err := tr.RoundTrip(req); err == nil {
				resp.Body.Close()
			}
		})
	}
	<-started
	<-started
	resp, body := ask(t, "GET", srv.URL, nil, "E2b-Sandbox-Id", id)
	if resp.StatusCode != 429 || resp.Header.Get("Retry-After") != "1" {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
	close(release)
	wg.Wait()
	if resp, _ := ask(t, "GET", srv.URL, nil, "E2b-Sandbox-Id", id); resp.StatusCode != 200 {
		t.Errorf("afterwards: %d", resp.StatusCode)
	}
}

func TestConcurrent(t *testing.T) {
	w := newWorld(t)
	var ids []string
	for i := range 4 {
		ids = append(ids, string(w.add(t, carrel.Sandbox{}, map[uint16]http.Handler{carrel.GuestPort: say("guest" + strconv.Itoa(i)), 80: say("app" + strconv.Itoa(i))})))
	}
	srv := front(t, w, Options{})
	tr := &http.Transport{MaxIdleConnsPerHost: 200}
	defer tr.CloseIdleConnections()
	var wg sync.WaitGroup
	for n := range 200 {
		wg.Go(func() {
			i, port, want := n%4, "49983", "guest"
			if n%8 >= 4 {
				port, want = "80", "app"
			}
			req, _ := http.NewRequest("POST", srv.URL+"/q", strings.NewReader(strings.Repeat("x", 1000)))
			req.Header.Set("E2b-Sandbox-Id", ids[i])
			req.Header.Set("E2b-Sandbox-Port", port)
			resp, err := tr.RoundTrip(req)
			if err != nil {
				t.Error(err)
				return
			}
			defer resp.Body.Close()
			if raw, _ := io.ReadAll(resp.Body); string(raw) != want+strconv.Itoa(i)+" /q" {
				t.Errorf("sandbox %d: %q", i, raw)
			}
		})
	}
	wg.Wait()
}

// TestWildcardTLS reaches a port by its own host name, over HTTP/1.1 and HTTP/2. The test makes the
// certificate and its CA.
func TestWildcardTLS(t *testing.T) {
	w := newWorld(t)
	id := string(w.add(t, carrel.Sandbox{}, map[uint16]http.Handler{3000: say("app")}))
	g := New(Options{Sandboxes: w})
	defer g.Close()
	srv := httptest.NewUnstartedServer(g.Wrap(http.NotFoundHandler()))
	pool, cert := wildcard(t, "sandboxes.example.com")
	srv.TLS = &tls.Config{Certificates: []tls.Certificate{cert}, NextProtos: []string{"h2", "http/1.1"}}
	srv.EnableHTTP2 = true
	srv.StartTLS()
	defer srv.Close()
	for _, h2 := range []bool{false, true} {
		tr := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, ForceAttemptHTTP2: h2,
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return (&net.Dialer{}).DialContext(ctx, "tcp", srv.Listener.Addr().String())
			}}
		resp, err := (&http.Client{Transport: tr}).Get("https://3000-" + id + ".sandboxes.example.com/hi")
		if err != nil {
			t.Fatal(err)
		}
		raw, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		tr.CloseIdleConnections()
		if string(raw) != "app /hi" || (resp.ProtoMajor == 2) != h2 {
			t.Errorf("h2=%v: %s %s", h2, resp.Proto, raw)
		}
	}
}

// wildcard makes a CA, and a certificate for *.domain from it.
func wildcard(t *testing.T, domain string) (*x509.CertPool, tls.Certificate) {
	t.Helper()
	caKey, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	ca := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	rawCA, err := x509.CreateCertificate(rand.Reader, ca, ca, &caKey.PublicKey, caKey)
	if err != nil {
		t.Fatal(err)
	}
	parsed, _ := x509.ParseCertificate(rawCA)
	key, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	leaf := &x509.Certificate{SerialNumber: big.NewInt(2), NotAfter: time.Now().Add(time.Hour), DNSNames: []string{domain, "*." + domain}}
	raw, err := x509.CreateCertificate(rand.Reader, leaf, parsed, &key.PublicKey, caKey)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(parsed)
	return pool, tls.Certificate{Certificate: [][]byte{raw}, PrivateKey: key}
}

func FuzzHost(f *testing.F) {
	for _, s := range []string{"3000-i00000000000000000000.example.com:80", "0-i.x", "-i.x", "1-", "[::1]:80", "a.b", "99999-x.y", "1-2-3.x", "١-i00000000000000000000.x", "%31-i.x"} {
		f.Add(s, "", "")
	}
	f.Add("localhost", "i00000000000000000000", "80")
	f.Add("localhost", "", "80")
	f.Fuzz(func(t *testing.T, host, id, port string) {
		h := http.Header{}
		if id != "" {
			h["E2b-Sandbox-Id"] = []string{id}
		}
		if port != "" {
			h["E2b-Sandbox-Port"] = []string{port}
		}
		target, ok, err := Route(host, h)
		switch {
		case err != nil && carrel.KindOf(err) != carrel.Invalid:
			t.Fatalf("kind of %v", err)
		case ok && err == nil:
			if _, perr := carrel.ParseID(string(target.ID)); perr != nil || target.Port == 0 {
				t.Fatalf("%q %q %q gave %+v", host, id, port, target)
			}
		case !ok && (id != "" || port != ""):
			t.Fatalf("headers were ignored on %q", host)
		}
	})
}

// BenchmarkDownload and BenchmarkUpload move 64 MiB through the gateway.
func BenchmarkDownload(b *testing.B) { benchTransfer(b, false) }

// BenchmarkUpload is the other direction.
func BenchmarkUpload(b *testing.B) { benchTransfer(b, true) }

func benchTransfer(b *testing.B, up bool) {
	const size = 64 << 20
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if up {
			_, _ = io.Copy(io.Discard, r.Body)
			return
		}
		chunk := make([]byte, 64<<10)
		for range size / len(chunk) {
			_, _ = w.Write(chunk)
		}
	})
	backend := httptest.NewServer(h)
	defer backend.Close()
	id := carrel.NewID()
	conn := guest.NewConn(func(ctx context.Context, _ uint16) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", backend.Listener.Addr().String())
	}, guest.ConnOptions{ID: id})
	defer conn.Close()
	w := &world{boxes: map[carrel.ID]carrel.Sandbox{id: {ID: id, State: carrel.Running}}, conns: map[carrel.ID]*guest.Conn{id: conn}}
	g := New(Options{Sandboxes: w})
	defer g.Close()
	srv := httptest.NewServer(g.Wrap(http.NotFoundHandler()))
	defer srv.Close()
	tr := &http.Transport{WriteBufferSize: 64 << 10, ReadBufferSize: 64 << 10}
	defer tr.CloseIdleConnections()
	data := make([]byte, size)
	b.SetBytes(size)
	for b.Loop() {
		var body io.Reader
		if up {
			body = bytes.NewReader(data)
		}
		req, _ := http.NewRequest("POST", srv.URL+"/files", body)
		req.Header.Set("E2b-Sandbox-Id", string(id))
		resp, err := tr.RoundTrip(req)
		if err != nil {
			b.Fatal(err)
		}
		_, _ = io.CopyBuffer(struct{ io.Writer }{io.Discard}, resp.Body, make([]byte, 128<<10))
		resp.Body.Close()
	}
}

// TestBrokenBody sends bodies that break off. That is the client's fault, so it gets a 400 and
// loses its connection. It never gets an empty 200.
func TestBrokenBody(t *testing.T) {
	w := newWorld(t)
	reader := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err == nil {
			fmt.Fprint(w, "whole")
		}
	})
	id := string(w.add(t, carrel.Sandbox{}, map[uint16]http.Handler{carrel.GuestPort: reader, 3000: reader}))
	srv := front(t, w, Options{})
	for _, port := range []string{"49983", "3000"} {
		for name, c := range map[string]struct{ body, want string }{
			"whole":         {"Content-Length: 3\r\n\r\nabc", "HTTP/1.1 200"},
			"no chunk":      {"Transfer-Encoding: chunked\r\n\r\nzz\r\nGET / HTTP/1.1\r\nHost: x\r\n\r\n", "HTTP/1.1 400"},
			"cut chunk":     {"Transfer-Encoding: chunked\r\n\r\nff\r\nabc", "HTTP/1.1 400"},
			"cut":           {"Content-Length: 100\r\n\r\nabc", "HTTP/1.1 400"},
			"endless chunk": {"Transfer-Encoding: chunked\r\n\r\n1;" + strings.Repeat("a", 9000) + "\r\na\r\n", "HTTP/1.1 400"},
		} {
			t.Run(port+" "+name, func(t *testing.T) {
				conn, err := net.Dial("tcp", srv.Listener.Addr().String())
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
				_ = conn.SetDeadline(time.Now().Add(time.Minute))
				fmt.Fprintf(conn, "POST / HTTP/1.1\r\nHost: x\r\nE2b-Sandbox-Id: %s\r\nE2b-Sandbox-Port: %s\r\nConnection: close\r\n%s", id, port, c.body)
				if strings.HasPrefix(name, "cut") {
					_ = conn.(*net.TCPConn).CloseWrite()
				}
				raw, err := io.ReadAll(conn)
				if !strings.HasPrefix(string(raw), c.want) || strings.Count(string(raw), "HTTP/1.1") != 1 {
					t.Errorf("%q, %v; want one %s", raw, err, c.want)
				}
			})
		}
	}
}
