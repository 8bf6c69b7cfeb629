package keeper

import (
	"net"
	"os"
	"runtime"
	"runtime/debug"
	"sort"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	maxClients = 64
	maxFiles   = 1 << 17
	// idleEnd is how long a keeper without files and clients waits before it ends.
	idleEnd = 5 * time.Second
)

// server is the keeper process.
type server struct {
	path   string
	socket int // the file at path, even if it is renamed; -1 if not known
	idle   time.Duration

	mu    sync.Mutex
	files map[string]int
	peers int
	since time.Time // when it last had a file or a client
}

// serve runs until the keeper has been idle long enough.
func serve(l *net.UnixListener, path string, idle time.Duration) {
	s := &server{path: path, socket: -1, idle: idle, files: make(map[string]int), since: time.Now()}
	if fd, err := unix.Open(path, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0); err == nil {
		s.socket = fd
	}
	var wg sync.WaitGroup
	for {
		_ = l.SetDeadline(time.Now().Add(idle / 4))
		c, err := l.AcceptUnix()
		if err == nil {
			if s.enter() {
				wg.Go(func() { defer s.leave(); s.client(c) })
			} else {
				_ = c.Close()
			}
			continue
		}
		if ne, ok := err.(net.Error); !ok || !ne.Timeout() {
			break
		}
		if s.isForgotten() || s.isIdle() && s.retire(l) {
			break
		}
	}
	wg.Wait()
}

func (s *server) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.peers >= maxClients {
		return false
	}
	s.peers++
	return true
}

func (s *server) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.peers--
	s.since = time.Now()
}

func (s *server) isIdle() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.files) > 0 || s.peers > 0 {
		s.since = time.Now()
		return false
	}
	return time.Since(s.since) >= s.idle
}

// isForgotten reports whether nobody can fetch the kept files any more: no client is connected, and
// the socket was removed with its daemon's whole directory. A moved socket is still the same.
func (s *server) isForgotten() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	var st unix.Stat_t
	return s.peers == 0 && s.socket >= 0 && unix.Fstat(s.socket, &st) == nil && st.Nlink == 0
}

// retire removes the socket, under the lock that Start takes. So a starting daemon finds a keeper
// that stays, or none.
func (s *server) retire(l *net.UnixListener) bool {
	unlock, err := lock(s.path)
	if err != nil {
		return true
	}
	defer unlock()
	// A daemon may have connected just before, and waits in the queue.
	_ = l.SetDeadline(time.Now().Add(10 * time.Millisecond))
	if c, err := l.AcceptUnix(); err == nil {
		_ = c.Close() // it dials again, through Start
	}
	if s.isOurs() {
		_ = os.Remove(s.path)
	}
	_ = l.Close()
	return true
}

// isOurs reports whether the socket at the path is this keeper's. The directory may have been
// moved, and another may lie in its place.
func (s *server) isOurs() bool {
	var own, there unix.Stat_t
	if s.socket < 0 || unix.Fstat(s.socket, &own) != nil || unix.Lstat(s.path, &there) != nil {
		return false
	}
	return own.Dev == there.Dev && own.Ino == there.Ino
}

// client serves one connection until it ends or sends an invalid message.
func (s *server) client(c *net.UnixConn) {
	defer c.Close()
	if checkPeer(c) != nil {
		return
	}
	buf := make([]byte, 1+maxName+1)
	for {
		n, fds, err := receive(c, buf)
		if err != nil || n == 0 {
			closeAll(fds)
			return
		}
		op, name, err := parseRequest(buf[:n], len(fds))
		if err != nil {
			closeAll(fds)
			_ = answer(c, invalid, err.Error(), -1)
			return
		}
		if s.do(c, op, name, fds) != nil {
			return
		}
	}
}

func (s *server) do(c *net.UnixConn, op byte, name string, fds []int) error {
	switch op {
	case opPut:
		if !s.put(name, fds[0]) {
			closeAll(fds)
			return answer(c, full, "the keeper holds all it can", -1)
		}
		return answer(c, okay, "", -1)
	case opGet:
		// Make a copy, because the name may be deleted while this one is sent.
		s.mu.Lock()
		fd, ok := s.files[name]
		var err error
		if ok {
			fd, err = unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
		}
		s.mu.Unlock()
		if !ok {
			return answer(c, notFound, "nothing is kept under this name", -1)
		}
		if err != nil {
			return answer(c, full, err.Error(), -1)
		}
		defer unix.Close(fd)
		return answer(c, okay, "", fd)
	case opDelete:
		s.mu.Lock()
		fd, ok := s.files[name]
		delete(s.files, name)
		s.mu.Unlock()
		if ok {
			_ = unix.Close(fd)
		}
		return answer(c, okay, "", -1)
	default:
		return answer(c, okay, s.list(name), -1)
	}
}

// put keeps fd in place of the name's earlier file.
func (s *server) put(name string, fd int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	old, had := s.files[name]
	if !had && len(s.files) >= maxFiles {
		return false
	}
	if had {
		_ = unix.Close(old)
	}
	s.files[name] = fd
	return true
}

// list returns the names after after, sorted, as many as fit a message.
func (s *server) list(after string) string {
	s.mu.Lock()
	names := make([]string, 0, len(s.files))
	for n := range s.files {
		if n > after {
			names = append(names, n)
		}
	}
	s.mu.Unlock()
	sort.Strings(names)
	size := 0
	for i, n := range names {
		if size += len(n) + 1; size > maxList {
			names = names[:i]
			break
		}
	}
	return strings.Join(names, "\n")
}

func answer(c *net.UnixConn, outcome byte, text string, fd int) error {
	var oob []byte
	if fd >= 0 {
		oob = unix.UnixRights(fd)
	}
	_ = c.SetWriteDeadline(time.Now().Add(10 * time.Second))
	_, _, err := c.WriteMsgUnix(append([]byte{outcome}, text...), oob, nil)
	return err
}

// Main is the keeper process. Its listening socket is file 3, and the socket's path is its second
// argument. With "start" as its first argument, it starts that process and ends, so that the keeper
// becomes a child of init.
func Main() {
	if len(os.Args) == 3 && os.Args[1] == "start" {
		os.Exit(startDetached(os.Args[2]))
	}
	if len(os.Args) != 3 || os.Args[1] != "serve" {
		os.Exit(2)
	}
	runtime.GOMAXPROCS(1)
	debug.SetGCPercent(10)
	raiseFiles()
	f := os.NewFile(listenFD, "listener")
	ln, err := net.FileListener(f)
	_ = f.Close()
	if err != nil {
		os.Exit(1)
	}
	l, ok := ln.(*net.UnixListener)
	if !ok {
		os.Exit(1)
	}
	l.SetUnlinkOnClose(false)
	debug.FreeOSMemory()
	serve(l, os.Args[2], idleEnd)
}

// raiseFiles raises the limit on open files as far as this user may.
func raiseFiles() {
	for _, n := range []uint64{maxFiles + 1024, 0} {
		var r unix.Rlimit
		if unix.Getrlimit(unix.RLIMIT_NOFILE, &r) != nil {
			return
		}
		if n > r.Max {
			r.Max = n
		}
		r.Cur = r.Max
		if unix.Setrlimit(unix.RLIMIT_NOFILE, &r) == nil {
			return
		}
	}
}
