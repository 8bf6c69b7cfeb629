package inbox

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/carrel-dev/carrel"
)

// Bounds of what is held at once, in connections and requests, and of what is remembered.
const (
	perSandbox = 64
	perProject = 1024
	inAll      = 4096
	maxGrants  = 1000 // answers for an hour, of one sandbox
	maxPast    = 1000 // answered questions that a second answer is told about
	// New questions of one sandbox: askRate per second, askBurst at once.
	askRate, askBurst = 0.5, 64

	hour = time.Hour
)

// Ask is what the wire asks.
type Ask struct {
	carrel.Question
	// Key tells the rule that asks from others. Question.Rule is its name for people.
	Key string
	// Hold is how long the connection may wait.
	Hold time.Duration
	// Held, if given, is called when the connection waits, and not when the answer is known already.
	// It returns the program that made the connection, or "".
	Held func(q carrel.Question) (process string)
}

// Reply is the answer to the wire. The zero Reply is a no.
type Reply struct {
	Allow bool
	// By says who answered and for how long, for the audit log; "" if nobody did.
	By string
	// Reason and Hint explain a no.
	Reason, Hint string
}

// Options are what an Inbox calls. No function is required.
type Options struct {
	// Held is called for each new question.
	Held func(q carrel.Question)
	// Answered is called for each answer that counts.
	Answered func(q carrel.Question)
	// Now replaces the clock in tests.
	Now func() time.Time
}

// Inbox is safe for concurrent use.
type Inbox struct {
	opts Options

	mu      sync.Mutex
	changed chan struct{} // closed at the next change
	open    map[string]*entry
	byKey   map[key]*entry
	past    []carrel.Question
	held    int
	project map[string]int
	boxes   map[carrel.ID]*box
}

// key says which questions are equal.
type key struct {
	sandbox      carrel.ID
	rule, host   string
	port         uint16
	protocol     string
	method, path string
}

// entry is one open question.
type entry struct {
	key   key
	q     carrel.Question
	busy  bool // somebody's answer is being carried out
	reply Reply
	done  chan struct{} // closed after reply is set
}

// box is what is known of one sandbox.
type box struct {
	held   int
	ended  bool // no answer is kept for it
	pace   *rate.Limiter
	grants map[key]grant
}

// grant is an answer for an hour.
type grant struct {
	reply Reply
	until time.Time
}

// New returns an empty Inbox.
func New(opts Options) *Inbox {
	if opts.Now == nil {
		opts.Now = time.Now
	}
	return &Inbox{opts: opts, changed: make(chan struct{}), open: map[string]*entry{}, byKey: map[key]*entry{},
		project: map[string]int{}, boxes: map[carrel.ID]*box{}}
}

// keyOf is the key of a question. The address is no part of it: it may change, and is judged anew.
func keyOf(a Ask) key {
	return key{a.Sandbox, a.Key, a.Host, a.Port, a.Protocol, a.Method, a.Path}
}

// boxOf returns what is known of a sandbox.
func (b *Inbox) boxOf(id carrel.ID) *box {
	x := b.boxes[id]
	if x == nil {
		x = &box{pace: rate.NewLimiter(askRate, askBurst), grants: map[key]grant{}}
		b.boxes[id] = x
	}
	return x
}

// Ask waits for the answer to a question. It waits at most Hold, and no longer than ctx. Every other
// end than a person's yes is a no.
func (b *Inbox) Ask(ctx context.Context, a Ask) Reply {
	if ctx.Err() != nil {
		return Reply{Reason: gone}
	}
	late := time.NewTimer(a.Hold)
	defer late.Stop()
	e, isNew, reply := b.enter(a)
	if e == nil {
		return reply
	}
	defer b.leave(e)
	q := b.tell(e, a.Held)
	if isNew && b.opts.Held != nil {
		b.opts.Held(q)
	}
	select {
	case <-e.done:
		return e.reply
	case <-ctx.Done():
		return Reply{Reason: gone}
	case <-late.C:
		return Reply{Reason: fmt.Sprintf("nobody answered within %v", a.Hold), Hint: "ask a person to answer: carrel inbox"}
	}
}

// tell tells the sandbox that a connection waits, and notes the program that made it.
func (b *Inbox) tell(e *entry, held func(carrel.Question) string) carrel.Question {
	b.mu.Lock()
	q := e.q
	b.mu.Unlock()
	if held == nil {
		return q
	}
	process := held(q)
	b.mu.Lock()
	defer b.mu.Unlock()
	if process != "" && e.q.Process == "" {
		e.q.Process = process
		b.change()
	}
	return e.q
}

