package webhook

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/atomicfile"
)

// hook is a webhook as its file has it. The file holds its secret.
type hook struct {
	ID      string
	Project string
	Name    string
	Created time.Time
	Enabled bool
	URL     string
	Events  []string
	Secret  string
	// From is the number of the newest event when the webhook was made or enabled.
	From int64
	// Since says from which event on types count that were added later; only a fleet's webhooks have it.
	Since map[string]int64 `json:",omitempty"`
}

// wants reports whether the webhook asks for an event.
func (h *hook) wants(e *carrel.Event) bool {
	kind := lifecycleType(e)
	return kind != "" && e.Project == h.Project && slices.Contains(h.Events, kind) && e.Seq > h.Since[kind]
}

// public is the webhook as callers see it.
func (h *hook) public() carrel.Webhook {
	return carrel.Webhook{ID: h.ID, TeamID: carrel.TeamID(h.Project), Name: h.Name, CreatedAt: h.Created,
		Enabled: h.Enabled, URL: h.URL, Events: slices.Clone(h.Events)}
}

// The kinds of lines in a progress file.
const (
	lineAt        = "at"     // everything up to Seq is settled or has a line below
	lineFailed    = "failed" // one attempt
	lineDelivered = carrel.DeliveryDone
	lineDead      = carrel.DeliveryDead
	lineReplay    = "replay" // Seq is to be sent again
	lineDropped   = "dropped"
)

// line is one line of a progress file. All but Kind and Seq are about a delivery.
type line struct {
	Kind    string
	Seq     int64
	Type    string    `json:",omitempty"`
	Sandbox carrel.ID `json:",omitempty"`
	Time    time.Time `json:",omitzero"`  // of the event
	Since   time.Time `json:",omitzero"`  // of a replay: when it was asked for
	Tries   int       `json:",omitempty"` // so far
	Tried   time.Time `json:",omitzero"`
	Next    time.Time `json:",omitzero"`
	Status  int       `json:",omitempty"`
	Error   string    `json:",omitempty"`
}

// item is one delivery.
type item struct {
	line
	replay bool
}

func (it *item) delivery(x *events) carrel.Delivery {
	d := carrel.Delivery{Event: x.id(it.Seq), Type: it.Type, SandboxID: it.Sandbox, Time: it.Time,
		State: it.Kind, Attempts: it.Tries, Status: it.Status, Error: it.Error, Tried: it.Tried}
	if d.State != carrel.DeliveryDone && d.State != carrel.DeliveryDead {
		d.State, d.Next = carrel.DeliveryPending, it.Next
	}
	return d
}

// Bounds of what one webhook keeps.
const (
	maxRecent = 200   // delivered ones that are listed
	maxDead   = 10000 // the oldest dead ones go first
	maxFile   = 1 << 20
)

// progress is what a webhook has done: the content of its progress file.
type progress struct {
	name   string
	f      *os.File
	size   int64
	shared *sharedLog // in place of the file

	at      int64           // all events up to it are settled, unless they wait
	settled map[int64]bool  // settled ones above at
	waiting map[int64]*item // with attempts or a replay; not all that wait
	dead    map[int64]*item
	recent  []*item // delivered, the newest delivery last
}

func newProgress(from int64) *progress {
	return &progress{at: from, settled: map[int64]bool{}, waiting: map[int64]*item{}, dead: map[int64]*item{}}
}

