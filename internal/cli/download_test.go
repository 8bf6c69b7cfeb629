package cli

import (
	"archive/tar"
	"bytes"
	"context"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/carrel-dev/carrel"
)

// hostile is a sandbox's filesystem as a hostile guest describes it.
type hostile struct {
	carrel.Files
	stat carrel.FileInfo
	dirs map[string][]carrel.FileInfo
}

func (h hostile) Stat(context.Context, string) (carrel.FileInfo, error) { return h.stat, nil }

func (h hostile) List(_ context.Context, name string, _ int) ([]carrel.FileInfo, error) {
	return h.dirs[name], nil
}

func (h hostile) Read(context.Context, string) (io.ReadCloser, error) {
	return io.NopCloser(strings.NewReader("evil")), nil
}

// bare is a sandbox without programs.
type bare struct{ carrel.Computer }

func (bare) Run(context.Context, carrel.Command) (*carrel.Result, error) {
	return &carrel.Result{ExitCode: 127}, nil
}

// lying is a sandbox whose tar writes any archive that its owner wants.
type lying struct {
	carrel.Computer
	archive []byte
}

func (l lying) Run(_ context.Context, cmd carrel.Command) (*carrel.Result, error) {
	if cmd.Stdout != nil {
		_, _ = cmd.Stdout.Write(l.archive) // the reader may have gone
	}
	return &carrel.Result{}, nil
}

func entry(name string, mode fs.FileMode, target string) carrel.FileInfo {
	return carrel.FileInfo{Name: name, Path: "/d/" + name, Mode: mode, Target: target}
}

// TestDownloadStaysInside copies directories with false listings. Nothing next to the copy may
// change, and no link in it may lead out.
func TestDownloadStaysInside(t *testing.T) {
	const file, dir, link = fs.FileMode(0o644), fs.ModeDir | 0o755, fs.ModeSymlink | 0o777
	cases := map[string]map[string][]carrel.FileInfo{
		"file over a link to beside": {"/d": {entry("l", link, "../precious"), entry("l", file, "")}},
		"directory over a link":      {"/d": {entry("l", link, ".."), entry("l", dir, "")}, "/d/l": {entry("precious", file, "")}},
		"directory over a link in":   {"/d": {entry("l", link, "."), entry("l", dir, "")}, "/d/l": {entry("out", link, "..")}},
		"absolute":                   {"/d": {entry("l", link, "/etc/passwd")}},
		"two up from one down":       {"/d": {entry("a", dir, "")}, "/d/a": {entry("l", link, "../..")}},
		"through another link":       {"/d": {entry("s", dir, ""), entry("l", link, "s/up/../../precious")}, "/d/s": {entry("up", link, "..")}},
		"a path for a name":          {"/d": {entry("../precious", file, "")}},
		"the parent for a name":      {"/d": {entry("..", dir, "")}, "/d/..": {entry("precious", file, "")}},
	}
	for name, dirs := range cases {
		t.Run(name, func(t *testing.T) {
			here := beside(t)
			a := &app{out: io.Discard, err: io.Discard}
			j := &copyJob{app: a, comp: bare{}, files: hostile{stat: carrel.FileInfo{Path: "/d", Mode: dir}, dirs: dirs}, bar: newBar(io.Discard)}
			_ = j.download(t.Context(), "/d", filepath.Join(here, "copy")) // may fail, or leave out
			wantInside(t, here)
		})
	}
}

// TestDownloadLinks makes links within the copy relative.
func TestDownloadLinks(t *testing.T) {
	const dir, link = fs.ModeDir | 0o755, fs.ModeSymlink | 0o777
	dirs := map[string][]carrel.FileInfo{
		"/d":   {entry("f", 0o644, ""), entry("s", dir, ""), entry("near", link, "/d/f")},
		"/d/s": {entry("up", link, "/d/f"), entry("beside", link, "/dd/f")},
	}
	here := t.TempDir()
	var told bytes.Buffer
	j := &copyJob{app: &app{out: io.Discard, err: &told}, comp: bare{}, files: hostile{stat: carrel.FileInfo{Path: "/d", Mode: dir}, dirs: dirs}, bar: newBar(io.Discard)}
	if err := j.download(t.Context(), "/d", filepath.Join(here, "copy")); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"near": "f", "s/up": "../f"} {
		if got, err := os.Readlink(filepath.Join(here, "copy", name)); got != want {
			t.Errorf("%s -> %q, %v; want %q", name, got, err, want)
		}
	}
	if !strings.Contains(told.String(), "s/beside") {
		t.Errorf("told %q", told.String())
	}
}

// TestDownloadName copies a file for which the sandbox reports another name.
func TestDownloadName(t *testing.T) {
	here := t.TempDir()
	a := &app{out: io.Discard, err: io.Discard}
	j := &copyJob{app: a, comp: bare{}, files: hostile{stat: carrel.FileInfo{Path: "/x/.bashrc", Mode: 0o644}}, bar: newBar(io.Discard)}
	if err := j.download(t.Context(), "report.csv", here); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(here, ".bashrc")); err == nil {
		t.Error("the sandbox chose the name")
	}
	if got, err := os.ReadFile(filepath.Join(here, "report.csv")); err != nil || !bytes.Equal(got, []byte("evil")) {
		t.Errorf("report.csv: %q, %v", got, err)
	}
}

