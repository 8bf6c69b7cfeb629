package simbash

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/carrel-dev/carrel/shell/test/cases"
)

// runReal runs a script in the host's bash.
func runReal(ctx context.Context, dir, text string) (cases.Outcome, error) {
	ctx, cancel := context.WithTimeout(ctx, cases.Limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-c", text)
	cmd.Dir, cmd.Env = dir, cases.Environ(dir)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	cmd.WaitDelay = 3 * time.Second
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		return cases.Outcome{}, err
	}
	code := cmd.ProcessState.ExitCode()
	if ws, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		code = 128 + int(ws.Signal())
	}
	files, err := realFiles(dir)
	return cases.Outcome{Out: out.String(), Code: code, Files: files, Errs: errs.String()}, err
}

// realFiles describes the files below a directory. It stops at a file that may not be read.
func realFiles(dir string) ([]string, error) {
	var files []string
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || p == dir {
			return err
		}
		i, err := d.Info()
		if err != nil {
			return err
		}
		content := ""
		switch {
		case i.Mode().IsRegular():
			var b []byte
			b, err = os.ReadFile(p)
			content = string(b)
		case i.Mode()&fs.ModeSymlink != 0:
			content, err = os.Readlink(p)
		}
		files = append(files, cases.Describe(p[len(dir)+1:], i.Mode(), content))
		return err
	})
	if errors.Is(err, fs.ErrPermission) {
		err = nil
	}
	return files, err
}
