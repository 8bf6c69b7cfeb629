package service_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/guest"
	"github.com/carrel-dev/carrel/internal/image"
	"github.com/carrel-dev/carrel/internal/service"
	"github.com/carrel-dev/carrel/internal/state"
	"github.com/carrel-dev/carrel/internal/state/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeDriver makes sandboxes that are HTTP servers in this process. Each Fn field that is set
// replaces a step.
type fakeDriver struct {
	ProbeFn   func() error
	CreateFn  func(ctx context.Context, s driver.Spec) error // before the instance is made
	InitFn    func(id carrel.ID) int                         // the guest's status
	DestroyFn func(id carrel.ID) error
	DialFn    func(id carrel.ID) error

	mu   sync.Mutex
	live map[carrel.ID]*fakeInstance
	most int // that ever lived at once
}

func newFakeDriver() *fakeDriver { return &fakeDriver{live: map[carrel.ID]*fakeInstance{}} }

func (d *fakeDriver) Info() driver.Info { return driver.Info{Name: "fake", Tier: carrel.Sim} }
func (d *fakeDriver) Close() error      { return nil }

func (d *fakeDriver) Probe(context.Context) error {
	if d.ProbeFn != nil {
		return d.ProbeFn()
	}
	return nil
}

func (d *fakeDriver) Create(ctx context.Context, s driver.Spec) (driver.Instance, error) {
	if d.CreateFn != nil {
		if err := d.CreateFn(ctx, s); err != nil {
			return nil, err
		}
	}
	in := &fakeInstance{d: d, id: s.ID, initFn: d.InitFn, conns: make(chan net.Conn), over: make(chan struct{})}
	in.srv = &http.Server{Handler: in, ReadHeaderTimeout: time.Minute}
	in.served.Go(func() { _ = in.srv.Serve(in) })
	d.mu.Lock()
	defer d.mu.Unlock()
	d.live[s.ID] = in
	d.most = max(d.most, len(d.live))
	return in, nil
}

func (d *fakeDriver) Recover(_ context.Context, h driver.Handle) (driver.Instance, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if in, ok := d.live[carrel.ID(h)]; ok {
		return in, nil
	}
	return nil, &carrel.Error{Op: "recover", Kind: carrel.NotFound}
}

func (d *fakeDriver) ids() []carrel.ID {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := make([]carrel.ID, 0, len(d.live))
	for id := range d.live {
		out = append(out, id)
	}
	return out
}

// instances returns the living sandboxes. One may end before the caller uses it.
func (d *fakeDriver) instances() []*fakeInstance {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Collect(maps.Values(d.live))
}

func (d *fakeDriver) get(id carrel.ID) *fakeInstance {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.live[id]
}

// fakeInstance is a sandbox: a listener, the guest's HTTP server, and an exit.
type fakeInstance struct {
	d      *fakeDriver
	id     carrel.ID
	initFn func(carrel.ID) int // the driver's initFn at the time of creation
	srv    *http.Server
	served sync.WaitGroup
	conns  chan net.Conn

	once sync.Once
	over chan struct{}
	exit driver.Exit

	mu   sync.Mutex
	init []guest.InitRequest
	cpu  time.Duration

	healthChecks atomic.Int64
	unwell       atomic.Bool // its guest answers /health with an error

	resting  bool // it uses no processor
	measures int
}

func (in *fakeInstance) rest() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.resting = true
}

func (in *fakeInstance) measured() int {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.measures
}

func (in *fakeInstance) Handle() driver.Handle { return driver.Handle(in.id) }

func (in *fakeInstance) Accept() (net.Conn, error) {
	select {
	case c := <-in.conns:
		return c, nil
	case <-in.over:
		return nil, net.ErrClosed
	}
}
func (in *fakeInstance) Close() error   { return nil }
func (in *fakeInstance) Addr() net.Addr { return &net.UnixAddr{Name: string(in.id)} }

func (in *fakeInstance) Dial(ctx context.Context, port uint16) (net.Conn, error) {
	if in.d.DialFn != nil {
		if err := in.d.DialFn(in.id); err != nil {
			return nil, err
		}
	}
	if port != carrel.GuestPort {
		return nil, syscall.ECONNREFUSED
	}
	ours, theirs := net.Pipe()
	select {
	case in.conns <- theirs:
		return ours, nil
	case <-in.over:
	case <-ctx.Done():
	}
	_, _ = ours.Close(), theirs.Close()
	return nil, syscall.ECONNREFUSED
}

func (in *fakeInstance) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/health" {
		in.healthChecks.Add(1)
		if in.unwell.Load() {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
	}
	if r.URL.Path != "/init" {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	var req guest.InitRequest
	if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	in.mu.Lock()
	in.init = append(in.init, req)
	in.mu.Unlock()
	status := http.StatusNoContent
	if in.initFn != nil {
		status = in.initFn(in.id)
	}
	if status == 0 { // never answer
		<-r.Context().Done()
		return
	}
	w.WriteHeader(status)
}

func (in *fakeInstance) inits() []guest.InitRequest {
	in.mu.Lock()
	defer in.mu.Unlock()
	return append([]guest.InitRequest(nil), in.init...)
}

func (in *fakeInstance) Stats(context.Context) (driver.Stats, error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.measures++
	if !in.resting {
		in.cpu += time.Second
	}
	return driver.Stats{CPU: in.cpu, Memory: 100 << 20, MemoryCache: 1 << 20, Disk: 5 << 20}, nil
}

