package bundle_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"io/fs"
	"slices"
	"strings"
	"testing"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/bundle"
	"github.com/carrel-dev/carrel/internal/image"
)

// tree is a filesystem by name: "/" at the end is a directory, "-> x" in the content a link.
type tree map[string]string

// Lstat implements bundle.Tree.
func (t tree) Lstat(name string) (image.File, error) {
	if _, dir := t[name+"/"]; dir || name == "." {
		return image.File{Mode: fs.ModeDir | 0o755}, nil
	}
	text, ok := t[name]
	if to, link := strings.CutPrefix(text, "-> "); link {
		return image.File{Mode: fs.ModeSymlink | 0o777, Target: to}, nil
	}
	if !ok {
		return image.File{}, fs.ErrNotExist
	}
	return image.File{Mode: 0o644, Size: int64(len(text))}, nil
}

// List implements bundle.Tree.
func (t tree) List(dir string) (out []string, err error) {
	for name := range t {
		name = strings.TrimSuffix(name, "/")
		if dir != "." {
			rest, ok := strings.CutPrefix(name, dir+"/")
			if !ok {
				continue
			}
			name = rest
		}
		if name != "" && !strings.Contains(name, "/") {
			out = append(out, name)
		}
	}
	return out, nil
}

// Open implements bundle.Tree.
func (t tree) Open(name string) (io.ReadCloser, error) {
	return io.NopCloser(strings.NewReader(t[name])), nil
}

var files = tree{"a/": "", "a/x.txt": "x", "a/y.go": "y", "a/sub/": "", "a/sub/z.txt": "z",
	"b.txt": "b", "link": "-> a", "file-link": "-> b.txt",
	"out": "-> /../../b.txt", "loop": "-> loop", "with\nnewline": "n"}

// TestPack selects files and compares the names in the stream.
func TestPack(t *testing.T) {
	for _, c := range []struct {
		name   string
		sel    bundle.Selection
		want   string
		single bool
	}{
		{"a file", bundle.Selection{Paths: []string{"b.txt"}}, "b.txt", true},
		{"the content of a directory", bundle.Selection{Paths: []string{"a"}},
			"sub/ sub/z.txt x.txt y.go", false},
		{"a wildcard", bundle.Selection{Paths: []string{"a/*.txt"}}, "x.txt", true},
		{"a wildcard in a directory's name", bundle.Selection{Paths: []string{"a/s*"}}, "z.txt", false},
		{"an exclusion", bundle.Selection{Paths: []string{"a"}, Exclude: []string{"**/*.txt"}},
			"sub/ y.go", false},
		{"parents", bundle.Selection{Paths: []string{"a/sub/z.txt"}, Parents: true}, "a/sub/z.txt", true},
		{"whole", bundle.Selection{Paths: []string{"a/sub"}, Whole: true}, "a/sub/ a/sub/z.txt", false},
		{"a link, kept", bundle.Selection{Paths: []string{"file-link"}}, "file-link", true},
		{"a link on the way", bundle.Selection{Paths: []string{"link/x.txt"}}, "x.txt", true},
		{"a link, followed", bundle.Selection{Paths: []string{"link"}, Follow: true},
			"sub/ sub/z.txt x.txt y.go", false},
		{"a link above the root stays inside", bundle.Selection{Paths: []string{"out"}, Follow: true},
			"out", true},
		{"dots above the root stay inside", bundle.Selection{Paths: []string{"../../b.txt"}}, "b.txt",
			true},
		{"several", bundle.Selection{Paths: []string{"b.txt", "a/x.txt"}}, "b.txt x.txt", false},
		{"a newline", bundle.Selection{Paths: []string{"with*"}}, "with\nnewline", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			var out bytes.Buffer
			p, err := bundle.Pack(t.Context(), &out, files, c.sel)
			if err != nil {
				t.Fatal(err)
			}
			var names []string
			tr := tar.NewReader(&out)
			for {
				h, err := tr.Next()
				if err == io.EOF {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
				names = append(names, h.Name)
			}
			if got := strings.Join(names, " "); got != c.want || p.Single != c.single ||
				p.Entries != len(names) {
				t.Errorf("the stream has %q, %+v; want %q, single %v", got, p, c.want, c.single)
			}
			again, err := bundle.Pack(t.Context(), nil, files, c.sel)
			if err != nil || again != p {
				t.Errorf("without a stream: %+v, %v", again, err)
			}
		})
	}
}

