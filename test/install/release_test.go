// Package install tests releases: it installs, runs, upgrades and removes the files of "make dist",
// in minimal roots and on a machine that systemd boots.
//
// There are two releases: bin/dist, and bin/dist-before, from which an upgrade begins. "make
// packages" makes both and runs the tests.
package install

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/carrel-dev/carrel/internal/testenv"
)

// release is the result of one "make dist".
type release struct {
	dir, version string
}

// theRelease returns the release in bin/NAME.
func theRelease(t *testing.T, name string) release {
	t.Helper()
	dir, err := filepath.Abs("../../bin/" + name)
	if err != nil {
		t.Fatal(err)
	}
	found, _ := filepath.Glob(filepath.Join(dir, "carrel_*_linux_"+runtime.GOARCH+".tar.gz"))
	if len(found) != 1 {
		testenv.Need(t, "dist", fmt.Errorf("there is no release in bin/%s: make packages", name))
		t.FailNow()
	}
	version := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(found[0]), "carrel_"), "_linux_"+runtime.GOARCH+".tar.gz")
	return release{dir, version}
}

// file returns one of the release's files, by the part of its name after the version.
func (r release) file(end string) string {
	return filepath.Join(r.dir, "carrel_"+r.version+"_"+end)
}

// archive returns the tarball for this machine.
func (r release) archive() string { return r.file("linux_" + runtime.GOARCH + ".tar.gz") }

// TestChecksums shows that SHA256SUMS lists every file of a release with the right checksum.
func TestChecksums(t *testing.T) {
	r := theRelease(t, "dist")
	named := map[string]string{}
	for line := range strings.Lines(readFile(t, filepath.Join(r.dir, "SHA256SUMS"))) {
		sum, name, ok := strings.Cut(strings.TrimSpace(line), "  ")
		if !ok {
			t.Fatalf("a line of it: %q", line)
		}
		named[name] = sum
	}
	entries, err := os.ReadDir(r.dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Name() == "SHA256SUMS" {
			continue
		}
		sum := sha256.Sum256([]byte(readFile(t, filepath.Join(r.dir, e.Name()))))
		if got := hex.EncodeToString(sum[:]); named[e.Name()] != got {
			t.Errorf("%s: it has %s, SHA256SUMS says %q", e.Name(), got, named[e.Name()])
		}
		delete(named, e.Name())
	}
	if len(named) > 0 {
		t.Errorf("named, but not there: %v", named)
	}
}

// TestArchive shows that the tarball has all files of an installation, below one directory, without
// owners from the builder's machine.
func TestArchive(t *testing.T) {
	r := theRelease(t, "dist")
	dir := t.TempDir()
	command(t, "tar", "-xzf", r.archive(), "-C", dir)
	top := filepath.Join(dir, "carrel_"+r.version+"_linux_"+runtime.GOARCH)
	for _, name := range []string{
		"LICENSE", "README.md", "CHANGELOG.md", "completion/carrel.bash", "completion/carrel.zsh", "completion/carrel.fish",
		"man/carrel.1", "man/carrel-run.1", "man/carrel-serve.1", "systemd/carrel.service", "systemd/carrel.socket", "systemd/carrel-drain.service",
	} {
		if len(readFile(t, filepath.Join(top, name))) < 50 {
			t.Errorf("%s is next to empty", name)
		}
	}
	if got := command(t, filepath.Join(top, "carrel"), "version"); !strings.Contains(got, "carrel "+r.version+" ") {
		t.Errorf("the program calls itself %q", got)
	}
	root, _ := filepath.Abs("../..")
	for _, page := range []string{"man/carrel-serve.1", "man/carrel-run.1"} {
		text := readFile(t, filepath.Join(top, page))
		if strings.Contains(text, root) || strings.Contains(text, "/root/") {
			t.Errorf("%s tells paths of the machine that it was made on", page)
		}
	}
}

