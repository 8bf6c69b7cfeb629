package box_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/carrel-dev/carrel/internal/testenv"
)

// TestCarrierThatBreaks ends the process that carries a box's network: the box ends with it, and
// its runner says why.
func TestCarrierThatBreaks(t *testing.T) {
	both(t, func(t *testing.T, w *world) {
		cmd := w.box("--allow", "allowed.example.com", "-c", "echo up >up; sleep 300")
		found := make(chan error, 1)
		go func() {
			found <- testenv.Within(t.Context(), time.Minute, func() error {
				if _, err := os.Stat(w.project + "/up"); err != nil {
					return err
				}
				return killCarrier(cmd.Process.Pid)
			})
		}()
		r := w.runFor(cmd, 2*time.Minute)
		if err := <-found; err != nil {
			t.Fatal(err)
		}
		if r.code != 125 || !strings.Contains(r.err, "the box lost its network") || !strings.Contains(r.err, "hint: ") || r.took > time.Minute {
			t.Errorf("exit %d after %v: %s", r.code, r.took, r.err)
		}
	})
}

// killCarrier ends the carrier of a runner.
func killCarrier(runner int) error {
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, name := range lines {
		if text, _ := os.ReadFile(name); string(text) != "carrel-carrier\x00" {
			continue
		}
		status, _ := os.ReadFile(filepath.Dir(name) + "/status")
		if !strings.Contains(string(status), fmt.Sprintf("\nPPid:\t%d\n", runner)) {
			continue
		}
		var carrier int
		if _, err := fmt.Sscanf(name, "/proc/%d/", &carrier); err != nil {
			return err
		}
		return syscall.Kill(carrier, syscall.SIGKILL)
	}
	return errors.Join(err, errors.New("no carrier was found"))
}

// internet is an artificial internet of a few servers, and a table that leads to them.
func internet(w *world) (table string) {
	site := func(name string) http.Handler {
		return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { fmt.Fprintf(rw, "%s says %s\n", name, r.URL.Path) })
	}
	names, dial := map[string][]string{}, map[string]string{}
	for i, name := range []string{"allowed.example.com", "other.example.com", "sub.wild.example.com", "wild.example.com", "deep.sub.wild.example.com", "denied.wild.example.com"} {
		address := fmt.Sprint("203.0.113.", 10+i)
		plain, secure := httptest.NewServer(site(name)), httptest.NewTLSServer(site(name+" in secret"))
		w.t.Cleanup(plain.Close)
		w.t.Cleanup(secure.Close)
		raw, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			w.t.Fatal(err)
		}
		w.t.Cleanup(func() { _ = raw.Close() })
		go func() {
			for {
				c, err := raw.Accept()
				if err != nil {
					return
				}
				_, _ = io.WriteString(c, "raw\n")
				_ = c.Close()
			}
		}()
		names[name] = []string{address}
		dial[address+":80"], dial[address+":443"], dial[address+":8080"] = plain.Listener.Addr().String(), secure.Listener.Addr().String(), plain.Listener.Addr().String()
		dial[address+":22"] = raw.Addr().String()
	}
	// Names that lead astray.
	names["local.example.com"], names["meta.example.com"], names["lan.example.com"] = []string{"127.0.0.1"}, []string{"169.254.169.254"}, []string{"10.1.2.3"}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = listener.Close() })
	go hearConnections(w, listener, "what must stay closed")
	for _, a := range []string{"127.0.0.1", "169.254.169.254", "10.1.2.3"} {
		dial[a+":80"] = listener.Addr().String()
	}
	text, err := json.Marshal(map[string]any{"names": names, "dial": dial})
	if err != nil {
		w.t.Fatal(err)
	}
	table = filepath.Join(w.home, "table.json")
	w.write(table, string(text))
	return table
}

// get returns a line that fetches a page, without proxies.
func get(url string) string { return "curl -fskS -m 20 " + url }

// TestNetwork checks which traffic may leave.
func TestNetwork(t *testing.T) {
	both(t, networks)
}

