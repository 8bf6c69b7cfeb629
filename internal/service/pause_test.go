package service_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/service"
	"github.com/carrel-dev/carrel/internal/state"
	"github.com/carrel-dev/carrel/internal/testenv"
)

func (d *den) pause(t testing.TB, id carrel.ID, o carrel.PauseOptions) {
	t.Helper()
	if _, err := d.Pause(t.Context(), id, o); err != nil {
		t.Fatal(err)
	}
}

// now returns the present state of a sandbox.
func (d *den) now(t testing.TB, id carrel.ID) carrel.State {
	t.Helper()
	sb, err := d.Get(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return sb.State
}

// TestPause follows a sandbox through a pause and back. It is the same sandbox with another
// instance.
func TestPause(t *testing.T) {
	d := newDen(t, nil)
	sb := d.create(t, carrel.CreateOptions{Timeout: time.Hour, Metadata: map[string]string{"k": "v"}})
	d.pause(t, sb.ID, carrel.PauseOptions{})
	paused, err := d.Get(t.Context(), sb.ID)
	if err != nil || paused.State != carrel.Paused || paused.Snapshot == "" {
		t.Fatalf("%+v, %v", paused, err)
	}
	if ids := d.moments.ids(); len(ids) != 0 {
		t.Errorf("a paused sandbox has an instance: %v", ids)
	}
	if _, err := os.Stat(filepath.Join(d.dir, string(sb.ID))); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a paused sandbox has a directory: %v", err)
	}
	for what, err := range map[string]error{
		"Pause":      second(d.Pause(t.Context(), sb.ID, carrel.PauseOptions{})),
		"Computer":   second(d.Computer(t.Context(), sb.ID)),
		"SetTimeout": second(d.SetTimeout(t.Context(), sb.ID, time.Minute, false)),
		"Delete":     d.DeleteSnapshot(t.Context(), string(paused.Snapshot)),
	} {
		if !errors.Is(err, carrel.Conflict) {
			t.Errorf("%s of a paused sandbox: %v", what, err)
		}
	}
	got, resumed, err := d.Resume(t.Context(), sb.ID, carrel.ResumeOptions{})
	if err != nil || !resumed || got.State != carrel.Running || got.Generation != 1 ||
		got.AccessToken != sb.AccessToken || got.Metadata["k"] != "v" || got.Ends.Before(time.Now().Add(59*time.Minute)) {
		t.Fatalf("%+v, %v, %v", got, resumed, err)
	}
	in := d.moments.get(sb.ID).inits()
	if len(in) != 1 || !in[0].Restored || in[0].Generation != 1 || in[0].AccessToken != sb.AccessToken {
		t.Errorf("the guest was told %+v", in)
	}
	if _, resumed, err := d.Resume(t.Context(), sb.ID, carrel.ResumeOptions{}); err != nil || resumed {
		t.Errorf("resume of a running one: %v, %v", resumed, err)
	}
	if err := d.Kill(t.Context(), sb.ID); err != nil {
		t.Error(err)
	}
	d.consistent(t)
}

// TestPauseFails makes a pause fail at each step. The sandbox must run on.
func TestPauseFails(t *testing.T) {
	d := newDen(t, nil)
	sb := d.create(t, carrel.CreateOptions{Timeout: time.Hour})
	full := &carrel.Error{Kind: carrel.Exhausted, Err: syscall.ENOSPC}
	check := func(what string) {
		t.Helper()
		_, err := d.Pause(t.Context(), sb.ID, carrel.PauseOptions{})
		if !errors.Is(err, carrel.Exhausted) {
			t.Errorf("%s: %v", what, err)
		}
		if st := d.now(t, sb.ID); st != carrel.Running {
			t.Errorf("%s: it is %s", what, st)
		}
		if _, err := d.Computer(t.Context(), sb.ID); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		d.consistent(t)
	}
	d.moments.set(func() { d.moments.snapErr = full })
	check("the driver's disk is full")
	d.moments.set(func() { d.moments.snapErr = nil })
	d.applies.fail(func(state.Change) error { return full })
	check("the records' disk is full")
	d.applies.fail(nil)
	d.pause(t, sb.ID, carrel.PauseOptions{})
}

