package main

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// maxRead is the most bytes of a file that are searched.
const maxRead = 256 << 10

// canaries looks for a token in the host's files. Arguments: CONTROL TOKEN PATH… It tries each path
// in every spelling that has ever led out of a jail. Then it reads every file that it can find. It
// must find the file /tmp/control, which the suite planted inside; otherwise the search proves
// nothing.
func canaries(args []string) {
	inside, token, paths := args[0], []byte(args[1]), args[2:]
	if holds("/tmp/control", []byte(inside)) {
		control("canaries", "the planted file inside is found")
	}
	dir, err := os.MkdirTemp("", "links")
	if err != nil {
		dir = "/tmp"
	}
	for i, p := range paths {
		link := filepath.Join(dir, fmt.Sprint("link", i))
		_ = os.Symlink(p, link)
		spellings := []string{p, "/.." + p, strings.Repeat("/..", 40) + p, link,
			"/proc/1/root" + p, "/proc/self/root" + p, "/proc/self/cwd/" + strings.Repeat("../", 40) + p,
			"/proc/thread-self/root" + p, "/.carrel/.." + p, "/.carrel/../.." + p}
		for fd := range 20 {
			spellings = append(spellings, fmt.Sprintf("/proc/self/fd/%d%s", fd, p), fmt.Sprintf("/proc/1/fd/%d%s", fd, p),
				fmt.Sprintf("/proc/1/fd/%d/..%s", fd, p), fmt.Sprintf("/proc/self/fd/%d/../../..%s", fd, p))
		}
		for _, s := range spellings {
			if holds(s, token) {
				worked("canary", "%s", s)
			}
		}
	}
	chrootOut(token, paths)
	search(token, "/")
	report("canaries", "refused", "searched")
}

// chrootOut tries the old way out of a chroot: it keeps a directory open, enters a second chroot
// below it, and leaves through the open directory.
func chrootOut(token []byte, paths []string) {
	here, err := unix.Open("/", unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return
	}
	defer unix.Close(here)
	if os.Mkdir("/tmp/jail", 0o755) != nil || unix.Chroot("/tmp/jail") != nil {
		return
	}
	_ = unix.Fchdir(here)
	for range 64 {
		_ = unix.Chdir("..")
	}
	for _, p := range paths {
		if holds("."+p, token) {
			worked("chroot", "%s", p)
		}
	}
	_ = unix.Fchdir(here)
	_ = unix.Chroot(".")
}

// search reads every small regular file below root.
func search(token []byte, root string) {
	left := 40000
	_ = filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil
		}
		if d.IsDir() && (p == "/usr" || p == "/sys" || p == "/proc" || p == "/dev") {
			return filepath.SkipDir
		}
		if left--; left < 0 {
			return filepath.SkipAll
		}
		if d.Type().IsRegular() && holds(p, token) {
			worked("canary", "%s", p)
		}
		return nil
	})
}

// holds reports whether a file contains the token.
func holds(name string, token []byte) bool {
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return false
	}
	defer f.Close()
	if st, err := f.Stat(); err != nil || st.IsDir() {
		return false
	}
	b, _ := io.ReadAll(io.LimitReader(f, maxRead))
	return bytes.Contains(b, token)
}

// environ looks for a token in the environment and arguments of every process. Arguments: CONTROL
// TOKEN. Its own environment holds the control.
func environ(args []string) {
	all, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range append(all, "/proc/self") {
		for _, f := range []string{"environ", "cmdline"} {
			b, err := os.ReadFile(filepath.Join(dir, f))
			if err != nil {
				continue
			}
			if f == "environ" && bytes.Contains(b, []byte(args[0])) {
				control("environ", "own environment is readable")
			}
			if bytes.Contains(b, []byte("CANARY_TOKEN="+args[1])) || f == "cmdline" && bytes.Contains(b, []byte("host-"+args[1])) {
				worked("environ", "%s/%s", dir, f)
			}
		}
	}
	report("environ", "refused", "looked at %d processes", len(all))
}

