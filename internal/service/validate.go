package service

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/image"
	"github.com/carrel-dev/carrel/internal/state"
)

// Bounds on what one sandbox may carry.
const (
	maxMetadata = 64 << 10  // bytes of keys and values together
	maxEnv      = 256 << 10 // bytes of keys and values together
	maxTemplate = 256       // bytes of a template's name or ID
)

func invalid(op, field, format string, args ...any) error {
	return &carrel.Error{Op: op, Kind: carrel.Invalid, Field: field, Err: fmt.Errorf(format, args...)}
}

// plan checks a request and finds its template and driver.
func (s *Service) plan(ctx context.Context, opts carrel.CreateOptions) (*plan, error) {
	if err := s.checkOptions(opts); err != nil {
		return nil, err
	}
	name := opts.Template
	if name == "" {
		name = s.opts.DefaultTemplate
	}
	if _, err := carrel.ParseSnapshotID(name); err == nil {
		return s.planSnapshot(ctx, name, opts)
	}
	img, err := s.template(ctx, name, opts.Tier)
	if errors.Is(err, carrel.NotFound) {
		if _, ok := s.snaps.named(name); ok { // a template's name means the template
			return s.planSnapshot(ctx, name, opts)
		}
	}
	if err != nil {
		return nil, &carrel.Error{Op: opCreate, Kind: carrel.KindOf(err), Field: "templateID", Err: err}
	}
	drv, err := s.driver(ctx, opts.Tier, img)
	if err != nil {
		return nil, err
	}
	ttl := opts.Timeout
	if ttl == 0 {
		ttl = min(s.opts.DefaultTimeout, s.opts.MaxTimeout)
	}
	if err := canPause(drv, opts.Lifecycle); err != nil {
		return nil, err
	}
	p := &plan{driver: drv, root: driver.Root{Image: img.Path}, ttl: ttl}
	p.rec = s.newRecord(opts, img, drv.Info().Tier, ttl)
	p.rec.Root, p.root.Image = s.keepRoot(img)
	s.planGolden(p, img)
	return p, nil
}

// template finds a template. Base is packed from this machine's tools when it is
// first wanted; a tier without real processes could run none of them, and gets its
// own template under that name at once.
func (s *Service) template(ctx context.Context, name string, tier carrel.Tier) (image.Image, error) {
	if tier == "" {
		tier = s.opts.DefaultTier
	}
	if name == image.Base {
		if d, err := s.opts.Drivers.Get(tier); err == nil && !d.Info().Capabilities.RealProcesses {
			if img, err := s.opts.Images.Get(ctx, image.Sim); err == nil {
				img.Name = image.Base
				return img, nil
			}
		}
	}
	return s.opts.Images.Get(ctx, name)
}

// newRecord is the record of a sandbox that is about to be made.
func (s *Service) newRecord(opts carrel.CreateOptions, img image.Image, tier carrel.Tier, ttl time.Duration) state.Record {
	now := time.Now().UTC().Round(0)
	sb := copySandbox(carrel.Sandbox{
		ID: carrel.NewID(), Template: img.ID, Alias: img.Name, Tier: tier, State: carrel.Starting,
		Limits: fill(opts.Limits, s.opts.Limits), Metadata: opts.Metadata, Network: opts.Network,
		Started: now, Ends: now.Add(ttl), EnvdVersion: carrel.EnvdVersion, Domain: s.opts.Domain,
		Lifecycle: opts.Lifecycle, Tokens: opts.Tokens,
	})
	s.giveTokens(&sb, opts)
	env := maps.Clone(img.Env)
	if env == nil {
		env = map[string]string{}
	}
	maps.Copy(env, opts.Env) // the caller's win over the template's
	user := img.User
	if user == "" {
		user = "user"
	}
	return state.Record{Sandbox: sb, Env: env, User: user, WorkDir: img.WorkDir, Start: img.Start, Timeout: ttl}
}

// giveTokens gives a new sandbox its secrets.
func (s *Service) giveTokens(sb *carrel.Sandbox, opts carrel.CreateOptions) {
	if !opts.Insecure {
		sb.AccessToken = newToken()
	}
	if opts.Network.PrivateTraffic {
		sb.TrafficToken = newToken()
	}
}

