package hosts

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/testenv"
)

// TestFailover kills the database while sandboxes are made, and has its standby take over. The fronts
// find the new primary by themselves. What was acknowledged is there, and what was refused is not.
func TestFailover(t *testing.T) {
	testenv.Long(t, "a database whose standby takes over")
	m := start(t, options{fronts: 2, nodes: several(), standby: true})
	ctx := t.Context()
	kept := m.many(8, carrel.CreateOptions{})

	var mu sync.Mutex
	var makers sync.WaitGroup
	working, refused := 0, 0
	making, stop := context.WithCancel(ctx)
	defer makers.Wait()
	defer stop()
	for i := range 4 {
		makers.Go(func() {
			for making.Err() == nil {
				sb, err := m.fronts[i%2].Create(ctx, carrel.CreateOptions{Tier: carrel.Sim, Timeout: time.Hour})
				mu.Lock()
				if err == nil {
					kept, working = append(kept, sb), working+1
				} else if refused++; carrel.KindOf(err) != carrel.Unavailable || carrel.HintOf(err) == "" {
					t.Errorf("%v, want Unavailable and a hint", err)
				}
				mu.Unlock()
			}
		})
	}
	made := func(what string) {
		mu.Lock()
		before := working
		mu.Unlock()
		testenv.EventuallyNil(t, what, func() error {
			mu.Lock()
			defer mu.Unlock()
			if working < before+8 {
				return fmt.Errorf("%d were made, %d refused", working-before, refused)
			}
			return nil
		})
	}
	made("sandboxes are made")
	m.server.Kill()
	testenv.EventuallyNil(t, "creations are refused", func() error {
		mu.Lock()
		defer mu.Unlock()
		if refused == 0 {
			return fmt.Errorf("none of %d", working)
		}
		return nil
	})
	m.standby.Promote(t)
	made("sandboxes are made again")
	stop()
	makers.Wait()
	m.ready(len(m.nodes))
	t.Logf("%d were made, %d refused", working, refused)

	for _, sb := range kept { // they were held while their nodes had no lease
		testenv.EventuallyNil(t, "sandbox "+string(sb.ID)+" answers", func() error {
			_, err := try(ctx, m.Client, sb.ID, "true")
			return err
		})
	}
	m.mark(kept)
	m.own(kept)
	var want []carrel.ID
	for _, sb := range kept {
		want = append(want, sb.ID)
	}
	m.just(want)
}