// procWrites writes to the kernel's settings. Argument: TOKEN. The suite compares the host's
// settings.
func procWrites(args []string) {
	for name, text := range map[string]string{
		"/proc/sys/kernel/core_pattern":       "|/tmp/" + args[0],
		"/proc/sys/kernel/modprobe":           "/tmp/" + args[0],
		"/proc/sys/kernel/domainname":         args[0],
		"/proc/sys/vm/drop_caches":            "0",
		"/proc/sysrq-trigger":                 "h",
		"/proc/sys/fs/binfmt_misc/register":   ":" + args[0][:8] + ":M::xx::/tmp/x:",
		"/sys/kernel/uevent_helper":           "/tmp/" + args[0],
		"/sys/kernel/mm/transparent_hugepage": "never",
		"/sys/power/wake_lock":                args[0],
		"/sys/fs/cgroup/cgroup.procs":         "1",
		"/sys/fs/cgroup/memory/release_agent": "/tmp/" + args[0],
	} {
		f, err := os.OpenFile(name, os.O_WRONLY, 0)
		if err == nil {
			_, err = f.WriteString(text)
			_ = f.Close()
		}
		result("write "+name, err, "written")
	}
	if os.WriteFile("/tmp/knob", []byte("x"), 0o600) == nil {
		control("proc", "files can be written")
	}
}

// mounts mounts filesystems that might show the host, and looks for the token in them. Arguments:
// TOKEN PATH…
func mounts(args []string) {
	token, paths := []byte(args[0]), args[1:]
	for i, m := range []struct{ source, kind, data string }{
		{"none", "tmpfs", ""}, {"none", "proc", ""}, {"none", "sysfs", ""}, {"none", "devtmpfs", ""}, {"none", "debugfs", ""},
		{"none", "cgroup2", ""}, {"none", "securityfs", ""}, {"none", "bpf", ""}, {"/", "bind", ""}, {"/proc/1/root", "bind", ""},
		{"overlay", "overlay", "lowerdir=/proc/1/root,upperdir=/tmp/up,workdir=/tmp/work"},
		{"/dev/vda", "ext4", ""}, {"/dev/sda1", "ext4", ""}, {"none", "9p", "trans=fd,rfdno=3,wfdno=3"},
	} {
		dir := fmt.Sprintf("/tmp/mnt%d", i)
		for _, d := range []string{dir, "/tmp/up", "/tmp/work"} {
			_ = os.MkdirAll(d, 0o755)
		}
		var flags uintptr
		kind := m.kind
		if kind == "bind" {
			flags, kind = unix.MS_BIND|unix.MS_REC, ""
		}
		err := unix.Mount(m.source, dir, kind, flags, m.data)
		result("mount "+m.kind+" "+m.source, err, "mounted")
		if err != nil {
			continue
		}
		for _, p := range paths {
			if holds(dir+p, token) || holds(dir+"/1/root"+p, token) {
				worked("canary", "%s in %s of %s", p, m.kind, m.source)
			}
		}
		_ = unix.Unmount(dir, unix.MNT_DETACH)
	}
}

// devices makes and reads device nodes. Reading any of them is an escape.
func devices([]string) {
	_ = os.MkdirAll("/tmp/dev", 0o755)
	for _, d := range []struct {
		name         string
		block        bool
		major, minor uint32
	}{
		{"mem", false, 1, 1}, {"kmem", false, 1, 2}, {"port", false, 1, 4}, {"kmsg", false, 1, 11},
		{"sda", true, 8, 0}, {"sda1", true, 8, 1}, {"vda", true, 252, 0}, {"vda2", true, 253, 0}, {"vda3", true, 254, 0},
		{"nvme", true, 259, 0}, {"loop0", true, 7, 0}, {"dm", true, 253, 0}, {"kvm", false, 10, 232}, {"fuse", false, 10, 229},
	} {
		kind := uint32(unix.S_IFCHR)
		if d.block {
			kind = unix.S_IFBLK
		}
		node := "/tmp/dev/" + d.name
		_ = os.Remove(node)
		_ = unix.Mknod(node, kind|0o666, int(unix.Mkdev(d.major, d.minor)))
		for _, path := range []string{node, "/dev/" + d.name} {
			err := readDevice(path)
			result("device "+path, err, "read")
		}
	}
	if readDevice("/dev/zero") == nil {
		control("devices", "/dev/zero can be read")
	}
}

func readDevice(path string) error {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	n, err := unix.Read(fd, make([]byte, 512))
	if err == nil && n == 0 {
		return io.EOF
	}
	return err
}
