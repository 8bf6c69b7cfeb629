//go:build linux

package hosted

import (
	"encoding/json"
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// OrderFile writes an order to a driver's stage, in JSON, to a file in memory. The stage inherits it
// and reads it from the beginning.
func OrderFile(order any) (*os.File, error) {
	b, err := json.Marshal(order)
	if err != nil {
		return nil, err
	}
	fd, err := unix.MemfdCreate("order", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	f := os.NewFile(uintptr(fd), "order")
	if _, err = f.Write(b); err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// ReadOrder reads, in the stage, the order from the descriptor that [OrderFile]'s file became.
func ReadOrder(fd uintptr, order any) error {
	b, err := io.ReadAll(os.NewFile(fd, "order"))
	if err != nil {
		return err
	}
	return json.Unmarshal(b, order)
}
