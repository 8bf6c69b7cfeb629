package pool

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// machine simulates a pool that is refilled one at a time, and counts the requests that had to
// wait.
type machine struct {
	z      *Sizer
	now    time.Time
	ready  map[Key]int
	busy   time.Duration // until the one being made is ready
	making Key
	makes  time.Duration
	floors map[Key]int

	hits, misses, most int
}

func newMachine(cap int, makes time.Duration) *machine {
	return &machine{z: New(Config{Cap: cap}), now: epoch, ready: map[Key]int{}, makes: makes}
}

// run lets time pass.
func (m *machine) run(d time.Duration) {
	const step = 10 * time.Millisecond
	for end := m.now.Add(d); m.now.Before(end); m.now = m.now.Add(step) {
		targets := m.z.Targets(m.now, m.floors)
		total := 0
		for k, n := range m.ready {
			m.ready[k] = min(n, targets[k])
			total += m.ready[k]
		}
		m.most = max(m.most, total)
		if m.making != "" {
			if m.busy -= step; m.busy > 0 {
				continue
			}
			m.ready[m.making]++
			m.z.Refilled(m.makes)
			m.making = ""
		}
		for k, n := range targets {
			if m.ready[k] < n {
				m.making, m.busy = k, m.makes
				break
			}
		}
	}
}

func (m *machine) ask(k Key, n int) {
	for range n {
		m.z.Asked(k, m.now)
		if m.ready[k] > 0 {
			m.ready[k]--
			m.hits++
		} else {
			m.misses++
		}
	}
}

// TestSteady sends requests at an even rate. After the first few, the pool must serve all of them.
func TestSteady(t *testing.T) {
	for _, rate := range []int{1, 4, 8} {
		t.Run(fmt.Sprint(rate, " a second"), func(t *testing.T) {
			m := newMachine(32, 80*time.Millisecond)
			for i := range 60 * rate {
				if i == 5*rate {
					m.hits, m.misses = 0, 0
				}
				m.ask("a", 1)
				m.run(time.Second / time.Duration(rate))
			}
			if m.misses > 0 {
				t.Errorf("%d of %d had to wait", m.misses, m.hits+m.misses)
			}
			if m.most > 4*rate+2 {
				t.Errorf("%d were ready at once for %d a second", m.most, rate)
			}
		})
	}
}

// TestBursts repeats a burst. The pool must serve the second one.
func TestBursts(t *testing.T) {
	m := newMachine(64, 100*time.Millisecond)
	m.ask("a", 50)
	m.run(20 * time.Second)
	m.hits, m.misses = 0, 0
	m.ask("a", 50)
	if m.misses > 8 {
		t.Errorf("the second burst had to wait %d times", m.misses)
	}
	if m.most > 64 {
		t.Errorf("%d ready, the cap is 64", m.most)
	}
}

// TestForgotten shows that the target of a key without requests falls to its floor, or to nothing.
func TestForgotten(t *testing.T) {
	m := newMachine(64, 100*time.Millisecond)
	m.floors = map[Key]int{"floor": 3}
	m.ask("a", 10)
	m.run(10 * time.Second)
	if m.ready["a"] < 8 || m.ready["floor"] != 3 {
		t.Fatalf("ready: %v", m.ready)
	}
	m.run(2 * time.Minute)
	if n := m.ready["a"]; n < 3 || n > 6 {
		t.Errorf("%d ready after a half-life, want about 5", n)
	}
	m.run(10 * time.Minute)
	if m.ready["a"] != 0 || m.ready["floor"] != 3 {
		t.Errorf("ready after 12 minutes: %v", m.ready)
	}
	if len(m.z.keys) != 0 {
		t.Errorf("%d keys are still remembered", len(m.z.keys))
	}
}

// TestSparse sends a request once a minute. Each time one must be ready.
func TestSparse(t *testing.T) {
	m := newMachine(8, 100*time.Millisecond)
	for range 10 {
		m.ask("a", 1)
		m.run(time.Minute)
	}
	if m.misses != 1 || m.most != 1 {
		t.Errorf("%d waited, %d were ready at most", m.misses, m.most)
	}
}

