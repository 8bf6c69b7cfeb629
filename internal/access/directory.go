package access

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/state"
)

const (
	// saveUsesEvery is the pause between two writings of when keys were last used. No request
	// waits for one.
	saveUsesEvery = time.Minute
	// keepDead is how long a revoked or expired key stays in lists.
	keepDead = 30 * 24 * time.Hour
	// rearmAfter bounds a timer, so that a step of the clock moves an expiry only this much.
	rearmAfter = time.Hour
)

// Records keeps what a [Directory] must not forget. A [state.Store] is one.
type Records interface {
	Apply(ctx context.Context, c state.Change) error
	Projects(ctx context.Context) ([]state.ProjectRecord, error)
	Keys(ctx context.Context) ([]state.KeyRecord, error)
	People(ctx context.Context) ([]state.PersonRecord, error)
	Organisations(ctx context.Context) ([]state.OrganisationRecord, error)
	Sessions(ctx context.Context) ([]state.SessionRecord, error)
}

// Directory knows the projects and their API keys, and the people and their sessions. It is safe for concurrent use.
//
// # Time
//
// A key is found by the SHA-256 of its secret, in a map. An attacker learns nothing from the time
// that takes: it depends on the hash, and nobody can choose texts whose hashes resemble that of an
// unknown secret. The map is never changed in place, so requests take no lock.
//
// # Order
//
// A change is durable before it has an effect. mu is held for the whole change, also while the
// store writes.
type Directory struct {
	records Records
	log     *slog.Logger
	index   atomic.Pointer[map[[sha256.Size]byte]*credential]
	allowed atomic.Pointer[map[carrel.Holder]allowed] // by holder, those that have something
	held    atomic.Pointer[held]

	mu       sync.Mutex
	projects map[string]state.ProjectRecord
	keys     map[string]*liveKey // by ID
	shared   bool                // other programs use the same records
	roll     *roll
}

// liveKey is a key in memory. Its record is replaced, never changed.
type liveKey struct {
	rec  atomic.Pointer[state.KeyRecord]
	used atomic.Int64 // nanoseconds since 1970 of a use that is not written yet; 0 is none
}

// credential is one secret of a key. A key has two while the old one still works.
type credential struct {
	key   *liveKey
	sum   [sha256.Size]byte
	ctx   context.Context // ends when the secret ends; every stream that it opened ends with it
	cut   context.CancelCauseFunc
	timer *time.Timer // fires at the secret's end; nil if none is known. Directory.mu guards it
}

// OpenDirectory reads the projects and keys.
func OpenDirectory(ctx context.Context, records Records, log *slog.Logger) (*Directory, error) {
	d := &Directory{records: records, log: log, projects: map[string]state.ProjectRecord{}, keys: map[string]*liveKey{},
		roll: newRoll()}
	d.index.Store(&map[[sha256.Size]byte]*credential{})
	d.held.Store(&held{})
	projects, err := records.Projects(ctx)
	if err != nil {
		return nil, err
	}
	keys, err := records.Keys(ctx)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, p := range projects {
		d.projects[p.Project.Name] = p
	}
	for _, k := range keys {
		live := &liveKey{}
		live.rec.Store(&k)
		d.keys[k.Key.ID] = live
	}
	if err := d.loadPeople(ctx); err != nil {
		return nil, err
	}
	d.reindexLocked()
	return d, nil
}

// Tend writes when keys were last used, and forgets dead keys, until ctx ends.
func (d *Directory) Tend(ctx context.Context) {
	tick := time.NewTicker(saveUsesEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		if err := d.save(ctx); err != nil && ctx.Err() == nil {
			d.log.Warn("write when keys were last used", "err", err)
		}
	}
}

// Close writes when keys were last used, and cuts every stream that a key opened.
func (d *Directory) Close() error {
	err := d.save(context.Background())
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range *d.index.Load() {
		c.end(errors.New("the daemon stops"))
	}
	d.index.Store(&map[[sha256.Size]byte]*credential{})
	d.closePeopleLocked()
	return err
}

