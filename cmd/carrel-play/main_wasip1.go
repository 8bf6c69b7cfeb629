package main

import (
	"fmt"
	"io"
	"os"

	"github.com/carrel-dev/carrel/shell/vfs"
)

// main runs a script: carrel-play -c SCRIPT [ARG…], or one from standard input.
func main() {
	var script string
	var args []string
	stdin := io.Reader(os.Stdin)
	switch {
	case len(os.Args) > 2 && os.Args[1] == "-c":
		script, args = os.Args[2], os.Args[3:]
	case len(os.Args) == 1:
		text, err := io.ReadAll(os.Stdin)
		if err != nil {
			fail(err)
		}
		script, stdin = string(text), nil
	default:
		fail(fmt.Errorf("usage: carrel-play -c SCRIPT [ARG…], or a script on standard input"))
	}
	begin, err := newDisk()
	if err != nil {
		fail(err)
	}
	e, err := runScript(begin.Clone(vfs.Options{Quota: diskSize}), script, args, stdin, os.Stdout, os.Stderr)
	if err != nil {
		fail(err)
	}
	if e.Message != "" {
		fmt.Fprintln(os.Stderr, "carrel-play: "+e.Message)
	}
	os.Exit(e.Code)
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "carrel-play:", err)
	os.Exit(125)
}
