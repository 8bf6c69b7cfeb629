package bench

import (
	"context"
	"fmt"
	"time"

	"github.com/carrel-dev/carrel"
)

// executing is the round trip of true over an open connection.
func executing(name string, c carrel.Computer) *runner {
	return &runner{name: name, once: func(ctx context.Context) (time.Duration, error) {
		start := time.Now()
		res, err := c.Run(ctx, carrel.Command{Args: []string{"/bin/true"}})
		if err == nil && res.ExitCode != 0 {
			err = fmt.Errorf("true: exit status %d: %s", res.ExitCode, res.Stderr)
		}
		return time.Since(start), err
	}}
}

// benchExec measures the round trip of true, in turns with the peers'.
func benchExec(ctx context.Context, s *session) ([]row, error) {
	d, err := s.coldDaemon(ctx)
	if err != nil {
		return nil, err
	}
	var list []*runner
	for _, tier := range []carrel.Tier{carrel.GVisor, carrel.Sim} {
		sb, err := d.svc.Create(ctx, base(tier))
		if err != nil {
			return nil, err
		}
		defer d.svc.Kill(ctx, sb.ID)
		c, err := d.svc.Computer(ctx, sb.ID)
		if err != nil {
			return nil, err
		}
		list = append(list, executing(string(tier), c))
	}
	peers := s.peers(ctx, func(st *stock) (*runner, error) {
		r, end, err := st.executing(ctx)
		if err == nil {
			s.undo.Add(end)
			r.every = 4
		}
		return r, err
	})
	if err := race(ctx, 5, s.o.samples(200), append(list, peers...)...); err != nil {
		return nil, err
	}
	ours := list[0].times
	rows := []row{
		fewer("exec round trip of true, Go client", "ms", ours, 5).key("exec.go"),
		summarise("  the same, simulated", "ms", list[1].times).key("exec.sim"),
	}
	for _, p := range peers {
		rows = append(rows, summarise(p.name+": exec of true", "ms", p.times).key("exec."+p.name), ratio("  ÷ ours", p.times, ours).key("exec."+p.name+"/go"))
	}
	return rows, nil
}
