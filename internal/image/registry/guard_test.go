package registry_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/registry"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/image/archive"
	pull "github.com/carrel-dev/carrel/internal/image/registry"
)

// world is a network of names. Each public address leads to a server of this process. All other
// addresses lead to no server, and a dial to one of them is written down.
type world struct {
	names  map[string]string // host → address
	places map[string]string // address:port → where a server of this process listens
	roots  *x509.CertPool

	mu     sync.Mutex
	dialed []string
	seen   []string // host, path and credentials of each request
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{names: map[string]string{}, places: map[string]string{}, roots: x509.NewCertPool()}
	t.Cleanup(func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, d := range w.dialed {
			if w.places[d] == "" {
				t.Errorf("a connection to %s was tried", d)
			}
		}
	})
	return w
}

// serve runs a handler as a host. An address that ends in ":80" is without TLS.
func (w *world) serve(t *testing.T, host, address string, h http.HandlerFunc) {
	t.Helper()
	record := http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w.mu.Lock()
		w.seen = append(w.seen, fmt.Sprintf("%s%s auth=%q", r.Host, r.URL.Path,
			r.Header.Get("Authorization")))
		w.mu.Unlock()
		h(rw, r)
	})
	ts := httptest.NewUnstartedServer(record)
	ts.Config.ErrorLog = log.New(io.Discard, "", 0)
	if strings.HasSuffix(address, ":80") {
		ts.Start()
	} else {
		ts.TLS = &tls.Config{}
		ts.StartTLS()
		w.roots.AddCert(ts.Certificate())
	}
	t.Cleanup(ts.Close)
	a, _, _ := net.SplitHostPort(address)
	w.names[host], w.places[address] = a, ts.Listener.Addr().String()
}

func (w *world) config() pull.Config {
	return pull.Config{
		Keychain: authn.NewMultiKeychain(), RootCAs: w.roots,
		Proxy: func(*http.Request) (*url.URL, error) { return nil, nil },
		Resolve: func(_ context.Context, host string) ([]netip.Addr, error) {
			var all []netip.Addr
			for _, a := range strings.Fields(w.names[host]) {
				all = append(all, netip.MustParseAddr(a))
			}
			if len(all) == 0 {
				return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
			}
			return all, nil
		},
		Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			host, port, err := net.SplitHostPort(address)
			if err != nil {
				return nil, err
			}
			if a := w.names[host]; a != "" { // an allowed host is dialed by its name
				address = net.JoinHostPort(a, port)
			}
			w.mu.Lock()
			w.dialed = append(w.dialed, address)
			place := w.places[address]
			w.mu.Unlock()
			if place == "" {
				return nil, errors.New("nobody is there")
			}
			return (&net.Dialer{}).DialContext(ctx, network, place)
		},
	}
}

// requests returns the recorded requests to a host.
func (w *world) requests(host string) (out []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range w.seen {
		if strings.HasPrefix(s, host+"/") {
			out = append(out, s)
		}
	}
	return out
}

// library is a registry that holds the sample image as app:1. It may be asked under any name.
func library(t *testing.T) http.Handler {
	t.Helper()
	s := &server{}
	h := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	ts := httptest.NewServer(h)
	defer ts.Close()
	s.host = strings.TrimPrefix(ts.URL, "http://")
	s.push(t, "team/app:1", sample(t, runtime.GOARCH))
	return h
}

// pull pulls an image in this world.
func (w *world) pull(t *testing.T, ref string,
	change func(*pull.Config, *carrel.PullOptions)) (*archive.Result, error) {
	t.Helper()
	cfg, opts := w.config(), carrel.PullOptions{Image: ref}
	if change != nil {
		change(&cfg, &opts)
	}
	_, res, err := fetchWith(t, opts, func(c *pull.Config, _ *pull.Request) { *c = cfg })
	return res, err
}

// host is the name that the servers' certificate is for.
const (
	host   = "example.com"
	public = "203.0.113.9"
)

