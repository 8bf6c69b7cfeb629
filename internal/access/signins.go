package access

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/attempts"
	"github.com/carrel-dev/carrel/internal/password"
	"github.com/carrel-dev/carrel/internal/request"
	"github.com/carrel-dev/carrel/internal/state"
)

// Lifetimes says how long sessions last. A zero field takes the built-in value.
type Lifetimes struct {
	// Browser ends a browser's session, and Idle one that is not used.
	Browser, Idle time.Duration
	// Token ends the token of a command line.
	Token time.Duration
}

const (
	defaultBrowser = 12 * time.Hour
	defaultIdle    = 2 * time.Hour
	defaultToken   = 7 * 24 * time.Hour
	// maxSessions bounds the sessions of one person; the oldest make room.
	maxSessions = 50
)

// SignIns makes sessions for people who prove who they are. It is safe for concurrent use.
type SignIns struct {
	dir    *Directory
	hasher *password.Hasher
	names  *attempts.Counter
	from   *attempts.Counter
	life   Lifetimes
}

// NewSignIns returns the sign-ins of a directory.
func NewSignIns(d *Directory, life Lifetimes) *SignIns {
	if life.Browser == 0 {
		life.Browser = defaultBrowser
	}
	if life.Idle == 0 {
		life.Idle = defaultIdle
	}
	if life.Token == 0 {
		life.Token = defaultToken
	}
	return &SignIns{dir: d, hasher: password.New(), life: life,
		names: attempts.New(10, time.Minute), from: attempts.New(50, 2*time.Second)}
}

// UseGroups says what groups of the identity provider may do.
func (s *SignIns) UseGroups(groups []GroupRole) { s.dir.UseGroups(groups) }

// busy makes a public error of what kept a hash from being computed.
func (s *SignIns) busy(op string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, password.ErrBusy):
		return &carrel.Error{Op: op, Kind: carrel.Unavailable, Err: err, RetryAfter: 2 * time.Second}
	}
	return &carrel.Error{Op: op, Kind: carrel.Unavailable, Err: err}
}

// errPassword is the one error for a wrong name and a wrong password.
var errPassword = errors.New("the name or the password is wrong")

// verify checks the password of a name. It takes as long for a name that nobody has, and refuses too
// many attempts for both alike. Errors: Unauthenticated, Exhausted, Unavailable.
func (s *SignIns) verify(ctx context.Context, op, name, given string) error {
	wait := s.names.Take(name)
	if info := request.Of(ctx); info != nil {
		wait = max(wait, s.from.Take(attempts.Network(info.From)))
	}
	if wait > 0 {
		return &carrel.Error{Op: op, Kind: carrel.Exhausted, Field: "name",
			Err: errors.New("too many attempts"), RetryAfter: wait}
	}
	hash := ""
	s.dir.mu.Lock()
	live := s.dir.personLocked(name)
	if live != nil {
		if rec := live.rec.Load(); rec.Person.Disabled.IsZero() && !rec.Provider {
			hash = rec.Password
		}
	}
	s.dir.mu.Unlock()
	if len(given) > 1024 {
		given = given[:1024] // longer than any password; the answer is no anyway
	}
	ok, err := s.hasher.Check(ctx, hash, given)
	if err != nil {
		return s.busy(op, err)
	}
	if !ok {
		return &carrel.Error{Op: op, Kind: carrel.Unauthenticated, Err: errPassword}
	}
	s.names.Forget(name)
	return nil
}

// Password returns the person with a name and a password. Errors: Unauthenticated, Exhausted,
// Unavailable.
func (s *SignIns) Password(ctx context.Context, name, given string) (person string, err error) {
	const op = "sign in"
	key, nerr := carrel.PersonName(name)
	if nerr != nil {
		key = "?" // no person has this name; the rest takes as long
	}
	if err := s.verify(ctx, op, key, given); err != nil {
		return "", err
	}
	s.dir.mu.Lock()
	defer s.dir.mu.Unlock()
	if live := s.dir.personLocked(key); live != nil {
		return live.rec.Load().Person.ID, nil
	}
	return "", &carrel.Error{Op: op, Kind: carrel.Unauthenticated, Err: errPassword}
}

// Provided returns the person whom the identity provider names. A person is known by issuer and
// subject. The first time, a verified email address finds a person that was made for it, or makes
// one if a member or a group has that right. Errors: Forbidden, Unavailable.
func (s *SignIns) Provided(ctx context.Context, issuer, subject, email string, in []string) (person string, err error) {
	const op = "sign in"
	id := identity{issuer, subject, email}
	d := s.dir
	d.mu.Lock()
	defer d.mu.Unlock()
	groups := []string{}
	for _, g := range d.roll.groups { // others mean nothing here, and may be many
		if slices.Contains(in, g.Group) && !slices.Contains(groups, g.Group) {
			groups = append(groups, g.Group)
		}
	}
	slices.Sort(groups)
	for _, live := range d.roll.people {
		rec := *live.rec.Load()
		if rec.Issuer != id.issuer || rec.Subject != id.subject || rec.Subject == "" {
			continue
		}
		if !rec.Person.Disabled.IsZero() {
			return "", disabled(op)
		}
		if slices.Equal(rec.Groups, groups) {
			return rec.Person.ID, nil
		}
		rec.Groups = groups
		return rec.Person.ID, d.applyLocked(ctx, state.Change{PutPeople: []state.PersonRecord{rec}})
	}
	return s.firstSignInLocked(ctx, op, id, groups)
}

