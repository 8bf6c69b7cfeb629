package build

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/build/plan"
	"github.com/carrel-dev/carrel/internal/image"
	"github.com/carrel-dev/carrel/internal/quota"
)

// Sandboxes are the parts of the service that builds use. Package service implements them.
type Sandboxes interface {
	Computer(ctx context.Context, id carrel.ID) (carrel.Computer, error)
	Kill(ctx context.Context, id carrel.ID) error
	List(ctx context.Context, opts carrel.ListOptions) (carrel.Page, error)
	SetNetwork(ctx context.Context, id carrel.ID, n carrel.Network) (carrel.Sandbox, error)
	GetTemplate(ctx context.Context, nameOrID string) (carrel.Template, error)
	ResolveTemplate(ctx context.Context, op string, ref carrel.TemplateRef) (carrel.Template,
		carrel.SnapshotID, error)
	// CreateWorkshop makes a sandbox of a build from an image, or from a layer.
	CreateWorkshop(ctx context.Context, build, image string, layer carrel.SnapshotID,
		opts carrel.CreateOptions) (carrel.Sandbox, error)
	// KeepLayer keeps the files of a workshop. Detail of the result is the key. DropLayers leaves
	// the layer until release.
	KeepLayer(ctx context.Context, id carrel.ID, key string) (_ carrel.Snapshot, release func(),
		err error)
	Layers() []carrel.Snapshot
	// HoldLayer has DropLayers leave a layer until release. ok is false for one that is gone.
	HoldLayer(id carrel.SnapshotID) (release func(), ok bool)
	DropLayers(ctx context.Context, ids []carrel.SnapshotID) error
	// LayerFiles hands a layer's content to use: the image below it and the changes.
	LayerFiles(ctx context.Context, id carrel.SnapshotID,
		use func(root string, changes io.Reader) error) error
	// Ripen makes a template's own start; see [carrel.Template].Golden.
	Ripen(ctx context.Context, image string, limits carrel.Limits) (making bool, err error)
	TemplatesChanged()
	// EnterBuild waits for the turn of work that uses the whole machine.
	EnterBuild(ctx context.Context, op string) (done func(), err error)
}

// PlanRequest is what a [Planner] makes a plan of.
type PlanRequest struct {
	Dockerfile string
	Args       map[string]string
	Target     string
	// Secrets are the names of the secrets that the caller gave.
	Secrets []string
	// Warn hears advice about the file.
	Warn func(text string)
	// Resolve makes a base ready and returns its configuration.
	Resolve func(ctx context.Context, from plan.Source) (plan.Config, error)
}

// Planner makes a plan of a Dockerfile.
type Planner func(ctx context.Context, req PlanRequest) (plan.Plan, error)

// Options configure an Engine. The first four are required.
type Options struct {
	Dir       string // of the engine alone
	Sandboxes Sandboxes
	Images    image.Store
	// Tiers returns the tiers for workshops that work here, the best first.
	Tiers func(ctx context.Context) []carrel.Tier
	// Planner reads Dockerfiles; nil refuses them.
	Planner Planner
	// Network is the policy of builds that name none.
	Network carrel.Network
	// Running bounds the builds that run at once, and Queued those of one project that wait. Zeros
	// are twice the processors, and 256.
	Running, Queued int
	// Quotas returns the quotas that bind a key of a project; nil is none.
	Quotas func(project, key string) []quota.Bound
	// Timeout bounds a build and StepTimeout each step; zeros are two hours and one.
	Timeout, StepTimeout time.Duration
	// CacheBytes bounds the layers of all projects; 0 is 20 GiB.
	CacheBytes int64
	Log        *slog.Logger
}

