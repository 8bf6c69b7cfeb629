package console

import (
	"bytes"
	"compress/gzip"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/carrel-dev/carrel/internal/testenv"
)

// TestBundle builds the page from its sources, and compares it with the bundle that the repository
// has. Files are compared unpacked, because versions of Node compress differently.
func TestBundle(t *testing.T) {
	t.Parallel()
	_, err := os.Stat("../../console/node_modules/esbuild")
	testenv.Need(t, "node", err) // npm ci --prefix console
	dir := t.TempDir()
	for _, args := range [][]string{{"node", "build.mjs", dir}, {"node", "node_modules/typescript/bin/tsc", "--noEmit"}} {
		cmd := exec.Command(args[0], args[1:]...)
		cmd.Dir = "../../console"
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
	}
	built, kept := bundle(t, dir), bundle(t, "../../internal/console/dist")
	kept["LICENSES.txt"], err = os.ReadFile("../../console/LICENSES.txt")
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range built {
		if !bytes.Equal(content, kept[name]) {
			t.Errorf("%s is not what its sources make: run make console-bundle", name)
		}
		delete(kept, name)
	}
	for name := range kept {
		t.Errorf("%s is left over: run make console-bundle", name)
	}
}

// bundle reads the files of a bundle, unpacked.
func bundle(t *testing.T, dir string) map[string][]byte {
	t.Helper()
	names, err := filepath.Glob(dir + "/*")
	if err != nil || len(names) == 0 {
		t.Fatalf("no files in %s: %v", dir, err)
	}
	files := map[string][]byte{}
	for _, name := range names {
		raw, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if filepath.Ext(name) == ".gz" {
			z, err := gzip.NewReader(bytes.NewReader(raw))
			if err != nil {
				t.Fatal(err)
			}
			if raw, err = io.ReadAll(z); err != nil {
				t.Fatal(err)
			}
		}
		files[filepath.Base(name)] = raw
	}
	return files
}