// identity is how an identity provider knows a person. email is "" unless it has verified it.
type identity struct{ issuer, subject, email string }

func disabled(op string) error {
	return &carrel.Error{Op: op, Kind: carrel.Forbidden, Err: errors.New("this person is disabled"),
		Hint: "ask an administrator of the machine"}
}

// firstSignInLocked binds a person to the provider's subject.
func (s *SignIns) firstSignInLocked(ctx context.Context, op string, id identity, groups []string) (string, error) {
	d := s.dir
	name, err := carrel.PersonName(id.email)
	if err != nil {
		name = ""
	}
	if live := d.personLocked(name); name != "" && live != nil {
		rec := *live.rec.Load()
		switch {
		case !rec.Provider || rec.Subject != "":
			// Whoever controls the address at the provider must not become somebody who signs in
			// otherwise.
			return "", &carrel.Error{Op: op, Kind: carrel.Forbidden,
				Err:  errors.New("a person with this address signs in in another way"),
				Hint: "ask an administrator of the machine"}
		case !rec.Person.Disabled.IsZero():
			return "", disabled(op)
		}
		rec.Issuer, rec.Subject, rec.Groups = id.issuer, id.subject, groups
		return rec.Person.ID, d.applyLocked(ctx, state.Change{PutPeople: []state.PersonRecord{rec}})
	}
	if len(groups) == 0 && (name == "" || len(d.scopesLocked()[name]) == 0) {
		return "", &carrel.Error{Op: op, Kind: carrel.Forbidden,
			Err:  errors.New("you are a member of no project here"),
			Hint: "ask an administrator of a project: carrel member add YOUR-ADDRESS"}
	}
	if name == "" {
		sum := sha256.Sum256([]byte(id.issuer + "\x00" + id.subject))
		name = fmt.Sprintf("provider-%x", sum[:8])
	}
	rec := state.PersonRecord{Provider: true, Issuer: id.issuer, Subject: id.subject, Groups: groups,
		Person: carrel.Person{ID: newUUID(), Name: name, Created: time.Now().UTC()}}
	if strings.Contains(name, "@") {
		rec.Person.Email = name
	}
	return rec.Person.ID, d.addPersonLocked(ctx, op, rec)
}

// Begin makes a session of a person, and returns its secret. label says what it is for.
func (s *SignIns) Begin(ctx context.Context, person string, kind state.SessionKind, label string) (secret string, expires time.Time, err error) {
	const op = "sign in"
	now := time.Now().UTC().Round(0)
	rec := state.SessionRecord{ID: newUUID(), Person: person, Kind: kind, Label: label, Created: now,
		Used: now}
	if kind == state.TokenSession {
		// It has the form of a key, so that every client of E2B's takes it.
		secret, _, rec.Sum = newSecret(secretPrefix)
		rec.Expires = now.Add(s.life.Token)
	} else {
		var b [32]byte
		_, _ = rand.Read(b[:]) // never fails: crypto/rand aborts the process instead
		secret = base64.RawURLEncoding.EncodeToString(b[:])
		rec.Sum, rec.Expires, rec.Idle = sha256.Sum256([]byte(secret)), now.Add(s.life.Browser), s.life.Idle
	}
	d := s.dir
	d.mu.Lock()
	defer d.mu.Unlock()
	live := d.roll.people[person]
	if live == nil || !live.rec.Load().Person.Disabled.IsZero() {
		return "", time.Time{}, disabled(op)
	}
	c := state.Change{PutSessions: []state.SessionRecord{rec}}
	own := d.sessionsOfLocked(person, "")
	slices.SortFunc(own, func(a, b string) int {
		return d.roll.sessions[a].lastUse().Compare(d.roll.sessions[b].lastUse())
	})
	if n := len(own) - maxSessions + 1; n > 0 {
		c.DeleteSessions = own[:n]
	}
	live.seen.Store(now.UnixNano())
	return secret, rec.Expires, d.applyLocked(ctx, c)
}

// End ends the session with a secret, and cuts its streams. It is no error if there is none.
func (s *SignIns) End(ctx context.Context, secret string) error {
	d := s.dir
	d.mu.Lock()
	defer d.mu.Unlock()
	live := (*d.roll.index.Load())[sha256.Sum256([]byte(secret))]
	if live == nil {
		return nil
	}
	return d.applyLocked(ctx, state.Change{DeleteSessions: []string{live.rec.Load().ID}})
}

// Who returns the person of a browser's session that works, and the session's ID.
func (s *SignIns) Who(secret string) (person carrel.Person, session string, ok bool) {
	live := s.dir.session(secret, state.BrowserSession)
	if now := time.Now(); live != nil && live.fault(now) == nil {
		live.touch(now)
		return live.person.now(), live.rec.Load().ID, true
	}
	return carrel.Person{}, "", false
}

// FormToken returns the text that a page of a session must send along with what it changes. Another
// site can't read it.
func FormToken(secret string) string {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte("carrel form"))
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// FormToken is the function of this name, for doors.
func (s *SignIns) FormToken(secret string) string { return FormToken(secret) }

// sameToken compares without telling how much is the same.
func sameToken(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }
