package chaos

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/testenv"
)

// allowed says what a fault may cost. Its zero value allows nothing.
type allowed struct {
	running bool // sandboxes that ran when the fault came are gone
	sims    bool // the same for simulated ones: they live in the daemon
	// touched reports whether the fault touched a sandbox or a snapshot: it may be refused or gone,
	// but must never have wrong content. nil: it touched none.
	touched   func(id string) bool
	unclaimed bool // things without a record may be listed
	snapshots int  // how many snapshots are opened; −1: all
}

func (a allowed) touches(id string) bool { return a.touched != nil && a.touched(id) }

// verify compares a daemon with the journal. It settles every doubt, and wakes every paused
// sandbox.
func (t *trial) verify(svc carrel.Service, a allowed) {
	t.calm.Store(false)
	ctx, cancel := context.WithTimeout(t.ctx, 5*time.Minute)
	defer cancel()
	listed, err := listAll(ctx, svc)
	if err != nil {
		t.violate("the sandboxes can't be listed: %v", err)
		return
	}
	var wg sync.WaitGroup
	room := make(chan struct{}, 4)
	for _, b := range sorted(t.j) {
		sb, there := listed[b.id]
		delete(listed, b.id)
		if !t.present(b, sb, there, a) {
			continue
		}
		wg.Go(func() {
			room <- struct{}{}
			defer func() { <-room }()
			if err := t.inside(ctx, svc, b, sb); err != nil && !errors.Is(err, errContent) &&
				a.touches(string(b.id)) {
				t.note("%s is refused: %s", b.id, carrel.KindOf(err))
				b.doubt, b.dead = none, true
				_ = svc.Kill(ctx, b.id)
			} else if err != nil {
				t.violate("%s (%s): %v", b.id, b.tier, err)
			}
		})
	}
	wg.Wait()
	t.strangers(ctx, svc, listed)
	t.moments(ctx, svc, a)
	t.nothingUnclaimed(ctx, svc, a)
}

// sorted returns the journal's sandboxes in the order of IDs, dead ones too.
func sorted(j *journal) []*box {
	j.mu.Lock()
	defer j.mu.Unlock()
	var out []*box
	for _, id := range slices.Sorted(maps.Keys(j.boxes)) {
		out = append(out, j.boxes[id])
	}
	return out
}

// listAll returns all sandboxes, in all states.
func listAll(ctx context.Context, svc carrel.Service) (map[carrel.ID]carrel.Sandbox, error) {
	out := map[carrel.ID]carrel.Sandbox{}
	opts := carrel.ListOptions{Limit: 100}
	for {
		page, err := svc.List(ctx, opts)
		if err != nil {
			return nil, err
		}
		for _, sb := range page.Sandboxes {
			out[sb.ID] = sb
		}
		if opts.Cursor = page.Next; opts.Cursor == "" {
			return out, nil
		}
	}
}

// present compares a sandbox's state with the journal. It reports whether its inside is to be
// compared too.
func (t *trial) present(b *box, sb carrel.Sandbox, there bool, a allowed) bool {
	ran := !b.paused || b.doubt == inResume || b.doubt == inPause
	mayBeGone := b.doubt == inKill || ran && a.running || ran && a.sims && b.tier == carrel.Sim ||
		a.touches(string(b.id))
	switch {
	case b.dead && there:
		t.violate("%s (%s) was killed and is there again, %s", b.id, b.tier, sb.State)
		return false
	case b.dead:
		return false
	case !there && mayBeGone:
		b.doubt, b.dead = none, true
		return false
	case !there:
		t.violate("%s (%s) was acknowledged and is gone; paused: %v, doubt: %q", b.id, b.tier, b.paused,
			b.doubt)
		b.dead = true
		return false
	}
	switch {
	case b.doubt == inPause || b.doubt == inResume || b.doubt == inRollback || b.doubt == inKill:
	case b.paused && sb.State != carrel.Paused:
		t.violate("%s (%s) was paused and is %s", b.id, b.tier, sb.State)
	case !b.paused && sb.State != carrel.Running && !a.running:
		t.violate("%s (%s) was running and is %s", b.id, b.tier, sb.State)
	}
	return true
}

// errContent says that a sandbox has not the content that was acknowledged.
var errContent = errors.New("its content is not what was acknowledged")

