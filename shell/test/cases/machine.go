package cases

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os/user"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/carrel-dev/carrel/shell/interp"
	"github.com/carrel-dev/carrel/shell/tools"
	"github.com/carrel-dev/carrel/shell/vfs"
)

// Limit is the most real time that one case may take.
const Limit = 3 * time.Minute

// outputsGrace is how long outputs may stay open after the end of the script. A remaining job can
// hold them open.
const outputsGrace = 3 * time.Second

// Environ returns the environment of a case. It is the same in the simulated machine and in the
// real one.
func Environ(dir string) []string {
	return []string{
		"HOME=" + filepath.Join(filepath.Dir(dir), "home"),
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"LC_ALL=C.UTF-8", "TZ=UTC", "GIT_CONFIG_NOSYSTEM=1",
	}
}

// Machine makes the simulated machines of cases. Each case has its own machine.
type Machine struct {
	User vfs.Cred
	// Seed makes the machines deterministic, and sleeping takes no time. Nil turns this off.
	Seed *uint64

	once  sync.Once
	begin *vfs.FS // the disk that all begin with
	err   error
}

// Run runs a script in a machine whose working directory is dir.
func (m *Machine) Run(ctx context.Context, dir, text string) (Outcome, error) {
	m.once.Do(func() { m.begin, m.err = m.install() })
	if m.err != nil {
		return Outcome{}, m.err
	}
	disk := m.begin.Clone(vfs.Options{Quota: 256 << 20})
	root := disk.Root()
	for _, d := range []string{dir, filepath.Join(filepath.Dir(dir), "home")} {
		if err := errors.Join(root.MkdirAll(d, 0o755), root.Chown(d, m.User.UID, m.User.GID)); err != nil {
			return Outcome{}, err
		}
	}
	shell := interp.New(interp.Config{FS: disk, Hostname: "box", Commands: tools.All(), CPUs: 2, Seed: m.Seed,
		Limits: interp.Limits{Procs: 400, Memory: 512 << 20, Output: 64 << 20, Steps: 500 << 20}})
	defer shell.Close()
	o, err := m.runScript(ctx, shell, dir, text)
	if err != nil {
		return o, err
	}
	o.Files, err = filesBelow(root, dir)
	return o, err
}

// install makes the first disk. It adds a user other than root to /etc/passwd, because programs
// print its name.
func (m *Machine) install() (*vfs.FS, error) {
	f := vfs.New(vfs.Options{})
	if err := interp.Install(f, tools.Names()...); err != nil {
		return nil, err
	}
	if m.User.UID == 0 {
		return f, nil
	}
	id := strconv.Itoa(int(m.User.UID))
	name := id
	if u, err := user.LookupId(id); err == nil {
		name = u.Username
	}
	passwd, err := f.Root().ReadFile("/etc/passwd")
	if err != nil {
		return nil, err
	}
	line := fmt.Sprintf("%s:x:%s:%d::/nonexistent:/bin/bash\n", name, id, m.User.GID)
	return f, f.Root().WriteFile("/etc/passwd", append(passwd, line...), 0o644)
}

// runScript runs a script and collects its output.
func (m *Machine) runScript(ctx context.Context, shell *interp.Machine, dir, text string) (Outcome, error) {
	out, errs := interp.NewPipe(), interp.NewPipe()
	p, err := shell.Start(interp.Spec{Path: "bash", Args: []string{"-c", text}, Dir: dir, Env: Environ(dir),
		UID: m.User.UID, GID: m.User.GID, Out: out, Err: errs})
	if err != nil {
		return Outcome{}, err
	}
	var o Outcome
	var streams sync.WaitGroup
	for pipe, into := range map[*interp.Pipe]*string{out: &o.Out, errs: &o.Errs} {
		streams.Go(func() {
			var b bytes.Buffer
			_, _ = b.ReadFrom(pipe) // ends with the last writer
			*into = b.String()
		})
	}
	ctx, cancel := context.WithTimeout(ctx, Limit)
	defer cancel()
	unwatch := context.AfterFunc(ctx, func() { _ = p.Signal(9) })
	end := p.Wait()
	unwatch()
	closed := make(chan struct{})
	go func() { streams.Wait(); close(closed) }()
	select {
	case <-closed:
	case <-time.After(outputsGrace):
		shell.Close()
		<-closed
	}
	if o.Code = end.Code; end.Message != "" {
		o.Errs += "[" + end.Message + "]"
	}
	return o, nil
}

// filesBelow describes the files of a directory.
func filesBelow(disk vfs.View, dir string) ([]string, error) {
	var files []string
	todo := []string{dir}
	for len(todo) > 0 {
		at := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		list, err := disk.ReadDir(at)
		if err != nil {
			return nil, err
		}
		for _, i := range list {
			p := at + "/" + i.Name
			content := ""
			switch {
			case i.Mode.IsDir():
				todo = append(todo, p)
			case i.Mode.IsRegular():
				b, err := disk.ReadFile(p)
				if err != nil {
					return nil, err
				}
				content = string(b)
			case i.Mode&fs.ModeSymlink != 0:
				content = i.Target
			}
			files = append(files, Describe(p[len(dir)+1:], i.Mode, content))
		}
	}
	return files, nil
}