// TestPackMissing checks what is no such file, and what is a loop.
func TestPackMissing(t *testing.T) {
	for _, path := range []string{"nothing", "a/*.rs", "b.txt/x"} {
		if _, err := bundle.Pack(t.Context(), nil, files,
			bundle.Selection{Paths: []string{path}}); !errors.Is(err, carrel.NotFound) {
			t.Errorf("%s: %v", path, err)
		}
	}
	if _, err := bundle.Pack(t.Context(), nil, files,
		bundle.Selection{Paths: []string{"loop"}, Follow: true}); !errors.Is(err, carrel.Invalid) {
		t.Errorf("a loop: %v", err)
	}
}

// TestSumDependsOnContent checks that other content, names and modes give another sum.
func TestSumDependsOnContent(t *testing.T) {
	var sums []string
	for _, tr := range []tree{{"f": "1"}, {"f": "2"}, {"f": "-> 1"}, {"f/": ""},
		{"f/": "", "f/1": ""}} {
		p, err := bundle.Pack(t.Context(), nil, tr, bundle.Selection{Paths: []string{"f"}, Whole: true})
		if err != nil {
			t.Fatal(err)
		}
		if slices.Contains(sums, p.Sum) {
			t.Errorf("%v has the sum of another one", tr)
		}
		sums = append(sums, p.Sum)
	}
}

// TestMode reads modes in both forms.
func TestMode(t *testing.T) {
	for _, c := range []struct {
		text string
		old  uint32
		dir  bool
		want uint32
	}{
		{"", 0o640, false, 0o640}, {"755", 0, false, 0o755}, {"04755", 0, false, 0o4755},
		{"u+x", 0o644, false, 0o744},
		{"go-rwx", 0o777, false, 0o700}, {"a=r", 0o777, false, 0o444},
		{"u=rwX,go=rX", 0o600, true, 0o755}, {"+x", 0o600, false, 0o711},
	} {
		if got, err := bundle.NewMode(c.text, c.old, c.dir); err != nil || got != c.want {
			t.Errorf("%q on %o is %o, %v; want %o", c.text, c.old, got, err, c.want)
		}
	}
	for _, bad := range []string{"999", "rwx", "u+q", "z+r", "77777"} {
		if _, err := bundle.NewMode(bad, 0o644, false); !errors.Is(err, carrel.Invalid) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// TestUnpack writes a stream into a directory, in each way of naming the target.
func TestUnpack(t *testing.T) {
	stream := func(paths ...string) (bundle.Packed, *bytes.Buffer) {
		var out bytes.Buffer
		p, err := bundle.Pack(t.Context(), &out, files, bundle.Selection{Paths: paths})
		if err != nil {
			t.Fatal(err)
		}
		return p, &out
	}
	has := func(name, want string) {
		t.Helper()
		f, err := bundle.OS{}.Open(strings.TrimPrefix(name, "/"))
		if err != nil {
			t.Error(err)
			return
		}
		defer f.Close()
		if got, _ := io.ReadAll(f); string(got) != want {
			t.Errorf("%s has %q, not %q", name, got, want)
		}
	}
	dir := t.TempDir()
	for _, c := range []struct{ paths, target, file, want string }{
		{"b.txt", "/one", "/one", "b"}, {"b.txt", "/into/", "/into/b.txt", "b"},
		{"a", "/all", "/all/sub/z.txt", "z"},
		{"a/x.txt b.txt", "/two", "/two/x.txt", "x"}, {"b.txt", "/all", "/all/b.txt", "b"},
		{"a/x.txt", "/one", "/one", "x"},
	} {
		p, s := stream(strings.Fields(c.paths)...)
		if err := bundle.Unpack(s, bundle.Placement{Target: dir + c.target,
			Single: p.Single}); err != nil {
			t.Errorf("%s to %s: %v", c.paths, c.target, err)
			continue
		}
		has(dir+c.file, c.want)
	}
}