// TestManyKeys asks for a thousand kinds. A caller that always asks for one kind must still be
// served, and the number of keys must stay bounded.
func TestManyKeys(t *testing.T) {
	m := newMachine(8, 50*time.Millisecond)
	good, waited := 0, 0
	for i := range 1000 {
		if i%5 == 0 {
			before := m.misses
			m.ask("good", 1)
			if good++; i > 100 && m.misses > before {
				waited++
			}
		}
		m.ask(Key(fmt.Sprint("flood", i)), 1)
		m.run(200 * time.Millisecond)
	}
	if len(m.z.keys) > defaultKeys {
		t.Errorf("%d keys are remembered", len(m.z.keys))
	}
	if m.most > 8 {
		t.Errorf("%d ready, the cap is 8", m.most)
	}
	if m.z.keys["good"] == nil {
		t.Fatal("the kind that is asked for all the time was forgotten")
	}
	if waited > good/10 {
		t.Errorf("%d of %d waited", waited, good)
	}
}

// TestCaps checks the division when more is wanted than allowed.
func TestCaps(t *testing.T) {
	for _, c := range []struct {
		name   string
		cap    int
		floors map[Key]int
		asked  map[Key]int
		want   map[Key]int
	}{
		{"off", 0, map[Key]int{"f": 5}, map[Key]int{"a": 5}, map[Key]int{}},
		{"nothing asked", 10, nil, nil, map[Key]int{}},
		{"demand", 10, nil, map[Key]int{"a": 3, "b": 2}, map[Key]int{"a": 3, "b": 2}},
		{"one key too many", 10, nil, map[Key]int{"a": 30}, map[Key]int{"a": 10}},
		{"divided", 10, nil, map[Key]int{"a": 10, "b": 5}, map[Key]int{"a": 7, "b": 3}},
		{"floor first", 10, map[Key]int{"f": 4}, map[Key]int{"a": 10}, map[Key]int{"f": 4, "a": 6}},
		{"floor and demand of one key", 10, map[Key]int{"a": 4}, map[Key]int{"a": 6}, map[Key]int{"a": 6}},
		{"floors over the cap", 10, map[Key]int{"f": 8, "g": 8}, nil, map[Key]int{"f": 8, "g": 2}},
		{"negative floor", 10, map[Key]int{"f": -1}, nil, map[Key]int{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			z := New(Config{Cap: c.cap})
			for k, n := range c.asked {
				for range n {
					z.Asked(k, epoch)
				}
			}
			got := z.Targets(epoch, c.floors)
			if fmt.Sprint(got) != fmt.Sprint(c.want) {
				t.Errorf("targets %v, want %v", got, c.want)
			}
		})
	}
}

// TestClockBack sends requests with times before the last one. Nothing may grow without bound.
func TestClockBack(t *testing.T) {
	z := New(Config{Cap: 4})
	for i := range 100 {
		z.Asked("a", epoch.Add(-time.Duration(i)*time.Hour))
	}
	if got := z.Targets(epoch.Add(-1000*time.Hour), nil)["a"]; got > 4 || len(z.keys["a"].recent) > 4 {
		t.Errorf("target %d, %d remembered", got, len(z.keys["a"].recent))
	}
}

func TestAdvise(t *testing.T) {
	const gib = 1 << 30
	for _, c := range []struct {
		name string
		m    Memory
		want Advice
	}{
		{"unknown", Memory{}, Grow},
		{"plenty", Memory{Total: 24 * gib, Available: 12 * gib}, Grow},
		{"little", Memory{Total: 24 * gib, Available: 3 * gib}, Hold},
		{"hardly any", Memory{Total: 24 * gib, Available: gib}, Shrink},
		{"some stalls", Memory{Total: 24 * gib, Available: 12 * gib, Stalled: 8}, Hold},
		{"stalls", Memory{Total: 24 * gib, Available: 12 * gib, Stalled: 40}, Shrink},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := c.m.Advise(); got != c.want {
				t.Errorf("%v, want %v", got, c.want)
			}
		})
	}
}

func TestReadMemory(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "pressure"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"meminfo":         "MemTotal:       24684040 kB\nMemFree: 1 kB\nMemAvailable:   22000000 kB\nBroken\n",
		"pressure/memory": "some avg10=12.50 avg60=0.16 avg300=0.07 total=59034756\nfull avg10=99.00 avg60=0.01 avg300=0.00 total=51660524\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := ReadMemory(dir), (Memory{Total: 24684040 << 10, Available: 22000000 << 10, Stalled: 12.5}); got != want {
		t.Errorf("read %+v, want %+v", got, want)
	}
	if got := ReadMemory(filepath.Join(dir, "none")); got != (Memory{}) {
		t.Errorf("read %+v from nothing", got)
	}
}