// TestNetworkWithoutTUN: the same holds where /dev/net/tun is closed to the user, or is no device.
func TestNetworkWithoutTUN(t *testing.T) {
	var err error
	if os.Getuid() != 0 {
		err = errors.New("hiding /dev/net/tun takes root")
	}
	testenv.Need(t, "root", err)
	bothOr(t, "user", func(t *testing.T, w *world) {
		w.closed = []string{"/dev/net/tun"}
		networks(t, w)
		// 64 MB each way, of which none may be lost.
		big := filepath.Join(w.home, "served")
		w.write(big+"/x", strings.Repeat("0123456789abcdef", 4<<20))
		site := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPost {
				n, _ := io.Copy(io.Discard, r.Body)
				fmt.Fprint(rw, n)
				return
			}
			http.ServeFile(rw, r, big+"/x")
		}))
		defer site.Close()
		text, _ := json.Marshal(map[string]any{"names": map[string][]string{"big.example.com": {"203.0.113.99"}}, "dial": map[string]string{"203.0.113.99:80": site.Listener.Addr().String()}})
		w.write(w.home+"/big.json", string(text))
		r := w.run(w.box("--wire-table", w.home+"/big.json", "--allow", "big.example.com", "-c", "curl -sS -m 60 http://big.example.com/x >x && stat -c %s x && curl -sS -m 60 -H Expect: --data-binary @x http://big.example.com/x && cmp x "+big+"/x"))
		if r.out != "67108864\n67108864" || r.code != 0 {
			t.Errorf("exit %d %.200q %s", r.code, r.out, r.err)
		}
		t.Logf("64 MiB each way took %v", r.took)
		cmd := w.boxed(w.carrel, "doctor")
		if r := w.run(cmd); !strings.Contains(r.out, "run      works") || !strings.Contains(r.out, "ns       works") || !strings.Contains(r.out, "through a pair of virtual Ethernet devices") {
			t.Errorf("doctor: exit %d %s", r.code, r.all())
		}
	})
}

// networks looks at all rules.
func networks(t *testing.T, w *world) {
	table := internet(w)
	allowed, wild := []string{"--allow", "allowed.example.com"}, []string{"--allow", "*.wild.example.com"}
	for _, c := range []struct {
		name  string
		flags []string
		shell string
		out   string // "" is a refusal
	}{
		{"closed, HTTP", nil, get("http://allowed.example.com/x"), ""},
		{"closed, HTTPS", nil, get("https://allowed.example.com/x"), ""},
		{"closed, address", nil, get("http://203.0.113.10/x"), ""},
		{"closed, names", nil, "getent ahosts allowed.example.com", ""},
		{"closed, any TCP", nil, "exec 3<>/dev/tcp/203.0.113.10/22; cat <&3", ""},
		{"closed, python", nil, `python3 -c "import urllib.request as u; print(u.urlopen('http://allowed.example.com/x').read())"`, ""},
		{"allowed, HTTP", allowed, get("http://allowed.example.com/x"), "allowed.example.com says /x\n"},
		{"allowed, HTTPS", allowed, get("https://allowed.example.com/x"), "allowed.example.com in secret says /x\n"},
		{"allowed, names", allowed, "getent ahostsv4 allowed.example.com | head -1 | cut -d' ' -f1", "203.0.113.10\n"},
		{"allowed, python that knows no proxy", allowed, `python3 -c "import urllib.request as u; print(u.urlopen('http://allowed.example.com/x').read().decode(),end='')"`, "allowed.example.com says /x\n"},
		{"allowed, node that knows no proxy", allowed, `node -e "fetch('http://allowed.example.com/x').then(r=>r.text()).then(t=>process.stdout.write(t))"`, "allowed.example.com says /x\n"},
		{"another one", allowed, get("http://other.example.com/x"), ""},
		{"another one, HTTPS", allowed, get("https://other.example.com/x"), ""},
		{"another one's name on an allowed address", allowed, get("-H 'Host: other.example.com' http://allowed.example.com/x"), ""},
		{"another one's TLS name on an allowed address", allowed, get("--connect-to other.example.com:443:203.0.113.10:443 https://other.example.com/x"), ""},
		{"an allowed name on another address", allowed, get("--connect-to allowed.example.com:80:203.0.113.11:80 http://allowed.example.com/x"), ""},
		{"another port", allowed, "exec 3<>/dev/tcp/allowed.example.com/22 && echo SSH-2.0 >&3 && cat <&3", ""}, // who says nothing is cut after 10 s
		{"another port, allowed", []string{"--allow", "tcp://allowed.example.com:22"}, "exec 3<>/dev/tcp/allowed.example.com/22 && cat <&3", "raw\n"},
		{"wildcard", wild, get("http://sub.wild.example.com/x"), "sub.wild.example.com says /x\n"},
		{"wildcard, the name itself", wild, get("http://wild.example.com/x"), ""},
		{"wildcard, not a suffix", []string{"--allow", "*.ild.example.com"}, get("http://wild.example.com/x"), ""},
		{"denied in a wildcard", append([]string{"--deny", "denied.wild.example.com"}, wild...), get("http://denied.wild.example.com/x"), ""},
		{"the rest of it", append([]string{"--deny", "denied.wild.example.com"}, wild...), get("http://sub.wild.example.com/x"), "sub.wild.example.com says /x\n"},
		{"rebound to loopback", []string{"--allow", "local.example.com"}, get("http://local.example.com/x"), ""},
		{"rebound to metadata", []string{"--allow", "meta.example.com"}, get("http://meta.example.com/x"), ""},
		{"rebound to a private network", []string{"--allow", "lan.example.com"}, get("http://lan.example.com/x"), ""},
		{"files while closed", nil, "cat README.md", "hello\n"},
		{"a relay by CONNECT", allowed, get("-p -x http://allowed.example.com:80 http://other.example.com/x") + " | grep -v 'allowed.example.com says'", ""},
		{"settings with an empty list", []string{"--settings", "{home}/empty.json"}, get("http://allowed.example.com/x"), ""},
		{"settings with a list", []string{"--settings", "{home}/list.json"}, get("http://allowed.example.com/x"), "allowed.example.com says /x\n"},
		{"settings that deny", []string{"--settings", "{home}/list.json", "--deny", "allowed.example.com"}, get("http://allowed.example.com/x"), ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			w.write(w.home+"/empty.json", `{"network":{"allowedDomains":[],"deniedDomains":[]},"filesystem":{"denyRead":[],"allowWrite":["."],"denyWrite":[]}}`)
			w.write(w.home+"/list.json", `{"network":{"allowedDomains":["allowed.example.com"],"deniedDomains":[]},"filesystem":{"denyRead":[],"allowWrite":["."],"denyWrite":[]}}`)
			flags := []string{"--wire-table", table}
			for _, f := range c.flags {
				flags = append(flags, w.expand(f))
			}
			r := w.run(w.box(append(flags, "-c", c.shell)...))
			if r.out != c.out || c.out == "" && r.code == 0 {
				t.Errorf("exit %d %q, want %q\n%s", r.code, r.out, c.out, r.err)
			}
			if c.out == "" && !strings.Contains(r.err, "carrel: ") {
				t.Errorf("the refusal is not told:\n%s", r.err)
			}
			if heard := w.heardAll(); len(heard) > 0 {
				t.Fatal(heard)
			}
		})
	}
	w.sub(t, "a service of this machine", func(t *testing.T) { testHostService(t, w, table) })
	w.sub(t, "servers", func(t *testing.T) { testServers(t, w) })
}

