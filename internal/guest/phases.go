package guest

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/carrel-dev/carrel/internal/trace"
)

// PhasesHeader is a header in the answer to /init. It says when each phase of the guest's start
// ended, by the guest's clock: a comma-separated list of name=nanoseconds since 1970.
const PhasesHeader = "Carrel-Phases"

// maxPhases is the most phases that a guest can make the host record.
const maxPhases = 16

// Phases records when the phases of a guest's start end. It is safe for concurrent use; nil records
// nothing.
type Phases struct {
	mu   sync.Mutex
	text []byte
	n    int
}

// End records that a phase ends now.
func (p *Phases) End(name string) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.n++; p.n > maxPhases {
		return
	}
	if len(p.text) > 0 {
		p.text = append(p.text, ',')
	}
	p.text = append(append(p.text, name...), '=')
	p.text = strconv.AppendInt(p.text, time.Now().UnixNano(), 10)
}

// Take returns the phases in the header's form and removes them: the next start has its own phases.
func (p *Phases) Take() string {
	if p == nil {
		return ""
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	text := string(p.text)
	p.text, p.n = nil, maxPhases
	return text
}

// recordPhases adds a guest's phases to the trace of an operation. Each phase began when the one
// before it ended.
func recordPhases(ctx context.Context, header string) {
	var last time.Time
	for i, part := range strings.SplitN(header, ",", maxPhases+1) {
		name, text, ok := strings.Cut(part, "=")
		ns, err := strconv.ParseInt(text, 10, 64)
		if !ok || err != nil || i == maxPhases || len(name) > 32 || strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r > '~' }) {
			return // a guest's claim: only a help, never relied on
		}
		end := time.Unix(0, ns)
		if last.IsZero() {
			last = end
		}
		trace.Add(ctx, "guest: "+name, last, end.Sub(last))
		last = end
	}
}
