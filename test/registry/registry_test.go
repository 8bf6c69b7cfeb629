package registry_test

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	server "github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/client"
	"github.com/carrel-dev/carrel/internal/testenv"
	"github.com/carrel-dev/carrel/test/daemontest"
)

const (
	user     = "me"
	password = "open-sesame-4711"
)

// private is a registry in this process that wants a password.
func private(t *testing.T) (host string) {
	t.Helper()
	inner := server.New(server.Logger(log.New(io.Discard, "", 0)))
	ts := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if u, p, _ := r.BasicAuth(); u != user || p != password {
			w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		inner.ServeHTTP(w, r)
	}))
	t.Cleanup(ts.Close)
	return strings.TrimPrefix(ts.URL, "http://")
}

// tarOf is an archive of files; the ones in bin can be executed.
func tarOf(t *testing.T, files map[string]string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for file, content := range files {
		mode := int64(0o644)
		if strings.HasPrefix(file, "bin/") {
			mode = 0o755
		}
		if err := w.WriteHeader(&tar.Header{Name: file, Mode: mode,
			Size: int64(len(content))}); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, content); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// publish puts an image with the program show into the registry.
func publish(t *testing.T, ref string) {
	t.Helper()
	show := filepath.Join(t.TempDir(), "show")
	build := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", show, "./show")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	program, err := os.ReadFile(show)
	if err != nil {
		t.Fatal(err)
	}
	raw := tarOf(t, map[string]string{"bin/show": string(program), "srv/app/file": "x",
		"etc/passwd": "root:x:0:0::/root:/bin/sh\napp:x:1234:1234::/srv:/bin/sh\n",
		"etc/group":  "app:x:1234:\n"})
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser,
		error) {
		return io.NopCloser(bytes.NewReader(raw)), nil
	})
	if err != nil {
		t.Fatal(err)
	}
	img, err := mutate.AppendLayers(empty.Image, layer)
	if err != nil {
		t.Fatal(err)
	}
	img, err = mutate.ConfigFile(img, &v1.ConfigFile{OS: "linux", Architecture: runtime.GOARCH,
		RootFS: must(t)(img.ConfigFile()).RootFS,
		Config: v1.Config{Env: []string{"GREETING=hello"}, User: "app", WorkingDir: "/srv/app",
			Labels: map[string]string{"team": "a"}}})
	if err != nil {
		t.Fatal(err)
	}
	r, err := name.ParseReference(ref)
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(r, img, remote.WithAuth(
		&authn.Basic{Username: user, Password: password})); err != nil {
		t.Fatal(err)
	}
}

