package refusal

import (
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"
)

// Bounds of one record's texts, in bytes. The kernel's bound on a path is 4096.
const (
	maxWhat = 4096
	maxText = 1024
)

// defaultMax is how many records a Log keeps.
const defaultMax = 1000

// Options are a Log's settings. The zero value is usable.
type Options struct {
	Max int              // records kept; 0 is 1000. More are counted in Dropped
	Now func() time.Time // time.Now if nil
}

// Log collects refusals. It is safe for concurrent use.
//
// A full Log makes room for rules with few records. If a new record's rule has fewer records than
// another, the newest record of the rule with the most goes. So a flood against one rule hides no
// record of the others.
type Log struct {
	max int
	now func() time.Time

	mu      sync.Mutex
	records map[key]*Refusal
	order   []*Refusal
	groups  map[group]int // how many of order each has
	dropped int
}

// key holds the fields that equal records share.
type key struct {
	kind                  Kind
	what, rule, operation string
}

// group is a set of records that share the room of a full Log.
type group struct {
	kind Kind
	rule string
}

// New returns an empty Log.
func New(o Options) *Log {
	if o.Max <= 0 {
		o.Max = defaultMax
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Log{max: o.Max, now: o.Now, records: map[key]*Refusal{}, groups: map[group]int{}}
}

// Add adds one refusal. The Log sets Count, First and Last. Records are equal when Kind, What, Rule
// and Operation are equal. Of equal records the first is kept. It is Certain if one of them was,
// and Minor if all of them were.
func (l *Log) Add(r Refusal) {
	r.What = clean(r.What, maxWhat)
	for _, s := range []*string{&r.Operation, &r.Rule, &r.Reason, &r.Allow, &r.Program} {
		*s = clean(*s, maxText)
	}
	k := key{r.Kind, r.What, r.Rule, r.Operation}
	now := l.now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if old := l.records[k]; old != nil {
		old.Count++
		old.Last = now
		old.Certain = old.Certain || r.Certain
		old.Minor = old.Minor && r.Minor
		return
	}
	if len(l.order) >= l.max && !l.makeRoom(group{r.Kind, r.Rule}) {
		l.dropped++
		return
	}
	r.Count, r.First, r.Last = 1, now, now
	kept := r
	l.records[k] = &kept
	l.order = append(l.order, &kept)
	l.groups[group{r.Kind, r.Rule}]++
}

// makeRoom drops a record to make room for one of g, if another group has at least two more.
func (l *Log) makeRoom(g group) bool {
	var most group
	for other, n := range l.groups {
		if n > l.groups[most] || n == l.groups[most] && other.rule < most.rule {
			most = other
		}
	}
	if l.groups[most] < l.groups[g]+2 {
		return false
	}
	for i := len(l.order) - 1; i >= 0; i-- {
		r := l.order[i]
		if (group{r.Kind, r.Rule}) != most {
			continue
		}
		l.order = slices.Delete(l.order, i, i+1)
		delete(l.records, key{r.Kind, r.What, r.Rule, r.Operation})
		if l.groups[most]--; l.groups[most] == 0 {
			delete(l.groups, most)
		}
		l.dropped += r.Count
		return true
	}
	return false
}

// List returns the refusals in the order of their first attempts, and how many attempts did not
// fit. The list is never nil.
func (l *Log) List() (list []Refusal, dropped int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	list = make([]Refusal, 0, len(l.order))
	for _, r := range l.order {
		list = append(list, *r)
	}
	return list, l.dropped
}

// clean bounds a text. It writes bytes that are not UTF-8 as \xNN, so that different names stay
// different.
func clean(s string, most int) string {
	if len(s) > most {
		cut := most
		for cut > most-utf8.UTFMax && !utf8.RuneStart(s[cut]) {
			cut--
		}
		s = s[:cut] + "…"
	}
	if utf8.ValidString(s) {
		return strings.Clone(s)
	}
	var b strings.Builder
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		if r == utf8.RuneError && n == 1 {
			b.WriteString(`\x` + strconv.FormatUint(uint64(s[0])|0x100, 16)[1:])
		} else {
			b.WriteString(s[:n])
		}
		s = s[n:]
	}
	return b.String()
}
