package move

import (
	"context"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/testenv"
)

// holdMemory starts a program that holds 200 MB, of which more than half does not compress, until
// the file go exists. Then it writes their SHA-256 to the file sum.
const holdMemory = `({ head -c 120000000 /dev/urandom; seq 1 100000000; } 2>/dev/null |
	dd bs=200M iflag=fullblock count=1 2>/dev/null |
	{ while [ ! -e go ]; do sleep 0.05; done; sha256sum > part; mv part sum; }) >/dev/null 2>&1 &
	echo started`

// TestResumeElsewhere measures the resumption of 200 MB of memory on another node, and compares the
// memory. Each round has a node of its own, which has nothing of it yet.
func TestResumeElsewhere(t *testing.T) {
	testenv.Long(t, "it moves much memory")
	f := start(t, 1)
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute)
	defer cancel()
	a := f.nodes[0]
	sb := a.create(ctx, t, carrel.CreateOptions{Tier: carrel.GVisor})
	a.run(ctx, t, sb.ID, holdMemory)
	testenv.EventuallyNil(t, "the memory is there", func() error {
		st, err := a.Metrics(ctx, sb.ID, time.Time{}, time.Time{})
		if err != nil {
			return err
		}
		if n := len(st); n == 0 || st[n-1].MemUsed < 200_000_000 {
			return carrel.Unavailable
		}
		return nil
	})
	began := time.Now()
	p := a.pause(ctx, t, sb.ID)
	t.Logf("pause and publish: %v", time.Since(began).Round(time.Millisecond))
	if _, _, err := a.Resume(ctx, sb.ID, carrel.ResumeOptions{}); err != nil {
		t.Fatal(err)
	}
	sumOn := func(n *node) (sum string) {
		n.run(ctx, t, sb.ID, "touch go")
		testenv.Eventually(t, "the program has summed its memory", func() bool {
			sum = n.run(ctx, t, sb.ID, "cat sum 2>/dev/null || true")
			return sum != ""
		})
		return sum
	}
	want := sumOn(a)
	if err := a.Release(ctx, sb.ID); err != nil {
		t.Fatal(err)
	}
	for round := range 3 {
		b := f.add(t)
		began := time.Now()
		if _, err := b.Adopt(ctx, p); err != nil {
			t.Fatal(err)
		}
		adopted := time.Since(began)
		if _, _, err := b.Resume(ctx, sb.ID, carrel.ResumeOptions{}); err != nil {
			t.Fatal(err)
		}
		resumed := time.Since(began)
		b.run(ctx, t, sb.ID, "true")
		t.Logf("round %d: adopt %v, resume %v, first command %v after the beginning", round, adopted.Round(time.Millisecond),
			(resumed - adopted).Round(time.Millisecond), time.Since(began).Round(time.Millisecond))
		if out, err := b.CLI("trace", string(sb.ID)).CombinedOutput(); err == nil {
			t.Logf("%s", out)
		}
		if got := sumOn(b); got != want {
			t.Errorf("round %d: the memory is another: %s, want %s", round, got, want)
		}
		if err := b.Release(ctx, sb.ID); err != nil {
			t.Fatal(err)
		}
		b.Terminate()
		t.Cleanup(b.Restart) // so that the test's end can stop it
	}
}
