package agent_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/carrel-dev/carrel/internal/guest"
	"github.com/carrel-dev/carrel/internal/guest/agent"
	"github.com/carrel-dev/carrel/internal/guest/process"
	"github.com/carrel-dev/carrel/internal/testenv"
)

// ask sends a request and returns the answer's status, header and body.
func (g *guestUnderTest) ask(t testing.TB, method, path, body string, headers ...string) (int, http.Header, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, g.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := g.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, resp.Header, string(data)
}

// trustAll makes every peer count as the host.
func trustAll(c *agent.Config) { c.Trusted = func(net.Addr) bool { return true } }

func TestHealthAndRoutes(t *testing.T) {
	g := newGuest(t)
	for _, c := range []struct {
		method, path string
		code         int
		body         string
	}{
		{"GET", "/health", 204, ""},
		{"POST", "/health", 405, `"code":405`},
		{"GET", "/nothing", 404, `{"code":404,"message":"no such route: /nothing"}`},
		{"POST", "/init", 403, `"code":403`},
		{"GET", "/init", 405, `"code":405`},
		{"GET", guest.TunnelPath + "80", 403, `"code":403`},
		{"GET", "/process.Process/Start", 405, ""},
		{"POST", "/process.Process/Nothing", 404, ""},
	} {
		if code, _, body := g.ask(t, c.method, c.path, ""); code != c.code || !strings.Contains(body, c.body) {
			t.Errorf("%s %s: %d %q", c.method, c.path, code, body)
		}
	}
}

func TestMetrics(t *testing.T) {
	g := newGuest(t)
	code, h, body := g.ask(t, "GET", "/metrics", "")
	var m map[string]float64
	if err := json.Unmarshal([]byte(body), &m); err != nil || code != 200 || !strings.HasPrefix(h.Get("Content-Type"), "application/json") {
		t.Fatal(code, h, body, err)
	}
	for _, k := range []string{"ts", "cpu_count", "mem_total", "mem_used", "mem_total_mib", "mem_used_mib", "disk_total", "disk_used"} {
		if m[k] <= 0 {
			t.Errorf("%s is %v", k, m[k])
		}
	}
	if m["mem_used"] > m["mem_total"] || m["disk_used"] > m["disk_total"] || m["cpu_used_pct"] < 0 || m["cpu_used_pct"] > 100 {
		t.Errorf("impossible: %v", m)
	}
	if d := time.Since(time.Unix(int64(m["ts"]), 0)); d > time.Minute {
		t.Errorf("time is %v off", d)
	}
}

