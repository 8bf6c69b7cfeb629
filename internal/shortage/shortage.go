// Package shortage recognises errors that mean that this machine, and not a program, lacks
// something: room on a disk, inodes, descriptors. Such an error is nobody's fault, passes by, and
// has a remedy.
package shortage

import (
	"errors"
	"os"
	"syscall"

	"github.com/carrel-dev/carrel"
)

// Names of what is missing, as in the Field of a [carrel.Error].
const (
	Disk   = "disk"
	Inodes = "inodes"
	Files  = "files"
)

// Hints for each of them.
const (
	HintDisk  = "free some space (or inodes, see df -i) on the host's disk, kill sandboxes, or delete snapshots"
	HintFiles = "raise the daemon's limit on open files (LimitNOFILE= in its unit, or ulimit -Hn), or close connections"
)

// Of returns what is missing and a hint, or "" if err means something else.
func Of(err error) (field, hint string) {
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return Disk, HintDisk
	case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE):
		return Files, HintFiles
	}
	return "", ""
}

// Now is Of for errors that may have lost their cause on the way, such as those of another process
// or of a database. It also checks whether this process can open a file at all.
func Now(err error) (field, hint string) {
	if field, hint = Of(err); field != "" || err == nil {
		return field, hint
	}
	f, open := os.Open(os.DevNull)
	if open == nil {
		_ = f.Close()
		if fewFiles() {
			return Files, HintFiles
		}
		return "", ""
	}
	return Of(open)
}

// Named reports whether an error already names one of the shortages as its field.
func Named(err error) bool {
	var e *carrel.Error
	return errors.As(err, &e) && (e.Field == Disk || e.Field == Inodes || e.Field == Files)
}

// Explain returns err as an error of kind Exhausted with a hint, if it is an internal error that
// means a shortage. It returns other errors as they are.
func Explain(op string, id carrel.ID, err error) error {
	if err == nil || carrel.KindOf(err) != carrel.Internal {
		return err
	}
	field, hint := Now(err)
	if field == "" {
		return err
	}
	var inner *carrel.Error
	if errors.As(err, &inner) && err == error(inner) && inner.Op == op {
		err = inner.Err
	}
	return &carrel.Error{Op: op, Kind: carrel.Exhausted, ID: id, Field: field, Err: err, Hint: hint}
}
