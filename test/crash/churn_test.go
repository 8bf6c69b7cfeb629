package crash

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/testenv"
	"github.com/carrel-dev/carrel/test/daemontest"
)

// churn records the daemon's answers to clients while sandboxes come and go.
type churn struct {
	mu    sync.Mutex
	alive map[carrel.ID]bool // created, and not asked to be killed
	dead  map[carrel.ID]bool // their kill was acknowledged
	every []carrel.ID
}

// run creates and kills until the daemon is gone.
func (c *churn) run(ctx context.Context, svc carrel.Service) {
	for {
		sb, err := svc.Create(ctx, carrel.CreateOptions{Timeout: 10 * time.Minute})
		if err != nil {
			return
		}
		c.mu.Lock()
		c.every = append(c.every, sb.ID)
		kill := rand.IntN(2) == 0
		if !kill {
			c.alive[sb.ID] = true
		}
		c.mu.Unlock()
		if !kill {
			continue
		}
		if svc.Kill(ctx, sb.ID) != nil {
			return
		}
		c.mu.Lock()
		c.dead[sb.ID] = true
		c.mu.Unlock()
	}
}

// TestChurn kills the daemon at random moments while sandboxes are made and killed. After the
// restart, everything that was acknowledged must hold. When all sandboxes are killed, nothing of
// them may be left.
func TestChurn(t *testing.T) {
	rounds := 3
	if testing.Short() {
		rounds = 1
	}
	d := daemontest.Start(t)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	for round := range rounds {
		svc := connect(t, d)
		c := churn{alive: map[carrel.ID]bool{}, dead: map[carrel.ID]bool{}}
		var wg sync.WaitGroup
		for range 15 {
			wg.Go(func() { c.run(ctx, svc) })
		}
		time.Sleep(time.Duration(300+rand.IntN(2000)) * time.Millisecond)
		d.Kill9()
		wg.Wait()
		_ = svc.Close()
		d.Restart()

		svc = connect(t, d)
		page, err := svc.List(ctx, carrel.ListOptions{Limit: 100})
		if err != nil {
			t.Fatal(err)
		}
		for _, sb := range page.Sandboxes {
			if c.dead[sb.ID] {
				t.Errorf("round %d: %s was killed and lives", round, sb.ID)
			}
		}
		var ids []carrel.ID
		for id := range c.alive {
			ids = append(ids, id)
		}
		daemontest.InParallel(t, len(ids), func(i int) error { return answers(ctx, svc, ids[i]) })
		daemontest.InParallel(t, len(page.Sandboxes), func(i int) error { return svc.Kill(ctx, page.Sandboxes[i].ID) })
		if left := remains(t, d, c.every); len(left) > 0 {
			t.Errorf("round %d: left behind: %v", round, left)
		}
	}
}

func answers(ctx context.Context, svc carrel.Service, id carrel.ID) error {
	c, err := svc.Computer(ctx, id)
	if err != nil {
		return fmt.Errorf("%s: %w", id, err)
	}
	if res, err := c.Run(ctx, carrel.Command{Args: []string{"echo", "here"}}); err != nil || string(res.Stdout) != "here\n" {
		return fmt.Errorf("%s: %q, %w", id, res.Stdout, err)
	}
	return nil
}

// remains lists processes, control groups, directories and mounts of sandboxes that are gone. Some
// may need a moment to end.
func remains(t *testing.T, d *daemontest.Daemon, ids []carrel.ID) (left []string) {
	t.Helper()
	_ = testenv.Within(t.Context(), time.Minute, func() error { // after that, whatever is left is the answer
		left = nil
		processes, _ := filepath.Glob("/proc/[0-9]*/cmdline")
		for _, p := range processes {
			line, _ := os.ReadFile(p)                                                                                                             // it may just have ended
			if strings.Contains(string(line), "sentry") && strings.Contains(string(line), d.Dir) && !strings.Contains(string(line), "\x00____") { // one that waits for a sandbox
				left = append(left, p)
			}
			if strings.Contains(string(line), "qemu-system") && slices.ContainsFunc(ids, func(id carrel.ID) bool { return strings.Contains(string(line), string(id)) }) {
				left = append(left, p)
			}
		}
		mounts, _ := os.ReadFile("/proc/mounts")
		for _, id := range ids {
			for _, pattern := range []string{"/sys/fs/cgroup/*/carrel/*" + string(id) + "*", "/sys/fs/cgroup/*/carrel/*/*" + string(id) + "*", filepath.Join(d.Dir, "sandboxes", string(id)), filepath.Join(d.Dir, "run", "*", "*"+string(id)+"*")} {
				found, _ := filepath.Glob(pattern)
				left = append(left, found...)
			}
			if strings.Contains(string(mounts), string(id)) {
				left = append(left, "a mount of "+string(id))
			}
		}
		if len(left) > 0 {
			return errors.New("not yet")
		}
		return nil
	})
	return left
}
