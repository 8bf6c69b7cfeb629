// Command guestimage puts the guest's binary into a small EROFS image, as
// drivers mount it: one file, /guest, mode 0755, owned by root, uncompressed. The
// image of one binary is always the same, byte for byte.
//
//	guestimage -o assets/guest.erofs bin/carrel-guest
//	guestimage -o assets/guest.erofs            (builds ./cmd/carrel-guest first)
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/erofs/go-erofs"
)

func main() {
	out := flag.String("o", "guest.erofs", "image to write")
	flag.Parse()
	if err := run(*out, flag.Arg(0)); err != nil {
		fmt.Fprintln(os.Stderr, "guestimage:", err)
		os.Exit(1)
	}
}

// run writes the image of binary, or of a fresh build when it is "".
func run(out, binary string) error {
	if binary == "" {
		dir, err := os.MkdirTemp("", "guestimage")
		if err != nil {
			return err
		}
		defer func() { _ = os.RemoveAll(dir) }()
		binary = filepath.Join(dir, "guest")
		build := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", binary, "github.com/carrel-dev/carrel/cmd/carrel-guest")
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		build.Stderr = os.Stderr
		if err := build.Run(); err != nil {
			return fmt.Errorf("go build: %w", err)
		}
	}
	tmp := out + ".tmp"
	if err := write(tmp, binary); err != nil {
		_ = os.Remove(tmp)
		return err
	}
	return os.Rename(tmp, out)
}

// write makes the image.
func write(out, binary string) error {
	in, err := os.Open(binary)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	f, err := os.OpenFile(out, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	w := erofs.Create(f, erofs.WithBuildTime(0, 0))
	guest, err := w.Create("/guest")
	if err != nil {
		return err
	}
	if _, err := io.Copy(guest, in); err != nil {
		return err
	}
	if err := guest.Chmod(0o755); err != nil {
		return err
	}
	if err := guest.Close(); err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	return f.Close()
}