// bill is the part of a bill of materials that the tests read.
type bill struct {
	BOMFormat  string `json:"bomFormat"`
	Components []struct {
		Name, Version, PURL string
	} `json:"components"`
}

// TestBillOfMaterials shows that the bill names every module that the linker noted in the program
// and in the programs inside it, and the interpreters.
func TestBillOfMaterials(t *testing.T) {
	r := theRelease(t, "dist")
	var b bill
	if err := json.Unmarshal([]byte(readFile(t, r.file("linux_"+runtime.GOARCH+".cdx.json"))), &b); err != nil {
		t.Fatal(err)
	}
	if b.BOMFormat != "CycloneDX" {
		t.Errorf("its format is %q", b.BOMFormat)
	}
	has := map[string]bool{}
	for _, c := range b.Components {
		has[c.Name+"@"+c.Version] = true
	}
	dir := t.TempDir()
	command(t, "tar", "-xzf", r.archive(), "-C", dir, "--strip-components=1")
	for _, program := range []string{filepath.Join(dir, "carrel"), "../../bin/carrel-guest", "../../bin/carrel-box", "../../bin/carrel-sentry", "../../bin/carrel-sudo"} {
		info, err := buildinfo.ReadFile(program)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range info.Deps {
			if m.Replace != nil {
				m = m.Replace
			}
			if !has[m.Path+"@"+m.Version] {
				t.Errorf("%s links %s %s, which the bill does not name", filepath.Base(program), m.Path, m.Version)
			}
		}
	}
	for _, name := range []string{"CPython", "QuickJS-ng", "std"} {
		if !strings.Contains(fmt.Sprint(has), name+"@") {
			t.Errorf("the bill does not name %s", name)
		}
	}
}

// TestImage runs the image in a root that contains nothing else.
func TestImage(t *testing.T) {
	needRoot(t)
	r := theRelease(t, "dist")
	dir, root := t.TempDir(), t.TempDir()
	command(t, "tar", "-xf", r.file("image_"+runtime.GOARCH+".tar"), "-C", dir)
	var manifest []struct{ Layers, RepoTags []string }
	if err := json.Unmarshal([]byte(readFile(t, filepath.Join(dir, "manifest.json"))), &manifest); err != nil || len(manifest) != 1 {
		t.Fatal(manifest, err)
	}
	for _, layer := range manifest[0].Layers {
		command(t, "tar", "-xzf", filepath.Join(dir, layer), "-C", root)
	}
	if n := strings.Count(readFile(t, filepath.Join(root, "etc/ssl/certs/ca-certificates.crt")), "BEGIN CERTIFICATE"); n < 50 {
		t.Errorf("it trusts %d authorities", n)
	}
	if err := os.MkdirAll(filepath.Join(root, "proc"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(root, "tmp"), 0o755); err != nil {
		t.Fatal(err)
	}
	out := command(t, "unshare", "--mount", "--pid", "--fork", "--kill-child", "--propagation", "private", "sh", "-c",
		`mount -t proc proc "$1/proc" && exec env -i HOME=/ "$(command -v chroot)" "$1" /usr/bin/carrel sim -c 'echo "$((6*7)) of $(uname -s)"'`, "sh", root)
	if strings.TrimSpace(out) != "42 of Linux" {
		t.Errorf("a simulated machine in it says %q", out)
	}
}

// TestInstallScript installs from a directory and over HTTP. It must install nothing if a byte is
// wrong.
func TestInstallScript(t *testing.T) {
	r := theRelease(t, "dist")
	script := filepath.Join(r.dir, "install.sh")
	server := httptest.NewServer(http.FileServer(http.Dir(r.dir)))
	defer server.Close()
	pin := sha256.Sum256([]byte(readFile(t, filepath.Join(r.dir, "SHA256SUMS"))))
	for name, from := range map[string]string{"directory": r.dir, "http": server.URL} {
		t.Run(name, func(t *testing.T) {
			to := filepath.Join(t.TempDir(), "bin")
			out := command(t, "sh", script, "--from", from, "--to", to, "--sha256", hex.EncodeToString(pin[:]))
			if !strings.Contains(out, "carrel "+r.version) {
				t.Errorf("it says %q", out)
			}
			if got := command(t, filepath.Join(to, "carrel"), "version"); !strings.Contains(got, r.version) {
				t.Errorf("what it installed is %q", got)
			}
			// Again, over the existing installation.
			command(t, "sh", script, "--from", from, "--to", to)
		})
	}
	t.Run("damaged", func(t *testing.T) { refuses(t, r, "is damaged or was changed", damagedArchive) })
	t.Run("other sums", func(t *testing.T) {
		refuses(t, r, "not the one that was asked for", nil, "--sha256", strings.Repeat("0", 64))
	})
	t.Run("another processor", func(t *testing.T) {
		refuses(t, r, "the release has nothing for", func(t *testing.T, dir string) {
			write(t, filepath.Join(dir, "SHA256SUMS"), strings.Repeat("0", 64)+"  carrel_1.0.0_plan9_mips.tar.gz\n")
		})
	})
	t.Run("no release", func(t *testing.T) {
		refuses(t, r, "SHA256SUMS", func(t *testing.T, dir string) {
			if err := os.Remove(filepath.Join(dir, "SHA256SUMS")); err != nil {
				t.Fatal(err)
			}
		})
	})
}

// damagedArchive puts a foreign program into the archive, and leaves the checksums as they are.
func damagedArchive(t *testing.T, dir string) {
	t.Helper()
	found, _ := filepath.Glob(filepath.Join(dir, "carrel_*_linux_"+runtime.GOARCH+".tar.gz"))
	var buf bytes.Buffer
	zw := gzip.NewWriter(&buf)
	tw := tar.NewWriter(zw)
	body := "#!/bin/sh\necho you are had\n"
	top := strings.TrimSuffix(filepath.Base(found[0]), ".tar.gz")
	if err := errors.Join(tw.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: top + "/carrel", Mode: 0o755, Size: int64(len(body))})); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(tw, body); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(tw.Close(), zw.Close(), os.Remove(found[0])); err != nil {
		t.Fatal(err)
	}
	write(t, found[0], buf.String())
}