func TestInit(t *testing.T) {
	g := newGuest(t, trustAll)
	now := time.Now().Truncate(time.Second)
	send := func(req guest.InitRequest) {
		t.Helper()
		body, _ := json.Marshal(req)
		if code, _, answer := g.ask(t, "POST", "/init", string(body)); code != 204 || answer != "" {
			t.Fatal(code, answer)
		}
	}
	envs := func(token string) map[string]string {
		t.Helper()
		code, _, body := g.ask(t, "GET", "/envs", "", "X-Access-Token", token)
		var m map[string]string
		if err := json.Unmarshal([]byte(body), &m); err != nil || code != 200 {
			t.Fatal(code, body, err)
		}
		return m
	}
	dir := t.TempDir()
	send(guest.InitRequest{EnvVars: map[string]string{"A": "1"}, AccessToken: "new", Timestamp: now, DefaultWorkdir: dir, SandboxID: "isandbox", TemplateID: "base"})
	want := map[string]string{"A": "1", "E2B_SANDBOX": "true", "E2B_SANDBOX_ID": "isandbox", "E2B_TEMPLATE_ID": "base"}
	if got := envs("new"); !maps.Equal(got, want) {
		t.Errorf("envs %v", got)
	}
	e := g.mustRun(t, sh("echo $A $E2B_SANDBOX_ID; pwd -P"), "X-Access-Token", "new")
	if real, _ := os.Readlink(dir); real == "" && e.stdout.String() != "1 isandbox\n"+dir+"\n" {
		t.Errorf("got %q", e.stdout.String())
	}
	// A delayed repeat of an older request changes nothing.
	send(guest.InitRequest{EnvVars: map[string]string{"A": "old"}, AccessToken: "old", Timestamp: now.Add(-time.Minute)})
	if got := envs("new"); got["A"] != "1" {
		t.Errorf("envs %v", got)
	}
	// If both have an order, the order decides, whatever the host's clock says.
	send(guest.InitRequest{EnvVars: map[string]string{"A": "1"}, AccessToken: "new", Timestamp: now, SandboxID: "isandbox", Order: 7})
	send(guest.InitRequest{EnvVars: map[string]string{"A": "stepped"}, AccessToken: "stepped", Timestamp: now.Add(-time.Hour), SandboxID: "isandbox", Order: 8})
	if got := envs("stepped"); got["A"] != "stepped" {
		t.Errorf("envs %v", got)
	}
	send(guest.InitRequest{EnvVars: map[string]string{"A": "late"}, AccessToken: "late", Timestamp: now.Add(time.Hour), SandboxID: "isandbox", Order: 7})
	if got := envs("stepped"); got["A"] != "stepped" {
		t.Errorf("envs %v", got)
	}
	send(guest.InitRequest{EnvVars: map[string]string{"A": "1"}, AccessToken: "new", Timestamp: now, SandboxID: "isandbox", Order: 9})
	// A newer request counts, after a restore.
	send(guest.InitRequest{EnvVars: map[string]string{"B": "2"}, AccessToken: "newer", Timestamp: now.Add(time.Minute), SandboxID: "ifork"})
	if got := envs("newer"); got["A"] != "" || got["B"] != "2" || got["E2B_SANDBOX_ID"] != "ifork" {
		t.Errorf("envs %v", got)
	}
	if code, _, _ := g.ask(t, "GET", "/envs", "", "X-Access-Token", "new"); code != 401 {
		t.Errorf("the old token still works: %d", code)
	}
	for _, c := range []struct {
		body string
		code int
		part string
	}{
		{"{", 400, "body: "},
		{"[]", 400, "body: "},
		{`{"envVars":{"A":1}}`, 400, "envVars"},
		{`{"envVars":{"A=B":"1"}}`, 400, "envVars"},
		{`{"envVars":{"A":"\u0000"}}`, 400, "envVars.A"},
		{`{"hostname":"a/b"}`, 400, "hostname"},
		{`{"defaultWorkdir":"/a\u0000"}`, 400, "defaultWorkdir"},
		{`{"timestamp":"yesterday"}`, 400, "body: "},
		{`{"accessToken":"` + strings.Repeat("x", 2<<20) + `"}`, 413, "body: "},
	} {
		if code, _, body := g.ask(t, "POST", "/init", c.body); code != c.code || !strings.Contains(body, c.part) {
			t.Errorf("%.40s: %d %s", c.body, code, body)
		}
	}
}

func TestAccessToken(t *testing.T) {
	g := newGuest(t, trustAll)
	if code, _, _ := g.ask(t, "POST", "/init", `{"accessToken":"secret"}`); code != 204 {
		t.Fatal(code)
	}
	const answer = `{"code":401,"message":"unauthorized access, please provide a valid access token or method signing if supported"}` + "\n"
	for _, path := range []string{"/envs", "/metrics", "/files/compose", "/process.Process/List", "/filesystem.Filesystem/Stat", "/nothing"} {
		for _, token := range []string{"", "Secret", "secret ", "secretsecret"} {
			code, _, body := g.ask(t, "GET", path, "", "X-Access-Token", token)
			if code != 401 || body != answer {
				if strings.TrimSpace(token) == "secret" {
					continue // HTTP removes outer spaces of header values
				}
				t.Errorf("%s with %q: %d %s", path, token, code, body)
			}
		}
	}
	if code, _, _ := g.ask(t, "GET", "/health", ""); code != 204 {
		t.Errorf("health %d", code)
	}
	_, err := g.run(t.Context(), sh("true"))
	if connect.CodeOf(err) != connect.CodeUnauthenticated {
		t.Errorf("start without token: %v", err)
	}
	g.mustRun(t, sh("true"), "X-Access-Token", "secret")
}

