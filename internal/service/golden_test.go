package service_test

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/guest/process"
	"github.com/carrel-dev/carrel/internal/guest/process/processconnect"
	"github.com/carrel-dev/carrel/internal/image"
	"github.com/carrel-dev/carrel/internal/service"
	"github.com/carrel-dev/carrel/internal/snapshot"
	"github.com/carrel-dev/carrel/internal/state"
	"github.com/carrel-dev/carrel/internal/state/memory"
)

// startImages has one template, "srv", that has a start of its own.
type startImages struct {
	image.Store
	mu   sync.Mutex
	img  image.Image
	gone bool
}

func newStartImages(t testing.TB) *startImages {
	path := filepath.Join(t.TempDir(), "image.erofs")
	if err := os.WriteFile(path, []byte("image"), 0o600); err != nil {
		t.Fatal(err)
	}
	return &startImages{img: image.Image{Path: path, Template: carrel.Template{ID: "srv0srv0srv0srv0srv0", Name: "srv",
		Env: map[string]string{"A": "template"}, Start: []string{"/server"}, Ready: "is-it-up"}}}
}

func (s *startImages) ByID(id string) (carrel.Template, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.img.Template, !s.gone && id == s.img.ID
}

func (s *startImages) Named(_, name string) (carrel.Template, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.img.Template, !s.gone && name == s.img.Name
}

func (s *startImages) Get(_ context.Context, id string) (image.Image, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gone || id != s.img.ID {
		return image.Image{}, &carrel.Error{Op: "get template", Kind: carrel.NotFound, Err: errors.New("no such template")}
	}
	return s.img, nil
}

func (s *startImages) Update(ctx context.Context, name string, u carrel.TemplateUpdate) (image.Image, error) {
	s.mu.Lock()
	if u.Start != nil {
		s.img.Start = *u.Start
	}
	if u.Ready != nil {
		s.img.Ready = *u.Ready
	}
	s.mu.Unlock()
	return s.Get(ctx, name)
}

func (s *startImages) Delete(context.Context, string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gone = true
	return nil
}

// startDriver is a momentDriver of real processes with memory, whose guests run commands.
type startDriver struct {
	*momentDriver
	ready     atomic.Bool // what the ready command says
	noRestore atomic.Bool
	slow      bool // its boots are

	logMu sync.Mutex
	log   map[carrel.ID][]string // the commands of each sandbox
}

func (d *startDriver) Info() driver.Info {
	return driver.Info{Name: "fake", Tier: carrel.Sim, Capabilities: driver.Capabilities{RealProcesses: true, Snapshot: true, MemorySnapshot: true, SlowBoot: d.slow}}
}

func (d *startDriver) CanRestore(driver.SnapshotInfo, driver.RestoreOptions) error {
	if d.noRestore.Load() {
		return &carrel.Error{Kind: carrel.Unsupported, Err: errors.New("another build")}
	}
	return nil
}

func (d *startDriver) Create(ctx context.Context, s driver.Spec) (driver.Instance, error) {
	in, err := d.momentDriver.Create(ctx, s)
	return d.equip(in), err
}

func (d *startDriver) Restore(ctx context.Context, dir string, i driver.SnapshotInfo, s driver.Spec, o driver.RestoreOptions) (driver.Instance, error) {
	in, err := d.momentDriver.Restore(ctx, dir, i, s, o)
	return d.equip(in), err
}

// equip gives a new sandbox's guest its processes.
func (d *startDriver) equip(in driver.Instance) driver.Instance {
	m, ok := in.(*momentInstance)
	if !ok {
		return in
	}
	path, handler := processconnect.NewProcessHandler(&processes{d: d, id: m.id})
	mux := http.NewServeMux()
	mux.Handle(path, handler)
	mux.HandleFunc("/", m.serve)
	m.srv.Handler = mux
	return m
}

func (d *startDriver) ran(id carrel.ID) []string {
	d.logMu.Lock()
	defer d.logMu.Unlock()
	return slices.Clone(d.log[id])
}

