package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"

	"github.com/carrel-dev/carrel"
)

// Pause implements carrel.Moments. The daemon sets the cause.
func (c *Client) Pause(ctx context.Context, id carrel.ID, opts carrel.PauseOptions) (carrel.Sandbox, error) {
	var sb carrel.Sandbox
	err := c.change(ctx, "pause sandbox", http.MethodPost, id, "/pause", opts, &sb)
	c.renew(id, err)
	return sb, err
}

// Resume implements carrel.Moments.
func (c *Client) Resume(ctx context.Context, id carrel.ID, opts carrel.ResumeOptions) (carrel.Sandbox, bool, error) {
	var out struct {
		Sandbox carrel.Sandbox `json:"sandbox"`
		Resumed bool           `json:"resumed"`
	}
	err := c.change(ctx, "resume sandbox", http.MethodPost, id, "/resume", opts, &out)
	if out.Resumed {
		c.renew(id, err)
	}
	return out.Sandbox, out.Resumed, err
}

// Snapshot implements carrel.Moments.
func (c *Client) Snapshot(ctx context.Context, id carrel.ID, opts carrel.SnapshotOptions) (carrel.Snapshot, error) {
	var snap carrel.Snapshot
	err := c.change(ctx, "snapshot sandbox", http.MethodPost, id, "/snapshots", opts, &snap)
	return snap, err
}

// mostForks is the most forks that the daemon makes for one request.
const mostForks = 100

// Fork implements carrel.Moments. Each result holds its own fork or error, with the daemon's kind.
// More than a hundred forks take several requests, all for the moment of the first. If one request
// makes no fork at all, no other is sent: the remaining forks get its error.
func (c *Client) Fork(ctx context.Context, id carrel.ID, opts carrel.ForkOptions) ([]carrel.ForkResult, error) {
	want := opts.Count
	if want > carrel.MaxForks {
		return nil, &carrel.Error{Op: "fork sandbox", Kind: carrel.Invalid, ID: id, Field: "count", Err: fmt.Errorf("%d is more than %d", want, carrel.MaxForks)}
	}
	var all []carrel.ForkResult
	for {
		opts.Count = min(want-len(all), mostForks)
		some, err := c.forkOnce(ctx, id, opts)
		if err != nil && len(all) == 0 {
			return nil, err
		}
		all = append(all, some...)
		for _, r := range some {
			if r.Err == nil {
				opts.At = r.Sandbox.Snapshot
			}
		}
		if err == nil && len(some) > 0 && !slices.ContainsFunc(some, func(r carrel.ForkResult) bool { return r.Err == nil }) {
			err = some[len(some)-1].Err
		}
		for err != nil && len(all) < want {
			all = append(all, carrel.ForkResult{Err: err})
		}
		if len(all) >= want || len(some) < opts.Count { // a daemon that answers for too few is not asked again
			return all, nil
		}
	}
}

// forkOnce is Fork by one request.
func (c *Client) forkOnce(ctx context.Context, id carrel.ID, opts carrel.ForkOptions) ([]carrel.ForkResult, error) {
	const op = "fork sandbox"
	var out struct {
		Forks []struct {
			Sandbox *carrel.Sandbox `json:"sandbox"`
			Error   *wireError      `json:"error"`
		} `json:"forks"`
	}
	if err := c.change(ctx, op, http.MethodPost, id, "/fork", opts, &out); err != nil {
		return nil, err
	}
	results := make([]carrel.ForkResult, len(out.Forks))
	for i, f := range out.Forks {
		switch {
		case f.Error != nil:
			results[i].Err = f.Error.restore(op)
		case f.Sandbox != nil:
			results[i].Sandbox = *f.Sandbox
		default:
			results[i].Err = &carrel.Error{Op: op, Kind: carrel.Internal, ID: id, Err: errors.New("the daemon answered with neither a sandbox nor an error")}
		}
	}
	return results, nil
}

// Rollback implements carrel.Moments.
func (c *Client) Rollback(ctx context.Context, id carrel.ID, to carrel.SnapshotID, opts carrel.RollbackOptions) (carrel.Sandbox, error) {
	body := struct {
		To carrel.SnapshotID `json:"to"`
		carrel.RollbackOptions
	}{to, opts}
	var sb carrel.Sandbox
	err := c.change(ctx, "roll back sandbox", http.MethodPost, id, "/rollback", body, &sb)
	c.renew(id, err)
	return sb, err
}

// Promote implements carrel.Moments.
func (c *Client) Promote(ctx context.Context, id carrel.ID, opts carrel.PromoteOptions) (carrel.Sandbox, error) {
	var sb carrel.Sandbox
	err := c.change(ctx, "promote sandbox", http.MethodPost, id, "/promote", opts, &sb)
	c.renew(id, err)
	return sb, err
}

// Timeline implements carrel.Moments.
func (c *Client) Timeline(ctx context.Context, id carrel.ID) (carrel.Timeline, error) {
	var t carrel.Timeline
	err := c.change(ctx, "read timeline", http.MethodGet, id, "/timeline", nil, &t)
	return t, err
}

// SetLifecycle implements carrel.Moments.
func (c *Client) SetLifecycle(ctx context.Context, id carrel.ID, l carrel.Lifecycle) (carrel.Sandbox, error) {
	var sb carrel.Sandbox
	err := c.change(ctx, "set lifecycle", http.MethodPut, id, "/lifecycle", l, &sb)
	return sb, err
}

