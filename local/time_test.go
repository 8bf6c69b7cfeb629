package local_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
)

// expected reports whether err is one that callers may get when many of them change one sandbox at
// once.
func expected(err error) bool {
	switch carrel.KindOf(err) {
	case "", carrel.NotFound, carrel.Conflict, carrel.Exhausted:
		return true
	}
	return false
}

// word reads two files of a sandbox that are always written together.
func word(ctx context.Context, svc carrel.Service, id carrel.ID) (string, error) {
	c, err := svc.Computer(ctx, id)
	if err != nil {
		return "", err
	}
	res, err := c.Run(ctx, carrel.Command{Shell: "cat both"})
	if err != nil {
		return "", err
	}
	a, b, _ := strings.Cut(strings.TrimSpace(string(res.Stdout)), " ")
	if a != b || a == "" {
		return "", fmt.Errorf("%s is in between: %q %q", id, res.Stdout, res.Stderr)
	}
	return a, nil
}

// TestHammerOfTime does everything to a few sandboxes at once, from many goroutines. Each sandbox
// must always be at one moment, never between two, and nothing may be left in the end.
func TestHammerOfTime(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	svc, err := carrel.Open(ctx, carrel.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := svc.Close(); err != nil {
			t.Error(err)
		}
	}()
	const boxes, workers, rounds = 3, 4, 25
	ids := make([]carrel.ID, boxes)
	for i := range ids {
		sb, err := svc.Create(ctx, carrel.CreateOptions{Timeout: time.Hour, Lifecycle: carrel.Lifecycle{AutoResume: true}})
		if err != nil {
			t.Fatal(err)
		}
		ids[i] = sb.ID
		c, err := svc.Computer(ctx, sb.ID)
		if err != nil {
			t.Fatal(err)
		}
		if res, err := c.Run(ctx, carrel.Command{Shell: "echo 0 0 > both"}); err != nil || res.ExitCode != 0 {
			t.Fatal(res, err)
		}
	}
	var wg sync.WaitGroup
	for _, id := range ids {
		for range workers {
			wg.Go(func() {
				for range rounds {
					if err := hammer(ctx, svc, id); !expected(err) {
						t.Errorf("%v (%s)", err, carrel.KindOf(err))
					}
				}
			})
		}
	}
	wg.Wait()
	for _, id := range ids {
		if _, err := word(ctx, svc, id); err != nil {
			t.Error(err)
		}
		if err := svc.Kill(ctx, id); err != nil {
			t.Error(err)
		}
	}
	page, err := svc.ListSnapshots(ctx, carrel.SnapshotListOptions{Auto: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, sn := range page.Snapshots {
		if !sn.Kept {
			t.Errorf("snapshot %s (%s) outlived its sandbox", sn.ID, sn.Cause)
		}
	}
}

// hammer does one thing to a sandbox.
func hammer(ctx context.Context, svc carrel.Service, id carrel.ID) error {
	var err error
	switch rand.IntN(8) {
	case 0:
		_, err = svc.Pause(ctx, id, carrel.PauseOptions{})
	case 1:
		_, _, err = svc.Resume(ctx, id, carrel.ResumeOptions{})
	case 2:
		_, err = svc.Snapshot(ctx, id, carrel.SnapshotOptions{})
	case 3:
		var forks []carrel.ForkResult
		forks, err = svc.Fork(ctx, id, carrel.ForkOptions{Count: 2})
		for _, f := range forks {
			if f.Err != nil {
				return f.Err
			}
			if _, err := word(ctx, svc, f.Sandbox.ID); err != nil {
				return fmt.Errorf("fork: %w", err)
			}
			if err := svc.Kill(ctx, f.Sandbox.ID); err != nil {
				return err
			}
		}
	case 4:
		page, lerr := svc.ListSnapshots(ctx, carrel.SnapshotListOptions{Sandbox: id})
		if lerr != nil || len(page.Snapshots) == 0 {
			return lerr
		}
		_, err = svc.Rollback(ctx, id, page.Snapshots[rand.IntN(len(page.Snapshots))].ID, carrel.RollbackOptions{Keep: rand.IntN(2) == 0})
	case 5:
		page, lerr := svc.ListSnapshots(ctx, carrel.SnapshotListOptions{Sandbox: id, Auto: true})
		if lerr != nil || len(page.Snapshots) < 5 {
			return lerr
		}
		err = svc.DeleteSnapshot(ctx, string(page.Snapshots[rand.IntN(len(page.Snapshots))].ID))
	case 6:
		_, err = svc.Timeline(ctx, id)
	default:
		c, cerr := svc.Computer(ctx, id)
		if cerr != nil {
			return cerr
		}
		n := rand.IntN(1000)
		// One write of one line is there completely or not at all.
		_, err = c.Run(ctx, carrel.Command{Shell: fmt.Sprintf("echo %d %d > new && mv new both", n, n)})
		if err != nil && errors.Is(err, carrel.Unavailable) {
			return nil // cut off by a pause or a rollback
		}
	}
	return err
}

// TestResumeStorm asks for one paused sandbox a hundred times at once. It must be restored once,
// and every caller must get an answer.
func TestResumeStorm(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	svc, err := carrel.Open(ctx, carrel.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer svc.Close()
	sb, err := svc.Create(ctx, carrel.CreateOptions{Timeout: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := svc.Pause(ctx, sb.ID, carrel.PauseOptions{}); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 100 {
		wg.Go(func() {
			got, _, err := svc.Resume(ctx, sb.ID, carrel.ResumeOptions{})
			if err != nil || got.State != carrel.Running || got.Generation != 1 {
				t.Errorf("%+v, %v", got, err)
			}
		})
	}
	wg.Wait()
	if got, err := svc.Get(ctx, sb.ID); err != nil || got.Generation != 1 {
		t.Errorf("it was restored %d times, %v", got.Generation, err)
	}
}

// TestTimeouts lets sandboxes reach their timeouts while no caller uses the service.
func TestTimeouts(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	svc, err := carrel.Open(ctx, carrel.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer svc.Close()
	want := map[carrel.ID]string{}
	for action, event := range map[carrel.Action]string{carrel.ActionKill: "sandbox.ended", carrel.ActionPause: "sandbox.paused"} {
		sb, err := svc.Create(ctx, carrel.CreateOptions{Timeout: time.Second, Lifecycle: carrel.Lifecycle{OnTimeout: action}})
		if err != nil {
			t.Fatal(err)
		}
		want[sb.ID] = event
	}
	began := time.Now()
	for e, err := range svc.Events(ctx, 1) { // from the first on
		if err != nil {
			t.Fatalf("still to come: %v: %v", want, err)
		}
		if e.Type == want[e.ID] {
			delete(want, e.ID)
		}
		if len(want) == 0 {
			break
		}
	}
	if len(want) > 0 {
		t.Errorf("after %s there came no %v", time.Since(began), want)
	}
}