// processes is the process service of one sandbox. Each process ends at once.
type processes struct {
	processconnect.UnimplementedProcessHandler
	d  *startDriver
	id carrel.ID
}

func (p *processes) Start(_ context.Context, r *connect.Request[process.StartRequest], out *connect.ServerStream[process.StartResponse]) error {
	line := strings.Join(append([]string{r.Msg.GetProcess().GetCmd()}, r.Msg.GetProcess().GetArgs()...), " ")
	p.d.logMu.Lock()
	p.d.log[p.id] = append(p.d.log[p.id], line)
	p.d.logMu.Unlock()
	status := int32(0)
	if strings.Contains(line, "is-it-up") && !p.d.ready.Load() {
		status = 7
	}
	for _, e := range []*process.ProcessEvent{
		{Event: &process.ProcessEvent_Start{Start: &process.ProcessEvent_StartEvent{Pid: 5}}},
		{Event: &process.ProcessEvent_End{End: &process.ProcessEvent_EndEvent{Exited: true, ExitCode: status}}},
	} {
		if err := out.Send(&process.StartResponse{Event: e}); err != nil {
			return err
		}
	}
	return nil
}

// studio is a house with one template that has a start of its own.
type studio struct {
	*house
	drv    *startDriver
	images *startImages
	snaps  *fakeSnapshots
}

func newStudio(t testing.TB, change func(*service.Options)) *studio {
	t.Helper()
	md := newMomentDriver()
	st := &studio{drv: &startDriver{momentDriver: md, log: map[carrel.ID][]string{}}, images: newStartImages(t),
		snaps: &fakeSnapshots{dir: t.TempDir(), done: map[carrel.SnapshotID]snapshot.Manifest{}},
		house: &house{drv: md.fakeDriver, store: &fakeStore{Store: memory.Open()}, dir: filepath.Join(t.TempDir(), "boxes")}}
	st.drv.ready.Store(true)
	st.reopen(t, change)
	return st
}

func (st *studio) reopen(t testing.TB, change func(*service.Options)) {
	t.Helper()
	st.Service = st.open(t, func(o *service.Options) {
		o.Drivers, o.Images, o.Snapshots, o.DefaultTemplate = driver.NewRegistry(st.drv), st.images, st.snaps, "srv"
		o.GuestImage = "/guest-1.erofs"
		o.Warm.Memory, o.Warm.Every = plenty, 5*time.Millisecond
		if change != nil {
			change(o)
		}
	})
}

// golden waits until the template reports the wanted status of its start.
func (st *studio) golden(t testing.TB, want string) {
	t.Helper()
	until(t, "the template's start is "+want, func() bool {
		tpl, err := st.GetTemplate(t.Context(), "srv")
		return err == nil && strings.Contains(tpl.Golden, want)
	})
}

func startOf(t testing.TB, h *house, id carrel.ID) string {
	t.Helper()
	for _, e := range h.events(t) {
		if e.ID == id && e.Type == "sandbox.created" {
			return e.Fields["start"]
		}
	}
	return "no event"
}

