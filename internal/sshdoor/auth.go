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
		known, ok := d.opts.Keys.find(key.Marshal())
		if !ok {
			return nil, errRefused
		}
		return &ssh.Permissions{Extensions: map[string]string{"key": known.Name}}, nil
	}
	cfg.VerifiedPublicKeyCallback = func(c ssh.ConnMetadata, key ssh.PublicKey, p *ssh.Permissions, _ string) (*ssh.Permissions, error) {
		known, ok := d.opts.Keys.find(key.Marshal())
		if !ok || !d.allowed(known, c.User()) {
			return nil, errRefused
		}
		return p, nil
	}
	return cfg
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
	_, err := d.opts.Sandboxes.Get(ctx, t.id)
	return err == nil
}
