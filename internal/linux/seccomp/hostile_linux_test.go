package seccomp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// openat makes the raw call. Other threads may write to the path at the same time.
func openat(path *byte, flags int) (int, unix.Errno) {
	fd, _, e := unix.Syscall6(unix.SYS_OPENAT, ^uintptr(99), ptr(path), uintptr(flags), 0, 0, 0)
	return int(fd), e
}

func init() {
	// flip opens a path that another thread changes all the time, and prints the contents of the
	// files.
	children["flip"] = func(args []string) {
		good, _ := unix.ByteSliceFromString(args[0])
		bad, _ := unix.ByteSliceFromString(args[1])
		path := make([]byte, 4096)
		copy(path, good)
		var stop atomic.Bool
		go func() {
			runtime.LockOSThread()
			for i := 0; !stop.Load(); i++ {
				if i%2 == 0 {
					copy(path, bad)
				} else {
					copy(path, good)
				}
			}
		}()
		seen := map[string]int{}
		buf := make([]byte, 16)
		for range atoi(args[2]) {
			fd, e := openat(&path[0], unix.O_RDWR)
			if e != 0 {
				seen[e.Error()]++
				continue
			}
			n, err := unix.Pread(fd, buf, 0)
			for err == unix.EINTR { //nolint:errorlint // package unix returns bare numbers
				n, err = unix.Pread(fd, buf, 0)
			}
			if err != nil {
				seen[err.Error()]++
			} else {
				seen[string(buf[:n])]++
			}
			_ = unix.Close(fd)
		}
		stop.Store(true)
		fmt.Println(seen)
	}
	children["threads"] = func(args []string) {
		var all sync.WaitGroup
		var wrong atomic.Int64
		for i := range atoi(args[0]) {
			all.Go(func() {
				runtime.LockOSThread()
				for j := range atoi(args[1]) {
					n := i*1000 + j
					name, _ := unix.BytePtrFromString(fmt.Sprintf("/%d", n))
					if got, e := openat(name, unix.O_RDWR); got != n || e != 0 {
						wrong.Add(1)
					}
				}
			})
		}
		all.Wait()
		fmt.Println(wrong.Load())
	}
	children["signals"] = func(args []string) {
		got := make(chan os.Signal, 1000)
		signal.Notify(got, unix.SIGALRM)
		_, _ = unix.Setitimer(unix.ITIMER_REAL, unix.Itimerval{Interval: unix.Timeval{Usec: 500}, Value: unix.Timeval{Usec: 500}})
		name, _ := unix.BytePtrFromString("/signals")
		for range atoi(args[0]) {
			if n, e := openat(name, unix.O_RDWR); n != 77 || e != 0 {
				fmt.Println(n, e)
			}
		}
		_, _ = unix.Setitimer(unix.ITIMER_REAL, unix.Itimerval{})
		fmt.Println(len(got) > 0)
	}
	children["file"] = func(args []string) {
		for _, name := range args {
			p, _ := unix.BytePtrFromString(name)
			fd, e := openat(p, unix.O_RDWR)
			buf := make([]byte, 100)
			n, _ := unix.Pread(fd, buf, 0)
			flags, _ := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
			fmt.Printf("%q %d %v\n", buf[:max(n, 0)], flags, e)
		}
	}
	children["one"] = func(args []string) {
		p, _ := unix.BytePtrFromString("/one")
		n, e := openat(p, unix.O_RDWR)
		fmt.Println(n, e)
		_, _ = io.Copy(io.Discard, os.Stdin)
	}
	children["nested"] = func(args []string) {
		runtime.LockOSThread()
		_, err := Install(Filter{WatchConnect: true})
		fmt.Println(errors.Is(err, unix.EBUSY))
		_, err = Install(Filter{WatchConnect: true, Network: true}.Quiet())
		_, err2 := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
		fmt.Println(err, err2)
	}
}

