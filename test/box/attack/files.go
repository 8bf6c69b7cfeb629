package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

var _ = register(map[string]func(target){
	"read": readAll, "write": writeEveryWay, "dotdot": dotdot, "symlink": symlinks, "rename": renames,
	"links": hardLinks, "reopen": reopen, "plant": plant, "fds": leakedFiles, "exe": overwriteExe, "handle": byHandle, "scratch": scratch,
	"gitswap": swapGit,
})

// mark is the text that an attack writes into canaries.
const mark = "written by the attack\n"

// readAll reads the files and lists the directories in "paths". It tries every way to open one.
func readAll(t target) {
	for _, p := range strings.Split(t["paths"], ":") {
		data, err := os.ReadFile(p)
		show(p, data, err)
		entries, err := os.ReadDir(p)
		show("list "+p, []byte(fmt.Sprint(entries)), err)
		target, err := os.Readlink(p)
		show("link "+p, []byte(target), err)
		for _, flags := range []uint64{unix.O_PATH, unix.O_RDONLY | unix.O_NONBLOCK} {
			fd, err := unix.Openat2(unix.AT_FDCWD, p, &unix.OpenHow{Flags: flags})
			if err != nil {
				continue
			}
			data, err := os.ReadFile(fmt.Sprintf("/proc/self/fd/%d", fd))
			show("openat2 "+p, data, err)
			_ = unix.Close(fd)
		}
		buf := make([]byte, 4096)
		n, err := unix.Getxattr(p, "user.secret", buf)
		show("xattr "+p, buf[:max(n, 0)], err)
	}
}

