//go:build linux

// Package stagebin carries the stage of a box, the program cmd/carrel-box, inside the carrel
// binary.
//
// The program is a build product. A binary built without it works, too, but [File] reports that it
// is missing. A program whose main runs box.Parts can then be its own stage.
package stagebin

import (
	"errors"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/box/stagebin/assets"
)

// File returns the program as a memory file that nobody can change, for box.Options.Stage. Each
// call makes a new one; the caller closes it. Error: Unsupported when this binary does not carry
// the program.
func File() (*os.File, error) { return file(assets.Files) }

// file is File from any file system.
func file(from fs.FS) (*os.File, error) {
	const op = "load the stage of a box"
	src, err := from.Open(assets.Program)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &carrel.Error{Op: op, Kind: carrel.Unsupported,
			Err:  errors.New("this binary was built without it"),
			Hint: "build it with: make build"}
	}
	if err != nil {
		return nil, &carrel.Error{Op: op, Kind: carrel.Internal, Err: err}
	}
	defer src.Close()
	f, err := create()
	if err != nil {
		return nil, &carrel.Error{Op: op, Kind: carrel.Internal, Err: err}
	}
	if err := fill(f, src); err != nil {
		_ = f.Close()
		return nil, &carrel.Error{Op: op, Kind: carrel.Internal, Err: err}
	}
	return f, nil
}

// create makes an empty memory file that may be executed, whatever vm.memfd_noexec sets as the
// default. Older kernels don't know the flag for that.
func create() (*os.File, error) {
	const name, flags = "carrel-box", unix.MFD_CLOEXEC | unix.MFD_ALLOW_SEALING
	fd, err := unix.MemfdCreate(name, flags|unix.MFD_EXEC)
	if err == unix.EINVAL {
		fd, err = unix.MemfdCreate(name, flags)
	}
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	return os.NewFile(uintptr(fd), name), nil
}

// fill writes the program without a further copy, and seals the file.
func fill(f *os.File, src fs.File) error {
	info, err := src.Stat()
	if err != nil {
		return err
	}
	at, ok := src.(interface {
		ReadAt(b []byte, off int64) (int, error)
	})
	if !ok {
		return errors.New("the asset can't be read")
	}
	const chunk = 256 << 10
	buf := make([]byte, min(info.Size(), chunk))
	for off := int64(0); off < info.Size(); {
		n, err := at.ReadAt(buf[:min(int64(len(buf)), info.Size()-off)], off)
		if n == 0 {
			return err
		}
		if _, err := f.WriteAt(buf[:n], off); err != nil {
			return err
		}
		off += int64(n)
	}
	_, err = unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_WRITE|unix.F_SEAL_GROW|unix.F_SEAL_SHRINK|unix.F_SEAL_SEAL)
	return os.NewSyscallError("seal", err)
}
