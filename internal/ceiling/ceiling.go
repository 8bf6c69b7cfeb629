// Package ceiling compares what a request asks for with the ceilings of its project and its key.
//
// A ceiling bounds what a sandbox may be, whoever asks and however: what is compared is the sandbox
// that a request would make, not the request. Every door that makes one or widens one asks here.
//
// Threat: the holder of a key tries a door that forgot to ask: a fork, a resumption with another
// timeout, new rules for a running network, a build. Or it writes what a ceiling forbids in another
// spelling: a block of addresses in place of one, a preset in place of a rule, a proxy.
package ceiling

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/policy"
)

// Bound is a ceiling and whose it is, for people.
type Bound struct {
	Of      string
	Ceiling carrel.Ceiling
}

// Check says what is wrong with a ceiling, with an Error of kind Invalid.
func Check(c carrel.Ceiling) error {
	wrong := func(field, format string, args ...any) error {
		return &carrel.Error{Op: "set ceiling", Kind: carrel.Invalid, Field: field, Err: fmt.Errorf(format, args...)}
	}
	if err := policy.Destinations("egress", c.Egress); err != nil {
		return err
	}
	for i, t := range c.Tiers {
		if t != carrel.Sim && t != carrel.NS && t != carrel.GVisor && t != carrel.MicroVM {
			return wrong(fmt.Sprintf("tiers[%d]", i), "there is no tier %.40q", t)
		}
	}
	for field, list := range map[string][]string{"templates": c.Templates, "secrets": c.Secrets} {
		if i := slices.Index(list, ""); i >= 0 {
			return wrong(fmt.Sprintf("%s[%d]", field, i), "it is empty")
		}
	}
	l := c.Limits
	if l.CPUs < 0 || l.MemoryMB < 0 || l.DiskMB < 0 || l.Pids < 0 || l.CPUs != l.CPUs {
		return wrong("limits", "a limit is negative")
	}
	if c.Timeout < 0 {
		return wrong("timeout", "%v is negative", c.Timeout)
	}
	return nil
}

// above is the error for a request above a ceiling.
func above(op, of, ceiling, field, format string, args ...any) error {
	return &carrel.Error{Op: op, Kind: carrel.Forbidden, Field: field,
		Err:  fmt.Errorf("%s is above the ceiling %q of %s", fmt.Sprintf(format, args...), ceiling, of),
		Hint: "'carrel ceiling' shows what may be asked for; an administrator can raise it"}
}

// Sandbox checks the sandbox that a request would make: its template, tier, size and network.
func Sandbox(op string, bounds []Bound, sb carrel.Sandbox) error {
	for _, b := range bounds {
		c := b.Ceiling
		if c.Tiers != nil && !slices.Contains(c.Tiers, sb.Tier) {
			return above(op, b.Of, "tiers", "tier", "tier %s, where %s may be", sb.Tier, list(c.Tiers))
		}
		if c.Templates != nil && sb.Build == "" && !allows(c.Templates, sb) {
			return above(op, b.Of, "templates", "template", "template %s, where %s may be",
				quoted(first(sb.Alias, sb.Template)), list(c.Templates))
		}
		if err := size(op, b, sb.Limits); err != nil {
			return err
		}
	}
	return Network(op, bounds, sb.Network)
}

// allows reports whether a sandbox's template is in a list of names and IDs.
func allows(templates []string, sb carrel.Sandbox) bool {
	return slices.ContainsFunc(templates, func(t string) bool {
		return t == sb.Template || t == sb.TemplateOf || t == sb.Alias
	})
}

// size checks the limits of one sandbox.
func size(op string, b Bound, l carrel.Limits) error {
	m := b.Ceiling.Limits
	for _, p := range [...]struct {
		name, field string
		got, most   float64
	}{
		{"limits.cpus", "cpuCount", l.CPUs, m.CPUs},
		{"limits.memoryMB", "memoryMB", float64(l.MemoryMB), float64(m.MemoryMB)},
		{"limits.diskMB", "diskSizeMB", float64(l.DiskMB), float64(m.DiskMB)},
		{"limits.pids", "pids", float64(l.Pids), float64(m.Pids)},
	} {
		if p.most > 0 && p.got > p.most {
			return above(op, b.Of, p.name, p.field, "%g, where %g may be,", p.got, p.most)
		}
	}
	return nil
}