func TestCORS(t *testing.T) {
	g := newGuest(t, trustAll)
	if code, _, _ := g.ask(t, "POST", "/init", `{"accessToken":"secret"}`); code != 204 {
		t.Fatal(code)
	}
	// A preflight carries no token.
	code, h, _ := g.ask(t, "OPTIONS", "/process.Process/Start", "", "Origin", "https://app.example.com",
		"Access-Control-Request-Method", "POST", "Access-Control-Request-Headers", "x-access-token,content-type")
	if code != 204 || h.Get("Access-Control-Allow-Origin") != "*" || !strings.Contains(h.Get("Access-Control-Allow-Methods"), "POST") ||
		h.Get("Access-Control-Allow-Headers") != "x-access-token,content-type" || h.Get("Access-Control-Max-Age") == "" {
		t.Error(code, h)
	}
	code, h, _ = g.ask(t, "GET", "/envs", "", "Origin", "https://app.example.com")
	if code != 401 || h.Get("Access-Control-Allow-Origin") != "*" {
		t.Error(code, h)
	}
}

// tunnel asks for a tunnel to a port.
func (g *guestUnderTest) tunnel(t *testing.T, port string) (*net.TCPConn, *bufio.Reader, *http.Response) {
	t.Helper()
	u, _ := url.Parse(g.URL)
	conn, err := net.Dial("tcp", u.Host)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	fmt.Fprintf(conn, "GET %s%s HTTP/1.1\r\nHost: guest\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\nearly ", guest.TunnelPath, port, guest.TunnelProtocol)
	br := bufio.NewReader(conn)
	resp, err := http.ReadResponse(br, nil)
	if err != nil {
		t.Fatal(err)
	}
	return conn.(*net.TCPConn), br, resp
}

