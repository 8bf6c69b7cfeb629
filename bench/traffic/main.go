// Command traffic is both ends of the bench's measurements of the wire: a server, and the programs
// that talk to it from inside a sandbox, or from outside. Each prints its result as one line of
// JSON.
//
//	traffic serve                     the server; prints its ports, serves until its input ends
//	traffic flood ADDRESS BYTES       sends; prints seconds
//	traffic drain ADDRESS BYTES       receives; prints seconds
//	traffic echo ADDRESS COUNT        prints the milliseconds of each round trip
//	traffic many ADDRESS COUNT        opens so many connections at once, prints how many were answered
//	traffic listen PORT               gives each connection one byte, until its input ends
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "traffic:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	raiseFiles()
	if len(args) == 1 && args[0] == "serve" {
		return serve()
	}
	if len(args) == 2 && args[0] == "listen" {
		return listen(args[1])
	}
	client := map[string]func(string, int64) (any, error){"flood": flood, "drain": drain, "echo": echo, "many": many}
	if len(args) != 3 || client[args[0]] == nil {
		return errors.New("usage: traffic serve | listen PORT | flood|drain|echo|many ADDRESS COUNT")
	}
	n, err := strconv.ParseInt(args[2], 10, 64)
	if err != nil {
		return err
	}
	result, err := client[args[0]](args[1], n)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(result)
}

// raiseFiles raises the limit on open files as far as this user may.
func raiseFiles() {
	most := unix.Rlimit{Cur: 1 << 20, Max: 1 << 20}
	if unix.Setrlimit(unix.RLIMIT_NOFILE, &most) == nil {
		return
	}
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &most) == nil {
		_ = unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: most.Max, Max: most.Max})
	}
}

const block = 1 << 20

// flood sends, and waits until the server has everything.
func flood(address string, n int64) (any, error) {
	c, err := net.Dial("tcp", address)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	buf := make([]byte, block)
	start := time.Now()
	for left := n; left > 0; left -= block {
		if _, err := c.Write(buf[:min(left, block)]); err != nil {
			return nil, err
		}
	}
	if err := c.(*net.TCPConn).CloseWrite(); err != nil {
		return nil, err
	}
	var got int64
	if _, err := fmt.Fscanln(c, &got); err != nil || got != n {
		return nil, fmt.Errorf("the server got %d bytes, not %d: %v", got, n, err)
	}
	return time.Since(start).Seconds(), nil
}

// drain asks for bytes and reads them.
func drain(address string, n int64) (any, error) {
	c, err := net.Dial("tcp", address)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	start := time.Now()
	if _, err := fmt.Fprintln(c, n); err != nil {
		return nil, err
	}
	got, err := swallow(c)
	if err != nil || got != n {
		return nil, fmt.Errorf("%d bytes came, not %d: %v", got, n, err)
	}
	return time.Since(start).Seconds(), nil
}

func swallow(c net.Conn) (int64, error) {
	return io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{c}, make([]byte, block))
}

// echo sends one byte again and again and waits for each answer. Like most programs' clients it
// blocks in the system calls. It does so without telling the Go runtime, which would otherwise
// start another thread.
func echo(address string, n int64) (any, error) {
	c, err := net.Dial("tcp", address)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	f, err := c.(*net.TCPConn).File()
	if err != nil {
		return nil, err
	}
	defer f.Close()
	fd := int(f.Fd())
	if err := unix.SetNonblock(fd, false); err != nil {
		return nil, err
	}
	one, times := []byte{1}, make([]float64, 0, n)
	for i := range n + 50 {
		start := time.Now()
		for _, call := range []uintptr{unix.SYS_WRITE, unix.SYS_READ} {
			if n, _, errno := unix.RawSyscall(call, uintptr(fd), uintptr(unsafe.Pointer(&one[0])), 1); n != 1 {
				return nil, fmt.Errorf("echo: %w", errno)
			}
		}
		if i >= 50 { // the first ones warm up
			times = append(times, float64(time.Since(start).Nanoseconds())/1e6)
		}
	}
	return times, nil
}

// many opens its connections. The server answers them once it has the number of connections that it
// waits for.
func many(address string, n int64) (any, error) {
	var wg sync.WaitGroup
	var mu sync.Mutex
	answered, failed := 0, map[string]int{}
	room := make(chan struct{}, 64) // dials under way
	for range n {
		room <- struct{}{}
		dialled := sync.OnceFunc(func() { <-room })
		wg.Go(func() {
			err := hold(address, dialled)
			dialled()
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				answered++
			} else {
				failed[root(err).Error()]++
			}
		})
	}
	wg.Wait()
	if len(failed) > 0 {
		fmt.Fprintln(os.Stderr, failed)
	}
	return answered, nil
}

// root returns the innermost cause. It contains no address, so equal causes are counted together.
func root(err error) error {
	for inner := errors.Unwrap(err); inner != nil; inner = errors.Unwrap(err) {
		err = inner
	}
	return err
}

func hold(address string, dialled func()) error {
	c, err := net.DialTimeout("tcp", address, time.Minute)
	if err != nil {
		return err
	}
	defer c.Close()
	if _, err := c.Write([]byte{1}); err != nil {
		return err
	}
	dialled()
	_ = c.SetReadDeadline(time.Now().Add(2 * time.Minute))
	_, err = io.ReadFull(c, make([]byte, 1))
	return err
}

// listen gives each connection a byte.
func listen(port string) error {
	l, err := net.Listen("tcp", ":"+port)
	if err != nil {
		return err
	}
	fmt.Println("{}")
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		_ = l.Close()
	}()
	for {
		c, err := l.Accept()
		if err != nil {
			return nil
		}
		_, _ = c.Write([]byte{1})
		_ = c.Close()
	}
}
