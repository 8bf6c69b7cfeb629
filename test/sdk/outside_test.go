package sdk

import (
	"crypto/tls"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/carrel-dev/carrel/internal/pki"
)

// startOutside starts everything that sandboxes of these tests find outside: two sites that report
// their requests, and a SOCKS5 proxy. It returns the file that tells a daemon about them.
func startOutside(t *testing.T) string {
	t.Helper()
	ca, err := pki.New("Test authority")
	if err != nil {
		t.Fatal(err)
	}
	names, dial := make(map[string][]string), make(map[string]string)
	proxy := &socksServer{names: names, dial: dial}
	for name, address := range map[string]string{"api.example.com": "203.0.113.9", "other.example.com": "203.0.113.10", "www.example.net": "203.0.113.11"} {
		leaf, err := ca.Leaf(name)
		if err != nil {
			t.Fatal(err)
		}
		names[name] = []string{address}
		for port, s := range map[string]*http.Server{"80": {}, "443": {}, "8443": {}} {
			l := listen(t, dial, address+":"+port)
			s.Handler, s.ReadHeaderTimeout = tellHandler(proxy), time.Minute
			if port != "80" {
				s.TLSConfig = &tls.Config{Certificates: []tls.Certificate{*leaf}}
				go func() { _ = s.ServeTLS(l, "", "") }()
			} else {
				go func() { _ = s.Serve(l) }()
			}
			t.Cleanup(func() { _ = s.Close() })
		}
	}
	names["proxy.example.com"] = []string{"203.0.113.30"}
	l := listen(t, dial, "203.0.113.30:1080")
	go proxy.serve(l)
	dir := t.TempDir()
	text, err := json.Marshal(map[string]any{"names": names, "dial": dial, "roots": "ca.pem"})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "table.json")
	for name, b := range map[string][]byte{file: text, filepath.Join(dir, "ca.pem"): ca.CertPEM()} {
		if err := os.WriteFile(name, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return file
}

func listen(t *testing.T, dial map[string]string, at string) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	dial[at] = l.Addr().String()
	return l
}

// tellHandler reports the request in JSON. It also writes header values backwards, because a secret
// that was put into a request is struck out of the response.
func tellHandler(proxy *socksServer) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		headers, echo := make(map[string]string), make(map[string]string)
		for name, values := range r.Header {
			echo[strings.ToLower(name)] = strings.Join(values, ", ")
			b := []byte(strings.Join(values, ", "))
			slices.Reverse(b)
			headers[strings.ToLower(name)] = string(b)
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]any{"host": r.Host, "tls": r.TLS != nil, "method": r.Method, "path": r.URL.Path,
			"headers": headers, "echo": echo, "proxied": proxy.asked()})
	})
}

// socksServer is a SOCKS5 proxy that demands the user "user" and the password "password", and
// records its requests.
type socksServer struct {
	names map[string][]string
	dial  map[string]string

	mu   sync.Mutex
	seen []string
}

func (s *socksServer) asked() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string{}, s.seen...)
}

func (s *socksServer) serve(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			_ = s.serveConn(c)
		}()
	}
}

func (s *socksServer) serveConn(c net.Conn) error {
	b := make([]byte, 512)
	field := func() (string, error) { // a length and so many bytes
		if _, err := io.ReadFull(c, b[:1]); err != nil {
			return "", err
		}
		n := int(b[0])
		_, err := io.ReadFull(c, b[:n])
		return string(b[:n]), err
	}
	if _, err := io.ReadFull(c, b[:1]); err != nil || b[0] != 5 {
		return fmt.Errorf("version %d, %v", b[0], err)
	}
	if methods, err := field(); err != nil || !strings.Contains(methods, "\x02") {
		_, _ = c.Write([]byte{5, 0xff})
		return err
	}
	if _, err := c.Write([]byte{5, 2}); err != nil {
		return err
	}
	if _, err := io.ReadFull(c, b[:1]); err != nil {
		return err
	}
	user, err := field()
	if err != nil {
		return err
	}
	if password, err := field(); err != nil || user != "user" || password != "password" {
		_, _ = c.Write([]byte{1, 1})
		return err
	}
	if _, err := c.Write([]byte{1, 0}); err != nil {
		return err
	}
	if _, err := io.ReadFull(c, b[:4]); err != nil {
		return err
	}
	host := ""
	switch b[3] {
	case 1:
		_, err = io.ReadFull(c, b[:4])
		host = net.IP(b[:4]).String()
	case 3:
		host, err = field()
	case 4:
		_, err = io.ReadFull(c, b[:16])
		host = net.IP(b[:16]).String()
	}
	if err != nil {
		return err
	}
	if _, err := io.ReadFull(c, b[:2]); err != nil {
		return err
	}
	port := fmt.Sprint(binary.BigEndian.Uint16(b))
	s.mu.Lock()
	s.seen = append(s.seen, net.JoinHostPort(host, port))
	s.mu.Unlock()
	if addresses := s.names[host]; len(addresses) > 0 {
		host = addresses[0]
	}
	out, err := net.Dial("tcp", s.dial[net.JoinHostPort(host, port)])
	if err != nil {
		_, _ = c.Write([]byte{5, 4, 0, 1, 0, 0, 0, 0, 0, 0})
		return err
	}
	defer out.Close()
	if _, err := c.Write([]byte{5, 0, 0, 1, 0, 0, 0, 0, 0, 0}); err != nil {
		return err
	}
	go func() { _, _ = io.Copy(out, c); _ = out.(*net.TCPConn).CloseWrite() }()
	_, err = io.Copy(c, out)
	return err
}
