package wire_test

import (
	"io"
	"os"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/wire"
)

func benchLink(b *testing.B, buffer, mtu int) (driver.Link, *guest) {
	w := wire.New(wire.Options{})
	host, fd := pair(b, buffer)
	g := newGuest(b, fd, mtu)
	l, err := w.Attach(b.Context(), driver.LinkSpec{ID: carrel.NewID(), MTU: mtu}, host)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { w.Close() })
	return l, g
}

// BenchmarkThroughput moves bytes through a link, both ways. It runs with large socket buffers, and
// with those that an unprivileged user gets.
func BenchmarkThroughput(b *testing.B) {
	for _, c := range []struct {
		name        string
		buffer, mtu int
	}{{"root", 8 << 20, 65520}, {"rootless-64k", 0, 65520}, {"rootless-16k", 0, 16000}, {"rootless-9k", 0, 9000}, {"rootless-1500", 0, 1500}} {
		for _, in := range []bool{true, false} {
			name := c.name + "/out"
			if in {
				name = c.name + "/in"
			}
			b.Run(name, func(b *testing.B) {
				l, g := benchLink(b, c.buffer, c.mtu)
				ln := g.listen(5001)
				c, err := l.Dial(b.Context(), 5001)
				if err != nil {
					b.Fatal(err)
				}
				defer c.Close()
				peer, err := ln.Accept()
				if err != nil {
					b.Fatal(err)
				}
				defer peer.Close()
				from, to := io.Writer(c), io.Reader(peer)
				if !in {
					from, to = peer, c
				}
				const chunk = 1 << 20
				b.SetBytes(chunk)
				done := make(chan error, 1)
				go func() {
					_, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, io.LimitReader(to, int64(b.N)*chunk), make([]byte, 256<<10))
					done <- err
				}()
				buf := make([]byte, chunk)
				b.ResetTimer()
				for range b.N {
					if _, err := from.Write(buf); err != nil {
						b.Fatal(err)
					}
				}
				if err := <-done; err != nil {
					b.Fatal(err)
				}
			})
		}
	}
}

// BenchmarkDial measures one connection to the guest and one byte there and back.
func BenchmarkDial(b *testing.B) {
	l, g := benchLink(b, 8<<20, testMTU)
	echo(b, g.listen(7))
	b.ResetTimer()
	for range b.N {
		c, err := l.Dial(b.Context(), 7)
		if err != nil {
			b.Fatal(err)
		}
		one := []byte{1}
		if _, err := c.Write(one); err != nil {
			b.Fatal(err)
		}
		if _, err := io.ReadFull(c, one); err != nil {
			b.Fatal(err)
		}
		c.Close()
	}
}

// BenchmarkIdle reports the cost of an attached link without traffic.
func BenchmarkIdle(b *testing.B) {
	w := wire.New(wire.Options{})
	defer w.Close()
	var before, after runtime.MemStats
	const n = 500
	for range b.N {
		runtime.GC()
		runtime.ReadMemStats(&before)
		start, goroutines := time.Now(), runtime.NumGoroutine()
		for range n {
			fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() { unix.Close(fds[1]) })
			if _, err := w.Attach(b.Context(), driver.LinkSpec{ID: carrel.NewID(), MTU: testMTU}, os.NewFile(uintptr(fds[0]), "host")); err != nil {
				b.Fatal(err)
			}
		}
		took := time.Since(start)
		runtime.GC()
		runtime.ReadMemStats(&after)
		b.ReportMetric(float64(after.HeapInuse+after.StackInuse-before.HeapInuse-before.StackInuse)/n, "bytes/link")
		b.ReportMetric(float64(runtime.NumGoroutine()-goroutines)/n, "goroutines/link")
		b.ReportMetric(float64(took.Microseconds())/n, "µs/attach")
	}
}
