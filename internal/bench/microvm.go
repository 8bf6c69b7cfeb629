package bench

import (
	"context"
	"errors"
	"time"

	"github.com/carrel-dev/carrel"
)

// benchMicroVM measures sandboxes in virtual machines, with hardware or by emulation as the host has
// it.
func benchMicroVM(ctx context.Context, s *session) ([]row, error) {
	if s.o.MicroVMKernel == "" {
		return nil, &carrel.Error{Op: "bench", Kind: carrel.Invalid, Field: "microvm-kernel",
			Err: errors.New("no kernel for virtual machines is given"), Hint: "carrel bench microvm --microvm-kernel DIR"}
	}
	d, err := startDaemon(ctx, s.o, "--warm", "0", "--default-cpus", "1", "--microvm-kernel", s.o.MicroVMKernel)
	if err != nil {
		return nil, err
	}
	defer d.stop()
	d.tier = carrel.MicroVM
	creates, err := d.creates(ctx, s.o.samples(20))
	if err != nil {
		return nil, err
	}
	rows := []row{fewer("microvm: create → first command's output", "ms", creates, 1900).key("microvm.create")}
	pause, resume, err := d.pauses(ctx, 50, s.o.samples(20))
	if err != nil {
		return rows, err
	}
	rows = append(rows, fewer("microvm: pause, 50 MB held", "ms", pause, 250).key("microvm.pause"),
		fewer("microvm: resume → first command's output, 50 MB held", "ms", resume, 250).key("microvm.resume"))
	forks, err := d.oneByOne(ctx, s.o.samples(20))
	if err != nil {
		return rows, err
	}
	return append(rows, fewer("microvm: fork → first command's output, 50 MB held", "ms", forks, 250).key("microvm.fork")), nil
}

// creates measures n creations, each until its first command has answered.
func (d *daemon) creates(ctx context.Context, n int) (times []float64, err error) {
	for i := range n + 1 {
		start := time.Now()
		sb, err := d.svc.Create(ctx, carrel.CreateOptions{Template: "base", Tier: d.tier, Timeout: time.Hour, Limits: carrel.Limits{MemoryMB: 256}})
		if err != nil {
			return nil, err
		}
		c, err := d.svc.Computer(ctx, sb.ID)
		if err == nil {
			err = echo(ctx, c)
		}
		if i > 0 {
			times = append(times, ms(time.Since(start)))
		}
		if err = errors.Join(err, d.svc.Kill(ctx, sb.ID)); err != nil {
			return nil, err
		}
	}
	return times, nil
}

// oneByOne measures n forks of one sandbox, one after the other, each until its first command has
// answered.
func (d *daemon) oneByOne(ctx context.Context, n int) (times []float64, err error) {
	id, _, err := d.holding(ctx, 50)
	if err != nil {
		return nil, err
	}
	defer d.svc.Kill(ctx, id)
	for i := range n + 1 {
		start := time.Now()
		forks, err := d.svc.Fork(ctx, id, carrel.ForkOptions{Count: 1, Timeout: time.Hour})
		if err == nil {
			err = forks[0].Err
		}
		if err != nil {
			return nil, err
		}
		c, err := d.svc.Computer(ctx, forks[0].Sandbox.ID)
		if err == nil {
			err = echo(ctx, c)
		}
		if i > 0 {
			times = append(times, ms(time.Since(start)))
		}
		if err = errors.Join(err, d.svc.Kill(ctx, forks[0].Sandbox.ID)); err != nil {
			return nil, err
		}
	}
	return times, nil
}
