package daemon

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/client"
	"github.com/carrel-dev/carrel/internal/sshdoor"
)

// TestSelfSignedDaemon serves TLS with an authority of its own, for the API, host names and raw
// streams. At the same time, other clients never finish their handshakes.
func TestSelfSignedDaemon(t *testing.T) {
	cfg := testConfig(t)
	cfg.Domain, cfg.Ingress.SelfSigned = "box.example.com:8443", true
	d := run(t, cfg, Options{})
	addr := strings.TrimPrefix(d.URL(), "https://")
	raw, err := os.ReadFile(Authority(cfg.DataDir))
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(raw)
	for range 20 {
		silent, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer silent.Close()
	}
	tr := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", addr)
		}}
	defer tr.CloseIdleConnections()
	for target, status := range map[string]int{"https://api.box.example.com:8443/health": 204, "https://3000-i00000000000000000000.box.example.com:8443/": 502} {
		resp, err := (&http.Client{Transport: tr}).Get(target)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != status || resp.ProtoMajor != 2 || resp.Header.Get("Strict-Transport-Security") != "" {
			t.Errorf("%s: %s %s %v", target, resp.Proto, resp.Status, resp.Header)
		}
	}
	svc, err := client.New(d.URL(), d.Key(), client.WithTLSConfig(&tls.Config{RootCAs: roots}))
	if err != nil {
		t.Fatal(err)
	}
	defer svc.Close()
	sb, err := svc.Create(t.Context(), carrel.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	comp, err := svc.Computer(t.Context(), sb.ID)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := comp.Dial(t.Context(), echoPort)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, _ = io.WriteString(conn, "over TLS")
	if err := conn.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if raw, err := io.ReadAll(conn); string(raw) != "over TLS" || err != nil {
		t.Errorf("%q, %v", raw, err)
	}
	// Request smuggling is also detected inside TLS.
	c, err := tls.Dial("tcp", addr, &tls.Config{RootCAs: roots, ServerName: "localhost"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	fmt.Fprintf(c, "POST /sandboxes HTTP/1.1\r\nHost: localhost\r\nX-API-Key: %s\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", d.Key())
	if raw, _ := io.ReadAll(c); !strings.HasPrefix(string(raw), "HTTP/1.1 400") {
		t.Errorf("%s", raw)
	}
}

// TestKnownHosts shows that certificates are obtained only for host names of existing sandboxes.
func TestKnownHosts(t *testing.T) {
	cfg := testConfig(t)
	cfg.Domain = "box.example.com:8443"
	d := run(t, cfg, Options{})
	sb, err := d.Service().Create(t.Context(), carrel.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := d.knownHost(t.Context(), "3000-"+string(sb.ID)+".BOX.example.com"); err != nil {
		t.Error(err)
	}
	for _, host := range []string{"box.example.com", "api.box.example.com", "3000-" + string(carrel.NewID()) + ".box.example.com", "3000-" + string(sb.ID) + ".example.com",
		"3000-" + string(sb.ID) + ".x.box.example.com", "0-" + string(sb.ID) + ".box.example.com", string(sb.ID) + ".box.example.com", "3000-" + string(sb.ID) + ".box.example.com.evil.example"} {
		if d.knownHost(t.Context(), host) == nil {
			t.Errorf("a certificate for %s", host)
		}
	}
}

// TestStrangersAtEveryDoor uses the ports of a sandbox with private traffic, and its guest. Nobody
// reaches them without the token, the API key or an SSH key. Anybody with one of these does.
func TestStrangersAtEveryDoor(t *testing.T) {
	cfg := testConfig(t)
	cfg.Ingress.SSHListen = "127.0.0.1:0"
	d := run(t, cfg, Options{})
	sb, err := d.Service().Create(t.Context(), carrel.CreateOptions{Network: carrel.Network{PrivateTraffic: true}})
	if err != nil {
		t.Fatal(err)
	}
	addr := strings.TrimPrefix(d.URL(), "http://")
	get := func(head string) string {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(time.Minute))
		_, _ = io.WriteString(c, head+"\r\n\r\n")
		line, _ := bufio.NewReader(c).ReadString('\n')
		return strings.TrimSpace(line)
	}
	for _, c := range []struct{ name, head, want string }{
		{"HTTP", fmt.Sprintf("GET / HTTP/1.1\r\nHost: %d-%s.x.example", echoPort, sb.ID), "403"},
		{"HTTP by header, with a wrong token", fmt.Sprintf("GET / HTTP/1.1\r\nHost: x\r\nE2b-Sandbox-Id: %s\r\nE2b-Sandbox-Port: %d\r\nE2b-Traffic-Access-Token: x", sb.ID, echoPort), "403"},
		{"WebSocket", fmt.Sprintf("GET / HTTP/1.1\r\nHost: %d-%s.x.example\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", echoPort, sb.ID), "403"},
		{"TCP", fmt.Sprintf("GET /carrel/v1/sandboxes/%s/dial/%d HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: carrel-stream", sb.ID, echoPort), "401"},
		{"TCP with another key", fmt.Sprintf("GET /carrel/v1/sandboxes/%s/dial/%d HTTP/1.1\r\nHost: x\r\nX-API-Key: e2b_%040d\r\nConnection: Upgrade\r\nUpgrade: carrel-stream", sb.ID, echoPort, 0), "401"},
		{"TCP with the traffic token for a key", fmt.Sprintf("GET /carrel/v1/sandboxes/%s/dial/%d HTTP/1.1\r\nHost: x\r\nX-API-Key: %s\r\nConnection: Upgrade\r\nUpgrade: carrel-stream", sb.ID, echoPort, sb.TrafficToken), "401"},
		{"the guest with another key", fmt.Sprintf("GET /carrel/v1/sandboxes/%s/dial/%d HTTP/1.1\r\nHost: x\r\nX-API-Key: %s\r\nConnection: Upgrade\r\nUpgrade: carrel-stream", sb.ID, carrel.GuestPort, sb.AccessToken), "401"},
		{"the guest's own routes", fmt.Sprintf("POST /init HTTP/1.1\r\nHost: %d-%s.x.example\r\nContent-Length: 0\r\nX-Access-Token: %s", carrel.GuestPort, sb.ID, sb.AccessToken), "404"},
		{"SSH keys without a key", "GET /carrel/v1/ssh-keys HTTP/1.1\r\nHost: x", "401"},
		{"with the token", fmt.Sprintf("GET /carrel/v1/sandboxes/%s/dial/%d HTTP/1.1\r\nHost: x\r\nX-API-Key: %s\r\nConnection: Upgrade\r\nUpgrade: carrel-stream", sb.ID, echoPort, d.Key()), "101"},
	} {
		if got := get(c.head); !strings.HasPrefix(got, "HTTP/1.1 "+c.want) {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
	svc, err := client.New(d.URL(), d.Key())
	if err != nil {
		t.Fatal(err)
	}
	defer svc.Close()
	key, err := sshdoor.NewHostKey()
	if err != nil {
		t.Fatal(err)
	}
	login := func() (*ssh.Client, error) {
		return ssh.Dial("tcp", d.sshListener.Addr().String(), &ssh.ClientConfig{User: string(sb.ID), Auth: []ssh.AuthMethod{ssh.PublicKeys(key)},
			HostKeyCallback: ssh.InsecureIgnoreHostKey(), Timeout: 30 * time.Second}) //nolint:gosec // the host is this process
	}
	if c, err := login(); err == nil {
		c.Close()
		t.Fatal("a stranger's key opens SSH")
	}
	admin := svc.(*client.Client)
	if _, err := admin.AddSSHKey(t.Context(), "mine", string(ssh.MarshalAuthorizedKey(key.PublicKey())), []carrel.ID{sb.ID}); err != nil {
		t.Fatal(err)
	}
	c, err := login()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if guest, err := c.Dial("tcp", fmt.Sprintf("localhost:%d", carrel.GuestPort)); err == nil {
		guest.Close()
		t.Error("SSH reaches the guest's own port, where this host is trusted")
	}
	if self, err := c.Dial("tcp", addr); err == nil {
		self.Close()
		t.Error("SSH reaches this host")
	}
	echo, err := c.Dial("tcp", fmt.Sprintf("localhost:%d", echoPort))
	if err != nil {
		t.Fatal(err)
	}
	defer echo.Close()
	_, _ = io.WriteString(echo, "x")
	if _, err := io.ReadFull(echo, make([]byte, 1)); err != nil {
		t.Error(err)
	}
	if keys, err := admin.SSHKeys(t.Context()); err != nil || len(keys) != 1 || keys[0].Name != "mine" {
		t.Errorf("%+v, %v", keys, err)
	}
	if err := admin.RemoveSSHKey(t.Context(), "mine"); err != nil {
		t.Fatal(err)
	}
	if c, err := login(); err == nil {
		c.Close()
		t.Error("a removed key opens SSH")
	}
}

// TestACMEOutOfReach shows that a daemon whose authority does not answer serves no certificate, but
// still starts and ends.
func TestACMEOutOfReach(t *testing.T) {
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ca := "https://" + gone.Addr().String() + "/dir"
	gone.Close()
	cfg := testConfig(t)
	cfg.Domain = "box.example.com"
	cfg.Ingress.ACMEDomains, cfg.Ingress.ACMECA, cfg.Ingress.ACMEOnDemand = []string{"box.example.com"}, ca, true
	d := run(t, cfg, Options{})
	if !strings.HasPrefix(d.URL(), "https://box.example.com:") {
		t.Errorf("it says that it is at %s", d.URL())
	}
	c, err := tls.DialWithDialer(&net.Dialer{Timeout: time.Minute}, "tcp", d.listener.Addr().String(), &tls.Config{ServerName: "3000-i00000000000000000000.box.example.com", InsecureSkipVerify: true}) //nolint:gosec // none should be shown
	if err == nil {
		c.Close()
		t.Error("it shows a certificate")
	}
}

// TestPlainWarns shows that the daemon warns about an address without TLS that others can reach,
// but not about loopback.
func TestPlainWarns(t *testing.T) {
	for addr, warns := range map[string]bool{"127.0.0.1:7070": false, "[::1]:7070": false, "0.0.0.0:7070": true, "192.0.2.1:7070": true} {
		var log strings.Builder
		tcp, err := net.ResolveTCPAddr("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		d := &Daemon{log: slog.New(slog.NewTextHandler(&log, nil))}
		if err := d.openCertificates(tcp); err != nil || strings.Contains(log.String(), "plain HTTP") != warns {
			t.Errorf("%s: %q, %v", addr, log.String(), err)
		}
	}
}
