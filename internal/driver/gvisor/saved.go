package gvisor

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"time"

	"gvisor.dev/gvisor/pkg/sentry/state/checkpointfiles"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/driver/hosted"
)

// sideFile is our own file in a snapshot. It holds the facts that must be known before a sentry may
// read the rest. The daemon reads only this file. The sentry wrote the others and might have been
// taken over, so only sentries and other confined processes read those.
const sideFile = "carrel.json"

// maxSide bounds its size, in bytes.
const maxSide = 64 << 10

// Names of a snapshot's other files, in gVisor's order.
var (
	memoryFiles = []string{checkpointfiles.StateFileName, checkpointfiles.PagesMetadataFileName, checkpointfiles.PagesFileName}
	filesFiles  = []string{checkpointfiles.FSCheckpointManifestFileName, checkpointfiles.FSCheckpointMultiTarFileName,
		checkpointfiles.PagesMetadataFileName, checkpointfiles.PagesFileName}
)

// fileNames are the files of a snapshot with or without memory.
func fileNames(memory bool) []string {
	if memory {
		return memoryFiles
	}
	return filesFiles
}

// side is the content of sideFile.
type side struct {
	Version int              `json:"v"`
	Memory  bool             `json:"memory"`
	Limits  carrel.Limits    `json:"limits"` // limits inside
	Root    string           `json:"root"`   // identity of the root image
	Guest   string           `json:"guest"`  // identity of the guest's image
	Sizes   map[string]int64 `json:"sizes"`  // of the other files
	// Sums are checksums of the small files that describe the pages. Damage there could stay
	// unnoticed until much later. The store of snapshots is responsible for the pages themselves.
	Sums map[string]uint32 `json:"sums"`
}

// saved is a snapshot that is open for reading.
type saved struct {
	side     side
	memory   bool          // it is to be restored with memory
	files    []*os.File    // in the order of fileNames
	later    time.Duration // see driver.RestoreOptions
	sameBoot bool          // likewise
}

// close closes the files. Sentries keep their own copies.
func (s *saved) close() {
	if s != nil {
		hosted.CloseAll(s.files...)
	}
}

// damaged is the error for a snapshot that this driver can't have written.
func damaged(format string, args ...any) error {
	return &carrel.Error{Kind: carrel.Invalid, Field: "snapshot", Err: fmt.Errorf(format, args...)}
}

// writeSide writes sideFile. It is called after the other files are complete.
func writeSide(dir string, s side) error {
	s.Version, s.Sizes, s.Sums = snapshotFormat, map[string]int64{}, map[string]uint32{}
	for _, name := range fileNames(s.Memory) {
		f, err := os.Open(filepath.Join(dir, name))
		if err != nil {
			return err
		}
		fi, err := f.Stat()
		if err == nil {
			s.Sizes[name] = fi.Size()
			if name != checkpointfiles.PagesFileName {
				s.Sums[name], err = checksum(f, fi.Size())
			}
		}
		f.Close()
		if err != nil {
			return err
		}
	}
	b, err := json.Marshal(s)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, sideFile), b, 0o600)
}

// openSaved opens a snapshot's files. It makes the checks that need not read them.
func openSaved(dir string, info driver.SnapshotInfo) (*saved, error) {
	b, err := readSide(filepath.Join(dir, sideFile))
	if err != nil {
		return nil, err
	}
	s := &saved{memory: info.Memory}
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
	if l := s.side.Limits; l.MemoryMB < 1 || l.DiskMB < 1 || l.Pids < 1 {
		return nil, damaged("%s has no limits", sideFile)
	}
	for _, name := range fileNames(info.Memory) {
		f, err := openRegular(filepath.Join(dir, name), s.side.Sizes[name])
		if err == nil {
			s.files = append(s.files, f)
			err = s.verify(name, f)
		}
		if err != nil {
			s.close()
			return nil, err
		}
	}
	return s, nil
}

// verify compares a file's checksum, if it has one.
func (s *saved) verify(name string, f *os.File) error {
	if name == checkpointfiles.PagesFileName {
		return nil
	}
	sum, err := checksum(f, s.side.Sizes[name])
	if err == nil && sum != s.side.Sums[name] {
		err = damaged("%s has checksum %08x, not %08x", name, sum, s.side.Sums[name])
	}
	return err
}

// checksum reads size bytes and leaves the file's offset alone.
func checksum(f *os.File, size int64) (uint32, error) {
	h := crc32.New(crc32.MakeTable(crc32.Castagnoli))
	_, err := io.Copy(h, io.NewSectionReader(f, 0, size))
	return h.Sum32(), err
}

// readSide reads sideFile.
func readSide(name string) ([]byte, error) {
	fi, err := os.Lstat(name)
	if errors.Is(err, os.ErrNotExist) {
		return nil, damaged("%s is missing", sideFile)
	}
	if err != nil {
		return nil, err
	}
	if !fi.Mode().IsRegular() {
		return nil, damaged("%s is not a regular file", sideFile)
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxSide))
}

// openRegular opens a regular file of the given size.
func openRegular(name string, size int64) (*os.File, error) {
	fi, err := os.Lstat(name)
	if errors.Is(err, os.ErrNotExist) {
		return nil, damaged("%s is missing", filepath.Base(name))
	}
	if err != nil {
		return nil, err
	}
	if !fi.Mode().IsRegular() {
		return nil, damaged("%s is not a regular file", filepath.Base(name))
	}
	if fi.Size() != size || size == 0 && filepath.Base(name) != checkpointfiles.PagesFileName {
		return nil, damaged("%s has %d bytes, not %d", filepath.Base(name), fi.Size(), size)
	}
	return os.Open(name)
}
