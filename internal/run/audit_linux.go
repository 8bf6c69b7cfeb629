package run

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/carrel-dev/carrel/internal/box/guard"
)

// settle makes the guard check what the box left, once. An error means that something was left that
// may run outside. It is not the command's error, but the exit status must show it.
func (j *Job) settle() error {
	look := j.guarded
	if j.guarded = nil; look == nil {
		return nil
	}
	return look()
}

// quarantine returns the directory for files that were moved away.
func (j *Job) quarantine() string {
	return filepath.Join(resolved(stateDir(j.Box.Home)), "quarantine", time.Now().Format("20060102-150405")+"-"+strconv.Itoa(os.Getpid()))
}

// tiered runs the command in another tier. It carries the changes back to the working directory,
// and then searches that for repositories.
func (j *Job) tiered(ctx context.Context) (code int, sig syscall.Signal, err error) {
	p := &plan{}
	p.guard(j.Box)
	p.rules.Quarantine, p.rules.Roots = j.quarantine(), []string{j.Box.Dir}
	p.rules.Open = true // without mounts, changes are carried back by name alone
	g, err := guard.New(p.rules, j.Log, nil)
	if err != nil {
		return 0, 0, err
	}
	code, sig, err = j.Deps.Tier(ctx, j)
	return code, sig, errors.Join(err, g.Audit(), g.Close())
}
