package cli

import (
	"fmt"
	"strings"
	"testing"

	"github.com/carrel-dev/carrel"
)

// TestDiffFile compares the text of a file. What the file holds can't steer the terminal.
func TestDiffFile(t *testing.T) {
	long := ""
	for i := range 40 {
		long += fmt.Sprintf("line %d\n", i)
	}
	text := func(s string) carrel.SnapshotFile {
		return carrel.SnapshotFile{Content: []byte(s), Whole: true}
	}
	f := past(2)
	from, to := f.snaps[0].ID, f.snaps[1].ID
	run := func(before, after *carrel.SnapshotFile) outcome {
		f.files = map[carrel.SnapshotID]carrel.SnapshotFile{}
		if before != nil {
			f.files[from] = *before
		}
		if after != nil {
			f.files[to] = *after
		}
		return f.run(t, "diff", string(from), string(to), "--file", "/notes.md")
	}
	for _, c := range []struct {
		name          string
		before, after string
		want          string
	}{
		{"two places", long, strings.NewReplacer("line 5\n", "", "line 30\n", "line thirty\n").Replace(long),
			"@@ -3,7 +3,6 @@\n line 2\n line 3\n line 4\n-line 5\n line 6\n line 7\n line 8\n" +
				"@@ -28,7 +27,7 @@\n line 27\n line 28\n line 29\n-line 30\n+line thirty\n line 31\n line 32\n line 33\n"},
		{"near places", "a\nb\nc\nd\n", "A\nb\nc\nD", "@@ -1,4 +1,4 @@\n-a\n+A\n b\n c\n-d\n+D\n"},
		{"hostile", "", "\x1b]52;c;cHduZWQ=\x07\tx\n", "@@ -1,0 +1,1 @@\n+\\x1b]52;c;cHduZWQ=\\a\tx\n"},
		{"the same", "a\n", "a\n", ""},
		{"no text", "a\n", "\x00", "/notes.md: only texts of at most 1.0 MiB can be compared by line\n"},
	} {
		before, after := text(c.before), text(c.after)
		if got := run(&before, &after); got.code != 0 || got.out != c.want {
			t.Errorf("%s: %v, want\n%s", c.name, got, c.want)
		}
	}
	part := carrel.SnapshotFile{Content: []byte("a\n")}
	if got := run(&part, nil); !strings.Contains(got.out, "only texts") {
		t.Errorf("a part: %v", got)
	}
	made := text("new\n")
	if got := run(nil, &made); got.out != "@@ -1,0 +1,1 @@\n+new\n" {
		t.Errorf("a new file: %v", got)
	}
	if got := run(nil, nil); got.code == 0 {
		t.Errorf("no such file: %v", got)
	}
}
