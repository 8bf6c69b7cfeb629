//go:build linux

package datadir

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"os"

	"golang.org/x/sys/unix"
)

// Spot is where a directory is.
type Spot struct {
	Host   string `json:"host"` // names the host; "" where it has no name
	Boot   string `json:"boot"`
	Path   string `json:"path"`
	Device uint64 `json:"device"`
	Inode  uint64 `json:"inode"` // 0 on a filesystem without lasting numbers
	Born   int64  `json:"born"`  // ns since 1970; 0 where the filesystem does not tell
}

// is reports whether two spots are those of one directory. now is the present one.
func (s Spot) is(now Spot) bool {
	if s.Inode == 0 || now.Inode == 0 {
		return s.Inode == now.Inode && s.Host == now.Host && s.Path == now.Path
	}
	if s.Inode != now.Inode || s.Born != 0 && now.Born != 0 && s.Born != now.Born {
		return false
	}
	if s.Boot == now.Boot {
		return s.Device == now.Device
	}
	return s.Host == now.Host
}

// Filesystems without lasting inode numbers.
const (
	magicFUSE = 0x65735546
	magic9P   = 0x01021997
)

// spotOf finds out where a directory is.
func spotOf(path string) (Spot, error) {
	s := Spot{Host: hostID(), Boot: bootID(), Path: path}
	var st unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, path, 0, unix.STATX_INO|unix.STATX_BTIME, &st); err != nil {
		return s, &os.PathError{Op: "statx", Path: path, Err: err}
	}
	s.Device = unix.Mkdev(st.Dev_major, st.Dev_minor)
	var fs unix.Statfs_t
	if unix.Statfs(path, &fs) == nil && (fs.Type == magicFUSE || fs.Type == magic9P) {
		return s, nil
	}
	s.Inode = st.Ino
	if st.Mask&unix.STATX_BTIME != 0 {
		s.Born = st.Btime.Sec*1e9 + int64(st.Btime.Nsec)
	}
	return s, nil
}

// hostID names this host. It does not show the machine ID itself, which is confidential.
func hostID() string {
	for _, name := range []string{"/etc/machine-id", "/var/lib/dbus/machine-id"} {
		if b, err := os.ReadFile(name); err == nil && len(bytes.TrimSpace(b)) > 0 {
			sum := sha256.Sum256(append([]byte("carrel data directory "), bytes.TrimSpace(b)...))
			return hex.EncodeToString(sum[:12])
		}
	}
	return ""
}
