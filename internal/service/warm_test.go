package service_test

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/pool"
	"github.com/carrel-dev/carrel/internal/service"
	"github.com/carrel-dev/carrel/internal/state"
	"github.com/carrel-dev/carrel/internal/state/memory"
	"github.com/carrel-dev/carrel/internal/testenv"
)

// realFake is the fake driver, but it claims real processes, so that the service keeps its
// sandboxes ready.
type realFake struct{ *fakeDriver }

func (d realFake) Info() driver.Info {
	i := d.fakeDriver.Info()
	i.Capabilities.RealProcesses = true
	return i
}

// plenty describes a machine with enough free memory.
func plenty() pool.Memory { return pool.Memory{Total: 100, Available: 90} }

// newWarmHouse opens a service that keeps sandboxes ready.
func newWarmHouse(t testing.TB, warm service.WarmOptions, change func(*service.Options)) *house {
	t.Helper()
	h := &house{drv: newFakeDriver(), store: &fakeStore{Store: memory.Open()}, dir: filepath.Join(t.TempDir(), "boxes")}
	h.Service = h.openWarm(t, warm, change)
	t.Cleanup(func() {
		for _, in := range h.drv.instances() {
			_ = in.Destroy(context.Background())
		}
	})
	return h
}

func (h *house) openWarm(t testing.TB, warm service.WarmOptions, change func(*service.Options)) *service.Service {
	t.Helper()
	if warm.Memory == nil {
		warm.Memory = plenty
	}
	if warm.Every == 0 {
		warm.Every = 5 * time.Millisecond
	}
	return h.open(t, func(o *service.Options) {
		o.Drivers, o.Warm = driver.NewRegistry(realFake{h.drv}), warm
		if change != nil {
			change(o)
		}
	})
}

// until waits for a condition. It waits long enough for a slow machine.
func until(t testing.TB, what string, cond func() bool) {
	t.Helper()
	testenv.Eventually(t, what, cond)
}