// refuses runs the script on a changed release. The script must fail with a reason, and keep the
// earlier installation.
func refuses(t *testing.T, r release, reason string, change func(*testing.T, string), args ...string) {
	t.Helper()
	dir, to := t.TempDir(), t.TempDir()
	for _, name := range []string{r.archive(), filepath.Join(r.dir, "SHA256SUMS")} {
		if err := os.Symlink(name, filepath.Join(dir, filepath.Base(name))); err != nil {
			t.Fatal(err)
		}
	}
	if change != nil {
		change(t, dir)
	}
	write(t, filepath.Join(to, "carrel"), "what was here")
	out, err := exec.Command("sh", append([]string{filepath.Join(r.dir, "install.sh"), "--from", dir, "--to", to}, args...)...).CombinedOutput()
	if err == nil || !strings.Contains(string(out), reason) || strings.Contains(string(out), "had") {
		t.Errorf("%v: %s\nwant a failure that says %q", err, out, reason)
	}
	entries, _ := os.ReadDir(to)
	if got := readFile(t, filepath.Join(to, "carrel")); got != "what was here" || len(entries) != 1 {
		t.Errorf("it left %v, and carrel is %q", entries, got)
	}
}

// command runs a program and returns its output.
func command(t testing.TB, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// readFile reads a file that must exist.
func readFile(t testing.TB, name string) string {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// write replaces a file. If the name is a link, it replaces the link, not its target.
func write(t testing.TB, name, text string) {
	t.Helper()
	_ = os.Remove(name)
	if err := os.WriteFile(name, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
}

// needRoot skips a test without root: it makes roots and machines.
func needRoot(t testing.TB) {
	t.Helper()
	var err error
	if os.Getuid() != 0 {
		err = errors.New("it makes mounts, which only root may")
	}
	testenv.Need(t, "root", err)
}
