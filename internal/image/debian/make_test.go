package debian_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	goerofs "github.com/erofs/go-erofs"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/image"
	"github.com/carrel-dev/carrel/internal/image/debian"
)

// machine is the inside of a sandbox that runs no program: its packages have no scripts. It gives
// back the tree of the first image, with everything that a real making leaves behind.
type machine struct {
	first  string
	making int // how often one was made before
	exit   int // of the script
}

func (m *machine) Run(_ context.Context, cmd carrel.Command) (*carrel.Result, error) {
	if cmd.User != "root" || cmd.Stdout == nil {
		return nil, fmt.Errorf("run %+v", cmd)
	}
	if cmd.Args[0] == "/bin/sh" {
		if m.exit != 0 {
			fmt.Fprintln(cmd.Stderr, "dpkg: error processing package broken")
		}
		return &carrel.Result{ExitCode: m.exit, Status: fmt.Sprintf("exit status %d", m.exit)}, nil
	}
	tw := tar.NewWriter(cmd.Stdout)
	if err := m.tree(tw); err != nil {
		return nil, err
	}
	now := time.Now().Add(time.Duration(m.making) * time.Hour)
	for _, f := range []file{
		{name: "./var/log/dpkg.log", text: now.String()}, {name: "./etc/machine-id", text: now.String()},
		{name: "./etc/hostname", text: now.String()},
		{name: "./var/cache/ldconfig/aux-cache", text: now.String()},
		{name: "./etc/passwd-", text: now.String()}, {name: "./tmp/x", text: now.String()},
		{name: "./var/lib/dpkg/status-old", text: now.String()},
		{name: "./root/.cache/pip/x", text: now.String()}, {name: "./.carrel/guest", text: now.String()},
		{name: "./proc/1", text: now.String()}, {name: "./etc/made-by-script", text: "same"},
	} {
		if err := tw.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: f.name, Mode: 0o644,
			Size: int64(len(f.text)), ModTime: now, AccessTime: now}); err != nil {
			return nil, err
		}
		if _, err := io.WriteString(tw, f.text); err != nil {
			return nil, err
		}
	}
	return &carrel.Result{Status: "exit status 0"}, tw.Close()
}

// tree writes the regular files of the first image.
func (m *machine) tree(tw *tar.Writer) error {
	f, err := os.Open(m.first)
	if err != nil {
		return err
	}
	defer f.Close()
	img, err := goerofs.Open(f)
	if err != nil {
		return err
	}
	return fs.WalkDir(img, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		raw, err := fs.ReadFile(img, name)
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		h := &tar.Header{Typeflag: tar.TypeReg, Name: "./" + name, Mode: int64(info.Mode().Perm()),
			Size: int64(len(raw)), ModTime: info.ModTime()}
		if err := tw.WriteHeader(h); err != nil {
			return err
		}
		_, err = tw.Write(raw)
		return err
	})
}

// maker returns the template "small" of a mirror's packages.
func maker(t testing.TB, f *debian.Fetcher, sandbox debian.Sandbox, all ...packed) image.BuiltIn {
	t.Helper()
	set := &debian.Set{Suite: "trixie", Version: "13.0", Arch: "amd64", Epoch: epoch.Unix(),
		Pins: pinsOf(all...)}
	c := debian.Contents{Name: "small"}
	for _, d := range all {
		c.Packages = append(c.Packages, d.pin.Name)
	}
	set.Templates = []debian.Contents{c}
	return debian.NewMaker(debian.Options{Set: set, Fetcher: f, Sandbox: sandbox}).BuiltIns()[0]
}