// status is the state of the pool.
func status(t testing.TB, s *service.Service) carrel.PoolStatus {
	t.Helper()
	st, err := s.Pool(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return st
}

func filled(t testing.TB, s *service.Service, n int) {
	t.Helper()
	until(t, "the pool is full", func() bool { st := status(t, s); return st.Ready == n && st.Making == 0 })
}

func floorOf(n int) service.WarmOptions {
	return service.WarmOptions{Cap: 8, Floors: []service.WarmFloor{{Template: "base", Count: n}}}
}

func TestWarmAdoption(t *testing.T) {
	h := newWarmHouse(t, floorOf(2), nil)
	filled(t, h.Service, 2)
	ahead := h.drv.ids()
	opts := carrel.CreateOptions{Env: map[string]string{"SECRET": "of one"}, Metadata: map[string]string{"k": "v"}, Timeout: time.Hour,
		Network: carrel.Network{PrivateTraffic: true}}
	sb := h.create(t, opts)
	if !slices.Contains(ahead, sb.ID) {
		t.Fatalf("%s was not one of those that were ready: %v", sb.ID, ahead)
	}
	if sb.State != carrel.Running || sb.Metadata["k"] != "v" || sb.Ends.Sub(sb.Started) != time.Hour || len(sb.AccessToken) < 32 || sb.TrafficToken == "" {
		t.Errorf("adopted %+v", sb)
	}
	inits := h.drv.get(sb.ID).inits()
	if len(inits) != 2 {
		t.Fatalf("the guest was initialised %d times", len(inits))
	}
	before, now := inits[0], inits[1]
	if !maps.Equal(before.EnvVars, map[string]string{"A": "template", "B": "template"}) || len(before.AccessToken) < 32 || before.AccessToken == sb.AccessToken {
		t.Errorf("before, the guest was told %+v", before)
	}
	if now.Order <= before.Order || before.Order == 0 {
		t.Errorf("order %d after %d", now.Order, before.Order)
	}
	if now.EnvVars["SECRET"] != "of one" || now.EnvVars["A"] != "template" || now.AccessToken != sb.AccessToken || now.SandboxID != string(sb.ID) || now.Timestamp.IsZero() {
		t.Errorf("now the guest was told %+v", now)
	}
	rec, err := h.store.GetSandbox(t.Context(), sb.ID)
	if err != nil || rec.Sandbox.State != carrel.Running || rec.Env["SECRET"] != "of one" || string(rec.Handle) != string(sb.ID) {
		t.Errorf("record %+v, %v", rec, err)
	}
	for _, e := range h.events(t) {
		if e.ID != "" && (e.ID != sb.ID || e.Fields["start"] != "warm") {
			t.Errorf("event %+v", e)
		}
	}
	filled(t, h.Service, 2) // it is made up for
	if st := status(t, h.Service); st.Hits != 1 || st.Misses != 0 || len(st.Kinds) != 1 || st.Kinds[0].Floor != 2 || st.Kinds[0].Hits != 1 {
		t.Errorf("status %+v", st)
	}
	other := h.create(t, carrel.CreateOptions{})
	for _, in := range h.drv.get(other.ID).inits() {
		if _, ok := in.EnvVars["SECRET"]; ok {
			t.Error("one's environment is in another")
		}
	}
	for _, id := range []carrel.ID{sb.ID, other.ID} {
		if err := h.Kill(t.Context(), id); err != nil {
			t.Error(err)
		}
	}
	if err := h.Close(); err != nil {
		t.Error(err)
	}
	h.clean(t)
}

// TestWarmTakenOver adopts warm sandboxes. If only the token would differ, the guest is told
// nothing and keeps its token, which no other sandbox ever gets. With any other difference, the
// guest is told.
func TestWarmTakenOver(t *testing.T) {
	tokens := map[string]bool{}
	for name, c := range map[string]struct {
		opts  carrel.CreateOptions
		inits int
	}{
		"nothing":         {inits: 1},
		"metadata":        {carrel.CreateOptions{Metadata: map[string]string{"k": "v"}, Timeout: time.Hour}, 1},
		"private traffic": {carrel.CreateOptions{Network: carrel.Network{PrivateTraffic: true}}, 1},
		"the same env":    {carrel.CreateOptions{Env: map[string]string{"A": "template"}}, 1},
		"another env":     {carrel.CreateOptions{Env: map[string]string{"A": ""}}, 2},
		"open":            {carrel.CreateOptions{Insecure: true}, 2},
		"silent":          {carrel.CreateOptions{Network: carrel.Network{Policy: &carrel.Policy{Silent: true}}}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			h := newWarmHouse(t, floorOf(1), nil)
			filled(t, h.Service, 1)
			sb := h.create(t, c.opts)
			inits := h.drv.get(sb.ID).inits()
			if len(inits) != c.inits || status(t, h.Service).Hits != 1 {
				t.Fatalf("told %d times: %+v", len(inits), inits)
			}
			if last := inits[len(inits)-1]; last.AccessToken != sb.AccessToken || (sb.AccessToken == "") != c.opts.Insecure || tokens[sb.AccessToken] {
				t.Errorf("its token is %q, its guest knows %q", sb.AccessToken, last.AccessToken)
			}
			tokens[sb.AccessToken] = true
			rec, err := h.store.GetSandbox(t.Context(), sb.ID)
			if err != nil || rec.Sandbox.AccessToken != sb.AccessToken || !maps.Equal(rec.Env, inits[len(inits)-1].EnvVars) {
				t.Errorf("record %+v, %v", rec, err)
			}
		})
	}
}

// TestWarmTakenOverBroken breaks a warm sandbox before its adoption. The sandbox made in its place
// must have its own token.
func TestWarmTakenOverBroken(t *testing.T) {
	h := newWarmHouse(t, floorOf(1), nil)
	filled(t, h.Service, 1)
	id := h.drv.ids()[0]
	known := h.drv.get(id).inits()[0].AccessToken
	if err := os.Remove(filepath.Join(h.dir, string(id), "ready")); err != nil {
		t.Fatal(err)
	}
	sb := h.create(t, carrel.CreateOptions{})
	if sb.ID == id || sb.AccessToken == known || len(sb.AccessToken) < 32 {
		t.Errorf("%s was to be broken; made was %s with the token %q", id, sb.ID, sb.AccessToken)
	}
}

