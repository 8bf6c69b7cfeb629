package pod

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/carrel-dev/carrel"
)

const (
	// Name is the name of the pod's sandbox in its project.
	Name = "pod"
	// extendEvery is how often the sandbox's timeout is moved on.
	extendEvery = time.Hour
	// probePatience is how long the sandbox may take to answer a probe.
	probePatience = 2 * time.Second
	// listed is how many sandboxes with the name are looked at; there is one at most.
	listed = 2
)

// Service is what a keeper needs of [carrel.Service].
type Service interface {
	Create(ctx context.Context, opts carrel.CreateOptions) (carrel.Sandbox, error)
	Get(ctx context.Context, id carrel.ID) (carrel.Sandbox, error)
	List(ctx context.Context, opts carrel.ListOptions) (carrel.Page, error)
	SetTimeout(ctx context.Context, id carrel.ID, d time.Duration, extendOnly bool) (carrel.Sandbox, error)
	Computer(ctx context.Context, id carrel.ID) (carrel.Computer, error)
	Pause(ctx context.Context, id carrel.ID, opts carrel.PauseOptions) (carrel.Sandbox, error)
	Resume(ctx context.Context, id carrel.ID, opts carrel.ResumeOptions) (carrel.Sandbox, bool, error)
}

// Options configure a keeper.
type Options struct {
	// Service makes the sandbox. The keeper does not close it.
	Service Service
	// Create says what sandbox to make. Its Name, Timeout and Lifecycle are the keeper's.
	Create carrel.CreateOptions
	// Dir is the working directory, inside the sandbox; "" is the user's home.
	Dir string
	// Life is how long the sandbox may live without its keeper. It must be positive.
	Life time.Duration
	Log  *slog.Logger
}

// Keeper keeps the sandbox of this pod. It is safe for concurrent use.
type Keeper struct {
	opts    Options
	id      carrel.ID
	resumed bool
	cancel  context.CancelFunc
	tending sync.WaitGroup
	closing sync.Once
	err     error // of Close
}

// Open makes or resumes the sandbox, and returns when it answers. Errors are those of Create and
// Resume.
func Open(ctx context.Context, opts Options) (*Keeper, error) {
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	k := &Keeper{opts: opts}
	if err := k.find(ctx); err != nil {
		return nil, err
	}
	if err := k.Ready(ctx); err != nil {
		return nil, err
	}
	tend, cancel := context.WithCancel(context.WithoutCancel(ctx))
	k.cancel = cancel
	k.tending.Go(func() { k.tend(tend) })
	return k, nil
}

// find resumes or adopts the sandbox of an earlier pod, or makes one.
func (k *Keeper) find(ctx context.Context) error {
	page, err := k.opts.Service.List(ctx, carrel.ListOptions{Match: Name, Limit: listed})
	if err != nil {
		return err
	}
	for _, box := range page.Sandboxes {
		if box.Name != Name {
			continue
		}
		k.id = box.ID
		_, k.resumed, err = k.opts.Service.Resume(ctx, box.ID, carrel.ResumeOptions{Timeout: k.opts.Life})
		if err != nil {
			return &carrel.Error{Op: "resume the pod's sandbox", Kind: carrel.KindOf(err), ID: box.ID, Err: err,
				Hint: resumeHint(err)}
		}
		return nil
	}
	create := k.opts.Create
	create.Name, create.Timeout = Name, k.opts.Life
	// A timeout that passes although a keeper should have moved it on must not lose the sandbox.
	create.Lifecycle = carrel.Lifecycle{OnTimeout: carrel.ActionPause}
	box, err := k.opts.Service.Create(ctx, create)
	if err != nil {
		return err
	}
	k.id = box.ID
	return nil
}

func resumeHint(err error) string {
	if hint := carrel.HintOf(err); hint != "" {
		return hint
	}
	return "its snapshot is kept in the data directory; to begin anew, give the pod an empty volume"
}

// tend moves the timeout on until ctx ends.
func (k *Keeper) tend(ctx context.Context) {
	ticker := time.NewTicker(min(extendEvery, k.opts.Life/2))
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			if _, err := k.opts.Service.SetTimeout(ctx, k.id, k.opts.Life, true); err != nil && ctx.Err() == nil {
				k.opts.Log.Warn("the sandbox's timeout could not be moved on", "err", err)
			}
		}
	}
}

// Sandbox is the ID of the pod's sandbox. resumed says that an earlier pod had paused it.
func (k *Keeper) Sandbox() (id carrel.ID, resumed bool) { return k.id, k.resumed }

// Ready returns nil if the sandbox answers. The error says what is wrong.
func (k *Keeper) Ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, probePatience)
	defer cancel()
	if err := k.Alive(ctx); err != nil {
		return err
	}
	pc, err := k.opts.Service.Computer(ctx, k.id)
	if err != nil {
		return err
	}
	_, err = pc.Processes(ctx)
	return err
}

// Alive returns an error if the sandbox has ended, so that only a new one helps.
func (k *Keeper) Alive(ctx context.Context) error {
	box, err := k.opts.Service.Get(ctx, k.id)
	if err != nil {
		return err
	}
	if box.State != carrel.Running {
		return &carrel.Error{Op: "look at the pod's sandbox", Kind: carrel.Unavailable, ID: k.id,
			Err: fmt.Errorf("it is %s", box.State)}
	}
	return nil
}

// Close pauses the sandbox with its memory. Later calls return the same error.
func (k *Keeper) Close(ctx context.Context) error {
	k.closing.Do(func() {
		k.cancel()
		k.tending.Wait()
		_, k.err = k.opts.Service.Pause(ctx, k.id, carrel.PauseOptions{})
		switch carrel.KindOf(k.err) {
		case carrel.NotFound, carrel.Conflict: // it has ended, or is paused already
			k.err = nil
		}
	})
	return k.err
}
