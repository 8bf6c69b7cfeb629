package early

import (
	"bytes"
	"strconv"
	"syscall"

	"github.com/carrel-dev/carrel/internal/box/stagebin/assets"
)

func init() {
	if args := commandLine(); len(args) > 1 && args[0] != Whole && args[1] == "run" {
		handOver(args)
	}
}

// commandLine reads this process's arguments. Package os has them too, but is initialised later.
func commandLine() []string {
	fd, err := syscall.Open("/proc/self/cmdline", syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	defer syscall.Close(fd)
	buf := make([]byte, 4096)
	n, err := syscall.Read(fd, buf)
	if err != nil || !isRun(buf[:max(n, 0)]) {
		return nil
	}
	for n == len(buf) { // a long one
		buf = append(buf, make([]byte, len(buf))...)
		m, err := syscall.Read(fd, buf[n:])
		if err != nil {
			return nil
		}
		if n += max(m, 0); m == 0 {
			break
		}
	}
	var args []string
	for _, arg := range bytes.Split(bytes.TrimSuffix(buf[:n], []byte{0}), []byte{0}) {
		args = append(args, string(arg))
	}
	return args
}

// isRun reports whether the second argument is "run".
func isRun(line []byte) bool {
	_, rest, ok := bytes.Cut(line, []byte{0})
	return ok && bytes.HasPrefix(rest, []byte("run\x00"))
}

// handOver becomes the small program. If anything fails, it returns and this process goes on.
func handOver(args []string) {
	whole, err := syscall.Open("/proc/self/exe", oPath, 0) // for handing back
	if err != nil {
		return
	}
	defer syscall.Close(whole)
	fd := kept()
	if fd < 0 {
		fd = load()
	}
	if fd < 0 {
		return
	}
	defer syscall.Close(fd)
	line := append([]string{Small, strconv.Itoa(whole)}, args[2:]...)
	_ = syscall.Exec("/proc/self/fd/"+strconv.Itoa(fd), line, syscall.Environ())
}

const (
	oPath        = 0x200000 // O_PATH
	mfdCloexec   = 0x1
	mfdSealing   = 0x2
	mfdExec      = 0x10
	addSeals     = 1033 // F_ADD_SEALS
	allSeals     = 0xf  // seal, shrink, grow, write
	programChunk = 256 << 10
)

// load puts the small program into a sealed memory file. If the binary was built without it, fd is
// -1.
func load() (fd int) {
	if size() < 0 {
		return -1
	}
	if fd = memory(mfdCloexec | mfdSealing | mfdExec); fd < 0 {
		fd = memory(mfdCloexec | mfdSealing) // for kernels that don't know the last flag
	}
	if fd < 0 {
		return fd
	}
	if !write(fd) {
		_ = syscall.Close(fd)
		return -1
	}
	_, _, _ = syscall.RawSyscall(syscall.SYS_FCNTL, uintptr(fd), addSeals, allSeals)
	return fd
}

// write writes the small program to fd.
func write(fd int) bool {
	src, err := assets.Files.Open(assets.Program)
	if err != nil {
		return false
	}
	at, ok := src.(interface {
		ReadAt(b []byte, off int64) (int, error)
	})
	if !ok {
		return false
	}
	buf := make([]byte, programChunk)
	for off := int64(0); ; {
		n, _ := at.ReadAt(buf, off)
		if n == 0 {
			return off > 0
		}
		if m, err := syscall.Write(fd, buf[:n]); m != n || err != nil {
			return false
		}
		off += int64(n)
	}
}

// size returns the size of the small program; -1 if there is none.
func size() int64 {
	src, err := assets.Files.Open(assets.Program)
	if err != nil {
		return -1
	}
	info, err := src.Stat()
	if err != nil {
		return -1
	}
	return info.Size()
}

// read returns a small asset; "" if there is none.
func read(name string) string {
	text, err := assets.Files.ReadFile(name)
	if err != nil {
		return ""
	}
	return string(text)
}