// TestPublicAddress shows that a public registry needs no permission.
func TestPublicAddress(t *testing.T) {
	w := newWorld(t)
	w.serve(t, host, public+":443", library(t).ServeHTTP)
	res, err := w.pull(t, host+"/team/app:1", nil)
	if err != nil || res.Env["A"] != "b" {
		t.Errorf("%+v %v", res, err)
	}
}

// TestGuardRefuses tries all ways to an address that the caller can't reach himself.
func TestGuardRefuses(t *testing.T) {
	for _, at := range []string{"127.0.0.1", "10.1.2.3", "192.168.1.1", "172.16.9.9",
		"169.254.169.254", "100.100.100.200", "168.63.129.16",
		"0.0.0.0", "::1", "fd00:ec2::254", "fe80::1", "::ffff:127.0.0.1", "64:ff9b::7f00:1",
		"2002:7f00:1::1", "8.8.8.8 127.0.0.1"} {
		w := newWorld(t)
		w.names["inner.example.com"] = at
		_, err := w.pull(t, "inner.example.com/app:1", nil)
		wantKind(t, err, carrel.Forbidden, "inner.example.com is refused")
		if !strings.Contains(carrel.HintOf(err), "--allow-registry inner.example.com") {
			t.Errorf("%s: hint %q", at, carrel.HintOf(err))
		}
		if !strings.ContainsAny(at, " :") {
			_, err = w.pull(t, at+"/app:1", nil)
			wantKind(t, err, carrel.Forbidden, "refused")
		}
	}
	// Behind a proxy, too.
	w := newWorld(t)
	w.names["inner.example.com"] = "10.1.2.3"
	_, err := w.pull(t, "inner.example.com/app:1", func(c *pull.Config, _ *carrel.PullOptions) {
		c.Proxy = func(*http.Request) (*url.URL, error) {
			return url.Parse(
				"http://proxy.example.com:3128")
		}
	})
	wantKind(t, err, carrel.Forbidden, "inner.example.com is refused")
}

// TestGuardAllows shows each form of a permission.
func TestGuardAllows(t *testing.T) {
	lib := library(t)
	w := newWorld(t)
	w.serve(t, host, "10.0.0.5:443", lib.ServeHTTP)
	allow := func(hosts ...string) func(*pull.Config, *carrel.PullOptions) {
		return func(c *pull.Config, _ *carrel.PullOptions) { c.Allow = hosts }
	}
	for _, a := range []string{host, host + ":443", "https://" + host, strings.ToUpper(host)} {
		if _, err := w.pull(t, host+"/team/app:1", allow("other.test", a)); err != nil {
			t.Errorf("allowed as %s: %v", a, err)
		}
	}
	for _, a := range []string{"www." + host, host + ":444", "com"} {
		_, err := w.pull(t, host+"/team/app:1", allow(a))
		wantKind(t, err, carrel.Forbidden, "")
	}
	// Without TLS only where that is said.
	w = newWorld(t)
	w.serve(t, "plain.test:80", "10.0.0.6:80", lib.ServeHTTP)
	w.names["plain.test"] = "10.0.0.6"
	if _, err := w.pull(t, "plain.test:80/team/app:1", allow("http://plain.test:80")); err != nil {
		t.Error(err)
	}
	before := len(w.requests("plain.test:80"))
	if _, err := w.pull(t, "plain.test:80/team/app:1", allow("plain.test:80")); err == nil ||
		len(w.requests("plain.test:80")) != before {
		t.Errorf("asked without TLS: %v", err)
	}
	if _, err := pull.New(pull.Config{Allow: []string{"a/b"}}); carrel.KindOf(err) != carrel.Invalid {
		t.Error(err)
	}
}

