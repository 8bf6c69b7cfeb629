package access

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/state"
)

// roll is the part of a [Directory] that is about people: who they are, what they may do, and their
// sessions. Directory.mu guards the maps.
type roll struct {
	people        map[string]*livePerson // by ID
	names         map[string]*livePerson
	organisations map[string]state.OrganisationRecord
	sessions      map[string]*liveSession // by ID
	// groups says what the provider's groups may do.
	groups []GroupRole
	// index finds a session by its secret's hash. It is replaced, never changed.
	index atomic.Pointer[map[[sha256.Size]byte]*liveSession]
}

func newRoll() *roll {
	r := &roll{people: map[string]*livePerson{}, sessions: map[string]*liveSession{},
		organisations: map[string]state.OrganisationRecord{}}
	r.index.Store(&map[[sha256.Size]byte]*liveSession{})
	return r
}

// GroupRole gives everybody in a group of the identity provider a role in a project.
type GroupRole struct {
	Group, Project string
	Role           carrel.KeyScope
}

// livePerson is a person in memory. Its record is replaced, never changed.
type livePerson struct {
	rec    atomic.Pointer[state.PersonRecord]
	seen   atomic.Int64 // nanoseconds since 1970 of a use that is not written yet; 0 is none
	grants atomic.Pointer[map[string]*grant]
}

// grant is the right of a person in a project. Every stream that it opened ends with it.
type grant struct {
	project string
	scope   carrel.KeyScope
	ctx     context.Context
	cut     context.CancelCauseFunc
}

// liveSession is a session in memory.
type liveSession struct {
	rec    atomic.Pointer[state.SessionRecord]
	person *livePerson
	used   atomic.Int64
	ctx    context.Context
	cut    context.CancelCauseFunc
	timer  *time.Timer // fires at the session's end. Directory.mu guards it
}

var errSignedOut = refusedPerson("this session has ended")

// refusedPerson is the error for a session that works no more.
func refusedPerson(format string, args ...any) error {
	return &carrel.Error{Kind: carrel.Unauthenticated, Err: fmt.Errorf(format, args...),
		Hint: "sign in again: carrel login URL, or the page /login"}
}

// loadPeople reads the people, organisations and sessions. The caller holds mu.
func (d *Directory) loadPeople(ctx context.Context) error {
	people, err := d.records.People(ctx)
	if err != nil {
		return err
	}
	orgs, err := d.records.Organisations(ctx)
	if err != nil {
		return err
	}
	sessions, err := d.records.Sessions(ctx)
	if err != nil {
		return err
	}
	for _, p := range people {
		d.putPersonLocked(p)
	}
	for _, o := range orgs {
		d.roll.organisations[o.Organisation.Name] = o
	}
	for _, s := range sessions {
		d.putSessionLocked(s)
	}
	return nil
}

// UseGroups says what groups of the identity provider may do.
func (d *Directory) UseGroups(groups []GroupRole) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.roll.groups = groups
	d.reindexLocked()
}

func (d *Directory) putPersonLocked(rec state.PersonRecord) {
	live := d.roll.people[rec.Person.ID]
	if live == nil {
		live = &livePerson{}
		live.grants.Store(&map[string]*grant{})
		d.roll.people[rec.Person.ID] = live
	}
	live.rec.Store(&rec)
}

func (d *Directory) putSessionLocked(rec state.SessionRecord) {
	live := d.roll.sessions[rec.ID]
	if live == nil {
		person := d.roll.people[rec.Person]
		if person == nil {
			return // removed
		}
		live = &liveSession{person: person}
		live.ctx, live.cut = context.WithCancelCause(context.Background())
		d.roll.sessions[rec.ID] = live
	}
	live.rec.Store(&rec)
}