const gone = "the connection ended before a person answered"

// enter counts a connection as held. It returns nil and the reply if the connection need not wait,
// or must not.
func (b *Inbox) enter(a Ask) (e *entry, isNew bool, r Reply) {
	b.mu.Lock()
	defer b.mu.Unlock()
	k, x, now := keyOf(a), b.boxOf(a.Sandbox), b.opts.Now()
	if g, ok := x.grants[k]; ok {
		if now.Before(g.until) {
			return nil, false, g.reply
		}
		delete(x.grants, k)
	}
	for _, bound := range []struct {
		held, most int
		what       string
	}{{x.held, perSandbox, "of the sandbox"}, {b.project[a.Project], perProject, "of the project"}, {b.held, inAll, "of this machine"}} {
		if bound.held >= bound.most {
			return nil, false, Reply{Reason: fmt.Sprintf("%d connections %s wait for a person already", bound.held, bound.what),
				Hint: "wait until some are answered"}
		}
	}
	if e = b.byKey[k]; e == nil {
		if !x.pace.AllowN(now, 1) {
			return nil, false, Reply{Reason: "the sandbox asks too many questions", Hint: "wait, and ask for less"}
		}
		e, isNew = &entry{key: k, q: a.Question, done: make(chan struct{})}, true
		e.q.ID, e.q.Asked, e.q.Waiting = newID(), now.UTC().Round(0), 0
		b.open[e.q.ID], b.byKey[k] = e, e
	}
	e.q.Waiting++
	e.q.Until = now.Add(a.Hold).UTC().Round(0)
	x.held++
	b.held++
	b.project[a.Project]++
	b.change()
	return e, isNew, Reply{}
}

// newID makes the ID of a question.
func newID() string {
	var r [16]byte
	_, _ = rand.Read(r[:])
	return "q" + hex.EncodeToString(r[:])
}

// leave ends the wait of one connection, and the question with the last one.
func (b *Inbox) leave(e *entry) {
	b.mu.Lock()
	defer b.mu.Unlock()
	e.q.Waiting--
	b.held--
	if b.project[e.q.Project]--; b.project[e.q.Project] == 0 {
		delete(b.project, e.q.Project)
	}
	if x := b.boxes[e.key.sandbox]; x != nil {
		if x.held--; x.held == 0 && x.ended {
			delete(b.boxes, e.key.sandbox)
		}
	}
	if e.q.Waiting == 0 {
		b.remove(e)
	}
	b.change()
}

// remove takes a question out of the lists.
func (b *Inbox) remove(e *entry) {
	delete(b.open, e.q.ID)
	if b.byKey[e.key] == e {
		delete(b.byKey, e.key)
	}
}

// change wakes those who wait for a change.
func (b *Inbox) change() {
	close(b.changed)
	b.changed = make(chan struct{})
}

// Forget drops the answers for an hour of a sandbox that has ended.
func (b *Inbox) Forget(id carrel.ID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if x := b.boxes[id]; x != nil && x.held == 0 {
		delete(b.boxes, id)
	} else if x != nil {
		x.ended = true
		clear(x.grants)
	}
}

// List lists the open questions that see selects, the oldest first. With wait it returns when the
// list is another than that of revision, or after wait, or when ctx ends.
func (b *Inbox) List(ctx context.Context, wait time.Duration, revision int64, see func(carrel.Question) bool) carrel.InboxList {
	late := time.NewTimer(max(wait, 0))
	defer late.Stop()
	for {
		b.mu.Lock()
		out, changed := carrel.InboxList{Questions: []carrel.Question{}}, b.changed
		for _, e := range b.open {
			if see(e.q) {
				out.Questions = append(out.Questions, e.q)
			}
		}
		b.mu.Unlock()
		slices.SortFunc(out.Questions, func(x, y carrel.Question) int {
			return cmp.Or(x.Asked.Compare(y.Asked), cmp.Compare(x.ID, y.ID))
		})
		out.Revision = revisionOf(out.Questions)
		if wait <= 0 || out.Revision != revision {
			return out
		}
		select {
		case <-changed:
		case <-late.C:
			return out
		case <-ctx.Done():
			return out
		}
	}
}

// revisionOf is a number for a list. It tells nothing of the questions that are not in it.
func revisionOf(list []carrel.Question) int64 {
	h := fnv.New64a()
	for _, q := range list {
		fmt.Fprintln(h, q.ID, q.Waiting, q.Process, q.Until.UnixNano())
	}
	const exact = 1<<53 - 1 // what every reader of JSON keeps
	return int64(h.Sum64() & exact)
}