// writeEveryWay changes "file" and its directory, by each call that can do it.
func writeEveryWay(t target) {
	file := t["file"]
	dir := filepath.Dir(file)
	path := func(name string) string { return filepath.Join(dir, name) }
	try("append", appendTo(file))
	try("truncate", os.Truncate(file, 0))
	try("chmod", os.Chmod(file, 0o777))
	_, _, e := unix.Syscall6(unix.SYS_FCHMODAT2, ^uintptr(99), uintptr(cstring(file)), 0o757, 0, 0, 0)
	try("fchmodat2", errno(e))
	try("utimes", os.Chtimes(file, time.Unix(1, 0), time.Unix(1, 0)))
	try("setxattr", unix.Setxattr(file, "user.attack", []byte("x"), 0))
	try("removexattr", unix.Removexattr(file, "user.attack"))
	try("create", os.WriteFile(path("new"), []byte(mark), 0o600))
	try("mkdir", os.Mkdir(path("newdir"), 0o700))
	try("symlink", os.Symlink("/", path("newlink")))
	try("fifo", unix.Mkfifo(path("newfifo"), 0o600))
	try("hard link", os.Link(file, path("newhard")))
	try("rename", os.Rename(file, path("renamed")))
	try("rename back", os.Rename(path("renamed"), file))
	try("exchange", unix.Renameat2(unix.AT_FDCWD, file, unix.AT_FDCWD, path("new"), unix.RENAME_EXCHANGE))
	if fd, err := unix.Open(file, unix.O_RDONLY, 0); err == nil {
		try("fchmod", unix.Fchmod(fd, 0o707))
		try("fchown", unix.Fchown(fd, os.Getuid(), os.Getgid()))
		try("ftruncate", unix.Ftruncate(fd, 0))
		try("write to a reading descriptor", func() error { _, err := unix.Write(fd, []byte(mark)); return err }())
		_, err := unix.Mmap(fd, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		try("shared map", err)
		flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
		if err == nil {
			_, err = unix.FcntlInt(uintptr(fd), unix.F_SETFL, flags|unix.O_RDWR)
			if got, _ := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0); err == nil && got&unix.O_ACCMODE == unix.O_RDONLY {
				err = unix.EPERM // the kernel ignores it
			}
			try("fcntl", err)
		}
		_ = unix.Close(fd)
	}
	if fd, err := unix.Open(dir, unix.O_TMPFILE|unix.O_RDWR, 0o600); err == nil {
		try("nameless file", nil)
		try("name for it", unix.Linkat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", fd), unix.AT_FDCWD, path("tmpfile"), unix.AT_SYMLINK_FOLLOW))
		_ = unix.Close(fd)
	}
	l, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err == nil {
		try("socket file", unix.Bind(l, &unix.SockaddrUnix{Name: path("newsock")}))
	}
	try("remove", os.Remove(file))
	try("remove the directory", os.RemoveAll(dir))
	try("move the directory", os.Rename(dir, t["project"]+"/stolen"))
}

func appendTo(file string) error {
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.WriteString(mark)
	return err
}

// dotdot leaves the working directory upwards, also after chroot.
func dotdot(t target) {
	rel, err := filepath.Rel(t["project"], t["file"])
	if err != nil {
		panic(err)
	}
	try("relative", appendTo(rel))
	try("/proc/self/cwd", appendTo("/proc/self/cwd/"+rel))
	try("/proc/self/root", appendTo("/proc/self/root"+t["file"]))
	try("/dev/fd", func() error {
		fd, err := unix.Open(".", unix.O_PATH|unix.O_DIRECTORY, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		return appendTo(fmt.Sprintf("/dev/fd/%d/%s", fd, rel))
	}())
	if os.Mkdir("jail", 0o755) == nil {
		// The classical escape from a chroot: keep a directory above the new root open.
		up, _ := unix.Open(".", unix.O_RDONLY|unix.O_DIRECTORY, 0)
		err := unix.Chroot("jail")
		fmt.Printf("no chroot: %v\n", err)
		_ = unix.Fchdir(up)
		for range 30 {
			_ = unix.Chdir("..")
		}
		_ = unix.Chroot(".")
		try("after chroot", appendTo(strings.TrimPrefix(t["file"], "/")))
	}
}

// symlinks reads "secret" and writes "file" through links in the working directory.
func symlinks(t target) {
	for i, to := range []string{t["file"], filepath.Dir(t["file"]), t["secret"], filepath.Dir(t["secret"])} {
		link := filepath.Join(t["project"], fmt.Sprintf("link%d", i))
		_ = os.Symlink(to, link)
		chain := link + "-chain"
		_ = os.Symlink(filepath.Base(link), chain)
		for _, p := range []string{link, chain, chain + "/" + filepath.Base(t["file"])} {
			_ = appendTo(p)
			_ = os.WriteFile(filepath.Join(p, "new"), []byte(mark), 0o600)
		}
		for _, p := range []string{chain, chain + "/" + filepath.Base(t["secret"])} {
			data, err := os.ReadFile(p)
			show(p, data, err)
		}
		// Move a link to the denied file into place and back.
		_ = os.Rename(link, link+"-moved")
		data, err := os.ReadFile(link + "-moved")
		show(link, data, err)
	}
}

// renames moves the directories above a denied file and looks again. "secret" is below "project".
func renames(t target) {
	rel, _ := filepath.Rel(t["project"], t["secret"])
	parts := strings.Split(rel, "/")
	for i := range parts {
		at := filepath.Join(append([]string{t["project"]}, parts[:i+1]...)...)
		for _, to := range []string{at + ".moved", filepath.Join(t["project"], "elsewhere"), filepath.Join("/tmp", "elsewhere"), "/dev/shm/elsewhere"} {
			err := os.Rename(at, to)
			fmt.Printf("rename %s to %s: %v\n", at, to, err)
			data, err := os.ReadFile(filepath.Join(append([]string{to}, parts[i+1:]...)...))
			show(to, data, err)
			_ = os.Rename(to, at)
		}
		// Or put something else in its place, with the old one next to it.
		other := filepath.Join(t["project"], fmt.Sprintf("other%d", i))
		_ = os.Mkdir(other, 0o755)
		if err := unix.Renameat2(unix.AT_FDCWD, at, unix.AT_FDCWD, other, unix.RENAME_EXCHANGE); err == nil {
			data, err := os.ReadFile(filepath.Join(append([]string{other}, parts[i+1:]...)...))
			show(other, data, err)
			_ = unix.Renameat2(unix.AT_FDCWD, at, unix.AT_FDCWD, other, unix.RENAME_EXCHANGE)
		}
	}
	// A denied file may lose its mask if its directory is removed.
	_ = os.RemoveAll(filepath.Join(t["project"], parts[0]))
	data, err := os.ReadFile(t["secret"])
	show("after removal "+t["secret"], data, err)
}

// hardLinks makes hard links across the wall.
func hardLinks(t target) {
	in := filepath.Join(t["project"], "hard")
	for i, from := range []string{t["file"], t["secret"]} {
		name := fmt.Sprintf("%s%d", in, i)
		err := os.Link(from, name)
		fmt.Printf("link %s: %v\n", from, err)
		if fd, e := unix.Open(from, unix.O_PATH, 0); e == nil {
			e = unix.Linkat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", fd), unix.AT_FDCWD, name+"p", unix.AT_SYMLINK_FOLLOW)
			fmt.Printf("link by descriptor %s: %v\n", from, e)
			e = unix.Linkat(fd, "", unix.AT_FDCWD, name+"e", unix.AT_EMPTY_PATH)
			fmt.Printf("link of descriptor %s: %v\n", from, e)
		}
		for _, n := range []string{name, name + "p", name + "e"} {
			_ = appendTo(n)
			data, err := os.ReadFile(n)
			show(n, data, err)
		}
	}
	_ = os.WriteFile(in, []byte(mark), 0o600)
	try("a name outside", os.Link(in, filepath.Join(filepath.Dir(t["file"]), "hard")))
}

// reopen opens readable descriptors (standard input among them) again for writing.
func reopen(t target) {
	fd, err := unix.Open(t["file"], unix.O_RDONLY, 0)
	fmt.Printf("open %s: %v\n", t["file"], err)
	for _, n := range []int{fd, 0} {
		for _, dir := range []string{"/proc/self/fd", "/dev/fd", "/proc/thread-self/fd", fmt.Sprintf("/proc/%d/fd", os.Getpid())} {
			p := fmt.Sprintf("%s/%d", dir, n)
			try("append to "+p, appendTo(p))
			try("truncate "+p, os.Truncate(p, 3))
			try("chmod "+p, os.Chmod(p, 0o777))
		}
	}
}

// plant creates each of "paths" in several ways.
func plant(t target) {
	for _, p := range strings.Split(t["paths"], ":") {
		_ = os.MkdirAll(filepath.Dir(p), 0o755)
		say("create "+p, os.WriteFile(p, []byte(mark), 0o755))
		say("append "+p, appendTo(p))
		tmp := filepath.Join(t["project"], "prepared")
		_ = os.RemoveAll(tmp)
		if os.WriteFile(tmp, []byte(mark), 0o755) == nil {
			say("rename to "+p, os.Rename(tmp, p))
			_ = os.WriteFile(tmp, []byte(mark), 0o755)
			say("exchange with "+p, unix.Renameat2(unix.AT_FDCWD, tmp, unix.AT_FDCWD, p, unix.RENAME_EXCHANGE))
			say("link to "+p, os.Link(tmp, p))
			_ = os.Remove(tmp + ".link")
			say("symlink "+p, os.Symlink(tmp, p))
		}
		// Make the complete directory in another place and move it here.
		if dir := filepath.Dir(p); dir != t["project"] {
			_ = os.MkdirAll(tmp+".d", 0o755)
			_ = os.WriteFile(filepath.Join(tmp+".d", filepath.Base(p)), []byte(mark), 0o755)
			say("move away "+dir, os.Rename(dir, tmp+".old"))
			say("move a directory to "+dir, os.Rename(tmp+".d", dir))
			_ = os.RemoveAll(tmp + ".d")
		}
		say("unlink "+p, unlink(p))
		say("unlink what leads to "+p, unlink(filepath.Dir(p)))
		say("rmdir what leads to "+p, rmdir(filepath.Dir(p)))
		_ = os.MkdirAll(filepath.Dir(p), 0o755)
		say("create after unlink "+p, os.WriteFile(p, []byte(mark), 0o755))
		say("remove "+p, os.Remove(p))
		say("create again "+p, os.WriteFile(p, []byte(mark), 0o755))
		// Move the repository back to the files that were made without it.
		say("move the repository back", os.Rename(tmp+".old/.git", filepath.Join(filepath.Dir(p), ".git")))
	}
}

// say prints the result of a step. The test judges later whether it did harm.
func say(what string, err error) { fmt.Printf("%s: %v\n", what, err) }

// swapGit moves a whole repository directory away and a copy with a hook into its place.
func swapGit(t target) {
	git, fake := filepath.Join(t["project"], ".git"), filepath.Join(t["project"], "fake")
	_ = os.MkdirAll(fake+"/hooks", 0o755)
	_ = os.WriteFile(fake+"/hooks/post-checkout", []byte(mark), 0o755)
	_ = os.WriteFile(fake+"/config", []byte(mark), 0o644)
	fmt.Println(unix.Renameat2(unix.AT_FDCWD, git, unix.AT_FDCWD, fake, unix.RENAME_EXCHANGE))
	fmt.Println(os.Rename(git, git+".old"), os.Rename(fake, git))
	// A file ".git" can point git to any directory.
	fmt.Println(os.WriteFile(git, []byte("gitdir: "+fake+"\n"), 0o644))
	fmt.Println(os.Symlink("fake", git))
	// From a working directory inside the repository.
	fmt.Println(os.Chdir(git+"/objects"), os.WriteFile("../hooks/post-checkout", []byte(mark), 0o755))
	fmt.Println(os.Rename("../hooks", "../hooks.old"), os.Mkdir("../hooks", 0o755), os.WriteFile("../hooks/post-checkout", []byte(mark), 0o755))
}

// leakedFiles uses the descriptors that the caller had open.
func leakedFiles(t target) {
	dirs := []string{"/proc/self/fd"}
	if t.boxed() {
		more, _ := filepath.Glob("/proc/[0-9]*/fd")
		dirs = append(dirs, more...)
	}
	for _, dir := range dirs {
		for n := range 300 {
			p := fmt.Sprintf("%s/%d", dir, n)
			if n < 3 && dir == "/proc/self/fd" || n == 0 {
				continue
			}
			to, err := os.Readlink(p)
			if err != nil || strings.HasPrefix(to, "anon_inode:") || strings.HasPrefix(to, "pipe:") || strings.HasPrefix(to, "/proc/") {
				continue
			}
			if info, err := os.Stat(p); err == nil && info.IsDir() {
				for _, up := range []string{"", "/..", "/../..", "/../../.."} {
					data, err := os.ReadFile(p + up + t["below"])
					show(p+up, data, err)
				}
				continue
			}
			data := make([]byte, 100)
			fd, err := unix.Open(p, unix.O_RDONLY|unix.O_NONBLOCK, 0)
			if err == nil {
				n, err := unix.Read(fd, data)
				show(p, data[:max(n, 0)], err)
			}
		}
	}
	// Without /proc.
	for n := 3; n < 300; n++ {
		data := make([]byte, 100)
		if m, err := unix.Pread(n, data, 0); err == nil && m > 0 {
			show(fmt.Sprint("descriptor ", n), data[:m], nil)
		}
		if fd, err := unix.Openat(n, strings.TrimPrefix(t["below"], "/"), unix.O_RDONLY, 0); err == nil {
			m, err := unix.Read(fd, data)
			show(fmt.Sprint("below ", n), data[:max(m, 0)], err)
		}
	}
}

// overwriteExe writes to the program that runs the box, by its path and by /proc.
func overwriteExe(t target) {
	paths := []string{t["program"]}
	if t.boxed() {
		more, _ := filepath.Glob("/proc/[0-9]*/exe")
		for _, p := range append(more, "/proc/self/exe") {
			// This program itself may be read: that is not the point here. But it may not be
			// written.
			if fd, err := unix.Open(p, unix.O_RDONLY, 0); err == nil {
				paths = append(paths, fmt.Sprintf("/proc/self/fd/%d", fd))
			}
			paths = append(paths, p)
		}
	}
	for _, p := range paths {
		for range 20 {
			if try("write to "+p, appendTo(p)) {
				break
			}
			time.Sleep(time.Millisecond)
		}
	}
}

// byHandle opens a file by a handle that the test took outside.
func byHandle(t target) {
	var raw []byte
	_, _ = fmt.Sscanf(t["handle"], "%x", &raw)
	for _, at := range []string{t["project"], "/", "/tmp", "/proc", "/dev"} {
		fd, err := unix.Open(at, unix.O_RDONLY|unix.O_DIRECTORY, 0)
		if err != nil {
			continue
		}
		h := unix.NewFileHandle(int32(t.number("type")), raw)
		got, err := unix.OpenByHandleAt(fd, h, unix.O_RDONLY)
		fmt.Printf("by handle below %s: %v\n", at, err)
		if err == nil {
			data := make([]byte, 100)
			n, err := unix.Read(got, data)
			show(at, data[:max(n, 0)], err)
		}
	}
}

// scratch writes files to the directories that everybody shares. The test looks for them outside.
func scratch(t target) {
	for _, p := range strings.Split(t["paths"], ":") {
		fmt.Println(p, os.WriteFile(p, []byte(mark), 0o644))
	}
}
