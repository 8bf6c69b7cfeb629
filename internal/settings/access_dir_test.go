package settings

import "testing"

// TestProtectedNamesLeadThroughWritableDirectories: a name is protected where it holds, however deep the directory lies
// that was opened on the way to it.
func TestProtectedNamesLeadThroughWritableDirectories(t *testing.T) {
	b := &Box{ReadDefault: Readable, WriteDefault: Readable, Paths: []PathRule{{Path: "/w/a/b", Access: Writable}},
		Protected: []Protected{{Pattern: "a/b/x", Dir: "/w", Rule: "test"}, {Pattern: "y", Dir: "/w/a/b/c", Rule: "test"}}}
	for p, want := range map[string]Access{"/w/a/b/x": Readable, "/w/a/b/x/z": Readable, "/w/a/b/z": Writable, "/w/a/b/y": Writable, "/w/a/b/c/y": Readable} {
		if got, _ := b.Access(p); got != want {
			t.Errorf("%s: %s, want %s", p, got, want)
		}
	}
}
