package frameworks

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/carrel-dev/carrel/internal/pki"
	"github.com/carrel-dev/carrel/internal/testenv"
	"github.com/carrel-dev/carrel/test/daemontest"
)

// anthropicHost is the only host that Claude's sandboxes may reach.
const anthropicHost = "api.anthropic.com"

// notTheKey is what the sandboxes have in place of the key.
const notTheKey = "added-on-the-wire"

// TestClaude runs Claude Code and Claude's Agent SDK inside sandboxes. The daemon puts the key into
// their requests on the wire. The vendor's endpoint is a canary on this machine.
func TestClaude(t *testing.T) {
	dir := keptDir(t)
	out := newCanary(t)
	s := &stage{daemon: daemontest.Start(t, "--wire-table", out.table(t)), cache: dir}
	js := installJS(t, s)
	pinned := dependencies(t, "claude/package.json")
	for _, name := range []string{"claude-code", "claude-agent-sdk"} {
		t.Run(name, func(t *testing.T) {
			js.checkInstalls(t, name)
			want := "'@anthropic-ai/" + name + "@" + pinned["@anthropic-ai/"+name] + "'"
			if !strings.Contains(blockOf(t, name, "js"), want) {
				t.Errorf("docs/with/%s.md does not install %s", name, want)
			}
			m := serveModel(t, asksShell("Bash")...)
			out.follow(t, m)
			said := js.program(t, name, s.environment(m))
			if !regexp.MustCompile(proof).MatchString(said) {
				t.Errorf("docs/with/%s.md prints\n%s\nwant %s\nthe model saw %+v", name, said, proof, m.requests())
			}
			m.check(t)
			out.check(t)
		})
	}
	t.Run("the key is nowhere inside", func(t *testing.T) {
		script := asksShell("Bash")
		script[0].Args["command"] = "touch /tmp/ready; until test -e /tmp/go; do sleep 0.1; done; " + inside
		m := serveModel(t, script...)
		out.follow(t, m)
		t.Log(js.tests(t, "claude", s.environment(m)))
		m.check(t)
		out.check(t)
	})
	t.Run("without the rule the placeholder goes out", func(t *testing.T) {
		m := serveModel(t, turn{Say: "not reached"})
		out.follow(t, m)
		t.Log(js.tests(t, "claude-without", s.environment(m)))
		out.mu.Lock()
		defer out.mu.Unlock()
		if out.right > 0 || len(out.wrong) == 0 || out.wrong[0] != notTheKey {
			t.Errorf("%d requests had the key, and others had %q", out.right, out.wrong)
		}
	})
	if left := s.made(t); left != "[]" {
		t.Errorf("there are sandboxes left: %s", left)
	}
}

// canary stands for the vendor's endpoint. It passes requests with the right key on to a model.
type canary struct {
	ca   *pki.CA
	addr string

	mu    sync.Mutex
	next  http.Handler
	right int      // how many requests had the key
	wrong []string // the keys of the others
}

func newCanary(t *testing.T) *canary {
	t.Helper()
	ca, err := pki.New("Test authority")
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := ca.Leaf(anthropicHost)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &canary{ca: ca, addr: l.Addr().String()}
	s := &http.Server{Handler: c, TLSConfig: &tls.Config{Certificates: []tls.Certificate{*leaf}},
		ReadHeaderTimeout: time.Minute, ErrorLog: log.New(io.Discard, "", 0)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.ServeTLS(l, "", "")
	}()
	t.Cleanup(func() { _ = s.Close(); <-done })
	return c
}

// follow passes requests on to a model from now on, and forgets those before.
func (c *canary) follow(t *testing.T, m *model) {
	t.Helper()
	to, err := url.Parse(m.URL)
	if err != nil {
		t.Fatal(err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.next = &httputil.ReverseProxy{FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) }}
	c.right, c.wrong = 0, nil
}

// check fails the test unless all requests had the key.
func (c *canary) check(t *testing.T) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.right == 0 || len(c.wrong) > 0 {
		t.Errorf("%d requests had the key, and others had %q", c.right, c.wrong)
	}
}

// ServeHTTP implements http.Handler.
func (c *canary) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	key := r.Header.Get("X-Api-Key")
	c.mu.Lock()
	next := c.next
	right := key == modelKey && r.Header.Get("Authorization") == ""
	switch {
	case right:
		c.right++
	case r.URL.Path == "/v1/messages" || key != "":
		c.wrong = append(c.wrong, key+r.Header.Get("Authorization"))
	}
	c.mu.Unlock()
	if right {
		next.ServeHTTP(w, r)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusUnauthorized)
	const why = `{"type":"error","error":{"type":"authentication_error","message":"invalid x-api-key"}}`
	_, _ = io.WriteString(w, why)
}

// table writes the daemon's world: the canary, and the registry from which npm installs here.
func (c *canary) table(t *testing.T) string {
	t.Helper()
	const roots = "/etc/ssl/certs/ca-certificates.crt"
	known, err := os.ReadFile(roots)
	testenv.Need(t, "certificates", err)
	names := map[string][]string{anthropicHost: {"203.0.113.30"}}
	dial := map[string]string{"203.0.113.30:443": c.addr}
	said, err := exec.Command("npm", "config", "get", "registry").Output()
	testenv.Need(t, "node", err)
	registry, err := url.Parse(strings.TrimSpace(string(said)))
	if err != nil {
		t.Fatal(err)
	}
	found, err := net.DefaultResolver.LookupNetIP(t.Context(), "ip4", registry.Hostname())
	if err != nil {
		t.Fatal(err)
	}
	for _, ip := range found {
		names[registry.Hostname()] = append(names[registry.Hostname()], ip.Unmap().String())
		dial[ip.Unmap().String()] = ip.Unmap().String()
	}
	text, err := json.Marshal(map[string]any{"names": names, "dial": dial, "roots": "ca.pem"})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "table.json")
	all := bytes.Join([][]byte{known, c.ca.CertPEM()}, []byte("\n"))
	for name, b := range map[string][]byte{file: text, filepath.Join(dir, "ca.pem"): all} {
		if err := os.WriteFile(name, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return file
}
