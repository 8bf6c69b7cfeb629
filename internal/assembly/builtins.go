package assembly

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/image"
	"github.com/carrel-dev/carrel/internal/image/debian"
)

// makerLabel marks a sandbox in which a built-in template is made. Its value is the template's
// name.
const makerLabel = "carrel.makes-template"

// maxMaking bounds the work inside such a sandbox.
const maxMaking = 30 * time.Minute

// undoMaking bounds the end of such a sandbox.
const undoMaking = 30 * time.Second

// workshop starts the sandboxes in which built-in templates are made. The service exists only after
// the store of templates, so it is set later.
type workshop struct {
	a     *Assembly
	ready atomic.Bool // the service is there
}

// builtIns returns the templates that are made from Debian's packages. There are none where no
// packages are pinned for the machine.
func (a *Assembly) builtIns() []image.BuiltIn {
	set, err := a.packages()
	if err != nil {
		a.log.Info("only host is built in", "err", err)
		return nil
	}
	a.workshop = &workshop{a: a}
	return debian.NewMaker(debian.Options{Set: set, Fetcher: a.fetcher(), Sandbox: a.workshop.use,
		Log: a.log}).BuiltIns()
}

// packages returns the pinned packages of Debian. The error says that there are none.
func (a *Assembly) packages() (*debian.Set, error) {
	if set := a.opts.Sources.Packages; set != nil {
		return set, nil
	}
	return debian.Pinned()
}

// fetcher returns what brings packages into the cache directory.
func (a *Assembly) fetcher() *debian.Fetcher {
	mirror, err := a.debianMirror()
	if err != nil {
		a.log.Debug("no Debian mirror", "err", err) // a fetch says so
	}
	return debian.NewFetcher(mirror, debian.CacheDir(a.cacheDir()))
}

// cacheDir is the directory for data that can be made again.
func (a *Assembly) cacheDir() string {
	if a.cfg.CacheDir != "" {
		return a.cfg.CacheDir
	}
	return filepath.Join(a.cfg.DataDir, "templates", ".cache")
}

// debianMirror returns the configured mirror, or the one that this machine's apt uses.
func (a *Assembly) debianMirror() (debian.Mirror, error) {
	if a.cfg.DebianMirror != "" {
		return debian.ParseMirror(a.cfg.DebianMirror)
	}
	return debian.HostMirror("/")
}

// asMaker is the context of the service's own work. Its sandboxes belong to a project whose name no
// key can have, so that no project sees them.
func asMaker(ctx context.Context) context.Context {
	return carrel.WithCaller(ctx, carrel.Caller{Key: "built-in templates", Project: ":built-in",
		Role: carrel.RoleAdmin})
}

// use implements debian.Sandbox.
func (w *workshop) use(ctx context.Context, first image.Image,
	use func(in debian.Inside, skip ...string) error) error {
	if !w.ready.Load() {
		return &carrel.Error{Op: "make template", Kind: carrel.Unavailable,
			Err: errors.New("the service is not open yet")}
	}
	tier, err := w.tier(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(asMaker(ctx), maxMaking)
	defer cancel()
	svc := w.a.Service
	id, release := w.a.images.Lend(first)
	defer release()
	sb, err := svc.Create(ctx, carrel.CreateOptions{Template: id, Tier: tier, Timeout: maxMaking,
		Metadata: map[string]string{makerLabel: first.Name}})
	if err != nil {
		return err
	}
	defer w.end(ctx, sb.ID)
	computer, err := svc.Computer(ctx, sb.ID)
	if err != nil {
		return err
	}
	return use(computer, strings.TrimPrefix(driver.GuestMount, "/"))
}

// end ends a sandbox even if its maker was called off.
func (w *workshop) end(ctx context.Context, id carrel.ID) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoMaking)
	defer cancel()
	if err := w.a.Service.Kill(ctx, id); err != nil && carrel.KindOf(err) != carrel.NotFound {
		w.a.log.Warn("end the sandbox of a built-in template", "sandbox", id, "err", err)
	}
}

// tier is the tier in which packages are configured: the default one if it has real processes, else
// the strongest that has and works here.
func (w *workshop) tier(ctx context.Context) (carrel.Tier, error) {
	for _, t := range append([]carrel.Tier{w.a.Tier}, strongest...) {
		d, err := w.a.drivers.Get(t)
		if err == nil && d.Info().Capabilities.RealProcesses && d.Probe(ctx) == nil {
			return t, nil
		}
	}
	return "", &carrel.Error{Op: "make template", Kind: carrel.Unsupported,
		Err: errors.New(
			"packages of Debian are configured in a sandbox with real processes, and none works on this machine"),
		Hint: "'carrel doctor' says what is missing"}
}

// clearWorkshop ends the sandboxes in which an earlier daemon made templates when it died. Then
// templates can be made.
func (a *Assembly) clearWorkshop(ctx context.Context) error {
	if a.workshop == nil {
		return nil
	}
	ctx = asMaker(ctx)
	for name := range slices.Values(a.images.BuiltInNames()) {
		page, err := a.Service.List(ctx,
			carrel.ListOptions{Metadata: map[string]string{makerLabel: name}})
		if err != nil {
			return err
		}
		for _, sb := range page.Sandboxes {
			if sb.Project == carrel.CallerOf(ctx).Project { // the label alone proves nothing
				a.workshop.end(ctx, sb.ID)
			}
		}
	}
	a.workshop.ready.Store(true)
	return nil
}
