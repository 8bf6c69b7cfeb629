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

// errRefused is the only answer to a client that may not pass.
var errRefused = errors.New("permission denied")

// target is the destination of a connection.
type target struct {
	id   carrel.ID
	user string // "" is the sandbox's own
}

// DefaultUser is the user name for the sandbox's own user, on a connection that leads to one
// sandbox only.
const DefaultUser = "carrel"

// parseTarget parses a user name of SSH: ID, or USER%ID.
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

// validUser reports whether a text is a valid user name inside a sandbox.
func validUser(s string) bool {
	const chars = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"
	return s != "" && len(s) <= 64 && s[0] != '-' && strings.Trim(s, chars) == ""
}

// target returns the destination of a connection's user name on this door.
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

// serverConfig returns the configuration of the handshake.
func (d *Door) serverConfig() *ssh.ServerConfig {
	cfg := &ssh.ServerConfig{ServerVersion: "SSH-2.0-Carrel", MaxAuthTries: d.opts.MaxTries}
	cfg.AddHostKey(d.opts.HostKey)
	if d.opts.Only != "" {
		// The other side of this pipe started this process, and has the key of the service behind
		// it.
		cfg.NoClientAuth = true
		cfg.NoClientAuthCallback = func(c ssh.ConnMetadata) (*ssh.Permissions, error) {
			if _, ok := d.target(c.User()); !ok {
				return nil, errRefused
			}
			return nil, nil
		}
		return cfg
	}
	// This is called when a client offers a key, before it proved that it has the key. So the
	// result must not depend on which sandboxes exist.
	cfg.PublicKeyCallback = func(c ssh.ConnMetadata, key ssh.PublicKey) (*ssh.Permissions, error) {
		if len(d.opts.Keys.Find(key.Marshal())) == 0 {
			return nil, errRefused
		}
		return &ssh.Permissions{}, nil
	}
	cfg.VerifiedPublicKeyCallback = func(c ssh.ConnMetadata, key ssh.PublicKey, _ *ssh.Permissions, _ string) (*ssh.Permissions, error) {
		for _, known := range d.opts.Keys.Find(key.Marshal()) { // one for each project with this key
			if d.allowed(known, c.User()) {
				return &ssh.Permissions{Extensions: map[string]string{extKey: known.Name, extProject: known.Project}}, nil
			}
		}
		return nil, errRefused
	}
	return cfg
}

// Names of a connection's permissions, which describe its key.
const (
	extKey     = "key"
	extProject = "project"
)

// keyOf returns the key that opened a connection. Its name is "" if no key was asked for.
func keyOf(p *ssh.Permissions) carrel.SSHKey {
	if p == nil {
		return carrel.SSHKey{}
	}
	return carrel.SSHKey{Name: p.Extensions[extKey], Project: p.Extensions[extProject]}
}

// caller returns the context for work on behalf of a key's holder.
func (d *Door) caller(ctx context.Context, key carrel.SSHKey) context.Context {
	if d.opts.Caller == nil {
		return ctx
	}
	return d.opts.Caller(ctx, key)
}

// allowed reports whether a proven key opens the sandbox in a user name. The holder of a key for
// some sandboxes can't find out whether others exist.
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