// TestAutoPauseHolds guards against a known complaint: the action at the timeout must not be
// forgotten when a client connects to a sandbox again.
func TestAutoPauseHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDen(t, nil)
		sb := d.create(t, carrel.CreateOptions{Timeout: time.Minute, Lifecycle: carrel.Lifecycle{OnTimeout: carrel.ActionPause}})
		for i := range 3 {
			time.Sleep(61 * time.Second)
			synctest.Wait()
			if st := d.now(t, sb.ID); st != carrel.Paused {
				t.Fatalf("round %d: it is %s", i, st)
			}
			time.Sleep(24 * time.Hour)
			got, _, err := d.Resume(t.Context(), sb.ID, carrel.ResumeOptions{})
			if err != nil || got.Lifecycle.OnTimeout != carrel.ActionPause {
				t.Fatalf("%+v, %v", got, err)
			}
			if left := time.Until(got.Ends); left < 59*time.Second || left > 61*time.Second {
				t.Errorf("round %d: it ends in %v", i, left)
			}
		}
		if err := d.Kill(t.Context(), sb.ID); err != nil {
			t.Error(err)
		}
	})
}

// TestPauseAtTimeoutFails keeps a sandbox that can't be paused at its timeout, because its state is
// worth more than its timeout.
func TestPauseAtTimeoutFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDen(t, nil)
		d.moments.set(func() { d.moments.snapErr = &carrel.Error{Kind: carrel.Exhausted, Err: syscall.ENOSPC} })
		sb := d.create(t, carrel.CreateOptions{Timeout: time.Minute, Lifecycle: carrel.Lifecycle{OnTimeout: carrel.ActionPause}})
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if st := d.now(t, sb.ID); st != carrel.Running {
			t.Fatalf("it is %s", st)
		}
		d.moments.set(func() { d.moments.snapErr = nil })
		time.Sleep(time.Minute)
		synctest.Wait()
		if st := d.now(t, sb.ID); st != carrel.Paused {
			t.Fatalf("with room again it is %s", st)
		}
		told := false
		for _, e := range d.events(t) {
			told = told || e.Type == "sandbox.pause_failed"
		}
		if !told {
			t.Error("nobody was told")
		}
	})
}

// TestVisit shows that a visit wakes a sandbox with automatic wake-up, once for all visitors, and
// no other sandbox.
func TestVisit(t *testing.T) {
	d := newDen(t, nil)
	wakes := d.create(t, carrel.CreateOptions{Timeout: time.Minute, Lifecycle: carrel.Lifecycle{AutoResume: true}})
	sleeps := d.create(t, carrel.CreateOptions{Timeout: time.Hour})
	for _, id := range []carrel.ID{wakes.ID, sleeps.ID} {
		d.pause(t, id, carrel.PauseOptions{})
	}
	if _, _, err := d.Visit(t.Context(), sleeps.ID); !errors.Is(err, carrel.Conflict) {
		t.Errorf("a visit to what does not wake: %v", err)
	}
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			conn, done, err := d.Visit(t.Context(), wakes.ID)
			if err != nil || conn == nil {
				t.Error(err)
				return
			}
			done()
			done() // harmless
		})
	}
	wg.Wait()
	if sb, err := d.Get(t.Context(), wakes.ID); err != nil || sb.Generation != 1 || time.Until(sb.Ends) < 4*time.Minute {
		t.Errorf("it was restored %d times and ends in %v, %v", sb.Generation, time.Until(sb.Ends), err)
	}
	// As in E2B, traffic does not wake a sandbox that was paused on request without memory.
	d.pause(t, wakes.ID, carrel.PauseOptions{FilesOnly: true})
	if _, _, err := d.Visit(t.Context(), wakes.ID); !errors.Is(err, carrel.Conflict) {
		t.Errorf("a visit to what sleeps soundly: %v", err)
	}
	if _, resumed, err := d.Resume(t.Context(), wakes.ID, carrel.ResumeOptions{}); err != nil || !resumed {
		t.Errorf("%v, %v", resumed, err)
	}
	d.pause(t, wakes.ID, carrel.PauseOptions{})
	if _, done, err := d.Visit(t.Context(), wakes.ID); err != nil {
		t.Errorf("and then: %v", err)
	} else {
		done()
	}
}

