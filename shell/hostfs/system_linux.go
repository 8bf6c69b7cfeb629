package hostfs

import (
	"io/fs"
	"syscall"
	"time"

	"github.com/carrel-dev/carrel/shell/vfs"
)

// system sets the fields that only the system knows.
func system(e *vfs.Entry, fi fs.FileInfo) {
	st, ok := fi.Sys().(*syscall.Stat_t)
	if !ok {
		return
	}
	e.Ino, e.Links, e.UID, e.GID = st.Ino, int(st.Nlink), st.Uid, st.Gid //nolint:unconvert // Nlink's type differs between processors
	e.Accessed, e.Changed = time.Unix(st.Atim.Unix()), time.Unix(st.Ctim.Unix())
}