// TestWarmIsNobodys guesses the ID of a warm sandbox. The service must answer as if it did not
// exist.
func TestWarmIsNobodys(t *testing.T) {
	h := newWarmHouse(t, floorOf(1), nil)
	filled(t, h.Service, 1)
	id := h.drv.ids()[0]
	for name, err := range map[string]error{
		"Get":          second(h.Get(t.Context(), id)),
		"Computer":     second(h.Computer(t.Context(), id)),
		"Kill":         h.Kill(t.Context(), id),
		"SetTimeout":   second(h.SetTimeout(t.Context(), id, time.Hour, false)),
		"SetNetwork":   second(h.SetNetwork(t.Context(), id, carrel.Network{Internet: true})),
		"Metrics":      second(h.Metrics(t.Context(), id, time.Time{}, time.Time{})),
		"Logs":         second(h.Logs(t.Context(), id, carrel.LogOptions{})),
		"Pause":        second(h.Pause(t.Context(), id, carrel.PauseOptions{})),
		"Snapshot":     second(h.Snapshot(t.Context(), id, carrel.SnapshotOptions{})),
		"Fork":         second(h.Fork(t.Context(), id, carrel.ForkOptions{})),
		"Timeline":     second(h.Timeline(t.Context(), id)),
		"Token":        second(h.Token(t.Context(), id, "x")),
		"Secret":       second(h.Secret(t.Context(), id, "x", "y")),
		"SetLifecycle": second(h.SetLifecycle(t.Context(), id, carrel.Lifecycle{})),
	} {
		if !errors.Is(err, carrel.NotFound) {
			t.Errorf("%s: %v, want NotFound", name, err)
		}
	}
	if _, _, err := h.Visit(t.Context(), id); !errors.Is(err, carrel.NotFound) {
		t.Errorf("Visit: %v", err)
	}
	if _, _, err := h.Resume(t.Context(), id, carrel.ResumeOptions{}); !errors.Is(err, carrel.NotFound) {
		t.Errorf("Resume: %v", err)
	}
	if page, err := h.List(t.Context(), carrel.ListOptions{}); err != nil || len(page.Sandboxes)+page.Running != 0 {
		t.Errorf("List: %+v, %v", page, err)
	}
	if _, err := h.List(t.Context(), carrel.ListOptions{States: []carrel.State{state.Warm}}); !errors.Is(err, carrel.Invalid) {
		t.Errorf("List of those that are ready: %v", err)
	}
	if st := h.Stats(); st.Running+st.Starting+st.Stopping != 0 {
		t.Errorf("counted: %+v", st)
	}
	for _, e := range h.events(t) {
		if e.ID != "" {
			t.Errorf("told: %+v", e)
		}
	}
	rec, err := h.store.GetSandbox(t.Context(), id)
	if err != nil || rec.Sandbox.AccessToken != "" || rec.Sandbox.State != state.Warm {
		t.Errorf("the record shows the token: %+v, %v", rec.Sandbox, err)
	}
}

// TestWarmDemand shows that the pool keeps the requested kinds ready, and no other kinds.
func TestWarmDemand(t *testing.T) {
	h := newWarmHouse(t, service.WarmOptions{Cap: 4}, nil)
	if st := status(t, h.Service); st.Ready+st.Making != 0 {
		t.Fatalf("before anything was asked for: %+v", st)
	}
	h.create(t, carrel.CreateOptions{})
	filled(t, h.Service, 1)
	h.create(t, carrel.CreateOptions{Limits: carrel.Limits{MemoryMB: 77}})
	filled(t, h.Service, 2)
	st := status(t, h.Service)
	if st.Misses != 2 || len(st.Kinds) != 2 || st.Kinds[0].Limits.MemoryMB != 77 {
		t.Errorf("status %+v", st)
	}
	if sb := h.create(t, carrel.CreateOptions{Limits: carrel.Limits{MemoryMB: 77}}); sb.Limits.MemoryMB != 77 {
		t.Errorf("limits %+v", sb.Limits)
	}
	if st := status(t, h.Service); st.Hits != 1 {
		t.Errorf("status %+v", st)
	}
}

