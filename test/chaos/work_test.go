package chaos

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/testenv"
	"github.com/carrel-dev/carrel/test/daemontest"
)

// folder holds a sandbox's marker files.
const folder = "chaos"

// worker does random operations in its own sandboxes, one after another.
type worker struct {
	t     *trial
	svc   carrel.Service
	rng   *rand.Rand
	boxes []*box
	most  int           // sandboxes that it keeps
	busy  error         // the last refusal for want of a resource
	quit  chan struct{} // closed when it must do no further operation
}

// work runs n workers until stop is called. Sandboxes that exist already are dealt out to them.
// stop waits for the last answers: an operation that a living daemon still does is not in doubt.
func (t *trial) work(d *server, n int) (stop func()) {
	quit := make(chan struct{})
	workers := make([]*worker, n)
	for i := range workers {
		workers[i] = &worker{t: t, svc: d.svc, rng: rand.New(rand.NewPCG(t.rng.Uint64(), uint64(i))),
			most: 3, quit: quit}
	}
	for i, b := range t.j.alive() {
		w := workers[i%n]
		w.boxes = append(w.boxes, b)
	}
	var wg sync.WaitGroup
	for _, w := range workers {
		wg.Go(func() {
			for !isClosed(quit) && t.ctx.Err() == nil {
				w.step(t.ctx)
			}
		})
	}
	return func() { close(quit); wg.Wait() }
}

// populate makes sandboxes by hand: one running and one paused of each tier, each with files, a
// number in memory where that is possible, and a snapshot.
func (t *trial) populate(d *server) {
	t.calm.Store(true)
	w := &worker{t: t, svc: d.svc, rng: t.rng, most: 100}
	for _, tier := range t.tiers {
		for _, pause := range []bool{true, false} {
			b := w.create(t.ctx, tier)
			if b == nil && w.busy == nil {
				t.fatalf("no sandbox of tier %s could be made", tier)
			}
			w.needed(tier)
			for range 2 {
				w.write(t.ctx, b)
			}
			w.begin(t.ctx, b)
			w.snapshot(t.ctx, b)
			w.write(t.ctx, b)
			w.count(t.ctx, b)
			if pause {
				w.pause(t.ctx, b, false)
			}
			w.needed(tier)
		}
	}
}

// needed gives the trial up if something that it builds on was refused for want of a resource.
func (w *worker) needed(tier carrel.Tier) {
	if w.busy != nil {
		w.t.giveUp("it can't make its sandboxes of tier %s: %v", tier, w.busy)
	}
}

// told judges an operation's answer. It reports whether it succeeded. An operation may fail when a
// fault is under way, or when the machine is too busy for it. A success in the dark is a doubt.
func (w *worker) told(ctx context.Context, calm bool, what string, id carrel.ID, err error) bool {
	w.t.ops.Add(1)
	if err == nil {
		return !w.t.dark.Load()
	}
	busy := errors.Is(err, carrel.Exhausted) || errors.Is(err, carrel.Unavailable)
	if busy {
		w.busy = err
	}
	if calm && w.t.calm.Load() && !busy && ctx.Err() == nil {
		w.t.violate("%s %s failed without a fault: %v (%s)", what, id, err, carrel.KindOf(err))
	}
	time.Sleep(50 * time.Millisecond) // do not ask a dead daemon a thousand times
	return false
}

// step does one random operation.
func (w *worker) step(ctx context.Context) {
	var free []*box
	for _, b := range w.boxes {
		if !b.dead && b.doubt == none {
			free = append(free, b)
		}
	}
	if len(free) == 0 || len(free) < w.most && w.rng.IntN(3) == 0 {
		if len(w.boxes)-len(free) < 3*w.most { // boxes in doubt wait for the oracle
			w.create(ctx, w.t.tiers[w.rng.IntN(len(w.t.tiers))])
		} else {
			<-w.quit
		}
		return
	}
	b := free[w.rng.IntN(len(free))]
	snaps := w.t.j.snapsOf(b.id)
	if b.paused {
		switch n := w.rng.IntN(10); {
		case n < 6:
			w.resume(ctx, b)
		case n < 7:
			w.fork(ctx, b)
		case n < 8:
			w.kill(ctx, b)
		case len(snaps) > 0:
			w.delete(ctx, snaps[w.rng.IntN(len(snaps))])
		}
		return
	}
	switch n := w.rng.IntN(20); {
	case n < 5:
		w.write(ctx, b)
	case n < 7:
		w.remove(ctx, b)
	case n < 9 && b.pid == 0 && b.tier != carrel.Sim:
		w.begin(ctx, b)
	case n < 9 && b.pid != 0:
		w.count(ctx, b)
	case n < 12:
		w.pause(ctx, b, w.rng.IntN(4) == 0)
	case n < 14 && len(snaps) < 4:
		w.snapshot(ctx, b)
	case n < 15:
		w.fork(ctx, b)
	case n < 17 && len(snaps) > 0:
		w.rollback(ctx, b, snaps[w.rng.IntN(len(snaps))])
	case n < 18 && len(snaps) > 0:
		w.delete(ctx, snaps[w.rng.IntN(len(snaps))])
	case n < 19:
		w.kill(ctx, b)
	default:
		w.execute(ctx, b)
	}
}

