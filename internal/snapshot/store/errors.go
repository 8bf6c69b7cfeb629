package store

import (
	"context"
	"errors"
	"fmt"
	"syscall"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/snapshot"
)

// classify turns err into a *carrel.Error that names the snapshot.
func classify(op string, id carrel.SnapshotID, err error) error {
	if err == nil {
		return nil
	}
	what := err
	if id != "" {
		what = fmt.Errorf("%s: %w", id, err)
	}
	e := &carrel.Error{Op: op, Kind: carrel.Internal, Err: what}
	var ce *carrel.Error
	switch {
	case errors.As(err, &ce):
		e.Kind = carrel.KindOf(err)
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		e.Kind, e.Hint = carrel.Exhausted, "free some disk space under the data directory, or delete snapshots"
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		e.Kind = carrel.TimedOut
	}
	return e
}

// invalid is the error for damage; its text says which.
func invalid(format string, args ...any) error {
	return &carrel.Error{Kind: carrel.Invalid, Err: fmt.Errorf(format, args...),
		Hint: "the snapshot is damaged or foreign: delete it, and go on from another one"}
}

func errNotFound(op string, id carrel.SnapshotID) error {
	return &carrel.Error{Op: op, Kind: carrel.NotFound, Err: fmt.Errorf("no snapshot %s", id)}
}

// errFuture is the error for a form that only a newer carrel knows.
func errFuture(version int) error {
	return fmt.Errorf("the manifest has version %d, from a newer carrel; this one knows version %d", version, snapshot.ManifestVersion)
}

func errClosed(op string) error {
	return &carrel.Error{Op: op, Kind: carrel.Unavailable, Err: errors.New("the snapshot store is closed")}
}

// checkID refuses texts that are not IDs, because IDs become names of files.
func checkID(op string, id carrel.SnapshotID) error {
	if _, err := carrel.ParseSnapshotID(string(id)); err != nil {
		return &carrel.Error{Op: op, Kind: carrel.Invalid, Field: "snapshotID", Err: err}
	}
	return nil
}
