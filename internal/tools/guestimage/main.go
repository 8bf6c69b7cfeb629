// Command guestimage puts the guest's binaries into a small EROFS image, which drivers mount:
// /guest, mode 0755, and /sudo, set-uid root, both owned by root and uncompressed, and an empty
// directory /modules. The image of the
// same two binaries always has the same bytes.
//
// They are two files and not one file with two names: names share one mode, and the guest must not
// be set-uid.
//
//	guestimage -o assets/guest.erofs bin/carrel-guest bin/carrel-sudo
//	guestimage -o assets/guest.erofs            (builds both commands first)
package main

import (
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/erofs/go-erofs"
)

func main() {
	out := flag.String("o", "guest.erofs", "image to write")
	flag.Parse()
	if err := run(*out, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "guestimage:", err)
		os.Exit(1)
	}
}

// files are the files in the image.
var files = []struct {
	name, command string
	mode          fs.FileMode
}{
	{"/guest", "carrel-guest", 0o755},
	{"/sudo", "carrel-sudo", 0o755 | fs.ModeSetuid},
}

// modules is the empty directory over which a virtual machine mounts its kernel's modules.
const modules = "/modules"

// run writes the image of the binaries. Without binaries it builds them first.
func run(out string, binaries []string) error {
	if len(binaries) == 0 {
		dir, err := os.MkdirTemp("", "guestimage")
		if err != nil {
			return err
		}
		defer func() { _ = os.RemoveAll(dir) }()
		for _, f := range files {
			binary := filepath.Join(dir, f.command)
			build := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w -R 0x10000", "-o", binary, "github.com/carrel-dev/carrel/cmd/"+f.command)
			build.Env = append(os.Environ(), "CGO_ENABLED=0")
			build.Stderr = os.Stderr
			if err := build.Run(); err != nil {
				return fmt.Errorf("go build: %w", err)
			}
			binaries = append(binaries, binary)
		}
	}
	if len(binaries) != len(files) {
		return fmt.Errorf("%d binaries: want those of the guest and of sudo", len(binaries))
	}
	if err := apart(binaries[0]); err != nil {
		return err
	}
	tmp := out + ".tmp"
	if err := write(tmp, binaries); err != nil {
		_ = os.Remove(tmp)
		return err
	}
	data, err := os.ReadFile(tmp)
	if err != nil {
		return err
	}
	// Write the image's SHA-256 next to it. A daemon then knows whether it has unpacked this image
	// without reading all of it.
	sum, hash := out+".sum", sha256.Sum256(data)
	if err := os.Remove(sum); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Rename(tmp, out); err != nil {
		return err
	}
	return os.WriteFile(sum, []byte(hex.EncodeToString(hash[:])+"\n"), 0o644)
}

// apart checks that the guest's writable segment does not begin right after its constants. The
// kernel of sandboxes (gVisor) takes two segments for one if they touch in memory and in the file.
// When the first byte is written, it copies everything of the joined segment within the same 2 MB.
// That was 1.7 MB of constants in each sandbox.
func apart(binary string) error {
	f, err := elf.Open(binary)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	const page = 4096
	var end uint64 // of the segment before
	for _, s := range f.Progs {
		if s.Type != elf.PT_LOAD {
			continue
		}
		if s.Flags&elf.PF_W != 0 && s.Vaddr/page*page == end {
			return fmt.Errorf("%s: the writable segment touches the one before; link it with -ldflags '-R 0x10000', or another multiple of the page's size", binary)
		}
		end = (s.Vaddr + s.Memsz + page - 1) / page * page
	}
	return nil
}

// write makes the image.
func write(out string, binaries []string) error {
	f, err := os.OpenFile(out, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	w := erofs.Create(f, erofs.WithBuildTime(0, 0))
	for i, file := range files {
		if err := add(w, file.name, file.mode, binaries[i]); err != nil {
			return fmt.Errorf("%s: %w", file.name, err)
		}
	}
	if err := w.Mkdir(modules, 0o755); err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	return f.Close()
}

// add puts one binary into the image.
func add(w *erofs.Writer, name string, mode fs.FileMode, binary string) error {
	in, err := os.Open(binary)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	to, err := w.Create(name)
	if err != nil {
		return err
	}
	if _, err := io.Copy(to, in); err != nil {
		return err
	}
	if err := to.Chown(0, 0); err != nil {
		return err
	}
	if err := to.Chmod(mode); err != nil {
		return err
	}
	return to.Close()
}
