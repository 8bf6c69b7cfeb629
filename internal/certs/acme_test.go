package certs

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/carrel-dev/carrel/internal/pki"
	"github.com/carrel-dev/carrel/internal/testenv"
)

// authority is a real ACME server (pebble) on loopback. It looks up every name with the test's own
// resolver, which answers 127.0.0.1.
type authority struct {
	directory string
	rootsFile string         // of its own HTTPS
	issued    *x509.CertPool // of what it issues
}

// pebble returns the path of the server's binary.
func pebble() (string, error) {
	path, err := filepath.Abs("../../bin/pebble")
	if err == nil {
		if _, err = os.Stat(path); err != nil {
			err = errors.New(`bin/pebble, which "make bin/pebble" builds`)
		}
	}
	return path, err
}

func freeAddr(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func portOf(addr string) int { a, _ := net.ResolveTCPAddr("tcp", addr); return a.Port }

// resolver answers every A question with 127.0.0.1, over UDP and TCP.
func resolver(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.ListenPacket("udp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	answer := dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		m := new(dns.Msg).SetReply(q)
		if q.Question[0].Qtype == dns.TypeA {
			m.Answer = []dns.RR{&dns.A{Hdr: dns.RR_Header{Name: q.Question[0].Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 1}, A: net.IPv4(127, 0, 0, 1)}}
		}
		_ = w.WriteMsg(m)
	})
	for _, srv := range []*dns.Server{{PacketConn: conn, Handler: answer}, {Listener: l, Handler: answer}} {
		started := make(chan struct{})
		srv.NotifyStartedFunc = func() { close(started) }
		go func() { _ = srv.ActivateAndServe() }()
		<-started
		t.Cleanup(func() { _ = srv.Shutdown() })
	}
	return l.Addr().String()
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

// startAuthority starts the server; it validates on these ports.
func startAuthority(t *testing.T, tlsPort, httpPort int) *authority {
	t.Helper()
	binary, err := pebble()
	testenv.Need(t, "acme", err)
	dir := t.TempDir()
	ca, err := pki.New("ACME server's own")
	if err != nil {
		t.Fatal(err)
	}
	cert, key := writePair(t, ca, dir, "127.0.0.1")
	roots := filepath.Join(dir, "roots.pem")
	if err := os.WriteFile(roots, ca.CertPEM(), 0o600); err != nil {
		t.Fatal(err)
	}
	listen, management := freeAddr(t), freeAddr(t)
	cfg, _ := json.Marshal(map[string]any{"pebble": map[string]any{
		"listenAddress": listen, "managementListenAddress": management, "certificate": cert, "privateKey": key,
		"httpPort": httpPort, "tlsPort": tlsPort, "ocspResponderURL": "", "externalAccountBindingRequired": false,
	}})
	file := filepath.Join(dir, "pebble.json")
	if err := os.WriteFile(file, cfg, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(binary, "-config", file, "-dnsserver", resolver(t))
	cmd.Env = []string{"PEBBLE_VA_NOSLEEP=1", "PEBBLE_WFE_NONCEREJECT=20"}
	log := &lockedBuffer{}
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("the ACME server's log:\n%s", log.b.String())
		}
	})
	a := &authority{directory: "https://" + listen + "/dir", rootsFile: roots, issued: x509.NewCertPool()}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: ca.Pool()}, DisableKeepAlives: true}}
	testenv.EventuallyNil(t, "the ACME server answers", func() error {
		resp, err := client.Get("https://" + management + "/roots/0")
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		raw, err := io.ReadAll(resp.Body)
		if err == nil && !a.issued.AppendCertsFromPEM(raw) {
			err = fmt.Errorf("no certificate in %q", raw)
		}
		return err
	})
	return a
}

// await tries TLS handshakes until the server has a certificate of the authority.
func (a *authority) await(t *testing.T, addr, name string) {
	t.Helper()
	err := testenv.Within(t.Context(), 2*time.Minute, func() error { _, err := shake(addr, name, a.issued, nil); return err })
	if err != nil {
		t.Fatalf("no certificate for %s: %v", name, err)
	}
}

// TestACME obtains certificates from a real ACME server, with proofs over the daemon's own TLS
// port. It gets one for the domain at once, one for a sandbox's host name on demand, and none for
// any other name.
func TestACME(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	authority := startAuthority(t, portOf(l.Addr().String()), 1)
	const known = "3000-i00000000000000000000.carrel.example.com"
	dir := t.TempDir()
	var mu sync.Mutex
	asked := map[string]bool{}
	opts := ACMEOptions{
		Dir: dir, Domains: []string{"carrel.example.com"}, Email: "admin@example.com", CA: authority.directory, CARoots: authority.rootsFile,
		Addr: l.Addr(), HostsPerHour: 1, Log: quiet,
		Allow: func(_ context.Context, host string) error {
			mu.Lock()
			defer mu.Unlock()
			asked[host] = true
			if host == "unknown.example.com" {
				return errors.New("no such sandbox")
			}
			return nil
		},
	}
	s, err := ACME(opts)
	if err != nil {
		t.Fatal(err)
	}
	addr := listenOn(t, l, s)
	run(t, s)
	authority.await(t, addr, "carrel.example.com")
	st, err := shake(addr, "carrel.example.com", authority.issued, nil)
	if err != nil || st.NegotiatedProtocol != "h2" {
		t.Errorf("%v, %q", err, st.NegotiatedProtocol)
	}
	authority.await(t, addr, known)
	for _, refused := range []string{"unknown.example.com", "4000-i00000000000000000000.carrel.example.com"} {
		if _, err := shake(addr, refused, authority.issued, nil); err == nil {
			t.Errorf("a certificate for %s", refused)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if asked["carrel.example.com"] || !asked["unknown.example.com"] {
		t.Errorf("asked about %v", asked)
	}
	err = filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, ".key") {
			if info, err := d.Info(); err != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("%s: %v, %v", path, info.Mode(), err)
			}
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// TestACMEOverHTTP proves a name over plain HTTP, when the TLS port can't be reached.
func TestACMEOverHTTP(t *testing.T) {
	httpAddr := freeAddr(t)
	authority := startAuthority(t, 1, portOf(httpAddr))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s, err := ACME(ACMEOptions{Dir: t.TempDir(), Domains: []string{"carrel.example.com"}, CA: authority.directory, CARoots: authority.rootsFile,
		Addr: l.Addr(), HTTPAddr: httpAddr, Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	addr := listenOn(t, l, s)
	run(t, s)
	authority.await(t, addr, "carrel.example.com")
	if _, err := shake(addr, "3000-i00000000000000000000.carrel.example.com", authority.issued, nil); err == nil {
		t.Error("without a decision a host name got a certificate")
	}
	resp, err := (&http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}).Get(fmt.Sprintf("http://%s/x", httpAddr))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusPermanentRedirect {
		t.Errorf("plain HTTP: %s", resp.Status)
	}
}
