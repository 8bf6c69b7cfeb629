package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

var _ = register(map[string]func(target){"mounts": mounts, "naive": naive})

// naive is a box whose only wall is a mount. The next attack removes that. The test starts it in
// its own namespaces.
func naive(t target) {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		panic(err)
	}
	for _, m := range []struct {
		what, at, kind string
		flags          uintptr
	}{{"tmpfs", filepath.Dir(t["secret"]), "tmpfs", 0}, {filepath.Dir(t["file"]), filepath.Dir(t["file"]), "", unix.MS_BIND}, {"", filepath.Dir(t["file"]), "", unix.MS_BIND | unix.MS_REMOUNT | unix.MS_RDONLY}} {
		if err := unix.Mount(m.what, m.at, m.kind, m.flags, ""); err != nil {
			panic(err)
		}
	}
	if _, err := os.ReadFile(t["secret"]); err == nil {
		panic("the mask does not mask")
	}
	if err := appendTo(t["file"]); err == nil {
		panic("the read-only mount is writable")
	}
	mounts(t)
}

// mounts removes masks and mounts other things over existing ones, by the old and the new calls.
func mounts(t target) {
	dir := filepath.Join(t["project"], "mnt")
	_ = os.Mkdir(dir, 0o755)
	// A detached copy of a tree lacks later masks; one that is not recursive has none at all.
	for _, at := range []string{"/", filepath.Dir(filepath.Dir(t["secret"]))} {
		fd, err := unix.OpenTree(unix.AT_FDCWD, at, unix.OPEN_TREE_CLONE)
		if try("open_tree of "+at, err) {
			rel, _ := filepath.Rel(at, t["secret"])
			data, err := os.ReadFile(fmt.Sprintf("/proc/self/fd/%d/%s", fd, rel))
			show("clone of "+at, data, err)
			try("move_mount", unix.MoveMount(fd, "", unix.AT_FDCWD, dir, unix.MOVE_MOUNT_F_EMPTY_PATH))
			_ = unix.Unmount(dir, unix.MNT_DETACH)
		}
	}
	for _, kind := range []string{"tmpfs", "proc", "sysfs", "devpts", "mqueue", "cgroup2", "binfmt_misc", "overlay", "ramfs", "bpf", "fuse"} {
		if try("mount "+kind, unix.Mount(kind, dir, kind, 0, "")) {
			_ = unix.Unmount(dir, unix.MNT_DETACH)
		}
	}
	if fd, err := unix.Fsopen("tmpfs", 0); try("fsopen", err) {
		if try("fsconfig", unix.FsconfigCreate(fd)) {
			m, err := unix.Fsmount(fd, 0, 0)
			if try("fsmount", err) {
				_ = unix.Close(m)
			}
		}
	}
	if fd, err := unix.Fspick(unix.AT_FDCWD, "/", 0); try("fspick", err) {
		_ = unix.Close(fd)
	}
	try("bind", unix.Mount("/", dir, "", unix.MS_BIND|unix.MS_REC, ""))
	data, err := os.ReadFile(dir + t["secret"])
	show("bind", data, err)
	_ = unix.Unmount(dir, unix.MNT_DETACH)
	try("bind without submounts", unix.Mount(filepath.Dir(filepath.Dir(t["secret"])), dir, "", unix.MS_BIND, ""))
	data, err = os.ReadFile(filepath.Join(dir, filepath.Base(filepath.Dir(t["secret"])), filepath.Base(t["secret"])))
	show("bind", data, err)
	_ = unix.Unmount(dir, unix.MNT_DETACH)
	at := filepath.Dir(t["file"])
	try("remount writable", unix.Mount("", at, "", unix.MS_REMOUNT|unix.MS_BIND, ""))
	try("mount_setattr", unix.MountSetattr(unix.AT_FDCWD, at, 0, &unix.MountAttr{Attr_clr: unix.MOUNT_ATTR_RDONLY}))
	fmt.Println("append", appendTo(t["file"]))
	try("propagation", unix.Mount("", "/", "", unix.MS_REC|unix.MS_SHARED, ""))
	try("move", unix.Mount(filepath.Dir(t["secret"]), dir, "", unix.MS_MOVE, ""))
	data, err = os.ReadFile(t["secret"])
	show("after move", data, err)
	// Each mask, the latest first.
	info, _ := os.ReadFile("/proc/self/mountinfo")
	lines := strings.Split(string(info), "\n")
	for i := len(lines) - 1; i >= 0; i-- {
		f := strings.Fields(lines[i])
		if len(f) < 5 || f[4] == "/" {
			continue
		}
		at := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\134`, `\`).Replace(f[4])
		if t.boxed() || strings.HasPrefix(at, filepath.Dir(t["project"])) {
			try("umount "+at, unix.Unmount(at, unix.MNT_DETACH))
		}
	}
	data, err = os.ReadFile(t["secret"])
	show("after umount", data, err)
	fmt.Println("append after umount", appendTo(t["file"]))
	try("pivot_root", unix.PivotRoot(".", "."))
	try("chroot", unix.Chroot("/"))
}