// TestRedirects lets an allowed registry send the client on, with the blob, the login and the
// manifest, to places that it must not go to and must not give credentials to.
func TestRedirects(t *testing.T) {
	lib := library(t)
	var to, realm string
	var part string
	w := newWorld(t)
	w.serve(t, host, "10.0.0.5:443", func(rw http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/token" && to != "" && part == "token":
			http.Redirect(rw, r, to, http.StatusTemporaryRedirect)
		case r.URL.Path == "/token":
			fmt.Fprint(rw, `{"token":"T0KEN"}`)
		case r.Header.Get("Authorization") != "Bearer T0KEN":
			rw.Header().Set("WWW-Authenticate", `Bearer realm="`+realm+`",service="s"`)
			rw.WriteHeader(http.StatusUnauthorized)
		case part != "" && strings.Contains(r.URL.Path, "/"+part+"/"):
			http.Redirect(rw, r, to+r.URL.Path, http.StatusTemporaryRedirect)
		default:
			lib.ServeHTTP(rw, r)
		}
	})
	// of the same domain, to which Go's client would send credentials
	w.serve(t, "www."+host, "10.0.0.6:443", lib.ServeHTTP)
	w.names["meta.test"], w.names["plain.test"] = "169.254.169.254", "8.8.8.8"
	try := func(newPart, newTo, newRealm string) error {
		part, to, realm = newPart, newTo, newRealm
		_, err := w.pull(t, host+"/team/app:1", func(c *pull.Config, o *carrel.PullOptions) {
			c.Allow = []string{host, "www." + host}
			o.Credentials = &carrel.RegistryCredentials{Username: "me", Password: "sesame"}
		})
		if err != nil && strings.Contains(err.Error(), "sesame") {
			t.Errorf("the error holds the password: %v", err)
		}
		return err
	}
	own := "https://" + host + "/token"
	if err := try("blobs", "https://www."+host, own); err != nil {
		t.Errorf("a redirect to an allowed host: %v", err)
	}
	if n := len(w.requests("www." + host)); n == 0 {
		t.Error("the redirect was not followed")
	}
	for _, s := range w.requests("www." + host) {
		if !strings.HasSuffix(s, `auth=""`) {
			t.Errorf("credentials went along: %s", s)
		}
	}
	for _, part := range []string{"blobs", "manifests"} {
		wantKind(t, try(part, "https://meta.test/latest", own), carrel.Forbidden, "meta.test")
		wantKind(t, try(part, "http://169.254.169.254/latest", own), carrel.Forbidden, "169.254.169.254")
		wantKind(t, try(part, "http://plain.test", own), carrel.Forbidden, "HTTP without TLS")
		wantKind(t, try(part, "file:///etc", own), carrel.Forbidden, "")
	}
	wantKind(t, try("token", "https://meta.test/latest", own), carrel.Forbidden, "meta.test")
	wantKind(t, try("", "", "https://meta.test/latest"), carrel.Forbidden, "meta.test")
	if err := try("", "", "https://169.254.169.254/latest"); err == nil {
		t.Error("a login at the metadata service")
	}
	if err := try("blobs", "https://"+host, own); err == nil ||
		!strings.Contains(err.Error(), "redirects") {
		t.Errorf("an endless redirect: %v", err)
	}
}

// TestOperatorsCredentials shows that the daemon's own credentials are not for everybody.
func TestOperatorsCredentials(t *testing.T) {
	s := serve(t)
	s.push(t, "app:1", sample(t, runtime.GOARCH))
	s.password = "sesame"
	keys := func(operator bool) func(*pull.Config, *pull.Request) {
		return func(c *pull.Config, r *pull.Request) {
			c.Keychain, r.Operator = keychain{s.host, "sesame"}, operator
		}
	}
	if _, _, err := fetch(t, s.host+"/app:1", keys(true)); err != nil {
		t.Error(err)
	}
	_, _, err := fetch(t, s.host+"/app:1", keys(false))
	wantKind(t, err, carrel.Unauthenticated, s.host)
	if !strings.Contains(carrel.HintOf(err), "docker login "+s.host) {
		t.Errorf("hint %q", carrel.HintOf(err))
	}
}
