package quota

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
)

// TestBookIsASum takes and gives at random, and compares the book with the sum of the charges.
func TestBookIsASum(t *testing.T) {
	b, now := NewBook(), time.Unix(1_000_000, 0)
	projects, keys := []string{"p", "q"}, []string{"", "k", "l"}
	bounds := func(project, key string) []Bound {
		all := []Bound{{Holder: carrel.Holder{Project: project}, Quota: carrel.Quota{Hard: map[carrel.LimitName]carrel.Milli{carrel.LimitSandboxes: 7 * One, carrel.LimitMemory: 900 * One}}}}
		if key != "" {
			all = append(all, Bound{Holder: carrel.Holder{Project: project, Key: key}, Quota: carrel.Quota{Hard: map[carrel.LimitName]carrel.Milli{carrel.LimitVCPUs: 5500}}})
		}
		return all
	}
	charges := map[*Charge]bool{}
	for range 20_000 {
		project, key := projects[rand.IntN(2)], keys[rand.IntN(3)]
		if rand.IntN(2) == 0 {
			l := LoadOf(carrel.Sandbox{Limits: carrel.Limits{CPUs: float64(rand.IntN(4)) + 0.25, MemoryMB: rand.IntN(300), DiskMB: 10}})
			c := &Charge{}
			if _, hit, _ := b.Take(c, bounds(project, key), project, key, l, 0, now); hit == nil {
				charges[c] = true
			} else if c.taken {
				t.Fatal("a refused charge was taken")
			}
		} else {
			for c := range charges {
				b.Give(c)
				b.Give(c) // does nothing
				delete(charges, c)
				break
			}
		}
		want := map[carrel.Holder]Load{}
		for c := range charges {
			for _, h := range holders(c.project, c.key) {
				w := want[h]
				want[h] = Load{w.Sandboxes + c.load.Sandboxes, w.VCPUs + c.load.VCPUs, w.Memory + c.load.Memory, w.Disk + c.load.Disk}
			}
		}
		for _, p := range projects {
			for _, k := range keys {
				h := carrel.Holder{Project: p, Key: k}
				used := b.Used(h, now)
				w := want[h]
				if (Load{used[carrel.LimitSandboxes], used[carrel.LimitVCPUs], used[carrel.LimitMemory], used[carrel.LimitDisk]}) != w {
					t.Fatalf("%+v has %v, want %+v", h, used, w)
				}
				if w.Sandboxes > 7*One || w.Memory > 900*One || k != "" && w.VCPUs > 5500 {
					if k == "" || w.VCPUs > 5500 {
						t.Fatalf("%+v is above its quota: %+v", h, w)
					}
				}
			}
		}
	}
	for c := range charges {
		b.Give(c)
	}
	if len(b.sums) != 0 {
		t.Errorf("an empty book remembers %d holders", len(b.sums))
	}
}

// TestMinute lets creations fall out of the window.
func TestMinute(t *testing.T) {
	b, now := NewBook(), time.Unix(1_000_000, 0)
	bounds := []Bound{{Holder: carrel.Holder{Project: "p"}, Quota: carrel.Quota{Hard: map[carrel.LimitName]carrel.Milli{carrel.LimitCreates: 3 * One}}}}
	for i := range 3 {
		if _, hit, _ := b.Take(&Charge{}, bounds, "p", "", Load{}, 1, now.Add(time.Duration(i)*time.Second)); hit != nil {
			t.Fatal(hit)
		}
	}
	now = now.Add(10 * time.Second)
	_, hit, after := b.Take(&Charge{}, bounds, "p", "", Load{}, 1, now)
	if hit == nil || hit.Used != 3*One || after != 50*time.Second {
		t.Errorf("%+v, again after %v", hit, after)
	}
	if _, hit, after = b.Take(&Charge{}, bounds, "p", "", Load{}, 3, now); hit == nil || after != 52*time.Second {
		t.Errorf("three at once: %+v, again after %v", hit, after)
	}
	if _, hit, after = b.Take(&Charge{}, bounds, "p", "", Load{}, 4, now); hit == nil || after != 0 {
		t.Errorf("more than ever: %+v, again after %v", hit, after)
	}
	if _, hit, _ = b.Take(&Charge{}, bounds, "p", "", Load{}, 1, now.Add(50*time.Second)); hit != nil {
		t.Errorf("a minute later: %+v", hit)
	}
}