// change sends one request of Moments about a sandbox.
func (c *Client) change(ctx context.Context, op, method string, id carrel.ID, rest string, body, out any) error {
	if _, err := carrel.ParseID(string(id)); err != nil {
		return notFound(op, id, err)
	}
	return c.call(ctx, op, method, sandboxPath(id, rest), nil, body, out)
}

// renew drops the connections kept for a sandbox that has a new incarnation, or is gone. Nothing of
// the old incarnation may be used for the new one.
func (c *Client) renew(id carrel.ID, err error) {
	if err == nil || carrel.KindOf(err) == carrel.NotFound {
		c.forget(id)
	}
}

// snapshotPath returns the path of one snapshot below /carrel/v1. The empty text names none.
func snapshotPath(op, idOrName, rest string) (string, error) {
	if idOrName == "" {
		return "", &carrel.Error{Op: op, Kind: carrel.Invalid, Field: "snapshotID", Err: errors.New("empty")}
	}
	return "/snapshots/" + url.PathEscape(idOrName) + rest, nil
}

// GetSnapshot implements carrel.Moments.
func (c *Client) GetSnapshot(ctx context.Context, idOrName string) (carrel.Snapshot, error) {
	const op = "get snapshot"
	var snap carrel.Snapshot
	path, err := snapshotPath(op, idOrName, "")
	if err != nil {
		return snap, err
	}
	err = c.call(ctx, op, http.MethodGet, path, nil, nil, &snap)
	return snap, err
}

// ListSnapshots implements carrel.Moments.
func (c *Client) ListSnapshots(ctx context.Context, opts carrel.SnapshotListOptions) (carrel.SnapshotPage, error) {
	q := url.Values{}
	set := func(name, value string) {
		if value != "" {
			q.Set(name, value)
		}
	}
	set("sandbox", string(opts.Sandbox))
	set("project", opts.Project)
	set("name", opts.Name)
	set("cursor", opts.Cursor)
	if opts.Limit != 0 {
		q.Set("limit", strconv.Itoa(opts.Limit))
	}
	if opts.Auto {
		q.Set("auto", "true")
	}
	var page struct {
		Snapshots []carrel.Snapshot `json:"snapshots"`
		Next      string            `json:"next"`
		Missing   []string          `json:"missing"`
	}
	err := c.call(ctx, "list snapshots", http.MethodGet, "/snapshots", q, nil, &page)
	return carrel.SnapshotPage(page), err
}

// UpdateSnapshot implements carrel.Moments.
func (c *Client) UpdateSnapshot(ctx context.Context, id carrel.SnapshotID, u carrel.SnapshotUpdate) (carrel.Snapshot, error) {
	const op = "update snapshot"
	var snap carrel.Snapshot
	path, err := snapshotPath(op, string(id), "")
	if err != nil {
		return snap, err
	}
	if u.Names != nil && *u.Names == nil {
		u.Names = &[]string{} // null would mean no change
	}
	err = c.call(ctx, op, http.MethodPatch, path, nil, u, &snap)
	return snap, err
}

// DeleteSnapshot implements carrel.Moments.
func (c *Client) DeleteSnapshot(ctx context.Context, idOrName string) error {
	const op = "delete snapshot"
	path, err := snapshotPath(op, idOrName, "")
	if err != nil {
		return err
	}
	return c.call(ctx, op, http.MethodDelete, path, nil, nil, nil)
}

// Diff implements carrel.Moments.
func (c *Client) Diff(ctx context.Context, from, to carrel.SnapshotID) ([]carrel.FileChange, error) {
	const op = "compare snapshots"
	path, err := snapshotPath(op, string(from), "/diff")
	if err != nil {
		return nil, err
	}
	var changes []carrel.FileChange
	err = c.call(ctx, op, http.MethodGet, path, url.Values{"to": {string(to)}}, nil, &changes)
	return changes, err
}

// SnapshotUsage is the size of the daemon's snapshot store, in bytes.
type SnapshotUsage struct {
	Snapshots int   `json:"snapshots"` // how many there are
	Size      int64 `json:"size"`      // files of all snapshots, as if nothing were shared
	Hot       int64 `json:"hot"`       // of uncompressed copies
	Packs     int64 `json:"packs"`     // stored bytes: compressed, equal data once
	Quota     int64 `json:"quota"`     // limit for Hot and Packs; 0 is none
}

// SnapshotUsage asks the daemon for the size of its snapshot store.
func (c *Client) SnapshotUsage(ctx context.Context) (SnapshotUsage, error) {
	var u SnapshotUsage
	err := c.call(ctx, "read snapshot usage", http.MethodGet, "/snapshot-store", nil, nil, &u)
	return u, err
}

// SnapshotsCollected counts what a collection removed.
type SnapshotsCollected struct {
	Packs  int   `json:"packs"`  // removed or rewritten
	Drafts int   `json:"drafts"` // unfinished snapshots
	Freed  int64 `json:"freed"`  // bytes
}

// CollectSnapshots frees data that no snapshot needs any more.
func (c *Client) CollectSnapshots(ctx context.Context) (SnapshotsCollected, error) {
	var out SnapshotsCollected
	err := c.call(ctx, "collect snapshots", http.MethodPost, "/snapshot-store/gc", nil, nil, &out)
	return out, err
}
