package filediff_test

import (
	"fmt"
	"io"
	"io/fs"
	"strings"
	"testing"

	"github.com/carrel-dev/carrel/internal/image"
	"github.com/carrel-dev/carrel/internal/service/filediff"
)

// tree is an image: the files by name. A directory has no content.
type tree map[string]treeFile

type treeFile struct {
	mode    fs.FileMode
	content string // or the target of a link
	uid     uint32
}

func (t tree) Lstat(name string) (image.File, error) {
	f, ok := t[name]
	if !ok {
		return image.File{}, fs.ErrNotExist
	}
	out := image.File{Mode: f.mode, UID: f.uid}
	if f.mode&fs.ModeSymlink != 0 {
		out.Target = f.content
	} else {
		out.Size = int64(len(f.content))
	}
	return out, nil
}

func (t tree) List(name string) (names []string, err error) {
	prefix := name + "/"
	if name == "." {
		prefix = ""
	}
	for n := range t {
		if rest, ok := strings.CutPrefix(n, prefix); ok && !strings.Contains(rest, "/") {
			names = append(names, rest)
		}
	}
	return names, nil
}

func (t tree) Open(name string) (io.ReadCloser, error) {
	return io.NopCloser(strings.NewReader(t[name].content)), nil
}

func (tree) Close() error { return nil }

// TestTrees shows what counts as a difference of two images.
func TestTrees(t *testing.T) {
	long := strings.Repeat("x", 200_000)
	a := tree{
		"same": {mode: 0o644, content: "x"}, "content": {mode: 0o644, content: long + "1"},
		"size": {mode: 0o644, content: "1"}, "mode": {mode: 0o644},
		"owner": {mode: 0o644}, "link": {mode: fs.ModeSymlink, content: "a"},
		"kind": {mode: fs.ModeDir | 0o755}, "kind/below": {mode: 0o644},
		"gone": {mode: fs.ModeDir | 0o755}, "gone/a": {mode: 0o644}, "dir": {mode: fs.ModeDir | 0o755},
		"dir/x": {mode: 0o644, content: long},
	}
	b := tree{
		"same": {mode: 0o644, content: "x"}, "content": {mode: 0o644, content: long + "2"},
		"size": {mode: 0o644, content: "12"}, "mode": {mode: 0o600},
		"owner": {mode: 0o644, uid: 7}, "link": {mode: fs.ModeSymlink, content: "b"},
		"kind": {mode: 0o644},
		"new":  {mode: fs.ModeDir | 0o755}, "new/a": {mode: 0o644, content: "123"},
		"dir": {mode: fs.ModeDir | 0o755}, "dir/x": {mode: 0o644, content: long},
	}
	changes, err := filediff.Trees(t.Context(), a, b)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range changes {
		got = append(got, fmt.Sprint(c.Kind, " ", c.Path))
	}
	const want = "modified /content, removed /gone, removed /gone/a, modified /kind, removed /kind/below, modified /link, mode /mode, added /new, added /new/a, mode /owner, modified /size"
	if strings.Join(got, ", ") != want {
		t.Errorf("got  %s\nwant %s", strings.Join(got, ", "), want)
	}
	if c := changes[len(changes)-1]; c.Before.Size != 1 || c.After.Size != 2 || c.After.Owner != "0" {
		t.Errorf("%+v %+v", c.Before, c.After)
	}
}
