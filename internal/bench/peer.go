package bench

import (
	"context"
	"fmt"
	"os/exec"
	"time"
)

// benchPeer measures the cost of starting a program inside, compared with the machine itself and
// with stock runsc. It runs a loop and subtracts the cost of the loop without programs. The sides
// take turns.
func benchPeer(ctx context.Context, s *session) ([]row, error) {
	d, err := s.coldDaemon(ctx)
	if err != nil {
		return nil, err
	}
	native, err := timeCommand(ctx, s.o.samples(100), "/bin/true")
	if err != nil {
		return nil, err
	}
	rows := []row{summarise("this machine: fork, exec and wait of /bin/true", "ms", native).key("peer.native")}
	id, c, err := d.create(ctx)
	if err != nil {
		return rows, err
	}
	defer d.svc.Kill(ctx, id)
	const loops = 50
	scripts := []string{fmt.Sprintf("for i in $(seq %d); do /bin/true; done", loops), "seq 1"}
	var list []*runner
	for _, script := range scripts {
		list = append(list, &runner{name: "carrel", once: func(ctx context.Context) (time.Duration, error) {
			start := time.Now()
			err := bash(ctx, c, script)
			return time.Since(start), err
		}})
	}
	st, err := s.runsc(ctx)
	if err == nil {
		bundle, err := st.bundle("/bin/sleep", "1000000")
		if err != nil {
			return rows, err
		}
		id := st.next()
		if err := st.start(ctx, bundle, id); err != nil {
			return rows, err
		}
		defer func() { _ = st.remove(ctx, id) }()
		for _, script := range scripts {
			list = append(list, &runner{name: "stock runsc", once: func(ctx context.Context) (time.Duration, error) {
				start := time.Now()
				err := st.run(ctx, "exec", id, "/bin/bash", "-c", script)
				return time.Since(start), err
			}})
		}
	} else {
		s.logf("stock runsc is left out: %v", err)
	}
	if err := race(ctx, 1, max(5, s.o.samples(20)), list...); err != nil {
		return rows, err
	}
	for i := 0; i < len(list); i += 2 {
		each := (median(list[i].times) - median(list[i+1].times)) / loops
		rows = append(rows, single(list[i].name+": /bin/true in a bash loop inside, each", "ms", each).key("peer.inside."+list[i].name))
	}
	return rows, nil
}

// timeCommand runs a command many times. Its streams are pipes of ours, because runsc gives files
// that it gets to the sandbox's user.
func timeCommand(ctx context.Context, n int, name string, args ...string) ([]float64, error) {
	var times []float64
	for i := range n + 2 {
		cmd := exec.CommandContext(ctx, name, args...)
		stdin, err := cmd.StdinPipe()
		if err != nil {
			return nil, err
		}
		start := time.Now()
		out, err := cmd.CombinedOutput()
		_ = stdin.Close()
		if err != nil {
			return nil, fmt.Errorf("%s: %v: %s", name, err, out)
		}
		if i >= 2 {
			times = append(times, ms(time.Since(start)))
		}
	}
	return times, nil
}
