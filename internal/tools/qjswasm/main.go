// Command qjswasm fetches QuickJS for WASI from npm for package quickjs. Without npm, or without its registry, it says so and
// succeeds: carrel then has no node in simulated sandboxes, and no code mode.
package main

import (
	"archive/tar"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/carrel-dev/carrel/internal/sh/tools/script/quickjs"
)

// requirement is the package that carries the interpreter, and name is where.
const (
	requirement = "quickjs-wasi@3.6.2"
	name        = "package/quickjs.wasm"
)

func main() {
	out := flag.String("o", "", "directory to write into")
	flag.Parse()
	if *out == "" {
		fmt.Fprintln(os.Stderr, "qjswasm: -o is missing")
		os.Exit(2)
	}
	if err := run(*out); err != nil {
		fmt.Fprintf(os.Stderr, "qjswasm: %v\nqjswasm: this build has no JavaScript in simulated sandboxes\n", err)
		if os.Getenv("CI") != "" {
			os.Exit(1)
		}
	}
}

// run fetches the interpreter.
func run(out string) error {
	dir, err := os.MkdirTemp("", "qjswasm")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	npm := exec.Command("npm", "pack", "--silent", "--ignore-scripts", "--pack-destination", dir, requirement)
	npm.Stderr = os.Stderr
	if err := npm.Run(); err != nil {
		return fmt.Errorf("npm pack %s: %w", requirement, err)
	}
	packages, err := filepath.Glob(filepath.Join(dir, "*.tgz"))
	if err != nil || len(packages) != 1 {
		return errors.New("npm brought no package")
	}
	code, err := find(packages[0])
	if err != nil {
		return err
	}
	if sum := sha256.Sum256(code); hex.EncodeToString(sum[:]) != quickjs.Sum {
		return errors.New("the package's interpreter is not the one that is known")
	}
	return os.WriteFile(filepath.Join(out, "quickjs.wasm"), code, 0o644)
}

// find takes the interpreter out of its package.
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
