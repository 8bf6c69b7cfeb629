package sdk

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/miekg/dns"
)

// canUnshare returns the reason why no mount namespace can be made. A process with its own resolver
// needs one.
func canUnshare() error {
	out, err := exec.Command("unshare", "--mount", "true").CombinedOutput()
	if err != nil {
		return fmt.Errorf("unshare --mount: %v: %s", err, out)
	}
	return nil
}

// resolver answers every name with 127.0.0.1. It is for processes that wrap puts into their own
// mount namespace.
type resolver struct{ conf string }

// startResolver serves DNS on an address of the loopback range until the test ends.
func startResolver(t *testing.T, dir string) resolver {
	t.Helper()
	address := fmt.Sprintf("127.%d.%d.53", 1+os.Getpid()%200, 1+os.Getpid()/200%200)
	handler := dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		m := new(dns.Msg).SetReply(q)
		for _, question := range q.Question {
			if question.Qtype == dns.TypeA {
				m.Answer = append(m.Answer, &dns.A{
					Hdr: dns.RR_Header{Name: question.Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 60},
					A:   net.IPv4(127, 0, 0, 1),
				})
			}
		}
		_ = w.WriteMsg(m)
	})
	for _, network := range []string{"udp", "tcp"} {
		ready := make(chan struct{})
		server := &dns.Server{Addr: address + ":53", Net: network, Handler: handler, NotifyStartedFunc: func() { close(ready) }}
		failed := make(chan error, 1)
		go func() { failed <- server.ListenAndServe() }()
		select {
		case <-ready:
			t.Cleanup(func() { _ = server.Shutdown() })
		case err := <-failed:
			t.Fatalf("DNS on %s: %v", address, err)
		}
	}
	conf := filepath.Join(dir, "resolv.conf")
	if err := os.WriteFile(conf, []byte("nameserver "+address+"\noptions timeout:1\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	return resolver{conf}
}

// wrap runs cmd with this resolver.
func (r resolver) wrap(cmd *exec.Cmd) {
	script := `mount --bind "$0" /etc/resolv.conf && exec "$@"`
	cmd.Args = append([]string{"unshare", "--mount", "--propagation", "private", "sh", "-c", script, r.conf, cmd.Path}, cmd.Args[1:]...)
	cmd.Path = "/usr/bin/unshare"
}

// makeCertificates writes an authority (ca.pem) and a certificate from it for domain and *.domain
// (cert.pem, key.pem). It returns the authority's file.
func makeCertificates(t *testing.T, dir, domain string) string {
	t.Helper()
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "Test authority"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	caDER, err := x509.CreateCertificate(rand.Reader, ca, ca, &caKey.PublicKey, caKey)
	if err != nil {
		t.Fatal(err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: domain},
		NotBefore: ca.NotBefore, NotAfter: ca.NotAfter,
		DNSNames: []string{domain, "*." + domain}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	leafDER, err := x509.CreateCertificate(rand.Reader, leaf, ca, &key.PublicKey, caKey)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	writePEM(t, filepath.Join(dir, "ca.pem"), "CERTIFICATE", caDER)
	writePEM(t, filepath.Join(dir, "cert.pem"), "CERTIFICATE", leafDER)
	writePEM(t, filepath.Join(dir, "key.pem"), "PRIVATE KEY", keyDER)
	return filepath.Join(dir, "ca.pem")
}

func writePEM(t *testing.T, name, kind string, der []byte) {
	t.Helper()
	if err := os.WriteFile(name, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
}
