package sshdoor

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/carrel-dev/carrel"
)

// errRefused is the one answer to whoever may not pass.
var errRefused = errors.New("permission denied")

// target is where a connection leads.
type target struct {
	id   carrel.ID
	user string // "" is the sandbox's own
}

// DefaultUser is the user name that means the sandbox's own user, on a connection that
// leads to one sandbox alone.
const DefaultUser = "carrel"

// parseTarget reads a user name of SSH: ID, or USER%ID.
func parseTarget(name string) (target, bool) {
	user, rest := "", name
	if i := strings.LastIndexByte(name, '%'); i >= 0 {
		user, rest = name[:i], name[i+1:]
		if !validUser(user) {
			return target{}, false
		}
	}
	id, err := carrel.ParseID(rest)
	return target{id: id, user: user}, err == nil
}

// validUser reports whether a user inside may have this name.
func validUser(s string) bool {
	const chars = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"
	return s != "" && len(s) <= 64 && s[0] != '-' && strings.Trim(s, chars) == ""
}

// target reads where the user name of a connection leads, on this door.
func (d *Door) target(name string) (target, bool) {
	t, ok := parseTarget(name)
	if d.opts.Only == "" {
		return t, ok
	}
	if ok {
		return t, t.id == d.opts.Only
	}
	if name == DefaultUser {
		return target{id: d.opts.Only}, true
	}
	return target{id: d.opts.Only, user: name}, validUser(name)
}

// serverConfig is the handshake's.
func (d *Door) serverConfig() *ssh.ServerConfig {
	cfg := &ssh.ServerConfig{ServerVersion: "SSH-2.0-Carrel", MaxAuthTries: d.opts.MaxTries}
	cfg.AddHostKey(d.opts.HostKey)
	if d.opts.Only != "" {
		// Whoever is on the other side of this pipe started this process, and has the
		// key of the service behind it.
		cfg.NoClientAuth = true
		cfg.NoClientAuthCallback = func(c ssh.ConnMetadata) (*ssh.Permissions, error) {
			if _, ok := d.target(c.User()); !ok {
				return nil, errRefused
			}
			return nil, nil
		}
		return cfg
	}
	// Called when a key is offered, before it was proven to be the caller's: nothing
	// may depend on what sandboxes there are.
	cfg.PublicKeyCallback = func(c ssh.ConnMetadata, key ssh.PublicKey) (*ssh.Permissions, error) {
		if len(d.opts.Keys.find(key.Marshal())) == 0 {
			return nil, errRefused
		}
		return &ssh.Permissions{}, nil
	}
	cfg.VerifiedPublicKeyCallback = func(c ssh.ConnMetadata, key ssh.PublicKey, _ *ssh.Permissions, _ string) (*ssh.Permissions, error) {
		for _, known := range d.opts.Keys.find(key.Marshal()) { // one for each project that has it
			if d.allowed(known, c.User()) {
				return &ssh.Permissions{Extensions: map[string]string{extKey: known.Name, extProject: known.Project}}, nil
			}
		}
		return nil, errRefused
	}
	return cfg
}

// What a connection's permissions say of the key that opened it.
const (
	extKey     = "key"
	extProject = "project"
)

// keyOf is the key that opened a connection; it has no name where none was asked for.
func keyOf(p *ssh.Permissions) carrel.SSHKey {
	if p == nil {
		return carrel.SSHKey{}
	}
	return carrel.SSHKey{Name: p.Extensions[extKey], Project: p.Extensions[extProject]}
}

// caller returns the context of what is done for a key's holder.
func (d *Door) caller(ctx context.Context, key carrel.SSHKey) context.Context {
	if d.opts.Caller == nil {
		return ctx
	}
	return d.opts.Caller(ctx, key)
}

// allowed reports whether a proven key opens the sandbox that a user name says. A
// key for some sandboxes is told of no others whether they are there.
func (d *Door) allowed(key carrel.SSHKey, name string) bool {
	t, ok := d.target(name)
	if !ok || (len(key.Sandboxes) > 0 && !slices.Contains(key.Sandboxes, t.id)) {
		return false
	}
	ctx, cancel := context.WithTimeout(d.ctx, 5*time.Second)
	defer cancel()
	_, err := d.opts.Sandboxes.Get(d.caller(ctx, key), t.id)
	return err == nil
}