// save writes the uses that are not written, and removes keys that are dead for long.
func (d *Directory) save(ctx context.Context) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.shared {
		return d.dropEndedLocked(ctx)
	}
	var c state.Change
	old := time.Now().Add(-keepDead)
	for id, live := range d.keys {
		rec := *live.rec.Load()
		if end := rec.Key.Revoked; !end.IsZero() && end.Before(old) ||
			!rec.Key.Expires.IsZero() && rec.Key.Expires.Before(old) {
			c.DeleteKeys = append(c.DeleteKeys, id)
			continue
		}
		if at := live.used.Swap(0); at != 0 {
			rec.Key.LastUsed = time.Unix(0, at).UTC()
			c.PutKeys = append(c.PutKeys, rec)
		}
	}
	d.savePeopleLocked(&c, time.Now())
	if reflect.DeepEqual(c, state.Change{}) {
		return nil
	}
	return d.applyLocked(ctx, c)
}

// applyLocked makes a change durable, and then effective.
func (d *Directory) applyLocked(ctx context.Context, c state.Change) error {
	if err := d.records.Apply(ctx, c); err != nil {
		return err
	}
	d.takeLocked(c)
	return nil
}

// takeLocked makes a change effective that is durable.
func (d *Directory) takeLocked(c state.Change) {
	for _, p := range c.PutProjects {
		d.projects[p.Project.Name] = p
	}
	for _, name := range c.DeleteProjects {
		delete(d.projects, name)
	}
	for _, k := range c.PutKeys {
		live := d.keys[k.Key.ID]
		if live == nil {
			live = &liveKey{}
			d.keys[k.Key.ID] = live
		}
		live.rec.Store(&k)
	}
	for _, id := range c.DeleteKeys {
		delete(d.keys, id)
	}
	d.applyPeopleLocked(c)
	d.reindexLocked()
}

// reindexLocked makes the index anew. Secrets that end are cut, and those that stay keep their
// streams.
func (d *Directory) reindexLocked() {
	before, now := *d.index.Load(), time.Now()
	next := make(map[[sha256.Size]byte]*credential, len(d.keys))
	for _, live := range d.keys {
		rec := live.rec.Load()
		sums := [][sha256.Size]byte{rec.Sum}
		if rec.Old != ([sha256.Size]byte{}) {
			sums = append(sums, rec.Old)
		}
		for _, sum := range sums {
			c := before[sum]
			if c == nil {
				c = &credential{key: live, sum: sum}
				c.ctx, c.cut = context.WithCancelCause(context.Background())
			}
			next[sum] = c
			d.watchLocked(c, now)
		}
	}
	for sum, c := range before {
		if next[sum] == nil {
			c.end(errGone)
		}
	}
	d.index.Store(&next)
	d.allowLocked()
	d.rerollLocked()
}

// watchLocked cuts a secret that has ended, and sets the timer of another.
func (d *Directory) watchLocked(c *credential, now time.Time) {
	if err := c.fault(now); err != nil {
		c.end(err)
		return
	}
	if c.timer != nil {
		c.timer.Stop()
		c.timer = nil
	}
	if end := c.ends(); !end.IsZero() {
		c.timer = time.AfterFunc(min(end.Sub(now), rearmAfter), func() {
			d.mu.Lock()
			defer d.mu.Unlock()
			if (*d.index.Load())[c.sum] == c {
				d.watchLocked(c, time.Now())
			}
		})
	}
}

// end cuts the streams that the secret opened.
func (c *credential) end(why error) {
	if c.timer != nil {
		c.timer.Stop()
		c.timer = nil
	}
	c.cut(why)
}

// ends is when the secret stops working; zero is never.
func (c *credential) ends() time.Time {
	rec := c.key.rec.Load()
	end := rec.Key.Expires
	if old := rec.Key.OldUntil; c.sum == rec.Old && (end.IsZero() || old.Before(end)) {
		end = old
	}
	return end
}

var errGone = refused("this API key does not exist any more")

// refused is the error for a secret that works no more. Only its holder sees the text.
func refused(format string, args ...any) error {
	return &carrel.Error{Kind: carrel.Unauthenticated, Err: fmt.Errorf(format, args...),
		Hint: "ask an administrator of the project for another: carrel key create"}
}