// TestRoom counts living sandboxes against one bound and paused ones against another.
func TestRoom(t *testing.T) {
	d := newDen(t, func(o *service.Options) { o.MaxSandboxes, o.MaxPaused = 1, 1 })
	a := d.create(t, carrel.CreateOptions{Timeout: time.Hour})
	d.pause(t, a.ID, carrel.PauseOptions{})
	b := d.create(t, carrel.CreateOptions{Timeout: time.Hour})
	if _, _, err := d.Resume(t.Context(), a.ID, carrel.ResumeOptions{}); !errors.Is(err, carrel.Exhausted) || carrel.HintOf(err) == "" {
		t.Errorf("a second one alive: %v", err)
	}
	if st := d.now(t, a.ID); st != carrel.Paused {
		t.Errorf("it is %s", st)
	}
	if _, err := d.Pause(t.Context(), b.ID, carrel.PauseOptions{}); !errors.Is(err, carrel.Exhausted) || carrel.HintOf(err) == "" {
		t.Errorf("a second one paused: %v", err)
	}
	if st := d.now(t, b.ID); st != carrel.Running {
		t.Errorf("it is %s", st)
	}
	if err := d.Kill(t.Context(), a.ID); err != nil { // paused
		t.Error(err)
	}
	d.pause(t, b.ID, carrel.PauseOptions{})
	d.create(t, carrel.CreateOptions{})
}

