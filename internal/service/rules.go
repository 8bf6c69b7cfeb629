package service

import (
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/policy"
)

// rules are the limits on requests.
type rules struct{ opts *Options }

// checkOptions checks each field on its own, except the template, which plan looks up. It returns
// the compiled network.
func (r *rules) checkOptions(o carrel.CreateOptions) (*policy.Policy, error) {
	if o.NoTimeout && o.Timeout != 0 {
		return nil, invalid(opCreate, "noTimeout", "there is a timeout too: %v", o.Timeout)
	}
	if err := first(
		carrel.CheckName(o.Name),
		r.checkTimeout(opCreate, o.Timeout),
		checkMetadata(opCreate, o.Metadata),
		checkEnv(o.Env),
		r.checkLimits(o.Limits),
		checkTokens(opCreate, o.Tokens),
		r.checkLifecycle(opCreate, o.Lifecycle),
	); err != nil {
		return nil, err
	}
	return compileNetwork(opCreate, o.Network)
}

func (r *rules) checkTimeout(op string, d time.Duration) error {
	switch {
	case d < 0:
		return invalid(op, "timeout", "%v is negative", d)
	case d > r.opts.MaxTimeout:
		most := r.opts.MaxTimeout.String()
		if r.opts.MaxTimeout%time.Hour == 0 {
			most = fmt.Sprintf("%d hours", r.opts.MaxTimeout/time.Hour)
		}
		return &carrel.Error{Op: op, Kind: carrel.Invalid, Field: "timeout", Err: fmt.Errorf("it cannot be greater than %s", most),
			Hint: "raise the maximum with carrel serve --max-timeout"}
	}
	return nil
}

// lifetime is the timeout of a new sandbox.
func (r *rules) lifetime(o carrel.CreateOptions) time.Duration {
	switch {
	case o.NoTimeout:
		return r.opts.MaxTimeout
	case o.Timeout != 0:
		return o.Timeout
	}
	return min(r.opts.DefaultTimeout, r.opts.MaxTimeout)
}

// The smallest limits that can work at all. A driver may need more, and then says so.
const (
	minCPUs     = 0.01
	minMemoryMB = 16
	minDiskMB   = 1
	minPids     = 8
)

// number formats a number for people, without an exponent.
func number(n float64) string { return strconv.FormatFloat(n, 'f', -1, 64) }

// checkLimits checks the limits of a request. Zero means the default.
func (r *rules) checkLimits(l carrel.Limits) error {
	most := r.opts.MaxLimits
	for _, c := range []struct {
		field            string
		got, least, most float64
	}{
		{"cpuCount", l.CPUs, minCPUs, most.CPUs},
		{"memoryMB", float64(l.MemoryMB), minMemoryMB, float64(most.MemoryMB)},
		{"diskSizeMB", float64(l.DiskMB), minDiskMB, float64(most.DiskMB)},
		{"pids", float64(l.Pids), minPids, float64(most.Pids)},
	} {
		switch {
		case math.IsNaN(c.got) || math.IsInf(c.got, 0):
			return invalid(opCreate, c.field, "%v is not a number", c.got)
		case c.got < 0:
			return invalid(opCreate, c.field, "%s is negative", number(c.got))
		case c.got > 0 && c.got < c.least:
			return invalid(opCreate, c.field, "%s is less than the %s that a sandbox needs", number(c.got), number(c.least))
		case c.most > 0 && c.got > c.most:
			return invalid(opCreate, c.field, "%s is more than the %s a sandbox may have here", number(c.got), number(c.most))
		}
	}
	return nil
}

// checkLifecycle checks each field on its own.
func (r *rules) checkLifecycle(op string, l carrel.Lifecycle) error {
	switch l.OnTimeout {
	case "", carrel.ActionKill, carrel.ActionPause:
	default:
		return invalid(op, "lifecycle.onTimeout", "%s is neither %q nor %q", clip(string(l.OnTimeout)), carrel.ActionKill, carrel.ActionPause)
	}
	return first(
		checkSpan(op, "lifecycle.idle.after", l.Idle.After, minIdle),
		r.checkCPU(op, l.Idle.CPUPct),
		checkSpan(op, "lifecycle.checkpoints.every", l.Checkpoints.Every, minEvery),
		checkPatterns(op, l.Checkpoints.Before),
		checkRetention(op, l.Retention),
	)
}

// checkCPU checks a threshold. With a threshold above all processors that a sandbox may have, every
// sandbox would count as idle.
func (r *rules) checkCPU(op string, pct float64) error {
	const field, most = "lifecycle.idle.cpuPct", 1024 * cpuPctByCore
	cores := r.opts.MaxLimits.CPUs
	switch {
	case math.IsNaN(pct) || math.IsInf(pct, 0):
		return invalid(op, field, "%v is not a number", pct)
	case pct < 0:
		return invalid(op, field, "%s is negative", number(pct))
	case pct > most, cores > 0 && pct > cores*cpuPctByCore:
		return invalid(op, field, "%s is more than all processors together: one of them is %d", number(pct), cpuPctByCore)
	}
	return nil
}
