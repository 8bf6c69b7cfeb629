package simshell

import (
	"bytes"
	"fmt"

	"github.com/carrel-dev/carrel/shell/interp"
	"github.com/carrel-dev/carrel/shell/tools"
	"github.com/carrel-dev/carrel/shell/vfs"
)

// Rig makes machines with the same limits as the daemon's, for measurements. All begin with the
// same disk.
type Rig struct{ disk *vfs.FS }

// RigMachine is one machine of a Rig. The caller closes it.
type RigMachine struct{ m *interp.Machine }

// NewRig makes a disk. Its home directory has a file of that name, unless the name is "".
func NewRig(name string, content []byte) (*Rig, error) {
	disk := vfs.New(vfs.Options{})
	if err := interp.Install(disk, tools.Names()...); err != nil {
		return nil, err
	}
	if err := interp.AddUser(disk, userName, userID); err != nil {
		return nil, err
	}
	if name == "" {
		return &Rig{disk}, nil
	}
	return &Rig{disk}, disk.Root().WriteFile(home+"/"+name, content, 0o644)
}

// New makes a machine.
func (r *Rig) New() RigMachine {
	return RigMachine{interp.New(interp.Config{FS: r.disk.Clone(vfs.Options{Quota: 1 << 30}), Hostname: "bench", Commands: tools.All(),
		CPUs: 2, Limits: interp.Limits{Procs: 128, Memory: 1 << 30, Output: 1 << 30, Steps: 1 << 40}})}
}

// Run runs a script in the home directory and returns its output. A status other than 0 is an
// error.
func (m RigMachine) Run(script string) (string, error) {
	out, errs := interp.NewPipe(), interp.NewPipe()
	p, err := m.m.Start(interp.Spec{Path: "/bin/bash", Args: []string{"-c", script}, Dir: home, UID: userID, GID: userID,
		Env: []string{"HOME=" + home, "PATH=/usr/bin:/bin"}, Out: out, Err: errs})
	if err != nil {
		return "", err
	}
	var text, bad bytes.Buffer
	done := make(chan struct{})
	go func() { _, _ = bad.ReadFrom(errs); close(done) }()
	_, _ = text.ReadFrom(out)
	<-done
	if e := p.Wait(); e.Code != 0 {
		return "", fmt.Errorf("%s: status %d %s %s", script, e.Code, e.Message, bad.String())
	}
	return text.String(), nil
}

// Close ends the machine.
func (m RigMachine) Close() { m.m.Close() }
