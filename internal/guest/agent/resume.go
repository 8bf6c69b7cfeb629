package agent

import (
	"fmt"
	"slices"

	"connectrpc.com/connect"

	"github.com/carrel-dev/carrel/internal/guest/process"
)

// A client whose stream broke can go on where it was. Each event of output says its position. A
// Connect with resume_from first gets the output after these positions, and then what comes. The
// output is that of the shelf: the last guest.KeptProcess bytes of a process, guest.KeptTotal of
// all. What is older is lost, and the client hears that (OUT_OF_RANGE) instead of a gap.
//
// The last event may be lost on its way like any other. So the latest processes whose end was sent
// stay for such a client, with a little output.
const (
	doneMax   = 16
	doneBytes = 256 << 10
)

// positions are the positions in the outputs of a process, by stream.
type positions [3]int64

// message is the positions in an answer.
func (p positions) message() *process.OutputOffsets {
	return &process.OutputOffsets{Stdout: uint64(p[streamOut]), Stderr: uint64(p[streamErr]),
		Pty: uint64(p[streamTTY])}
}

// before returns the positions of the first bytes in chunks. A stream that has none there is at p,
// its end.
func (p positions) before(chunks []chunk) positions {
	for _, c := range slices.Backward(chunks) {
		p[c.from] = c.at
	}
	return p
}

// finished keeps a process whose end a client was told of, for a client that did not hear it.
func (p *processes) finished(r *running) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done = append(slices.DeleteFunc(p.done, func(e *running) bool { return e == r }), r)
	size := 0
	for _, e := range p.done {
		size += e.kept.cost()
	}
	for len(p.done) > doneMax || size > doneBytes {
		size -= p.done[0].kept.cost()
		p.done[0].kept.discard()
		p.done = slices.Delete(p.done, 0, 1)
	}
}

// connect returns the process that a request means, with a listener to its output.
func (p *processes) connect(req *process.ConnectRequest) (*running, *listener, *connect.Error) {
	r, cerr := p.find(req.GetProcess(), true)
	if req.ResumeFrom == nil {
		if cerr != nil {
			return nil, nil, cerr
		}
		return r, r.out.listen(), nil
	}
	if r == nil {
		if r = p.findDone(req.GetProcess()); r == nil {
			return nil, nil, cerr
		}
	}
	l, cerr := r.out.resume(req.ResumeFrom)
	return r, l, cerr
}

// findDone returns the youngest process of those that finished keeps.
func (p *processes) findDone(sel *process.ProcessSelector) *running {
	match, _ := selects(sel)
	if match == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range slices.Backward(p.done) {
		if match(r) {
			return r
		}
	}
	return nil
}

// resume adds a listener that begins at these positions.
func (o *output) resume(from *process.OutputOffsets) (*listener, *connect.Error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	at, cerr := o.wrote.read(from)
	if cerr != nil {
		return nil, cerr
	}
	kept := o.kept.all()
	for s, first := range o.wrote.before(kept) {
		if at[s] < first {
			return nil, connect.NewError(connect.CodeOutOfRange, fmt.Errorf(
				"resume_from: %s from byte %d on is lost: the oldest that is kept is byte %d",
				stream(s), at[s], first))
		}
	}
	l := &listener{out: o, next: o.base + int64(len(o.chunks)), from: at,
		wake: make(chan struct{}, 1)}
	for _, c := range kept {
		if seen := at[c.from] - c.at; seen < int64(len(c.data)) {
			c.data, c.at = c.data[max(0, seen):], max(c.at, at[c.from])
			l.past = append(l.past, c)
		}
	}
	o.subs[l] = struct{}{}
	o.dropTaken() // it has all of them, so producers need not wait for it
	o.room.Broadcast()
	return l, nil
}

// read checks the positions of a request. None can be beyond p, where the output ends.
func (p positions) read(from *process.OutputOffsets) (at positions, cerr *connect.Error) {
	for s, n := range [...]uint64{streamOut: from.GetStdout(), streamErr: from.GetStderr(),
		streamTTY: from.GetPty()} {
		if n > uint64(p[s]) {
			return at, connect.NewError(connect.CodeOutOfRange, fmt.Errorf(
				"resume_from: %s has %d bytes, and none from byte %d on: is it the same process?",
				stream(s), p[s], n))
		}
		at[s] = int64(n)
	}
	return at, nil
}

// all returns what is kept, oldest first.
func (t *tail) all() []chunk {
	t.shelf.mu.Lock()
	defer t.shelf.mu.Unlock()
	return slices.Clone(t.chunks)
}
