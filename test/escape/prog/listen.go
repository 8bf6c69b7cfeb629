package main

import (
	"fmt"
	"io"
	"net"
	"os"
)

// listen serves a port on all addresses and prints everything that arrives.
func listen(port int) {
	l, err := net.Listen("tcp", fmt.Sprint(":", port))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println("listening")
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			fmt.Println("a connection from", c.RemoteAddr())
			_, _ = io.Copy(os.Stdout, c)
		}()
	}
}
