package service_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/image"
	"github.com/carrel-dev/carrel/internal/service"
	"github.com/carrel-dev/carrel/internal/snapshot"
)

// sharedSnapshots is one machine's view of snapshots that another machine published.
type sharedSnapshots struct {
	*fakeSnapshots
	from   *fakeSnapshots // the other machine's; nil on the first one
	lose   error          // of every image
	holds  map[carrel.SnapshotID]bool
	images []string // fetched
}

var (
	_ snapshot.Mover      = (*sharedSnapshots)(nil)
	_ snapshot.BuildStore = (*sharedSnapshots)(nil)
)

func (s *sharedSnapshots) Shared() bool { return true }

func (s *sharedSnapshots) Fetch(carrel.SnapshotID) {}

func (s *sharedSnapshots) Pack(ctx context.Context, id carrel.SnapshotID) (snapshot.Manifest, error) {
	return s.Get(ctx, id)
}

func (s *sharedSnapshots) Hold(ctx context.Context, id carrel.SnapshotID) (snapshot.Manifest, error) {
	m, err := s.from.Get(ctx, id)
	if err == nil {
		s.holds[id] = true
	}
	return m, err
}

func (s *sharedSnapshots) Disown(_ context.Context, id carrel.SnapshotID) error {
	delete(s.holds, id)
	return nil
}

func (s *sharedSnapshots) PutImage(context.Context, string, string, string) error { return s.lose }

func (s *sharedSnapshots) GetImage(_ context.Context, sum, path string) error {
	if s.lose != nil {
		return s.lose
	}
	s.images = append(s.images, sum)
	return errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, nil, 0o600))
}

func (s *sharedSnapshots) PutBuild(context.Context, string, func() (io.ReadCloser, int64, error)) error {
	return nil
}

func (s *sharedSnapshots) GetBuild(context.Context, string) (io.ReadCloser, error) {
	return nil, &carrel.Error{Kind: carrel.NotFound}
}

// pickyDriver has builds and restores only those that it has.
type pickyDriver struct{ *oldDriver }

func (d pickyDriver) CanRestore(info driver.SnapshotInfo, _ driver.RestoreOptions) error {
	all, _ := d.Builds(context.Background())
	if !slices.ContainsFunc(all, func(b driver.Build) bool { return b.Name == info.Build }) {
		return &carrel.Error{Kind: carrel.Unsupported, Err: fmt.Errorf("the kernel of build %q is not kept here", info.Build)}
	}
	return nil
}

// unlisted is a store of templates that lists none.
type unlisted struct{ image.Store }

func (unlisted) List(context.Context) ([]image.Image, error) { return nil, nil }

// TestAdoptChecksFirst adopts on a machine without the build, and on one that can't get the image.
// Nothing of it may be there afterwards, and no driver may have made anything.
func TestAdoptChecksFirst(t *testing.T) {
	ctx := t.Context()
	kept := &oldDriver{kept: map[string]bool{}}
	var published *sharedSnapshots
	a := newDen(t, func(o *service.Options) {
		kept.momentDriver = o.Drivers.All()[0].(*momentDriver)
		published = &sharedSnapshots{fakeSnapshots: o.Snapshots.(*fakeSnapshots)}
		o.Drivers, o.Snapshots = driver.NewRegistry(kept), published
	})
	sb := a.create(t, carrel.CreateOptions{})
	if _, err := a.Pause(ctx, sb.ID, carrel.PauseOptions{}); err != nil {
		t.Fatal(err)
	}
	p, err := service.MovementOf(a.Service).Publish(ctx, string(sb.ID))
	if err != nil {
		t.Fatal(err)
	}
	if p.Needs.Build != "old" || !p.Needs.Memory {
		t.Fatalf("it needs %+v", p.Needs)
	}
	for _, c := range []struct {
		name  string
		kept  map[string]bool
		lose  error
		kind  carrel.Kind
		field string
	}{
		{"another build", map[string]bool{}, nil, carrel.Unsupported, "needs.build"},
		{"no image", map[string]bool{"old": true}, &carrel.Error{Kind: carrel.Unavailable, Err: errors.New("the store is away")}, carrel.Unavailable, ""},
		{"all there", map[string]bool{"old": true}, nil, "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			drv := pickyDriver{&oldDriver{kept: c.kept}}
			view := &sharedSnapshots{from: published.fakeSnapshots, lose: c.lose, holds: map[carrel.SnapshotID]bool{}}
			b := newDen(t, func(o *service.Options) {
				drv.momentDriver = o.Drivers.All()[0].(*momentDriver)
				view.fakeSnapshots = o.Snapshots.(*fakeSnapshots)
				o.Drivers, o.Snapshots, o.Images = driver.NewRegistry(drv), view, unlisted{o.Images}
			})
			got, err := service.MovementOf(b.Service).Adopt(ctx, p)
			if c.name == "all there" {
				if err != nil || got.State != carrel.Paused || got.ID != sb.ID || !view.holds[p.Snapshot] {
					t.Fatalf("%+v, %v, holds %v", got, err, view.holds)
				}
				return
			}
			var e *carrel.Error
			if !errors.As(err, &e) || e.Kind != c.kind || c.field != "" && e.Field != c.field {
				t.Errorf("%v (%s)", err, carrel.KindOf(err))
			}
			if _, err := b.Get(ctx, sb.ID); !errors.Is(err, carrel.NotFound) {
				t.Errorf("it is there: %v", err)
			}
			if len(view.holds) > 0 || len(drv.specs) > 0 {
				t.Errorf("left: holds %v, instances %v", view.holds, drv.specs)
			}
		})
	}
}

// TestMovementNeedsASharedStore asks a service whose snapshots are its own.
func TestMovementNeedsASharedStore(t *testing.T) {
	d := newDen(t, nil)
	m := service.MovementOf(d.Service)
	sb := d.create(t, carrel.CreateOptions{})
	for what, err := range map[string]error{
		"publish": failure(m.Publish(t.Context(), string(sb.ID))), "adopt": failure(m.Adopt(t.Context(), carrel.Passport{})),
		"release":          m.Release(t.Context(), sb.ID),
		"publish template": failure(m.PublishTemplate(t.Context(), "base")),
		"adopt template":   failure(m.AdoptTemplate(t.Context(), carrel.TemplatePassport{})),
	} {
		if !errors.Is(err, carrel.Unsupported) || carrel.HintOf(err) == "" {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func failure[T any](_ T, err error) error { return err }