// openProgress reads the file of a webhook, and makes it for a new one.
func openProgress(name string, from int64) (*progress, error) {
	p := newProgress(from)
	p.name = name
	raw, err := os.ReadFile(name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	sc := bufio.NewScanner(bytes.NewReader(raw))
	sc.Buffer(nil, 1<<20)
	for sc.Scan() {
		var l line
		if json.Unmarshal(sc.Bytes(), &l) == nil { // kill -9 may have cut the last one
			p.apply(&l)
		}
	}
	return p, p.rewrite()
}

// apply takes in one line.
func (p *progress) apply(l *line) {
	switch l.Kind {
	case lineAt:
		p.at = max(p.at, l.Seq)
		for seq := range p.settled {
			if seq <= p.at {
				delete(p.settled, seq)
			}
		}
	case lineFailed, lineReplay:
		replay := l.Kind == lineReplay || p.waiting[l.Seq] != nil && p.waiting[l.Seq].replay
		p.waiting[l.Seq] = &item{line: *l, replay: replay || !l.Since.IsZero()}
		delete(p.dead, l.Seq)
	case lineDelivered, lineDead, lineDropped:
		delete(p.waiting, l.Seq)
		if l.Seq > p.at {
			p.settled[l.Seq] = true
		}
		switch l.Kind {
		case lineDelivered:
			p.recent = append(p.recent, &item{line: *l})
			p.recent = p.recent[max(0, len(p.recent)-maxRecent):]
		case lineDead:
			p.dead[l.Seq] = &item{line: *l}
		}
	}
}

// add takes lines in and writes them. With sync they are on the disk when it returns; without, a
// power failure may lose them, and their deliveries are repeated.
func (p *progress) add(sync bool, lines ...line) error {
	var out []byte
	all, err := rawLines(lines)
	if err != nil {
		return err
	}
	for i := range lines {
		p.apply(&lines[i])
	}
	if s := p.shared; s != nil {
		if s.lines += len(lines); s.shared.Duty != nil && s.lines > maxLines+4*(len(p.dead)+len(p.waiting)+len(p.settled)) {
			return p.rewrite()
		}
		return s.write(all, false)
	}
	for _, raw := range all {
		out = append(append(out, raw...), '\n')
	}
	if p.size += int64(len(out)); p.size > maxFile+int64(512*(len(p.dead)+len(p.waiting)+len(p.settled))) {
		return p.rewrite()
	}
	if _, err := p.f.Write(out); err != nil {
		return err
	}
	if sync {
		return p.f.Sync()
	}
	return nil
}

// rawLines are lines in their written form.
func rawLines(lines []line) ([][]byte, error) {
	out := make([][]byte, len(lines))
	for i := range lines {
		var err error
		if out[i], err = json.Marshal(&lines[i]); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// maxLines is how many lines a webhook of a fleet has before they are written anew, besides those that
// matter.
const maxLines = 2000

// forget drops dead ones whose events are forgotten, and the oldest above the bound.
func (p *progress) forget(before time.Time) {
	for seq, it := range p.dead {
		if it.Time.Before(before) {
			delete(p.dead, seq)
		}
	}
	for len(p.dead) > maxDead {
		oldest := int64(-1)
		for seq := range p.dead {
			if oldest < 0 || seq < oldest {
				oldest = seq
			}
		}
		delete(p.dead, oldest)
	}
}

// rewrite writes the file anew, with what still matters.
func (p *progress) rewrite() error {
	p.forget(time.Now().Add(-kept))
	lines := []line{{Kind: lineAt, Seq: p.at}}
	put := func(l line) { lines = append(lines, l) }
	for seq := range p.settled {
		put(line{Kind: lineDropped, Seq: seq})
	}
	for _, it := range p.recent {
		put(it.line)
	}
	for _, it := range p.dead {
		put(it.line)
	}
	for _, it := range p.waiting {
		put(it.line)
	}
	all, err := rawLines(lines)
	if err != nil {
		return err
	}
	if s := p.shared; s != nil {
		s.lines = len(all)
		return s.write(all, true)
	}
	var out bytes.Buffer
	for _, raw := range all {
		out.Write(append(raw, '\n'))
	}
	if err := atomicfile.Write(p.name, out.Bytes(), 0o600); err != nil {
		return err
	}
	f, err := os.OpenFile(p.name, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	if p.f != nil {
		_ = p.f.Close()
	}
	p.f, p.size = f, int64(out.Len())
	return nil
}

func (p *progress) close() error {
	if p.f == nil {
		return nil
	}
	return p.f.Close()
}

// hookName and progressName are the files of a webhook.
func hookName(dir, id string) string     { return filepath.Join(dir, id+".json") }
func progressName(dir, id string) string { return filepath.Join(dir, id+".log") }
