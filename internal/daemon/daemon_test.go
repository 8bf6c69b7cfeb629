package daemon

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/client"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/reexec"
	"github.com/carrel-dev/carrel/internal/testenv"
)

func TestMain(m *testing.M) {
	if reexec.Run(Reexec()) { // this binary as a worker
		return
	}
	goleak.VerifyTestMain(m)
}

func TestFirstStart(t *testing.T) {
	cfg := testConfig(t)
	d := run(t, cfg, Options{})
	if !d.firstRun || !regexp.MustCompile(`^e2b_[0-9a-f]{40}$`).MatchString(d.Key()) {
		t.Errorf("key %q, first %v", d.Key(), d.firstRun)
	}
	for name, mode := range map[string]os.FileMode{"": 0o700, "api-key": 0o600, "daemon.json": 0o600, "state.db": 0o600} {
		testenv.EventuallyNil(t, "the file is there", func() error { _, err := os.Stat(filepath.Join(cfg.DataDir, name)); return err })
		info, err := os.Stat(filepath.Join(cfg.DataDir, name))
		if err != nil || info.Mode().Perm() != mode {
			t.Errorf("%q: %v %v", name, info.Mode(), err)
		}
	}
	var found struct {
		URL, Addr string
		PID       int
	}
	raw, _ := os.ReadFile(filepath.Join(cfg.DataDir, "daemon.json"))
	if err := json.Unmarshal(raw, &found); err != nil || found.URL != d.URL() || found.PID != os.Getpid() {
		t.Errorf("daemon.json: %s %v", raw, err)
	}
	if resp, err := http.Get(d.URL() + "/health"); err != nil || resp.StatusCode != 204 {
		t.Errorf("health: %v %v", resp, err)
	}
	http.DefaultClient.CloseIdleConnections()

	_, err := New(t.Context(), cfg, Options{Drivers: []driver.Driver{newFakeDriver()}})
	if carrel.KindOf(err) != carrel.Conflict || !strings.Contains(carrel.HintOf(err), "--data-dir") {
		t.Errorf("a second daemon on the same data: %v", err)
	}
	key := d.Key()
	if err := d.stop(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(cfg.DataDir, "daemon.json")); err == nil {
		t.Error("daemon.json outlives the daemon")
	}
	if again := run(t, cfg, Options{}); again.Key() != key || again.firstRun {
		t.Error("the second start made a new key")
	}
}

