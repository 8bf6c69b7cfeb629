package carrel

import (
	"context"
	"fmt"
	"strings"
	"time"
	"unicode"
)

// Project owns sandboxes, templates, snapshots, secrets and keys. No project sees another one's.
type Project struct {
	Name string `json:"name"`
	// ID is how E2B's clients know the project. See [TeamID].
	ID      string    `json:"id"`
	Created time.Time `json:"created,omitzero"`
	// Default says that it is the project of callers that name none. It always exists.
	Default bool `json:"default,omitempty"`
}

// KeyScope says what an API key may do in its project.
type KeyScope string

// The scopes. Each one may do everything that the ones before it may.
const (
	// ScopeRead sees what there is, and changes and enters nothing.
	ScopeRead KeyScope = "read"
	// ScopeRun makes and uses sandboxes, templates, snapshots and secrets.
	ScopeRun KeyScope = "run"
	// ScopeAdmin also makes and revokes keys of its project.
	ScopeAdmin KeyScope = "admin"
)

// Role returns the role of a key's holder.
func (s KeyScope) Role() Role {
	switch s {
	case ScopeRead:
		return RoleReader
	case ScopeRun:
		return RoleMember
	case ScopeAdmin:
		return RoleOwner
	}
	return ""
}

// APIKey is everything about an API key but its secret, which is nowhere kept.
type APIKey struct {
	ID      string   `json:"id"`   // a UUID
	Name    string   `json:"name"` // only one living key of a project has it
	Project string   `json:"project"`
	Scope   KeyScope `json:"scope"`
	// Mask is the secret with most of it left out: "e2b_a1…4f2c".
	Mask string `json:"mask"`
	// Token says that it was made as an access token of E2B's.
	Token   bool      `json:"token,omitempty"`
	Created time.Time `json:"created"`
	// CreatedBy is the name of the key that made it.
	CreatedBy string `json:"createdBy,omitempty"`
	// Expires is when it stops working; zero is never.
	Expires time.Time `json:"expires,omitzero"`
	// LastUsed is accurate to a minute or so.
	LastUsed time.Time `json:"lastUsed,omitzero"`
	// OldUntil is until when the secret from before the last rotation works, too.
	OldUntil time.Time `json:"oldUntil,omitzero"`
	// Revoked is when it was revoked; zero for a key that works.
	Revoked time.Time `json:"revoked,omitzero"`
}

// Works reports whether the key opens anything at a time.
func (k APIKey) Works(now time.Time) bool {
	return k.Revoked.IsZero() && (k.Expires.IsZero() || now.Before(k.Expires))
}

// IssuedKey is a key with its secret. The secret is told only here.
type IssuedKey struct {
	APIKey
	Secret string `json:"secret"`
}

// NewKey says what key to make.
type NewKey struct {
	Name string `json:"name"`
	// Project is the caller's if it is "". Only an administrator may name another one.
	Project string `json:"project,omitempty"`
	// Scope is [ScopeRun] if it is "".
	Scope KeyScope `json:"scope,omitempty"`
	// Expires is when it stops working; zero is never.
	Expires time.Time `json:"expires,omitzero"`
	// Token makes an access token of E2B's.
	Token bool `json:"token,omitempty"`
	// Quota and Ceiling bind the key from its first moment on; nil is none. A key of [ScopeAdmin] has
	// none: it could make itself another.
	Quota   *Quota   `json:"quota,omitempty"`
	Ceiling *Ceiling `json:"ceiling,omitempty"`
}

// KeyUpdate changes a key. A nil field changes nothing.
type KeyUpdate struct {
	Name *string `json:"name,omitempty"`
	// Expires may move in both directions. A zero time is never.
	Expires *time.Time `json:"expires,omitempty"`
}

