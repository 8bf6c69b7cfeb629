package carrel

import (
	"context"
	"crypto/sha256"
	"fmt"
	"strings"
)

// Caller is the author of a request. The authenticator of a door identifies the caller and puts it
// into the context. Code that needs it gets it with [CallerOf].
type Caller struct {
	// Key is the name of the API key that was used, never the key itself. It is for records and
	// logs.
	Key string
	// KeyID is the ID of an [APIKey]; "" for other credentials.
	KeyID string
	// Person is the ID of the [Person] who asks, and Session that of the sign-in; "" for keys.
	Person, Session string
	// Project owns everything that the caller makes.
	Project string
	Role    Role
	// Sandbox is the only sandbox that a [RoleVisitor] or a [RoleSandbox] may name; "" for
	// the other roles.
	Sandbox ID
}

// Role says what a caller may do.
type Role string

// The roles.
const (
	// RoleAdmin sees every project and manages the machine itself. Everything it makes belongs to
	// its own project, and a name means the thing of that name in its own project.
	RoleAdmin Role = "admin"
	// RoleOwner does everything in its own project, and makes and revokes the project's keys. It
	// sees nothing of other projects.
	RoleOwner Role = "owner"
	// RoleMember does everything in its own project but what concerns keys, and sees nothing of
	// other projects.
	RoleMember Role = "member"
	// RoleReader sees what there is in its own project. It changes nothing, and enters no sandbox.
	RoleReader Role = "reader"
	// RolePerson is a person who has named none of several projects, or has none. Such a caller only
	// sees itself and the names of its projects.
	RolePerson Role = "person"
	// RoleVisitor uses one port of one sandbox, through the gateway.
	RoleVisitor Role = "visitor"
	// RoleSandbox is a program inside one sandbox that sends requests to its host.
	RoleSandbox Role = "sandbox"
)

// DefaultProject is the project of callers that name none.
const DefaultProject = "default"

// maxProject bounds a project's name, in bytes.
const maxProject = 64

// Local is the caller of a service inside this process, and of work that no caller asked for.
func Local() Caller { return Caller{Key: "local", Project: DefaultProject, Role: RoleAdmin} }

// Sees reports whether the caller may know of a thing that belongs to project.
func (c Caller) Sees(project string) bool {
	switch c.Role {
	case RoleAdmin:
		return true
	case RoleOwner, RoleMember, RoleReader:
		return project != "" && project == c.Project
	}
	return false
}

// MayUse reports whether the caller may make sandboxes from a template.
func (c Caller) MayUse(t Template) bool { return t.BuiltIn || t.Public || c.Sees(t.Project) }

type callerKey struct{}

// WithCaller returns a context for work on behalf of c.
func WithCaller(ctx context.Context, c Caller) context.Context {
	return context.WithValue(ctx, callerKey{}, c)
}

// CallerIn returns the caller that WithCaller set, and whether there is one.
func CallerIn(ctx context.Context) (Caller, bool) {
	c, ok := ctx.Value(callerKey{}).(Caller)
	return c, ok
}

// CallerOf returns the caller that WithCaller set, and [Local] if none is set.
func CallerOf(ctx context.Context) Caller {
	if c, ok := CallerIn(ctx); ok {
		return c
	}
	return Local()
}

type askedKey struct{}

// WithAsked returns a context for a creation whose caller named the template by a text. Whoever puts
// the template's ID in place of the text keeps the text here: a repeated request is known by it,
// also when the name means another template by then.
func WithAsked(ctx context.Context, template string) context.Context {
	return context.WithValue(ctx, askedKey{}, template)
}

// AskedIn returns the text that WithAsked set, and whether there is one.
func AskedIn(ctx context.Context) (template string, ok bool) {
	template, ok = ctx.Value(askedKey{}).(string)
	return template, ok
}

// TeamID returns the ID that E2B's clients know a project by: a UUID. They send it back where they
// name a project.
func TeamID(project string) string {
	if project == DefaultProject {
		return "00000000-0000-8000-8000-000000000001"
	}
	h := sha256.Sum256([]byte("team\x00" + project))
	h[6], h[8] = h[6]&0x0f|0x80, h[8]&0x3f|0x80 // version 8 (our own), variant of RFC 9562
	return fmt.Sprintf("%x-%x-%x-%x-%x", h[0:4], h[4:6], h[6:8], h[8:10], h[10:16])
}

// CheckProject says what is wrong with a project's name, with an Error of kind Invalid.
func CheckProject(name string) error {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-@"
	if name == "" || len(name) > maxProject || strings.Trim(name, letters) != "" ||
		strings.ContainsFunc(name, func(c rune) bool { return !strings.ContainsRune(letters, c) }) {
		return &Error{Op: "name project", Kind: Invalid, Field: "project",
			Err: fmt.Errorf("%.80q is not 1 to %d letters, digits and . _ - @", name, maxProject)}
	}
	return nil
}
