package awk_test

import (
	"bytes"
	"sync"
	"testing"
	"time"

	"github.com/carrel-dev/carrel/shell/interp"
	"github.com/carrel-dev/carrel/shell/tools/awk"
	"github.com/carrel-dev/carrel/shell/vfs"
)

// ours runs a program with an input and more arguments.
func ours(t testing.TB, input, program string, args ...string) outcome {
	t.Helper()
	return script(t, input, `awk "$@"`, append([]string{"--", program}, args...)...)
}

// script runs a shell script whose parameters are args. awk is the only program.
func script(t testing.TB, input, text string, args ...string) outcome {
	t.Helper()
	disk := vfs.New(vfs.Options{Quota: 4 << 20})
	if err := interp.Install(disk, "awk"); err != nil {
		t.Fatal(err)
	}
	m := interp.New(interp.Config{FS: disk, Commands: awk.Commands(),
		Limits: interp.Limits{Procs: 20, Memory: 64 << 20, Output: 4 << 20, Steps: 4 << 20}})
	defer m.Close()
	in, out, errs := interp.NewPipe(), interp.NewPipe(), interp.NewPipe()
	p, err := m.Start(interp.Spec{Path: "bash", Args: append([]string{"-c", text, "awk"}, args...), Dir: "/tmp",
		Env: []string{"PATH=/bin", "LC_ALL=C.UTF-8", "TZ=UTC"}, Stdin: in, Out: out, Err: errs})
	if err != nil {
		t.Fatal(err)
	}
	var o outcome
	var streams sync.WaitGroup
	for pipe, into := range map[*interp.Pipe]*string{out: &o.out, errs: &o.errs} {
		streams.Go(func() {
			var b bytes.Buffer
			_, _ = b.ReadFrom(pipe) // ends with the process
			*into = b.String()
		})
	}
	go func() {
		_, _ = in.Write([]byte(input)) // the program need not read it
		in.CloseWrite()
	}()
	hung := time.AfterFunc(time.Minute, func() { _ = p.Signal(9) })
	end := p.Wait()
	if !hung.Stop() {
		t.Errorf("hangs: %s %q", text, args)
	}
	in.CloseRead()
	streams.Wait()
	o.status = end.Code
	if end.Message != "" {
		o.errs += "[" + end.Message + "]"
	}
	return o
}
