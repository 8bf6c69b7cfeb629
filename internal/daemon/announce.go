package daemon

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/atomicfile"
	"github.com/carrel-dev/carrel/internal/reserve"
)

// announcement tells local clients the daemon's address, in a file of the data directory. A daemon
// that ends leaves the file under another name. The next one needs it when the disk is full: it has
// a block and an inode, and nothing else can take them. The reserve's can be taken by a sandbox at
// the moment when they are given up.
type announcement struct{ dir string }

func (a announcement) file() string { return filepath.Join(a.dir, "daemon.json") }

// spare is the file of a daemon that has ended.
func (a announcement) spare() string { return filepath.Join(a.dir, ".daemon.json.spare") }

// write replaces the announcement.
func (a announcement) write(text []byte) error {
	err := atomicfile.Write(a.file(), text, 0o600)
	if reserve.NoRoom(err) {
		if again := a.reuse(text); again == nil {
			return nil
		}
	}
	return err
}

// reuse writes into the file of the last daemon. That one may not have ended in order, so its
// announcement may still be there. A client never sees a text that is half written.
func (a announcement) reuse(text []byte) error {
	if err := os.Rename(a.file(), a.spare()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := os.OpenFile(a.spare(), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	// Not truncated, because that would give the block back. JSON may end with spaces.
	text = append(text, bytes.Repeat([]byte(" "), max(0, int(info.Size())-len(text)))...)
	if _, err := f.WriteAt(text, 0); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	return os.Rename(a.spare(), a.file())
}

// withdraw ends the announcement: the next daemon to start must not be taken for this one.
func (a announcement) withdraw() {
	if os.Rename(a.file(), a.spare()) != nil {
		_ = os.Remove(a.file())
	}
}

func (d *Daemon) announce() error {
	raw, err := json.Marshal(map[string]any{"url": d.url, "addr": d.listener.Addr().String(),
		"pid": os.Getpid(), "dir": d.cfg.DataDir})
	if err == nil {
		err = announcement{d.cfg.DataDir}.write(append(raw, '\n'))
	}
	if err != nil {
		return &carrel.Error{Op: "announce daemon", Kind: carrel.Internal, Err: err}
	}
	return nil
}

// roomEvery is the pause between two looks at the disk's room.
const roomEvery = 10 * time.Second

// announceLater announces the daemon as soon as the disk has room for that.
func (d *Daemon) announceLater(ctx context.Context) {
	for sleep(ctx, roomEvery) && d.reserve.Do(d.announce) != nil {
	}
}
