package early

import (
	"strconv"
	"syscall"

	"github.com/carrel-dev/carrel/internal/box/stagebin/assets"
)

// RuntimeDir returns the directory for files of this user's programs that live until the next start
// of the machine. No box ever sees it, because each box has its own /run. "" if there is none.
func RuntimeDir() string {
	if syscall.Geteuid() == 0 {
		return "/run"
	}
	dir, _ := syscall.Getenv("XDG_RUNTIME_DIR")
	if len(dir) < 6 || dir[:5] != "/run/" {
		return ""
	}
	return dir
}

// kept opens the small program's copy in the runtime directory, and makes it if it is missing.
// Writing the program into memory each time takes longer than all of a box's walls. -1 if there
// can't be a copy.
func kept() int {
	dir, sum := RuntimeDir(), read(assets.Sum)
	if dir == "" || len(sum) < 32 {
		return -1
	}
	dir += "/carrel"
	name := dir + "/run-" + sum[:32]
	if fd := trusted(name); fd >= 0 {
		return fd
	}
	if !ownDir(dir) || !keep(name) {
		return -1
	}
	return trusted(name)
}

// trusted opens a copy that no other user can have written; -1 for any other.
func trusted(name string) int {
	fd, err := syscall.Open(name, syscall.O_RDONLY|syscall.O_CLOEXEC|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return -1
	}
	var st syscall.Stat_t
	if syscall.Fstat(fd, &st) != nil || int(st.Uid) != syscall.Geteuid() || st.Mode != syscall.S_IFREG|0o500 || st.Nlink != 1 || st.Size != size() {
		_ = syscall.Close(fd)
		return -1
	}
	return fd
}

// ownDir makes the directory, or checks that it belongs to nobody else.
func ownDir(dir string) bool {
	_ = syscall.Mkdir(dir, 0o700)
	var st syscall.Stat_t
	err := syscall.Lstat(dir, &st)
	return err == nil && st.Mode&syscall.S_IFMT == syscall.S_IFDIR && st.Mode&0o022 == 0 && int(st.Uid) == syscall.Geteuid()
}

// keep writes the copy under another name and renames it.
func keep(name string) bool {
	beside := name + "." + strconv.Itoa(syscall.Getpid())
	fd, err := syscall.Open(beside, syscall.O_WRONLY|syscall.O_CREAT|syscall.O_EXCL|syscall.O_CLOEXEC|syscall.O_NOFOLLOW, 0o500)
	if err != nil {
		return false
	}
	ok := write(fd) && syscall.Fchmod(fd, 0o500) == nil
	ok = syscall.Close(fd) == nil && ok
	if !ok || syscall.Rename(beside, name) != nil {
		_ = syscall.Unlink(beside)
		return false
	}
	return true
}
