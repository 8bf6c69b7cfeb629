package hostbase_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	goerofs "github.com/erofs/go-erofs"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/image"
	"github.com/carrel-dev/carrel/internal/image/erofs"
	"github.com/carrel-dev/carrel/internal/image/hostbase"
	"github.com/carrel-dev/carrel/internal/testenv"
)

// build makes an image of a machine in a temporary file and opens it.
func build(t testing.TB, opts hostbase.Options, meter *image.Meter) (*hostbase.Base, fs.FS) {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "image.erofs"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	w := erofs.NewWriter(f)
	base, err := hostbase.Build(context.Background(), w, opts, meter)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Finish(base.Root, time.Now()); err != nil {
		t.Fatal(err)
	}
	img, err := goerofs.Open(f)
	if err != nil {
		t.Fatal(err)
	}
	return base, img
}

// host is a machine that a base is made from, as path → contents. A path that ends in a slash is a
// directory, contents "-> x" a link, "0600 x" a file of that mode.
type host map[string]string

const elf = "\x7fELF…"

func machine(t testing.TB, extra host) string {
	t.Helper()
	root := t.TempDir()
	files := host{"usr/bin/sh": elf, "usr/bin/sudo": "4755 " + elf, "bin": "-> usr/bin", "lib": "-> usr/lib", "usr/lib/libc.so": elf,
		"etc/shadow": "root:$y$secret:1::::::\n", "etc/ssl/certs/ca.pem": "CA"}
	for k, v := range extra {
		files[k] = v
	}
	for p, content := range files {
		full := filepath.Join(root, p)
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			t.Fatal(err)
		}
		mode := fs.FileMode(0o755)
		if m, rest, ok := strings.Cut(content, " "); ok && len(m) == 4 && strings.Trim(m, "01234567") == "" {
			content, mode = rest, parseMode(m)
		}
		var err error
		switch to, link := strings.CutPrefix(content, "-> "); {
		case link:
			err = os.Symlink(to, full)
		case strings.HasSuffix(p, "/"):
			if err = os.MkdirAll(full, 0o755); err == nil {
				err = os.Chmod(full, mode)
			}
		default:
			if err = os.WriteFile(full, []byte(content), 0o644); err == nil {
				err = os.Chmod(full, mode)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func parseMode(s string) fs.FileMode {
	var m fs.FileMode
	for _, c := range s[1:] {
		m = m<<3 | fs.FileMode(c-'0')
	}
	if s[0] == '4' {
		m |= fs.ModeSetuid
	}
	return m
}

func TestWhatGetsIn(t *testing.T) {
	if os.Getuid() != 0 {
		testenv.Need(t, "root", errors.New("files owned by root can be made by root only"))
	}
	root := machine(t, host{
		"usr/bin/tool": elf, "usr/bin/root-only": "0700 key", "usr/lib/private/": "0700 ", "usr/bin/ping": "4755 " + elf,
		"usr/bin/world-writable": "0777 " + elf, "usr/bin/python3": elf,
		"usr/share/doc/tool/guide": "text", "usr/share/locale/de/x": "x", "usr/share/locale/en_US/x": "x",
		"usr/bin/homelink": "-> /home/me/tool", "usr/bin/optlink": "-> ../../opt/tool", "usr/lib/out": "-> ../../../root/.ssh",
		"usr/bin/vanished": "-> /usr/lib/llvm-14/bin/x", "usr/lib/llvm-14/bin/x": elf, "usr/bin/sh2": "-> sh",
		"usr/bin/java": "-> /etc/alternatives/java", "etc/alternatives/java": "-> /usr/lib/jvm/x/bin/java",
		"usr/bin/awk": "-> /etc/alternatives/awk", "etc/alternatives/awk": "-> /usr/bin/tool",
		"usr/local/bin/prog": elf, "usr/local/bin/backup.sh": "#!/bin/sh\nPASSWORD=x", "usr/local/bin/pip": "#!/usr/bin/python3",
		"usr/local/etc/npmrc": "token", "usr/local/src/x": "x", "usr/local/go/bin/go": elf, "usr/local/go/test/x": "x", "usr/local/lib/python3/y": "y",
		"etc/passwd": "me:x:1001:", "etc/hosts": "10.0.0.9 intranet", "etc/apt/auth.conf": "password", "etc/gitconfig": "token",
		"etc/ssl/private/key.pem": "key", "etc/python3/conf": "c", "etc/security/opasswd": "old", "etc/security/limits.conf": "l",
		"home/me/x": "x", "root/x": "x", "var/lib/x": "x", "opt/tool": elf, "tmp/x": "x", "run/x": "x", "srv/x": "x", "secret": "x",
	})
	if err := os.Lchown(filepath.Join(root, "usr/local/lib/python3/y"), 1234, 1234); err != nil {
		t.Fatal(err)
	}
	var reports []carrel.Progress
	meter := image.NewMeter(func(p carrel.Progress) { reports = append(reports, p) })
	base, img := build(t, hostbase.Options{Root: root}, meter)
	for _, p := range []string{"usr/bin/sh", "usr/bin/tool", "usr/bin/sh2", "usr/bin/awk", "bin/sh", "usr/lib/libc.so", "usr/share/locale/en_US/x",
		"usr/local/bin/prog", "usr/local/bin/pip", "usr/local/go/bin/go", "etc/ssl/certs/ca.pem", "etc/python3/conf", "etc/security/limits.conf",
		"etc/passwd", "usr/bin/python", "etc/sudoers", "home/user/.bashrc", "root/.bashrc", "root", "tmp", ".carrel", "var/tmp"} {
		if _, err := fs.Stat(img, p); err != nil {
			t.Errorf("%s is not in the image: %v", p, err)
		}
	}
	for _, p := range []string{"usr/bin/root-only", "usr/lib/private", "usr/share/doc", "usr/share/locale/de", "usr/bin/homelink", "usr/bin/optlink",
		"usr/lib/out", "usr/bin/vanished", "usr/lib/llvm-14", "usr/bin/java", "etc/alternatives/java", "usr/local/bin/backup.sh", "usr/local/etc",
		"usr/local/src", "usr/local/go/test", "usr/local/lib/python3/y", "etc/apt", "etc/gitconfig", "etc/ssl/private", "etc/security/opasswd",
		"home/me", "root/x", "var/lib/x", "opt/tool", "tmp/x", "run/x", "srv/x", "secret"} {
		if _, err := fs.Stat(img, p); err == nil {
			t.Errorf("%s is in the image", p)
		}
	}
	for p, want := range map[string]fs.FileMode{"usr/bin/sudo": 0o755 | fs.ModeSetuid, "usr/bin/ping": 0o755, "usr/bin/world-writable": 0o755,
		"root": fs.ModeDir | 0o700, "tmp": fs.ModeDir | 0o777 | fs.ModeSticky, "etc/shadow": 0o640, "etc/sudoers": 0o440} {
		info, err := fs.Stat(img, p)
		if err != nil {
			t.Error(err)
		} else if got := info.Sys().(*goerofs.Stat).Mode; got != want {
			t.Errorf("%s has mode %v, want %v", p, got, want)
		}
	}
	for p, words := range map[string][2]string{"etc/passwd": {"user:x:1000:1000", "me:x"}, "etc/shadow": {"root:*:", "$"}, "etc/hosts": {"localhost", "intranet"},
		"etc/resolv.conf": {"10.73.0.1", "search"}, "etc/sudoers": {"user ALL", "Defaults !env_reset"}, "etc/profile": {"/usr/local/go/bin", "@"}} {
		b, err := fs.ReadFile(img, p)
		if err != nil || !strings.Contains(string(b), words[0]) || strings.Contains(string(b), words[1]) {
			t.Errorf("%s (%v) holds:\n%s", p, err, b)
		}
	}
	info, err := fs.Stat(img, "home/user/.bashrc")
	if err != nil || info.Sys().(*goerofs.Stat).UID != 1000 {
		t.Errorf("home: %v %v", info, err)
	}
	if !strings.HasSuffix(base.Env["PATH"], ":/usr/local/go/bin") {
		t.Errorf("PATH %q", base.Env["PATH"])
	}
	if n := len(reports); n == 0 || reports[n-1].Done != reports[n-1].Total || reports[n-1].Done != base.Bytes {
		t.Errorf("progress ends with %+v, %d bytes were copied", reports, base.Bytes)
	}
}

func TestNoToolchain(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "i"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	_, err = hostbase.Build(context.Background(), erofs.NewWriter(f), hostbase.Options{Root: t.TempDir()}, nil)
	if carrel.KindOf(err) != carrel.Unsupported || carrel.HintOf(err) == "" {
		t.Errorf("got %v", err)
	}
}

func TestFingerprint(t *testing.T) {
	root := machine(t, nil)
	print := func(opts hostbase.Options) string {
		opts.Root = root
		fp, err := hostbase.Fingerprint(opts)
		if err != nil || len(fp) != 20 {
			t.Fatalf("%q, %v", fp, err)
		}
		return fp
	}
	first := print(hostbase.Options{})
	if print(hostbase.Options{}) != first {
		t.Error("it changes by itself")
	}
	if print(hostbase.Options{Exclude: []string{"/usr/share"}}) == first {
		t.Error("another exclude list gives the same")
	}
	if err := os.WriteFile(filepath.Join(root, "usr/bin/new"), nil, 0o755); err != nil {
		t.Fatal(err)
	}
	if print(hostbase.Options{}) == first {
		t.Error("a new program gives the same")
	}
}
