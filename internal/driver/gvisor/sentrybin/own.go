//go:build unix

package sentrybin

import (
	"errors"
	"os"
	"syscall"
)

// openOwn opens a file that belongs to this user, and that every user may execute but none may
// write.
func openOwn(name string) (*os.File, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	var st syscall.Stat_t
	if err = syscall.Fstat(int(f.Fd()), &st); err == nil &&
		(st.Mode&syscall.S_IFMT != syscall.S_IFREG || st.Mode&0o777 != 0o555 || int(st.Uid) != os.Geteuid()) {
		err = errors.New("not ours")
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}
