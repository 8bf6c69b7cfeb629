package agent_test

import (
	"context"
	"os"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/carrel-dev/carrel/internal/guest/filesystem"
)

func TestStatDescribesAFile(t *testing.T) {
	d := newDisk(t)
	d.put("dir/a.txt", "hello")
	if err := os.Chmod(d.path("dir/a.txt"), 0o640); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"dir/a.txt", d.path("dir/a.txt"), "~/dir/a.txt", d.path("dir/../dir//a.txt")} {
		e, err := d.stat(name)
		if err != nil {
			t.Fatal(err)
		}
		if e.Name != "a.txt" || e.Path != d.path("dir/a.txt") || e.Type != filesystem.FileType_FILE_TYPE_FILE ||
			e.Size != 5 || e.Mode != 0o640 || e.Permissions != "-rw-r-----" || e.SymlinkTarget != nil {
			t.Errorf("%s: %v", name, e)
		}
		if os.Getuid() == 0 && (e.Owner != "root" || e.Group != "root") {
			t.Errorf("%s belongs to %s:%s", name, e.Owner, e.Group)
		}
		info, err := os.Stat(d.path("dir/a.txt"))
		if err != nil {
			t.Fatal(err)
		}
		if !e.ModifiedTime.AsTime().Equal(info.ModTime()) {
			t.Errorf("modified %v, want %v", e.ModifiedTime.AsTime(), info.ModTime())
		}
	}
	e, err := d.stat("dir")
	if err != nil {
		t.Fatal(err)
	}
	if e.Type != filesystem.FileType_FILE_TYPE_DIRECTORY || e.Permissions != "drwxr-xr-x" {
		t.Errorf("dir: %v", e)
	}
}

func TestStatDescribesLinks(t *testing.T) {
	d := newDisk(t)
	d.put("real/a.txt", "hello")
	for link, target := range map[string]string{"dirlink": "real", "filelink": "real/a.txt", "nowhere": "absent", "loop": "loop"} {
		if err := os.Symlink(target, d.path(link)); err != nil {
			t.Fatal(err)
		}
	}
	tests := []struct {
		link   string
		kind   filesystem.FileType
		target string
		mode   uint32
	}{
		{"dirlink", filesystem.FileType_FILE_TYPE_DIRECTORY, "real", 0o755},
		{"filelink", filesystem.FileType_FILE_TYPE_FILE, "real/a.txt", 0o644},
		{"nowhere", filesystem.FileType_FILE_TYPE_UNSPECIFIED, "nowhere", 0},
		{"loop", filesystem.FileType_FILE_TYPE_UNSPECIFIED, "loop", 0},
	}
	for _, tt := range tests {
		e, err := d.stat(tt.link)
		if err != nil {
			t.Fatal(err)
		}
		if e.Type != tt.kind || e.GetSymlinkTarget() != d.path(tt.target) || e.Mode != tt.mode || e.Permissions != "Lrwxrwxrwx" {
			t.Errorf("%s: %v", tt.link, e)
		}
	}
}

func TestStatErrors(t *testing.T) {
	d := newDisk(t)
	d.put("file", "x")
	_, err := d.stat("absent")
	d.fails(err, connect.CodeNotFound, "file not found: lstat "+d.path("absent"))
	_, err = d.stat("file/below")
	d.fails(err, connect.CodeInvalidArgument, "not a directory")
	badPaths(t, func(name, want string) {
		_, err := d.stat(name)
		d.fails(err, connect.CodeInvalidArgument, want)
	})
}

// badPaths calls fn with invalid paths and the expected error texts.
func badPaths(t *testing.T, fn func(name, want string)) {
	t.Helper()
	fn("a\x00b", "path has a NUL byte at offset 1")
	fn("/"+strings.Repeat("d/", 2100), "path is 4201 bytes long, more than 4095")
	fn(strings.Repeat("n", 256), "path has a name of 256 bytes, more than 255")
	fn("~bob/x", "cannot expand user-specific home dir")
}

func TestUnknownUser(t *testing.T) {
	d := newDisk(t)
	req := connect.NewRequest(&filesystem.StatRequest{Path: "/"})
	req.Header().Set("Authorization", "Basic Ym9iOg==")
	_, err := d.fs.Stat(context.Background(), req)
	d.fails(err, connect.CodeUnauthenticated, "invalid username: 'bob'")
}

func TestMakeDir(t *testing.T) {
	d := newDisk(t)
	if err := d.mkdir("a/b/c"); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"a", "a/b", "a/b/c"} {
		d.owned(dir)
	}
	d.fails(d.mkdir("a/b"), connect.CodeAlreadyExists, "directory already exists: "+d.path("a/b"))
	d.put("file", "x")
	d.fails(d.mkdir("file"), connect.CodeInvalidArgument, "path already exists but it is not a directory: "+d.path("file"))
	d.fails(d.mkdir("file/x/y"), connect.CodeInvalidArgument, "path is a file: "+d.path("file"))
	badPaths(t, func(name, want string) { d.fails(d.mkdir(name), connect.CodeInvalidArgument, want) })
	if err := os.Symlink("nowhere", d.path("dangling")); err != nil {
		t.Fatal(err)
	}
	if err := d.mkdir("dangling/x"); err == nil {
		t.Error("made a directory below a link that leads nowhere")
	}
}

