package carrel

import (
	"context"
	"fmt"
	"strings"
)

// Caller is who asks. The authenticator of a door finds out who it is and puts it in the
// context; whoever needs it takes it out with [CallerOf].
type Caller struct {
	// Key is the name of the key that was shown, never the key itself. It is for records
	// and logs.
	Key string
	// Project owns what the caller makes.
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
	// RoleAdmin sees every project and looks after the machine itself. What it makes
	// belongs to its own project, and names mean that project's things.
	RoleAdmin Role = "admin"
	// RoleMember does everything in its own project, and sees nothing of another.
	RoleMember Role = "member"
	// RoleVisitor uses a port of one sandbox, through the gateway.
	RoleVisitor Role = "visitor"
	// RoleSandbox is a program inside of one sandbox that asks its host.
	RoleSandbox Role = "sandbox"
)

// DefaultProject is the project of callers that name none.
const DefaultProject = "default"

// maxProject bounds a project's name, in bytes.
const maxProject = 64

// Local is the caller of a service inside this process, and of work that nobody asked for.
func Local() Caller { return Caller{Key: "local", Project: DefaultProject, Role: RoleAdmin} }

// Sees reports whether the caller may know of a thing that belongs to a project.
func (c Caller) Sees(project string) bool {
	return c.Role == RoleAdmin || c.Role == RoleMember && project != "" && project == c.Project
}

// MayUse reports whether the caller may make sandboxes of a template.
func (c Caller) MayUse(t Template) bool { return t.BuiltIn || t.Public || c.Sees(t.Project) }

type callerKey struct{}

// WithCaller says on whose behalf work with this context is done.
func WithCaller(ctx context.Context, c Caller) context.Context {
	return context.WithValue(ctx, callerKey{}, c)
}

// CallerIn returns what WithCaller said, and whether it did.
func CallerIn(ctx context.Context) (Caller, bool) {
	c, ok := ctx.Value(callerKey{}).(Caller)
	return c, ok
}

// CallerOf returns what WithCaller said, and [Local] where it did not.
func CallerOf(ctx context.Context) Caller {
	if c, ok := CallerIn(ctx); ok {
		return c
	}
	return Local()
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
