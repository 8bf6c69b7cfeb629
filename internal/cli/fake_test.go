package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/client"
)

// noon is the present time in these tests.
var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

const (
	boxID  = carrel.ID("iaaaaaaaaaaaaaaaaaaaa")
	forkID = carrel.ID("ibbbbbbbbbbbbbbbbbbbb")
	noID   = carrel.ID("izzzzzzzzzzzzzzzzzzzz")
)

// snapID returns the ID of the n-th snapshot of a test; the IDs differ at the beginning.
func snapID(n int) carrel.SnapshotID {
	return carrel.SnapshotID(fmt.Sprintf("s%07d%013d", n, 0))
}

// parts are the parts of a service that a fake may lack.
type parts interface {
	carrel.Sandboxes
	carrel.Moments
	carrel.Templates
}

// fake is a service with one sandbox, whose past is a field.
type fake struct {
	parts
	carrel.NoExtras
	box      carrel.Sandbox
	files    map[carrel.SnapshotID]carrel.SnapshotFile // by the snapshot, for any name
	snaps    []carrel.Snapshot
	forks    map[carrel.SnapshotID][]carrel.ID
	changes  []carrel.FileChange
	results  []carrel.ForkResult
	room     int                  // how many more may live; 0: Fork returns results
	created  carrel.CreateOptions // of the last Create
	err      error                // of every change, if set
	calls    []string             // what was asked for
	pageSize int
}

func (f *fake) did(format string, args ...any) error {
	f.calls = append(f.calls, fmt.Sprintf(format, args...))
	return f.err
}

func (f *fake) known(id carrel.ID) error {
	if id != f.box.ID {
		return &carrel.Error{Op: "find", Kind: carrel.NotFound, ID: id}
	}
	return nil
}

func (f *fake) Close() error { return nil }

func (f *fake) Create(_ context.Context, o carrel.CreateOptions) (carrel.Sandbox, error) {
	f.created = o
	err := f.did("create from %q %+v", o.Template, o.Lifecycle)
	return f.box, err
}

func (f *fake) Get(_ context.Context, id carrel.ID) (carrel.Sandbox, error) {
	return f.box, f.known(id)
}

func (f *fake) List(context.Context, carrel.ListOptions) (carrel.Page, error) {
	return carrel.Page{Sandboxes: []carrel.Sandbox{f.box}}, nil
}

func (f *fake) Pause(_ context.Context, id carrel.ID, o carrel.PauseOptions) (carrel.Sandbox, error) {
	if err := f.known(id); err != nil {
		return carrel.Sandbox{}, err
	}
	return f.box, f.did("pause %+v", o)
}

func (f *fake) Resume(_ context.Context, id carrel.ID, o carrel.ResumeOptions) (carrel.Sandbox, bool, error) {
	if err := f.known(id); err != nil {
		return carrel.Sandbox{}, false, err
	}
	was := f.box.State == carrel.Paused
	f.box.State = carrel.Running
	return f.box, was, f.did("resume %+v", o)
}

// Computer returns nothing useful: these tests stop before the inside.
func (f *fake) Computer(_ context.Context, id carrel.ID) (carrel.Computer, error) {
	if f.box.State != carrel.Running {
		return nil, &carrel.Error{Op: "open computer", Kind: carrel.Conflict, ID: id, Err: fmt.Errorf("the sandbox is %s", f.box.State)}
	}
	return nil, &carrel.Error{Op: "open computer", Kind: carrel.Unavailable, Err: errors.New("this far")}
}

func (f *fake) Snapshot(_ context.Context, _ carrel.ID, o carrel.SnapshotOptions) (carrel.Snapshot, error) {
	return carrel.Snapshot{ID: snapID(1)}, f.did("snapshot %+v", o)
}

func (f *fake) Fork(_ context.Context, _ carrel.ID, o carrel.ForkOptions) ([]carrel.ForkResult, error) {
	err := f.did("fork %+v", o)
	if f.room == 0 && f.results != nil {
		return f.results, err
	}
	out := make([]carrel.ForkResult, o.Count)
	for i := range out {
		if f.room == 0 {
			out[i].Err = &carrel.Error{Op: "fork", Kind: carrel.Exhausted, Err: errors.New("all 150 that may live do")}
			continue
		}
		f.room--
		out[i].Sandbox = carrel.Sandbox{ID: carrel.NewID(), Snapshot: snapID(7)}
	}
	return out, err
}

// Kill notes the sandbox.
func (f *fake) Kill(_ context.Context, id carrel.ID) error { return f.did("kill %s", id) }

func (f *fake) Rollback(_ context.Context, id carrel.ID, to carrel.SnapshotID, o carrel.RollbackOptions) (carrel.Sandbox, error) {
	return f.box, f.did("rollback to %s %+v", to, o)
}

