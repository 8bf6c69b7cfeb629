// Package miniroot makes a very small template for tests: a shell, some programs of this machine
// and their libraries. The built-in base is some gigabytes, too much for a test that fills a disk.
package miniroot

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// programs are the programs of the template. The first is its shell.
var programs = []string{"sh", "bash", "cat", "ls", "sleep", "head", "dd", "rm", "mkdir", "mv", "cp",
	"echo", "sync",
	"chmod", "grep", "tr", "chown", "stat", "id", "seq", "wc", "touch", "sha256sum", "ln", "true"}

// Archive writes the template as a tar file, and returns the file's name. more are programs that it
// has beside the usual ones. The file is some megabytes.
func Archive(t testing.TB, more ...string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "mini.tar")
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	w := tar.NewWriter(f)
	if err := fill(w, slices.Concat(programs, more)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	return name
}

// fill writes the template's entries.
func fill(w *tar.Writer, programs []string) error {
	for _, dir := range []string{"bin", "etc", "proc", "sys", "dev", "root", "var", "usr", "usr/bin"} {
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir, Mode: 0o755}); err != nil {
			return err
		}
	}
	if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: "tmp",
		Mode: 0o1777}); err != nil {
		return err
	}
	for _, dir := range []string{"home", "home/user"} {
		h := &tar.Header{Typeflag: tar.TypeDir, Name: dir, Mode: 0o755}
		if dir == "home/user" {
			h.Uid, h.Gid = 1000, 1000
		}
		if err := w.WriteHeader(h); err != nil {
			return err
		}
	}
	for name, text := range map[string]string{
		"etc/passwd": "root:x:0:0:root:/root:/bin/sh\nuser:x:1000:1000:user:/home/user:/bin/sh\n",
		"etc/group":  "root:x:0:\nuser:x:1000:\n",
	} {
		if err := addBytes(w, name, 0o644, []byte(text)); err != nil {
			return err
		}
	}
	return addPrograms(w, programs)
}

// addPrograms adds the programs and the libraries that they load.
func addPrograms(w *tar.Writer, programs []string) error {
	libraries := map[string]bool{}
	for _, p := range programs {
		path, err := exec.LookPath(p)
		if err != nil {
			return fmt.Errorf("this machine has no %s: %w", p, err)
		}
		if err := addFile(w, "bin/"+p, path); err != nil {
			return err
		}
		out, err := exec.Command("ldd", path).Output()
		if err != nil {
			continue // it is static
		}
		for _, word := range strings.Fields(string(out)) {
			if strings.HasPrefix(word, "/") {
				libraries[word] = true
			}
		}
	}
	for path := range libraries {
		if err := addFile(w, strings.TrimPrefix(path, "/"), path); err != nil {
			return err
		}
	}
	return nil
}

// addFile adds a file of this machine, and follows links.
func addFile(w *tar.Writer, name, path string) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return addBytes(w, name, 0o755, data)
}

func addBytes(w *tar.Writer, name string, mode int64, data []byte) error {
	h := &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode, Size: int64(len(data))}
	if err := w.WriteHeader(h); err != nil {
		return err
	}
	_, err := io.Copy(w, bytes.NewReader(data))
	return err
}
