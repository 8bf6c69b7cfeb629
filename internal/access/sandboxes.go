package access

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/request"
)

// Create implements carrel.Sandboxes. The sandbox belongs to the caller's project.
func (s *Service) Create(ctx context.Context, opts carrel.CreateOptions) (carrel.Sandbox, error) {
	const op = "create sandbox"
	c, ctx, err := s.user(ctx, op)
	if err == nil {
		err = s.mayOpenHost(op, c, opts.Network)
	}
	if err == nil {
		ctx = carrel.WithAsked(ctx, opts.Template)
		opts.Template, err = s.mayStart(ctx, op, c, opts.Template)
	}
	if err != nil {
		return carrel.Sandbox{}, err
	}
	sb, err := s.opts.Core.Create(ctx, opts)
	request.Touch(ctx, string(sb.ID))
	return sb, err
}

// Get implements carrel.Sandboxes.
func (s *Service) Get(ctx context.Context, id carrel.ID) (carrel.Sandbox, error) {
	ctx, err := s.itself(ctx, "get sandbox", id)
	if err != nil {
		return carrel.Sandbox{}, err
	}
	sb, err := s.opts.Core.Get(ctx, id)
	return shown(carrel.CallerOf(ctx), sb), err
}

// List implements carrel.Sandboxes.
func (s *Service) List(ctx context.Context, opts carrel.ListOptions) (carrel.Page, error) {
	c, ctx, err := s.user(ctx, "list sandboxes")
	if err != nil {
		return carrel.Page{}, err
	}
	if c.Role != carrel.RoleAdmin || opts.Match != "" { // names and prefixes belong to each project
		opts.Project = c.Project
	}
	page, err := s.opts.Core.List(ctx, opts)
	for i, sb := range page.Sandboxes {
		page.Sandboxes[i] = shown(c, sb)
	}
	return page, err
}

// Kill implements carrel.Sandboxes.
func (s *Service) Kill(ctx context.Context, id carrel.ID) error {
	const op = "kill sandbox"
	ctx, err := s.sandbox(ctx, op, id)
	if err == nil {
		err = s.notOfBuild(ctx, op, id)
	}
	if err != nil {
		return err
	}
	return s.opts.Core.Kill(ctx, id)
}

// notOfBuild refuses what would break a build whose steps run in a sandbox.
func (s *Service) notOfBuild(ctx context.Context, op string, id carrel.ID) error {
	sb, err := s.opts.Core.Get(ctx, id)
	if err != nil || sb.Build == "" { // the operation itself says what is wrong
		return nil
	}
	return &carrel.Error{Op: op, Kind: carrel.Conflict, ID: id,
		Err:  fmt.Errorf("steps of build %s run in it", sb.Build),
		Hint: "end the build: carrel build cancel " + sb.Build}
}

// SetTimeout implements carrel.Sandboxes.
func (s *Service) SetTimeout(ctx context.Context, id carrel.ID, d time.Duration, extendOnly bool) (carrel.Sandbox, error) {
	ctx, err := s.sandbox(ctx, "set timeout", id)
	if err != nil {
		return carrel.Sandbox{}, err
	}
	return s.opts.Core.SetTimeout(ctx, id, d, extendOnly)
}

// SetNetwork implements carrel.Sandboxes.
func (s *Service) SetNetwork(ctx context.Context, id carrel.ID, n carrel.Network) (carrel.Sandbox, error) {
	const op = "set network"
	ctx, err := s.sandbox(ctx, op, id)
	if err == nil {
		err = s.mayOpenHost(op, carrel.CallerOf(ctx), n)
	}
	if err != nil {
		return carrel.Sandbox{}, err
	}
	return s.opts.Core.SetNetwork(ctx, id, n)
}

// Computer implements carrel.Sandboxes. A sandbox never changes its project, so this judgement
// stays right for as long as the Computer is used.
func (s *Service) Computer(ctx context.Context, id carrel.ID) (carrel.Computer, error) {
	ctx, err := s.sandbox(ctx, "connect to sandbox", id)
	if err != nil {
		return nil, err
	}
	return s.opts.Core.Computer(ctx, id)
}

// Metrics implements carrel.Sandboxes.
func (s *Service) Metrics(ctx context.Context, id carrel.ID, from, to time.Time) ([]carrel.Metric, error) {
	ctx, err := s.sandbox(ctx, "read metrics", id)
	if err != nil {
		return nil, err
	}
	return s.opts.Core.Metrics(ctx, id, from, to)
}

// Logs implements carrel.Sandboxes.
func (s *Service) Logs(ctx context.Context, id carrel.ID, opts carrel.LogOptions) ([]carrel.LogEntry, error) {
	ctx, err := s.past(ctx, "read logs", id)
	if err != nil {
		return nil, err
	}
	return s.opts.Core.Logs(ctx, id, opts)
}

// Events implements carrel.Sandboxes. Events about no sandbox are for administrators.
func (s *Service) Events(ctx context.Context, after int64) iter.Seq2[carrel.Event, error] {
	c, ctx, err := s.user(ctx, "follow events")
	if err != nil {
		return failed[carrel.Event](err)
	}
	all := s.opts.Core.Events(ctx, after)
	return func(yield func(carrel.Event, error) bool) {
		for e, err := range all {
			if err == nil && !c.Sees(e.Project) {
				continue
			}
			if !yield(e, err) {
				return
			}
		}
	}
}

// failed returns a stream that ends with an error.
func failed[T any](err error) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var none T
		yield(none, err)
	}
}

// Counts counts the sandboxes of the caller's own project.
type Counts struct{ *Service }

// ProjectMetrics returns the counts of the last hour, oldest first. A zero time is no bound.
func (s Counts) ProjectMetrics(
	ctx context.Context, from, to time.Time) ([]carrel.ProjectMetric, error) {
	c, _, err := s.user(ctx, "count sandboxes")
	if err != nil {
		return nil, err
	}
	return s.opts.Core.ProjectMetrics(c.Project, from, to), nil
}
