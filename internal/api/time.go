package api

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/carrel-dev/carrel"
)

// pausedStates are the states that E2B shows as paused. As in E2B, a sandbox that is being paused
// counts. One that is being resumed counts too. In both cases its state is kept, and a request must
// wait. All other states are shown as running.
var pausedStates = []carrel.State{carrel.Pausing, carrel.Paused, carrel.Resuming}

// pauseBody is E2B's body of pause.
type pauseBody struct {
	Memory *bool `json:"memory"`
	// RequireHealthyGuest refuses the pause while nothing inside answers.
	RequireHealthyGuest bool `json:"requireHealthyGuest,omitempty"`
}

// healthTime is how long a guest may take to show that it is healthy.
const healthTime = 5 * time.Second

// healthy returns an error of kind Unavailable if a sandbox's guest does not answer.
func (s momentRoutes) healthy(r *http.Request, id carrel.ID) error {
	ctx, cancel := context.WithTimeout(r.Context(), healthTime)
	defer cancel()
	c, err := s.opts.Service.Computer(ctx, id)
	if err != nil {
		return err
	}
	if _, err := c.Processes(ctx); err != nil {
		return &carrel.Error{Op: "pause sandbox", ID: id, Kind: carrel.Unavailable,
			Err:  fmt.Errorf("its guest does not answer, and requireHealthyGuest is set: %w", err),
			Hint: "pause without requireHealthyGuest, or with memory: false when it answers again"}
	}
	return nil
}