func (f *fake) GetSnapshot(_ context.Context, idOrName string) (carrel.Snapshot, error) {
	for _, s := range f.snaps {
		if string(s.ID) == idOrName || slices.Contains(s.Names, idOrName) {
			return s, nil
		}
	}
	return carrel.Snapshot{}, &carrel.Error{Op: "get snapshot", Kind: carrel.NotFound, Err: fmt.Errorf("no snapshot %q", idOrName)}
}

func (f *fake) ListSnapshots(_ context.Context, o carrel.SnapshotListOptions) (carrel.SnapshotPage, error) {
	_ = f.did("list %+v", o)
	var from int
	_, _ = fmt.Sscan(o.Cursor, &from)
	if f.pageSize == 0 || from+f.pageSize >= len(f.snaps) {
		return carrel.SnapshotPage{Snapshots: f.snaps[from:]}, nil
	}
	return carrel.SnapshotPage{Snapshots: f.snaps[from : from+f.pageSize], Next: fmt.Sprint(from + f.pageSize)}, nil
}

func (f *fake) UpdateSnapshot(_ context.Context, id carrel.SnapshotID, u carrel.SnapshotUpdate) (carrel.Snapshot, error) {
	text := "update " + string(id)
	if u.Label != nil {
		text += fmt.Sprintf(" label %q", *u.Label)
	}
	if u.Names != nil {
		text += fmt.Sprintf(" names %q", *u.Names)
	}
	if u.Kept != nil {
		text += fmt.Sprintf(" kept %v", *u.Kept)
	}
	return carrel.Snapshot{ID: id}, f.did("%s", text)
}

func (f *fake) DeleteSnapshot(_ context.Context, idOrName string) error {
	if _, err := f.GetSnapshot(context.Background(), idOrName); err != nil {
		return err
	}
	return f.did("delete %s", idOrName)
}

func (f *fake) Timeline(_ context.Context, id carrel.ID) (carrel.Timeline, error) {
	tl := carrel.Timeline{Sandbox: f.box.ID, Head: f.box.Snapshot, Snapshots: f.snaps, Forks: f.forks, Size: int64(len(f.snaps)) << 20}
	return tl, f.known(id)
}

func (f *fake) SnapshotFile(_ context.Context, id carrel.SnapshotID, name string) (carrel.SnapshotFile, error) {
	file, ok := f.files[id]
	if !ok {
		return file, &carrel.Error{Op: "read file of snapshot", Kind: carrel.NotFound, Field: "path"}
	}
	return file, f.did("read %s of %s", name, id)
}

func (f *fake) Diff(_ context.Context, from, to carrel.SnapshotID) ([]carrel.FileChange, error) {
	return f.changes, f.did("diff %s %s", from, to)
}

func (f *fake) SetMetadata(_ context.Context, _ carrel.ID, m carrel.MetadataChange) (carrel.Sandbox, error) {
	return f.box, f.did("set %v remove %q", m.Set, m.Remove)
}

func (f *fake) SetLifecycle(_ context.Context, _ carrel.ID, l carrel.Lifecycle) (carrel.Sandbox, error) {
	f.box.Lifecycle = l
	return f.box, f.did("lifecycle %+v", l)
}

func (f *fake) SnapshotUsage(context.Context) (client.SnapshotUsage, error) {
	return client.SnapshotUsage{Snapshots: 3, Size: 3 << 20, Hot: 1 << 20, Packs: 2 << 20, Quota: 1 << 30}, f.err
}

func (f *fake) CollectSnapshots(context.Context) (client.SnapshotsCollected, error) {
	return client.SnapshotsCollected{Packs: 1, Drafts: 2, Freed: 4096}, f.err
}

// outcome is the result of a command.
type outcome struct {
	out, err string
	code     int
	calls    []string
	both     string // out and err as a terminal shows them
}

// String formats the outcome for a failed test.
func (o outcome) String() string {
	return fmt.Sprintf("status %d, stdout %q, stderr %q, calls %q", o.code, o.out, o.err, o.calls)
}

// run runs a command line against the fake.
func (f *fake) run(t *testing.T, args ...string) outcome {
	t.Helper()
	t.Setenv("LC_ALL", "C.UTF-8")
	t.Setenv("TERM", "xterm")
	if f.box.ID == "" {
		f.box.ID, f.box.State = boxID, carrel.Running
	}
	f.calls = nil
	var out, errw, both bytes.Buffer
	a := &app{out: io.MultiWriter(&out, &both), err: io.MultiWriter(&errw, &both), now: func() time.Time { return noon },
		open: func(context.Context) (carrel.Service, error) { return f, nil }}
	code := a.main(t.Context(), args)
	return outcome{out.String(), errw.String(), code, f.calls, both.String()}
}