// fault says why the secret does not work; nil if it does.
func (c *credential) fault(now time.Time) error {
	rec := c.key.rec.Load()
	k := rec.Key
	switch {
	case !k.Revoked.IsZero():
		return refused("the API key %q was revoked at %s", k.Name, k.Revoked.Format(time.RFC3339))
	case !k.Expires.IsZero() && !now.Before(k.Expires):
		return refused("the API key %q expired at %s", k.Name, k.Expires.Format(time.RFC3339))
	case c.sum == rec.Old && !now.Before(k.OldUntil):
		return refused("the API key %q got another secret, and this one ended at %s", k.Name, k.OldUntil.Format(time.RFC3339))
	}
	return nil
}

// find returns what a secret opens; nil for a text that is no key's.
func (d *Directory) find(sum [sha256.Size]byte) *credential { return (*d.index.Load())[sum] }

// caller returns the holder of the secret, and notes its use.
func (c *credential) caller(now time.Time) carrel.Caller {
	k := c.key.rec.Load().Key
	c.key.used.Store(now.UnixNano())
	return carrel.Caller{Key: k.Name, KeyID: k.ID, Project: k.Project, Role: k.Scope.Role()}
}

// secretPrefix begins each API key, and tokenPrefix each access token, as E2B's clients want.
const (
	secretPrefix = "e2b_"
	tokenPrefix  = "sk_e2b_"
)

// newSecret returns a random secret of 160 bits, its mask and its hash.
func newSecret(prefix string) (secret, mask string, sum [sha256.Size]byte) {
	var b [20]byte
	_, _ = rand.Read(b[:]) // never fails: crypto/rand aborts the process instead
	text := hex.EncodeToString(b[:])
	secret = prefix + text
	return secret, prefix + text[:2] + "…" + text[len(text)-4:], sha256.Sum256([]byte(secret))
}

// newUUID returns a random UUID.
func newUUID() string {
	var b [16]byte
	_, _ = rand.Read(b[:])
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80 // version 4, variant of RFC 9562
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[0:4], b[4:6], b[6:8], b[8:10], b[10:16])
}

// list returns the keys of a project, oldest first; "" is all projects.
func (d *Directory) list(project string) []carrel.APIKey {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := []carrel.APIKey{}
	for _, live := range d.keys {
		if k := live.now(); project == "" || k.Project == project {
			out = append(out, k)
		}
	}
	slices.SortFunc(out, func(a, b carrel.APIKey) int { return cmp.Or(a.Created.Compare(b.Created), strings.Compare(a.ID, b.ID)) })
	return out
}

// now is the key with its latest use.
func (l *liveKey) now() carrel.APIKey {
	k := l.rec.Load().Key
	if at := l.used.Load(); at != 0 {
		k.LastUsed = time.Unix(0, at).UTC()
	}
	return k
}

// namedLocked returns the working key of a project with a name; nil if there is none.
func (d *Directory) namedLocked(project, name string, now time.Time) *liveKey {
	for _, live := range d.keys {
		if k := live.rec.Load().Key; k.Project == project && k.Name == name && k.Works(now) {
			return live
		}
	}
	return nil
}

// project returns a project. The default one always exists.
func (d *Directory) project(name string) (carrel.Project, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.projectLocked(name)
}

func (d *Directory) projectLocked(name string) (carrel.Project, bool) {
	p, ok := d.projects[name]
	if !ok && name == carrel.DefaultProject {
		p.Project, ok = carrel.Project{Name: name}, true
	}
	p.Project.ID, p.Project.Default = carrel.TeamID(name), name == carrel.DefaultProject
	return p.Project, ok
}

// allProjects returns all projects by name.
func (d *Directory) allProjects() []carrel.Project {
	d.mu.Lock()
	defer d.mu.Unlock()
	names := slices.Collect(maps.Keys(d.projects))
	if _, ok := d.projects[carrel.DefaultProject]; !ok {
		names = append(names, carrel.DefaultProject)
	}
	slices.Sort(names)
	out := make([]carrel.Project, len(names))
	for i, name := range names {
		out[i], _ = d.projectLocked(name)
	}
	return out
}