func (in *fakeInstance) Wait(ctx context.Context) (driver.Exit, error) {
	select {
	case <-in.over:
		return in.exit, nil
	case <-ctx.Done():
		return driver.Exit{}, ctx.Err()
	}
}

// die ends the sandbox without a request to the service.
func (in *fakeInstance) die(e driver.Exit) {
	in.once.Do(func() { in.exit = e; close(in.over) })
	_ = in.srv.Close()
	in.served.Wait()
}

func (in *fakeInstance) Destroy(context.Context) error {
	if in.d.DestroyFn != nil {
		if err := in.d.DestroyFn(in.id); err != nil {
			return err
		}
	}
	in.die(driver.Exit{Reason: carrel.EndKilled})
	in.d.mu.Lock()
	defer in.d.mu.Unlock()
	delete(in.d.live, in.id)
	return nil
}

// fakeImages has two templates, "base" and "microvm".
type fakeImages struct{ image.Store }

// imagePath is the path of a file that stands for a template's image.
func imagePath(name string) string {
	path, err := filepath.Abs(filepath.Join("testdata", name+".image"))
	if err != nil {
		panic(err)
	}
	return path
}

// The templates of fakeImages.
var (
	baseTemplate = carrel.Template{ID: "tpl0tpl0tpl0tpl0tpl0", Name: "base", BuiltIn: true,
		Env: map[string]string{"A": "template", "B": "template"}, WorkDir: "/app"}
	vmTemplate = carrel.Template{ID: "tpl1tpl1tpl1tpl1tpl1", Name: "microvm", BuiltIn: true, Tier: carrel.MicroVM}
)

func (fakeImages) ByID(id string) (carrel.Template, bool) {
	for _, t := range []carrel.Template{baseTemplate, vmTemplate} {
		if t.ID == id {
			return t, true
		}
	}
	return carrel.Template{}, false
}

func (f fakeImages) Named(_, name string) (carrel.Template, bool) {
	for _, t := range []carrel.Template{baseTemplate, vmTemplate} {
		if t.Name == name {
			return t, true
		}
	}
	return carrel.Template{}, false
}

func (f fakeImages) Get(_ context.Context, id string) (image.Image, error) {
	if t, ok := f.ByID(id); ok {
		return image.Image{Template: t, Path: imagePath("base")}, nil
	}
	return image.Image{}, &carrel.Error{Op: "get template", Kind: carrel.NotFound, Err: errors.New("no such template")}
}

// fakeStore is a memory store whose steps can fail.
type fakeStore struct {
	*memory.Store
	PutFn    func(r state.Record) error
	AppendFn func(e carrel.Event) error
}

func (f *fakeStore) PutSandbox(ctx context.Context, r state.Record) error {
	if f.PutFn != nil {
		if err := f.PutFn(r); err != nil {
			return err
		}
	}
	return f.Store.PutSandbox(ctx, r)
}

func (f *fakeStore) AppendEvent(ctx context.Context, e carrel.Event) (carrel.Event, error) {
	if f.AppendFn != nil {
		if err := f.AppendFn(e); err != nil {
			return carrel.Event{}, err
		}
	}
	return f.Store.AppendEvent(ctx, e)
}

// house is a service with its fakes.
type house struct {
	*service.Service
	drv   *fakeDriver
	store *fakeStore
	dir   string
}

// newHouse opens a service. change may adjust its options. At the end of the test, the service is
// closed and its sandboxes are ended.
func newHouse(t testing.TB, change func(*service.Options)) *house {
	t.Helper()
	h := &house{drv: newFakeDriver(), store: &fakeStore{Store: memory.Open()}, dir: filepath.Join(t.TempDir(), "boxes")}
	h.Service = h.open(t, change)
	t.Cleanup(func() {
		for _, in := range h.drv.instances() {
			_ = in.Destroy(context.Background())
		}
	})
	return h
}

// open opens another service on the same parts.
func (h *house) open(t testing.TB, change func(*service.Options)) *service.Service {
	t.Helper()
	opts := service.Options{Store: h.store, Images: fakeImages{}, Drivers: driver.NewRegistry(h.drv), Dir: h.dir, KillOnClose: true}
	if change != nil {
		change(&opts)
	}
	s, err := service.New(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if err := s.CheckRoll(); err != nil {
			t.Errorf("the roll: %v", err)
		}
	})
	return s
}

func (h *house) create(t testing.TB, opts carrel.CreateOptions) carrel.Sandbox {
	t.Helper()
	sb, err := h.Create(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	return sb
}

// clean fails the test if anything of any sandbox is left.
func (h *house) clean(t testing.TB) {
	t.Helper()
	if ids := h.drv.ids(); len(ids) != 0 {
		t.Errorf("instances left: %v", ids)
	}
	if recs, err := h.store.Sandboxes(context.Background()); err != nil || len(recs) != 0 {
		t.Errorf("records left: %v, %v", recs, err)
	}
	if dirs, err := filepath.Glob(filepath.Join(h.dir, "[^.]*")); err != nil || len(dirs) != 0 {
		t.Errorf("directories left: %v, %v", dirs, err)
	}
	if st := h.Stats(); st.Running+st.Starting+st.Stopping != 0 {
		t.Errorf("sandboxes left: %+v", st)
	}
}

// events returns all events so far.
func (h *house) events(t testing.TB) []carrel.Event {
	t.Helper()
	evs, err := h.store.Events(context.Background(), "", 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	return evs
}

var _ io.Closer = (*fakeInstance)(nil)

func (f fakeImages) Boot(ctx context.Context, id string) (image.Image, error) { return f.Get(ctx, id) }
