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

// settle has the guard look at what the box left, once. Its error is not the command's: something was left that may run outside, and the
// status must say so.
func (j *Job) settle() error {
	look := j.guarded
	if j.guarded = nil; look == nil {
		return nil
	}
	return look()
}

// quarantine is where what was moved away is kept.
func (j *Job) quarantine() string {
	return filepath.Join(resolved(stateDir(j.Box.Home)), "quarantine", time.Now().Format("20060102-150405")+"-"+strconv.Itoa(os.Getpid()))
}

// tiered runs the command in another tier, whose changes are carried back to the working directory, and looks for repositories in it
// afterwards.
func (j *Job) tiered(ctx context.Context) (code int, sig syscall.Signal, err error) {
	p := &plan{}
	p.guard(j.Box)
	p.rules.Quarantine, p.rules.Roots = j.quarantine(), []string{j.Box.Dir}
	p.rules.Open = true // no mounts: what is carried back goes by names alone
	g, err := guard.New(p.rules, j.Log, nil)
	if err != nil {
		return 0, 0, err
	}
	code, sig, err = j.Deps.Tier(ctx, j)
	return code, sig, errors.Join(err, g.Audit(), g.Close())
}
