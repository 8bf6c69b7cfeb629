package webhook

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/state"
)

// kept is how long events are listed, as in E2B.
const kept = 7 * 24 * time.Hour

// lifecycleType is the type that an event has in E2B's form: E2B's own, or ours for held connections.
// It is "" for an event that has none.
func lifecycleType(e *carrel.Event) string {
	switch e.Type {
	case "sandbox.created":
		return carrel.LifecycleCreated
	case "sandbox.ended", "sandbox.lost":
		return carrel.LifecycleKilled
	case "sandbox.paused":
		return carrel.LifecyclePaused
	case "sandbox.resumed":
		return carrel.LifecycleResumed
	case "sandbox.updated", "sandbox.rolled_back", "sandbox.promoted":
		return carrel.LifecycleUpdated
	case carrel.ConnectionHeld, carrel.ConnectionAnswered:
		return e.Type
	case "sandbox.snapshot":
		if e.Fields["cause"] == string(carrel.CauseRequest) {
			return carrel.LifecycleCheckpointed
		}
	}
	return ""
}

// Listed reports whether an event is one of those that are listed and delivered.
func Listed(e *carrel.Event) bool { return lifecycleType(e) != "" }

// events makes E2B's events of the service's.
type events struct {
	store  state.Store
	build  func(ctx context.Context, template string) string
	redact func(ctx context.Context, project string) func(text string) string
	print  [8]byte // of the directory whose events these are
}

// id makes the ID of an event. It is a UUID that holds the event's number, so that the event is
// found without an index.
func (x *events) id(seq int64) string {
	var b [16]byte
	copy(b[:8], x.print[:])
	binary.BigEndian.PutUint64(b[8:], uint64(seq))
	b[6], b[8] = b[6]&0x0f|0x80, 0x80 // version 8 (our own), variant of RFC 9562
	t := hex.EncodeToString(b[:])
	return strings.Join([]string{t[:8], t[8:12], t[12:16], t[16:20], t[20:]}, "-")
}

// seq returns the number in an ID that id made.
func (x *events) seq(id string) (int64, bool) {
	b, err := hex.DecodeString(strings.ReplaceAll(id, "-", ""))
	if err != nil || len(b) != 16 {
		return 0, false
	}
	b[8] = 0
	n := int64(binary.BigEndian.Uint64(b[8:]))
	return n, x.id(n) == strings.ToLower(id)
}

// printOf makes the part of all IDs that belongs to one directory.
func printOf(identity string) (p [8]byte) {
	h := sha256.Sum256([]byte("events\x00" + identity))
	copy(p[:], h[:])
	return p
}

// start finds the event with which a run began: the newest creation or resumption up to e. Without
// one, because it is forgotten, the run began when the sandbox did.
func (x *events) start(ctx context.Context, e *carrel.Event) (at time.Time, seq int64, err error) {
	if e.Type == "sandbox.created" || e.Type == "sandbox.resumed" {
		return e.Time, e.Seq, nil
	}
	for before := e.Seq; ; {
		page, err := x.store.EventsBefore(ctx, e.ID, before, 32)
		if err != nil {
			return at, 0, err
		}
		for _, p := range page {
			if p.Type == "sandbox.created" || p.Type == "sandbox.resumed" {
				return p.Time, p.Seq, nil
			}
			before = p.Seq
		}
		if len(page) == 0 {
			break
		}
	}
	if e.Of != nil {
		at = e.Of.Started
	}
	return at, 0, nil
}