func (o Options) withDefaults() Options {
	if o.Running <= 0 {
		o.Running = 2 * runtime.NumCPU()
	}
	if o.Queued <= 0 {
		o.Queued = 256
	}
	if o.Timeout <= 0 {
		o.Timeout = 2 * time.Hour
	}
	if o.StepTimeout <= 0 {
		o.StepTimeout = time.Hour
	}
	if o.CacheBytes <= 0 {
		o.CacheBytes = 20 << 30
	}
	if o.Quotas == nil {
		o.Quotas = func(string, string) []quota.Bound { return nil }
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o
}

// Engine makes templates. It is safe for concurrent use.
type Engine struct {
	opts    Options
	log     *slog.Logger
	uploads uploads
	caches  caches
	tiers   tiers

	ctx  context.Context // ends with Close
	stop context.CancelFunc
	wg   sync.WaitGroup

	mu      sync.Mutex
	closed  bool
	jobs    map[string]*job // by build
	queue   []*job
	running map[string]int // by project
	making  map[*job]struct{}
	active  int
	ids     map[ownName]string // the lasting IDs of templates that have no image yet
}

// ownName is a template's name in its project.
type ownName struct{ project, name string }

var _ carrel.Builder = (*Engine)(nil)

// Open returns an engine on its directory. It ends the workshops of the engine before it, and
// queues that engine's builds again.
func Open(ctx context.Context, opts Options) (*Engine, error) {
	const op = "open builds"
	opts = opts.withDefaults()
	if opts.Dir == "" || opts.Sandboxes == nil || opts.Images == nil || opts.Tiers == nil {
		return nil, &carrel.Error{Op: op, Kind: carrel.Internal,
			Err: errors.New("a part is missing: directory, sandboxes, images or tiers")}
	}
	for _, dir := range []string{opts.Dir, filepath.Join(opts.Dir, uploadsDir),
		filepath.Join(opts.Dir, cachesDir)} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, &carrel.Error{Op: op, Kind: carrel.Internal, Err: err}
		}
	}
	e := &Engine{opts: opts, log: opts.Log, jobs: map[string]*job{}, running: map[string]int{},
		making: map[*job]struct{}{},
		ids:    map[ownName]string{}}
	e.ctx, e.stop = context.WithCancel(context.WithoutCancel(ctx))
	e.uploads.dir = filepath.Join(opts.Dir, uploadsDir)
	e.caches.dir = filepath.Join(opts.Dir, cachesDir)
	e.endWorkshops(ctx)
	if err := e.load(); err != nil {
		e.stop()
		return nil, &carrel.Error{Op: op, Kind: carrel.Internal, Err: err}
	}
	e.wg.Go(e.tend)
	e.mu.Lock()
	e.dispatchLocked()
	e.mu.Unlock()
	return e, nil
}

// Close stops the builds that run. The next engine goes on with them.
func (e *Engine) Close() error {
	e.mu.Lock()
	e.closed = true
	e.mu.Unlock()
	e.stop()
	e.wg.Wait()
	for _, j := range e.all() {
		j.close()
	}
	return nil
}

// all returns all builds, in no order.
func (e *Engine) all() []*job {
	e.mu.Lock()
	defer e.mu.Unlock()
	out := make([]*job, 0, len(e.jobs))
	for _, j := range e.jobs {
		out = append(out, j)
	}
	return out
}

// endWorkshops ends the workshops that an earlier engine left.
func (e *Engine) endWorkshops(ctx context.Context) {
	ctx = carrel.WithCaller(ctx, carrel.Caller{Role: carrel.RoleAdmin})
	opts := carrel.ListOptions{Builds: true}
	for {
		page, err := e.opts.Sandboxes.List(ctx, opts)
		if err != nil {
			e.log.Error("look for sandboxes of builds", "err", err)
			return
		}
		for _, sb := range page.Sandboxes {
			if sb.Build == "" {
				continue
			}
			if err := e.opts.Sandboxes.Kill(ctx, sb.ID); err != nil &&
				carrel.KindOf(err) != carrel.NotFound {
				e.log.Error("end a sandbox of a build", "sandbox", sb.ID, "err", err)
			}
		}
		if opts.Cursor = page.Next; opts.Cursor == "" {
			return
		}
	}
}

// load reads the records. Builds that were under way are queued again, oldest first.
func (e *Engine) load() error {
	entries, err := os.ReadDir(e.opts.Dir)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if !entry.IsDir() || !isBuildID(entry.Name()) {
			continue
		}
		j, err := loadJob(filepath.Join(e.opts.Dir, entry.Name()))
		if errors.Is(err, os.ErrNotExist) { // never begun: the record is written first of all
			err = os.RemoveAll(filepath.Join(e.opts.Dir, entry.Name()))
		}
		if err != nil {
			e.log.Error("a build can't be read and is left alone", "build", entry.Name(), "err", err)
		}
		if j == nil {
			continue
		}
		b := j.public()
		e.jobs[b.ID] = j
		e.ids[ownName{b.Project, b.Name}] = b.TemplateID
		if b.State.Final() || !j.rec.Begun {
			continue
		}
		if j.rec.Sealed {
			j.end(carrel.BuildError,
				&carrel.BuildReason{Message: "the daemon ended while the template was built, and nothing keeps the build's secrets",
					Hint: "start the build again: the finished steps are in the cache"})
			continue
		}
		j.write(line(levelWarn, "",
			"the daemon ended while the template was built: it goes on with the next one"))
		j.set(func(b *carrel.Build) { b.State = carrel.BuildWaiting })
		e.queue = append(e.queue, j)
	}
	slices.SortFunc(e.queue, func(x, y *job) int {
		return x.public().Created.Compare(
			y.public().Created)
	})
	return nil
}