// People is the set of projects and of the keys that open them. A caller sees its own project. An
// administrator of the machine sees all. A key is found by its ID, or by its name in the caller's
// project.
type People interface {
	// Projects returns the projects that the caller sees, by name.
	Projects(ctx context.Context) ([]Project, error)
	// GetProject returns one project. Error: NotFound.
	GetProject(ctx context.Context, name string) (Project, error)
	// CreateProject makes a project. It is for administrators. Errors: Invalid, AlreadyExists.
	CreateProject(ctx context.Context, name string) (Project, error)
	// DeleteProject revokes the project's keys and removes it. It is for administrators. Errors:
	// NotFound, Invalid (the default one), Conflict (it still owns something).
	DeleteProject(ctx context.Context, name string) error

	// Keys returns the keys of the caller's project, the oldest first, also those revoked lately.
	// For an administrator these are the keys of all projects. Error: Forbidden.
	Keys(ctx context.Context) ([]APIKey, error)
	// GetKey returns one key. Errors: NotFound, Forbidden.
	GetKey(ctx context.Context, idOrName string) (APIKey, error)
	// CreateKey makes a key. A key that expires makes none that lives longer. Errors: Invalid,
	// NotFound (no such project), AlreadyExists, Exhausted, Forbidden.
	CreateKey(ctx context.Context, n NewKey) (IssuedKey, error)
	// UpdateKey changes a key. Errors: NotFound, Invalid, AlreadyExists, Forbidden.
	UpdateKey(ctx context.Context, idOrName string, u KeyUpdate) (APIKey, error)
	// RotateKey gives a key a new secret. The old one works as long as overlap says; 0 ends it at
	// once. Errors: NotFound, Invalid, Forbidden, Conflict (it works no more).
	RotateKey(ctx context.Context, idOrName string, overlap time.Duration) (IssuedKey, error)
	// RevokeKey ends a key for good, and cuts the streams that it opened. It is no error if it was
	// revoked before. Errors: NotFound, Forbidden.
	RevokeKey(ctx context.Context, idOrName string) error
}

// maxKeyName is the greatest length of a key's name, in bytes.
const maxKeyName = 64

// CheckKeyName says what is wrong with a key's name, with an Error of kind Invalid. A name stands
// in logs and on terminals, so it has no control characters.
func CheckKeyName(name string) error {
	wrong := &Error{Op: "name key", Kind: Invalid, Field: "name"}
	switch {
	case strings.TrimSpace(name) != name || name == "":
		wrong.Err = fmt.Errorf("%.80q is empty, or has spaces at its ends", name)
	case len(name) > maxKeyName:
		wrong.Err = fmt.Errorf("%.40q… is longer than %d bytes", name, maxKeyName)
	case strings.ContainsFunc(name,
		func(c rune) bool { return !unicode.IsPrint(c) || c == unicode.ReplacementChar }):
		wrong.Err = fmt.Errorf("%q has a character that can't be printed", name)
	default:
		return nil
	}
	return wrong
}

// NoPeople is a [People] for services that have one caller.
type NoPeople struct{}

const noPeople = "projects and keys"

// Projects implements People.
func (NoPeople) Projects(context.Context) ([]Project, error) {
	return nil, lacking("list projects", noPeople)
}

// GetProject implements People.
func (NoPeople) GetProject(context.Context, string) (Project, error) {
	return Project{}, lacking("get project", noPeople)
}

// CreateProject implements People.
func (NoPeople) CreateProject(context.Context, string) (Project, error) {
	return Project{}, lacking("create project", noPeople)
}

// DeleteProject implements People.
func (NoPeople) DeleteProject(context.Context, string) error {
	return lacking("delete project", noPeople)
}

// Keys implements People.
func (NoPeople) Keys(context.Context) ([]APIKey, error) { return nil, lacking("list keys", noPeople) }

// GetKey implements People.
func (NoPeople) GetKey(context.Context, string) (APIKey, error) {
	return APIKey{}, lacking("get key", noPeople)
}

// CreateKey implements People.
func (NoPeople) CreateKey(context.Context, NewKey) (IssuedKey, error) {
	return IssuedKey{}, lacking("create key", noPeople)
}

// UpdateKey implements People.
func (NoPeople) UpdateKey(context.Context, string, KeyUpdate) (APIKey, error) {
	return APIKey{}, lacking("update key", noPeople)
}

// RotateKey implements People.
func (NoPeople) RotateKey(context.Context, string, time.Duration) (IssuedKey, error) {
	return IssuedKey{}, lacking("rotate key", noPeople)
}

// RevokeKey implements People.
func (NoPeople) RevokeKey(context.Context, string) error { return lacking("revoke key", noPeople) }
