package agent

import (
	"cmp"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/guest"
)

// KeptLimits bound the output of processes that an agent keeps for later reading. A field that is 0
// has its default, such as guest.KeptProcess.
type KeptLimits struct {
	// Process is the number of bytes that are kept of one process: the last ones.
	Process int
	// Total is the number of bytes that are kept of all processes together. Above it, the output of
	// the process that ended first is dropped first, and then output of the running process that
	// has most.
	Total int
	// Ended is how many ended processes are remembered, with their exit status.
	Ended int
}

const (
	// recordArgs is how many bytes of a command line a record holds.
	recordArgs = 1 << 10
	// recordTag is how many bytes of a tag it holds.
	recordTag = 256
	// listMost is the number of running processes in a list of records. The list has the youngest.
	listMost = 192
	// outputMost bounds the bytes of output in one answer, and pieceMost the number of pieces.
	outputMost = 256 << 10
	pieceMost  = 4 << 10
)

// shelf keeps the last output of processes, and the ends of the latest ones. It is separate from
// [output], which holds data that clients still wait for.
//
// Lock order: output.mu, then shelf.mu.
type shelf struct {
	limits KeptLimits

	mu      sync.Mutex
	serial  int64
	size    int // of all tails
	running map[*tail]struct{}
	ended   []*tail // the first that ended is first
}

// tail is the kept output of one process. The shelf's mutex guards its fields.
type tail struct {
	shelf  *shelf
	record carrel.ProcessRecord
	keep   bool // also after a client knows its end
	gone   bool // dropped by the shelf
	chunks []chunk
	first  int64         // the position of the first byte that is kept
	size   int           // what the chunks cost
	news   chan struct{} // closed at the next change; nil while nobody waits
	apart  bool          // off the shelf, and not counted there; see processes.done
}

func (s *shelf) init(limits KeptLimits) {
	limits.Process = cmp.Or(limits.Process, guest.KeptProcess)
	limits.Total = cmp.Or(limits.Total, guest.KeptTotal)
	limits.Ended = cmp.Or(limits.Ended, guest.KeptEnded)
	s.limits, s.running = limits, map[*tail]struct{}{}
}

// open begins the record of a process that has just started. With keep, the record stays for a
// while after the process's end.
func (s *shelf) open(r *running, keep bool) *tail {
	t := &tail{shelf: s, keep: keep, record: carrel.ProcessRecord{PID: int(r.pid), Args: clipArgs(r.config.GetCmd(), r.config.GetArgs()),
		Dir: clipText(r.config.GetCwd(), recordArgs), Started: time.Now().UTC()}}
	if r.tag != nil {
		t.record.Tag = clipText(*r.tag, recordTag)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.serial++
	t.record.Serial = s.serial
	s.running[t] = struct{}{}
	return t
}

// clipArgs returns a command line, cut off where it is too long for a record.
func clipArgs(cmd string, args []string) []string {
	out, room := []string{clipText(cmd, recordArgs)}, recordArgs-len(cmd)
	for _, a := range args {
		if room <= 0 {
			return append(out, "…")
		}
		out = append(out, clipText(a, room))
		room -= len(a) + 1
	}
	return out
}

// clipText returns the beginning of a text as valid UTF-8.
func clipText(s string, most int) string {
	if len(s) > most {
		s = s[:most] + "…"
	}
	return text(s)
}

// add appends what the process wrote. The caller does not change data.
func (t *tail) add(c chunk) {
	s, from, data := t.shelf, c.from, c.data
	s.mu.Lock()
	defer s.mu.Unlock()
	t.record.Written += int64(len(data))
	if t.gone {
		return
	}
	grown := len(data)
	if n := len(t.chunks) - 1; n >= 0 && t.chunks[n].from == from && len(t.chunks[n].data)+len(data) <= mergeLimit {
		t.chunks[n].data = append(t.chunks[n].data, data...)
	} else {
		// Others hold the same bytes. Without room behind them, an append copies and overwrites
		// nothing.
		t.chunks = append(t.chunks, chunk{from, slices.Clip(data), c.at})
		grown += chunkOverhead
	}
	t.size, s.size = t.size+grown, s.size+grown
	for t.size > s.limits.Process {
		t.dropFirst()
	}
	s.shrink()
	t.changed()
}

// dropFirst forgets the oldest piece. The shelf's mutex is held.
func (t *tail) dropFirst() {
	c := t.chunks[0]
	t.chunks[0] = chunk{}
	t.chunks = t.chunks[1:]
	if len(t.chunks) == 0 {
		t.chunks = nil
	}
	t.first += int64(len(c.data))
	t.size -= c.cost()
	if !t.apart {
		t.shelf.size -= c.cost()
	}
}

// changed wakes those who wait for news of the process. The shelf's mutex is held.
func (t *tail) changed() {
	if t.news != nil {
		close(t.news)
		t.news = nil
	}
}

// shrink drops output until the total is within its bound. The shelf's mutex is held.
func (s *shelf) shrink() {
	for _, t := range s.ended {
		for s.size > s.limits.Total && len(t.chunks) > 0 {
			t.dropFirst()
		}
	}
	for s.size > s.limits.Total {
		var most *tail
		for t := range s.running {
			if most == nil || t.size > most.size {
				most = t
			}
		}
		if most == nil || len(most.chunks) == 0 {
			return
		}
		most.dropFirst()
	}
}

// end records how a process ended. All that it wrote has been added.
func (t *tail) end(exit ExitStatus) {
	s := t.shelf
	s.mu.Lock()
	defer s.mu.Unlock()
	t.record.Ended, t.record.Status, t.record.ExitCode = time.Now().UTC(), exit.Status, exit.Code
	if exit.Signal != 0 {
		t.record.ExitCode = -1
	}
	delete(s.running, t)
	t.changed()
	if t.gone {
		return
	}
	s.ended = append(s.ended, t)
	for len(s.ended) > s.limits.Ended {
		s.drop(s.ended[0])
	}
}

// left records that a client went away before it knew how the process ended. A client may ask
// later.
func (t *tail) left() {
	t.shelf.mu.Lock()
	defer t.shelf.mu.Unlock()
	t.keep = true
}

// told records that a client knows everything about the process. Its record is taken off the shelf,
// unless the process was started with keep or a client has left it.
func (t *tail) told() {
	s := t.shelf
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.keep || t.gone || t.apart {
		return
	}
	t.apart = true
	s.size -= t.size
	delete(s.running, t)
	s.ended = slices.DeleteFunc(s.ended, func(e *tail) bool { return e == t })
}

// cost is what the kept output of a process takes off the shelf.
func (t *tail) cost() int {
	t.shelf.mu.Lock()
	defer t.shelf.mu.Unlock()
	if !t.apart {
		return 0
	}
	return t.size
}

// discard drops the output of a process that is off the shelf.
func (t *tail) discard() {
	t.shelf.mu.Lock()
	defer t.shelf.mu.Unlock()
	if t.apart {
		t.shelf.drop(t)
	}
}

// drop forgets a process. Called with mu held.
func (s *shelf) drop(t *tail) {
	for len(t.chunks) > 0 {
		t.dropFirst()
	}
	t.gone = true
	delete(s.running, t)
	s.ended = slices.DeleteFunc(s.ended, func(e *tail) bool { return e == t })
}

// known is the record as of now. The shelf's mutex is held.
func (t *tail) known() carrel.ProcessRecord {
	r := t.record
	r.Kept = r.Written - t.first
	return r
}

// list returns the records of ended processes and of the youngest running ones, the oldest first.
func (s *shelf) list() []carrel.ProcessRecord {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]carrel.ProcessRecord, 0, len(s.running)+len(s.ended))
	for t := range s.running {
		out = append(out, t.known())
	}
	bySerial := func(a, b carrel.ProcessRecord) int { return cmp.Compare(a.Serial, b.Serial) }
	slices.SortFunc(out, bySerial)
	out = out[max(0, len(out)-listMost):]
	for _, t := range s.ended {
		out = append(out, t.known())
	}
	slices.SortFunc(out, bySerial)
	return out
}