// applyPeopleLocked makes the part of a durable change effective that is about people.
func (d *Directory) applyPeopleLocked(c state.Change) {
	for _, p := range c.PutPeople {
		d.putPersonLocked(p)
	}
	for _, o := range c.PutOrganisations {
		d.roll.organisations[o.Organisation.Name] = o
	}
	for _, name := range c.DeleteOrganisations {
		delete(d.roll.organisations, name)
	}
	for _, s := range c.PutSessions {
		d.putSessionLocked(s)
	}
	for _, id := range c.DeleteSessions {
		if live := d.roll.sessions[id]; live != nil {
			live.end(errSignedOut)
			delete(d.roll.sessions, id)
		}
	}
	for _, id := range c.DeletePeople {
		if live := d.roll.people[id]; live != nil {
			live.regrant(nil)
			delete(d.roll.people, id)
		}
	}
}

// rerollLocked finds out anew what people may do, and which sessions work. Streams of a right that
// is gone, or of another role, are cut.
func (d *Directory) rerollLocked() {
	now := time.Now()
	scopes := d.scopesLocked()
	d.roll.names = make(map[string]*livePerson, len(d.roll.people))
	for _, live := range d.roll.people {
		rec := live.rec.Load()
		d.roll.names[rec.Person.Name] = live
		if !rec.Person.Disabled.IsZero() {
			live.regrant(nil)
			continue
		}
		own := maps.Clone(scopes[rec.Person.Name])
		for _, g := range d.roll.groups {
			if slices.Contains(rec.Groups, g.Group) {
				own = widen(own, g.Project, g.Role)
			}
		}
		live.regrant(own)
	}
	next := make(map[[sha256.Size]byte]*liveSession, len(d.roll.sessions))
	for _, s := range d.roll.sessions {
		next[s.rec.Load().Sum] = s
		d.watchSessionLocked(s, now)
	}
	d.roll.index.Store(&next)
}

// scopesLocked returns what members may do, by the names of people and of projects.
func (d *Directory) scopesLocked() map[string]map[string]carrel.KeyScope {
	out := map[string]map[string]carrel.KeyScope{}
	for name, p := range d.projects {
		for _, m := range p.Members {
			out[m.Person] = widen(out[m.Person], name, m.Role)
		}
	}
	for _, o := range d.roll.organisations {
		for _, m := range o.Members {
			for _, project := range o.Organisation.Projects {
				out[m.Person] = widen(out[m.Person], project, m.Role)
			}
		}
	}
	return out
}

// scopeOrder are the scopes, the least first.
var scopeOrder = []carrel.KeyScope{carrel.ScopeRead, carrel.ScopeRun, carrel.ScopeAdmin}

// widen adds a right. Of two for one project the greater one counts.
func widen(all map[string]carrel.KeyScope, project string, s carrel.KeyScope) map[string]carrel.KeyScope {
	if all == nil {
		all = map[string]carrel.KeyScope{}
	}
	if slices.Index(scopeOrder, s) > slices.Index(scopeOrder, all[project]) {
		all[project] = s
	}
	return all
}

// regrant replaces a person's rights. Rights that stay as they are keep their streams.
func (l *livePerson) regrant(scopes map[string]carrel.KeyScope) {
	before, next := *l.grants.Load(), make(map[string]*grant, len(scopes))
	for project, s := range scopes {
		g := before[project]
		if g == nil || g.scope != s {
			g = &grant{project: project, scope: s}
			g.ctx, g.cut = context.WithCancelCause(context.Background())
		}
		next[project] = g
	}
	l.grants.Store(&next) // first: a request that comes now must not get a right that ends
	for project, g := range before {
		if next[project] != g {
			g.cut(refusedPerson("the person's right in project %q has changed", project))
		}
	}
}

// memberships are a person's rights, by project.
func (l *livePerson) memberships() []carrel.Membership {
	out := []carrel.Membership{}
	for project, g := range *l.grants.Load() {
		out = append(out, carrel.Membership{Project: project, Role: g.scope.Role()})
	}
	slices.SortFunc(out, func(a, b carrel.Membership) int { return cmp.Compare(a.Project, b.Project) })
	return out
}

// now is the person with the latest use.
func (l *livePerson) now() carrel.Person {
	rec := l.rec.Load()
	p := rec.Person
	p.Password, p.Provider = rec.Password != "", rec.Provider
	if at := l.seen.Load(); at != 0 {
		p.LastSeen = time.Unix(0, at).UTC()
	}
	return p
}