// testHostService is about what listens on this machine's own loopback.
func testHostService(t *testing.T, w *world, table string) {
	service := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) { fmt.Fprintln(rw, "from the host") }))
	defer service.Close()
	_, port, err := net.SplitHostPort(service.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	opened := []string{"--wire-table", table, "--allow", "host.carrel.internal:" + port}
	for _, c := range []struct {
		name, shell, out, told string
		flags                  []string
	}{
		{"by name", get("http://host.carrel.internal:" + port + "/x"), "from the host\n", "", opened},
		{"another port", get("http://host.carrel.internal:1/x"), "", "--allow host.carrel.internal:1", opened},
		{"everything", get("http://host.carrel.internal:" + port + "/x"), "", "--allow host.carrel.internal:", []string{"--wire-table", table, "--allow", "*"}},
		{"another system's name", get("http://host.docker.internal:" + port + "/x"), "", "--allow host.carrel.internal:", opened},
		{"the gateway", get("http://10.73.0.1:" + port + "/x"), "", "--allow host.carrel.internal:" + port, opened},
		{"loopback", get("http://127.0.0.1:"+port+"/x") + " || echo closed", "closed\n", "", opened},
	} {
		r := w.run(w.box(append(c.flags, "-c", c.shell)...))
		if r.out != c.out || c.out == "" && r.code == 0 || !strings.Contains(r.err, c.told) {
			t.Errorf("%s: exit %d %q, want %q and %q\n%s", c.name, r.code, r.out, c.out, c.told, r.err)
		}
	}
}

// testServers checks listening ports.
func testServers(t *testing.T, w *world) {
	const server = "python3 -u -m http.server -b 0.0.0.0 8123 2>/dev/null >/dev/null & for i in $(seq 2000); do curl -s http://127.0.0.1:8123/README.md && break; sleep 0.05; done; "
	if r := w.run(w.box("-c", server+"kill %1")); r.out != "hello\n" {
		t.Errorf("a server inside: %q %s", r.out, r.err)
	}
	if r := w.run(w.box("--no-bind", "-c", `python3 -c "import socket; socket.create_server(('127.0.0.1',8123))"`)); r.code == 0 || !strings.Contains(r.err, "carrel: ") {
		t.Errorf("a server with --no-bind: %d %s", r.code, r.err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	outside := l.Addr().String()
	_ = l.Close()
	for _, network := range [][]string{nil, {"--internet"}} {
		args := append([]string{"--publish", outside + ":8123"}, network...)
		s := w.start(w.box(append(args, "-c", "echo up; "+server+"wait")...))
		err := testenv.Within(t.Context(), time.Minute, func() error {
			r, err := http.Get("http://" + outside + "/README.md")
			if err != nil {
				return err
			}
			body, err := io.ReadAll(r.Body)
			_ = r.Body.Close()
			if err == nil && string(body) != "hello\n" {
				err = fmt.Errorf("it says %q", body)
			}
			return err
		})
		if err != nil {
			t.Errorf("published %v: %v %s", network, err, s.errs)
		}
		_ = s.cmd.Process.Signal(os.Interrupt)
		_ = s.cmd.Process.Kill()
		s.end()
		if c, err := net.Dial("tcp", outside); err == nil {
			_ = c.Close()
			t.Error("the port is still open")
		}
	}
}