// Answer answers a question that see selects. always, which is called for an answer for ever, puts
// it into the policy. Errors: NotFound, Conflict, Invalid, and those of always.
func (b *Inbox) Answer(id, by string, a carrel.Answer, see func(carrel.Question) bool, always func(q carrel.Question, key string) error) (carrel.Question, error) {
	if a.For == "" {
		a.For = carrel.ForOnce
	}
	switch {
	case a.Answer != carrel.AnswerAllow && a.Answer != carrel.AnswerDeny:
		return carrel.Question{}, wrong(carrel.Invalid, "answer", "it is neither allow nor deny")
	case a.For != carrel.ForOnce && a.For != carrel.ForHour && a.For != carrel.ForAlways:
		return carrel.Question{}, wrong(carrel.Invalid, "for", "it is none of once, hour and always")
	}
	e, q, err := b.claim(id, see)
	if err != nil {
		return carrel.Question{}, err
	}
	if a.For == carrel.ForAlways {
		if err := always(q, e.key.rule); err != nil {
			b.mu.Lock()
			e.busy = false
			b.mu.Unlock()
			return carrel.Question{}, err
		}
	}
	q, err = b.settle(e, &carrel.Answered{Answer: a, By: by, Time: b.opts.Now().UTC().Round(0)})
	if err == nil && b.opts.Answered != nil {
		b.opts.Answered(q)
	}
	return q, err
}

func wrong(k carrel.Kind, field, format string, args ...any) error {
	return &carrel.Error{Op: "answer question", Kind: k, Field: field, Err: fmt.Errorf(format, args...)}
}

// claim finds an open question for one answer.
func (b *Inbox) claim(id string, see func(carrel.Question) bool) (*entry, carrel.Question, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if i := slices.IndexFunc(b.past, func(q carrel.Question) bool { return q.ID == id && see(q) }); i >= 0 {
		return nil, carrel.Question{}, twice(b.past[i])
	}
	e := b.open[id]
	switch {
	case e == nil || !see(e.q):
		return nil, carrel.Question{}, &carrel.Error{Op: "answer question", Kind: carrel.NotFound,
			Err: errors.New("no such question: its connections may have ended"), Hint: "carrel inbox lists what waits"}
	case e.busy:
		return nil, carrel.Question{}, wrong(carrel.Conflict, "", "somebody else is answering")
	}
	e.busy = true
	return e, e.q, nil
}

// twice is the error for a second answer.
func twice(q carrel.Question) error {
	was := q.Answered
	return &carrel.Error{Op: "answer question", Kind: carrel.Conflict, ID: q.Sandbox,
		Err: fmt.Errorf("%s has answered already: %s, %s", was.By, was.Answer.Answer, forWords[was.For])}
}

var forWords = map[string]string{carrel.ForOnce: "once", carrel.ForHour: "for an hour", carrel.ForAlways: "for ever"}

// settle gives an answer to all who wait, and remembers it.
func (b *Inbox) settle(e *entry, was *carrel.Answered) (carrel.Question, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if e.q.Waiting == 0 && was.For == carrel.ForOnce {
		return carrel.Question{}, wrong(carrel.NotFound, "", "the connection has ended")
	}
	r := Reply{Allow: was.Answer.Answer == carrel.AnswerAllow, By: fmt.Sprintf("%s, %s", was.By, forWords[was.For])}
	if !r.Allow {
		r.Reason = fmt.Sprintf("%s said no, %s", was.By, forWords[was.For])
	}
	if was.For == carrel.ForHour {
		x := b.boxOf(e.key.sandbox)
		now := b.opts.Now()
		for k, g := range x.grants {
			if !now.Before(g.until) {
				delete(x.grants, k)
			}
		}
		if len(x.grants) >= maxGrants {
			e.busy = false
			return carrel.Question{}, wrong(carrel.Exhausted, "for", "the sandbox has %d answers for an hour already", maxGrants)
		}
		x.grants[e.key] = grant{r, now.Add(hour)}
	}
	q := e.q
	q.Answered = was
	e.reply = r
	close(e.done)
	b.remove(e)
	if b.past = append(b.past, q); len(b.past) > maxPast {
		b.past = slices.Delete(b.past, 0, len(b.past)-maxPast)
	}
	b.change()
	return q, nil
}
