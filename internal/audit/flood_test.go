package audit

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
)

// clock is a clock that tests set.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// connection is the n-th allowed connection of a test.
func connection(id carrel.ID, n int) carrel.Decision {
	d := refusal(id, n)
	d.Allowed, d.Reason, d.Sent, d.Received = true, "", 10, 100
	return d
}

// TestSlowDisk shows that Write waits for nobody. Allowed decisions are dropped, the oldest first,
// and counted. No refusal is dropped.
func TestSlowDisk(t *testing.T) {
	d := &disk{room: 1 << 30, stop: make(chan struct{})}
	const room = 100
	l := open(t, t.TempDir(), Options{open: d.open, Queue: room, Rate: 1 << 20})
	free := sync.OnceFunc(func() { close(d.stop) })
	defer free()
	for i := range 500 {
		l.Write(connection(boxA, i))
		l.Write(connection(boxB, i))
	}
	for i := range 2 * room {
		l.Write(refusal(boxB, i))
	}
	l.mu.Lock()
	waiting := len(l.queue.allowed.items) + len(l.queue.refused.items)
	l.mu.Unlock()
	if waiting > room {
		t.Errorf("%d wait", waiting)
	}
	free()
	mustCount := func(ds []carrel.Decision, want int) {
		t.Helper()
		n := 0
		for _, d := range ds {
			if lost := 0; strings.HasPrefix(d.Rule, "audit:") {
				if _, err := fmt.Sscanf(d.Rule, "audit: %d events lost", &lost); err != nil || !d.Allowed || lost == 0 {
					t.Errorf("%+v: %v", d, err)
				}
				n += lost
			} else {
				n += 1 + d.Repeats
			}
		}
		if n != want {
			t.Errorf("%d decisions of %d are accounted for", n, want)
		}
	}
	mustClose(t, l)
	l = open(t, l.files.dir, Options{})
	yes, no := true, false
	mustCount(all(t, l, carrel.AuditOptions{ID: boxA}), 500)
	mustCount(all(t, l, carrel.AuditOptions{ID: boxB, Allowed: &yes}), 500)
	refused := all(t, l, carrel.AuditOptions{ID: boxB, Allowed: &no})
	mustCount(refused, 2*room)
	if len(refused) < room || refused[0].Name != "h0.example.com" {
		t.Errorf("%d refusals, the first %+v", len(refused), refused[0])
	}
}

// TestFloodIsFolded shows that a sandbox's decisions beyond its share are counted, by rule and
// verdict. Another sandbox's decisions are all in the log.
func TestFloodIsFolded(t *testing.T) {
	c := &clock{now: noon}
	l := open(t, t.TempDir(), Options{Rate: 10, Now: c.Now})
	const flood = 5000
	for i := range flood {
		d := refusal(boxA, 0)
		d.Rule = fmt.Sprintf("rule %d", i%100)
		l.Write(d)
		l.Write(connection(boxA, 0))
		if i%(flood/20) == 0 {
			l.Write(refusal(boxB, i))
		}
	}
	mustClose(t, l)
	l = open(t, l.files.dir, Options{})
	if others := all(t, l, carrel.AuditOptions{ID: boxB}); len(others) != 20 {
		t.Errorf("of another sandbox %d are left", len(others))
	}
	refused, allowed, kinds, sent := 0, 0, 0, int64(0)
	for _, d := range all(t, l, carrel.AuditOptions{ID: boxA}) {
		n := 1 + d.Repeats
		if d.Repeats > 0 {
			kinds++
			if !strings.Contains(d.Reason, fmt.Sprintf("%d more like it", d.Repeats)) {
				t.Errorf("%+v does not say so", d)
			}
		}
		if d.Allowed {
			allowed += n
			sent += d.Sent
		} else {
			refused += n
		}
	}
	if refused != flood || allowed != flood || sent != 10*flood || kinds > maxFolds+2 || kinds < 2 {
		t.Errorf("%d refused, %d allowed, %d bytes, in %d kinds", refused, allowed, sent, kinds)
	}
}

// TestFloodForADay shows that one sandbox, at any rate and with lines of any size, can't push out
// the decisions of another, nor fill the disk.
func TestFloodForADay(t *testing.T) {
	dir := t.TempDir()
	c := &clock{now: noon}
	opts := Options{MaxFile: 256 << 10, MaxFiles: 4, Now: c.Now, SyncEvery: time.Hour}
	l := open(t, dir, opts)
	l.Write(refusal(boxB, 0))
	counted := 0
	for range 24 * 60 {
		c.add(time.Minute)
		for i := range 20 {
			d := refusal(boxA, i)
			d.Time, d.Path, d.Rule = c.Now(), "/"+strings.Repeat("\x01", maxPath), fmt.Sprint("rule ", i%5)
			l.Write(d)
			counted++
		}
		l.write.tickForTest()
	}
	mustClose(t, l)
	l = open(t, dir, opts)
	if evidence := all(t, l, carrel.AuditOptions{ID: boxB}); len(evidence) != 1 {
		t.Errorf("what is known of another: %+v", evidence)
	}
	n := 0
	for _, d := range all(t, l, carrel.AuditOptions{ID: boxA, Limit: 1 << 20}) {
		n += 1 + d.Repeats
	}
	if n != counted {
		t.Errorf("%d of %d are accounted for", n, counted)
	}
	size := int64(0)
	for _, name := range fileNames(t, dir) {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		size += info.Size()
	}
	if size > opts.MaxFile*int64(opts.MaxFiles) {
		t.Errorf("%d bytes", size)
	}
}

// tickForTest does the work of a tick, when the writing goroutine is idle.
func (w *writer) tickForTest() {
	_ = w.log.ask(nilContext{}, false)
	w.count(w.log.opts.Now(), false)
	_ = w.log.ask(nilContext{}, false)
}

// TestSharesAreForgotten shows that sandboxes that are gone need no memory.
func TestSharesAreForgotten(t *testing.T) {
	c := &clock{now: noon}
	l := open(t, t.TempDir(), Options{Now: c.Now})
	for range 1000 {
		l.Write(refusal(carrel.NewID(), 0))
	}
	c.add(24 * time.Hour)
	l.write.tickForTest()
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := len(l.queue.shares); n != 0 {
		t.Errorf("%d are remembered", n)
	}
}