func TestGolden(t *testing.T) {
	st := newStudio(t, nil)
	first := st.create(t, carrel.CreateOptions{Env: map[string]string{"SECRET": "of one"}, Metadata: map[string]string{"k": "v"}})
	if how := startOf(t, st.house, first.ID); how != "cold" || first.Generation != 0 {
		t.Errorf("the first one started %s, generation %d", how, first.Generation)
	}
	until(t, "the first one starts the command itself", func() bool { return slices.Contains(st.drv.ran(first.ID), "/server") })
	st.golden(t, "ready")
	until(t, "what it was made with is gone", func() bool { return len(st.house.drv.ids()) == 1 })
	sb := st.create(t, carrel.CreateOptions{Env: map[string]string{"B": "mine"}})
	if how := startOf(t, st.house, sb.ID); how != "golden" || sb.Generation != 1 || sb.Snapshot != "" || sb.Template != "srv0srv0srv0srv0srv0" {
		t.Errorf("the second one started %s: %+v", how, sb)
	}
	in := st.house.drv.get(sb.ID).inits()
	if len(in) != 1 || !in[0].Restored || in[0].Generation != 1 || in[0].EnvVars["B"] != "mine" || in[0].EnvVars["SECRET"] != "" || in[0].AccessToken != sb.AccessToken {
		t.Errorf("it was told %+v", in)
	}
	if ran := st.drv.ran(sb.ID); len(ran) != 0 {
		t.Errorf("it ran %q", ran)
	}
	// The start is in no list of snapshots, and contains no data of any user.
	page, err := st.ListSnapshots(t.Context(), carrel.SnapshotListOptions{Auto: true})
	if err != nil || len(page.Snapshots) != 0 {
		t.Errorf("listed: %+v, %v", page, err)
	}
	recs, err := st.store.Snapshots(t.Context())
	if err != nil || len(recs) != 1 {
		t.Fatalf("records %+v, %v", recs, err)
	}
	r := recs[0]
	if r.Record.Sandbox.AccessToken != "" || len(r.Record.Env)+len(r.Record.Sandbox.Metadata) != 0 {
		t.Errorf("the record holds %+v", r.Record)
	}
	id := r.Snapshot.ID
	text := "taken"
	for name, err := range map[string]error{
		"get":    second(st.GetSnapshot(t.Context(), string(id))),
		"delete": st.DeleteSnapshot(t.Context(), string(id)),
		"update": second(st.UpdateSnapshot(t.Context(), id, carrel.SnapshotUpdate{Label: &text})),
		"create": second(st.Create(t.Context(), carrel.CreateOptions{Template: string(id)})),
	} {
		if err == nil {
			t.Errorf("%s of the hidden snapshot worked", name)
		}
	}
	for _, e := range st.events(t) {
		if e.ID != "" && e.ID != first.ID && e.ID != sb.ID {
			t.Errorf("told of nobody's: %+v", e)
		}
	}
}

// TestGoldenBoot has a template without a start command. Where boots are slow, its sandboxes go on
// from one that has booted; elsewhere each boots.
func TestGoldenBoot(t *testing.T) {
	for name, slow := range map[string]bool{"slow": true, "quick": false} {
		t.Run(name, func(t *testing.T) {
			st := newStudio(t, nil)
			st.drv.slow, st.images.img.Start, st.images.img.Ready = slow, nil, ""
			if how := startOf(t, st.house, st.create(t, carrel.CreateOptions{}).ID); how != "cold" {
				t.Errorf("the first one started %s", how)
			}
			if !slow {
				if recs, err := st.store.Snapshots(t.Context()); err != nil || len(recs) != 0 || startOf(t, st.house, st.create(t, carrel.CreateOptions{}).ID) != "cold" {
					t.Errorf("snapshots %+v, %v", recs, err)
				}
				return
			}
			var sb carrel.Sandbox
			until(t, "one goes on from the boot", func() bool {
				sb = st.create(t, carrel.CreateOptions{Env: map[string]string{"B": "mine"}})
				return startOf(t, st.house, sb.ID) == "golden"
			})
			in := st.house.drv.get(sb.ID).inits()
			if len(in) != 1 || !in[0].Restored || in[0].EnvVars["B"] != "mine" || in[0].EnvVars["A"] != "template" || len(st.drv.ran(sb.ID)) != 0 {
				t.Errorf("it was told %+v, and ran %q", in, st.drv.ran(sb.ID))
			}
			if err := st.DeleteTemplate(t.Context(), "srv"); err != nil {
				t.Fatal(err)
			}
			until(t, "the boot is gone", func() bool {
				recs, _ := st.store.Snapshots(t.Context())
				return len(recs) == 0
			})
		})
	}
}

