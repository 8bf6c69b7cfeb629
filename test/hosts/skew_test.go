package hosts

import (
	"errors"
	"os"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/testenv"
)

// skewedProgram is carrel with a wall clock that can be wrong (internal/tools/skewed.sh).
const skewedProgram = "../../bin/carrel-skewed"

// TestSkew has a node whose clock is an hour fast, one whose clock is an hour slow, and two that are right.
// They join, work, take sandboxes from each other, and die, as if all clocks were right.
func TestSkew(t *testing.T) {
	testenv.Long(t, "machines with wrong clocks")
	_, err := os.Stat(skewedProgram)
	if err != nil {
		err = errors.New("bin/carrel-skewed (make hosts)")
	}
	testenv.Need(t, "skewed", err)
	const fast, slow = 0, 1
	m := start(t, options{fronts: 1, nodes: 4, bin: func(i int) (string, []string) {
		switch i {
		case fast:
			return skewedProgram, []string{"CARREL_TEST_CLOCK=3600"}
		case slow:
			return skewedProgram, []string{"CARREL_TEST_CLOCK=-3600"}
		}
		return "", nil
	}})
	ctx := t.Context()
	onFast, onSlow := m.on(fast, carrel.CreateOptions{}), m.on(slow, carrel.CreateOptions{})
	for sb, wrong := range map[carrel.ID]time.Duration{onFast.ID: time.Hour, onSlow.ID: -time.Hour} {
		page, err := m.List(ctx, carrel.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, got := range page.Sandboxes {
			if off := time.Until(got.Started) - wrong; got.ID == sb && off.Abs() > 10*time.Minute {
				t.Fatalf("the clock of its node is not wrong: %s began %v", sb, got.Started)
			}
		}
	}
	boxes := []carrel.Sandbox{onFast, onSlow}
	m.mark(boxes)

	// To and fro: a drain of one moves to the others, the wrong ones among them.
	for _, from := range []int{fast, slow, 2, 3} {
		got, err := m.Nodes().DrainNode(ctx, name(from))
		if err != nil || len(got.Failed) > 0 {
			t.Fatalf("%+v %v", got, err)
		}
		m.own(boxes)
		if err := m.Nodes().UndrainNode(ctx, name(from)); err != nil {
			t.Fatal(err)
		}
		m.ready(4)
	}
	for _, dead := range []int{fast, slow} {
		sb := m.on(dead, carrel.CreateOptions{})
		m.mark([]carrel.Sandbox{sb})
		if _, err := m.Pause(ctx, sb.ID, carrel.PauseOptions{}); err != nil {
			t.Fatal(err)
		}
		m.published(sb.ID)
		began := time.Now()
		m.nodes[dead].Kill9()
		testenv.EventuallyNil(t, "its paused sandbox resumes elsewhere", func() error {
			_, _, err := m.Resume(ctx, sb.ID, carrel.ResumeOptions{})
			return err
		})
		t.Logf("the death of node %d was noticed and mended after %v", dead, time.Since(began).Round(10*time.Millisecond))
		m.own([]carrel.Sandbox{sb})
		m.nodes[dead].Restart()
		m.ready(4)
		if at := m.home(sb.ID); at == dead {
			t.Errorf("node %d has what it lost", at)
		}
	}
}