// TestStaysInside shows that harmless links are kept.
func TestStaysInside(t *testing.T) {
	for _, c := range []struct {
		target, link string
		want         bool
	}{
		{"l", "a/b", true}, {"l", "./a", true}, {"a/l", "../b", true}, {"a/b/l", "../../c/d", true}, {"l", "..a", true},
		{"l", "..", false}, {"l", "../a", false}, {"a/l", "../..", false}, {"a/l", "../../b", false}, {"l", "a/..", false}, {"l", "", false}, {"l", "/", false},
	} {
		if got := staysInside(c.target, c.link); got != c.want {
			t.Errorf("%s -> %s: %v", c.target, c.link, got)
		}
	}
}

// TestUnpackStaysInside copies directories with false archives. Nothing next to the copy may
// change, no link in it may lead out, and no half file may stay.
func TestUnpackStaysInside(t *testing.T) {
	file := func(name string) tar.Header { return tar.Header{Name: name, Typeflag: tar.TypeReg, Size: 4} }
	link := func(name, to string) tar.Header {
		return tar.Header{Name: name, Typeflag: tar.TypeSymlink, Linkname: to}
	}
	hard := func(name, to string) tar.Header { return tar.Header{Name: name, Typeflag: tar.TypeLink, Linkname: to} }
	dir := func(name string) tar.Header { return tar.Header{Name: name, Typeflag: tar.TypeDir, Mode: 0o755} }
	cases := map[string][]tar.Header{
		"the parent in a name":        {file("../precious")},
		"the parent after a name":     {dir("a"), file("a/../../precious")},
		"absolute":                    {file("/precious")},
		"file over a link to beside":  {link("l", "../precious"), file("l")},
		"file through a link":         {link("l", ".."), file("l/precious")},
		"directory over a link":       {link("l", ".."), dir("l"), file("l/precious")},
		"link in a link":              {link("l", "."), link("l/out", "..")},
		"through another link":        {dir("s"), link("s/up", ".."), link("l", "s/up/../../precious")},
		"hard link to beside":         {hard("l", "../precious"), file("l")},
		"hard link to an absolute":    {hard("l", "/etc/passwd")},
		"hard link to a link":         {link("l", "../precious"), hard("h", "l"), file("h")},
		"a directory for a part":      {dir("f" + partSuffix), file("f")},
		"a link for a part":           {link("f"+partSuffix, "../precious"), file("f")},
		"a file, and below it a file": {file("f"), file("f/precious")},
		"an archive that breaks off":  {file("whole"), {Name: "half", Typeflag: tar.TypeReg, Size: 1 << 20}},
	}
	for name, headers := range cases {
		t.Run(name, func(t *testing.T) {
			here := beside(t)
			a := &app{out: io.Discard, err: io.Discard}
			files := hostile{stat: carrel.FileInfo{Path: "/d", Mode: fs.ModeDir | 0o755}}
			j := &copyJob{app: a, comp: lying{archive: archiveOf(t, headers)}, files: files, bar: newBar(io.Discard)}
			err := j.download(t.Context(), "/d", filepath.Join(here, "copy")) // may fail, or leave out
			wantInside(t, here)
			if _, statErr := os.Lstat(filepath.Join(here, "copy", "half")); statErr == nil || name == "an archive that breaks off" && err == nil {
				t.Errorf("half a file is there (%v), or the copy of half an archive succeeded: %v", statErr == nil, err)
			}
		})
	}
}

// archiveOf writes headers, each file with the content "evil". A file with a larger size breaks
// off.
func archiveOf(t *testing.T, headers []tar.Header) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range headers {
		h.Mode |= 0o644
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if h.Typeflag == tar.TypeReg {
			if _, err := w.Write([]byte("evil")); err != nil {
				t.Fatal(err)
			}
		}
	}
	_ = w.Close() // fails on purpose if the last file is incomplete
	return b.Bytes()
}

// beside makes a directory with a file that no copy may touch.
func beside(t *testing.T) string {
	t.Helper()
	here := t.TempDir()
	if err := os.WriteFile(filepath.Join(here, "precious"), []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	return here
}

// wantInside fails if the file next to the copy has changed, or a link in the copy leads out.
func wantInside(t *testing.T, here string) {
	t.Helper()
	if got, err := os.ReadFile(filepath.Join(here, "precious")); err != nil || string(got) != "mine" {
		t.Errorf("the file beside the copy is now %q, %v", got, err)
	}
	copied := filepath.Join(here, "copy")
	err := filepath.WalkDir(copied, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.Type()&fs.ModeSymlink == 0 {
			return err
		}
		real, err := filepath.EvalSymlinks(p)
		if err == nil && real != copied && !strings.HasPrefix(real, copied+"/") {
			t.Errorf("%s leads to %s", p, real)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