// TestGoldenWarm shows that warm sandboxes are restored from the template's start, so that the
// server of each is up already.
func TestGoldenWarm(t *testing.T) {
	st := newStudio(t, func(o *service.Options) {
		o.Warm.Cap, o.Warm.Floors = 4, []service.WarmFloor{{Template: "srv", Count: 2}}
	})
	until(t, "two restored ones are ready", func() bool {
		p := status(t, st.Service)
		return p.Ready == 2 && p.Making == 0 && len(p.Kinds) == 1 && p.Kinds[0].Golden
	})
	sb := st.create(t, carrel.CreateOptions{Env: map[string]string{"B": "mine"}})
	if how := startOf(t, st.house, sb.ID); how != "warm" || sb.Generation != 1 {
		t.Errorf("it started %s: %+v", how, sb)
	}
	in := st.house.drv.get(sb.ID).inits()
	if len(in) != 2 || !in[0].Restored || in[1].Restored || in[1].EnvVars["B"] != "mine" || in[1].AccessToken != sb.AccessToken {
		t.Errorf("it was told %+v", in)
	}
	if slices.Contains(st.drv.ran(sb.ID), "/server") {
		t.Error("it started the command a second time")
	}
}

// TestGoldenNotReady has a ready command that never succeeds. Creations work, the template's status
// says why there is no start, and nothing is left behind.
func TestGoldenNotReady(t *testing.T) {
	st := newStudio(t, func(o *service.Options) { o.ReadyTimeout = 300 * time.Millisecond })
	st.drv.ready.Store(false)
	sb := st.create(t, carrel.CreateOptions{})
	st.golden(t, `"is-it-up" did not succeed within 300ms: it exited with status 7`)
	if how := startOf(t, st.house, st.create(t, carrel.CreateOptions{}).ID); how != "cold" {
		t.Errorf("the next one started %s", how)
	}
	until(t, "it is told", func() bool {
		return slices.ContainsFunc(st.events(t), func(e carrel.Event) bool {
			return e.Type == "template.not_ready" && e.ID == "" && strings.Contains(e.Message, "status 7")
		})
	})
	until(t, "what was tried is gone", func() bool { return len(st.house.drv.ids()) == 2 })
	// A new ready command causes another try.
	st.drv.ready.Store(true)
	ready := "is-it-up now"
	if _, err := st.UpdateTemplate(t.Context(), "srv", carrel.TemplateUpdate{Ready: &ready}); err != nil {
		t.Fatal(err)
	}
	st.create(t, carrel.CreateOptions{})
	st.golden(t, "ready")
	if err := st.Kill(t.Context(), sb.ID); err != nil {
		t.Error(err)
	}
}

// TestGoldenKept shows that a restarted service finds the start again, and uses it only where it
// still fits.
func TestGoldenKept(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*studio)
		opts   func(*service.Options)
		kept   bool
	}{
		{name: "nothing", kept: true},
		{name: "another build of the driver", change: func(st *studio) { st.drv.noRestore.Store(true) }},
		{name: "another guest", opts: func(o *service.Options) { o.GuestImage = "/guest-2.erofs" }},
		{name: "another start", change: func(st *studio) { st.images.img.Start = []string{"/server", "2"} }},
		{name: "the template is gone", change: func(st *studio) { st.images.gone = true }},
		{name: "another template of the name", change: func(st *studio) { st.images.img.ID = "tsr2" }},
	} {
		t.Run(c.name, func(t *testing.T) {
			st := newStudio(t, nil)
			st.create(t, carrel.CreateOptions{})
			st.golden(t, "ready")
			if err := st.Close(); err != nil {
				t.Fatal(err)
			}
			if c.change != nil {
				c.change(st)
			}
			st.reopen(t, c.opts)
			if !c.kept {
				until(t, "it is removed", func() bool {
					recs, err := st.store.Snapshots(t.Context())
					all, _ := st.snaps.List(t.Context())
					return err == nil && len(recs) == 0 && len(all) == 0
				})
				return
			}
			if sb := st.create(t, carrel.CreateOptions{}); startOf(t, st.house, sb.ID) != "golden" {
				t.Error("it is not used")
			}
		})
	}
}

