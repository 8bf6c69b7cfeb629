package bench

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/carrel-dev/carrel"
)

// smokeCheck is a ratio of two medians, measured in turns. Only a serious fault makes it larger
// than its limit. The limits are two to three times the usual values. A busy machine slows both
// sides.
type smokeCheck struct {
	name  string
	limit float64
	a, b  func() *runner
}

// smokeRounds is the number of rounds of the first attempt. A check that fails is measured again
// with twice as many.
const smokeRounds, smokeAttempts = 5, 3

// smoke fails if a ratio of two things measured together is far off. It checks no absolute time.
func (s *session) smoke(ctx context.Context) error {
	checks, err := s.smokeChecks(ctx)
	if err != nil {
		return err
	}
	var failed []string
	for _, c := range checks {
		got, err := s.smokeOne(ctx, c)
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		if got > c.limit {
			failed = append(failed, fmt.Sprintf("%s is %.2f and may be %g", c.name, got, c.limit))
		}
	}
	if failed != nil {
		return &carrel.Error{Op: "bench", Kind: carrel.Internal, Err: fmt.Errorf("%s", strings.Join(failed, "; ")),
			Hint: "something became much slower: look with carrel bench create exec --profile DIR, or carrel trace ID"}
	}
	return nil
}

// smokeOne measures one ratio, and again if it is over the limit.
func (s *session) smokeOne(ctx context.Context, c smokeCheck) (float64, error) {
	a, b := c.a(), c.b()
	rounds := smokeRounds
	for attempt := 1; ; attempt++ {
		a.times, b.times = nil, nil
		if err := race(ctx, 1, rounds, a, b); err != nil {
			return 0, err
		}
		got := median(a.times) / median(b.times)
		verdict := "ok"
		if got > c.limit {
			verdict = "too much"
		}
		fmt.Fprintf(s.o.Out, "%-58s %6.2f (≤ %g)  %8.2f ms ÷ %8.2f ms  %s\n", c.name, got, c.limit, median(a.times), median(b.times), verdict)
		if got <= c.limit || attempt == smokeAttempts {
			return got, nil
		}
		rounds *= 2
	}
}

// smokeChecks starts the measured programs.
func (s *session) smokeChecks(ctx context.Context) ([]smokeCheck, error) {
	d, err := s.coldDaemon(ctx)
	if err != nil {
		return nil, err
	}
	sb, err := d.svc.Create(ctx, base(carrel.GVisor))
	if err != nil {
		return nil, err
	}
	s.undo.Add(func() { _ = d.svc.Kill(context.WithoutCancel(ctx), sb.ID) })
	c, err := d.svc.Computer(ctx, sb.ID)
	if err != nil {
		return nil, err
	}
	asleep, _, err := d.holding(ctx, 20)
	if err != nil {
		return nil, err
	}
	scratch, err := s.scratch()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(scratch, "empty")
	if err != nil {
		return nil, err
	}
	program, err := filepath.Abs(s.o.Carrel)
	if err != nil {
		return nil, err
	}
	cold := func() *runner { return d.starting("cold create", base(carrel.GVisor), nil) }
	sim := func() *runner { return d.starting("simulated create", base(carrel.Sim), nil) }
	execs := func() *runner { return executing("exec", c) }
	checks := []smokeCheck{
		{"exec ÷ cold create", 0.35, execs, cold},
		{"simulated create ÷ cold create", 0.2, sim, cold},
		{"kill ÷ cold create", 0.3, func() *runner { return d.killing() }, cold},
		{"pause and resume, 20 MB held ÷ cold create", 6, func() *runner { return d.pausing(asleep) }, cold},
		{"carrel sim -c ÷ bash -c, processor time", 40, func() *runner { return process(dir, "carrel sim", program, "sim", "-c", "echo x") }, func() *runner { return process(dir, "bash", "bash", "-c", "echo x") }},
	}
	if _, err := exec.LookPath("bwrap"); err == nil {
		checks = append(checks, smokeCheck{"carrel run true ÷ bwrap true, processor time", 25, func() *runner { return process(dir, "carrel run", program, "run", "--", "true") },
			func() *runner {
				return process(dir, "bwrap", "bwrap", "--unshare-all", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp", "--", "true")
			}})
	}
	inside, err := insideChecks(ctx, s.o, program)
	if err != nil {
		return nil, err
	}
	s.undo.Add(inside.remove)
	checks = append(checks, inside.checks...)
	if w, err := s.warmDaemon(ctx, 3); err != nil {
		s.logf("warm starts are left out: %v", err)
	} else {
		s.undo.Add(w.stop)
		checks = append(checks, smokeCheck{"warm create ÷ cold create", 0.6, func() *runner { return w.rested(w.starting("warm create", base(carrel.GVisor), nil), 3) }, cold})
	}
	st, err := s.runsc(ctx)
	if err != nil {
		s.logf("stock runsc is left out: %v", err)
		return checks, nil
	}
	creating, err := st.creating()
	if err != nil {
		return nil, err
	}
	stockExec, end, err := st.executing(ctx)
	if err != nil {
		return nil, err
	}
	s.undo.Add(end)
	return append(checks,
		smokeCheck{"cold create ÷ stock runsc run and exec", 3, cold, func() *runner { return creating }},
		smokeCheck{"exec ÷ stock runsc exec", 1, execs, func() *runner { return stockExec }},
	), nil
}

// killing is the end of a sandbox that was made for this.
func (d *daemon) killing() *runner {
	return &runner{name: "kill", once: func(ctx context.Context) (time.Duration, error) {
		sb, err := d.svc.Create(ctx, base(carrel.GVisor))
		if err != nil {
			return 0, err
		}
		start := time.Now()
		err = d.svc.Kill(ctx, sb.ID)
		return time.Since(start), err
	}}
}

// pausing is a pause, a resumption and a command.
func (d *daemon) pausing(id carrel.ID) *runner {
	return &runner{name: "pause and resume", once: func(ctx context.Context) (time.Duration, error) {
		start := time.Now()
		if _, err := d.svc.Pause(ctx, id, carrel.PauseOptions{}); err != nil {
			return 0, err
		}
		if _, _, err := d.svc.Resume(ctx, id, carrel.ResumeOptions{}); err != nil {
			return 0, err
		}
		c, err := d.svc.Computer(ctx, id)
		if err == nil {
			err = echo(ctx, c)
		}
		return time.Since(start), err
	}}
}

// process is the processor time of a command and all its children. Unlike the duration, it hardly
// depends on other work of the machine, however many processes share the job.
func process(dir, name string, args ...string) *runner {
	return &runner{name: name, once: func(ctx context.Context) (time.Duration, error) {
		cmd := exec.CommandContext(ctx, args[0], args[1:]...)
		cmd.Dir = dir // empty, because a box searches it for secrets
		out, err := cmd.CombinedOutput()
		if err != nil {
			return 0, fmt.Errorf("%w: %.300s", err, out)
		}
		return cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(), nil
	}}
}