// TestMakeTwice makes a template on two machines, at different times. The images are equal.
func TestMakeTwice(t *testing.T) {
	a, b := deb(t, "a", "xz", "", nil, file{name: "./usr/share/a", text: "A"}), big(t)
	var digests []string
	for i := range 2 {
		m := newMirror(t, a, b)
		var stages []string
		made := maker(t, m.fetcher(t), func(_ context.Context, first image.Image,
			use func(debian.Inside, ...string) error) error {
			return use(&machine{first: first.Path, making: i}, ".carrel")
		}, a, b)
		dir := t.TempDir()
		f, tmpl, err := made.Make(t.Context(), dir,
			image.NewMeter(func(p carrel.Progress) { stages = append(stages, p.Stage) }))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		digests = append(digests, tmpl.Digest)
		if tmpl.ID != "carrelsmall000000000" || tmpl.User != "user" || !tmpl.BuiltIn {
			t.Errorf("%+v", tmpl)
		}
		img, err := goerofs.Open(f)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"var/log/dpkg.log", "etc/passwd-", "tmp/x", "root/.cache",
			".carrel/guest", "proc/1", "var/cache/ldconfig/aux-cache", "var/lib/dpkg/status-old"} {
			if _, err := fs.Stat(img, name); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s is in the template: %v", name, err)
			}
		}
		for name, want := range map[string]string{"etc/machine-id": "", "etc/hostname": "carrel\n",
			"usr/share/a": "A", "etc/made-by-script": "same"} {
			raw, err := fs.ReadFile(img, name)
			if err != nil || string(raw) != want {
				t.Errorf("%s: %q %v", name, raw, err)
			}
		}
		err = fs.WalkDir(img, ".", func(name string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			if info, err := d.Info(); err != nil || info.ModTime().After(epoch) {
				t.Errorf("%s: %v %v", name, info.ModTime(), err)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
		if !slices.Contains(stages, debian.StageFetch) ||
			!slices.Contains(stages, debian.StageConfigure) {
			t.Errorf("stages %v", stages)
		}
		if left := names(t, dir); len(left) != 1 { // the image
			t.Errorf("left in the directory: %v", left)
		}
	}
	if digests[0] != digests[1] || !strings.HasPrefix(digests[0], "sha256:") {
		t.Errorf("digests %v", digests)
	}
}

// TestMakeFails makes a template of which something fails, and checks that no file is left.
func TestMakeFails(t *testing.T) {
	a := deb(t, "a", "xz", "", nil, file{name: "./usr/share/a", text: "A"})
	evil := deb(t, "evil", "xz", "", nil, file{name: "./../x", text: "A"})
	inside := func(exit int) debian.Sandbox {
		return func(_ context.Context, first image.Image,
			use func(debian.Inside, ...string) error) error {
			return use(&machine{first: first.Path, exit: exit})
		}
	}
	for _, c := range []struct {
		name, want string
		deb        packed
		sandbox    debian.Sandbox
	}{
		{"a script", "dpkg: error processing package broken", a, inside(1)},
		{"a package", `package evil: data.tar.xz: entry "./../x": a path with ".."`, evil, inside(0)},
		{"no sandbox", "no sandbox with real processes", a, nil},
		{"its start", "no room", a, func(context.Context, image.Image,
			func(debian.Inside, ...string) error) error {
			return &carrel.Error{Kind: carrel.Exhausted, Err: errors.New("no room")}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			f, _, err := maker(t, newMirror(t, c.deb).fetcher(t), c.sandbox, c.deb).Make(t.Context(), dir,
				nil)
			if f != nil || err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v", err)
			}
			if left := names(t, dir); len(left) > 0 {
				t.Errorf("left in the directory: %v", left)
			}
		})
	}
}

// TestPrint changes with the packages and not otherwise.
func TestPrint(t *testing.T) {
	a, b := deb(t, "a", "xz", "", nil), deb(t, "b", "xz", "", nil)
	f := debian.NewFetcher(debian.Mirror{}, t.TempDir())
	one, same, two := maker(t, f, nil, a), maker(t, debian.NewFetcher(debian.Mirror{Main: "x"}, ""),
		nil, a), maker(t, f, nil, a, b)
	if one.Print != same.Print || one.Print == two.Print || len(one.Print) != 20 {
		t.Errorf("%s %s %s", one.Print, same.Print, two.Print)
	}
}

// TestClean copies links and refuses names that lead out.
func TestClean(t *testing.T) {
	var out bytes.Buffer
	in := tarOf(t, file{name: "./", kind: tar.TypeDir},
		file{name: "./usr/", kind: tar.TypeDir, mode: 0o2775},
		file{name: "./usr/a", text: "A", mode: 0o4755},
		file{name: "./usr/b", kind: tar.TypeLink, link: "./usr/a"},
		file{name: "./usr/c", kind: tar.TypeSymlink, link: "/usr/a"},
		file{name: "./usr/bin/ssh-agent", text: "S", mode: 0o2755},
		file{name: "./var/log/apt/", kind: tar.TypeDir}, file{name: "./var/log/apt/term.log", text: "x"})
	if err := debian.Clean(&out, bytes.NewReader(in), epoch); err != nil {
		t.Fatal(err)
	}
	got := readAll(t, &out)
	for name, mode := range map[string]int64{"usr": 0o775, "usr/a": 0o4755, "usr/bin/ssh-agent": 0o755,
		"var/log/apt": 0o755} {
		if e, ok := got[name]; !ok || e.Mode != mode {
			t.Errorf("%s: %+v", name, e.Header)
		}
	}
	if got["usr/b"].Linkname != "usr/a" || got["usr/c"].Linkname != "/usr/a" {
		t.Errorf("links to %q and %q", got["usr/b"].Linkname, got["usr/c"].Linkname)
	}
	if _, ok := got["var/log/apt/term.log"]; ok {
		t.Error("a log stayed")
	}
	for _, bad := range []file{{name: "./../x", text: "x"},
		{name: "./x", kind: tar.TypeLink, link: "../y"}} {
		if err := debian.Clean(io.Discard, bytes.NewReader(tarOf(t, bad)), epoch); err == nil {
			t.Errorf("%+v was taken", bad)
		}
	}
	if err := debian.Clean(io.Discard, bytes.NewReader(in[:700]), epoch); err == nil {
		t.Error("half a stream was taken")
	}
}