func TestBadStart(t *testing.T) {
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		listen string
		data   string
		cert   string
		tier   carrel.Tier
		kind   carrel.Kind
		field  string
	}{
		{name: "taken port", listen: busy.Addr().String(), kind: carrel.Unavailable, field: "listen"},
		{name: "bad address", listen: "nowhere", kind: carrel.Invalid, field: "listen"},
		{name: "data directory is a file", data: file, kind: carrel.Unsupported, field: "data-dir"},
		{name: "certificate is missing", cert: file, kind: carrel.Invalid, field: "tls-cert"},
		{name: "tier is missing", tier: carrel.MicroVM, kind: carrel.Invalid, field: "tier"},
	} {
		cfg := testConfig(t)
		if c.listen != "" {
			cfg.Listen = c.listen
		}
		if c.data != "" {
			cfg.DataDir = c.data
		}
		cfg.TLSCert, cfg.TLSKey, cfg.DefaultTier = c.cert, c.cert, c.tier
		_, err := New(t.Context(), cfg, Options{Drivers: []driver.Driver{newFakeDriver()}})
		ce, _ := errors.AsType[*carrel.Error](err)
		if carrel.KindOf(err) != c.kind || ce.Field != c.field {
			t.Errorf("%s: %v (kind %s)", c.name, err, carrel.KindOf(err))
		}
	}
	cfg := testConfig(t)
	if err := os.MkdirAll(cfg.DataDir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(cfg.DataDir, "api-key"), []byte("short"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := New(t.Context(), cfg, Options{Drivers: []driver.Driver{newFakeDriver()}}); carrel.KindOf(err) != carrel.Invalid {
		t.Errorf("a spoiled key: %v", err)
	}
}

// TestWholePath uses both doors, with the client and with plain requests.
func TestWholePath(t *testing.T) {
	d := run(t, testConfig(t), Options{})
	svc, err := client.New(d.URL(), d.Key())
	if err != nil {
		t.Fatal(err)
	}
	defer svc.Close()
	ctx := t.Context()
	sb, err := svc.Create(ctx, carrel.CreateOptions{Timeout: time.Minute, Metadata: map[string]string{"k 1": "v=&%"}})
	if err != nil {
		t.Fatal(err)
	}
	page, err := svc.List(ctx, carrel.ListOptions{Metadata: map[string]string{"k 1": "v=&%"}})
	if err != nil || len(page.Sandboxes) != 1 || page.Sandboxes[0].ID != sb.ID || page.Running != 1 {
		t.Errorf("list: %+v %v", page, err)
	}
	if got, err := svc.SetTimeout(ctx, sb.ID, time.Hour, true); err != nil || time.Until(got.Ends) < 59*time.Minute {
		t.Errorf("timeout: %+v %v", got, err)
	}
	c, err := svc.Computer(ctx, sb.ID)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := c.Dial(ctx, echoPort)
	if err != nil {
		t.Fatal(err)
	}
	back := make([]byte, 5)
	if _, err := io.WriteString(conn, "hello"); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(conn, back); err != nil || string(back) != "hello" {
		t.Errorf("echo: %q %v", back, err)
	}
	conn.Close()
	if _, err := c.Dial(ctx, 8080); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("closed port: %v", err)
	}
	req, _ := http.NewRequest("GET", d.URL()+"/anything", nil)
	req.Header.Set("E2b-Sandbox-Id", string(sb.ID))
	tr := &http.Transport{Protocols: new(http.Protocols)}
	tr.Protocols.SetUnencryptedHTTP2(true)
	defer tr.CloseIdleConnections()
	resp, err := tr.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	raw, _ := io.ReadAll(resp.Body)
	resp.Body.Close()
	if string(raw) != "guest of "+string(sb.ID) || resp.ProtoMajor != 2 {
		t.Errorf("data plane over h2c: %s %s", resp.Proto, raw)
	}
	rows, err := svc.(*client.Client).Doctor(ctx)
	if err != nil || len(rows) != 2 || !rows[0].OK || !rows[0].Default ||
		rows[0].Findings[0].What != "nothing is real" || rows[1].Driver != "base" {
		t.Errorf("doctor: %+v %v", rows, err)
	}
	if err := svc.Kill(ctx, sb.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := svc.Get(ctx, sb.ID); carrel.KindOf(err) != carrel.NotFound {
		t.Errorf("after kill: %v", err)
	}
}

// TestSurvivors shows that sandboxes outlive a stop, and that the next daemon has them.
func TestSurvivors(t *testing.T) {
	cfg, drv := testConfig(t), newFakeDriver()
	d := run(t, cfg, Options{Drivers: []driver.Driver{drv}})
	var made struct{ SandboxID carrel.ID }
	if s := d.post(t, "/v2/sandboxes", `{"templateID":"sim"}`, &made); s != 201 {
		t.Fatal(s)
	}
	if err := d.stop(); err != nil {
		t.Fatal(err)
	}
	next := run(t, cfg, Options{Drivers: []driver.Driver{drv}, KillOnClose: true})
	if sb, err := next.Service().Get(t.Context(), made.SandboxID); err != nil || sb.State != carrel.Running {
		t.Errorf("%+v %v", sb, err)
	}
}

// TestStopEndsStreams shows that events, dialled streams and endless answers do not delay the
// daemon's stop.
func TestStopEndsStreams(t *testing.T) {
	d := run(t, testConfig(t), Options{})
	svc, err := client.New(d.URL(), d.Key())
	if err != nil {
		t.Fatal(err)
	}
	defer svc.Close()
	sb, err := svc.Create(t.Context(), carrel.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	c, err := svc.Computer(t.Context(), sb.ID)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := c.Dial(t.Context(), echoPort)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	seen := make(chan carrel.Event, 100)
	wg.Go(func() {
		for e := range svc.Events(ctx, 1) {
			seen <- e
		}
	})
	<-seen
	req, _ := http.NewRequest("GET", d.URL()+"/slow", nil)
	req.Header.Set("E2b-Sandbox-Id", string(sb.ID))
	tr := &http.Transport{}
	defer tr.CloseIdleConnections()
	resp, err := tr.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if err := d.stop(); err != nil {
		t.Fatal(err)
	}
	_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
	if _, err := conn.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the dialled stream lives on: %v", err)
	}
}

// TestHostileClients sends headers without end, too many headers, and headers that arrive slowly.
func TestHostileClients(t *testing.T) {
	cfg := testConfig(t)
	cfg.MaxConnections = 3
	d := run(t, cfg, Options{})
	addr := strings.TrimPrefix(d.URL(), "http://")
	raw := func(request string) (string, error) {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			return "", err
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(headerTime + time.Minute))
		if _, err := io.WriteString(c, request); err != nil && !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.EPIPE) {
			return "", err
		}
		return bufio.NewReader(c).ReadString('\n')
	}
	if line, err := raw("GET /health HTTP/1.1\r\nHost: x\r\nA: " + strings.Repeat("a", headerBytes+8192) + "\r\n\r\n"); !strings.Contains(line, "431") && !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("long header: %q %v", line, err)
	}
	var many strings.Builder
	for i := range headerCount + 1 {
		fmt.Fprintf(&many, "H%d: x\r\n", i)
	}
	if line, err := raw("GET /health HTTP/1.1\r\nHost: x\r\n" + many.String() + "\r\n"); !strings.Contains(line, "431") {
		t.Errorf("many headers: %q %v", line, err)
	}
	if line, _ := raw("nonsense, longer than a preface\r\n\r\n"); !strings.Contains(line, "400") {
		t.Errorf("nonsense: %q", line)
	}
	// Three slow clients take all the places. They are cut off, and others come in.
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			if line, err := raw("GET /health HTTP/1.1\r\nHost:"); err == nil && !strings.Contains(line, "408") {
				t.Errorf("a slow client was answered %q", line)
			}
		})
	}
	time.Sleep(100 * time.Millisecond)
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: headerTime + time.Minute}).Get(d.URL() + "/health")
	if err != nil || resp.StatusCode != 204 {
		t.Fatalf("%v %v", resp, err)
	}
	wg.Wait()
}