func TestTunnel(t *testing.T) {
	g := newGuest(t, trustAll)
	for _, network := range []string{"tcp4", "tcp6"} {
		t.Run(network, func(t *testing.T) {
			l, err := net.Listen(network, map[string]string{"tcp4": "127.0.0.1:0", "tcp6": "[::1]:0"}[network])
			testenv.Need(t, network, err)
			defer l.Close()
			served := make(chan error, 1)
			go func() {
				c, err := l.Accept()
				if err == nil {
					// The server answers only at the end of its input, so a tunnel that does not
					// pass on a half-close would hang.
					var in []byte
					if in, err = io.ReadAll(c); err == nil {
						_, err = fmt.Fprintf(c, "%d:%s", len(in), in[:12])
					}
					_ = c.Close()
				}
				served <- err
			}()
			conn, br, resp := g.tunnel(t, fmt.Sprint(l.Addr().(*net.TCPAddr).Port))
			if resp.StatusCode != http.StatusSwitchingProtocols || resp.Header.Get("Upgrade") != guest.TunnelProtocol {
				t.Fatal(resp)
			}
			big := strings.Repeat("x", 1<<20)
			if _, err := io.WriteString(conn, "and late"+big); err != nil {
				t.Fatal(err)
			}
			if err := conn.CloseWrite(); err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(br)
			if want := fmt.Sprintf("%d:early and la", len(big)+14); err != nil || string(got) != want {
				t.Errorf("got %q, %v, want %q", got, err, want)
			}
			if err := <-served; err != nil {
				t.Error(err)
			}
		})
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := fmt.Sprint(free.Addr().(*net.TCPAddr).Port)
	_ = free.Close()
	for port, code := range map[string]int{port: 502, "0": 400, "65536": 400, "x": 400} {
		if _, _, resp := g.tunnel(t, port); resp.StatusCode != code {
			t.Errorf("port %s: %v", port, resp.Status)
		}
	}
	if code, _, _ := g.ask(t, "GET", guest.TunnelPath+"80", ""); code != http.StatusUpgradeRequired {
		t.Errorf("without upgrade: %d", code)
	}
}

// TestH2C shows that one port speaks HTTP/1 and HTTP/2 without TLS.
func TestH2C(t *testing.T) {
	g := newGuest(t)
	var p http.Protocols
	p.SetUnencryptedHTTP2(true)
	tr := &http.Transport{Protocols: &p}
	defer tr.CloseIdleConnections()
	resp, err := (&http.Client{Transport: tr}).Get(g.URL + "/health")
	if err != nil || resp.ProtoMajor != 2 || resp.StatusCode != 204 {
		t.Fatal(resp, err)
	}
	_ = resp.Body.Close()
}

// FuzzEnvelope sends frames of all kinds to every call. Each must get a clean answer, and the agent
// must go on.
func FuzzEnvelope(f *testing.F) {
	frame := func(flags byte, length uint32, body string) []byte {
		return append([]byte{flags, byte(length >> 24), byte(length >> 16), byte(length >> 8), byte(length)}, body...)
	}
	for _, s := range [][]byte{
		nil, {0}, {0, 0, 0}, frame(0, 2, "{}"), frame(0, 2, "{"), frame(0, 100, "{}"), frame(0, 0xffffffff, "{}"),
		frame(2, 2, "{}"), frame(1, 2, "{}"), frame(0xff, 2, "{}"), frame(0, 0, ""), frame(0, 4, "null"), frame(0, 1, "\x00"),
		frame(0, 42, `{"process":{"cmd":"/bin/true","args":[1]}}`), frame(0, 25, `{"process":{"pid":"-1"}}..`),
		append(frame(0, 2, "{}"), frame(0, 2, "{}")...), append(frame(0, 2, "{}"), 7), []byte(`{"process":{"pid":1}}`),
	} {
		for call := range uint8(8) {
			f.Add(call, true, s)
			f.Add(call, false, s)
		}
	}
	g := newGuest(f)
	calls := []string{"Start", "Connect", "StreamInput", "List", "Update", "SendInput", "SendSignal", "CloseStdin"}
	f.Fuzz(func(t *testing.T, call uint8, stream bool, body []byte) {
		kind := "application/json"
		if stream {
			kind = "application/connect+json"
		}
		// Commands that the fuzzer finds must not run, so name a user that does not exist.
		code, _, answer := g.ask(t, "POST", "/process.Process/"+calls[int(call)%len(calls)], string(body),
			"Content-Type", kind, "Connect-Protocol-Version", "1", "Authorization", "Basic bm9ib2R5LWhlcmU6")
		if code >= 500 && code != http.StatusNotImplemented {
			t.Errorf("%s %q: %d %q", calls[int(call)%len(calls)], body, code, answer)
		}
		if strings.Contains(answer, `"pid"`) {
			t.Errorf("%s %q: %q", calls[int(call)%len(calls)], body, answer)
		}
		if _, err := g.client.List(t.Context(), connect.NewRequest(&process.ListRequest{})); err != nil {
			t.Fatal(err)
		}
	})
}

// TestUnwantedBody holds back a body that nobody reads, because the token is missing. The answer
// must come anyway, and then the end of the connection.
func TestUnwantedBody(t *testing.T) {
	testenv.Long(t, "waits for a deadline")
	g := newGuest(t, trustAll)
	if code, _, _ := g.ask(t, "POST", "/init", `{"accessToken":"secret"}`); code != 204 {
		t.Fatal(code)
	}
	conn, err := net.Dial("tcp", g.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	fmt.Fprint(conn, "POST /process.Process/List HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{")
	if raw, err := io.ReadAll(conn); err != nil || !strings.HasPrefix(string(raw), "HTTP/1.1 401") {
		t.Errorf("%q, %v; want 401 and the end", raw, err)
	}
}