// dispatchLocked starts waiting builds while there is room. Among the projects that wait, the one
// with the fewest running builds is next. The caller holds mu.
func (e *Engine) dispatchLocked() {
	for e.active < e.opts.Running && len(e.queue) > 0 && !e.closed {
		best := 0
		for i, j := range e.queue {
			if e.running[j.project] < e.running[e.queue[best].project] {
				best = i
			}
		}
		j := e.queue[best]
		e.queue = slices.Delete(e.queue, best, best+1)
		e.active++
		e.running[j.project]++
		e.making[j] = struct{}{}
		e.wg.Go(func() {
			e.make(j)
			e.mu.Lock()
			defer e.mu.Unlock()
			e.active--
			delete(e.making, j)
			if e.running[j.project]--; e.running[j.project] == 0 {
				delete(e.running, j.project)
			}
			e.dispatchLocked()
		})
	}
}

// busyLocked counts the builds of a holder that wait or run. The caller holds mu.
func (e *Engine) busyLocked(of carrel.Holder) (n int) {
	for _, all := range [][]*job{e.queue, slices.Collect(maps.Keys(e.making))} {
		for _, j := range all {
			if j.project == of.Project && (of.Key == "" || of.Key == j.key()) {
				n++
			}
		}
	}
	return n
}

// Busy counts the builds of a holder that wait or run.
func (e *Engine) Busy(of carrel.Holder) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.busyLocked(of)
}

// enqueue puts a build into the queue. Error: Exhausted.
func (e *Engine) enqueue(op string, j *job) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	waiting := 0
	for _, other := range e.queue {
		if other.project == j.project {
			waiting++
		}
	}
	for _, b := range e.opts.Quotas(j.project, j.key()) {
		hit := quota.Over(b, carrel.LimitBuilds, carrel.Milli(e.busyLocked(b.Holder))*quota.One, quota.One)
		if hit != nil {
			return quota.Error(op, *hit, 0)
		}
	}
	switch {
	case e.closed:
		return &carrel.Error{Op: op, Kind: carrel.Unavailable, Err: errors.New("the service is closing")}
	case waiting >= e.opts.Queued:
		return &carrel.Error{Op: op, Kind: carrel.Exhausted, Field: "builds",
			Err:  fmt.Errorf("%d builds of this project wait already", waiting),
			Hint: "wait until some have ended, or cancel some"}
	}
	e.queue = append(e.queue, j)
	e.dispatchLocked()
	return nil
}

// Bounds on what is kept.
const (
	tendEvery   = 10 * time.Minute
	keepBuilds  = 30 * 24 * time.Hour // of builds that have ended
	keepOfAll   = 5000                // builds
	keepUploads = 7 * 24 * time.Hour
	keepNew     = 24 * time.Hour // of builds that are never started
)

// tend removes old things now and then.
func (e *Engine) tend() {
	tick := time.NewTicker(tendEvery)
	defer tick.Stop()
	for {
		e.tidy()
		select {
		case <-tick.C:
		case <-e.ctx.Done():
			return
		}
	}
}

// tidy removes old builds and uploads, and layers beyond the bound.
func (e *Engine) tidy() {
	now := time.Now()
	all := e.all()
	slices.SortFunc(all, func(x, y *job) int { return y.public().Created.Compare(x.public().Created) })
	for i, j := range all {
		b := j.public()
		if !j.begun() && now.Sub(b.Created) > keepNew && !b.State.Final() {
			j.end(carrel.BuildError, &carrel.BuildReason{Message: "the build was never started"})
		}
		if b.State.Final() && (now.Sub(b.Ended) > keepBuilds || i >= keepOfAll) {
			e.mu.Lock()
			delete(e.jobs, b.ID)
			e.mu.Unlock()
			j.remove()
		}
	}
	e.uploads.tidy(now.Add(-keepUploads))
	e.trimLayers()
}

// trimLayers removes the oldest layers until the rest is within the bound.
func (e *Engine) trimLayers() {
	layers := e.opts.Sandboxes.Layers()
	slices.SortFunc(layers, func(x, y carrel.Snapshot) int { return y.Created.Compare(x.Created) })
	var sum int64
	var gone []carrel.SnapshotID
	for _, l := range layers {
		if sum += l.Size; sum > e.opts.CacheBytes {
			gone = append(gone, l.ID)
		}
	}
	if len(gone) == 0 {
		return
	}
	if err := e.opts.Sandboxes.DropLayers(e.ctx, gone); err != nil && e.ctx.Err() == nil {
		e.log.Error("remove old layers", "err", err)
	}
}