func (w *worker) create(ctx context.Context, tier carrel.Tier) *box {
	calm := w.t.calm.Load()
	w.t.j.expect(1, 0)
	template := ""
	if tier == carrel.Sim {
		template = "sim"
	}
	sb, err := w.svc.Create(ctx, carrel.CreateOptions{Template: template, Tier: tier,
		Timeout: 2 * time.Hour, Limits: carrel.Limits{MemoryMB: 256}})
	if !w.told(ctx, calm, "create", "", err) {
		return nil
	}
	w.t.j.expect(-1, 0)
	b := &box{id: sb.ID, tier: tier, content: content{files: map[string]string{}}}
	w.t.j.addBox(b)
	w.boxes = append(w.boxes, b)
	return b
}

// write uploads a marker file.
func (w *worker) write(ctx context.Context, b *box) {
	size := 1 + w.rng.IntN(100_000)
	if w.rng.IntN(8) == 0 {
		size *= 30
	}
	data := make([]byte, size)
	for i := 0; i < len(data); i += 8 { // half of it can be compressed
		word := w.rng.Uint64() & 0x3f3f3f3f3f3f3f3f
		for k := i; k < min(i+8, len(data)); k++ {
			data[k], word = byte(word), word>>8
		}
	}
	name := fmt.Sprintf("f%d", w.rng.IntN(6))
	calm := w.t.calm.Load()
	b.doubt, b.file, b.sum = inWrite, name, sumOf(data)
	c, err := w.svc.Computer(ctx, b.id)
	if err == nil {
		_, err = c.Files("").Write(ctx, folder+"/"+name, bytes.NewReader(data))
	}
	if w.told(ctx, calm, "write in", b.id, err) {
		b.doubt, b.files[name] = none, b.sum
	}
}

// remove deletes a marker file.
func (w *worker) remove(ctx context.Context, b *box) {
	name := fmt.Sprintf("f%d", w.rng.IntN(6))
	calm := w.t.calm.Load()
	b.doubt, b.file, b.sum = inWrite, name, ""
	c, err := w.svc.Computer(ctx, b.id)
	if err == nil {
		err = c.Files("").Remove(ctx, folder+"/"+name)
	}
	if w.told(ctx, calm, "remove in", b.id, err) {
		b.doubt = none
		delete(b.files, name)
	}
}

// execute copies a marker file by a command.
func (w *worker) execute(ctx context.Context, b *box) {
	for from, sum := range b.files {
		calm := w.t.calm.Load()
		b.doubt, b.file, b.sum = inWrite, "copy", sum
		c, err := w.svc.Computer(ctx, b.id)
		if err == nil {
			var res *carrel.Result
			line := fmt.Sprintf("cp %s/%s %s/.copy && mv %s/.copy %s/copy", folder, from, folder, folder,
				folder)
			if res, err = c.Run(ctx, carrel.Command{Shell: line}); err == nil && res.ExitCode != 0 {
				err = fmt.Errorf("%s: %s %s", line, res.Status, res.Stderr)
			}
		}
		if w.told(ctx, calm, "execute in", b.id, err) {
			b.doubt, b.files["copy"] = none, sum
		}
		return
	}
}

// begin starts the process that holds a number.
func (w *worker) begin(ctx context.Context, b *box) {
	if b.tier == carrel.Sim {
		return
	}
	calm := w.t.calm.Load()
	c, err := w.svc.Computer(ctx, b.id)
	var p carrel.Process
	if err == nil {
		p, err = c.Start(ctx, carrel.Command{Args: []string{"bash", "-c",
			"n=0; while read -r n; do echo now $n; done"}, OpenStdin: true, Tag: "number"})
	}
	if w.told(ctx, calm, "start in", b.id, err) {
		b.pid, b.n = p.PID(), 0
		_ = p.Close()
	}
}

