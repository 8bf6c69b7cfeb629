package pki

import (
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestAuthority(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "wire")
	ca, err := LoadOrCreate(dir, "Carrel test")
	if err != nil {
		t.Fatal(err)
	}
	if i, err := os.Stat(filepath.Join(dir, "ca-key.pem")); err != nil || i.Mode().Perm() != 0o600 {
		t.Fatalf("the key's file: %v, %v", i.Mode(), err)
	}
	again, err := LoadOrCreate(dir, "Carrel test")
	if err != nil || string(again.CertPEM()) != string(ca.CertPEM()) {
		t.Fatalf("opened again it is another: %v", err)
	}
	leaf, err := again.Leaf("api.example.com", "*.example.org", "127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"api.example.com", "x.example.org", "127.0.0.1"} {
		if _, err := leaf.Leaf.Verify(x509.VerifyOptions{DNSName: name, Roots: ca.Pool()}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := leaf.Leaf.Verify(x509.VerifyOptions{DNSName: "example.com", Roots: ca.Pool()}); err == nil {
		t.Error("it holds for a name that was not asked for")
	}
	if same, _ := again.Leaf("api.example.com", "*.example.org", "127.0.0.1"); same != leaf {
		t.Error("the leaf is made twice")
	}
	other, err := New("Carrel other")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := leaf.Leaf.Verify(x509.VerifyOptions{DNSName: "api.example.com", Roots: other.Pool()}); err == nil {
		t.Error("another authority vouches for it")
	}
	if b, _ := pem.Decode(ca.CertPEM()); b == nil || b.Type != "CERTIFICATE" {
		t.Error("no certificate in PEM")
	}
	if d := time.Until(ca.cert.NotAfter); d < 9*365*24*time.Hour {
		t.Errorf("it ends in %v", d)
	}
}
