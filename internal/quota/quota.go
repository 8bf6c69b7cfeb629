// Package quota counts what sandboxes hold, for each project and each API key, and says when a quota
// refuses more.
//
// A [Book] holds no number of its own that could go wrong: it is the sum of the charges that the
// owner puts into it, one for each living sandbox, and a new owner makes it anew from the sandboxes'
// records. Check and charge are one step, under the owner's lock, so parallel requests never pass a
// limit together.
//
// Threat: the holder of a key sends many requests at once, or many that fail, to hold more than its
// share, or to make the project's other keys wait. A refused request leaves nothing in the book.
package quota

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/carrel-dev/carrel"
)

// One is the number one, in which limits are counted.
const One carrel.Milli = 1000

// Window is the time over which creations are counted.
const Window = time.Minute

// Bound is a quota and whose it is.
type Bound struct {
	carrel.Holder
	// Of is whose it is, for people.
	Of    string
	Quota carrel.Quota
}

// Load is what one sandbox holds.
type Load struct{ Sandboxes, VCPUs, Memory, Disk carrel.Milli }

// LoadOf returns what a sandbox of a size holds. The sandbox of a build counts towards the sizes
// alone.
func LoadOf(sb carrel.Sandbox) Load {
	l := Load{One, carrel.Milli(math.Ceil(sb.Limits.CPUs * float64(One))), whole(sb.Limits.MemoryMB), whole(sb.Limits.DiskMB)}
	if sb.Build != "" {
		l.Sandboxes = 0
	}
	return l
}

// Sound reports whether a load that another machine tells of can be one.
func (l Load) Sound() bool {
	const most = 1 << 32 * One // so that a million of them can be added up
	in := func(n, most carrel.Milli) bool { return n >= 0 && n <= most }
	return in(l.Sandboxes, One) && in(l.VCPUs, most) && in(l.Memory, most) && in(l.Disk, most)
}

// whole is a whole number as a Milli.
func whole(n int) carrel.Milli { return carrel.Milli(min(n, math.MaxInt/int(One))) * One }

// each calls fn with each part that is not 0.
func (l Load) each(fn func(carrel.LimitName, carrel.Milli)) {
	for _, p := range [...]struct {
		name carrel.LimitName
		n    carrel.Milli
	}{{carrel.LimitSandboxes, l.Sandboxes}, {carrel.LimitVCPUs, l.VCPUs}, {carrel.LimitMemory, l.Memory}, {carrel.LimitDisk, l.Disk}} {
		if p.n != 0 {
			fn(p.name, p.n)
		}
	}
}

// Charge is what one sandbox is charged for. The zero Charge is nothing. The book's owner keeps it.
type Charge struct {
	project, key string
	load         Load
	taken        bool
}

// sum is what one holder holds.
type sum struct {
	held  map[carrel.LimitName]carrel.Milli
	begun []time.Time // creations within the last Window, oldest first
}

// Book is a sum of charges. It is not safe for concurrent use: its owner's lock guards it.
type Book struct{ sums map[carrel.Holder]*sum }

// NewBook returns an empty book.
func NewBook() *Book { return &Book{map[carrel.Holder]*sum{}} }

// holders are the two holders that pay for a sandbox.
func holders(project, key string) []carrel.Holder {
	all := []carrel.Holder{{Project: project}}
	if key != "" {
		all = append(all, carrel.Holder{Project: project, Key: key})
	}
	return all
}

func (b *Book) of(h carrel.Holder) *sum {
	s := b.sums[h]
	if s == nil {
		s = &sum{held: map[carrel.LimitName]carrel.Milli{}}
		b.sums[h] = s
	}
	return s
}