// driver finds the driver of a tier that both the request and the template allow,
// and makes sure that it works here.
func (s *Service) driver(ctx context.Context, tier carrel.Tier, img image.Image) (driver.Driver, error) {
	switch {
	case tier == "":
		if tier = img.Tier; tier == "" {
			tier = s.opts.DefaultTier
		}
	case img.Tier != "" && img.Tier != tier:
		return nil, invalid(opCreate, "tier", "template %s needs tier %q, not %q", img.Name, img.Tier, tier)
	}
	drv, err := s.opts.Drivers.Get(tier)
	if err != nil {
		return nil, &carrel.Error{Op: opCreate, Kind: carrel.KindOf(err), Field: "tier", Err: err}
	}
	if err := s.probe(ctx, drv); err != nil {
		return nil, &carrel.Error{Op: opCreate, Kind: carrel.KindOf(err), Err: err}
	}
	return drv, nil
}

// checkOptions checks each field by itself.
func (s *Service) checkOptions(o carrel.CreateOptions) error {
	if len(o.Template) > maxTemplate || strings.ContainsFunc(o.Template, isControl) || !utf8.ValidString(o.Template) {
		return invalid(opCreate, "templateID", "not a template's name or ID")
	}
	return first(
		s.checkTimeout(opCreate, o.Timeout),
		checkMetadata(o.Metadata),
		checkEnv(o.Env),
		s.checkLimits(o.Limits),
		checkNetwork(opCreate, o.Network),
		checkTokens(opCreate, o.Tokens),
		s.checkLifecycle(opCreate, o.Lifecycle),
	)
}

// first returns the first error there is.
func first(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *Service) checkTimeout(op string, d time.Duration) error {
	switch {
	case d < 0:
		return invalid(op, "timeout", "%v is negative", d)
	case d > s.opts.MaxTimeout:
		most := s.opts.MaxTimeout.String()
		if s.opts.MaxTimeout%time.Hour == 0 {
			most = fmt.Sprintf("%d hours", s.opts.MaxTimeout/time.Hour)
		}
		return &carrel.Error{Op: op, Kind: carrel.Invalid, Field: "timeout", Err: fmt.Errorf("it cannot be greater than %s", most),
			Hint: "raise the maximum with carrel serve --max-timeout"}
	}
	return nil
}

func checkMetadata(m map[string]string) error {
	size := 0
	for k, v := range m {
		size += len(k) + len(v)
		switch {
		case k == "":
			return invalid(opCreate, "metadata", "a key is empty")
		case !utf8.ValidString(k) || !utf8.ValidString(v):
			return invalid(opCreate, "metadata", "%q is not UTF-8 text", k)
		}
	}
	if size > maxMetadata {
		return invalid(opCreate, "metadata", "%d bytes of keys and values, at most %d may be", size, maxMetadata)
	}
	return nil
}

func checkEnv(env map[string]string) error {
	size := 0
	for k, v := range env {
		size += len(k) + len(v)
		switch {
		case k == "":
			return invalid(opCreate, "envVars", "a name is empty")
		case strings.ContainsAny(k, "=\x00"):
			return invalid(opCreate, "envVars", "the name %q holds '=' or a NUL byte", k)
		case strings.Contains(v, "\x00"):
			return invalid(opCreate, "envVars", "the value of %q holds a NUL byte", k)
		case !utf8.ValidString(k) || !utf8.ValidString(v):
			return invalid(opCreate, "envVars", "%q is not UTF-8 text", k)
		}
	}
	if size > maxEnv {
		return invalid(opCreate, "envVars", "%d bytes of names and values, at most %d may be", size, maxEnv)
	}
	return nil
}

// checkLimits checks what a request asks for; zero asks for nothing.
func (s *Service) checkLimits(l carrel.Limits) error {
	most := s.opts.MaxLimits
	for _, c := range []struct {
		field     string
		got, most float64
	}{
		{"cpuCount", l.CPUs, most.CPUs},
		{"memoryMB", float64(l.MemoryMB), float64(most.MemoryMB)},
		{"diskSizeMB", float64(l.DiskMB), float64(most.DiskMB)},
		{"pids", float64(l.Pids), float64(most.Pids)},
	} {
		switch {
		case math.IsNaN(c.got) || math.IsInf(c.got, 0):
			return invalid(opCreate, c.field, "%v is not a number", c.got)
		case c.got < 0:
			return invalid(opCreate, c.field, "%v is negative", c.got)
		case c.most > 0 && c.got > c.most:
			return invalid(opCreate, c.field, "%v is more than the %v a sandbox may have here", c.got, c.most)
		}
	}
	return nil
}

func isControl(c rune) bool { return c < ' ' || c == 0x7f }

// clip makes a caller's text fit for a message.
func clip(s string) string {
	const most = 80
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "…"
	}
	return fmt.Sprintf("%q", s)
}