// inside wakes a sandbox and compares its files and its number with the journal.
func (t *trial) inside(ctx context.Context, svc carrel.Service, b *box, sb carrel.Sandbox) error {
	slept := sb.State != carrel.Running
	if slept || b.paused {
		if _, _, err := svc.Resume(ctx, b.id, carrel.ResumeOptions{Timeout: 2 * time.Hour}); err != nil {
			return fmt.Errorf("resume: %w", err)
		}
		b.paused = false
	}
	if b.doubt == inPause && slept && (!b.memo || b.tier != carrel.GVisor) {
		b.pid = 0 // it was paused without its memory
	}
	c, err := svc.Computer(ctx, b.id)
	if err != nil {
		return err
	}
	got, err := settled(ctx, c)
	if err != nil {
		return fmt.Errorf("read its files: %w", err)
	}
	if b.doubt == inRollback && b.compareFiles(got) != nil {
		b.content = b.back // it is there
	}
	if err := b.compareFiles(got); err != nil {
		return err
	}
	n := b.n
	if b.doubt == inWrite {
		if sum, ok := got[b.file]; ok {
			b.files[b.file] = sum
		} else {
			delete(b.files, b.file)
		}
	}
	doubt := b.doubt
	b.doubt = none
	if b.pid == 0 {
		return nil
	}
	return t.number(ctx, svc, b, c, n, doubt)
}

// number asks the process for its number by the next one: its memory must hold the last.
func (t *trial) number(ctx context.Context, svc carrel.Service, b *box, c carrel.Computer, n int,
	doubt doubt) error {
	list, err := c.Processes(ctx)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(list, func(p carrel.ProcessInfo) bool {
		return p.PID == b.pid &&
			p.Tag == "number"
	}) {
		if doubt == inRollback { // the file contents are the same before and after
			b.pid = 0
			return nil
		}
		return fmt.Errorf("%w: process %d is gone; it has %v", errContent, b.pid, list)
	}
	n += 2 // in doubt it may have been raised by one
	if err := t.tell(ctx, svc, b.id, b.pid, n); err != nil {
		return fmt.Errorf("%w: its process does not answer: %w", errContent, err)
	}
	b.n = n
	return nil
}

// compareFiles compares checksums with the journal's.
func (b *box) compareFiles(got map[string]string) error {
	for name, want := range b.files {
		if sum, ok := got[name]; sum != want {
			if b.doubt == inWrite && name == b.file && sum == b.sum && (ok || b.sum == "") {
				continue
			}
			return fmt.Errorf("%w: file %s has the sum %.12q, acknowledged was %.12q", errContent, name, sum,
				want)
		}
	}
	for name, sum := range got {
		if _, ok := b.files[name]; ok || b.doubt == inWrite && name == b.file && sum == b.sum ||
			name == ".copy" {
			continue
		}
		return fmt.Errorf("%w: file %s was never acknowledged (%.12q)", errContent, name, sum)
	}
	return nil
}

// The file of an upload that broke off is hidden, and stays until the guest notices that the
// daemon's connection is gone. A killed daemon says nothing, so only the keep-alive of TCP tells.
const (
	uploadPrefix = ".carrel-upload-"
	uploadStays  = time.Minute
)

// settled is contents, once no broken upload is left or it has stayed for too long.
func settled(ctx context.Context, c carrel.Computer) (got map[string]string, err error) {
	_ = testenv.Within(ctx, uploadStays, func() error {
		got, err = contents(ctx, c)
		for name := range got {
			if strings.HasPrefix(name, uploadPrefix) {
				return errNotYet
			}
		}
		return nil
	})
	return got, err
}

// contents reads all marker files, and sums them outside.
func contents(ctx context.Context, c carrel.Computer) (map[string]string, error) {
	out := map[string]string{}
	list, err := c.Files("").List(ctx, folder, 1)
	if errors.Is(err, carrel.NotFound) {
		return out, nil
	}
	if err != nil {
		return nil, err
	}
	for _, fi := range list {
		r, err := c.Files("").Read(ctx, folder+"/"+fi.Name)
		if errors.Is(err, carrel.NotFound) && strings.HasPrefix(fi.Name, uploadPrefix) {
			continue // it went just now
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", fi.Name, err)
		}
		b, err := io.ReadAll(r)
		_ = r.Close()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", fi.Name, err)
		}
		out[fi.Name] = sumOf(b)
	}
	return out, nil
}

