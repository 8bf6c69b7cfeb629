//go:build linux

package microvm

import (
	"os"
	"path/filepath"
	"testing"
)

// TestMemories shows that a copy is shared while it has users, that the last one stays for the next
// restore, and that no second one does.
func TestMemories(t *testing.T) {
	var m memories
	dir := t.TempDir()
	file := func(name string) *os.File {
		t.Helper()
		f, err := os.Create(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		if _, err := f.WriteString(name); err != nil {
			t.Fatal(err)
		}
		return f
	}
	use := func(f *os.File) *sealed {
		t.Helper()
		s, err := m.use(t.Context(), f, 5)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	open := func(s *sealed) bool { return s.file.Fd() != ^uintptr(0) }
	one, two := file("one__"), file("two__")
	first := use(one)
	if again := use(one); again != first {
		t.Error("two restores of a snapshot have two copies")
	}
	m.leave(first)
	m.leave(first)
	if !open(first) || use(one) != first {
		t.Error("the last copy is gone as soon as nobody uses it")
	}
	second := use(two)
	m.leave(second)
	if !open(first) {
		t.Error("a copy in use was dropped for another one")
	}
	m.leave(first)
	if open(second) || !open(first) {
		t.Error("two copies without users are kept")
	}
	if other := use(two); other == second {
		t.Error("a copy that was dropped is used again")
	}
	if _, err := first.file.WriteAt([]byte("x"), 0); err == nil {
		t.Error("a copy can be written to")
	}
	m.close()
	if open(first) || len(m.known) != 1 {
		t.Errorf("after the close %d are known", len(m.known))
	}
}