// find returns the process with a serial number. If that is 0, it returns the process that a text
// means: by its PID, else by its tag. Of several, the youngest running one goes first, then the
// youngest.
func (s *shelf) find(serial int64, name string) *tail {
	s.mu.Lock()
	defer s.mu.Unlock()
	pid, _ := strconv.Atoi(name)
	byPID := func(t *tail) bool { return t.record.PID == pid && pid > 0 }
	byTag := func(t *tail) bool { return t.record.Tag == name && name != "" }
	if serial != 0 {
		return s.youngest(func(t *tail) bool { return t.record.Serial == serial })
	}
	if t := s.youngest(byPID); t != nil {
		return t
	}
	return s.youngest(byTag)
}

// youngest returns the youngest running process that matches, else the youngest ended one. Called
// with mu held.
func (s *shelf) youngest(match func(*tail) bool) (best *tail) {
	for t := range s.running {
		if match(t) && (best == nil || t.record.Serial > best.record.Serial) {
			best = t
		}
	}
	if best != nil {
		return best
	}
	for _, t := range s.ended {
		if match(t) && (best == nil || t.record.Serial > best.record.Serial) {
			best = t
		}
	}
	return best
}

// read returns kept output from a position on, at most most bytes. If there is none yet, news is
// closed when that may have changed.
func (t *tail) read(from int64, most int) (out carrel.ProcessOutput, news <-chan struct{}) {
	s := t.shelf
	s.mu.Lock()
	defer s.mu.Unlock()
	t.keep = true // a client that reads the output must see its end, too
	out.ProcessRecord = t.known()
	out.From = min(max(from, t.first), out.Written)
	out.Next = out.From
	at := t.first
	for _, c := range t.chunks {
		end := at + int64(len(c.data))
		if end > out.Next && most > 0 && len(out.Pieces) < pieceMost {
			data := c.data[out.Next-at:]
			data = data[:min(len(data), most)]
			out.Pieces = append(out.Pieces, carrel.OutputPiece{Stream: c.from.String(), Data: slices.Clone(data)})
			out.Next += int64(len(data))
			most -= len(data)
		}
		at = end
	}
	if len(out.Pieces) > 0 || !out.Ended.IsZero() || t.gone {
		return out, nil
	}
	if t.news == nil {
		t.news = make(chan struct{})
	}
	return out, t.news
}