// TestFlippedMemory opens files while the caller changes the path at full speed. A file that the
// handler opens must be the one that it decided on. (With Continue the kernel sooner or later opens
// the other one. That is why the handler opens the file.)
func TestFlippedMemory(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"good", "bad!"} {
		if err := os.WriteFile(dir+"/"+name, []byte(name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, trusting := range []bool{false, true} {
		f := Filter{WatchWrites: true}
		c := start(t, f, "flip", dir+"/good", dir+"/bad!", "3000")
		c.serve(t, f, func(c Call) Answer {
			p, err := c.Path(0, 1)
			if err != nil || p != dir+"/good" {
				return Answer{Errno: unix.EACCES}
			}
			if trusting {
				return Answer{Continue: true}
			}
			file, err := os.OpenFile(p, os.O_RDWR, 0)
			if err != nil {
				return Answer{Errno: unix.EIO}
			}
			return Answer{File: file}
		})
		out := c.finish(t)
		t.Logf("trusting %v: %s", trusting, out)
		if !trusting && (strings.Contains(out, "bad") || !strings.Contains(out, "good")) {
			t.Errorf("the caller got %s", out)
		}
	}
}

// TestManyThreads runs hundreds of callers and several listeners. Each answer must reach its own
// call, although some answers are slow.
func TestManyThreads(t *testing.T) {
	f := Filter{WatchWrites: true}
	threads, calls := 200, 20
	var children []*child
	for range 3 {
		c := start(t, f, "threads", fmt.Sprint(threads), fmt.Sprint(calls))
		children = append(children, c)
		c.serve(t, f, func(c Call) Answer {
			p, err := c.Path(0, 1)
			if err != nil {
				t.Error(err)
			}
			n := atoi(p[1:])
			if n%1000 == 0 {
				time.Sleep(3 * time.Millisecond)
			}
			return Answer{Value: int64(n)}
		})
	}
	for _, c := range children {
		if out := c.finish(t); out != "0\n" {
			t.Errorf("wrong answers: %s", out)
		}
	}
}

// TestSlowAnswers blocks as many calls as there may be threads. Other calls must still be answered.
func TestSlowAnswers(t *testing.T) {
	f := Filter{WatchWrites: true}
	c := start(t, f, "threads", "100", "2")
	var waiting atomic.Int32
	release := make(chan struct{})
	c.serve(t, f, func(c Call) Answer {
		p, _ := c.Path(0, 1)
		if waiting.Add(1) == 100 {
			close(release)
		}
		<-release
		return Answer{Value: int64(atoi(p[1:]))}
	})
	if out := c.finish(t); out != "0\n" {
		t.Errorf("wrong answers: %s", out)
	}
}

// TestSignals sends many signals to a caller. A call that the listener has taken must be answered
// once.
func TestSignals(t *testing.T) {
	f := Filter{WatchWrites: true}
	c := start(t, f, "signals", "40")
	var calls atomic.Int32
	c.serve(t, f, func(c Call) Answer {
		p, err := c.Path(0, 1)
		if p != "/signals" {
			return Answer{Continue: true}
		}
		calls.Add(1)
		time.Sleep(3 * time.Millisecond)
		if err != nil || !c.listener.Valid(c) {
			t.Error("the call went away", err)
		}
		return Answer{Value: 77}
	})
	if out := c.finish(t); out != "true\n" {
		t.Errorf("%s", out)
	}
	if n := calls.Load(); n != 40 {
		t.Errorf("%d calls", n)
	}
}

// TestFiles gives descriptors to a caller, with and without close-on-exec. Too many of them must be
// an error.
func TestFiles(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(dir+"/f", []byte("hello"), 0o600); err != nil {
		t.Fatal(err)
	}
	f := Filter{WatchWrites: true}
	c := start(t, f, "file", "/keep", "/close", "/closed", "/continue")
	c.serve(t, f, func(c Call) Answer {
		p, _ := c.Path(0, 1)
		file, err := os.Open(dir + "/f")
		if err != nil {
			t.Error(err)
		}
		if p == "/closed" {
			_ = file.Close()
		}
		if p == "/continue" {
			return Answer{Continue: true, File: file}
		}
		return Answer{File: file, CloseOnExec: p == "/close"}
	})
	want := "\"hello\" 0 errno 0\n\"hello\" 1 errno 0\n"
	if out := c.finish(t); !strings.HasPrefix(out, want) || !strings.Contains(out, "bad file descriptor") || !strings.HasSuffix(out, "no such file or directory\n") {
		t.Errorf("%s", out)
	}
}

// TestOldKernel checks that the end is noticed on kernels that do not tell the waiting threads.
func TestOldKernel(t *testing.T) {
	for _, close := range []bool{false, true} {
		f := Filter{WatchWrites: true}
		c := start(t, f, "one")
		l := Listen(c.listener, f)
		l.hangs = true
		done := make(chan error)
		go func() { done <- l.Serve(t.Context(), func(Call) Answer { return Answer{Value: 1} }) }()
		if close {
			_ = l.Close()
		} else if out := c.finish(t); out != "1 errno 0\n" {
			t.Error(out)
		}
		if err := <-done; err != nil && !close {
			t.Error(err)
		}
		_ = l.Close()
	}
}

// TestCallerDies kills a caller while its handler runs. Nothing can be read from the caller any
// more, and Serve must end with the last process.
func TestCallerDies(t *testing.T) {
	f := Filter{WatchWrites: true}
	c := start(t, f, "one")
	l := Listen(c.listener, f)
	done := make(chan error)
	asked, dead := make(chan Call), make(chan struct{})
	go func() {
		done <- l.Serve(t.Context(), func(c Call) Answer {
			asked <- c
			<-dead
			if l.Valid(c) {
				t.Error("a dead caller is valid")
			}
			if _, err := c.Text(c.Args[1], 100); !errors.Is(err, ErrGone) {
				t.Errorf("text of a dead caller: %v", err)
			}
			if _, err := c.Descriptor(0); !errors.Is(err, ErrGone) {
				t.Errorf("descriptor of a dead caller: %v", err)
			}
			return Answer{Value: 5}
		})
	}()
	call := <-asked
	if file, err := call.Descriptor(0); err != nil {
		t.Error(err)
	} else {
		_ = file.Close()
	}
	if _, err := call.Descriptor(999); !errors.Is(err, unix.EBADF) {
		t.Error(err)
	}
	if b, err := call.Bytes(call.Args[1], 5); string(b) != "/one\x00" || err != nil {
		t.Errorf("%q %v", b, err)
	}
	if _, err := call.Bytes(8, 5); err == nil {
		t.Error("memory that is not there was read")
	}
	if _, err := call.Text(call.Args[1], 3); !errors.Is(err, unix.ENAMETOOLONG) {
		t.Error(err)
	}
	if s, err := call.Text(call.Args[1], 4); s != "/one" || err != nil {
		t.Error(s, err)
	}
	_ = c.Process.Kill()
	_ = c.Wait()
	close(dead)
	if err := <-done; err != nil {
		t.Error(err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

// TestClose checks that waiting calls get ENOSYS, and that threads waiting for calls end.
func TestClose(t *testing.T) {
	for _, how := range []string{"close", "context", "idle"} {
		f := Filter{WatchWrites: true}
		c := start(t, f, "one")
		l := Listen(c.listener, f)
		ctx, cancel := context.WithCancel(t.Context())
		done, asked, release := make(chan error), make(chan bool, 9), make(chan bool)
		go func() {
			done <- l.Serve(ctx, func(c Call) Answer {
				asked <- true
				if how != "idle" {
					<-release
				}
				return Answer{Value: 9}
			})
		}()
		<-asked
		if how == "idle" {
			time.Sleep(50 * time.Millisecond)
		}
		var want error
		if how == "context" {
			cancel()
			want = context.Canceled
		} else if err := l.Close(); err != nil {
			t.Error(err)
		}
		close(release)
		if err := <-done; !errors.Is(err, want) {
			t.Errorf("%s: %v", how, err)
		}
		cancel()
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		out := c.finish(t)
		if how == "idle" && out != "9 errno 0\n" {
			t.Errorf("%s: %s", how, out)
		}
		if how == "close" && out != "-1 function not implemented\n" {
			t.Errorf("%s: %s", how, out)
		}
		if err := l.Serve(t.Context(), nil); !errors.Is(err, os.ErrClosed) {
			t.Errorf("%s: Serve after Close: %v", how, err)
		}
	}
}

// TestBoxInBox checks that a chain of filters has one listener. A filter without one must still
// deny.
func TestBoxInBox(t *testing.T) {
	f := Filter{WatchWrites: true}
	c := start(t, f, "nested")
	c.serve(t, f, func(Call) Answer { return Answer{Continue: true} })
	if out := c.finish(t); out != "true\n<nil> permission denied\n" {
		t.Errorf("%s", out)
	}
}
