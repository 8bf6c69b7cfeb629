package cli

import (
	"io/fs"
	"strings"
	"testing"

	"github.com/carrel-dev/carrel"
)

// TestDiffOutput checks the output for people, with hostile names too, and its sums.
func TestDiffOutput(t *testing.T) {
	file := func(size int64) *carrel.FileInfo {
		return &carrel.FileInfo{Size: size, Mode: 0o644, Owner: "user", Group: "user"}
	}
	dir := &carrel.FileInfo{Mode: fs.ModeDir | 0o755, Size: 4096}
	link := &carrel.FileInfo{Mode: fs.ModeSymlink | 0o777, Target: "/etc/\x1b[31mpasswd", Size: 11}
	script := &carrel.FileInfo{Size: 10, Mode: 0o755, Owner: "root", Group: "ro\x1bot"}
	f := past(2)
	f.changes = []carrel.FileChange{
		{Path: "/a", Kind: carrel.ChangeAdded, After: file(2048)},
		{Path: "/b c", Kind: carrel.ChangeRemoved, Before: file(5)},
		{Path: "/d", Kind: carrel.ChangeModified, Before: file(10), After: file(1 << 20)},
		{Path: "/e", Kind: carrel.ChangeModified, Before: file(10), After: file(10)},
		{Path: "/f", Kind: carrel.ChangeMode, Before: file(10), After: script},
		{Path: "/g", Kind: carrel.ChangeAdded, After: dir},
		{Path: "/h", Kind: carrel.ChangeModified, Before: file(1), After: link},
		{Path: "/i\nD /etc/passwd  5 B", Kind: carrel.ChangeAdded, After: file(1)},
		{Path: "/j\x1b[2J\u202e", Kind: carrel.ChangeAdded, After: &carrel.FileInfo{Mode: fs.ModeNamedPipe}},
		{Path: "/k\xff", Kind: carrel.ChangeAdded, After: file(1)},
		{Path: "/l  3 B", Kind: carrel.ChangeAdded, After: file(1)},
		{Path: "/日本", Kind: "new kind"},
	}
	want := `A /a  2.0 KiB
D /b c  5 B
M /d  10 B → 1.0 MiB
M /e  10 B
m /f  -rw-r--r-- user:user → -rwxr-xr-x root:ro?ot
A /g/
M /h  1 B → link to "/etc/\x1b[31mpasswd"
A "/i\nD /etc/passwd  5 B"  1 B
A "/j\x1b[2J\u202e"  special
A "/k\xff"  1 B
A "/l  3 B"  1 B
? /日本
`
	if got := f.run(t, "diff", string(snapID(2))); got.out != want || got.code != 0 {
		t.Errorf("got\n%s\nwant\n%s", got.out, want)
	}
	got := f.run(t, "diff", "--stat", string(snapID(2)))
	if got.out != "6 added, 3 modified, 1 removed, 1 with another mode or owner; 36 B before, 1.0 MiB after\n" {
		t.Error(got.out)
	}
	got = f.run(t, "--json", "diff", "--stat", string(snapID(2)))
	if !strings.Contains(got.out, `"added":6,"modified":3,"removed":1,"mode":1,"bytesBefore":36,"bytesAfter":1050647}`) {
		t.Error(got.out)
	}
}
