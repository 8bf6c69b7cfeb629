package buildcontext_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/build/buildcontext"
)

// tree makes a directory of files. A name that ends in "/" is a directory; content "-> x" is a
// link.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		full := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			t.Fatal(err)
		}
		target, link := strings.CutPrefix(content, "-> ")
		var err error
		switch {
		case link:
			err = os.Symlink(target, full)
		case strings.HasSuffix(name, "/"):
			err = os.MkdirAll(full, 0o755)
		default:
			err = os.WriteFile(full, []byte(content), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// list writes a directory's context and returns the stream and its names.
func list(t *testing.T, dir string, o buildcontext.Options) ([]byte, []string) {
	t.Helper()
	c, err := buildcontext.Open(t.Context(), dir, o)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	var done int64
	if err := c.WriteTar(t.Context(), &b, func(n int64) { done = n }); err != nil {
		t.Fatal(err)
	}
	if done != c.Bytes() {
		t.Errorf("progress ends at %d of %d bytes", done, c.Bytes())
	}
	var names []string
	for r := tar.NewReader(bytes.NewReader(b.Bytes())); ; {
		h, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.Uid != 0 || h.Gid != 0 || h.Uname != "" || h.Gname != "" {
			t.Errorf("%s belongs to %d:%d", h.Name, h.Uid, h.Gid)
		}
		name := h.Name
		if h.Typeflag == tar.TypeSymlink {
			name += "->" + h.Linkname
		}
		names = append(names, name)
	}
	if len(names) != c.Files() {
		t.Errorf("%d files in the stream, and %d were announced", len(names), c.Files())
	}
	return b.Bytes(), names
}

// TestIgnore shows which files a .dockerignore leaves out.
func TestIgnore(t *testing.T) {
	files := map[string]string{
		"a.go": "x", "b.md": "x", "README.md": "x", "dir/b.md": "x", "dir/c": "x",
		"node_modules/p/i.js": "x", "node_modules/q": "x",
		"out/": "", "link": "-> /etc/passwd", ".git/config": "x", "deep/er/still/x.log": "x",
		"deep/er/y": "x",
	}
	for _, c := range []struct{ name, ignore, want string }{
		{"nothing", "",
			".dockerignore .git/ .git/config README.md a.go b.md deep/ deep/er/ deep/er/still/ deep/er/still/x.log deep/er/y dir/ dir/b.md dir/c link->/etc/passwd node_modules/ node_modules/p/ node_modules/p/i.js node_modules/q out/"},
		{"names and comments", "# no\nnode_modules\n/.git/\n\n.dockerignore\ndeep\n",
			"README.md a.go b.md dir/ dir/b.md dir/c link->/etc/passwd out/"},
		{"patterns", "*.md\n**/*.log\n.*\nnode_modules\n",
			"a.go deep/ deep/er/ deep/er/still/ deep/er/y dir/ dir/b.md dir/c link->/etc/passwd out/"},
		{"exceptions", "*\n!*.md\n!node_modules/p\n",
			"README.md b.md node_modules/ node_modules/p/ node_modules/p/i.js"},
		{"an exception at any depth", "*\n!**/*.log\n",
			"deep/ deep/er/ deep/er/still/ deep/er/still/x.log"},
		{"the last rule counts", "!README.md\n*\n!a.go\n", "a.go"},
	} {
		t.Run(c.name, func(t *testing.T) {
			files[".dockerignore"] = c.ignore
			if _, names := list(t, tree(t, files), buildcontext.Options{}); strings.Join(names,
				" ") != c.want {
				t.Errorf("got  %s\nwant %s", strings.Join(names, " "), c.want)
			}
		})
	}
}

// TestOwnIgnore shows that a Dockerfile's own list goes before that of the directory.
func TestOwnIgnore(t *testing.T) {
	dir := tree(t, map[string]string{"a": "x", "b": "x", ".dockerignore": "a", "ci/Dockerfile": "x",
		"ci/Dockerfile.dockerignore": "b\nci\n.*"})
	if _, names := list(t, dir, buildcontext.Options{Dockerfile: filepath.Join(dir,
		"ci/Dockerfile")}); fmt.Sprint(names) != "[a]" {
		t.Errorf("got %v", names)
	}
}

// TestSameStream shows that two copies of the same files make the same stream.
func TestSameStream(t *testing.T) {
	files := map[string]string{"b": "2", "a/x": "1", "a.b": "3", "l": "-> a", "ü": "4"}
	when := time.Unix(1_700_000_000, 5)
	var streams [2][]byte
	for i := range streams {
		dir := tree(t, files)
		for name := range files {
			if name != "l" {
				_ = os.Chtimes(filepath.Join(dir, name), when, when.Add(time.Duration(i)))
			}
		}
		_ = os.Chtimes(filepath.Join(dir, "a"), when, when)
		streams[i], _ = list(t, dir, buildcontext.Options{})
	}
	// The link's own time can't be set everywhere: it is left out of the comparison.
	if a, b := withoutTimes(t, streams[0]), withoutTimes(t, streams[1]); a != b {
		t.Errorf("the streams differ:\n%s\n%s", a, b)
	}
}

func withoutTimes(t *testing.T, stream []byte) string {
	var b strings.Builder
	for r := tar.NewReader(bytes.NewReader(stream)); ; {
		h, err := r.Next()
		if err == io.EOF {
			return b.String()
		}
		if err != nil {
			t.Fatal(err)
		}
		content, _ := io.ReadAll(r)
		when := h.ModTime.Unix()
		if h.Typeflag == tar.TypeSymlink {
			when = 0
		}
		fmt.Fprintln(&b, h.Name, h.Mode, h.Size, when, string(content))
	}
}

// TestRefused shows what no context may have.
func TestRefused(t *testing.T) {
	kind := func(dir string, o buildcontext.Options) (carrel.Kind, string) {
		_, err := buildcontext.Open(t.Context(), dir, o)
		return carrel.KindOf(err), fmt.Sprintf("%v; %s", err, carrel.HintOf(err))
	}
	dir, err := os.MkdirTemp("", "c") // a socket's name must be short
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	l, err := net.Listen("unix", filepath.Join(dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if k, text := kind(dir, buildcontext.Options{}); k != carrel.Invalid ||
		!strings.Contains(text, "s is a socket") || !strings.Contains(text, ".dockerignore") {
		t.Errorf("a socket: %s", text)
	}
	if err := os.WriteFile(filepath.Join(dir, ".dockerignore"), []byte("s"), 0o644); err != nil {
		t.Fatal(err)
	}
	if k, text := kind(dir, buildcontext.Options{}); k != "" {
		t.Errorf("a socket that is left out: %s", text)
	}
	big := tree(t, map[string]string{"small": "x", "large/a": strings.Repeat("x", 60),
		"large/b": strings.Repeat("x", 60)})
	if k, text := kind(big, buildcontext.Options{MaxBytes: 100}); k != carrel.Exhausted ||
		!strings.Contains(text, "large") {
		t.Errorf("too many bytes: %s", text)
	}
	if k, text := kind(big, buildcontext.Options{MaxFiles: 2}); k != carrel.Exhausted {
		t.Errorf("too many files: %s", text)
	}
	if k, text := kind(filepath.Join(big, "small"), buildcontext.Options{}); k != carrel.Invalid {
		t.Errorf("a file: %s", text)
	}
	if k, text := kind(tree(t, map[string]string{".dockerignore": "[a"}),
		buildcontext.Options{}); k != carrel.Invalid {
		t.Errorf("a wrong pattern: %s", text)
	}
}

// TestChanging shows that files which change while they are sent break the stream off, and that a
// link which takes a file's place is not followed.
func TestChanging(t *testing.T) {
	for name, change := range map[string]func(string) error{
		"it grew":   func(f string) error { return os.WriteFile(f, []byte("longer"), 0o644) },
		"it shrank": func(f string) error { return os.Truncate(f, 1) },
		"it went":   os.Remove,
		"a link": func(f string) error {
			return errors.Join(os.Remove(f),
				os.Symlink("/etc/passwd", f))
		},
		"a link here": func(f string) error { return errors.Join(os.Remove(f), os.Symlink("other", f)) },
	} {
		dir := tree(t, map[string]string{"f": "12345", "other": "67890"})
		c, err := buildcontext.Open(t.Context(), dir, buildcontext.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if err := change(filepath.Join(dir, "f")); err != nil {
			t.Fatal(err)
		}
		if err := c.WriteTar(t.Context(), io.Discard, nil); carrel.KindOf(err) != carrel.Conflict {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestCancelled shows that a cancelled build stops reading.
func TestCancelled(t *testing.T) {
	dir := tree(t, map[string]string{"a/b": "x"})
	c, err := buildcontext.Open(t.Context(), dir, buildcontext.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := buildcontext.Open(ctx, dir, buildcontext.Options{}); !errors.Is(err,
		context.Canceled) {
		t.Error(err)
	}
	if err := c.WriteTar(ctx, io.Discard, nil); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// FuzzIgnore matches names against any list of patterns.
func FuzzIgnore(f *testing.F) {
	f.Add("*.md\n!README.md\n**/x\n")
	f.Add("[a-\n\\\n!\n!!\n/\n")
	dir := f.TempDir()
	for _, name := range []string{"a", "b.md"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o644); err != nil {
			f.Fatal(err)
		}
	}
	f.Fuzz(func(t *testing.T, text string) {
		if _, err := buildcontext.ParseIgnore(strings.NewReader(text)); err != nil {
			return
		}
		own := filepath.Join(dir, "D")
		if err := os.WriteFile(own+".dockerignore", []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		c, err := buildcontext.Open(t.Context(), dir, buildcontext.Options{Dockerfile: own})
		if err != nil {
			t.Fatal(err)
		}
		if err := c.WriteTar(t.Context(), io.Discard, nil); err != nil {
			t.Fatal(err)
		}
	})
}
