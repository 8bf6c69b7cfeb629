package agent_test

import (
	"crypto/tls"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/carrel-dev/carrel/internal/guest"
	"github.com/carrel-dev/carrel/internal/guest/agent"
	"github.com/carrel-dev/carrel/internal/guest/oshost"
	"github.com/carrel-dev/carrel/internal/pki"
	"github.com/carrel-dev/carrel/internal/testenv"
)

// rooted is the real Linux, except that all files about trust are in a directory of the test.
type rooted struct {
	*oshost.System
	dir string
}

func (r *rooted) at(name string) string {
	for _, own := range []string{"/run", "/etc/ssl", "/etc/pki", "/usr/local", "/etc/carrel", "/usr/lib", "/opt"} {
		if name == own || strings.HasPrefix(name, own+"/") {
			return filepath.Join(r.dir, name)
		}
	}
	return name
}

func (r *rooted) Mkdir(name string, u agent.User) error { return os.MkdirAll(r.at(name), 0o755) }
func (r *rooted) Create(name string, u agent.User) (agent.File, error) {
	return r.System.Create(r.at(name), u)
}
func (r *rooted) Open(name string) (agent.File, error) { return r.System.Open(r.at(name)) }
func (r *rooted) Stat(name string) (agent.Entry, error) {
	return r.System.Stat(r.at(name))
}
func (r *rooted) Rename(from, to string) error { return r.System.Rename(r.at(from), r.at(to)) }
func (r *rooted) EvalSymlinks(name string) (string, error) {
	got, err := r.System.EvalSymlinks(r.at(name))
	return strings.TrimPrefix(got, r.dir), err
}
func (r *rooted) ReadDir(name string) ([]agent.Entry, error) {
	list, err := r.System.ReadDir(r.at(name))
	for i := range list {
		list[i].Path = strings.TrimPrefix(list[i].Path, r.dir)
	}
	return list, err
}