// count changes the number.
func (w *worker) count(ctx context.Context, b *box) {
	if b.pid == 0 {
		return
	}
	calm := w.t.calm.Load()
	n := b.n + 1
	b.doubt = inCount
	err := w.t.tell(ctx, w.svc, b.id, b.pid, n)
	if w.told(ctx, calm, "count in", b.id, err) {
		b.doubt, b.n = none, n
	}
}

// tell sends a number to the process, and waits for its answer.
func (t *trial) tell(ctx context.Context, svc carrel.Service, id carrel.ID, pid, n int) error {
	c, err := svc.Computer(ctx, id)
	if err != nil {
		return err
	}
	var out daemontest.Output
	p, err := c.Attach(ctx, pid, &out, io.Discard)
	if err != nil {
		return err
	}
	defer p.Close()
	if _, err := p.Write([]byte(strconv.Itoa(n) + "\n")); err != nil {
		return err
	}
	mark := fmt.Sprintf("now %d\n", n)
	return testenv.Within(ctx, 30*time.Second, func() error {
		if !strings.Contains(out.String(), mark) {
			return fmt.Errorf("process %d did not say %q: %q", pid, mark, out.String())
		}
		return nil
	})
}

func (w *worker) pause(ctx context.Context, b *box, filesOnly bool) {
	calm := w.t.calm.Load()
	b.doubt, b.memo = inPause, !filesOnly
	sb, err := w.svc.Pause(ctx, b.id, carrel.PauseOptions{FilesOnly: filesOnly})
	if w.told(ctx, calm, "pause", b.id, err) {
		b.doubt, b.paused = none, true
		if filesOnly || b.tier != carrel.GVisor {
			b.pid = 0
		}
		_ = sb
	}
}

func (w *worker) resume(ctx context.Context, b *box) {
	calm := w.t.calm.Load()
	b.doubt = inResume
	_, _, err := w.svc.Resume(ctx, b.id, carrel.ResumeOptions{Timeout: 2 * time.Hour})
	if w.told(ctx, calm, "resume", b.id, err) {
		b.doubt, b.paused = none, false
	}
}

func (w *worker) snapshot(ctx context.Context, b *box) {
	calm := w.t.calm.Load()
	w.t.j.expect(0, 1)
	sn, err := w.svc.Snapshot(ctx, b.id, carrel.SnapshotOptions{})
	if w.told(ctx, calm, "snapshot", b.id, err) {
		w.t.j.expect(0, -1)
		s := &snap{id: sn.ID, of: b.id, tier: b.tier, memory: sn.Memory, content: b.clone()}
		if !sn.Memory {
			s.pid = 0
		}
		w.t.j.addSnap(s)
	}
}

func (w *worker) fork(ctx context.Context, b *box) {
	if len(w.boxes) >= 2*w.most {
		return
	}
	calm, count := w.t.calm.Load(), 1+w.rng.IntN(2)
	w.t.j.expect(count, 0)
	forks, err := w.svc.Fork(ctx, b.id, carrel.ForkOptions{Count: count, Timeout: 2 * time.Hour})
	for _, f := range forks {
		if f.Err != nil {
			err = errors.Join(err, f.Err)
			continue
		}
		w.t.j.expect(-1, 0)
		n := &box{id: f.Sandbox.ID, tier: b.tier, content: b.clone()}
		if b.tier != carrel.GVisor {
			n.pid = 0
		}
		w.t.j.addBox(n)
		w.boxes = append(w.boxes, n)
	}
	w.told(ctx, calm, "fork", b.id, err)
}

func (w *worker) rollback(ctx context.Context, b *box, s *snap) {
	if s.doubt != none || s.blind {
		return
	}
	calm := w.t.calm.Load()
	b.doubt, b.back = inRollback, s.clone()
	_, err := w.svc.Rollback(ctx, b.id, s.id, carrel.RollbackOptions{})
	if w.told(ctx, calm, "roll back", b.id, err) {
		b.doubt, b.content = none, s.clone()
	}
}

func (w *worker) kill(ctx context.Context, b *box) {
	calm := w.t.calm.Load()
	b.doubt = inKill
	err := w.svc.Kill(ctx, b.id)
	if w.told(ctx, calm, "kill", b.id, err) {
		b.doubt, b.dead = none, true
	}
}

func (w *worker) delete(ctx context.Context, s *snap) {
	if s.doubt != none {
		return
	}
	calm := w.t.calm.Load()
	s.doubt = inDelete
	err := w.svc.DeleteSnapshot(ctx, string(s.id))
	if errors.Is(err, carrel.Conflict) { // its sandbox is paused there
		s.doubt = none
		return
	}
	if w.told(ctx, calm, "delete", s.of, err) {
		s.doubt, s.gone = none, true
	}
}
