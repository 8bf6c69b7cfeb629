package gvisor

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestVersionIsTheModules keeps the constant equal to go.mod.
func TestVersionIsTheModules(t *testing.T) {
	b, err := os.ReadFile("../../../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(b), gvisorModule+" "+gvisorVersion+"\n") {
		t.Errorf("go.mod has another %s than %s", gvisorModule, gvisorVersion)
	}
}

func TestImageIDTellsImagesApart(t *testing.T) {
	dir := t.TempDir()
	var ids identities
	write := func(name string, size int, at map[int]byte) string {
		b := make([]byte, size)
		for i, v := range at {
			b[i] = v
		}
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, b, 0o644); err != nil {
			t.Fatal(err)
		}
		id, err := ids.of(path, imageID)
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	const big = 8 << 20
	same := write("a", big, nil)
	if again := write("b", big, nil); again != same {
		t.Errorf("equal images are %s and %s", same, again)
	}
	for name, other := range map[string]string{
		"longer":     write("c", big+1, nil),
		"superblock": write("d", big, map[int]byte{1024: 1}),
		"end":        write("e", big, map[int]byte{big - 1: 1}),
		"small":      write("f", 4096, nil),
	} {
		if other == same {
			t.Errorf("%s: the same identity", name)
		}
	}
	// A file with new content is hashed again.
	if changed := write("a", big, map[int]byte{0: 7}); changed == same {
		t.Error("a changed image kept its identity")
	}
	// A file that only got another name is not.
	if err := os.Link(filepath.Join(dir, "a"), filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	if _, err := ids.of(filepath.Join(dir, "a"), func(*os.File, int64) (string, error) {
		t.Error("a linked image is read anew")
		return "", nil
	}); err != nil {
		t.Fatal(err)
	}
}

func TestMissingFeatures(t *testing.T) {
	if got := missingFeatures("avx sse sse2", "sse2 avx sse"); len(got) != 0 {
		t.Errorf("missing %v", got)
	}
	if got := missingFeatures("avx avx512f sse", "avx sse"); len(got) != 1 || got[0] != "avx512f" {
		t.Errorf("missing %v", got)
	}
	if cpuFeatures() == "" {
		t.Error("this processor can nothing")
	}
}
