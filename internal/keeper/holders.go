package keeper

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"slices"

	"github.com/carrel-dev/carrel"
)

// Holder keeps open files under names for a daemon that may die.
type Holder interface {
	// Put keeps a copy of f under name, in place of an earlier one.
	Put(ctx context.Context, name string, f *os.File) error
	// Get returns a copy of the file under name. Error: NotFound.
	Get(ctx context.Context, name string) (*os.File, error)
	// Delete closes the file under name; idempotent.
	Delete(ctx context.Context, name string) error
	// List returns the names of all kept files.
	List(ctx context.Context) ([]string, error)
}

var (
	_ Holder = (*Client)(nil)
	_ Holder = (*Supervisor)(nil)
	_ Holder = (*Holders)(nil)
)

// Holders keep each file several times, so that it is lost only when all of them die together with
// the daemon.
type Holders struct {
	all []Holder
	log *slog.Logger
}

// Join makes one holder of several, and gives each of them what another has. What can't be copied
// is logged.
func Join(ctx context.Context, log *slog.Logger, all ...Holder) *Holders {
	h := &Holders{all: all, log: log}
	var names []string
	for _, one := range all {
		has, err := one.List(ctx)
		if err != nil {
			log.Warn("list the held links", "err", err)
		}
		names = append(names, has...)
	}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		f, err := h.Get(ctx, name)
		if err != nil {
			log.Warn("copy a held link", "link", name, "err", err)
			continue
		}
		_ = f.Close()
	}
	return h
}

// Put implements Holder. One copy is enough for success.
func (h *Holders) Put(ctx context.Context, name string, f *os.File) error {
	var errs []error
	for _, one := range h.all {
		if err := one.Put(ctx, name, f); err != nil {
			errs = append(errs, err)
		}
	}
	if len(errs) < len(h.all) {
		for _, err := range errs {
			h.log.Warn("a link is held by fewer processes than it should be", "link", name, "err", err)
		}
		return nil
	}
	return errors.Join(errs...)
}

// Get implements Holder. A holder that lacks the file gets it from the one that has it. The file
// counts as lost only if all holders say so.
func (h *Holders) Get(ctx context.Context, name string) (*os.File, error) {
	var lacking []Holder
	var got *os.File
	var unknown, lost error
	for _, one := range h.all {
		f, err := one.Get(ctx, name)
		switch {
		case err == nil && got == nil:
			got = f
		case err == nil:
			_ = f.Close()
		case carrel.KindOf(err) == carrel.NotFound:
			lost = err
			lacking = append(lacking, one)
		default:
			unknown = err
		}
	}
	switch {
	case got == nil && unknown != nil:
		return nil, unknown
	case got == nil:
		return nil, lost
	}
	for _, one := range lacking {
		if err := one.Put(ctx, name, got); err != nil {
			h.log.Warn("a link is held by fewer processes than it should be", "link", name, "err", err)
		}
	}
	return got, nil
}

// Delete implements Holder.
func (h *Holders) Delete(ctx context.Context, name string) error {
	var errs []error
	for _, one := range h.all {
		errs = append(errs, one.Delete(ctx, name))
	}
	return errors.Join(errs...)
}

// List implements Holder.
func (h *Holders) List(ctx context.Context) ([]string, error) {
	var names []string
	var errs []error
	for _, one := range h.all {
		has, err := one.List(ctx)
		names, errs = append(names, has...), append(errs, err)
	}
	slices.Sort(names)
	return slices.Compact(names), errors.Join(errs...)
}