// TestGoldenSizes shows that each sandbox size has a start of its own, and that all are removed
// with the template.
func TestGoldenSizes(t *testing.T) {
	st := newStudio(t, nil)
	small := carrel.CreateOptions{Limits: carrel.Limits{MemoryMB: 64}}
	st.create(t, carrel.CreateOptions{})
	st.golden(t, "ready")
	if sb := st.create(t, small); startOf(t, st.house, sb.ID) != "cold" {
		t.Error("one of another size was restored")
	}
	until(t, "there are two", func() bool { recs, _ := st.store.Snapshots(t.Context()); return len(recs) == 2 })
	until(t, "the small one is used", func() bool { return startOf(t, st.house, st.create(t, small).ID) == "golden" })
	if err := st.DeleteTemplate(t.Context(), "srv"); err != nil {
		t.Fatal(err)
	}
	until(t, "both are gone", func() bool {
		recs, _ := st.store.Snapshots(t.Context())
		all, _ := st.snaps.List(t.Context())
		return len(recs)+len(all) == 0
	})
}

// TestGoldenDamaged restores from a damaged start. The creation works all the same, and another
// start is made.
func TestGoldenDamaged(t *testing.T) {
	st := newStudio(t, nil)
	var bad atomic.Value
	bad.Store(carrel.SnapshotID(""))
	st.snaps.VerifyFn = func(id carrel.SnapshotID) error {
		if id == bad.Load() {
			return &carrel.Error{Kind: carrel.Invalid, Err: errors.New("its content is not what was written")}
		}
		return nil
	}
	st.create(t, carrel.CreateOptions{})
	st.golden(t, "ready")
	all, _ := st.snaps.List(t.Context())
	bad.Store(all[0])
	if how := startOf(t, st.house, st.create(t, carrel.CreateOptions{}).ID); how != "cold" {
		t.Errorf("it started %s", how)
	}
	until(t, "another is used", func() bool { return startOf(t, st.house, st.create(t, carrel.CreateOptions{}).ID) == "golden" })
	until(t, "the damaged one is gone", func() bool {
		now, _ := st.snaps.List(t.Context())
		return len(now) == 1 && now[0] != all[0]
	})
}

// TestGoldenCrash finds the leftovers of a service that died while it started a template.
func TestGoldenCrash(t *testing.T) {
	st := newStudio(t, nil)
	st.drv.ready.Store(false)
	sb := st.create(t, carrel.CreateOptions{})
	until(t, "it is being started", func() bool { return len(st.house.drv.ids()) == 2 })
	var builder carrel.ID
	until(t, "its record is written", func() bool {
		recs, _ := st.store.Sandboxes(t.Context())
		for _, r := range recs {
			if r.Sandbox.State == state.Warm && len(r.Handle) > 0 {
				builder = r.Sandbox.ID
			}
		}
		return builder != ""
	})
	crash := st.copy(t)
	next := &studio{drv: st.drv, images: st.images, snaps: st.snaps, house: crash}
	next.reopen(t, nil)
	if st.house.drv.get(builder) != nil {
		t.Error("what the template was started in lives on")
	}
	if _, err := next.Get(t.Context(), sb.ID); err != nil {
		t.Error(err)
	}
}

// TestGoldenChanged changes a template while its start is being made. That try ends at once.
func TestGoldenChanged(t *testing.T) {
	st := newStudio(t, func(o *service.Options) { o.ReadyTimeout = time.Hour })
	st.drv.ready.Store(false)
	st.create(t, carrel.CreateOptions{})
	st.golden(t, "making")
	ready := "something else"
	if _, err := st.UpdateTemplate(t.Context(), "srv", carrel.TemplateUpdate{Ready: &ready}); err != nil {
		t.Fatal(err)
	}
	st.create(t, carrel.CreateOptions{})
	st.golden(t, "ready")
	until(t, "what was tried is gone", func() bool { return len(st.house.drv.ids()) == 2 })
}

func (s *startImages) Boot(ctx context.Context, id string) (image.Image, error) {
	return s.Get(ctx, id)
}