func must(t *testing.T) func(*v1.ConfigFile, error) *v1.ConfigFile {
	return func(c *v1.ConfigFile, err error) *v1.ConfigFile {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
}

// run runs a command line of carrel with the password on standard input.
func run(d *daemontest.Daemon, args ...string) (stdout, stderr string, err error) {
	cmd := d.CLI(args...)
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(password+"\n"), &out, &errs
	err = cmd.Run()
	return strings.TrimSpace(out.String()), errs.String(), err
}

// importSmall makes the template "small".
func importSmall(t *testing.T, d *daemontest.Daemon) {
	t.Helper()
	raw, err := daemontest.SmallRoot()
	testenv.Need(t, "ldd", err)
	name := filepath.Join(t.TempDir(), "small.tar")
	if err := os.WriteFile(name, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, said, err := run(d, "template", "import", "small", name); err != nil {
		t.Fatal(err, said)
	}
}

// TestThereAndBack pulls a private image, runs it, and pushes it back.
func TestThereAndBack(t *testing.T) {
	t.Parallel()
	host := private(t)
	ref := host + "/team/app:1"
	publish(t, ref)
	cache := t.TempDir()
	d := daemontest.Start(t, "--cache-dir", cache, "--allow-registry", host)
	login := []string{"--username", user, "--password-stdin"}

	_, said, err := run(d, "template", "pull", "app", ref)
	if err == nil || !strings.Contains(said, host+" wants credentials") ||
		!strings.Contains(said, "docker login "+host) {
		t.Errorf("without credentials: %v %s", err, said)
	}
	if _, said, err = run(d, append([]string{"template", "pull", "app", ref},
		login...)...); err != nil {
		t.Fatal(err, said)
	}
	id, said, err := run(d, "create", "--template", "app")
	if err != nil {
		t.Fatal(err, said)
	}
	out, said, err := run(d, "exec", id, "--", "/bin/show")
	if err != nil || out != "1234 /srv/app hello <nil>" {
		t.Errorf("the image's configuration: %q %v %s", out, err, said)
	}

	var first, second struct {
		Digest string
		Sent   int64
	}
	for i, into := range []any{&first, &second} {
		out, said, err := run(d, append([]string{"--json", "template", "push", "app",
			fmt.Sprintf("%s/team/mine:%d", host, i)}, login...)...)
		if err != nil {
			t.Fatal(err, said)
		}
		if err := json.Unmarshal([]byte(out), into); err != nil {
			t.Fatal(err, out)
		}
	}
	if first.Digest != second.Digest || first.Sent < 100_000 || second.Sent > 10_000 {
		t.Errorf("first %+v, second %+v", first, second)
	}
	if _, said, err = run(d, append([]string{"template", "pull", "back",
		host + "/team/mine@" + first.Digest}, login...)...); err != nil {
		t.Fatal(err, said)
	}
	if id, said, err = run(d, "create", "--template", "back"); err != nil {
		t.Fatal(err, said)
	}
	if out, said, err := run(d, "exec", id, "--", "/bin/show"); err != nil ||
		out != "1234 /srv/app hello <nil>" {
		t.Errorf("after the way back: %q %v %s", out, err, said)
	}

	// The password is nowhere on the disk.
	for _, dir := range []string{d.Dir, cache} {
		if found := grep(t, dir, password); len(found) > 0 {
			t.Errorf("the password is in %v", found)
		}
	}
}

// grep lists the files below a directory that hold a text.
func grep(t *testing.T, dir, text string) (found []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(p string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return nil // sockets, and files that have just gone
		}
		if info, err := e.Info(); err != nil || info.Size() > 64<<20 {
			return nil
		}
		if raw, err := os.ReadFile(p); err == nil && bytes.Contains(raw, []byte(text)) {
			found = append(found, p)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// TestGuard asks the daemon for images at places of this machine that the caller has no business
// with. Nothing gets there.
func TestGuard(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	canary := httptest.NewServer(http.HandlerFunc(
		func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	defer canary.Close()
	host := strings.TrimPrefix(canary.URL, "http://")
	sly := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v2/" {
			return
		}
		http.Redirect(w, r, canary.URL+"/secret", http.StatusTemporaryRedirect)
	}))
	defer sly.Close()
	slyHost := strings.TrimPrefix(sly.URL, "http://")
	d := daemontest.Start(t, "--allow-registry", slyHost)
	importSmall(t, d)
	for _, c := range []struct{ verb, ref string }{
		{"pull", host + "/app:1"}, {"pull", strings.Replace(host, "127.0.0.1", "localhost", 1) +
			"/app:1"},
		{"pull", "169.254.169.254/app:1"}, {"pull", "[::1]:80/app:1"}, {"pull", slyHost + "/app:1"},
		{"push", host + "/app:1"},
	} {
		args := []string{"template", "pull", "x", c.ref}
		if c.verb == "push" {
			args = []string{"template", "push", "small", c.ref}
		}
		if _, said, err := run(d, args...); err == nil || !strings.Contains(said, "refused") ||
			!strings.Contains(said, "--allow-registry") {
			t.Errorf("%v: %v %s", args, err, said)
		}
	}
	if n := asked.Load(); n != 0 {
		t.Errorf("the canary was asked %d times", n)
	}
}

// TestHostileImports sends archives to the daemon. Each is refused with a status that blames the
// sender and with the entry's name. Nothing of them stays.
func TestHostileImports(t *testing.T) {
	t.Parallel()
	d := daemontest.Start(t)
	templates := filepath.Join(d.Dir, "templates")
	entry := func(h tar.Header) []byte {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		h.Mode = 0o644
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		return append(b.Bytes(), make([]byte, 1024)...)
	}
	for what, c := range map[string]struct {
		raw    []byte
		status int
		says   string
	}{
		"dots":     {entry(tar.Header{Name: "../../etc/passwd"}), 400, "../../etc/passwd"},
		"absolute": {entry(tar.Header{Name: "/etc/passwd"}), 400, "/etc/passwd"},
		"hard link": {entry(tar.Header{Typeflag: tar.TypeLink, Name: "l", Linkname: "../../etc/shadow"}),
			400, `"l"`},
		"a newline":  {entry(tar.Header{Name: "a\nb/../../c"}), 400, `a\nb`},
		"a terabyte": {entry(tar.Header{Name: "giant", Size: 1 << 40}), 429, "giant"},
		"cut off":    {entry(tar.Header{Name: "short", Size: 5000}), 400, "short"},
		"no archive": {[]byte(strings.Repeat("text ", 1000)), 400, "not a tar archive"},
		"nothing":    {nil, 400, "empty"},
	} {
		req, err := http.NewRequest(http.MethodPost, d.URL+"/carrel/v1/templates/import?name=evil",
			bytes.NewReader(c.raw))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("X-API-Key", d.Key)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		raw, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		// After progress was sent, the error is the last line.
		lines := strings.Split(strings.TrimSpace(string(raw)), "\n")
		type refusal struct {
			Code    int
			Message string
		}
		var said struct {
			refusal
			Error refusal
		}
		if err := json.Unmarshal([]byte(lines[len(lines)-1]), &said); err != nil {
			t.Errorf("%s: %q: %v", what, raw, err)
		}
		got := said.refusal
		if resp.StatusCode == http.StatusOK {
			got = said.Error
		}
		if got.Code != c.status || !strings.Contains(got.Message, c.says) {
			t.Errorf("%s: %d %s", what, resp.StatusCode, raw)
		}
	}
	entries, err := os.ReadDir(templates)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.IsDir() && !strings.HasPrefix(e.Name(), ".") {
			t.Errorf("left %s", e.Name())
		}
	}
	if out, said, err := run(d, "template", "ls"); err != nil || strings.Contains(out, "evil") {
		t.Errorf("%v %s %s", err, out, said)
	}
}

// TestPushOfASnapshot sends the files of a snapshot to a registry, and pulls them as a template.
// The sandbox's name stays behind, and so does the image that the push made of the files.
func TestPushOfASnapshot(t *testing.T) {
	t.Parallel()
	host := private(t)
	d := daemontest.Start(t, "--allow-registry", host)
	importSmall(t, d)
	did := func(args ...string) string {
		t.Helper()
		out, said, err := run(d, args...)
		if err != nil {
			t.Fatalf("%v: %v %s", args, err, said)
		}
		return out
	}
	login := []string{"--username", user, "--password-stdin"}
	id := did("create", "--template", "small")
	did("exec", "--user", "root", id, "--", "sh", "-c", "echo made > /home/user/made; rm /usr/bin/seq")
	snapshot := did("snapshot", id)
	did("exec", "--user", "root", id, "--", "sh", "-c", "echo later > /home/user/made")
	did(append([]string{"template", "push", snapshot, host + "/team/moment:1"}, login...)...)
	did(append([]string{"template", "pull", "moment", host + "/team/moment:1"}, login...)...)
	next := did("create", "--template", "moment")
	if got := did("exec", next, "--", "sh", "-c",
		"cat /home/user/made; ls /usr/bin/seq 2>/dev/null; cat /etc/hostname"); got != "made\n"+next {
		t.Errorf("the pulled template has %q", got)
	}
	// A sandbox whose rules open TLS trusts this daemon, in the system's own files.
	svc, err := client.New(d.URL, d.Key)
	if err != nil {
		t.Fatal(err)
	}
	trusting, err := svc.Create(t.Context(), carrel.CreateOptions{Template: "small",
		Network: carrel.Network{Internet: true, Rules: map[string][]carrel.NetworkRule{"example.com": {
			{Transform: &carrel.NetworkTransform{Headers: map[string]string{"X-Test": "1"}}}}}}})
	if err != nil {
		t.Fatal(err)
	}
	did("exec", "--user", "root", string(trusting.ID), "--", "sh", "-c",
		"mkdir -p /etc/ssl/certs; cat /run/carrel/ca.pem > /etc/ssl/certs/ca-certificates.crt")
	snapshot = did("snapshot", string(trusting.ID))
	did(append([]string{"template", "push", snapshot, host + "/team/trusting:1"}, login...)...)
	did(append([]string{"template", "pull", "trusting", host + "/team/trusting:1"}, login...)...)
	next = did("create", "--template", "trusting")
	if got := did("exec", next, "--", "sh", "-c", "ls -d /etc/ssl/* || :"); strings.Contains(got, "certs") {
		t.Errorf("the pulled template still has %q", got)
	}
	manifests, err := filepath.Glob(filepath.Join(d.Dir, "templates", "*", "template.json"))
	if err != nil || len(manifests) == 0 {
		t.Fatal(manifests, err)
	}
	for _, name := range manifests {
		if raw, err := os.ReadFile(name); err != nil || bytes.Contains(raw, []byte(`"~`)) {
			t.Errorf("%s is left: %v\n%s", name, err, raw)
		}
	}
	if _, said, err := run(d, "template", "push", "s-nothing-such", host+"/team/x:1"); err == nil ||
		!strings.Contains(said, "not found") && !strings.Contains(said, "no template") {
		t.Errorf("of a snapshot that is not there: %v %s", err, said)
	}
}