// TestUnwantedBodies sends requests without their bodies, which the daemon does not need. The
// answer must come soon anyway. A client without a key can't keep its connection any longer.
func TestUnwantedBodies(t *testing.T) {
	testenv.Long(t, "waits for a deadline")
	d := run(t, testConfig(t), Options{})
	var wg sync.WaitGroup
	for request, status := range map[string]string{
		"POST /sandboxes HTTP/1.1\r\nHost: x":                                             "401",
		"GET /health HTTP/1.1\r\nHost: x":                                                 "204",
		"POST /nope HTTP/1.1\r\nHost: x\r\nX-API-KEY: " + d.Key():                         "404",
		"POST /sandboxes HTTP/1.1\r\nHost: x" + strings.Repeat("\r\nA: b", headerCount+1): "431",
		"POST /files HTTP/1.1\r\nHost: x\r\nE2b-Sandbox-Id: iaaaaaaaaaaaaaaaaaaaa":        "502",
	} {
		wg.Go(func() {
			c, err := net.Dial("tcp", strings.TrimPrefix(d.URL(), "http://"))
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			_ = c.SetDeadline(time.Now().Add(restTime + time.Minute))
			fmt.Fprint(c, request+"\r\nContent-Length: 1000\r\n\r\na")
			if raw, err := io.ReadAll(c); err != nil || !strings.HasPrefix(string(raw), "HTTP/1.1 "+status) {
				t.Errorf("%.40q: %.80q, %v; want %s and the end", request, raw, err, status)
			}
		})
	}
	wg.Wait()
}