func (r *rooted) text(t testing.TB, name string) string {
	t.Helper()
	b, err := os.ReadFile(r.at(name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// wait returns when a file contains a text.
func (r *rooted) wait(t testing.TB, name, text string) {
	t.Helper()
	testenv.EventuallyNil(t, name+" holds what it should", func() error {
		b, err := os.ReadFile(r.at(name))
		if err == nil && string(b) != text {
			err = fmt.Errorf("it holds %.300q and not %.300q", b, text)
		}
		return err
	})
}

func (r *rooted) put(t testing.TB, name, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(r.at(name)), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(r.at(name), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// newRooted starts a guest whose system files are in the test's directory.
func newRooted(t testing.TB) (*guestUnderTest, *rooted) {
	t.Helper()
	sys := &rooted{dir: t.TempDir()}
	g := newGuest(t, trustAll, func(c *agent.Config) {
		sys.System = c.System.(*oshost.System)
		c.System, c.Announce = sys, true
	})
	return g, sys
}

func newAuthority(t testing.TB, name string) *pki.CA {
	t.Helper()
	ca, err := pki.New(name)
	if err != nil {
		t.Fatal(err)
	}
	return ca
}

// initTrust sends an /init and returns the environment of a command after it.
func (g *guestUnderTest) initTrust(t testing.TB, req guest.InitRequest) map[string]string {
	t.Helper()
	body, err := json.Marshal(req)
	if err != nil {
		t.Fatal(err)
	}
	if code, _, text := g.ask(t, "POST", "/init", string(body)); code != 204 {
		t.Fatal(code, text)
	}
	e, err := g.run(t.Context(), sh("env"))
	if err != nil {
		t.Fatal(err)
	}
	envs := map[string]string{}
	for line := range strings.SplitSeq(e.stdout.String(), "\n") {
		if k, v, ok := strings.Cut(line, "="); ok {
			envs[k] = v
		}
	}
	return envs
}

// pemOf returns a certificate in the form of bundles.
func pemOf(ca *pki.CA) string { return string(ca.CertPEM()) }

func TestTrust(t *testing.T) {
	const systemFile = "/etc/ssl/certs/ca-certificates.crt"
	one, two, other := newAuthority(t, "wire"), newAuthority(t, "wire"), pemOf(newAuthority(t, "public"))
	for _, c := range []struct{ name, file, link string }{
		{"debian", systemFile, ""},
		{"fedora", "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem", "/etc/pki/tls/certs/ca-bundle.crt"},
	} {
		t.Run(c.name, func(t *testing.T) {
			g, sys := newRooted(t)
			sys.put(t, c.file, "# public ones\n"+other)
			sys.put(t, "/usr/local/share/keep", "")
			if c.link != "" {
				if err := os.MkdirAll(filepath.Dir(sys.at(c.link)), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.Symlink(sys.at(c.file), sys.at(c.link)); err != nil {
					t.Fatal(err)
				}
			}
			// Without an authority nothing changes.
			if envs := g.initTrust(t, guest.InitRequest{}); envs["SSL_CERT_FILE"] != "" {
				t.Errorf("without an authority: %v", envs)
			}
			if _, err := os.Stat(sys.at(guest.AuthorityFile)); err == nil {
				t.Error("an authority out of nothing")
			}
			for i, step := range []struct {
				ca   *pki.CA
				init guest.InitRequest
			}{
				{one, guest.InitRequest{}},
				{one, guest.InitRequest{}},                                                  // again
				{two, guest.InitRequest{SandboxID: "b", Generation: 1}},                     // another daemon's, from files
				{two, guest.InitRequest{SandboxID: "b", Generation: 2, Restored: true}},     // with memory
				{one, guest.InitRequest{SandboxID: "b", Generation: 3, Restored: true}},     // and back
				{one, guest.InitRequest{EnvVars: map[string]string{"SSL_CERT_FILE": "/x"}}}, // the owner knows better
			} {
				step.init.Authority = pemOf(step.ca)
				envs := g.initTrust(t, step.init)
				gone := pemOf(two)
				if step.ca == two {
					gone = pemOf(one)
				}
				for _, file := range []string{guest.BundleFile, c.file} {
					text := sys.text(t, file)
					if strings.Count(text, pemOf(step.ca)) != 1 || strings.Count(text, other) != 1 || strings.Contains(text, gone) || strings.Count(text, "BEGIN CERT") != 2 {
						t.Fatalf("step %d: %s holds\n%s", i, file, text)
					}
				}
				sys.wait(t, guest.AuthorityFile, pemOf(step.ca))
				sys.wait(t, "/usr/local/share/ca-certificates/carrel.crt", pemOf(step.ca))
				if info, err := os.Lstat(sys.at(c.file)); err != nil || !info.Mode().IsRegular() || info.Mode().Perm()&0o444 != 0o444 {
					t.Errorf("step %d: %v, %v", i, info.Mode(), err)
				}
				want := guest.BundleFile
				if step.init.EnvVars != nil {
					want = "/x"
				}
				if envs["SSL_CERT_FILE"] != want || envs["NODE_EXTRA_CA_CERTS"] != guest.AuthorityFile || envs["REQUESTS_CA_BUNDLE"] != guest.BundleFile {
					t.Errorf("step %d: %v", i, envs)
				}
			}
		})
	}
}

// TestTrustBare shows that a template without a bundle gets one, made from Python's.
func TestTrustBare(t *testing.T) {
	g, sys := newRooted(t)
	public := pemOf(newAuthority(t, "public"))
	sys.put(t, "/usr/local/lib/python3.12/site-packages/certifi/cacert.pem", public)
	ca := newAuthority(t, "wire")
	g.initTrust(t, guest.InitRequest{Authority: pemOf(ca)})
	if text := sys.text(t, guest.BundleFile); !strings.Contains(text, public) || !strings.Contains(text, pemOf(ca)) {
		t.Errorf("the bundle holds\n%s", text)
	}
	if _, err := os.Stat(sys.at("/etc/ssl")); err == nil {
		t.Error("a system's bundle where there was none")
	}
}

// TestTrustRegenerated runs the system's own tool. It finds our authority in the directory for it,
// and writes a new bundle without our mark.
func TestTrustRegenerated(t *testing.T) {
	const systemFile = "/etc/ssl/certs/ca-certificates.crt"
	g, sys := newRooted(t)
	public, one, two := pemOf(newAuthority(t, "public")), newAuthority(t, "wire"), newAuthority(t, "wire")
	sys.put(t, systemFile, public)
	g.initTrust(t, guest.InitRequest{Authority: pemOf(one)})
	sys.put(t, systemFile, pemOf(one)+public)
	g.initTrust(t, guest.InitRequest{Authority: pemOf(two), Generation: 1, SandboxID: "b"})
	if text := sys.text(t, systemFile); strings.Contains(text, pemOf(one)) || strings.Count(text, pemOf(two)) != 1 || !strings.Contains(text, public) {
		t.Errorf("the bundle holds\n%s", text)
	}
}

func TestTrustRefusesWhatIsNone(t *testing.T) {
	g, sys := newRooted(t)
	key := string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: []byte("key")}))
	broken := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("none")}))
	good := pemOf(newAuthority(t, "wire"))
	for _, text := range []string{"nonsense", key, broken, good + good, good + "more", strings.Repeat("\n", 70_000) + good} {
		body, _ := json.Marshal(guest.InitRequest{Authority: text})
		if code, _, answer := g.ask(t, "POST", "/init", string(body)); code != 400 || !strings.Contains(answer, "authority") {
			t.Errorf("%.20q: %d %s", text, code, answer)
		}
	}
	if _, err := os.Stat(sys.at(guest.AuthorityFile)); err == nil {
		t.Error("something was written")
	}
}

