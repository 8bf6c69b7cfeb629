package net

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/cgi"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// webSite says hello over every version of HTTP, sends events, and speaks WebSocket.
func webSite() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		_, _ = fmt.Fprintf(w, "hello %s over %s, %d bytes\n", r.Host, r.Proto, len(body))
	})
	mux.HandleFunc("/events", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for i := range 3 {
			_, _ = fmt.Fprintf(w, "data: event %d\n\n", i)
			w.(http.Flusher).Flush()
		}
	})
	mux.HandleFunc("/socket", serveSocket)
	return mux
}

// serveSocket sends each message of a WebSocket back.
func serveSocket(w http.ResponseWriter, r *http.Request) {
	c, rw, err := w.(http.Hijacker).Hijack()
	if err != nil {
		return
	}
	defer c.Close()
	sum := sha1.Sum([]byte(r.Header.Get("Sec-WebSocket-Key") + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
	_, _ = fmt.Fprintf(rw, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: %s\r\n\r\n", base64.StdEncoding.EncodeToString(sum[:]))
	_ = rw.Flush()
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	for {
		head := make([]byte, 6)
		if _, err := io.ReadFull(rw, head); err != nil || head[1]&0x7f > 125 {
			return
		}
		text := make([]byte, head[1]&0x7f)
		if _, err := io.ReadFull(rw, text); err != nil {
			return
		}
		for i := range text {
			text[i] ^= head[2+i%4]
		}
		_, _ = rw.Write(append([]byte{0x81, byte(len(text))}, text...))
		_ = rw.Flush()
	}
}

// gitSite serves a repository with git's own program. It also returns the repository's path.
func gitSite(t *testing.T) (h http.Handler, root string) {
	t.Helper()
	root = t.TempDir()
	for _, script := range []string{
		"git init -q -b main work && cd work && echo hello > README && git add README && git -c user.name=a -c user.email=a@example.com commit -q -m first",
		"git clone -q --bare work hello.git && git -C hello.git config uploadpack.allowAnySHA1InWant true",
	} {
		cmd := exec.Command("sh", "-c", script)
		cmd.Dir = root
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", script, err, out)
		}
	}
	path, err := exec.Command("git", "--exec-path").Output()
	if err != nil {
		t.Fatal(err)
	}
	return &cgi.Handler{Path: filepath.Join(strings.TrimSpace(string(path)), "git-http-backend"), Dir: root,
		Env: []string{"GIT_PROJECT_ROOT=" + root, "GIT_HTTP_EXPORT_ALL=1", "GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*"}}, root
}

// npmSite is a registry with one package.
func npmSite(t *testing.T, name string) http.Handler {
	t.Helper()
	tarball := archive(t, map[string]string{
		"package/package.json": `{"name":"carrel-hello","version":"1.0.0","main":"index.js"}`,
		"package/index.js":     `module.exports = 'hello from npm'`,
	})
	sum := sha512.Sum512(tarball)
	manifest := map[string]any{"name": "carrel-hello", "version": "1.0.0", "main": "index.js", "dist": map[string]string{
		"tarball": "https://" + name + "/carrel-hello/-/carrel-hello-1.0.0.tgz", "integrity": "sha512-" + base64.StdEncoding.EncodeToString(sum[:])}}
	mux := http.NewServeMux()
	mux.HandleFunc("/carrel-hello", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]any{"name": "carrel-hello", "dist-tags": map[string]string{"latest": "1.0.0"}, "versions": map[string]any{"1.0.0": manifest}})
	})
	mux.HandleFunc("/carrel-hello/-/carrel-hello-1.0.0.tgz", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(tarball) })
	return mux
}

// pythonSite is an index with one package.
func pythonSite(t *testing.T) http.Handler {
	t.Helper()
	var wheel bytes.Buffer
	z := zip.NewWriter(&wheel)
	for name, text := range map[string]string{
		"carrel_hello.py":                     "text = 'hello from pip'\n",
		"carrel_hello-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: carrel-hello\nVersion: 1.0\n",
		"carrel_hello-1.0.dist-info/WHEEL":    "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
		"carrel_hello-1.0.dist-info/RECORD":   "carrel_hello.py,,\ncarrel_hello-1.0.dist-info/METADATA,,\ncarrel_hello-1.0.dist-info/WHEEL,,\ncarrel_hello-1.0.dist-info/RECORD,,\n",
	} {
		w, err := z.Create(name)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(w, text)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/simple/carrel-hello/", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = fmt.Fprintf(w, `<!DOCTYPE html><a href="/files/carrel_hello-1.0-py3-none-any.whl#sha256=%x">carrel_hello-1.0-py3-none-any.whl</a>`, sha256.Sum256(wheel.Bytes()))
	})
	mux.HandleFunc("/files/", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(wheel.Bytes()) })
	return mux
}

// debianSite is a package archive with one package.
func debianSite(t *testing.T) http.Handler {
	t.Helper()
	control := "Package: carrel-hello\nVersion: 1.0\nArchitecture: all\nMaintainer: a <a@example.com>\nDescription: hello\n"
	var deb bytes.Buffer
	deb.WriteString("!<arch>\n")
	for _, m := range []struct {
		name string
		body []byte
	}{{"debian-binary", []byte("2.0\n")}, {"control.tar.gz", archive(t, map[string]string{"./control": control})},
		{"data.tar.gz", archive(t, map[string]string{"./usr/share/carrel-hello": "hello from apt\n"})}} {
		_, _ = fmt.Fprintf(&deb, "%-16s%-12d%-6d%-6d%-8s%-10d`\n", m.name, 0, 0, 0, "100644", len(m.body))
		deb.Write(m.body)
		if len(m.body)%2 == 1 {
			deb.WriteByte('\n')
		}
	}
	list := fmt.Sprintf("%sFilename: pool/carrel-hello_1.0_all.deb\nSize: %d\nSHA256: %x\n\n", control, deb.Len(), sha256.Sum256(deb.Bytes()))
	release := fmt.Sprintf("Origin: test\nSuite: stable\nCodename: stable\nComponents: main\nArchitectures: amd64 arm64 all\nDate: %s\nSHA256:\n %x %d main/binary-all/Packages\n %x %d main/binary-amd64/Packages\n",
		time.Now().UTC().Format(time.RFC1123), sha256.Sum256([]byte(list)), len(list), sha256.Sum256([]byte(list)), len(list))
	files := map[string]string{"/dists/stable/Release": release, "/dists/stable/main/binary-amd64/Packages": list, "/dists/stable/main/binary-all/Packages": list,
		"/pool/carrel-hello_1.0_all.deb": deb.String()}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, ok := files[r.URL.Path]
		if !ok {
			http.NotFound(w, r)
			return
		}
		_, _ = io.WriteString(w, text)
	})
}

// archive makes a compressed tarball.
func archive(t *testing.T, files map[string]string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	for name, text := range files {
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(text)), ModTime: time.Unix(1e9, 0)}); err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(w, text)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}