// TestPausedSurvivesRestart restarts the service. It must find paused sandboxes again, finish a
// rollback that the earlier service had begun, and use the guest image that a sandbox was running.
func TestPausedSurvivesRestart(t *testing.T) {
	guests := t.TempDir()
	image := func(name string) string {
		path := filepath.Join(guests, name)
		if err := os.WriteFile(path, []byte(name), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	old, young := image("guest-old.erofs"), image("guest-young.erofs")
	current := old
	d := newDen(t, func(o *service.Options) { o.GuestImage, o.KillOnClose = current, false })
	sb := d.create(t, carrel.CreateOptions{Timeout: time.Hour, Lifecycle: carrel.Lifecycle{AutoResume: true}})
	first := d.snap(t, sb.ID, carrel.CauseRequest)
	d.pause(t, sb.ID, carrel.PauseOptions{})
	back := d.create(t, carrel.CreateOptions{Timeout: time.Hour})
	backTo := d.snap(t, back.ID, carrel.CauseRequest)
	d.pause(t, back.ID, carrel.PauseOptions{})
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	rec, err := d.store.GetSandbox(t.Context(), back.ID)
	if err != nil {
		t.Fatal(err)
	}
	rec.Paused, rec.Sandbox.Snapshot, rec.Wake = backTo, backTo, true
	if err := d.store.PutSandbox(t.Context(), rec); err != nil {
		t.Fatal(err)
	}

	current = young
	d.Service = d.open(t, d.opts)
	if got, err := d.Get(t.Context(), sb.ID); err != nil || got.State != carrel.Paused || !got.Lifecycle.AutoResume {
		t.Fatalf("%+v, %v", got, err)
	}
	testenv.EventuallyNil(t, "the rollback is finished", func() error {
		if st := d.now(t, back.ID); st != carrel.Running {
			return fmt.Errorf("it is %s", st)
		}
		return nil
	})
	if got, err := d.Get(t.Context(), back.ID); err != nil || got.Snapshot != backTo {
		t.Errorf("it went back to %s, want %s; %v", got.Snapshot, backTo, err)
	}
	lastGuest := func() (guest string) {
		d.moments.set(func() { guest = filepath.Base(d.moments.specs[len(d.moments.specs)-1].Guest) })
		return guest
	}
	if _, done, err := d.Visit(t.Context(), sb.ID); err != nil {
		t.Fatal(err)
	} else {
		done()
	}
	if g := lastGuest(); g != "guest-old.erofs" {
		t.Errorf("what goes on runs %s", g)
	}
	d.pause(t, sb.ID, carrel.PauseOptions{FilesOnly: true})
	if _, _, err := d.Resume(t.Context(), sb.ID, carrel.ResumeOptions{}); err != nil {
		t.Fatal(err)
	}
	if g := lastGuest(); g != "guest-young.erofs" {
		t.Errorf("what boots runs %s", g)
	}
	if _, err := d.Rollback(t.Context(), sb.ID, first, carrel.RollbackOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, id := range []carrel.ID{sb.ID, back.ID} {
		if err := d.Kill(t.Context(), id); err != nil {
			t.Error(err)
		}
	}
}

// TestDamagedResume shows that a sandbox with a damaged snapshot stays paused.
func TestDamagedResume(t *testing.T) {
	d := newDen(t, nil)
	sb := d.create(t, carrel.CreateOptions{Timeout: time.Hour})
	d.pause(t, sb.ID, carrel.PauseOptions{})
	d.snaps.VerifyFn = func(carrel.SnapshotID) error {
		return &carrel.Error{Kind: carrel.Invalid, Err: errors.New("pages.img: wrong checksum")}
	}
	if _, _, err := d.Resume(t.Context(), sb.ID, carrel.ResumeOptions{}); !errors.Is(err, carrel.Invalid) {
		t.Errorf("%v", err)
	}
	if st := d.now(t, sb.ID); st != carrel.Paused || len(d.moments.ids()) != 0 {
		t.Errorf("it is %s, and %v live", st, d.moments.ids())
	}
	if _, err := d.Rollback(t.Context(), sb.ID, d.timeline(t, sb.ID)[0], carrel.RollbackOptions{}); !errors.Is(err, carrel.Invalid) {
		t.Errorf("%v", err)
	}
	d.snaps.VerifyFn = nil
	if _, _, err := d.Resume(t.Context(), sb.ID, carrel.ResumeOptions{}); err != nil {
		t.Error(err)
	}
}

// TestClosingWhilePausing closes the service during a pause. The sandbox is then running or paused,
// never in between.
func TestClosingWhilePausing(t *testing.T) {
	d := newDen(t, func(o *service.Options) { o.KillOnClose = false })
	sb := d.create(t, carrel.CreateOptions{Timeout: time.Hour})
	begun, goOn := make(chan struct{}), make(chan struct{})
	d.moments.set(func() { d.moments.snapFn = sync.OnceFunc(func() { close(begun); <-goOn }) })
	paused := make(chan error, 1)
	go func() { _, err := d.Pause(context.Background(), sb.ID, carrel.PauseOptions{}); paused <- err }()
	<-begun
	closed := make(chan error, 1)
	go func() { closed <- d.Close() }()
	time.Sleep(10 * time.Millisecond)
	close(goOn)
	if err := <-closed; err != nil {
		t.Error(err)
	}
	err := <-paused
	rec, gerr := d.store.GetSandbox(t.Context(), sb.ID)
	if gerr != nil {
		t.Fatal(gerr)
	}
	switch {
	case err == nil && rec.Sandbox.State == carrel.Paused && len(d.moments.ids()) == 0:
	case errors.Is(err, carrel.Unavailable) && rec.Sandbox.State == carrel.Running && len(d.moments.ids()) == 1:
	default:
		t.Errorf("told %v; the record says %s; alive: %v", err, rec.Sandbox.State, d.moments.ids())
	}
}

// TestAmbiguousWrites makes writes fail although they reached the store. The record and the service
// must still agree.
func TestAmbiguousWrites(t *testing.T) {
	d := newDen(t, func(o *service.Options) { o.KillOnClose = false })
	var armed atomic.Bool
	d.store.PutFn = func(r state.Record) error {
		if !armed.Load() || r.Sandbox.State != carrel.Running {
			return nil
		}
		if err := d.store.Store.PutSandbox(context.Background(), r); err != nil {
			t.Error(err)
		}
		return &carrel.Error{Kind: carrel.Internal, Err: syscall.EIO}
	}
	sb := d.create(t, carrel.CreateOptions{Timeout: time.Hour})
	times := 1
	d.applies.fail(func(c state.Change) error {
		if times--; times < 0 {
			return nil
		}
		if err := d.store.Apply(context.Background(), c); err != nil {
			t.Error(err)
		}
		return &carrel.Error{Kind: carrel.Internal, Err: syscall.EIO}
	})
	if _, err := d.Pause(t.Context(), sb.ID, carrel.PauseOptions{}); !errors.Is(err, carrel.Internal) {
		t.Errorf("%v", err)
	}
	record := func() state.Record {
		t.Helper()
		rec, err := d.store.GetSandbox(t.Context(), sb.ID)
		if err != nil {
			t.Fatal(err)
		}
		return rec
	}
	if rec := record(); rec.Sandbox.State != carrel.Running || d.now(t, sb.ID) != carrel.Running {
		t.Errorf("the record says %s, the service %s", rec.Sandbox.State, d.now(t, sb.ID))
	}
	d.consistent(t)
	d.applies.fail(nil)
	d.pause(t, sb.ID, carrel.PauseOptions{})
	armed.Store(true)
	if _, _, err := d.Resume(t.Context(), sb.ID, carrel.ResumeOptions{}); !errors.Is(err, carrel.Internal) {
		t.Errorf("%v", err)
	}
	if rec := record(); rec.Sandbox.State != carrel.Paused || rec.Paused == "" || d.now(t, sb.ID) != carrel.Paused {
		t.Errorf("the record says %s, the service %s", rec.Sandbox.State, d.now(t, sb.ID))
	}
	armed.Store(false)
	if _, _, err := d.Resume(t.Context(), sb.ID, carrel.ResumeOptions{}); err != nil {
		t.Error(err)
	}
	if err := d.Kill(t.Context(), sb.ID); err != nil {
		t.Error(err)
	}
}

// frozenDriver is a momentDriver whose instances can be frozen. Thaw fails as often as thawErrs says.
type frozenDriver struct {
	*momentDriver
	frozen   atomic.Bool
	thawErrs atomic.Int64
}

func (d *frozenDriver) Create(ctx context.Context, s driver.Spec) (driver.Instance, error) {
	in, err := d.momentDriver.Create(ctx, s)
	if err != nil {
		return nil, err
	}
	return &frozenInstance{momentInstance: in.(*momentInstance), d: d}, nil
}

type frozenInstance struct {
	*momentInstance
	d *frozenDriver
}

func (i *frozenInstance) Freeze(context.Context) error {
	i.d.frozen.Store(true)
	return nil
}

func (i *frozenInstance) Thaw(context.Context) error {
	if i.d.thawErrs.Add(-1) >= 0 {
		return fmt.Errorf("control socket: %w", os.NewSyscallError("socket", syscall.EMFILE))
	}
	i.d.frozen.Store(false)
	return nil
}

// TestThawWithoutDescriptors lets a pause fail while the daemon has no descriptor to thaw the
// sandbox with. The sandbox must not be left frozen in the state running.
func TestThawWithoutDescriptors(t *testing.T) {
	fd := &frozenDriver{momentDriver: newMomentDriver()}
	d := newDen(t, func(o *service.Options) { o.Drivers = driver.NewRegistry(fd) })
	t.Cleanup(func() {
		for _, in := range fd.instances() {
			_ = in.Destroy(context.Background())
		}
	})
	sb := d.create(t, carrel.CreateOptions{Timeout: time.Hour})
	fd.set(func() { fd.snapErr = syscall.EMFILE })
	fd.thawErrs.Store(3)
	_, err := d.Pause(t.Context(), sb.ID, carrel.PauseOptions{})
	if !errors.Is(err, carrel.Exhausted) || carrel.HintOf(err) == "" {
		t.Errorf("pause: %v, hint %q", err, carrel.HintOf(err))
	}
	if fd.frozen.Load() || fd.thawErrs.Load() >= 0 {
		t.Errorf("the sandbox is frozen: %v; Thaw would fail %d times more",
			fd.frozen.Load(), fd.thawErrs.Load())
	}
	if got, err := d.Get(t.Context(), sb.ID); err != nil || got.State != carrel.Running {
		t.Errorf("after the pause: %v, %v", got.State, err)
	}
}
