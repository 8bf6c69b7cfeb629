package wire_test

import (
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"sync"

	"github.com/carrel-dev/carrel/internal/reexec"
)

// insideParts are the programs that this binary can be inside a sandbox.
func insideParts() reexec.Parts {
	return reexec.Parts{
		"inside flood":   insideFlood,
		"inside drain":   insideDrain,
		"inside many":    insideMany,
		"inside sockets": insideSockets,
	}
}

// must ends the program with a line that gives the reason.
func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "inside:", err)
		os.Exit(1)
	}
}

// insideFlood ADDRESS BYTES sends bytes and waits until the other side ends.
func insideFlood() {
	c, err := net.Dial("tcp", os.Args[2])
	must(err)
	n, err := strconv.ParseInt(os.Args[3], 10, 64)
	must(err)
	block := make([]byte, 1<<20)
	for ; n > 0; n -= int64(len(block)) {
		_, err := c.Write(block)
		must(err)
	}
	must(c.(*net.TCPConn).CloseWrite())
	_, err = io.Copy(io.Discard, c)
	must(err)
}

// insideDrain ADDRESS BYTES reads to the end.
func insideDrain() {
	c, err := net.Dial("tcp", os.Args[2])
	must(err)
	n, err := strconv.ParseInt(os.Args[3], 10, 64)
	must(err)
	got, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, c, make([]byte, 1<<20))
	must(err)
	if got != n {
		must(fmt.Errorf("%d bytes came, not %d", got, n))
	}
}

// insideMany ADDRESS COUNT opens COUNT connections and keeps them. When all are open, each must get
// an answer.
func insideMany() {
	n, err := strconv.Atoi(os.Args[3])
	must(err)
	conns := make([]net.Conn, n)
	room := make(chan struct{}, 64)
	var wg sync.WaitGroup
	for i := range conns {
		room <- struct{}{}
		wg.Go(func() {
			c, err := net.Dial("tcp", os.Args[2])
			must(err)
			_, err = c.Write([]byte(strconv.Itoa(100_000 + i)))
			must(err)
			conns[i] = c
			<-room
		})
	}
	wg.Wait()
	for i, c := range conns {
		b := make([]byte, 6)
		_, err := io.ReadFull(c, b)
		must(err)
		if string(b) != strconv.Itoa(100_000+i) {
			must(fmt.Errorf("connection %d was answered %q", i, b))
		}
	}
	fmt.Println("all answered")
}
