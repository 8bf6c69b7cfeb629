package agent

import (
	"sync"

	"github.com/carrel-dev/carrel/internal/guest/process"
)

// Limits on the output that is kept of a process.
const (
	// outputLimit is how many bytes are kept per process. If a listener has not taken this much,
	// the process waits. Without a listener, the oldest output is dropped.
	outputLimit = 1 << 20
	// chunkOverhead is the memory of a piece besides its bytes. It makes single bytes count at
	// their true cost.
	chunkOverhead = 64
	// mergeLimit is the size up to which pieces that no listener has seen are joined.
	mergeLimit = 32 << 10
)

// stream names the source of a piece of output.
type stream int

const (
	streamOut stream = iota
	streamErr
	streamTTY
)

// chunk is a piece of output. Its bytes never change.
type chunk struct {
	from stream
	data []byte
	at   int64 // the position of its first byte in that stream
}

// String is the stream's name in answers.
func (s stream) String() string {
	return [...]string{streamOut: "stdout", streamErr: "stderr", streamTTY: "terminal"}[s]
}

func (c chunk) cost() int { return len(c.data) + chunkOverhead }

// event returns the message that carries the chunk.
func (c chunk) event() *process.ProcessEvent {
	at := uint64(c.at)
	d := &process.ProcessEvent_DataEvent{Offset: &at}
	switch c.from {
	case streamOut:
		d.Output = &process.ProcessEvent_DataEvent_Stdout{Stdout: c.data}
	case streamErr:
		d.Output = &process.ProcessEvent_DataEvent_Stderr{Stderr: c.data}
	case streamTTY:
		d.Output = &process.ProcessEvent_DataEvent_Pty{Pty: c.data}
	}
	return &process.ProcessEvent{Event: &process.ProcessEvent_Data{Data: d}}
}

// output is the output of one process that is not delivered yet, for any number of listeners. Each
// listener gets everything from the moment it joins. If there was no listener for a time, the next
// one also gets the output that was kept of that time.
type output struct {
	kept   *tail // takes all of it too, whoever listens; nil in tests of this alone
	mu     sync.Mutex
	room   sync.Cond // a listener took or left: producers may go on
	chunks []chunk   // chunks[0] has the number base
	base   int64
	size   int
	subs   map[*listener]struct{}
	end    *process.ProcessEvent_EndEvent // set once nothing more will come
	closed bool                           // the agent closes: producers wait no more
	wrote  positions                      // how far each stream is
	alone  chan struct{}                  // holds a token when the last listener has left
}

// listener is one reader of an output.
type listener struct {
	out  *output
	next int64         // the number of its next chunk
	from positions     // where it begins
	past []chunk       // earlier output that it gets first; for its own goroutine only
	wake chan struct{} // holds a token if there may be something new
}

func newOutput() *output {
	o := &output{subs: map[*listener]struct{}{}, alone: make(chan struct{}, 1)}
	o.room.L = &o.mu
	return o
}

// listen adds a listener. It begins with the oldest output that is kept.
func (o *output) listen() *listener {
	o.mu.Lock()
	defer o.mu.Unlock()
	l := &listener{out: o, next: o.base, from: o.wrote.before(o.chunks),
		wake: make(chan struct{}, 1)}
	o.subs[l] = struct{}{}
	return l
}

// leave removes the listener. If it was the last, the output it did not take stays for the next
// one.
func (l *listener) leave() {
	o := l.out
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.subs, l)
	if len(o.subs) == 0 {
		o.dropOver(outputLimit)
		select {
		case o.alone <- struct{}{}:
		default: // there is one
		}
	} else {
		o.dropTaken()
	}
	o.room.Broadcast()
}

// followed reports whether there is a listener.
func (o *output) followed() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.subs) > 0
}

// peek returns the next chunk for the listener. If there is none, end is set if no more will come.
// A chunk counts as delivered only when take is called. So if sending it fails, it is there for the
// next listener.
func (l *listener) peek() (c chunk, ok bool, end *process.ProcessEvent_EndEvent) {
	if len(l.past) > 0 {
		return l.past[0], true, nil
	}
	o := l.out
	o.mu.Lock()
	defer o.mu.Unlock()
	if i := l.next - o.base; i < int64(len(o.chunks)) {
		return o.chunks[i], true, nil
	}
	return chunk{}, false, o.end
}

// take moves past the chunk that peek returned.
func (l *listener) take() {
	if len(l.past) > 0 {
		l.past[0] = chunk{}
		l.past = l.past[1:]
		return
	}
	o := l.out
	o.mu.Lock()
	defer o.mu.Unlock()
	l.next++
	o.dropTaken()
	o.room.Broadcast()
}

// dropTaken forgets chunks that all listeners have taken. o.mu is held.
func (o *output) dropTaken() {
	least := o.base + int64(len(o.chunks))
	for l := range o.subs {
		least = min(least, l.next)
	}
	for o.base < least {
		o.dropFirst()
	}
}

// dropOver forgets the oldest output above limit. o.mu is held.
func (o *output) dropOver(limit int) {
	for o.size > limit && len(o.chunks) > 1 {
		o.dropFirst()
	}
}

func (o *output) dropFirst() {
	o.size -= o.chunks[0].cost()
	o.chunks[0] = chunk{}
	o.chunks = o.chunks[1:]
	o.base++
}

// add appends output of a process. It copies data. While the slowest listener is outputLimit
// behind, it waits. The wait is bounded: a listener either goes on, or its write deadline drops it
// (see stallTimeout).
func (o *output) add(from stream, data []byte) {
	c := chunk{from: from, data: append([]byte(nil), data...)}
	o.mu.Lock()
	defer o.mu.Unlock()
	for len(o.subs) > 0 && o.size >= outputLimit && !o.closed {
		o.room.Wait()
	}
	if o.end != nil || o.closed {
		return // too late: a child that outlived its parent is writing
	}
	o.count(&c)
	if len(o.subs) == 0 && len(o.chunks) > 0 {
		last := &o.chunks[len(o.chunks)-1]
		if last.from == from && len(last.data)+len(data) <= mergeLimit {
			last.data = append(last.data, data...)
			o.size += len(data)
			o.dropOver(outputLimit)
			return
		}
	}
	o.put(c)
}

// count gives a chunk its position, and keeps it for later. Called with mu held.
func (o *output) count(c *chunk) {
	c.at = o.wrote[c.from]
	o.wrote[c.from] += int64(len(c.data))
	if o.kept != nil {
		o.kept.add(*c)
	}
}

// put appends a chunk and wakes the listeners. Without listeners it drops the oldest output. Called
// with mu held.
func (o *output) put(c chunk) {
	o.chunks = append(o.chunks, c)
	o.size += c.cost()
	if len(o.subs) == 0 {
		o.dropOver(outputLimit)
	}
	o.wakeAll()
}

// finish records that nothing more will come.
func (o *output) finish(end *process.ProcessEvent_EndEvent) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.end = end
	o.wakeAll()
}

// close makes producers never wait again; it is used when the agent closes.
func (o *output) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
	o.room.Broadcast()
}

// wakeAll wakes the listeners. o.mu is held.
func (o *output) wakeAll() {
	for l := range o.subs {
		select {
		case l.wake <- struct{}{}:
		default: // it has a token already
		}
	}
}
