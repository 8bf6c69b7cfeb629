//go:build linux

package guard_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// try connects and prints the result.
func try(name, network, at string) {
	c, err := net.Dial(network, at)
	if err != nil {
		var errno syscall.Errno
		errors.As(err, &errno)
		fmt.Printf("%s: %s\n", name, errno)
		return
	}
	defer c.Close()
	text, _ := io.ReadAll(c)
	fmt.Printf("%s: %s\n", name, text)
}

// dial connects to the Unix sockets of its arguments.
func dial() {
	for _, name := range os.Args[2:] {
		try(name, "unix", name)
	}
}

// sockets connects to every kind of socket and prints the results.
func sockets() {
	inside := func(network, at string) net.Listener {
		l, err := net.Listen(network, at)
		if err != nil {
			fmt.Println("listen", at, err)
			return nil
		}
		if u, ok := l.(*net.UnixListener); ok {
			u.SetUnlinkOnClose(false)
		}
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				_, _ = c.Write([]byte("inside"))
				_ = c.Close()
			}
		}()
		return l
	}
	inside("unix", "own.sock")
	inside("unix", "@own")
	_ = os.Mkdir("dir", 0o755)
	inside("unix", "dir/first.sock")
	_ = os.Rename("dir/first.sock", "dir/renamed.sock")
	_ = inside("unix", "stale.sock").Close()
	_ = os.Symlink("../far.sock", "linked")
	for _, name := range []string{"old.sock", "young.sock", "../far.sock", "own.sock", "dir/renamed.sock", "@own", "stale.sock", "linked"} {
		try(name, "unix", name)
	}
	// Standard input is a connected socket of the machine outside.
	if _, _, e := unix.Syscall(unix.SYS_CONNECT, 0, uintptr(unsafe.Pointer(&make([]byte, 16)[0])), 16); e == 0 {
		fmt.Println("disconnected: escaped")
	} else {
		fmt.Printf("disconnect: %s\n", e)
	}
	l := inside("tcp", "127.0.0.1:0")
	try("tcp", "tcp", l.Addr().String())
	try("192.0.2.1:80", "tcp", "192.0.2.1:80")
}

// flipped is a name whose bytes change while the kernel reads it.
type flipped struct {
	b  []byte
	at int
	to [2]byte
}

func flip(name string, at int, other byte) *flipped {
	return &flipped{append([]byte(name), 0), at, [2]byte{name[at], other}}
}

func (f *flipped) pointer() uintptr { return uintptr(unsafe.Pointer(&f.b[0])) }

// race tries all forbidden operations for some seconds, with names and descriptors that change.
func race() {
	seconds, _ := strconv.Atoi(os.Args[2])
	end := time.Now().Add(time.Duration(seconds) * time.Second)
	var wg sync.WaitGroup
	var done atomic.Bool
	time.AfterFunc(time.Until(end), func() { done.Store(true) })
	loop := func(f func()) {
		wg.Go(func() {
			for !done.Load() {
				f()
			}
		})
	}
	changing := func(f *flipped) *flipped {
		loop(func() {
			for i := range 1000 {
				p := (*uint32)(unsafe.Pointer(&f.b[f.at&^3]))
				v := atomic.LoadUint32(p)
				shift := uint(f.at&3) * 8
				atomic.StoreUint32(p, v&^(0xff<<shift)|uint32(f.to[i&1])<<shift)
			}
			time.Sleep(50 * time.Microsecond) // there are few processors here
		})
		return f
	}
	raceNames(loop, changing)
	raceSockets(loop, changing)
	wg.Wait()
	fmt.Println("raced")
}