// lifecycle makes E2B's event of an event that has one.
func (x *events) lifecycle(ctx context.Context, e *carrel.Event) (carrel.LifecycleEvent, error) {
	started, run, err := x.start(ctx, e)
	if err != nil {
		return carrel.LifecycleEvent{}, err
	}
	of := e.Of
	if of == nil { // of a build before events said this, or the sandbox went at the same time
		of = &carrel.EventSandbox{Template: e.Fields["template"], Started: started}
	}
	hide := x.redact(ctx, e.Project)
	data := &carrel.LifecycleData{Carrel: &carrel.LifecycleDetail{Event: e.Type, Reason: e.Reason,
		Message: hide(e.Message)}}
	if len(of.Metadata) > 0 {
		data.Metadata = make(map[string]string, len(of.Metadata))
		for k, v := range of.Metadata {
			data.Metadata[hide(k)] = hide(v)
		}
	}
	if e.Fields["changed"] == "timeout" {
		data.SetTimeout = of.Ends.UTC()
	}
	kind := lifecycleType(e)
	if kind == carrel.LifecycleKilled || kind == carrel.LifecyclePaused {
		data.Execution = &carrel.LifecycleRun{Started: started.UTC(), VCPUs: int(math.Ceil(of.CPUs)),
			MemoryMB: of.MemoryMB, Millis: max(0, e.Time.Sub(started).Milliseconds())}
	}
	return carrel.LifecycleEvent{
		Version: "v2", ID: x.id(e.Seq), Type: kind, Data: data,
		BuildID:     x.build(ctx, of.Template),
		ExecutionID: carrel.UUID(fmt.Appendf(nil, "run\x00%x\x00%s\x00%d", x.print, e.ID, run)),
		SandboxID:   e.ID, TeamID: carrel.TeamID(e.Project),
		TemplateID: cmp.Or(of.TemplateOf, of.Template), Timestamp: e.Time.UTC(),
	}, nil
}

// checkTypes says what is wrong with a list of types.
func checkTypes(op, field string, types []string) error {
	for _, t := range types {
		if !slices.Contains(carrel.LifecycleTypes(), t) {
			return &carrel.Error{Op: op, Kind: carrel.Invalid, Field: field,
				Err:  fmt.Errorf("%.80q is no type of event", t),
				Hint: "the types are " + strings.Join(carrel.LifecycleTypes(), ", ")}
		}
	}
	return nil
}

// maxList is the most events of one list, and maxOffset the most that it passes over.
const (
	maxList     = 100
	defaultList = 10
	maxOffset   = 100_000
	listPage    = 512
)

// list lists a project's events.
func (x *events) list(ctx context.Context, project string, opts carrel.LifecycleOptions) (
	[]carrel.LifecycleEvent, error) {
	const op = "list events"
	if err := checkTypes(op, "types", opts.Types); err != nil {
		return nil, err
	}
	bad := func(field string, n, least, most int) error {
		return &carrel.Error{Op: op, Kind: carrel.Invalid, Field: field,
			Err: fmt.Errorf("%d is not between %d and %d", n, least, most)}
	}
	switch opts.Limit = cmp.Or(opts.Limit, defaultList); {
	case opts.Limit < 1 || opts.Limit > maxList:
		return nil, bad("limit", opts.Limit, 1, maxList)
	case opts.Offset < 0 || opts.Offset > maxOffset:
		return nil, bad("offset", opts.Offset, 0, maxOffset)
	}
	out, oldest := []carrel.LifecycleEvent{}, time.Now().Add(-kept)
	next := x.store.EventsBefore
	if opts.OldestFirst {
		next = x.store.Events
	}
	skip := opts.Offset
	for at := int64(0); ; {
		page, err := next(ctx, opts.Sandbox, at, listPage)
		if err != nil || len(page) == 0 {
			return out, err
		}
		for i := range page {
			e := &page[i]
			at = e.Seq
			kind := lifecycleType(e)
			if kind == "" || e.Project != project || e.Time.Before(oldest) ||
				len(opts.Types) > 0 && !slices.Contains(opts.Types, kind) {
				continue
			}
			if skip > 0 {
				skip--
				continue
			}
			event, err := x.lifecycle(ctx, e)
			if err != nil {
				return nil, err
			}
			if out = append(out, event); len(out) == opts.Limit {
				return out, nil
			}
		}
		if !opts.OldestFirst && page[len(page)-1].Time.Before(oldest) {
			return out, nil
		}
	}
}
