package wired

import (
	"os"
	"path/filepath"
	"testing"
)

// TestHostService shows that a box reaches the ports that its policy opens, but no daemon's API.
func TestHostService(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("CARREL_DATA_DIR", dir)
	if err := hostService("run", 5432); err != nil {
		t.Error(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "daemon.json"), []byte(`{"url":"http://127.0.0.1:5432"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, own := range []uint16{5432, 7070} {
		if hostService("run", own) == nil {
			t.Errorf("port %d is opened", own)
		}
	}
	if err := hostService("run", 5433); err != nil {
		t.Error(err)
	}
}
