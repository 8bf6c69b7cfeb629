//go:build linux

package microvm

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"syscall"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/driver/hosted"
)

// Files of a snapshot.
const (
	sideFile  = "carrel.json" // what must be known before the others are read
	ramFile   = "ram"         // the machine's memory, flat, with holes
	stateFile = "state"       // the devices, as QEMU wrote them
	// diskFile, too
)

// snapshotFormat is the version of sideFile and of the files beside it.
const snapshotFormat = 1

// filesBuild names the form of a snapshot's disk.
const filesBuild = "disk1"

// maxSide bounds the size of sideFile, in bytes.
const maxSide = 64 << 10

// side is the content of sideFile.
type side struct {
	Version int               `json:"v"`
	Memory  bool              `json:"memory"`
	Limits  carrel.Limits     `json:"limits"` // the machine's
	MTU     int               `json:"mtu"`
	Root    string            `json:"root"`  // identity of the root image
	Guest   string            `json:"guest"` // identity of the guest's image
	Sizes   map[string]int64  `json:"sizes"` // of the other files
	Sums    map[string]uint32 `json:"sums"`  // of the small ones
}

// fileNames are the files of a snapshot with or without memory, without sideFile.
func fileNames(memory bool) []string {
	if memory {
		return []string{diskFile, stateFile, ramFile}
	}
	return []string{diskFile}
}

// saved is a snapshot that is open for reading.
type saved struct {
	side     side
	memory   bool // it is to be restored with memory
	sameBoot bool
	files    map[string]*os.File
	ram      *sealed
}

// close closes the files.
func (s *saved) close() {
	for _, f := range s.files {
		f.Close()
	}
}

// damaged is the error for a snapshot that this driver can't have written.
func damaged(format string, args ...any) error {
	return &carrel.Error{Kind: carrel.Invalid, Field: "snapshot", Err: fmt.Errorf(format, args...)}
}

// createFiles makes the empty files of a snapshot. On an error it leaves none.
func createFiles(dir string, names []string) (map[string]*os.File, error) {
	files := map[string]*os.File{}
	for _, name := range names {
		f, err := os.OpenFile(filepath.Join(dir, name), os.O_RDWR|os.O_CREATE|os.O_EXCL|syscall.O_CLOEXEC, 0o600)
		if err == nil {
			files[name] = f
			continue
		}
		for made, f := range files {
			f.Close()
			_ = os.Remove(filepath.Join(dir, made))
		}
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, os.ErrExist) {
			return nil, &carrel.Error{Kind: carrel.Invalid, Field: "dir", Err: fmt.Errorf("not an empty directory: %w", err)}
		}
		return nil, err
	}
	return files, nil
}

// writeSide writes sideFile, last.
func writeSide(dir string, s side, files map[string]*os.File) error {
	s.Version, s.Sizes, s.Sums = snapshotFormat, map[string]int64{}, map[string]uint32{}
	for name, f := range files {
		info, err := f.Stat()
		if err != nil {
			return err
		}
		s.Sizes[name] = info.Size()
		if name == stateFile {
			if s.Sums[name], err = checksum(f, info.Size()); err != nil {
				return err
			}
		}
	}
	b, err := json.Marshal(s)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, sideFile), b, 0o600)
}

// openSaved opens a snapshot's files, and checks what can be checked without reading them all.
func openSaved(dir string, info driver.SnapshotInfo, memory bool) (_ *saved, err error) {
	f, err := openRegular(filepath.Join(dir, sideFile), -1)
	if err != nil {
		return nil, err
	}
	b, err := io.ReadAll(io.LimitReader(f, maxSide))
	f.Close()
	if err != nil {
		return nil, err
	}
	s := &saved{memory: memory, files: map[string]*os.File{}}
	if err := json.Unmarshal(b, &s.side); err != nil {
		return nil, damaged("%s: %w", sideFile, err)
	}
	if s.side.Version != snapshotFormat {
		return nil, &carrel.Error{Kind: carrel.Unsupported,
			Err: fmt.Errorf("the snapshot has format %d, this build knows %d", s.side.Version, snapshotFormat)}
	}
	if s.side.Memory != info.Memory || s.side.Root != info.Root {
		return nil, damaged("%s is of another snapshot", sideFile)
	}
	if l := s.side.Limits; l.MemoryMB < bounds.MinMemoryMB || l.MemoryMB > maxMemoryMB || l.DiskMB < 1 || l.DiskMB > bounds.MaxDiskMB || l.CPUs <= 0 || l.CPUs > maxCPUs {
		return nil, damaged("%s has no limits", sideFile)
	}
	for _, name := range fileNames(info.Memory) {
		f, err := openRegular(filepath.Join(dir, name), s.side.Sizes[name])
		if err == nil {
			s.files[name] = f
			err = s.verify(name, f)
		}
		if err != nil {
			s.close()
			return nil, err
		}
	}
	return s, nil
}

// verify compares a file's size or checksum, if it is known.
func (s *saved) verify(name string, f *os.File) error {
	switch name {
	case ramFile:
		if want := int64(s.side.Limits.MemoryMB) << 20; s.side.Sizes[name] != want {
			return damaged("%s has %d bytes, not %d", name, s.side.Sizes[name], want)
		}
	case stateFile:
		if s.side.Sizes[name] > maxState {
			return damaged("%s has %d bytes", name, s.side.Sizes[name])
		}
		sum, err := checksum(f, s.side.Sizes[name])
		if err == nil && sum != s.side.Sums[name] {
			err = damaged("%s has checksum %08x, not %08x", name, sum, s.side.Sums[name])
		}
		return err
	}
	return nil
}

// checksum reads size bytes and leaves the file's offset alone.
func checksum(f *os.File, size int64) (uint32, error) {
	h := crc32.New(crc32.MakeTable(crc32.Castagnoli))
	_, err := io.Copy(h, io.NewSectionReader(f, 0, size))
	return h.Sum32(), err
}

// openRegular opens a regular file of the given size; -1 is any.
func openRegular(name string, size int64) (*os.File, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil, damaged("%s is missing", filepath.Base(name))
	}
	if errors.Is(err, syscall.ELOOP) || errors.Is(err, syscall.ENXIO) {
		return nil, damaged("%s is not a regular file", filepath.Base(name))
	}
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	switch {
	case err != nil:
	case !info.Mode().IsRegular():
		err = damaged("%s is not a regular file", filepath.Base(name))
	case size >= 0 && (info.Size() != size || size == 0):
		err = damaged("%s has %d bytes, not %d", filepath.Base(name), info.Size(), size)
	}
	if err != nil {
		hosted.CloseAll(f)
		return nil, err
	}
	return f, nil
}