// pause is E2B's route. It answers 204, or 409 for a sandbox that is paused already. E2B's SDKs do
// not treat this 409 as an error.
func (s momentRoutes) pause(w http.ResponseWriter, r *http.Request) error {
	id, err := pathID(r)
	if err != nil {
		return err
	}
	var body pauseBody
	if err := decode(w, r, &body, true); err != nil {
		return err
	}
	if body.RequireHealthyGuest {
		if err := s.healthy(r, id); err != nil {
			return notFoundAs(id, err)
		}
	}
	if _, err := s.opts.Service.Pause(r.Context(), id, carrel.PauseOptions{FilesOnly: body.Memory != nil && !*body.Memory}); err != nil {
		return notFoundAs(id, err)
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// resumeBody is E2B's ConnectSandbox, ConnectSandboxV2 and ResumedSandbox.
type resumeBody struct {
	Timeout   *int32 `json:"timeout"`
	Memory    *bool  `json:"memory"`    // false boots a paused sandbox afresh from its files
	AutoPause *bool  `json:"autoPause"` // resume only
}

// resumeOptions converts the body. A timeout of 0 keeps the sandbox's last timeout.
func (s momentRoutes) resumeOptions(body resumeBody, seconds int32) (carrel.ResumeOptions, error) {
	opts := carrel.ResumeOptions{FilesOnly: body.Memory != nil && !*body.Memory}
	if body.Timeout != nil {
		seconds = *body.Timeout
	}
	var err error
	opts.Timeout, err = s.span("timeout", seconds)
	return opts, err
}

func (s momentRoutes) connectV1(w http.ResponseWriter, r *http.Request) error {
	return s.connect(w, r, false)
}

func (s momentRoutes) connectV2(w http.ResponseWriter, r *http.Request) error {
	return s.connect(w, r, true)
}

// connect answers with a running sandbox: 200 when it ran, 201 when it was paused and is resumed.
// It makes sure that the sandbox lives at least for the timeout, and never shortens its life. The
// action at the timeout stays the same. In E2B, users lost auto-pause when they connected again.
func (s momentRoutes) connect(w http.ResponseWriter, r *http.Request, v2 bool) error {
	id, err := pathID(r)
	if err != nil {
		return err
	}
	var body resumeBody
	if err := decode(w, r, &body, v2); err != nil {
		return err
	}
	if body.Timeout == nil && !v2 {
		return invalid("timeout", "missing")
	}
	opts, err := s.resumeOptions(body, timeoutV2)
	if err != nil {
		return err
	}
	sb, resumed, err := s.opts.Service.Resume(r.Context(), id, opts)
	if err != nil {
		return notFoundAs(id, err)
	}
	status := http.StatusOK
	if resumed {
		status = http.StatusCreated
	}
	writeJSON(w, status, toSandbox(sb))
	return nil
}

// resume is E2B's deprecated way to wake a sandbox. A running sandbox is a conflict. Only this
// route may change the action at the timeout.
func (s momentRoutes) resume(w http.ResponseWriter, r *http.Request) error {
	sb, err := s.find(r)
	if err != nil {
		return err
	}
	var body resumeBody
	if err := decode(w, r, &body, true); err != nil {
		return err
	}
	opts, err := s.resumeOptions(body, timeoutV1)
	if err != nil {
		return err
	}
	if sb.State == carrel.Running {
		return alreadyRunning(sb.ID)
	}
	if body.AutoPause != nil {
		l := sb.Lifecycle
		l.OnTimeout = carrel.ActionKill
		if *body.AutoPause {
			l.OnTimeout = carrel.ActionPause
		}
		if _, err := s.opts.Service.SetLifecycle(r.Context(), sb.ID, l); err != nil {
			return notFoundAs(sb.ID, err)
		}
	}
	awake, resumed, err := s.opts.Service.Resume(r.Context(), sb.ID, opts)
	switch {
	case err != nil:
		return notFoundAs(sb.ID, err)
	case !resumed:
		return alreadyRunning(sb.ID)
	}
	writeJSON(w, http.StatusCreated, toSandbox(awake))
	return nil
}

func alreadyRunning(id carrel.ID) error {
	return tell(carrel.Conflict, "Sandbox %q is already running", id)
}

// maxForks is the most forks that E2B's first route makes. Its second leaves the bound to the
// service.
const maxForks = 100

// forkBody is E2B's SandboxForkResult. One of its two fields is set.
type forkBody struct {
	Sandbox *sandboxBody `json:"sandbox,omitempty"`
	Error   *errorBody   `json:"error,omitempty"`
}

// newForkBody is E2B's body of fork.
type newForkBody struct {
	Timeout *int32 `json:"timeout"`
	Count   *int32 `json:"count"`
	Memory  *bool  `json:"memory,omitempty"` // of the second route: false keeps the files only
}

// forkV1 is E2B's first route.
func (s momentRoutes) forkV1(w http.ResponseWriter, r *http.Request) error {
	return s.fork(w, r, timeoutV1*time.Second, maxForks)
}

// forkV2 is the second, of clients newer than 2.51: forks live longer, and may leave out memory.
func (s momentRoutes) forkV2(w http.ResponseWriter, r *http.Request) error {
	return s.fork(w, r, timeoutV2*time.Second, carrel.MaxForks)
}

// fork makes the forks. Unlike E2B's routes, it can also fork a paused sandbox.
func (s momentRoutes) fork(w http.ResponseWriter, r *http.Request, usual time.Duration,
	most int) error {
	id, err := pathID(r)
	if err != nil {
		return err
	}
	var body newForkBody
	if err := decode(w, r, &body, true); err != nil {
		return err
	}
	opts := carrel.ForkOptions{Count: 1, Timeout: usual,
		FilesOnly: body.Memory != nil && !*body.Memory}
	if body.Count != nil {
		opts.Count = int(*body.Count)
	}
	if err := checkForks(opts.Count, most); err != nil {
		return err
	}
	if body.Timeout != nil {
		if *body.Timeout == 0 {
			return invalid("timeout", "0 would end the sandboxes at once")
		}
		if opts.Timeout, err = s.span("timeout", *body.Timeout); err != nil {
			return err
		}
	}
	results, err := s.opts.Service.Fork(r.Context(), id, opts)
	if err != nil {
		return notFoundAs(id, err)
	}
	out := make([]forkBody, len(results))
	for i, f := range results {
		if f.Err != nil {
			_, e := s.render(r, f.Err)
			out[i].Error = &e
			continue
		}
		sb := toSandbox(f.Sandbox)
		out[i].Sandbox = &sb
	}
	writeJSON(w, http.StatusCreated, out)
	return nil
}

// checkForks has E2B's texts.
func checkForks(count, most int) error {
	p := tell(carrel.Invalid, "Count must be at least 1")
	switch {
	case count > most:
		p = tell(carrel.Invalid, "Count cannot be greater than %d", most)
	case count >= 1:
		return nil
	}
	p.body.Field = "count"
	return p
}
