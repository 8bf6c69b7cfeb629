package main

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// odd makes files that could trick a careless reader of a filesystem. Arguments: DIR PATH…, where
// the paths are on the host. Links lead out, devices stand for other files, attributes look like
// the overlay's own.
func odd(args []string) {
	dir := args[0]
	if err := os.MkdirAll(dir, 0o755); err != nil {
		report("odd", "refused", "%v", err)
		os.Exit(1)
	}
	at := func(format string, a ...any) string { return filepath.Join(dir, fmt.Sprintf(format, a...)) }
	for i, p := range args[1:] {
		_ = os.Symlink(p, at("link-%d", i))
		_ = os.Symlink(filepath.Dir(p), at("dir-%d", i))
		_ = os.Symlink("../../../../../../../../../.."+p, at("up-%d", i))
		_ = os.Symlink("/proc/1/root"+p, at("proc-%d", i))
	}
	for name, dev := range map[string]uint64{"mem": unix.Mkdev(1, 1), "disk": unix.Mkdev(8, 0), "whiteout": 0, "loop": unix.Mkdev(7, 0)} {
		mode := uint32(unix.S_IFCHR | 0o666)
		if name == "disk" || name == "loop" {
			mode = unix.S_IFBLK | 0o666
		}
		result("odd device "+name, unix.Mknod(at("dev-%s", name), mode, int(dev)), "made")
	}
	for name, value := range map[string]string{"trusted.overlay.opaque": "y", "trusted.overlay.redirect": "/etc",
		"trusted.overlay.metacopy": "", "user.overlay.opaque": "y", "security.capability": "xxxx"} {
		result("odd attribute "+name, unix.Setxattr(dir, name, []byte(value), 0), "set")
	}
	if l, err := net.Listen("unix", at("socket")); err == nil {
		l.(*net.UnixListener).SetUnlinkOnClose(false)
		l.Close()
	}
	_ = os.WriteFile(at(".wh.hidden"), []byte("no whiteout"), 0o644)
	_ = os.WriteFile(at(".wh..wh..opq"), nil, 0o644)
	_ = os.WriteFile(at("plain"), []byte("plain\n"), 0o644)
	control("odd", "made")
}

// churn changes a directory as fast as it can, until it is stopped. Argument: DIR. A file that a
// reader checks in one system call is another file in the next.
func churn(args []string) {
	dir := args[0]
	_ = os.MkdirAll(dir, 0o755)
	control("churn", "begins")
	for i := 0; ; i++ {
		a, b := filepath.Join(dir, fmt.Sprint("a", i%7)), filepath.Join(dir, fmt.Sprint("b", i%5))
		_ = os.WriteFile(a, make([]byte, i%5000), 0o644)
		_ = os.Rename(a, b)
		_ = os.Symlink("/", a)
		_ = os.Remove(a)
		_ = os.Mkdir(a, 0o755)
		_ = os.WriteFile(filepath.Join(a, "x"), []byte("x"), 0o644)
		_ = os.RemoveAll(a)
		_ = os.Truncate(b, 1<<20)
		_ = os.Remove(b)
		if i%512 == 0 {
			time.Sleep(time.Millisecond) // others want to run, too
		}
	}
}
