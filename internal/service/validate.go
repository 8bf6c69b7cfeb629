package service

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/image"
	"github.com/carrel-dev/carrel/internal/state"
)

// Bounds on the data of one sandbox.
const (
	maxMetadata = 64 << 10  // bytes of keys and values together
	maxEnv      = 256 << 10 // bytes of keys and values together
)

func invalid(op, field, format string, args ...any) error {
	return &carrel.Error{Op: op, Kind: carrel.Invalid, Field: field, Err: fmt.Errorf(format, args...)}
}

// plan checks a request and finds its template and driver.
func (cr *creator) plan(ctx context.Context, opts carrel.CreateOptions) (*plan, error) {
	egress, err := cr.rules.checkOptions(opts)
	if err != nil {
		return nil, err
	}
	ref, err := carrel.ParseTemplateRef(cmp.Or(opts.Template, cr.opts.DefaultTemplate))
	if err != nil {
		return nil, err
	}
	m, err := cr.resolver.resolve(ctx, opCreate, ref)
	if err != nil {
		return nil, err
	}
	if m.moment != nil {
		return cr.planSnapshot(ctx, m, opts, egress)
	}
	img, err := cr.templates.image(ctx, m.template, opts.Tier, cr.opts.Images.Boot)
	if err != nil {
		return nil, &carrel.Error{Op: opCreate, Kind: carrel.KindOf(err), Field: "template", Err: err, Hint: carrel.HintOf(err)}
	}
	drv, err := cr.driver(ctx, opts.Tier, img)
	if err != nil {
		return nil, err
	}
	opts.Limits = fill(opts.Limits, img.Limits)
	ttl := cr.rules.lifetime(opts)
	if err := canPause(drv, opts.Lifecycle); err != nil {
		return nil, err
	}
	p := &plan{driver: drv, root: driver.Root{Image: img.Path}, egress: egress, ttl: ttl, owner: img.Project}
	p.rec = cr.newRecord(ctx, opts, img, drv.Info().Tier, ttl)
	if img.Lent {
		p.lent = true
		return p, nil
	}
	if p.rec.Root, p.root.Image, err = cr.roots.keepRoot(img); err != nil {
		return nil, err
	}
	if img.View != "" {
		p.half = true
		p.root = driver.Root{Image: img.View, Whole: p.root.Image}
		return p, nil
	}
	cr.planGolden(p, img)
	return p, nil
}

// newRecord builds the record of a sandbox that is about to be made.
func (cr *creator) newRecord(ctx context.Context, opts carrel.CreateOptions, img image.Image, tier carrel.Tier, ttl time.Duration) state.Record {
	now := time.Now().UTC().Round(0)
	sb := copySandbox(carrel.Sandbox{
		ID: carrel.NewID(), Template: img.ID, TemplateOf: img.Of, Alias: img.Name, Tier: tier,
		State:  carrel.Starting,
		Limits: fill(opts.Limits, cr.rules.defaultLimits(ctx)), Metadata: opts.Metadata, Network: opts.Network,
		Started: now, Ends: now.Add(ttl), EnvdVersion: carrel.EnvdVersion, Domain: cr.opts.Domain,
		Lifecycle: opts.Lifecycle, Tokens: opts.Tokens,
	})
	cr.giveTokens(&sb, opts)
	env := maps.Clone(img.Env)
	if env == nil {
		env = map[string]string{}
	}
	maps.Copy(env, opts.Env) // the caller's variables win over the template's
	user := img.User
	if user == "" {
		user = "user"
	}
	return state.Record{Sandbox: sb, Env: env, User: user, WorkDir: img.WorkDir, Start: img.Start, Timeout: ttl}
}

// giveTokens gives a new sandbox its secrets.
func (cr *creator) giveTokens(sb *carrel.Sandbox, opts carrel.CreateOptions) {
	if !opts.Insecure {
		sb.AccessToken = newToken()
	}
	if opts.Network.PrivateTraffic {
		sb.TrafficToken = newToken()
	}
}

// driver finds the driver of a tier that the request and the template allow, and makes sure that it
// works here.
func (cr *creator) driver(ctx context.Context, tier carrel.Tier, img image.Image) (driver.Driver, error) {
	switch {
	case tier == "":
		if tier = img.Tier; tier == "" {
			tier = cr.opts.DefaultTier
		}
	case img.Tier != "" && img.Tier != tier:
		return nil, &carrel.Error{Op: opCreate, Kind: carrel.Invalid, Field: "tier",
			Err:  fmt.Errorf("template %s needs tier %q, not %q", img.Name, img.Tier, tier),
			Hint: fmt.Sprintf("ask for the tier %s", img.Tier)}
	}
	drv, err := cr.opts.Drivers.Get(tier)
	if err != nil {
		return nil, &carrel.Error{Op: opCreate, Kind: carrel.KindOf(err), Field: "tier", Err: err}
	}
	if err := cr.launcher.probe(ctx, drv); err != nil {
		return nil, &carrel.Error{Op: opCreate, Kind: carrel.KindOf(err), Err: err}
	}
	return drv, nil
}

// first returns the first error that is not nil.
func first(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func checkMetadata(op string, m map[string]string) error {
	size := 0
	for k, v := range m {
		size += len(k) + len(v)
		switch {
		case k == "":
			return invalid(op, "metadata", "a key is empty")
		case !utf8.ValidString(k) || !utf8.ValidString(v):
			return invalid(op, "metadata", "%q is not UTF-8 text", k)
		}
	}
	if size > maxMetadata {
		return invalid(op, "metadata", "%d bytes of keys and values, at most %d may be", size, maxMetadata)
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

func isControl(c rune) bool { return c < ' ' || c == 0x7f }

// clip shortens a caller's text for a message.
func clip(s string) string {
	const most = 80
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "…"
	}
	return fmt.Sprintf("%q", s)
}
