// Package request carries what is known of a client's request through the context: its ID, where it
// came from, and the things that it turned out to be about.
//
// A door makes an [Info] for each request. Code below adds targets, such as the ID of a sandbox that
// it made. The door reads them when the answer begins, for the audit trail. [Handler] puts the ID
// into the log.
package request

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"log/slog"
	"slices"
	"sync"
)

// maxTargets bounds the things that one request is noted to be about.
const maxTargets = 64

// Info is what is known of one request. A nil Info takes notes without effect. It is safe for
// concurrent use.
type Info struct {
	// ID is random, and in the header X-Request-Id of the answer.
	ID string
	// From is the client's network address.
	From string

	mu      sync.Mutex
	targets []string
}

// New returns the Info of a request that has just come.
func New(from string) *Info {
	var b [8]byte
	_, _ = rand.Read(b[:])
	return &Info{ID: hex.EncodeToString(b[:]), From: from}
}

type infoKey struct{}

// With returns a context for the work of a request.
func With(ctx context.Context, i *Info) context.Context {
	return context.WithValue(ctx, infoKey{}, i)
}

// Of returns the request that a context belongs to; nil for none.
func Of(ctx context.Context) *Info {
	i, _ := ctx.Value(infoKey{}).(*Info)
	return i
}

// Touch notes that the request is about a thing.
func Touch(ctx context.Context, target string) {
	i := Of(ctx)
	if i == nil || target == "" {
		return
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if len(i.targets) < maxTargets && !slices.Contains(i.targets, target) {
		i.targets = append(i.targets, target)
	}
}

// Targets returns the things that the request is about.
func (i *Info) Targets() []string {
	if i == nil {
		return nil
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	return slices.Clone(i.targets)
}

// Handler returns a log handler that adds the ID of the request that a message belongs to.
func Handler(h slog.Handler) slog.Handler { return handler{h} }

type handler struct{ slog.Handler }

// Handle implements slog.Handler.
func (h handler) Handle(ctx context.Context, r slog.Record) error {
	if i := Of(ctx); i != nil {
		r.AddAttrs(slog.String("request", i.ID))
	}
	return h.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (h handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return handler{h.Handler.WithAttrs(attrs)}
}

// WithGroup implements slog.Handler.
func (h handler) WithGroup(name string) slog.Handler { return handler{h.Handler.WithGroup(name)} }
