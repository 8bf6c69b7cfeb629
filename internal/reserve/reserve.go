// Package reserve keeps some disk space and some inodes back in a directory, and gives them up when
// the disk is full.
//
// A daemon needs a little room even to make room: the deletion of a snapshot and the end of a
// sandbox are records, and records are written. So the daemon holds a directory of small files.
// When a write finds no room, the daemon removes one of the files and tries again. The reserve is
// given up piece by piece, because a sandbox on the same disk may take what is freed first. The
// files are made again when there is room.
//
//	DIR/reserve/00 … 15       1 MiB each, allocated
//	DIR/reserve/00.0 … 15.3   empty: an inode each
package reserve

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel/internal/atomicfile"
)

const (
	pieceBytes  = 1 << 20
	maxPieces   = 16
	extraInodes = 4   // empty files of each piece
	diskShare   = 128 // the reserve is at most 1/n of the disk's bytes; a piece for each n inodes
	// plenty is how many times the reserve's size must be free before it is made again. A reserve
	// must not be the file that fills the disk.
	plenty = 8

	shortBytes  = 2 << 20 // a disk with less has no room
	shortInodes = 16
)

// Reserve is the space that is held back. It is safe for concurrent use. A nil Reserve holds
// nothing.
type Reserve struct {
	dir string
	log *slog.Logger

	mu   sync.Mutex
	told bool // that the reserve is being given up
}

// Open returns the reserve of a data directory. It makes no file: Keep does. If the disk is full
// already, Open gives up a part at once, so that the daemon can start.
func Open(dir string, log *slog.Logger) *Reserve {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	r := &Reserve{dir: filepath.Join(dir, "reserve"), log: log}
	for range maxPieces / 4 {
		if !r.Short() || !r.Give() {
			break
		}
	}
	return r
}

// Short reports whether the disk has no room, or no inodes.
func (r *Reserve) Short() bool {
	if r == nil {
		return false
	}
	room, err := measure(filepath.Dir(r.dir))
	return err == nil && (room.bytes < shortBytes || room.inodeTotal > 0 && room.inodes < shortInodes)
}

// room is the free room of a filesystem.
type room struct {
	bytes, total       int64
	inodes, inodeTotal int64 // 0 where inodes are made as needed
}

func measure(dir string) (room, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return room{}, err
	}
	return room{bytes: int64(st.Bavail) * st.Bsize, total: int64(st.Blocks) * st.Bsize,
		inodes: int64(st.Ffree), inodeTotal: int64(st.Files)}, nil
}

// Give gives up one piece of the reserve. It reports whether there was one: then the write that
// found no room is worth another try.
func (r *Reserve) Give() bool {
	if r == nil {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range maxPieces {
		err := os.Remove(r.piece(i))
		for n := range extraInodes {
			if os.Remove(r.extra(i, n)) == nil {
				err = nil
			}
		}
		if err != nil {
			continue
		}
		_ = atomicfile.SyncDir(r.dir) // some filesystems reuse blocks only after that
		if !r.told {
			r.told = true
			r.log.Error("the disk is full: the daemon lives on its reserve, and can still delete and kill",
				"dir", filepath.Dir(r.dir),
				"hint", "free some space, kill sandboxes, or delete snapshots")
		}
		return true
	}
	return false
}

// Do calls try, and calls it again for each piece of the reserve that it can give up, until try
// finds room.
func (r *Reserve) Do(try func() error) error {
	for {
		err := try()
		if err == nil || !NoRoom(err) && !r.Short() || !r.Give() {
			return err
		}
	}
}

// NoRoom reports whether an error means that a disk has no room or no inodes.
func NoRoom(err error) bool {
	return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT)
}

// Keep makes the files that are missing, if there is plenty of room.
func (r *Reserve) Keep() error {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	free, err := measure(filepath.Dir(r.dir))
	if err != nil {
		return fmt.Errorf("measure disk: %w", err)
	}
	pieces := int(min(maxPieces, free.total/diskShare/pieceBytes))
	holders := maxPieces // pieces that hold inodes
	if free.inodeTotal > 0 {
		holders = int(min(maxPieces, free.inodeTotal/diskShare))
	}
	inodes := int64(holders * (1 + extraInodes))
	if free.bytes < plenty*int64(pieces)*pieceBytes || free.inodeTotal > 0 &&
		free.inodes < plenty*inodes {
		return nil
	}
	if err := os.Mkdir(r.dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	for i := range maxPieces {
		if i < pieces {
			if err := r.allocate(i); err != nil {
				return err
			}
		}
		for n := range extraInodes {
			if i >= holders {
				break
			}
			f, err := os.OpenFile(r.extra(i, n), os.O_CREATE|os.O_WRONLY, 0o600)
			if err == nil {
				err = f.Close()
			}
			if err != nil {
				return err
			}
		}
	}
	if r.told {
		r.told = false
		r.log.Info("the disk has room again: the reserve is whole", "dir", filepath.Dir(r.dir))
	}
	return nil
}

// allocate makes one piece, unless it is there.
func (r *Reserve) allocate(i int) (err error) {
	if info, err := os.Stat(r.piece(i)); err == nil && info.Size() == pieceBytes {
		return nil
	}
	f, err := os.OpenFile(r.piece(i), os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if cerr := f.Close(); err == nil {
			err = cerr
		}
		if err != nil {
			_ = os.Remove(f.Name())
		}
	}()
	err = unix.Fallocate(int(f.Fd()), 0, 0, pieceBytes)
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS) {
		_, err = f.Write(make([]byte, pieceBytes))
	}
	return err
}

func (r *Reserve) piece(i int) string    { return filepath.Join(r.dir, fmt.Sprintf("%02d", i)) }
func (r *Reserve) extra(i, n int) string { return fmt.Sprintf("%s.%d", r.piece(i), n) }