// TestWarmFailures breaks adoptions at each step. The creation must work all the same, from
// nothing, and the warm sandbox must be gone.
func TestWarmFailures(t *testing.T) {
	for name, breakIt := range map[string]func(h *house, id carrel.ID){
		"the guest refuses": func(h *house, id carrel.ID) {
			in := h.drv.get(id)
			in.mu.Lock()
			defer in.mu.Unlock()
			in.initFn = func(carrel.ID) int { return 500 }
		},
		"it died": func(h *house, id carrel.ID) {
			h.drv.get(id).die(driver.Exit{Reason: carrel.EndCrashed})
		},
		"the mark is gone": func(h *house, id carrel.ID) {
			_ = os.Remove(filepath.Join(h.dir, string(id), "ready"))
		},
		"the record": func(h *house, id carrel.ID) {
			h.store.PutFn = func(r state.Record) error {
				if r.Sandbox.ID == id && r.Sandbox.State == carrel.Running {
					return &carrel.Error{Op: "write", Kind: carrel.Internal, Err: errors.New("broken")}
				}
				return nil
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newWarmHouse(t, floorOf(1), nil)
			filled(t, h.Service, 1)
			id := h.drv.ids()[0]
			breakIt(h, id)
			sb := h.create(t, carrel.CreateOptions{Env: map[string]string{"A": "mine"}})
			if sb.ID == id {
				t.Fatalf("%s was adopted all the same", id)
			}
			until(t, "the broken one is gone", func() bool { return h.drv.get(id) == nil })
			until(t, "its record is gone", func() bool { return errors.Is(second(h.store.GetSandbox(t.Context(), id)), carrel.NotFound) })
			if err := h.Close(); err != nil {
				t.Error(err)
			}
			h.clean(t)
		})
	}
}

// TestWarmKilled kills a sandbox during its adoption. The creation fails and is not tried again.
func TestWarmKilled(t *testing.T) {
	h := newWarmHouse(t, floorOf(1), nil)
	filled(t, h.Service, 1)
	id := h.drv.ids()[0]
	in := h.drv.get(id)
	asked := make(chan struct{}, 1)
	in.mu.Lock()
	in.initFn = func(carrel.ID) int { asked <- struct{}{}; return 0 } // never answers
	in.mu.Unlock()
	done := make(chan error, 1)
	go func() {
		done <- second(h.Create(t.Context(), carrel.CreateOptions{Env: map[string]string{"A": "mine"}}))
	}()
	<-asked
	if err := h.Kill(t.Context(), id); err != nil {
		t.Error(err)
	}
	if err := <-done; !errors.Is(err, carrel.Conflict) {
		t.Errorf("the creation of a killed sandbox: %v", err)
	}
	if h.drv.get(id) != nil {
		t.Error("it lives")
	}
}