// strangers ends sandboxes that no answer named. There may be one for each creation without an
// answer, and each must be whole.
func (t *trial) strangers(ctx context.Context, svc carrel.Service,
	listed map[carrel.ID]carrel.Sandbox) {
	t.j.mu.Lock()
	most := t.j.unknown
	t.j.unknown = 0
	for id := range listed {
		t.j.everyID = append(t.j.everyID, id)
	}
	t.j.mu.Unlock()
	if len(listed) > most {
		t.violate("%d sandboxes are there that nobody asked for: %v", len(listed)-most,
			slices.Collect(maps.Keys(listed)))
	}
	for id, sb := range listed {
		if _, _, err := svc.Resume(ctx, id, carrel.ResumeOptions{}); err != nil {
			t.violate("%s, whose creation was not answered, is %s and half made: %v", id, sb.State, err)
		} else if c, err := svc.Computer(ctx, id); err != nil {
			t.violate("%s, whose creation was not answered, is half made: %v", id, err)
		} else if _, err := contents(ctx, c); err != nil {
			t.violate("%s, whose creation was not answered, is half made: %v", id, err)
		}
		if err := svc.Kill(ctx, id); err != nil {
			t.violate("%s, whose creation was not answered, can't be killed: %v", id, err)
		}
	}
}

// moments compares the snapshots with the journal, and opens some.
func (t *trial) moments(ctx context.Context, svc carrel.Service, a allowed) {
	listed := map[carrel.SnapshotID]carrel.Snapshot{}
	opts := carrel.SnapshotListOptions{Limit: 100}
	for {
		page, err := svc.ListSnapshots(ctx, opts)
		if err != nil {
			t.violate("the snapshots can't be listed: %v", err)
			return
		}
		for _, sn := range page.Snapshots {
			listed[sn.ID] = sn
		}
		if opts.Cursor = page.Next; opts.Cursor == "" {
			break
		}
	}
	t.j.mu.Lock()
	all := slices.Sorted(maps.Keys(t.j.snaps))
	unnamed := t.j.unnamed
	t.j.unnamed = 0
	t.j.mu.Unlock()
	var open []*snap
	for _, id := range all {
		s := t.j.snaps[id]
		_, there := listed[id]
		delete(listed, id)
		switch {
		case s.gone && there:
			t.violate("snapshot %s was deleted and is there again", id)
		case s.gone:
		case !there && (s.doubt == inDelete || a.touches(string(id))):
			s.gone = true
		case !there:
			t.violate("snapshot %s of %s was acknowledged and is gone", id, s.of)
			s.gone = true
		default:
			if s.doubt = none; !s.blind {
				open = append(open, s)
			}
		}
	}
	for id, sn := range listed {
		if sn.Cause != carrel.CauseRequest {
			continue
		}
		if unnamed--; unnamed < 0 {
			t.violate("snapshot %s is there, and nobody asked for it", id)
		}
		t.j.addSnap(&snap{id: id, of: sn.Sandbox, tier: sn.Tier, memory: sn.Memory, blind: true})
	}
	t.rng.Shuffle(len(open), func(i, k int) { open[i], open[k] = open[k], open[i] })
	if a.snapshots >= 0 && len(open) > max(a.snapshots, 2) {
		open = open[:max(a.snapshots, 2)]
	}
	for _, s := range open {
		err := t.openSnapshot(ctx, svc, s)
		if err != nil && !errors.Is(err, errContent) && a.touches(string(s.id)) {
			t.note("%s is refused: %s", s.id, carrel.KindOf(err))
			s.gone = true
			_ = svc.DeleteSnapshot(ctx, string(s.id))
		} else if err != nil {
			t.violate("snapshot %s of %s (%s): %v", s.id, s.of, s.tier, err)
		}
	}
}

// openSnapshot makes a sandbox from a snapshot, compares its content and kills it.
func (t *trial) openSnapshot(ctx context.Context, svc carrel.Service, s *snap) error {
	sb, err := svc.Create(ctx, carrel.CreateOptions{Template: string(s.id), Timeout: time.Hour})
	if errors.Is(err, carrel.Exhausted) && carrel.HintOf(err) != "" { // the machine is busy
		return nil
	} else if err != nil {
		return fmt.Errorf("make a sandbox from it: %w", err)
	}
	b := &box{id: sb.ID, tier: s.tier, content: s.clone()}
	t.j.addBox(b)
	if err := t.inside(ctx, svc, b, sb); err != nil {
		return err
	}
	if err := svc.Kill(ctx, sb.ID); err != nil {
		return err
	}
	b.dead = true
	return nil
}

// nothingUnclaimed fails for things that have no record.
func (t *trial) nothingUnclaimed(ctx context.Context, svc carrel.Service, a allowed) {
	list, err := svc.Unclaimed(ctx)
	if err != nil {
		t.violate("fsck: %v", err)
	}
	if !a.unclaimed {
		for _, u := range list {
			t.violate("%s %s has no record: %s %s", u.Kind, u.ID, u.Reason, u.Problem)
		}
	}
}
