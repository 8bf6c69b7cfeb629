package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/carrel-dev/carrel/internal/guest"
)

const (
	maxRefusalBody = 64 << 10
	// ownerLimit bounds the search for the program, because the refusal waits for the answer.
	ownerLimit = 15 * time.Millisecond
	// toldAtOnce is how many commands get the line if it is not known which program was refused.
	toldAtOnce = 3
	// Limits on what a program can cause: refusals recorded per second, and lines written per ten
	// seconds.
	keptPerSecond, linesPerWindow = 100, 20
	linesWindow                   = 10 * time.Second
)

// Owner is the process that owns a socket.
type Owner struct {
	PID  int
	Name string // the kernel's name for it; the process chooses it
	// Ancestors are its parents, nearest first, and the leader of its session.
	Ancestors []int
}

// SocketOwner is an optional interface of a System: it finds the owner of a socket.
type SocketOwner interface {
	// SocketOwner finds the process with a TCP connection, or UDP socket, on this local port. It
	// gives up when ctx ends.
	SocketOwner(ctx context.Context, udp bool, port uint16) (Owner, bool)
}

// refusals records and limits the refusals that the wire reports.
type refusals struct {
	mu          sync.Mutex
	kept, lines quota
	file        deniedFile
}

// serveRefused explains a refusal inside: in a file, and to the program's command. It answers
// within some 20 ms, because the refusal waits for it.
func (a *Agent) serveRefused(w http.ResponseWriter, r *http.Request) {
	if !a.trusted(r) {
		writeError(w, http.StatusForbidden, r.URL.Path+" is for the host alone")
		return
	}
	var req guest.Refusal
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxRefusalBody)).Decode(&req); err != nil {
		writeError(w, http.StatusBadRequest, "body: "+err.Error())
		return
	}
	now := time.Now()
	if a.silent() || !a.refusals.keep(now) {
		writeJSON(w, http.StatusOK, guest.RefusalReply{})
		return
	}
	owner, found := a.socketOwner(r.Context(), req.UDP, req.SourcePort)
	// The host wrote this line without knowing the program. If it has the standard form, write it
	// again with the program.
	standard := !req.Held && (req.Line == "" || req.Line == guest.RefusalLine(req.Event))
	var reply guest.RefusalReply
	if found {
		reply.Process = fmt.Sprintf("%s (pid %d)", strings.ToValidUTF8(owner.Name, "\uFFFD"), owner.PID)
		req.Event.Process = reply.Process
	}
	if standard {
		req.Line = guest.RefusalLine(req.Event)
	}
	if a.cfg.Denials && !req.Held {
		if err := a.refusals.record(a.sys, req); err != nil {
			a.log.Warn("keep refusal", "err", err)
		}
	}
	if a.refusals.mayTell(now) {
		a.tellCommands(owner, found, req.Line)
	}
	writeJSON(w, http.StatusOK, reply)
}

// silent reports whether the sandbox's owner turned off explanations.
func (a *Agent) silent() bool {
	a.identity.mu.RLock()
	defer a.identity.mu.RUnlock()
	return a.identity.silent
}

// socketOwner finds the program of a refusal, if the System can.
func (a *Agent) socketOwner(ctx context.Context, udp bool, port uint16) (Owner, bool) {
	sys, ok := a.sys.(SocketOwner)
	if !ok || port == 0 {
		return Owner{}, false
	}
	ctx, cancel := context.WithTimeout(ctx, a.cfg.OwnerLimit)
	defer cancel()
	return sys.SocketOwner(ctx, udp, port)
}

// tellCommands writes a line to the command that a program belongs to. If the program is unknown,
// it writes to a few commands that have listeners, because it is probably one of them.
func (a *Agent) tellCommands(owner Owner, found bool, line string) {
	var told []*running
	if found {
		live := a.procs.list()
		for _, pid := range append([]int{owner.PID}, owner.Ancestors...) {
			if i := slices.IndexFunc(live, func(r *running) bool { return int(r.pid) == pid }); i >= 0 {
				told = live[i : i+1]
				break
			}
		}
	} else {
		for _, r := range slices.Backward(a.procs.list()) { // the youngest, as a rule
			starts := r.tag != nil && *r.tag == guest.StartTag
			if !starts && r.out.heard() && len(told) < toldAtOnce {
				told = append(told, r)
			}
		}
	}
	for _, r := range told {
		if r.tty {
			r.out.interject(streamTTY, line+"\r\n")
		} else {
			r.out.interject(streamErr, line+"\n")
		}
	}
}

// heard reports whether there is a listener.
func (o *output) heard() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.subs) > 0
}

// interject adds a line that the process did not write. Unlike add it never waits: if a slow
// listener leaves no room, it drops the line.
func (o *output) interject(from stream, line string) {
	c := chunk{from: from, data: []byte(line)}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.end != nil || o.closed || len(o.subs) > 0 && o.size+c.cost() > outputLimit {
		return
	}
	o.count(&c)
	o.put(c)
}

// keep reports whether one more refusal may be handled.
func (r *refusals) keep(now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.kept.take(now, keptPerSecond, time.Second)
}

// mayTell reports whether one more line may be written.
func (r *refusals) mayTell(now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lines.take(now, linesPerWindow, linesWindow)
}

// record appends a refusal to the file.
func (r *refusals) record(sys System, req guest.Refusal) error {
	line, err := json.Marshal(req.Event)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.file.append(sys, append(line, '\n'))
}

// quota counts events in a period of time.
type quota struct {
	since time.Time
	n     int
}

func (q *quota) take(now time.Time, most int, per time.Duration) bool {
	if q.since.IsZero() || now.Sub(q.since) >= per {
		*q = quota{since: now}
	}
	if q.n >= most {
		return false
	}
	q.n++
	return true
}