// TestWarmRecovery has a service die. The next one must take over the sandboxes that are ready, and
// end the half-adopted and half-made ones.
func TestWarmRecovery(t *testing.T) {
	var dead atomic.Bool
	h := newWarmHouse(t, mortal(floorOf(3), &dead), nil)
	filled(t, h.Service, 3)
	ids := h.drv.ids()
	slices.Sort(ids)
	die(t, h, &dead)
	crash := h.copy(t)

	// One sandbox is being adopted, one was never finished, and one is too many.
	if err := os.Remove(filepath.Join(crash.dir, string(ids[0]), "ready")); err != nil {
		t.Fatal(err)
	}
	half := carrel.NewID()
	rec, err := crash.store.GetSandbox(t.Context(), ids[1])
	if err != nil {
		t.Fatal(err)
	}
	rec.Sandbox.ID, rec.Handle = half, nil
	if err := crash.store.PutSandbox(t.Context(), rec); err != nil {
		t.Fatal(err)
	}
	s := crash.openWarm(t, floorOf(2), nil)
	crash.Service = s
	filled(t, s, 2)
	left := h.drv.ids()
	slices.Sort(left)
	if !slices.Equal(left, ids[1:]) {
		t.Errorf("of %v are left %v", ids, left)
	}
	for _, e := range crash.events(t) {
		if e.ID != "" {
			t.Errorf("told: %+v", e)
		}
	}
	for _, id := range left { // each has a new identity that nobody knows
		in := h.drv.get(id).inits()
		if n := len(in); n != 2 || in[0].AccessToken == in[1].AccessToken {
			t.Errorf("%s was told %+v", id, in)
		}
	}
	sb, err := s.Create(t.Context(), carrel.CreateOptions{})
	if err != nil || !slices.Contains(left, sb.ID) {
		t.Errorf("created %s, %v", sb.ID, err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	crash.clean(t)
}

// mortal returns options for a pool that makes no more sandboxes once dead is set, like the pool of
// a killed daemon.
func mortal(w service.WarmOptions, dead *atomic.Bool) service.WarmOptions {
	w.Memory = func() pool.Memory {
		if dead.Load() {
			return pool.Memory{Total: 100, Available: 10}
		}
		return plenty()
	}
	return w
}

// die stops a house's pool, now that its service counts as dead. The pool holds still once it has
// looked at the memory again, because then no earlier look is under way.
func die(t testing.TB, h *house, dead *atomic.Bool) {
	t.Helper()
	dead.Store(true)
	until(t, "the pool holds still", func() bool { return status(t, h.Service).Memory == "hold" })
}

// copy returns the house as the next service finds it after a kill: the same instances, and a copy
// of the present records and files.
func (h *house) copy(t testing.TB) *house {
	t.Helper()
	c := &house{drv: h.drv, store: &fakeStore{Store: memory.Open()}, dir: filepath.Join(t.TempDir(), "boxes")}
	recs, err := h.store.Sandboxes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range recs {
		if err := c.store.PutSandbox(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.CopyFS(c.dir, os.DirFS(h.dir)); err != nil {
		t.Fatal(err)
	}
	// The copies of its links would be other files.
	if err := os.RemoveAll(filepath.Join(c.dir, ".roots")); err != nil {
		t.Fatal(err)
	}
	// The dead one does no more.
	h.store = &fakeStore{Store: memory.Open()}
	return c
}

// TestWarmRecoveryOff starts a service that finds warm sandboxes but has its pool switched off, or
// wants another kind.
func TestWarmRecoveryOff(t *testing.T) {
	for name, change := range map[string]func(*service.WarmOptions, *service.Options){
		"off":         func(w *service.WarmOptions, _ *service.Options) { w.Cap = 0 },
		"other guest": func(_ *service.WarmOptions, o *service.Options) { o.GuestImage = "/guest-new.erofs" },
	} {
		t.Run(name, func(t *testing.T) {
			var dead atomic.Bool
			h := newWarmHouse(t, mortal(floorOf(3), &dead), nil)
			filled(t, h.Service, 3)
			ids := h.drv.ids()
			die(t, h, &dead)
			crash := h.copy(t)
			w := floorOf(3)
			w.Memory = func() pool.Memory { return pool.Memory{Total: 100, Available: 10} } // make no more
			s := crash.openWarm(t, w, func(o *service.Options) { change(&o.Warm, o) })
			crash.Service = s
			for _, id := range ids {
				if h.drv.get(id) != nil {
					t.Errorf("%s lives", id)
				}
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			crash.clean(t)
		})
	}
}

// TestWarmPressure shows that the pool gives up warm sandboxes when memory is short, and fills
// again afterwards.
func TestWarmPressure(t *testing.T) {
	var short atomic.Int32
	h := newWarmHouse(t, service.WarmOptions{Cap: 8, Floors: []service.WarmFloor{{Template: "base", Count: 6}}, Memory: func() pool.Memory {
		return pool.Memory{Total: 100, Available: 90 - int64(short.Load())}
	}}, nil)
	filled(t, h.Service, 6)
	short.Store(88)
	until(t, "all was given back", func() bool { return len(h.drv.ids()) == 0 })
	until(t, "it is said", func() bool { st := status(t, h.Service); return st.Memory == "shrink" && st.Lost == 6 })
	h.create(t, carrel.CreateOptions{}) // still works
	short.Store(0)
	filled(t, h.Service, 6)
}

// TestWarmRoom shows that warm sandboxes make room for living ones. Together they never exceed the
// most that may live.
func TestWarmRoom(t *testing.T) {
	h := newWarmHouse(t, floorOf(3), func(o *service.Options) { o.MaxSandboxes = 4 })
	filled(t, h.Service, 3)
	for range 4 {
		h.create(t, carrel.CreateOptions{Limits: carrel.Limits{MemoryMB: 99}}) // another kind
	}
	if _, err := h.Create(t.Context(), carrel.CreateOptions{}); !errors.Is(err, carrel.Exhausted) {
		t.Errorf("a fifth: %v", err)
	}
	until(t, "room was made", func() bool { return len(h.drv.ids()) == 4 })
	if st := status(t, h.Service); st.Ready != 0 {
		t.Errorf("status %+v", st)
	}
}

// TestWarmDies shows that the pool notices when a warm sandbox ends.
func TestWarmDies(t *testing.T) {
	h := newWarmHouse(t, floorOf(1), nil)
	filled(t, h.Service, 1)
	id := h.drv.ids()[0]
	h.drv.get(id).die(driver.Exit{Reason: carrel.EndCrashed})
	until(t, "it was replaced", func() bool { ids := h.drv.ids(); return len(ids) == 1 && ids[0] != id })
	filled(t, h.Service, 1)
	if _, err := h.store.GetSandbox(t.Context(), id); !errors.Is(err, carrel.NotFound) {
		t.Errorf("its record: %v", err)
	}
}

// TestWarmStuck makes the destruction of some sandboxes fail. The service tries again, and these
// count against the cap.
func TestWarmStuck(t *testing.T) {
	var fail atomic.Bool
	var short atomic.Bool
	h := newWarmHouse(t, service.WarmOptions{Cap: 2, Floors: []service.WarmFloor{{Template: "base", Count: 2}}, Memory: func() pool.Memory {
		if short.Load() {
			return pool.Memory{Total: 100, Available: 1}
		}
		return plenty()
	}}, nil)
	filled(t, h.Service, 2)
	h.drv.mu.Lock()
	for _, in := range h.drv.live {
		in.d.DestroyFn = func(carrel.ID) error {
			if fail.Load() {
				return errors.New("busy")
			}
			return nil
		}
	}
	h.drv.mu.Unlock()
	fail.Store(true)
	short.Store(true)
	until(t, "they are out of the pool", func() bool { return status(t, h.Service).Ready == 0 })
	short.Store(false)
	h.create(t, carrel.CreateOptions{})
	if n := len(h.drv.ids()); n > 3 {
		t.Errorf("%d instances", n)
	}
	fail.Store(false)
	filled(t, h.Service, 2)
	until(t, "the stuck are gone", func() bool { return len(h.drv.ids()) == 3 })
}

// TestWarmBroken makes every warm sandbox fail. The status says why, the pool tries again, and
// creations work as before.
func TestWarmBroken(t *testing.T) {
	h := newWarmHouse(t, floorOf(1), func(o *service.Options) {})
	filled(t, h.Service, 1)
	var tries atomic.Int32
	h.drv.mu.Lock()
	h.drv.CreateFn = func(context.Context, driver.Spec) error { tries.Add(1); return errors.New("no more of these") }
	h.drv.mu.Unlock()
	h.create(t, carrel.CreateOptions{}) // the one that is there
	until(t, "it is said why", func() bool { return status(t, h.Service).Problem != "" })
	until(t, "it is tried again", func() bool { return tries.Load() >= 2 })
	if _, err := h.Create(t.Context(), carrel.CreateOptions{}); err == nil {
		t.Error("a creation that can't work worked")
	}
	recs, err := h.store.Sandboxes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range recs {
		if r.Sandbox.State == state.Warm && len(r.Handle) > 0 {
			t.Errorf("left: %+v", r.Sandbox)
		}
	}
}