// TestTrustWorks connects to a server whose certificate comes from the authority. It uses this
// machine's programs with exactly the variables that commands get.
func TestTrustWorks(t *testing.T) {
	public, err := os.ReadFile("/etc/ssl/certs/ca-certificates.crt")
	testenv.Need(t, "openssl", err)
	ca := newAuthority(t, "Carrel  wire")
	leaf, err := ca.Leaf("localhost", "127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/" {
			http.NotFound(w, r)
			return
		}
		fmt.Fprint(w, "trusted")
	}))
	srv.TLS = &tls.Config{Certificates: []tls.Certificate{*leaf}}
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	srv.StartTLS()
	t.Cleanup(srv.Close)
	_, port, _ := net.SplitHostPort(srv.Listener.Addr().String())
	address := "https://localhost:" + port + "/"

	g, sys := newRooted(t)
	sys.put(t, "/etc/ssl/certs/ca-certificates.crt", string(public))
	sys.put(t, "/usr/local/bin/java", "") // so that Java's variable is set
	envs := g.initTrust(t, guest.InitRequest{Authority: pemOf(ca)})
	for k, v := range envs {
		envs[k] = strings.ReplaceAll(v, "/run/carrel/", sys.at("/run/carrel")+"/")
	}
	java := filepath.Join(t.TempDir(), "Get.java")
	if err := os.WriteFile(java, []byte(`public class Get { public static void main(String[] a) throws Exception {
		System.out.print(new String(new java.net.URL(a[0]).openStream().readAllBytes())); } }`), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		args []string
		want string
	}{
		{"curl", []string{"-sS", "--max-time", "60", address}, "trusted"},
		{"openssl", []string{"s_client", "-verify_return_error", "-connect", "127.0.0.1:" + port}, "Verify return code: 0 (ok)"},
		{"python3", []string{"-c", "import urllib.request; print(urllib.request.urlopen('" + address + "').read())"}, "trusted"},
		{"node", []string{"-e", "fetch('" + address + "').then(r => r.text()).then(t => console.log(t), e => console.log(e.cause))"}, "trusted"},
		{"git", []string{"ls-remote", address}, "not found"}, // proves that HTTP was spoken: there is no repository
		{"java", []string{java, address}, "trusted"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.name == "java" {
				testenv.Long(t, "it compiles its program first")
			}
			program, err := exec.LookPath(c.name)
			testenv.Need(t, c.name, err)
			for _, with := range []bool{true, false} {
				cmd := exec.Command(program, c.args...)
				cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "GIT_TERMINAL_PROMPT=0", "LC_ALL=C"}
				if with {
					for _, k := range slices.Sorted(maps.Keys(envs)) {
						if strings.Contains(envs[k], sys.dir) {
							cmd.Env = append(cmd.Env, k+"="+envs[k])
						}
					}
				}
				timer := time.AfterFunc(2*time.Minute, func() { _ = cmd.Process.Kill() })
				out, err := cmd.CombinedOutput()
				timer.Stop()
				if got := strings.Contains(string(out), c.want); got != with {
					t.Errorf("with the variables %v: %v\n%s", with, err, out)
				}
			}
		})
	}
	t.Run("hash", func(t *testing.T) {
		program, err := exec.LookPath("openssl")
		testenv.Need(t, "openssl", err)
		out, err := exec.Command(program, "x509", "-hash", "-noout", "-in", sys.at(guest.AuthorityFile)).CombinedOutput()
		if err != nil {
			t.Fatal(err, string(out))
		}
		sys.wait(t, "/etc/ssl/certs/"+strings.TrimSpace(string(out))+".0", pemOf(ca))
		cmd := exec.Command(program, "s_client", "-CApath", sys.at("/etc/ssl/certs"), "-verify_return_error", "-connect", "127.0.0.1:"+port)
		cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
		out, err = cmd.CombinedOutput()
		if !strings.Contains(string(out), "Verify return code: 0 (ok)") {
			t.Errorf("%v\n%s", err, out)
		}
	})
}

// BenchmarkTrust measures the delay of the first command.
func BenchmarkTrust(b *testing.B) {
	public, err := os.ReadFile("/etc/ssl/certs/ca-certificates.crt")
	testenv.Need(b, "openssl", err)
	cas := [2]string{pemOf(newAuthority(b, "wire")), pemOf(newAuthority(b, "wire"))}
	g, sys := newRooted(b)
	sys.put(b, "/etc/ssl/certs/ca-certificates.crt", string(public))
	for i := 0; b.Loop(); i++ {
		body, _ := json.Marshal(guest.InitRequest{Authority: cas[i%2], Generation: i, SandboxID: "b"})
		g.ask(b, "POST", "/init", string(body))
		g.ask(b, "GET", "/envs", "") // waits until it is written
	}
}
