package fleet

import (
	"context"
	"time"
)

// Login is a command line that waits for its person, as package signin has it.
type Login struct {
	Hash, Code  string // hashes of its two codes
	Label, From string
	Interval    time.Duration
	Person      string
	Denied      bool
	// Left and Quiet are by the registry's clock.
	Left, Quiet time.Duration
	Asked       bool
}

// Logins keep the command lines that wait at any front.
type Logins interface {
	// AddLogin adds one. Those that have expired go. Errors: AlreadyExists when another one has the code,
	// Exhausted when most wait.
	AddLogin(ctx context.Context, l Login, most int) error
	// ChangeLogin calls fn with the one that has a hash, or if that is "", a code, and keeps what fn makes
	// of it, or forgets it. Nobody else changes it meanwhile. fn may be called more than once. Error:
	// NotFound.
	ChangeLogin(ctx context.Context, hash, code string, fn func(*Login) (keep bool)) error
}