// Check says which hard limit refuses a load; nil for none. creates is how many creations it is.
// after is when a creation fits again, if that is what is refused.
func (b *Book) Check(bounds []Bound, l Load, creates int, now time.Time) (hit *carrel.LimitHit, after time.Duration) {
	for _, bound := range bounds {
		s := b.sums[bound.Holder]
		l.each(func(name carrel.LimitName, n carrel.Milli) {
			if hit == nil {
				hit = Over(bound, name, s.has(name), n)
			}
		})
		if hit != nil || creates == 0 {
			continue
		}
		begun := s.since(now)
		if hit = Over(bound, carrel.LimitCreates, whole(len(begun)), whole(creates)); hit != nil {
			after = wait(begun, int(hit.Limit/One), creates, now)
		}
	}
	return hit, after
}

// wait is how long it takes until creations fit among at most limit of them.
func wait(begun []time.Time, limit, creates int, now time.Time) time.Duration {
	if creates > limit {
		return 0 // never
	}
	return begun[len(begun)+creates-limit-1].Add(Window).Sub(now)
}

// Over says that a use would be over a hard limit; nil if it is not, or has no limit.
func Over(b Bound, name carrel.LimitName, used, asked carrel.Milli) *carrel.LimitHit {
	limit, bounded := b.Quota.Hard[name]
	if !bounded || used <= limit && asked <= limit-used {
		return nil
	}
	return &carrel.LimitHit{Name: name, Of: b.Of, Key: b.Key, Limit: limit, Used: used, Asked: asked}
}

// Take charges a sandbox unless a hard limit refuses it. It returns the soft limits that this charge
// is the first to pass.
func (b *Book) Take(c *Charge, bounds []Bound, project, key string, l Load, creates int,
	now time.Time) (soft []carrel.LimitHit, hit *carrel.LimitHit, after time.Duration) {
	if hit, after = b.Check(bounds, l, creates, now); hit != nil {
		return nil, hit, after
	}
	for _, bound := range bounds {
		s := b.sums[bound.Holder]
		passed := func(name carrel.LimitName, n carrel.Milli) {
			if h := crossed(bound, name, s.has(name), n); h != nil {
				soft = append(soft, *h)
			}
		}
		l.each(passed)
		if creates > 0 {
			if h := crossed(bound, carrel.LimitCreates, whole(len(s.since(now))), whole(creates)); h != nil {
				soft = append(soft, *h)
			}
		}
	}
	b.Put(c, project, key, l)
	for range creates {
		b.Began(project, key, now)
	}
	return soft, nil, 0
}

// crossed says that a use passes a soft limit that was not passed before.
func crossed(b Bound, name carrel.LimitName, used, asked carrel.Milli) *carrel.LimitHit {
	limit, bounded := b.Quota.Soft[name]
	if !bounded || used > limit || asked <= limit-used {
		return nil
	}
	return &carrel.LimitHit{Name: name, Of: b.Of, Key: b.Key, Limit: limit, Used: used, Asked: asked}
}

// Put charges a sandbox that lives already. No limit refuses it.
func (b *Book) Put(c *Charge, project, key string, l Load) {
	b.Give(c)
	*c = Charge{project, key, l, true}
	for _, h := range holders(project, key) {
		s := b.of(h)
		l.each(func(name carrel.LimitName, n carrel.Milli) { s.held[name] += n })
	}
}

// Give takes a charge back. It does nothing for one that was taken back before.
func (b *Book) Give(c *Charge) {
	if !c.taken {
		return
	}
	for _, h := range holders(c.project, c.key) {
		s := b.of(h)
		c.load.each(func(name carrel.LimitName, n carrel.Milli) {
			if s.held[name] -= n; s.held[name] == 0 {
				delete(s.held, name)
			}
		})
		b.drop(h)
	}
	*c = Charge{}
}

// Began notes a creation.
func (b *Book) Began(project, key string, at time.Time) {
	for _, h := range holders(project, key) {
		s := b.of(h)
		begun := s.since(at) // nobody else has the slice
		i := len(begun)
		if i > 0 && at.Before(begun[i-1]) {
			i, _ = slices.BinarySearchFunc(begun, at, time.Time.Compare)
		}
		s.begun = slices.Insert(begun, i, at)
	}
}

