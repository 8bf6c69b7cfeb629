package settings

import "testing"

// TestProtectedNamesLeadThroughWritableDirectories shows that a name is protected in its directory,
// however deep the opened directory on the way to it is.
func TestProtectedNamesLeadThroughWritableDirectories(t *testing.T) {
	b := &Box{ReadDefault: Readable, WriteDefault: Readable, Paths: []PathRule{{Path: "/w/a/b", Access: Writable}},
		Protected: []Protected{{Pattern: "a/b/x", Dir: "/w", Rule: "test"}, {Pattern: "y", Dir: "/w/a/b/c", Rule: "test"}}}
	for p, want := range map[string]Access{"/w/a/b/x": Readable, "/w/a/b/x/z": Readable, "/w/a/b/z": Writable, "/w/a/b/y": Writable, "/w/a/b/c/y": Readable} {
		if got, _ := b.Access(p); got != want {
			t.Errorf("%s: %s, want %s", p, got, want)
		}
	}
}
