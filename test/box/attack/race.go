package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

var _ = register(map[string]func(target){"raceread": raceRead, "racewrite": raceWrite, "racename": raceName, "racesocket": raceSocket, "raceparent": raceParent})

// race runs change and use at the same time, for "ms" milliseconds.
func race(t target, change, use func()) {
	var stop atomic.Bool
	var wg sync.WaitGroup
	var n atomic.Int64
	for _, f := range []func(){change, use, use} {
		wg.Go(func() {
			for !stop.Load() {
				f()
				n.Add(1)
			}
		})
	}
	time.Sleep(time.Duration(t.number("ms")) * time.Millisecond)
	stop.Store(true)
	wg.Wait()
	fmt.Println("rounds", n.Load())
}

// raceRead turns a directory into a link to the denied one and back, while other goroutines read
// through it.
func raceRead(t target) {
	secret := t["secret"]
	p, good, link := filepath.Join(t["project"], "p"), filepath.Join(t["project"], "good"), filepath.Join(t["project"], "link")
	_ = os.Mkdir(good, 0o755)
	_ = os.WriteFile(filepath.Join(good, filepath.Base(secret)), []byte("fine"), 0o644)
	_ = os.Symlink(filepath.Dir(secret), link)
	_ = os.Symlink(good, p)
	var once sync.Once
	race(t, func() {
		_ = unix.Renameat2(unix.AT_FDCWD, p, unix.AT_FDCWD, link, unix.RENAME_EXCHANGE)
	}, func() {
		data, err := os.ReadFile(filepath.Join(p, filepath.Base(secret)))
		if err == nil && !bytes.Equal(data, []byte("fine")) {
			once.Do(func() { show("through the race", data, nil) })
		}
	})
}

// raceWrite does the same with a file that may not be written. It also creates, renames and links.
func raceWrite(t target) {
	file := t["file"]
	p, good, link := filepath.Join(t["project"], "p"), filepath.Join(t["project"], "good"), filepath.Join(t["project"], "link")
	_ = os.Mkdir(good, 0o755)
	_ = os.Symlink(filepath.Dir(file), link)
	_ = os.Symlink(good, p)
	race(t, func() {
		_ = unix.Renameat2(unix.AT_FDCWD, p, unix.AT_FDCWD, link, unix.RENAME_EXCHANGE)
	}, func() {
		_ = os.WriteFile(filepath.Join(p, filepath.Base(file)), []byte(mark), 0o644)
		_ = os.Remove(filepath.Join(p, "gone"))
		_ = os.Rename(filepath.Join(p, filepath.Base(file)), filepath.Join(p, "gone"))
	})
}

// raceName changes the text of a path between the check and the kernel's own read. "good" and
// "path" have the same length; both are below the working directory.
func raceName(t target) {
	name := append([]byte(t["path"]), 0)
	good := append([]byte(t["good"]), 0)
	buf := bytes.Clone(good)
	var flip atomic.Bool
	race(t, func() {
		from := good
		if flip.Load() {
			from = name
		}
		flip.Store(!flip.Load())
		for i := range from {
			*(*byte)(unsafe.Pointer(&buf[i])) = from[i]
		}
	}, func() {
		cwd := unix.AT_FDCWD
		fd, _, e := unix.Syscall6(unix.SYS_OPENAT, uintptr(cwd), uintptr(unsafe.Pointer(&buf[0])), unix.O_WRONLY|unix.O_CREAT|unix.O_APPEND, 0o755, 0, 0)
		if e == 0 {
			_, _ = unix.Write(int(fd), []byte(mark))
			_ = unix.Close(int(fd))
		}
		_, _, _ = unix.Syscall(unix.SYS_MKDIRAT, uintptr(cwd), uintptr(unsafe.Pointer(&buf[0])), 0o755)
		_, _, _ = unix.Syscall6(unix.SYS_RENAMEAT2, uintptr(cwd), uintptr(unsafe.Pointer(&good[0])), uintptr(cwd), uintptr(unsafe.Pointer(&buf[0])), 0, 0)
		_, _, _ = unix.Syscall6(unix.SYS_LINKAT, uintptr(cwd), uintptr(unsafe.Pointer(&good[0])), uintptr(cwd), uintptr(unsafe.Pointer(&buf[0])), 0, 0)
		_, _, _ = unix.Syscall(unix.SYS_UNLINKAT, uintptr(cwd), uintptr(unsafe.Pointer(&good[0])), unix.AT_REMOVEDIR)
	})
	data, err := os.ReadFile(t["path"])
	show(t["path"], data, err)
}

// raceSocket changes the address of a connect between the check and the use: "good" is a socket of
// its own, "path" the caller's.
func raceSocket(t target) {
	good, bad := filepath.Join(t["project"], t["good"]), t["path"]
	l, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err == nil {
		err = unix.Bind(l, &unix.SockaddrUnix{Name: good})
	}
	fmt.Println("own socket", err, unix.Listen(l, 100))
	go func() {
		for {
			if fd, _, err := unix.Accept(l); err == nil {
				_ = unix.Close(fd)
			}
		}
	}()
	address := func(p string) [110]byte {
		var a [110]byte
		a[0] = unix.AF_UNIX
		copy(a[2:], p)
		return a
	}
	a, b := address(good), address(bad)
	buf := a
	link := filepath.Join(t["project"], "l")
	other := link + "2"
	_, _ = os.Symlink(good, link), os.Symlink(bad, other)
	race(t, func() {
		buf = b
		_ = unix.Renameat2(unix.AT_FDCWD, link, unix.AT_FDCWD, other, unix.RENAME_EXCHANGE)
		buf = a
	}, func() {
		for _, at := range []unsafe.Pointer{unsafe.Pointer(&buf[0]), unsafe.Pointer(linkAddress(link))} {
			fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
			if err != nil {
				return
			}
			if _, _, e := unix.Syscall(unix.SYS_CONNECT, uintptr(fd), uintptr(at), 110); e == 0 {
				_, _ = unix.Write(fd, []byte("mark race"))
			}
			_ = unix.Close(fd)
		}
	})
}

// linkAddress returns the address of a socket in the form of connect.
func linkAddress(p string) *byte {
	var a [110]byte
	a[0] = unix.AF_UNIX
	copy(a[2:], p)
	return &a[0]
}

// raceParent moves a directory with a denied file back and forth while other goroutines read it by
// both names.
func raceParent(t target) {
	dir := filepath.Dir(t["secret"])
	moved := filepath.Join(t["project"], "moved")
	empty := filepath.Join(t["project"], "empty")
	_ = os.Mkdir(empty, 0o755)
	var once sync.Once
	race(t, func() {
		_ = os.Rename(dir, moved)
		_ = os.Rename(moved, dir)
		_ = unix.Renameat2(unix.AT_FDCWD, dir, unix.AT_FDCWD, empty, unix.RENAME_EXCHANGE)
		_ = unix.Renameat2(unix.AT_FDCWD, dir, unix.AT_FDCWD, empty, unix.RENAME_EXCHANGE)
	}, func() {
		for _, d := range []string{dir, moved, empty} {
			if data, err := os.ReadFile(filepath.Join(d, filepath.Base(t["secret"]))); err == nil {
				once.Do(func() { show("through the race", data, nil) })
			}
		}
	})
}
