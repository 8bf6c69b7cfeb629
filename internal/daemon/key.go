package daemon

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/atomicfile"
	"github.com/carrel-dev/carrel/internal/config"
)

// keyPrefix begins each API key. E2B's older SDKs require it, followed by 40 hexadecimal digits.
const keyPrefix = "e2b_"

// apiKey reads the key of a data directory, or makes it. first says that it was
// made now.
func apiKey(dir string) (key string, first bool, err error) {
	name := filepath.Join(dir, config.KeyFile)
	raw, err := os.ReadFile(name)
	switch {
	case err == nil:
		key = strings.TrimSpace(string(raw))
		if len(key) < 20 || strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
			return "", false, &carrel.Error{Op: "read API key", Kind: carrel.Invalid, Field: "api-key",
				Err:  fmt.Errorf("%s does not hold a key of 20 or more printable characters", name),
				Hint: "remove the file to have a new key made"}
		}
		return key, false, private(name)
	case !errors.Is(err, fs.ErrNotExist):
		return "", false, &carrel.Error{Op: "read API key", Kind: carrel.Invalid, Field: "api-key", Err: err,
			Hint: "it must be a file that this user may read"}
	}
	var b [20]byte
	_, _ = rand.Read(b[:]) // never fails: crypto/rand aborts the process instead
	key = keyPrefix + hex.EncodeToString(b[:])
	if err := atomicfile.Write(name, []byte(key+"\n"), 0o600); err != nil {
		return "", false, &carrel.Error{Op: "make API key", Kind: carrel.Internal, Err: err}
	}
	return key, true, nil
}

// private makes a key file unreadable for other users. The data directory is closed to them anyway,
// but a copy or a backup of it might not be.
func private(name string) error {
	info, err := os.Stat(name)
	if err == nil && info.Mode().Perm()&0o077 != 0 {
		err = os.Chmod(name, 0o600)
	}
	if err != nil {
		return &carrel.Error{Op: "read API key", Kind: carrel.Invalid, Field: "api-key",
			Err: fmt.Errorf("others may read it, and that can't be changed: %w", err), Hint: "chmod 600 " + name}
	}
	return nil
}

// openDir makes the data directory private and locks it. The lock ends when the file is closed, or
// when the process ends for any reason.
func openDir(dir string) (*os.File, error) {
	const op = "open data directory"
	unusable := func(err error, hint string) error {
		switch {
		case errors.Is(err, unix.EROFS):
			hint = "its filesystem is mounted read-only: mount it writable (a kernel also does that to a failing disk, see dmesg), or choose another directory with --data-dir"
		case errors.Is(err, unix.ENOSPC):
			hint = "its disk has no room or no inodes left (df, df -i): free some"
		}
		return &carrel.Error{Op: op, Kind: carrel.Unsupported, Field: "data-dir", Err: err, Hint: hint}
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, unusable(err, "choose one you may write to with --data-dir")
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		return nil, unusable(err, "it must be a directory of this user's own")
	}
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, unusable(err, "this user must be able to write into it")
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = f.Close()
		return nil, &carrel.Error{Op: op, Kind: carrel.Conflict, Field: "data-dir", Err: fmt.Errorf("another daemon uses %s", dir),
			Hint: "stop it, or give this one a directory of its own with --data-dir"}
	}
	return f, nil
}

// manyFiles is the limit on open files that a daemon wants.
const manyFiles = 1 << 20

// raiseFileLimit raises the soft limit on open files as far as it can, because every connection and
// every sandbox needs some. It returns the new limit.
func raiseFileLimit() uint64 {
	var l unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &l) != nil {
		return 1024
	}
	for _, most := range []uint64{max(l.Max, manyFiles), l.Max} { // the first takes a right
		want := unix.Rlimit{Cur: most, Max: most}
		if l.Cur < most && unix.Setrlimit(unix.RLIMIT_NOFILE, &want) == nil {
			return want.Cur
		}
	}
	return l.Cur
}