// watchSessionLocked cuts a session that has ended, and sets the timer of another.
func (d *Directory) watchSessionLocked(s *liveSession, now time.Time) {
	if err := s.fault(now); err != nil {
		s.end(err)
		return
	}
	if s.timer != nil {
		s.timer.Stop()
	}
	end := s.rec.Load().Expires
	s.timer = time.AfterFunc(min(end.Sub(now), rearmAfter), func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.roll.sessions[s.rec.Load().ID] == s {
			d.watchSessionLocked(s, time.Now())
		}
	})
}

// end cuts the streams that the session opened.
func (s *liveSession) end(why error) {
	if s.timer != nil {
		s.timer.Stop()
		s.timer = nil
	}
	s.cut(why)
}

// lastUse is when the session was used last.
func (s *liveSession) lastUse() time.Time {
	at := s.rec.Load().Used
	if n := s.used.Load(); n != 0 && time.Unix(0, n).After(at) {
		at = time.Unix(0, n)
	}
	return at
}

// fault says why the session does not work; nil if it does.
func (s *liveSession) fault(now time.Time) error {
	rec, person := s.rec.Load(), s.person.rec.Load().Person
	switch {
	case s.ctx.Err() != nil:
		return context.Cause(s.ctx)
	case !person.Disabled.IsZero():
		return refusedPerson("the person %s is disabled", person.Name)
	case !now.Before(rec.Expires):
		return refusedPerson("the session of %s ended at %s", person.Name, rec.Expires.Format(time.RFC3339))
	case rec.Idle > 0 && now.Sub(s.lastUse()) > rec.Idle:
		return refusedPerson("the session of %s was not used for %v", person.Name, rec.Idle)
	}
	return nil
}

// session returns the session with a secret; nil if there is none.
func (d *Directory) session(secret string, kind state.SessionKind) *liveSession {
	s := (*d.roll.index.Load())[sha256.Sum256([]byte(secret))]
	if s == nil || s.rec.Load().Kind != kind {
		return nil
	}
	return s
}

// touch notes a use of a session.
func (s *liveSession) touch(now time.Time) {
	s.used.Store(now.UnixNano())
	s.person.seen.Store(now.UnixNano())
}

// savePeopleLocked adds uses that are not written to a change, and drops sessions that ended.
func (d *Directory) savePeopleLocked(c *state.Change, now time.Time) {
	for id, s := range d.roll.sessions {
		rec := *s.rec.Load()
		if s.fault(now) != nil {
			c.DeleteSessions = append(c.DeleteSessions, id)
			continue
		}
		if at := s.used.Swap(0); at != 0 {
			rec.Used = time.Unix(0, at).UTC()
			c.PutSessions = append(c.PutSessions, rec)
		}
	}
	for _, p := range d.roll.people {
		if at := p.seen.Swap(0); at != 0 {
			rec := *p.rec.Load()
			rec.Person.LastSeen = time.Unix(0, at).UTC()
			c.PutPeople = append(c.PutPeople, rec)
		}
	}
}

// closePeopleLocked cuts all streams of people.
func (d *Directory) closePeopleLocked() {
	why := errors.New("the daemon stops")
	for _, s := range d.roll.sessions {
		s.end(why)
	}
	for _, p := range d.roll.people {
		p.regrant(nil)
	}
	d.roll.index.Store(&map[[sha256.Size]byte]*liveSession{})
}

// personLocked finds a person by ID or name; nil if there is none.
func (d *Directory) personLocked(ref string) *livePerson {
	if live := d.roll.people[ref]; live != nil {
		return live
	}
	name, err := carrel.PersonName(ref)
	if err != nil {
		return nil
	}
	return d.roll.names[name]
}

// projectsOf returns the projects of a person, by name.
func (d *Directory) projectsOf(person string) []carrel.Project {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := []carrel.Project{}
	if live := d.roll.people[person]; live != nil {
		for _, m := range live.memberships() {
			if p, ok := d.projectLocked(m.Project); ok {
				out = append(out, p)
			}
		}
	}
	return out
}