// raceNames makes protected names and moves the directories that hold them.
func raceNames(loop func(func()), changing func(*flipped) *flipped) {
	var at int64 = unix.AT_FDCWD
	cwd := uintptr(at)
	file := changing(flip("xmcp.json", 0, '.'))
	loop(func() {
		fd, _, e := unix.Syscall6(unix.SYS_OPENAT, cwd, file.pointer(), unix.O_CREAT|unix.O_RDWR, 0o644, 0, 0)
		if e == 0 {
			_ = unix.Close(int(fd))
		}
		_ = os.Remove("xmcp.json")
	})
	for _, d := range []struct {
		name string
		at   int
	}{{"xvscode", 0}, {".git/xooks", 5}, {".claude/xgents", 8}, {"nested/.git/xooks", 12}} {
		other := byte('h')
		switch d.at {
		case 0:
			other = '.'
		case 8:
			other = 'a'
		}
		f := changing(flip(d.name, d.at, other))
		loop(func() {
			_, _, _ = unix.Syscall(unix.SYS_MKDIRAT, cwd, f.pointer(), 0o755)
			_ = unix.Rmdir(d.name)
		})
	}
	// The repository is moved away, and a hostile one takes its place.
	away := changing(flip("xgit", 0, '.'))
	to := []byte("went\x00")
	_ = os.Mkdir("xgit", 0o755)
	loop(func() {
		_, _, _ = unix.Syscall6(unix.SYS_RENAMEAT2, cwd, away.pointer(), cwd, uintptr(unsafe.Pointer(&to[0])), 0, 0)
		if _, err := os.Lstat(".git"); err != nil {
			_ = os.Mkdir(".git", 0o755)
			_ = os.Mkdir(".git/hooks", 0o755)
			_ = os.Rename("evil", ".git")
			_ = os.Symlink("evil", ".git")
		}
		_ = os.Rename("went", "xgit")
		_ = os.Mkdir("xgit", 0o755)
	})
	link := changing(flip("xclaude", 0, '.'))
	target := []byte("evil\x00")
	loop(func() {
		_, _, _ = unix.Syscall(unix.SYS_SYMLINKAT, uintptr(unsafe.Pointer(&target[0])), cwd, link.pointer())
		_ = os.Remove("xclaude")
		_ = os.Rename(".claude", "noclaude")
		_ = os.Rename("noclaude", ".claude")
		_ = os.Mkdir(".claude", 0o755)
	})
	parent := changing(flip("xested", 0, 'n'))
	aside := []byte("aside\x00")
	loop(func() {
		_, _, _ = unix.Syscall6(unix.SYS_RENAMEAT2, cwd, parent.pointer(), cwd, uintptr(unsafe.Pointer(&aside[0])), 0, 0)
		_ = os.MkdirAll("nested/.git/hooks", 0o755)
		_ = os.Rename("aside", "xested")
		_ = os.Mkdir("xested", 0o755)
	})
}

// raceSockets connects to a socket outside while its name changes to that of another one.
func raceSockets(loop func(func()), changing func(*flipped) *flipped) {
	_ = os.Symlink("../far.sock", "y.link")
	if l, err := net.Listen("unix", "near.sock"); err == nil {
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				_ = c.Close()
			}
		}()
	}
	_ = os.Symlink("near.sock", "x.link")
	name := changing(flip(string([]byte{byte(unix.AF_UNIX), 0})+"x.link", 2, 'y'))
	said := func(fd int) {
		buf := make([]byte, 10)
		if n, _ := unix.Read(fd, buf); n > 0 {
			fmt.Printf("%s\n", buf[:n])
		}
	}
	loop(func() {
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return
		}
		if _, _, e := unix.Syscall(unix.SYS_CONNECT, uintptr(fd), name.pointer(), uintptr(len(name.b))); e == 0 {
			said(fd)
		}
		_ = unix.Close(fd)
	})
	// The descriptor and the family change too.
	lie := changing(flip(string([]byte{byte(unix.AF_UNIX), 0})+"../far.sock", 0, byte(unix.AF_INET)))
	const slot = 200
	loop(func() {
		tcp, err1 := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
		uds, err2 := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err1 == nil && err2 == nil {
			for range 20 {
				_ = unix.Dup3(tcp, slot, unix.O_CLOEXEC)
				_ = unix.Dup3(uds, slot, unix.O_CLOEXEC)
			}
			said(uds)
		}
		_, _ = unix.Close(tcp), unix.Close(uds)
	})
	loop(func() { _, _, _ = unix.Syscall(unix.SYS_CONNECT, slot, lie.pointer(), uintptr(len(lie.b)-1)) })
}