func TestMove(t *testing.T) {
	d := newDisk(t)
	d.put("a.txt", "hello")
	e, err := d.move("a.txt", "new/dir/b.txt")
	if err != nil {
		t.Fatal(err)
	}
	if e.Name != "b.txt" || e.Path != d.path("new/dir/b.txt") || e.Size != 5 {
		t.Errorf("moved: %v", e)
	}
	d.has("new/dir/b.txt", "hello")
	d.owned("new/dir")
	_, err = d.move("a.txt", "other/c.txt")
	d.fails(err, connect.CodeNotFound, "source file not found")
	if _, err := os.Stat(d.path("other")); err == nil {
		t.Error("a move of nothing made a directory")
	}
	d.put("over", "old")
	if _, err := d.move("new/dir/b.txt", "over"); err != nil {
		t.Fatal(err)
	}
	d.has("over", "hello")
	d.put("full/x", "x")
	_, err = d.move("new", "full")
	d.fails(err, connect.CodeAlreadyExists, "error renaming")
	_, err = d.move("new", "new/inside")
	d.fails(err, connect.CodeInvalidArgument, "error renaming")
	_, err = d.move("over", "full/x/y")
	d.fails(err, connect.CodeInvalidArgument, "path is a file: "+d.path("full/x"))
	_, err = d.move("over", "a\x00")
	d.fails(err, connect.CodeInvalidArgument, "destination has a NUL byte")
	_, err = d.move("a\x00", "over")
	d.fails(err, connect.CodeInvalidArgument, "source has a NUL byte")
}

func TestRemove(t *testing.T) {
	d := newDisk(t)
	d.put("dir/a/b", "x")
	d.put("file", "x")
	if err := os.Symlink("file", d.path("link")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"dir", "link", "absent", "file/below"} {
		if err := d.remove(name); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	d.has("file", "x")
	if _, err := os.Lstat(d.path("dir")); err == nil {
		t.Error("dir is still there")
	}
	d.fails(d.remove("/tmp/.."), connect.CodeInvalidArgument, "path is the root directory")
	badPaths(t, func(name, want string) { d.fails(d.remove(name), connect.CodeInvalidArgument, want) })
}

func TestListDir(t *testing.T) {
	d := newDisk(t)
	d.put("top/dir/sub/deep.txt", "x")
	d.put("top/file.txt", "x")
	d.put("top/odd\xffname", "x")
	for link, target := range map[string]string{"top/link": "dir", "loop": "loop", "way": "top"} {
		if err := os.Symlink(target, d.path(link)); err != nil {
			t.Fatal(err)
		}
	}
	tests := []struct {
		name  string
		depth uint32
		want  string
	}{
		{"top", 0, "top/dir top/file.txt top/link top/odd�name"},
		{"top", 1, "top/dir top/file.txt top/link top/odd�name"},
		{"top", 2, "top/dir top/dir/sub top/file.txt top/link top/odd�name"},
		{"top", 4294967295, "top/dir top/dir/sub top/dir/sub/deep.txt top/file.txt top/link top/odd�name"},
		{"way", 1, "way/dir way/file.txt way/link way/odd�name"},
		{"top/link", 1, "top/link/sub"},
	}
	for _, tt := range tests {
		got, _, err := d.list(tt.name, tt.depth)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Join(got, " ") != tt.want {
			t.Errorf("%s at depth %d: %q, want %q", tt.name, tt.depth, got, tt.want)
		}
	}
	_, entries, err := d.list("top", 1)
	if err != nil {
		t.Fatal(err)
	}
	if e := entries[2]; e.Type != filesystem.FileType_FILE_TYPE_DIRECTORY || e.GetSymlinkTarget() != d.path("top/dir") {
		t.Errorf("link: %v", e)
	}
	_, _, err = d.list("absent", 1)
	d.fails(err, connect.CodeNotFound, "path not found")
	_, _, err = d.list("top/file.txt", 1)
	d.fails(err, connect.CodeInvalidArgument, "path is not a directory: "+d.path("top/file.txt"))
	_, _, err = d.list("loop", 1)
	d.fails(err, connect.CodeFailedPrecondition, "cyclic symlink")
	badPaths(t, func(name, want string) {
		_, _, err := d.list(name, 1)
		d.fails(err, connect.CodeInvalidArgument, want)
	})
}

func TestEmptyPathIsTheWorkdir(t *testing.T) {
	d := newDisk(t)
	d.put("x", "x")
	got, _, err := d.list("", 1)
	if err != nil || len(got) != 1 || got[0] != "x" {
		t.Fatalf("home: %q, %v", got, err)
	}
}

func TestLargeRequestIsRefused(t *testing.T) {
	d := newDisk(t)
	_, err := d.stat(strings.Repeat("x", 1<<20))
	if connect.CodeOf(err) != connect.CodeResourceExhausted {
		t.Fatalf("1 MiB of path: %v", err)
	}
}
