package bench

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/carrel-dev/carrel"
)

// executing is the round trip of true over an open connection.
func executing(name string, c carrel.Computer) *runner { return commanding(name, c, "/bin/true") }

// commanding is the round trip of a command over an open connection.
func commanding(name string, c carrel.Computer, args ...string) *runner {
	return &runner{name: name, once: func(ctx context.Context) (time.Duration, error) {
		start := time.Now()
		res, err := c.Run(ctx, carrel.Command{Args: args})
		if err == nil && res.ExitCode != 0 {
			err = fmt.Errorf("%s: exit status %d: %s", args[0], res.ExitCode, res.Stderr)
		}
		return time.Since(start), err
	}}
}

// shells are commands from a bare shell to what E2B's SDKs send. The difference between two
// neighbours is what the second does in addition.
var shells = []struct {
	key, text string
	args      []string
}{
	{"bash", "bash -c : (starts bash instead)", []string{"/bin/bash", "-c", ":"}},
	{"login", "bash -l -c : (and reads the profile)", []string{"/bin/bash", "-l", "-c", ":"}},
	{"line", "bash -l -c /bin/true (and becomes true)",
		[]string{"/bin/bash", "-l", "-c", "/bin/true"}},
}

// benchExec measures the round trip of true, in turns with the peers'.
func benchExec(ctx context.Context, s *session) ([]row, error) {
	d, err := s.coldDaemon(ctx)
	if err != nil {
		return nil, err
	}
	var list, waterfall []*runner
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
		if tier == carrel.GVisor {
			for _, sh := range shells {
				waterfall = append(waterfall, commanding(sh.key, c, sh.args...))
			}
		}
	}
	peers := s.peers(ctx, func(st *stock) (*runner, error) {
		r, end, err := st.executing(ctx)
		if err == nil {
			s.undo.Add(end)
			r.every = 4
		}
		return r, err
	})
	if err := race(ctx, 5, s.o.samples(200), slices.Concat(list, waterfall, peers)...); err != nil {
		return nil, err
	}
	ours := list[0].times
	rows := []row{
		fewer("exec round trip of true, Go client", "ms", ours, 5).key("exec.go"),
		summarise("  the same, simulated", "ms", list[1].times).key("exec.sim"),
	}
	for i, r := range waterfall {
		rows = append(rows, summarise("  "+shells[i].text, "ms", r.times).key("exec."+r.name))
	}
	for _, p := range peers {
		rows = append(rows, summarise(p.name+": exec of true", "ms", p.times).key("exec."+p.name), ratio("  ÷ ours", p.times, ours).key("exec."+p.name+"/go"))
	}
	return rows, nil
}
