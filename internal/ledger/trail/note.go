package trail

import (
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/attempts"
	"github.com/carrel-dev/carrel/internal/request"
)

// Entry is one operation of a caller.
type Entry = request.Operation

// identityOf names the caller whose share a record takes. Everyone without a key shares one.
func identityOf(e Entry) string {
	switch {
	case e.Caller.KeyID != "":
		return e.Caller.KeyID
	case e.Caller.Person != "":
		return e.Caller.Person
	case e.Kind == carrel.TrailRefuse && e.Caller.Key == "":
		return ""
	}
	return e.Caller.Project + "/" + e.Caller.Key
}

func recordOf(e Entry) carrel.TrailRecord {
	c := e.Caller
	return carrel.TrailRecord{Kind: e.Kind, Key: c.Key, KeyID: c.KeyID, Person: c.Person, Project: c.Project, Role: c.Role,
		From: e.From, Request: e.Request, Op: e.Op, Target: strings.Join(e.Targets, " "), Status: e.Status}
}

// lasting reports whether each operation has a record of its own: it changed something.
func lasting(e Entry) bool { return e.Kind == carrel.TrailChange && e.Status < http.StatusBadRequest }

// Note records an operation. When it returns, the kernel has the record, so that only a crash of the
// whole machine can lose it. Two things are counted instead: operations that change nothing, when the
// same caller did the same lately, and what is beyond the caller's share.
func (t *Trail) Note(e Entry) {
	r := bound(recordOf(e))
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return
	}
	now := t.opts.Now()
	if !lasting(e) && t.folds.repeat(e, r, now) {
		return
	}
	if t.shares.TakeAt(identityOf(e), now) > 0 {
		t.folds.count(e, r, now)
		return
	}
	t.add(r)
}

// Egress records the digest of decisions of the wire that are on the disk. first and last are the
// numbers of the first and last of them.
func (t *Trail) Egress(first, last int64, digest string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed || last < first {
		return
	}
	r := carrel.TrailRecord{Kind: carrel.TrailEgress, First: first, Last: last, Digest: digest}
	t.egress.record(r)
	t.add(r)
}

// EgressCut records that decisions of the wire, up to last, are removed because there are too many
// or because they are too old.
func (t *Trail) EgressCut(last int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed || last <= t.egress.cut {
		return
	}
	r := carrel.TrailRecord{Kind: carrel.TrailEgressCut, Last: last}
	t.egress.record(r)
	t.add(r)
}

// EgressLast returns the number of the newest decision of the wire that a digest covers.
func (t *Trail) EgressLast() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return max(t.egress.last, t.egress.cut)
}

const (
	// recordBytes is the usual size of a record.
	recordBytes = 512
	// burstShare and dailyShare are the parts (1/n) of the whole trail that one caller can fill at
	// once, and then each day.
	burstShare = 8
	dailyShare = 4
)

// newShares returns the callers' shares of a trail.
func newShares(maxBytes int64) *attempts.Counter {
	burst := max(int(maxBytes/recordBytes/burstShare), 16)
	perDay := float64(maxBytes) / recordBytes / dailyShare
	return attempts.New(burst, time.Duration(24*float64(time.Hour)/perDay))
}

const (
	// foldFor is how long equal operations are counted together.
	foldFor = time.Minute
	// maxFolds bounds the operations that are counted separately, and maxFoldsOf those of one
	// caller. Others are counted for each caller, and beyond twice maxFolds all together.
	maxFolds   = 4096
	maxFoldsOf = 512
)

// foldKey says which operations are counted together.
type foldKey struct {
	kind, identity, op, target string
	status                     int
}

// fold counts equal operations since the first one.
type fold struct {
	first carrel.TrailRecord
	since time.Time
	n     int
}

// folds are the operations that are being counted.
type folds struct {
	of     map[foldKey]*fold
	number map[string]int // of each caller's folds
}

func (f *folds) init() { f.of, f.number = map[foldKey]*fold{}, map[string]int{} }

// key returns how an operation is counted.
func (f *folds) key(e Entry, r carrel.TrailRecord) foldKey {
	k := foldKey{kind: e.Kind, identity: identityOf(e), op: r.Op, target: r.Target, status: e.Status}
	switch {
	case e.Kind == carrel.TrailRefuse && k.identity == "":
		k.op, k.target = "", r.From // who tries many doors is one
	case lasting(e):
		k.target, k.status = "", 0
	}
	if f.of[k] != nil {
		return k
	}
	if len(f.of) >= maxFolds || f.number[k.identity] >= maxFoldsOf {
		k = foldKey{kind: e.Kind, identity: k.identity}
	}
	if f.of[k] == nil && len(f.of) >= 2*maxFolds {
		k = foldKey{kind: e.Kind}
	}
	return k
}

// repeat counts an operation if an equal one is being counted. If not, it begins to count, and
// reports false.
func (f *folds) repeat(e Entry, r carrel.TrailRecord, now time.Time) bool {
	k := f.key(e, r)
	if g := f.of[k]; g != nil {
		g.n++
		return true
	}
	f.begin(k, r, now)
	return false
}

// count counts an operation that gets no record of its own.
func (f *folds) count(e Entry, r carrel.TrailRecord, now time.Time) {
	k := f.key(e, r)
	if f.of[k] == nil {
		f.begin(k, r, now)
	}
	f.of[k].n++
}

func (f *folds) begin(k foldKey, r carrel.TrailRecord, now time.Time) {
	r.Request = ""
	if k.op == "" {
		r.Op = ""
	}
	if k.target == "" || k.target == r.From {
		r.Target = ""
	}
	if k.status == 0 {
		r.Status = 0
	}
	f.of[k] = &fold{first: r, since: now}
	f.number[k.identity]++
}

// due returns the records of the counts that are old enough, or of all, and forgets these counts. A
// count whose caller has no share left goes into one count for everything of that kind that the
// caller did.
func (f *folds) due(now time.Time, all bool, take func(identity string) bool) []carrel.TrailRecord {
	ended := map[foldKey]*fold{}
	for k, g := range f.of {
		if !all && now.Sub(g.since).Abs() < foldFor {
			continue
		}
		delete(f.of, k)
		if f.number[k.identity]--; f.number[k.identity] == 0 {
			delete(f.number, k.identity)
		}
		if g.n == 0 {
			continue
		}
		whole := foldKey{kind: k.kind, identity: k.identity}
		if k != whole && !take(k.identity) {
			k = whole
			g.first.Op, g.first.Target, g.first.Status, g.first.From = "", "", 0, ""
		}
		if other := ended[k]; other != nil {
			g.n += other.n
			if other.since.Before(g.since) {
				g.since = other.since
			}
		}
		ended[k] = g
	}
	out := make([]carrel.TrailRecord, 0, len(ended))
	for _, g := range ended {
		r := g.first
		r.Repeats, r.Since = g.n, stamp(g.since)
		out = append(out, r)
	}
	slices.SortFunc(out, func(a, b carrel.TrailRecord) int {
		return strings.Compare(a.Since.Format(time.RFC3339Nano)+a.Op, b.Since.Format(time.RFC3339Nano)+b.Op)
	})
	return out
}

var _ request.Journal = (*Trail)(nil)
