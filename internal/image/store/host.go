package store

import (
	"context"
	"os"
	"path/filepath"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/image"
	"github.com/carrel-dev/carrel/internal/image/erofs"
	"github.com/carrel-dev/carrel/internal/image/hostbase"
)

const hostSource = "this machine's toolchain"

// opBuiltIn is the operation in errors about built-in templates.
const opBuiltIn = "make built-in template"

// newHost returns the built-in template made from this machine. Older programs called it base, and
// their images are adopted.
func newHost(opts Options) *cached {
	b := newCached(opts, "host-", carrel.Template{ID: HostID, Name: image.Host, Source: hostSource,
		BuiltIn: true})
	b.former = "base-"
	b.print = func() (string, error) { return hostbase.Fingerprint(opts.Host) }
	b.make = func(ctx context.Context, dir string, created time.Time, meter *image.Meter) (*os.File,
		carrel.Template, error) {
		f, err := os.OpenFile(filepath.Join(dir, "part"), os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o644)
		if err != nil {
			return nil, carrel.Template{}, err
		}
		w := erofs.NewWriter(f)
		made, err := hostbase.Build(ctx, w, opts.Host, meter)
		if err == nil {
			meter.Stage(image.StageWrite, 0)
			_, err = w.Finish(made.Root, created)
		}
		if err != nil {
			_ = f.Close()
			return nil, carrel.Template{}, err
		}
		t := b.template
		t.Env, t.User = made.Env, "user"
		return f, t, nil
	}
	return b
}

// newCached returns a built-in template that has no way to be made yet.
func newCached(opts Options, prefix string, t carrel.Template) *cached {
	b := &cached{dir: opts.CacheDir, prefix: prefix, template: t, log: opts.Logger, now: opts.Now,
		turn: make(chan struct{}, 1)}
	b.turn <- struct{}{}
	return b
}
