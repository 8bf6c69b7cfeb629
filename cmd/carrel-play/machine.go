//go:build js || wasip1

package main

import (
	"io"
	"sync"

	"github.com/carrel-dev/carrel/shell/interp"
	"github.com/carrel-dev/carrel/shell/tools"
	"github.com/carrel-dev/carrel/shell/vfs"
)

// The user of all programs, and its limits: a page has one thread and little memory.
const (
	userName = "user"
	userID   = 1000
	diskSize = 64 << 20
)

var limits = interp.Limits{Procs: 200, Memory: 128 << 20, Output: 16 << 20, Steps: 1 << 32}

// newDisk makes the disk at the beginning of a session.
var newDisk = sync.OnceValues(func() (*vfs.FS, error) {
	f := vfs.New(vfs.Options{})
	if err := interp.Install(f, tools.Names()...); err != nil {
		return nil, err
	}
	return f, interp.AddUser(f, userName, userID)
})

// runScript runs a script on a disk. It returns its exit status, and the limit that ended it, if
// one did.
func runScript(disk *vfs.FS, script string, args []string, stdin io.Reader, stdout, stderr io.Writer) (interp.Exit, error) {
	m := interp.New(interp.Config{FS: disk, Hostname: "browser", Limits: limits, Commands: tools.All()})
	defer m.Close()
	in, out, errs := interp.NewPipe(), interp.NewPipe(), interp.NewPipe()
	p, err := m.Start(interp.Spec{Path: "bash", Args: append([]string{"-c", script, "bash"}, args...), Dir: "/home/" + userName, UID: userID, GID: userID,
		Env:   []string{"HOME=/home/" + userName, "USER=" + userName, "LANG=C.UTF-8", "PATH=/usr/local/bin:/usr/bin:/bin"},
		Stdin: in, Out: out, Err: errs})
	if err != nil {
		return interp.Exit{}, err
	}
	go func() {
		if stdin != nil {
			_, _ = io.Copy(in, stdin) // the script need not read it
		}
		in.CloseWrite()
	}()
	var streams sync.WaitGroup
	streams.Go(func() { _, _ = io.Copy(stdout, out) })
	streams.Go(func() { _, _ = io.Copy(stderr, errs) })
	e := p.Wait()
	m.Close() // remaining jobs end with the script
	streams.Wait()
	return e, nil
}