// Network checks the destinations and the secrets of a network.
func Network(op string, bounds []Bound, n carrel.Network) error {
	for _, b := range bounds {
		if c := b.Ceiling.Egress; c != nil {
			for _, a := range policy.Opened(n) {
				if !policy.Within(a.Destination, c) {
					return above(op, b.Of, "egress", a.Field, "destination %s", quoted(a.Destination))
				}
			}
		}
		if c := b.Ceiling.Secrets; c != nil {
			for _, a := range policy.SecretsOf(n) {
				if !slices.Contains(c, a.Destination) {
					return above(op, b.Of, "secrets", a.Field, "secret %s", quoted(a.Destination))
				}
			}
		}
	}
	return nil
}

// Timeout checks how long a sandbox may run from now.
func Timeout(op string, bounds []Bound, d time.Duration) error {
	for _, b := range bounds {
		if most := b.Ceiling.Timeout; most > 0 && d > most {
			return above(op, b.Of, "timeout", "timeout", "%v, where %v may be,", d, most)
		}
	}
	return nil
}

// LowerTimeout returns a default timeout, at most what the ceilings allow.
func LowerTimeout(bounds []Bound, d time.Duration) time.Duration {
	for _, b := range bounds {
		if most := b.Ceiling.Timeout; most > 0 {
			d = min(d, most)
		}
	}
	return d
}

// LowerLimits returns default limits, at most what the ceilings allow.
func LowerLimits(bounds []Bound, l carrel.Limits) carrel.Limits {
	for _, b := range bounds {
		m := b.Ceiling.Limits
		if m.CPUs > 0 {
			l.CPUs = min(l.CPUs, m.CPUs)
		}
		lower(&l.MemoryMB, m.MemoryMB)
		lower(&l.DiskMB, m.DiskMB)
		lower(&l.Pids, m.Pids)
	}
	return l
}

func lower(n *int, most int) {
	if most > 0 {
		*n = min(*n, most)
	}
}

// Making refuses to make a template where a ceiling lists the templates that may be used. Otherwise
// a template of the caller's own could take the name of one in the list.
func Making(op string, bounds []Bound) error {
	for _, b := range bounds {
		if b.Ceiling.Templates != nil {
			return &carrel.Error{Op: op, Kind: carrel.Forbidden, Field: "template",
				Err:  fmt.Errorf("the ceiling \"templates\" of %s lists what may be used, so it makes no templates", b.Of),
				Hint: "an administrator makes the template and adds it to the ceiling"}
		}
	}
	return nil
}

// Field adds the beginning of a field's name, as the sender of a request spelled it.
func Field(prefix string, err error) error {
	if e, ok := errors.AsType[*carrel.Error](err); ok {
		c := *e
		c.Field = prefix + e.Field
		return &c
	}
	return err
}

func list[T ~string](all []T) string {
	if len(all) == 0 {
		return "none"
	}
	const most = 8
	var out []string
	for i, s := range all {
		if i == most {
			out = append(out, "…")
			break
		}
		out = append(out, string(s))
	}
	return strings.Join(out, ", ")
}

func quoted(s string) string { return fmt.Sprintf("%.100q", s) }

func first(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

// Build checks what a build asks for: the tier, size and network of the sandboxes of its steps.
func Build(op string, bounds []Bound, spec carrel.BuildSpec) error {
	for _, b := range bounds {
		if t := b.Ceiling.Tiers; t != nil && spec.Tier != "" && !slices.Contains(t, spec.Tier) {
			return above(op, b.Of, "tiers", "tier", "tier %s, where %s may be", spec.Tier, list(t))
		}
		if err := size(op, b, carrel.Limits{CPUs: spec.CPUs, MemoryMB: spec.MemoryMB, DiskMB: spec.DiskMB}); err != nil {
			return err
		}
	}
	if spec.Network == nil {
		return nil
	}
	return Field("network.", Network(op, bounds, *spec.Network))
}