// Undo takes back a creation that failed: the last one of its holders.
func (b *Book) Undo(project, key string) {
	for _, h := range holders(project, key) {
		if s := b.sums[h]; s != nil && len(s.begun) > 0 {
			s.begun = s.begun[:len(s.begun)-1]
			b.drop(h)
		}
	}
}

// drop forgets a holder that holds nothing.
func (b *Book) drop(h carrel.Holder) {
	if s := b.sums[h]; s != nil && len(s.held) == 0 && len(s.begun) == 0 {
		delete(b.sums, h)
	}
}

// Used returns what a holder uses of the limits that the book knows.
func (b *Book) Used(h carrel.Holder, now time.Time) map[carrel.LimitName]carrel.Milli {
	s := b.sums[h]
	out := map[carrel.LimitName]carrel.Milli{carrel.LimitCreates: whole(len(s.since(now)))}
	for _, name := range []carrel.LimitName{carrel.LimitSandboxes, carrel.LimitVCPUs, carrel.LimitMemory, carrel.LimitDisk} {
		out[name] = s.has(name)
	}
	return out
}

// Projects calls fn with what each project holds.
func (b *Book) Projects(fn func(project string, l Load)) {
	for h, s := range b.sums {
		if h.Key == "" {
			fn(h.Project, Load{s.has(carrel.LimitSandboxes), s.has(carrel.LimitVCPUs),
				s.has(carrel.LimitMemory), s.has(carrel.LimitDisk)})
		}
	}
}

func (s *sum) has(name carrel.LimitName) carrel.Milli {
	if s == nil {
		return 0
	}
	return s.held[name]
}

// since returns the creations within the Window before now.
func (s *sum) since(now time.Time) []time.Time {
	if s == nil {
		return nil
	}
	first := now.Add(-Window)
	i := 0
	for i < len(s.begun) && !s.begun[i].After(first) {
		i++
	}
	return s.begun[i:]
}

// words say what a limit bounds.
var words = map[carrel.LimitName]string{
	carrel.LimitSandboxes: "sandboxes alive at once",
	carrel.LimitCreates:   "sandboxes made in a minute",
	carrel.LimitVCPUs:     "vCPUs in living sandboxes",
	carrel.LimitMemory:    "MiB of memory in living sandboxes",
	carrel.LimitDisk:      "MiB of disk in living sandboxes",
	carrel.LimitSnapshots: "MiB of snapshots",
	carrel.LimitBuilds:    "builds at once",
	carrel.LimitEgress:    "MiB sent to the outside in a day",
	carrel.LimitForks:     "forks by one call",
}

// hints say what to do.
var hints = map[carrel.LimitName]string{
	carrel.LimitCreates:   "make fewer, or wait: Retry-After says when there is room",
	carrel.LimitSnapshots: "delete snapshots or paused sandboxes",
	carrel.LimitBuilds:    "wait until a build has ended, or cancel one",
	carrel.LimitEgress:    "wait for the next day (UTC)",
	carrel.LimitForks:     "ask for fewer forks in one call",
}

// Say puts a hit into words.
func Say(h carrel.LimitHit) string {
	text := fmt.Sprintf("%s may have %s %s", h.Of, h.Limit, words[h.Name])
	if h.Name == carrel.LimitForks {
		return fmt.Sprintf("%s, not %s", text, h.Asked)
	}
	text += fmt.Sprintf(" and has %s", h.Used)
	if h.Asked != One && h.Asked != 0 {
		text += fmt.Sprintf("; this would add %s", h.Asked)
	}
	return text
}

// Error is the error for a hit. after is when to try again; 0 is unknown.
func Error(op string, h carrel.LimitHit, after time.Duration) error {
	hint := hints[h.Name]
	if hint == "" {
		hint = "kill or pause some, or wait for their timeouts"
	}
	hit := h
	return &carrel.Error{Op: op, Kind: carrel.Exhausted, Field: string(h.Name), Err: fmt.Errorf("%s", Say(h)),
		Hint: hint + "; 'carrel quota' shows the limits", RetryAfter: after, Limit: &hit}
}
