package local

import (
	"context"
	"os"
	"path/filepath"
	"sync"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/access"
	"github.com/carrel-dev/carrel/internal/assembly"
	"github.com/carrel-dev/carrel/internal/config"
	"github.com/carrel-dev/carrel/internal/image"
	"github.com/carrel-dev/carrel/internal/image/store"
	"github.com/carrel-dev/carrel/internal/reexec"
)

// init is the only one in this module. A program that imports the package asks for it, and a
// sandbox's kernel must start before main does.
func init() {
	if reexec.Run(assembly.Parts()) {
		os.Exit(0)
	}
	carrel.RegisterOpener(open)
}

// opened is a service and the function that closes it.
type opened struct {
	*access.Service
	close func() error
}

// open implements [carrel.Open].
func open(ctx context.Context, cfg carrel.Config) (_ carrel.Service, err error) {
	if err := carrel.CheckPrograms(cfg.Programs); err != nil {
		return nil, err
	}
	if cfg.Tier == "" {
		cfg.Tier = carrel.Sim
	}
	if cfg.DataDir != "" {
		if cfg.DataDir, err = filepath.Abs(cfg.DataDir); err != nil {
			return nil, &carrel.Error{Op: "open", Kind: carrel.Internal, Err: err}
		}
	}
	a, err := assembly.Open(ctx, assembly.Options{
		Config: config.Config{DataDir: cfg.DataDir, CacheDir: config.Default().CacheDir, Limits: cfg.Limits,
			DefaultTier: cfg.Tier, DefaultTemplate: defaultTemplate(cfg.Tier)},
		Programs: cfg.Programs, Nobody: carrel.Local(),
		HostServices: access.HostAdmins, // there is one caller, and this is its machine
	})
	if err != nil {
		return nil, err
	}
	return &opened{a.Access, sync.OnceValue(a.Close)}, nil
}

// defaultTemplate returns the template for sandboxes of a tier that name none. A simulated sandbox
// does not use an image, so it must not wait for one.
func defaultTemplate(t carrel.Tier) string {
	if t == carrel.Sim {
		return store.Sim
	}
	return image.Base
}

// Create implements [carrel.Service]. A sandbox of a tier other than the service's default may need
// another template.
func (o *opened) Create(ctx context.Context, opts carrel.CreateOptions) (carrel.Sandbox, error) {
	if opts.Template == "" && opts.Tier != "" {
		opts.Template = defaultTemplate(opts.Tier)
	}
	return o.Service.Create(ctx, opts)
}

// Close kills every sandbox and closes the parts, last first.
func (o *opened) Close() error { return o.close() }