// TestTLS serves a wildcard name and takes a new certificate on SIGHUP.
func TestTLS(t *testing.T) {
	cfg := testConfig(t)
	dir := t.TempDir()
	cfg.TLSCert, cfg.TLSKey, cfg.Domain = filepath.Join(dir, "c.pem"), filepath.Join(dir, "k.pem"), "box.example.com:8443"
	first := writeCert(t, cfg.TLSCert, cfg.TLSKey, "box.example.com", 1)
	d := run(t, cfg, Options{})
	tr := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: first}, ForceAttemptHTTP2: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", strings.TrimPrefix(d.URL(), "https://"))
		}}
	defer tr.CloseIdleConnections()
	resp, err := (&http.Client{Transport: tr}).Get("https://3000-i00000000000000000000.box.example.com:8443/")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != 502 || resp.ProtoMajor != 2 {
		t.Errorf("%s %d", resp.Proto, resp.StatusCode)
	}
	second := writeCert(t, cfg.TLSCert, cfg.TLSKey, "box.example.com", 2)
	if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	testenv.EventuallyNil(t, "the new certificate is served", func() error {
		c, err := tls.Dial("tcp", strings.TrimPrefix(d.URL(), "https://"), &tls.Config{RootCAs: second, ServerName: "api.box.example.com"})
		if err != nil {
			return err
		}
		defer c.Close()
		if n := c.ConnectionState().PeerCertificates[0].SerialNumber; n.Int64() != 2 {
			return fmt.Errorf("it is number %v", n)
		}
		return nil
	})
	// The client's streams must work over TLS too.
	svc, err := client.New(d.URL(), d.Key(), client.WithTLSConfig(&tls.Config{RootCAs: second, ServerName: "api.box.example.com"}))
	if err != nil {
		t.Fatal(err)
	}
	defer svc.Close()
	sb, err := svc.Create(t.Context(), carrel.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if sb.Domain != cfg.Domain {
		t.Errorf("domain %q", sb.Domain)
	}
	c, err := svc.Computer(t.Context(), sb.ID)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := c.Dial(t.Context(), echoPort)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, _ = io.WriteString(conn, "x")
	if _, err := io.ReadFull(conn, make([]byte, 1)); err != nil {
		t.Error(err)
	}
}

// writeCert writes a self-signed certificate for a domain and its wildcard.
func writeCert(t *testing.T, certFile, keyFile, domain string, serial int64) *x509.CertPool {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(serial), NotAfter: time.Now().Add(time.Hour), DNSNames: []string{domain, "*." + domain},
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature}
	raw, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	rawKey, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for name, block := range map[string]*pem.Block{certFile: {Type: "CERTIFICATE", Bytes: raw}, keyFile: {Type: "EC PRIVATE KEY", Bytes: rawKey}} {
		if err := os.WriteFile(name, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: raw}))
	return pool
}

// TestKeyFile starts with key files that the daemon would not make itself.
func TestKeyFile(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "api-key")
	for content, kind := range map[string]carrel.Kind{"": carrel.Invalid, "short": carrel.Invalid, strings.Repeat("a b", 20): carrel.Invalid, "e2b_0123456789012345678901234567890123456789\n": ""} {
		if err := os.WriteFile(name, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		key, first, err := apiKey(dir)
		if carrel.KindOf(err) != kind || first || (kind == "" && key != strings.TrimSpace(content)) {
			t.Errorf("%q: %q %v %v", content, key, first, err)
		}
		if info, err := os.Stat(name); kind == "" && (err != nil || info.Mode().Perm() != 0o600) {
			t.Errorf("%q: others may read it: %v %v", content, info.Mode(), err)
		}
	}
	if err := errors.Join(os.Remove(name), os.Mkdir(name, 0o700)); err != nil {
		t.Fatal(err)
	}
	if _, _, err := apiKey(dir); carrel.KindOf(err) != carrel.Invalid || carrel.HintOf(err) == "" {
		t.Errorf("a directory: %v", err)
	}
}
